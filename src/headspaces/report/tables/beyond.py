"""Tables beyond the papers: the spread against the null model of the spaces alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headspaces.geometry.statistics import above_all, mean_ratio, spread_ratio
from headspaces.nulls.significance import expected_above_all
from headspaces.report.results import ModelResults, compare_all
from headspaces.report.tables.observed import Row
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import extremes, tidy
from headspaces.spaces import SWAP


def swap(models: Sequence[ModelResults]) -> Table:
    """Set the spread of every comparison against the swap null, which keeps every mean.

    A condition counts where the null is defined: within a layer it asks for three heads that are not dead.
    """
    columns = """model scope spaces n_conditions n_samples n_above_all expected_above_all r_median ratio_median
                 largest_mean_change"""
    rows: list[Row] = []
    notes = []
    for comparison in compare_all(models):
        if SWAP not in comparison.nulls:
            notes.append(f"{comparison.model.name}, {comparison.spaces}: no samples of the swap null.")
            continue
        samples, means = (comparison.nulls[SWAP][name] for name in ("spread", "mean"))
        observed = comparison.spread
        defined = np.isfinite(samples).any(axis=0) & np.isfinite(observed)
        if not defined.any():
            notes.append(f"{comparison.model.name}, {comparison.spaces}: undefined, fewer than three heads are live.")
            continue
        rows.append({
            **comparison.names,
            "n_conditions": int(defined.sum()),
            "n_samples": len(samples),
            "n_above_all": int(above_all(observed, samples)[defined].sum()),
            "expected_above_all": expected_above_all(observed, samples),
            "r_median": extremes(spread_ratio(observed, samples)[defined])[1],
            "ratio_median": extremes(mean_ratio(observed, samples)[defined])[1],
            "largest_mean_change": float(np.abs(means - comparison.mean)[:, defined].max()),
        })  # fmt: skip
    return Table(tidy(columns, rows), tuple(notes))
