"""Tables of single conditions, one row a layer or layer pair, as RW quotes them in sections 5.2, 5.3 and appendix F."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from headspaces.geometry.statistics import above_all, below_all, monte_carlo_p, spread_ratio
from headspaces.report.results import Comparison, ModelResults, compare_all
from headspaces.report.tables.observed import Row, largest, pair_notes, per_random_sd
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import row_means, tidy
from headspaces.spaces import NULLS


def right_tail(models: Sequence[ModelResults]) -> Table:
    """How rho is distributed over the pairs of every condition (RW section 5.2)."""
    columns = """model scope spaces layer later_layer n_pairs median_rho p95_rho max_rho share_above_twice_isotropic
                 share_below_half_isotropic mean_rho spread_rho spread_rank mean_isotropic_ratio
                 spread_random_sd_ratio skewness min_angle_deg mean_min_angle_deg"""
    frame = tidy(columns, [row for comparison in compare_all(models) for row in _rows(comparison, _tail)])
    printed = frame[frame["spread_rank"].eq(1).fillna(False)].drop(columns="spread_rank")
    choice = "the condition of largest spread in each comparison"
    return Table(frame, pair_notes(compare_all(models)), _without_empty_columns(printed), choice)


def conditions(models: Sequence[ModelResults]) -> Table:
    """Every condition beside the null samples, where there are any (RW section 5.3)."""
    columns = """model scope spaces layer later_layer n_pairs mean_rho spread min_angle_deg
                 rotation_mean_rho rotation_spread_mean rotation_spread_max rotation_spread_p
                 reassignment_mean_rho reassignment_spread_mean reassignment_spread_max reassignment_spread_p r
                 mean_outside"""
    frame = tidy(columns, [row for comparison in compare_all(models) for row in _rows(comparison, _beside_nulls)])
    choice = "the condition of smallest r in each comparison, or of smallest spread without null samples"
    return Table(frame, pair_notes(compare_all(models)), _without_empty_columns(_weakest(frame)), choice)


def _rows(comparison: Comparison, columns: Callable[[Comparison], dict[str, np.ndarray]]) -> Iterator[Row]:
    """One row for each condition: where it is, and its value of each column."""
    by_condition = columns(comparison)
    for index, (layer, later) in enumerate(comparison.layers):
        place: Row = {"layer": layer} if comparison.scope == "within" else {"layer": layer, "later_layer": later}
        values = {name: column[index] for name, column in by_condition.items()}
        yield {**comparison.names, **place, "n_pairs": comparison.n_pairs, **values}


def _tail(comparison: Comparison) -> dict[str, np.ndarray]:
    isotropic = comparison.model.isotropic
    return {
        "median_rho": comparison.statistics["median"],
        "p95_rho": comparison.statistics["p95"],
        "max_rho": largest(comparison.rho),
        "share_above_twice_isotropic": _share(comparison.rho, comparison.rho > 2 * isotropic),
        "share_below_half_isotropic": _share(comparison.rho, comparison.rho < isotropic / 2),
        "mean_rho": comparison.mean,
        "spread_rho": comparison.spread,
        # 1 for the largest; of equal ones the earlier comes first.
        "spread_rank": pd.Series(comparison.spread).rank(method="first", ascending=False).to_numpy(),
        "mean_isotropic_ratio": comparison.mean / isotropic,
        "spread_random_sd_ratio": per_random_sd(comparison),
        "skewness": _skewness(comparison),
        "min_angle_deg": comparison.statistics["min_angle"],
        "mean_min_angle_deg": row_means(comparison.angles),
    }


def _beside_nulls(comparison: Comparison) -> dict[str, np.ndarray]:
    columns = {"mean_rho": comparison.mean, "spread": comparison.spread}
    columns["min_angle_deg"] = comparison.statistics["min_angle"]
    if comparison.has_nulls() and comparison.has_nulls("mean"):
        for null in NULLS:
            spreads = comparison.nulls[null]["spread"]
            columns[f"{null}_mean_rho"] = row_means(comparison.nulls[null]["mean"].T)
            columns[f"{null}_spread_mean"] = row_means(spreads.T)
            columns[f"{null}_spread_max"] = largest(spreads.T)
            columns[f"{null}_spread_p"] = monte_carlo_p(comparison.spread, spreads)
        columns["r"] = spread_ratio(comparison.spread, *comparison.samples("spread"))
        above, below = (outside(comparison.mean, *comparison.samples("mean")) for outside in (above_all, below_all))
        columns["mean_outside"] = above.astype(np.float64) - below
    return columns


def _weakest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the condition of smallest r in each comparison; of smallest spread in those without any r."""
    parts = []
    for _, part in frame.groupby(["model", "spaces"], sort=False):
        measure = "r" if part["r"].notna().any() else "spread"
        parts.append(part.dropna(subset=measure).nsmallest(1, measure))
    return pd.concat(parts) if parts else frame


def _without_empty_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out what no row has: null samples, or a later layer."""
    return frame.dropna(axis="columns", how="all") if len(frame) else frame


def _share(rho: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Share of each condition's defined pairs that are chosen; NaN without pairs."""
    return row_means(np.where(np.isfinite(rho), chosen.astype(np.float64), np.nan))


def _skewness(comparison: Comparison) -> np.ndarray:
    """Standardised third moment of rho (population); NaN where rho is constant."""
    centred = comparison.rho - comparison.mean[:, None]
    scale = np.where(comparison.spread > 0, comparison.spread, np.nan)[:, None]
    return row_means((centred / scale) ** 3)
