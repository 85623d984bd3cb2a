"""Tables of the overlaps themselves: RW tables 1, 2, 3, 5, 9 and ranges over conditions of section 5.2, appendix G."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headspaces.report.results import Comparison, ModelResults, compare_all
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import ends, extremes, row_means, tidy

Row = dict[str, Any]
SMALL_ANGLE_DEG = 10.0
"""RW table 5 counts the layers with a pair below this angle."""


def table1(models: Sequence[ModelResults]) -> Table:
    """Smallest principal angles over all pairs of every comparison (RW table 1)."""
    rows = [(*one.names.values(), one.rho.size, *extremes(one.angles.ravel())[:2]) for one in compare_all(models)]
    frame = tidy("model scope spaces n_pairs min_angle_deg median_min_angle_deg", rows)
    return Table(frame, pair_notes(compare_all(models), spread=False))


def table2(models: Sequence[ModelResults]) -> Table:
    """Smallest over read spaces of the largest overlap with a layer's write spaces (RW section 4.3, table 2)."""
    rows: list[Row] = []
    for comparison in compare_all(models, "across"):
        lowest = _min_max_rho(comparison)
        eigenvalues = comparison.model.overlaps.get("direct_sum/O/lambda_min", np.empty(0))
        rows.append({
            **comparison.names,
            **ends("lambda_min_{}", eigenvalues),
            "bound_high": extremes(eigenvalues)[2] / comparison.model.attributes["n_query_heads"],
            "n_layer_pairs": comparison.n_conditions,
            "min_max_rho": extremes(lowest)[0],
            "n_below_isotropic": int(np.sum(lowest < comparison.model.isotropic)),
        })  # fmt: skip
    columns = "model lambda_min_low lambda_min_high bound_high n_layer_pairs spaces min_max_rho n_below_isotropic"
    return Table(tidy(columns, rows), _nothing_across(models))


def table3(models: Sequence[ModelResults]) -> Table:
    """Shapes of the models and isotropic values (RW table 3)."""
    columns = "model d_model d_head n_query_heads n_kv_heads n_layers n_write_pairs isotropic"
    rows = []
    for model in models:
        heads = model.attributes["n_query_heads"]
        shape = (model.attributes[key] for key in columns.split()[1:6])
        rows.append((model.name, *shape, heads * (heads - 1) // 2, model.isotropic))
    return Table(tidy(columns, rows))


def table5(models: Sequence[ModelResults]) -> Table:
    """Mean and spread of rho between a layer's write spaces, over the layers (RW table 5)."""
    columns = """model d_model d_head n_heads n_layers isotropic mean_rho_median mean_rho_low mean_rho_high
                 spread_median spread_low spread_high random_sd n_layers_below_10deg"""
    writes = [model.within("O") for model in models if "O" in model.kinds]
    rows: list[Row] = [
        {
            "model": comparison.model.name,
            **{key: comparison.model.attributes[key] for key in ("d_model", "d_head", "n_layers")},
            "n_heads": comparison.model.attributes["n_query_heads"],
            "isotropic": comparison.model.isotropic,
            **ends("mean_rho_{}", comparison.mean, "median low high"),
            **ends("spread_{}", comparison.spread, "median low high"),
            "random_sd": comparison.model.random_sd,
            "n_layers_below_10deg": int(np.sum(comparison.statistics["min_angle"] < SMALL_ANGLE_DEG)),
        }
        for comparison in writes
    ]
    return Table(tidy(columns, rows), pair_notes(writes))


def table9(models: Sequence[ModelResults]) -> Table:
    """Largest rho and largest weighted score of every layer pair (RW appendix G, table 9).

    For the reader, RW's choice: of each model the two layer pairs where either measure is largest.
    """
    rows = []
    for comparison in compare_all(models, "across"):
        weighted = comparison.model.across_values(comparison.spaces, "weighted")
        for layers, *values in zip(comparison.layers, largest(comparison.rho), largest(weighted)):
            rows.append((comparison.model.name, *layers, comparison.spaces, *values))
    frame = tidy("model writer_layer reader_layer spaces max_rho max_weighted", rows)
    choice = "each model's two layer pairs of largest ρ and of largest weighted score"
    return Table(frame, _nothing_across(models), _leading(frame, ["max_rho", "max_weighted"], n=2), choice)


def baseline_ratios(models: Sequence[ModelResults]) -> Table:
    """Ranges over conditions of mean / isotropic value, spread / random sd and the median pair (RW section 5.2)."""
    columns = """model scope spaces n_conditions mean_isotropic_ratio_low mean_isotropic_ratio_high
                 spread_random_sd_ratio_low spread_random_sd_ratio_high median_rho_low median_rho_high
                 median_min_angle_low_deg median_min_angle_high_deg"""
    rows = []
    for comparison in compare_all(models):
        by_condition = {
            "mean_isotropic_ratio_{}": comparison.mean / comparison.model.isotropic,
            "spread_random_sd_ratio_{}": per_random_sd(comparison),
            "median_rho_{}": comparison.statistics["median"],
            "median_min_angle_{}_deg": np.array([extremes(angles)[1] for angles in comparison.angles]),
        }
        row: Row = {**comparison.names, "n_conditions": comparison.n_conditions}
        for name, values in by_condition.items():
            row |= ends(name, values)
        rows.append(row)
    return Table(tidy(columns, rows), pair_notes(compare_all(models)))


def weighted_means(models: Sequence[ModelResults]) -> Table:
    """Range over layer pairs of the mean weighted score (RW appendix G); ``OX`` takes all read kinds together."""
    rows = []
    for model in models:
        spaces = [comparison.spaces for comparison in model.compare_all("across")]
        means = {name: row_means(model.across_values(name, "weighted")) for name in spaces}
        if means:
            means["OX"] = np.concatenate(list(means.values()))
        rows += [(model.name, name, len(values), *extremes(values)) for name, values in means.items()]
    columns = "model spaces n_layer_pairs mean_weighted_low mean_weighted_median mean_weighted_high"
    return Table(tidy(columns, rows), ("OX: queries, keys and values together.", *_nothing_across(models)))


def largest(values: np.ndarray) -> np.ndarray:
    """Return the largest defined value of each condition; NaN where there is none."""
    return np.asarray(np.fmax.reduce(values, axis=1)) if values.shape[1] else np.full(len(values), np.nan)


def per_random_sd(comparison: Comparison) -> np.ndarray:
    """Spread over the sd of random subspaces; undefined for heads that fill the residual stream, where that is 0."""
    sd = comparison.model.random_sd
    return comparison.spread / sd if sd else np.full_like(comparison.spread, np.nan)


def pair_notes(comparisons: Iterable[Comparison], *, spread: bool = True) -> tuple[str, ...]:
    """Say which comparisons have no pair, undefined ones, or, in a table of spreads, a single one."""
    notes = []
    for comparison in comparisons:
        name = f"{comparison.model.name}, {comparison.spaces}"
        if not comparison.rho.size:
            notes.append(f"{name}: no pair to compare (one space in a layer, or one layer), so its cells are empty.")
        elif spread and comparison.n_pairs == 1:
            notes.append(f"{name}: a single pair in each condition, so its spread is 0.")
        if undefined := int(np.sum(~np.isfinite(comparison.rho))):
            notes.append(f"{name}: {undefined} pairs with a space of dimension zero have no ρ and are left out.")
    return tuple(notes)


def _nothing_across(models: Iterable[ModelResults]) -> tuple[str, ...]:
    names = [model.name for model in models if not any(c.n_conditions for c in model.compare_all("across"))]
    return (f"Nothing across layers in {', '.join(names)}: one layer, or no write or read spaces.",) if names else ()


def _min_max_rho(comparison: Comparison) -> np.ndarray:
    """For each layer pair, the minimum over read spaces of the largest rho with a write space."""
    n_writers = comparison.model.attributes["n_query_heads"]
    by_head = comparison.rho.reshape(comparison.n_conditions, n_writers, comparison.n_pairs // n_writers)
    # fmax and fmin pass over the undefined pairs of a space of dimension zero.
    return np.asarray(np.fmin.reduce(np.fmax.reduce(by_head, axis=1), axis=1))


def _leading(frame: pd.DataFrame, measures: Sequence[str], n: int) -> pd.DataFrame:
    """Return the rows where a measure is among the model's n largest, each once, strongest first by measure."""
    by_model = [part for _, part in frame.groupby("model", sort=False)]
    parts = [part.nlargest(n, measure) for part in by_model for measure in measures]
    return pd.concat(parts).drop_duplicates() if parts else frame
