"""The strongest connections of a model: pairs of writer and later reader, and what these heads are known as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headspaces.affinity.classes import HeadClasses
from headspaces.report.pair_tests import pair_tests
from headspaces.report.pk_results import classes_of
from headspaces.report.results import Comparison, ModelResults, first_measure
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import plain

STRONGEST = 100
"""Pairs of a model that the table has."""


def strongest_pairs(models: Sequence[ModelResults]) -> Table:
    """List the pairs of a writer and a later reader of largest rho, through queries, keys and values together."""
    columns = """model rank spaces writer_layer writer_head reader_layer reader_head rho isotropic_ratio min_angle_deg
                 swap_z swap_p effect writer_class reader_class"""
    frame = plain(columns, [row for model in models for row in _strongest(model)])
    return Table(frame, tuple(_sources(models)), frame[frame["rank"] <= 10], "the ten strongest of each model")


def _strongest(model: ModelResults) -> Iterator[dict[str, Any]]:
    comparisons, effects = list(model.compare_all("across")), model.attribution
    start = first_measure(effects) if effects else ""
    every = [(rho, which, flat) for which, one in enumerate(comparisons) for rho, flat in _largest(one)]
    classes, tests = classes_of(model), list(map(pair_tests, comparisons))
    for rank, (rho, which, flat) in enumerate(sorted(every, key=lambda pair: -pair[0])[:STRONGEST], start=1):
        comparison = comparisons[which]
        condition, pair = divmod(flat, comparison.n_pairs)
        writer_layer, reader_layer = map(int, comparison.layers[condition])
        n_readers = comparison.n_pairs // model.shape.n_query_heads
        writer, reader = divmod(pair, n_readers)
        test, kind = tests[which], comparison.spaces[-1]
        z, p = (test.z[condition, pair], test.p[condition, pair]) if test else (np.nan, np.nan)
        yield {
            "model": model.name, "rank": rank, "spaces": comparison.spaces, "writer_layer": writer_layer,
            "writer_head": writer, "reader_layer": reader_layer, "reader_head": reader, "rho": rho,
            "isotropic_ratio": rho / model.isotropic, "min_angle_deg": float(comparison.angles[condition, pair]),
            "swap_z": float(z), "swap_p": float(p),
            "effect": float(effects[f"{start}{kind}/effect"][writer_layer, reader_layer, writer, reader])
            if effects else np.nan,
            "writer_class": _classed(classes, writer_layer, range(writer, writer + 1)),
            "reader_class": _classed(classes, reader_layer, _query_heads(reader, n_readers, model)),
        }  # fmt: skip


def _largest(comparison: Comparison) -> Iterator[tuple[float, int]]:
    """Return the largest defined rho of a comparison with their flat indices, descending."""
    rho = np.nan_to_num(comparison.rho.ravel(), nan=-1.0)
    order = np.argsort(-rho, kind="stable")[:STRONGEST]
    return ((float(rho[index]), int(index)) for index in order if rho[index] >= 0)


def _query_heads(reader: int, n_readers: int, model: ModelResults) -> range:
    """Query heads that read through a head: those of its group where keys and values are shared."""
    group = model.shape.n_query_heads // n_readers
    return range(reader * group, (reader + 1) * group)


def _classed(classes: HeadClasses | None, layer: int, heads: range) -> str:
    names = [classes.names[layer, head] for head in heads if (layer, head) in classes.names] if classes else []
    return ", ".join(dict.fromkeys(names))


def _sources(models: Sequence[ModelResults]) -> Iterator[str]:
    for model in models:
        if not any(model.compare_all("across")):
            yield f"{model.name}: no pairs across layers, only {model.kinds} was analysed."
        elif (classes := classes_of(model)) is not None:
            yield f"{model.name}: classes of heads are those of {classes.name}."
        else:
            yield f"{model.name}: nothing is known of its heads (no classes named, attention not run)."
