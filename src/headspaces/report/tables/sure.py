"""Tables of how sure the findings are: conditions against every null model, single pairs against the swap null."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from headspaces.affinity.graph import EDGE_ENDS, strongest_edges
from headspaces.geometry.statistics import above_all, monte_carlo_p
from headspaces.nulls.significance import benjamini_hochberg, expected_above_all, max_statistic_p
from headspaces.report.pair_tests import FALSE_DISCOVERY_RATES, PairTests, all_pair_tests, edge_tests
from headspaces.report.results import Comparison, ModelResults
from headspaces.report.tables.observed import Row
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import joined, tidy
from headspaces.spaces import NULLS, SWAP

LEVEL = 0.05
"""Level at which the counts of conditions are taken."""

PRINTED_PAIRS = 5
"""Pairs of each comparison that are printed."""


def significance(models: Sequence[ModelResults]) -> Table:
    """Give every condition its p against each null model, corrected over the conditions in two ways."""
    columns = "model scope spaces null layer later_layer n_samples spread p q p_all"
    rows: list[Row] = []
    counts: list[Row] = []
    for model in models:
        for null in (*NULLS, SWAP):
            comparisons = [one for one in model.compare_all() if "spread" in one.nulls.get(null, {})]
            for comparison, p_all in zip(comparisons, _over_all_conditions(comparisons, null), strict=True):
                of_null = list(_condition_rows(comparison, null, p_all))
                rows += of_null
                counts += [_counted(comparison, null, tidy(columns, of_null))] if of_null else []
    names = "model scope spaces null n_conditions n_samples n_above_all expected_above_all n_fdr_5 n_all_5"
    without = [model.name for model in models if model.nulls is None]
    notes = (f"No null samples: {', '.join(without)}.",) if without else ()
    choice = "how many conditions of each comparison stand against each null model"
    return Table(tidy(columns, rows), notes, tidy(names, counts), choice)


def pair_findings(models: Sequence[ModelResults]) -> Table:
    """Count the single pairs of heads that overlap more than the swap null of their condition lets expect."""
    columns = """model scope spaces n_pairs n_samples largest_z n_fdr_5 n_fdr_1 n_above_all_pairs
                 expected_above_all_pairs n_strongest n_strongest_fdr_1"""
    standing = {model.name: _strongest_standing(model) for model in models if model.affinity is not None}
    rows = [
        _pair_counts(tests) | standing.get(tests.comparison.model.name, {}).get(tests.comparison.spaces, {})
        for tests in all_pair_tests(models)
    ]
    return Table(tidy(columns, rows), (*_without_swap(models), *_unequal(models)))


def standing_pairs(models: Sequence[ModelResults]) -> Table:
    """List the pairs of heads that stand against the swap null at a false discovery rate of 5 %."""
    columns = "model scope spaces layer head later_layer later_head rho z p q p_condition n_fdr_1"
    high, low = FALSE_DISCOVERY_RATES
    frames = []
    for tests in all_pair_tests(models):
        frame = tests.frame(tests.standing(high)).assign(**tests.comparison.names)
        frames.append(frame.assign(n_fdr_1=(frame["q"] <= low).astype(int)))
    frame = joined(columns, frames)
    printed = frame.groupby(["model", "spaces"], sort=False).head(PRINTED_PAIRS)
    return Table(frame, _without_swap(models), printed, "the five most certain pairs of each comparison")


def _over_all_conditions(comparisons: Sequence[Comparison], null: str) -> Iterator[np.ndarray]:
    """P of every condition of all comparisons by the largest value over all conditions of a sample."""
    if not comparisons:
        return iter(())
    observed = np.concatenate([one.spread for one in comparisons])
    samples = np.concatenate([one.nulls[null]["spread"] for one in comparisons], axis=1)
    ends = np.cumsum([one.n_conditions for one in comparisons])[:-1]
    return iter(np.split(max_statistic_p(observed, samples), ends))


def _condition_rows(comparison: Comparison, null: str, p_all: np.ndarray) -> Iterator[Row]:
    samples = comparison.nulls[null]["spread"]
    n_samples = np.isfinite(samples).sum(axis=0)
    # A condition with a single pair has no spread, and a null without samples says nothing.
    tested = (n_samples > 0) & np.isfinite(comparison.spread) & (comparison.n_pairs > 1)
    p = np.where(tested, monte_carlo_p(comparison.spread, samples), np.nan)
    q = benjamini_hochberg(p)
    for at in np.flatnonzero(tested):
        layer, later = comparison.layers[at]
        place: Row = {"layer": layer} if comparison.scope == "within" else {"layer": layer, "later_layer": later}
        values = {"spread": comparison.spread[at], "p": p[at], "q": q[at], "p_all": p_all[at]}
        yield {**comparison.names, "null": null, **place, "n_samples": n_samples[at], **values}


def _counted(comparison: Comparison, null: str, rows: pd.DataFrame) -> Row:
    samples = comparison.nulls[null]["spread"]
    return {
        **comparison.names,
        "null": null,
        "n_conditions": len(rows),
        "n_samples": int(rows["n_samples"].max()),
        "n_above_all": int(above_all(comparison.spread, samples).sum()),
        "expected_above_all": expected_above_all(comparison.spread, samples),
        "n_fdr_5": int((rows["q"] <= LEVEL).sum()),
        "n_all_5": int((rows["p_all"] <= LEVEL).sum()),
    }


def _pair_counts(tests: PairTests) -> Row:
    largest = tests.comparison.nulls[SWAP]["max"]
    tested = np.isfinite(tests.q)
    smallest = 1 / (np.isfinite(largest).sum(axis=0) + 1)
    return {
        **tests.comparison.names,
        "n_pairs": int(tested.sum()),
        "n_samples": len(largest),
        "largest_z": float(np.fmax.reduce(tests.z, axis=None, initial=np.nan)),
        **{f"n_fdr_{100 * rate:.0f}": int(tests.standing(rate).sum()) for rate in FALSE_DISCOVERY_RATES},
        "n_above_all_pairs": int((tests.p_condition <= smallest[:, None] * (1 + 1e-9)).sum()),
        # Of a condition, the largest pair is above all samples' by chance once in n + 1.
        "expected_above_all_pairs": float(smallest[tested.any(axis=1)].sum()),
    }


def _strongest_standing(model: ModelResults) -> dict[str, Row]:
    """By comparison, how many of PK's strongest edges there are, and how many stand at 1 %."""
    if model.affinity is None:
        return {}
    merged = strongest_edges(model.affinity).merge(edge_tests(model), how="left", on=list(EDGE_ENDS))
    low = FALSE_DISCOVERY_RATES[1]
    return {
        str(spaces): {"n_strongest": len(edges), "n_strongest_fdr_1": int((edges["q"] <= low).sum())}
        for spaces, edges in merged.groupby("type", sort=False)
    }


def _without_swap(models: Sequence[ModelResults]) -> tuple[str, ...]:
    tested = {tests.comparison.model.name for tests in all_pair_tests(models)}
    return tuple(f"{model.name}: no samples of the swap null." for model in models if model.name not in tested)


def _unequal(models: Sequence[ModelResults]) -> tuple[str, ...]:
    notes = []
    for tests in all_pair_tests(models):
        left_out = int((np.isfinite(tests.comparison.rho).any(axis=1) & ~np.isfinite(tests.q).any(axis=1)).sum())
        if left_out:
            name = f"{tests.comparison.model.name}, {tests.comparison.spaces}"
            notes.append(f"{name}: {left_out} conditions have heads of different ranks, or no samples: not tested.")
    return tuple(notes)
