"""PK's tables: how well scores find known heads, informativeness, the strongest edges, hubs, attention patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from headspaces.affinity.classes import PATTERNS
from headspaces.affinity.evaluation import evaluate_heads, evaluate_pairs
from headspaces.affinity.graph import class_counts, rank_hubs, strongest_edges
from headspaces.affinity.informativeness import (
    N_EDGES,
    ORDER,
    bin_edges,
    distance,
    divergence,
    left_out,
    observed_counts,
    random_fractions,
    reference_moments,
)
from headspaces.report.pk_results import graphs, is_gpt2, measured, pk_and_cs_pairs, with_classes
from headspaces.report.results import Arrays, ModelResults
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import joined, plain
from headspaces.spaces import ACROSS
from headspaces.study.published import Published

INVARIANT = {"cka": "cka_invariant", "procrustes": "procrustes_invariant"}
"""Forms that do not depend on the bases inside heads; the other scores never do."""


def pk_table1(models: Sequence[ModelResults], published: Sequence[Published] = ()) -> Table:
    """How well the largest score of a head's pairs finds the heads of a known circuit (PK table 1)."""
    printed = _printed(published, "pk_table1")
    rows: list[dict[str, Any]] = []
    notes = []
    for model, arrays, classes in with_classes(models):
        labels = arrays["head_classes/counts"].astype(bool)
        found = evaluate_heads(arrays, labels).set_index(["method", "spaces"])
        rows += _evaluated_rows(model, found, {"published": "pr_auc"}, printed if is_gpt2(model, classes) else {})
        notes.append(
            f"{model.name}: {labels.sum()} of {labels.size} heads are the circuit's ({classes.name}); "
            f"chance: {labels.mean():.3f}."
        )
    columns = "model method spaces pr_auc published average_precision pr_auc_invariant average_precision_invariant"
    return _without_published(plain(columns, rows), (*notes, *_without_classes(models)))


def pk_table2(models: Sequence[ModelResults], published: Sequence[Published] = ()) -> Table:
    """How well a score finds the pairs of one class, mean over kinds and classes (PK table 2)."""
    printed = _printed(published, "pk_table2")
    rows: list[dict[str, Any]] = []
    notes = []
    for model, arrays, classes in with_classes(models):
        numbers = _evaluated(arrays)
        cells = evaluate_pairs(arrays, numbers)
        found = cells.groupby("method", sort=False)[["pr_auc", "roc_auc", "average_precision"]].mean()
        names = {f"published_{area}": area for area in ("pr_auc", "roc_auc")}
        rows += _evaluated_rows(model, found, names, printed if is_gpt2(model, classes) else {})
        chance = np.mean([_share(numbers, number) for number in cells["head_class"].unique().tolist()])
        notes.append(f"{model.name}: classes of {classes.name}; chance: PR-AUC {chance:.4f}, ROC-AUC 0.5.")
    columns = """model method pr_auc roc_auc published_pr_auc published_roc_auc average_precision pr_auc_invariant
                 roc_auc_invariant average_precision_invariant"""
    return _without_published(plain(columns, rows), (*notes, *_without_classes(models)))


def pk_kl(models: Sequence[ModelResults], published: Sequence[Published] = ()) -> Table:
    """Divergence of every kind pair's PK from that of random subspaces (PK figure 8)."""
    printed = _printed(published, "pk_kl")
    rows = [
        (model.name, x, y, kl, printed.get(("kl", x, y), np.nan) if is_gpt2(model) else np.nan)
        for model, arrays in measured(models)
        for (x, y), kl in zip(product(ORDER, ORDER), arrays["kl"].flat)
    ]
    return _without_published(plain("model source target kl published", rows), _not_measured(models))


def informativeness(models: Sequence[ModelResults]) -> Table:
    """How far PK is from that of random subspaces, in their standard deviations, beside the divergence by bins."""
    rows = []
    for model, arrays in measured(models):
        shape = model.attributes["d_model"], model.attributes["d_head"]
        mean, sd = reference_moments(*shape)
        for x, y in product(ORDER, ORDER):
            values = arrays[f"pk/{x}{y}"]
            values = values[np.isfinite(values)]
            moments = ((values.mean() - mean) / sd, values.std() / sd) if values.size and sd else (np.nan, np.nan)
            rows.append((model.name, x, y, values.size, distance(values, *shape), *moments, *_by_bins(values, *shape)))
    columns = "model source target n_pairs distance_sds mean_sds sd_ratio kl_128 kl_256 kl_1024 left_out_256"
    return Table(plain(columns, rows), _not_measured(models))


def _by_bins(values: np.ndarray, d_model: int, d_head: int) -> tuple[float, ...]:
    """Divergence with 127, 255 and 1023 bins, and the part of the reference that 255 bins leave out."""
    found = []
    for n_edges in (128, N_EDGES, 1024):
        edges = bin_edges(d_head, n_edges)
        reference, counts = random_fractions(edges, d_model, d_head), observed_counts(edges, values)
        found.append((divergence(reference, counts), left_out(reference, counts)))
    return *(kl for kl, _ in found), found[1][1]


def pk_means(models: Sequence[ModelResults]) -> Table:
    """Mean and standard deviation of PK for every kind pair, beside those of random subspaces (PK section 4)."""
    rows = []
    for model, arrays in measured(models):
        d_model, d_head = model.attributes["d_model"], model.attributes["d_head"]
        reference = reference_moments(d_model, d_head)
        for x, y in product(ORDER, ORDER):
            values = arrays[f"pk/{x}{y}"]
            values = values[np.isfinite(values)]
            moments = (values.mean(), values.std()) if values.size else (np.nan, np.nan)
            rows.append((model.name, x, y, values.size, *moments, *reference))
    return Table(plain("model source target n_pairs mean sd reference_mean reference_sd", rows), _not_measured(models))


def pk_edges(models: Sequence[ModelResults]) -> Table:
    """List the strongest pairs of each type by PK (PK figure 1)."""
    return _edges(models, "pk")


def cs_edges(models: Sequence[ModelResults]) -> Table:
    """List the strongest pairs of each type by the Composition Score (PK figure 1)."""
    return _edges(models, "cs")


def pk_degrees(models: Sequence[ModelResults]) -> Table:
    """Hubs of the graph of the strongest PK edges: degrees, weighted degrees, PageRank (PK section 5)."""
    columns = """model rank layer head kind head_class n_edges n_in n_out weight weight_in weight_out pagerank
                 in_oq in_ok in_ov out_oq out_ok out_ov"""
    frames = [rank_hubs(graph).assign(model=model.name) for model, _, graph in graphs(models, "pk")]
    frame = joined(columns, frames)
    return Table(frame, _not_measured(models), frame[frame["rank"] <= 10], "the ten heads with the most edges")


def pk_nodes(models: Sequence[ModelResults]) -> Table:
    """Count the heads in the graphs of the strongest edges, in a known class and in none (PK figure 1)."""
    rows = []
    for score in ("pk", "cs"):
        for model, classes, graph in graphs(models, score):
            rows.append((model.name, score, classes.name if classes else None, graph.size(), *class_counts(graph)))
    return Table(plain("model method set n_edges n_in_class n_out_of_class", rows), _not_measured(models))


def pk_cutoffs(models: Sequence[ModelResults]) -> Table:
    """Cut-offs of the strongest 3 % of the pairs and limits of the axes, by PK and by CS (PK figure 5)."""
    rows = []
    for model, spaces, pk, cs, ends in pk_and_cs_pairs(models):
        above = (pk > ends["pk_cutoff"]) & (cs > ends["cs_cutoff"])
        rows.append((model.name, spaces, pk.size, *ends.values(), above.sum()))
    columns = "model spaces n_pairs pk_cutoff pk_limit cs_cutoff cs_limit n_above_both"
    return Table(plain(columns, rows), _not_measured(models))


def head_classes(models: Sequence[ModelResults]) -> Table:
    """Count the heads whose classes are known (PK table 8)."""
    rows = [
        (model.name, classes.name, len(classes.evaluated), len(classes.names), len(classes.order))
        for model, _, classes in with_classes(models)
    ]
    return Table(plain("model set n_heads n_labelled n_classes", rows), _without_classes(models))


def identity(models: Sequence[ModelResults]) -> Table:
    """Mean attention of every head to the token itself, the one before, the one after an earlier copy (PK figure 7)."""
    frames = []
    for model in models:
        if model.attention is None:
            continue
        scores = {f"{name}_score": model.attention[name].ravel() for name in PATTERNS}
        layer, head = np.indices(model.attention["identity"].shape).reshape(2, -1)
        frame = pd.DataFrame({"layer": layer, "head": head, **scores})
        frame = frame.sort_values("identity_score", ascending=False, kind="stable", ignore_index=True)
        frames.append(frame.assign(model=model.name, rank=np.arange(1, len(frame) + 1)))
    frame = joined("model rank layer head identity_score previous_token_score induction_score", frames)
    notes = tuple(f"{model.name}: not run." for model in models if model.attention is None)
    return Table(frame, notes, frame[frame["rank"] <= 10], "the ten heads that attend most to the token itself")


def _edges(models: Sequence[ModelResults], score: str) -> Table:
    frames = [
        strongest_edges(arrays, score).assign(model=model.name)
        for model, arrays in measured(models)
        if all(f"{score}/{kind}" in arrays for kind in ACROSS)
    ]
    frame = joined(f"model type source_layer source_head target_layer target_head {score} rank", frames)
    return Table(frame, _not_measured(models), frame[frame["rank"] <= 5], "the five strongest of each type")


def _printed(published: Iterable[Published], table: str) -> dict[tuple[str, ...], float]:
    """PK's numbers of a table by their addresses: the column, and what the conditions but the model's ask for."""
    addresses = ((row.address, row.ends[0]) for row in published)
    return {
        (*address.columns, *(values[0] for name, values in address.conditions if name != "model")): number
        for address, number in addresses
        if address and address.table == table
    }


def _evaluated_rows(
    model: ModelResults, found: pd.DataFrame, published: Mapping[str, str], printed: Mapping[tuple[str, ...], float]
) -> Iterator[dict[str, Any]]:
    """Rows of the scores in PK's own form, each with PK's numbers and the areas of its invariant form, if computed."""
    areas = found.assign(**dict.fromkeys(published, np.nan)).reset_index()
    for row in areas[~areas["method"].isin(INVARIANT.values())].to_dict("records"):
        method, *spaces = (row[name] for name in found.index.names)
        form = INVARIANT.get(method, method)
        place = (form, *spaces) if spaces else form
        numbers = {name: printed.get((area, method, *spaces), np.nan) for name, area in published.items()}
        invariant = {f"{name}_invariant": found[name][place] for name in found} if place in found.index else {}
        cells = {str(name): value for name, value in row.items()}
        yield {"model": model.name, **cells, **numbers, **invariant}


def _without_published(frame: pd.DataFrame, notes: tuple[str, ...]) -> Table:
    """Leave out for the reader the columns of published numbers where there are none for these models."""
    empty = [column for column in frame if str(column).startswith("published") and frame[column].isna().all()]
    return Table(frame, notes, frame.drop(columns=empty) if len(frame) else None)


def _not_measured(models: Sequence[ModelResults]) -> tuple[str, ...]:
    return tuple(f"{model.name}: not measured." for model in models if model.affinity is None)


def _without_classes(models: Sequence[ModelResults]) -> tuple[str, ...]:
    known = {model.name for model, *_ in with_classes(models)}
    return tuple(f"{model.name}: no classes of its heads are named." for model in models if model.name not in known)


def _evaluated(arrays: Arrays) -> Int[np.ndarray, "layer head"]:
    """Return the number of each head's class; -1 for a head that PK's tables do not count."""
    return np.where(arrays["head_classes/counts"] > 0, arrays["head_classes/class"], -1)


def _share(classes: Int[np.ndarray, "layer head"], number: int) -> float:
    """Share of the unordered pairs whose heads are both of a class."""
    own, every = int((classes == number).sum()), classes.size
    return own * (own - 1) / (every * (every - 1))
