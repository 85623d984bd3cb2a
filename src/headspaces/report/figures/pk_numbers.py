"""PK's figures, one function each: it returns the numbers that are drawn, and ``@drawn`` says how."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from headspaces.affinity.graph import HeadGraph, Positions, class_counts, layered_positions, ring_positions
from headspaces.affinity.informativeness import ORDER, bin_edges, observed_counts, random_fractions
from headspaces.report.figures import layout
from headspaces.report.figures.pk_panels import SCATTER_BINS, pk_against_cs, two_layers
from headspaces.report.pk_results import classes_of, graphs, measured, pk_and_cs_pairs
from headspaces.report.results import ModelResults
from headspaces.report.tidy_frames import joined, plain
from headspaces.spaces import ACROSS

GRAPH_COLUMNS = """model method n_in_class n_out_of_class item node kind head_class layer x y tokens source target type
                   score rank"""
"""Of figures that draw a graph: rows of nodes (``item`` is ``node``) and of edges."""

HISTOGRAM_PAIRS = (("Q", "Q"), ("V", "O"))
"""The kind pairs whose histograms PK shows: the most and the least informative."""

SHOWN_TOKENS = 5
"""Top tokens written beside a head."""


@layout.drawn(layout.graphs_by_method, height=2.2)
def pk_figure1(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Graphs of the strongest edges by PK and by CS: heads of a class inside the ring of the others."""
    found = [
        _graph_frame(graph, ring_positions(graph, classes.order if classes else ()), model, score)
        for one in models
        for score in ("pk", "cs")
        for model, classes, graph in graphs([one], score)
        if len(graph)
    ]
    return joined(GRAPH_COLUMNS, found)


@layout.drawn(layout.rows_below({two_layers: ""}), subject="two layers")
def pk_figure4(models: Sequence[ModelResults]) -> pd.DataFrame:
    """All pairs of a model of two layers: PK, and what the heads attend to."""
    rows = []
    for model, arrays in measured(models):
        if model.shape.n_layers != 2:
            continue
        classes = classes_of(model)
        names = classes.names if classes else {}
        largest = max(float(arrays[f"pk/{spaces}"][0, 1].max()) for spaces in ACROSS)
        for spaces in ACROSS:
            values = arrays[f"pk/{spaces}"][0, 1]
            # Classes are those of query heads, not of shared key-value heads.
            later = names if values.shape[1] == values.shape[0] else {}
            isotropic = model.isotropic * model.shape.d_head
            rows += [
                (model.name, spaces, isotropic, largest, i, j, pk, names.get((0, i), ""), later.get((1, j), ""))
                for (i, j), pk in np.ndenumerate(values)
            ]
    return plain("model spaces isotropic largest source_head target_head pk source_class target_class", rows)


@layout.drawn(layout.rows_below({pk_against_cs: "pairs"}), height=1.2)
def pk_figure5(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Count pairs by PK and CS, in bins up to the limits, with the cut-offs of the strongest 3 %."""
    rows = []
    for model, spaces, pk, cs, ends in pk_and_cs_pairs(models):
        edges = [np.linspace(0, ends[f"{score}_limit"], SCATTER_BINS + 1) for score in ("pk", "cs")]
        counts = np.histogram2d(pk, cs, edges)[0].astype(int)
        names = model.name, spaces, pk.size, *ends.values()
        rows += [(*names, edges[0][i], edges[1][j], counts[i, j]) for i, j in np.argwhere(counts)]
    return plain("model spaces n_pairs pk_cutoff pk_limit cs_cutoff cs_limit pk cs n_pairs_in_bin", rows)


@layout.drawn(layout.layered_graphs)
def pk_figure6(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Graph of the strongest PK edges with the layers upwards, and each head's top tokens where they are known."""
    found = [
        _graph_frame(graph, layered_positions(graph), model, "pk")
        for model, _, graph in graphs(models, "pk")
        if len(graph)
    ]
    return joined(GRAPH_COLUMNS, found)


@layout.drawn(layout.patterns)
def pk_figure7(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Mean attention of every head to the token itself, the one before, the one after its earlier copy."""
    rows = [
        (model.name, name, *where, value)
        for model in models
        if model.attention is not None
        for name in ("identity", "previous_token", "induction")
        for where, value in np.ndenumerate(model.attention[name])
    ]
    return plain("model quantity layer head value", rows)


@layout.drawn(layout.informativeness)
def pk_figure8(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Divergences of all kind pairs, and the shares of two histograms with those of random subspaces."""
    rows: list[dict[str, Any]] = []
    for model, arrays in measured(models):
        shape = model.shape
        rows += [
            {"model": model.name, "item": "kl", "source": x, "target": y, "value": kl}
            for (x, y), kl in zip(product(ORDER, ORDER), arrays["kl"].flat)
        ]
        edges = bin_edges(shape.d_head)
        random = random_fractions(edges, shape.d_model, shape.d_head)
        for x, y in HISTOGRAM_PAIRS:
            counts = observed_counts(edges, arrays[f"pk/{x}{y}"])
            if not counts.sum():
                continue
            names = {"model": model.name, "item": "histogram", "source": x, "target": y}
            shares = np.stack([counts / counts.sum(), random])
            # Bins in which neither has a thousandth of a percent are not worth a row.
            rows += [
                {**names, "low": edges[i], "high": edges[i + 1], "value": shares[0, i], "random": shares[1, i]}
                for i in np.flatnonzero(shares.max(axis=0) > 1e-5)
            ]
    return plain("model item source target low high value random", rows)


def _graph_frame(graph: HeadGraph, positions: Positions, model: ModelResults, score: str) -> pd.DataFrame:
    inside, outside = class_counts(graph)
    names = {"model": model.name, "method": score, "n_in_class": inside, "n_out_of_class": outside}
    tokens = _tokens(model)
    nodes = [
        {
            **names, **data, "item": "node", "node": node, "x": positions[node][0], "y": positions[node][1],
            "tokens": tokens.get((data["layer"], data["head"]), "") if data["kind"] == "query" else "",
        }
        for node, data in graph.nodes(data=True)
    ]  # fmt: skip
    edges = [
        {**names, **data, "item": "edge", "source": source, "target": target, "score": data["weight"]}
        for source, target, data in graph.edges(data=True)
    ]
    return plain(GRAPH_COLUMNS, [*nodes, *edges])


def _tokens(model: ModelResults) -> dict[tuple[int, int], str]:
    """First top tokens of every head in one line; none where the unembedding was not at hand."""
    if model.attention is None or "top_token_texts" not in model.attention:
        return {}
    found = model.attention["top_token_texts"]
    return {
        (layer, head): " ".join(_shown(text) for text in found[layer, head, :SHOWN_TOKENS])
        for layer, head in np.ndindex(found.shape[:2])
    }


def _shown(text: bytes) -> str:
    """Write a token on one line, in what the figures' font has."""
    stripped = text.decode("utf-8", errors="replace").strip()
    plain = "".join(sign if sign.isprintable() and ord(sign) < 0x250 else "·" for sign in stripped)
    return plain or "_"
