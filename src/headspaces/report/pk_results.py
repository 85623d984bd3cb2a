"""Results of the affinity and attention stages for the models of a study, as tables and figures need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from headspaces.affinity.classes import HeadClasses, classes_by_pattern, stored_head_classes
from headspaces.affinity.graph import HeadGraph, build_graph, strongest_edges
from headspaces.report.results import Arrays, ModelResults
from headspaces.spaces import ACROSS, Shape

GPT2_SMALL = Shape(n_layers=12, d_model=768, n_query_heads=12, n_kv_heads=12, d_head=64)
"""PK's numbers stand beside a model of this shape,"""

GPT2_QUERY_PK = (7.97, 8.97)
"""whose mean PK of queries with later queries lies here: GPT-2 small has 8.467, random heads 5.33."""

GPT2_CLASSES = "gpt2-ioi"
"""And where classes of heads matter, beside this set of them."""

TOP_PERCENT = 3.0
"""Share of the pairs above the cut-offs of PK figure 5."""

LIMIT_PERCENTILE = 99.99
"""Top of the axes of PK figure 5."""


def measured(models: Sequence[ModelResults]) -> Iterator[tuple[ModelResults, Arrays]]:
    """Go through the models whose affinities were computed."""
    return ((model, model.affinity) for model in models if model.affinity is not None)


def is_gpt2(model: ModelResults, classes: HeadClasses | None = None) -> bool:
    """Whether PK's numbers for GPT-2 small belong beside a model (and a set of classes)."""
    pk = (model.affinity or {}).get("pk/QQ")
    if model.shape != GPT2_SMALL or pk is None:
        return False
    low, high = GPT2_QUERY_PK
    return bool(low < np.nanmean(pk) < high) and (classes is None or classes.name == GPT2_CLASSES)


def with_classes(models: Sequence[ModelResults]) -> Iterator[tuple[ModelResults, Arrays, HeadClasses]]:
    """Go through the models for which a set of head classes was named."""
    for model, arrays in measured(models):
        classes = stored_head_classes(arrays)
        if classes is not None:
            yield model, arrays, classes


def classes_of(model: ModelResults) -> HeadClasses | None:
    """Return the classes that were named for a model, else those by attention pattern where it was run."""
    classes = stored_head_classes(model.affinity or {})
    return classes_by_pattern(model.attention) if classes is None and model.attention is not None else classes


def graphs(models: Sequence[ModelResults], score: str) -> Iterator[tuple[ModelResults, HeadClasses | None, HeadGraph]]:
    """Make the graph of the strongest edges of every model that has a score."""
    for model, arrays in measured(models):
        if all(f"{score}/{kind}" in arrays for kind in ACROSS):
            classes = classes_of(model)
            yield model, classes, build_graph(strongest_edges(arrays, score), score, model.shape, classes)


def pk_and_cs(arrays: Arrays, spaces: str) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Return PK and CS of the same pairs of query heads; a key-value head's PK counts for each of its query heads."""
    pk, cs = arrays[f"pk/{spaces}"], arrays[f"cs/{spaces}"]
    pk = np.repeat(pk, cs.shape[3] // pk.shape[3], axis=3)
    defined = np.isfinite(pk) & np.isfinite(cs)
    return pk[defined], cs[defined]


def pk_and_cs_pairs(
    models: Sequence[ModelResults],
) -> Iterator[tuple[ModelResults, str, Float[np.ndarray, " pair"], Float[np.ndarray, " pair"], dict[str, float]]]:
    """Go through all models and comparisons that have pairs: PK and CS, their cut-offs and limits of the axes."""
    for model, arrays in measured(models):
        for spaces in (kind for kind in ACROSS if f"cs/{kind}" in arrays):
            pk, cs = pk_and_cs(arrays, spaces)
            if pk.size:
                ends = zip(("pk_cutoff", "pk_limit", "cs_cutoff", "cs_limit"), (*cutoffs(pk), *cutoffs(cs)))
                yield model, spaces, pk, cs, dict(ends)


def cutoffs(values: Float[np.ndarray, " pair"]) -> tuple[float, float]:
    """Return the cut-off of the strongest pairs and the limit of the axis (PK figure 5)."""
    cutoff, limit = np.percentile(values, [100 - TOP_PERCENT, LIMIT_PERCENTILE])
    return float(cutoff), float(limit)
