"""Tables that set the observed overlaps beside the null models: RW tables 4, 6, 7, 8 and counts of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from headspaces.geometry.statistics import above_all, below_all, mean_ratio, spread_ratio
from headspaces.report.results import Comparison, ModelResults, compare_all
from headspaces.report.tables.observed import Row, pair_notes
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import ends, extremes, row_means, tidy
from headspaces.spaces import NULLS

FIRST = 3
"""Samples of each null model that RW drew of Qwen3-235B."""


def table4(models: Sequence[ModelResults]) -> Table:
    """Set the spread of every comparison against both null models (RW table 4).

    A condition counts where both null models have samples of it; r and the ratios are medians over the conditions.
    """
    columns = """model scope spaces n_conditions n_samples n_above_all r_median rotation_ratio_median
                 reassignment_ratio_median"""
    rows: list[Row] = []
    notes = []
    for comparison in _with_nulls(models):
        r = spread_ratio(comparison.spread, *comparison.samples("spread"))
        rows.append({
            **comparison.names,
            "n_conditions": _n_sampled(comparison),
            "n_samples": min(len(samples) for samples in comparison.samples("spread")),
            "n_above_all": _n_outside(comparison, "spread", above_all),
            **ends("r_{}", r, "median"),
            **{f"{null}_ratio_median": extremes(_over_mean(comparison, null))[1] for null in NULLS},
        })  # fmt: skip
        if undefined := int(np.isnan(r).sum()):
            places = f"{undefined} of {comparison.n_conditions} conditions"
            name = f"{comparison.model.name}, {comparison.spaces}"
            notes.append(f"{name}: no r in {places} (no pair, a single pair, constant ρ, or no samples).")
    return Table(tidy(columns, rows), (*notes, *_without_nulls(models)))


def table6(models: Sequence[ModelResults]) -> Table:
    """List layers whose smallest angle of write spaces is not below all reassignment samples (RW table 6)."""
    rows, notes = [], []
    for comparison in _with_nulls(models):
        if comparison.spaces == "O":
            observed, samples = comparison.statistics["min_angle"], comparison.nulls["reassignment"]["min_angle"]
            smallest = np.fmin.reduce(samples, axis=0)
            # Without a pair or a sample the layer says nothing.
            listed = ~below_all(observed, samples) & np.isfinite(observed) & np.isfinite(smallest)
            if not listed.any():
                notes.append(f"{comparison.model.name}: below every sample in each layer that has pairs and samples.")
            rows += [(comparison.model.name, at, observed[at], smallest[at]) for at in np.flatnonzero(listed)]
    columns = "model layer observed_min_angle_deg reassignment_min_angle_deg"
    return Table(tidy(columns, rows), (*notes, *_without_nulls(models)))


def table7(models: Sequence[ModelResults]) -> Table:
    """Read spaces of one kind within a layer (RW appendix F, table 7); without nulls their columns are empty."""
    columns = """model spaces n_pairs mean_rho_low mean_rho_high n_layers n_mean_below_all n_mean_above_all
                 spread_low spread_high n_spread_above_all min_angle_deg"""
    reads = [model.within(kind) for model in models for kind in model.kinds if kind != "O"]
    rows: list[Row] = [
        {
            **comparison.names, "n_pairs": comparison.n_pairs, "n_layers": comparison.n_conditions,
            **ends("mean_rho_{}", comparison.mean), **ends("spread_{}", comparison.spread),
            "min_angle_deg": extremes(comparison.statistics["min_angle"])[0], **_counts(comparison),
        }
        for comparison in reads
    ]  # fmt: skip
    return Table(tidy(columns, rows), (*pair_notes(reads), *_without_nulls(models)))


def table8(models: Sequence[ModelResults]) -> Table:
    """Write spaces and later layers' read spaces against both null models (RW appendix F, table 8)."""
    columns = """model spaces n_layer_pairs n_spread_above_all rotation_ratio_median n_mean_below_all
                 n_mean_above_all"""
    rows: list[Row] = [
        {
            **comparison.names, "n_layer_pairs": comparison.n_conditions,
            "rotation_ratio_median": extremes(_over_mean(comparison, "rotation"))[1], **_counts(comparison),
        }
        for comparison in _with_nulls(models)
        if comparison.scope == "across"
    ]  # fmt: skip
    return Table(tidy(columns, rows), _without_nulls(models))


def pair_counts(models: Sequence[ModelResults]) -> Table:
    """Count pairs outside every pair of every null sample in the layer of figure 2 (RW section 5.2)."""
    columns = """model spaces layer n_pairs n_samples n_below_rotation n_above_rotation n_below_reassignment
                 n_above_reassignment n_below_both n_above_both"""
    rows = []
    for comparison in _with_nulls(models):
        pairs = comparison.null_pairs()
        if pairs is None or not comparison.n_pairs:
            continue
        rho = comparison.rho[pairs.layer]
        n_samples = min(len(pairs.rho[null]) for null in NULLS)
        row: Row = {**comparison.names, "layer": pairs.layer, "n_pairs": rho.size, "n_samples": n_samples}
        for group, nulls in {**{null: [null] for null in NULLS}, "both": NULLS}.items():
            # Beyond every pair is beyond the two most extreme ones, which all pairs are compared with.
            least = min(np.fmin.reduce(pairs.rho[null], axis=None) for null in nulls)
            most = max(np.fmax.reduce(pairs.rho[null], axis=None) for null in nulls)
            ends = np.repeat([[least], [most]], rho.size, axis=1)
            row[f"n_below_{group}"] = int(below_all(rho, ends).sum())
            row[f"n_above_{group}"] = int(above_all(rho, ends).sum())
        rows.append(row)
    return Table(tidy(columns, rows), _without_nulls(models))


def null_counts(models: Sequence[ModelResults]) -> Table:
    """Count conditions whose statistics are outside every null sample (RW sections 5.2, 5.3, appendix F).

    Means, medians and 95th percentiles are compared with the samples of both null models together; quantiles and
    angles have samples within layers only.
    """
    columns = """model scope spaces n_conditions n_spread_above_rotation n_spread_above_reassignment n_mean_below_all
                 n_mean_above_all n_median_below_all n_p95_above_all n_min_angle_below_rotation
                 n_min_angle_above_rotation n_min_angle_below_reassignment n_min_angle_above_reassignment"""
    outside = {"below": below_all, "above": above_all}
    rows = []
    for comparison in _with_nulls(models):
        row: Row = {**comparison.names, "n_conditions": _n_sampled(comparison)}
        for column in columns.split()[4:]:
            statistic, side, null = column.removeprefix("n_").rsplit("_", 2)
            if comparison.has_nulls(statistic):
                row[column] = _n_outside(comparison, statistic, outside[side], NULLS if null == "all" else [null])
        rows.append(row)
    return Table(tidy(columns, rows), _without_nulls(models))


def null_ranges(models: Sequence[ModelResults]) -> Table:
    """Set observed ranges beside the null samples', per comparison, null model and statistic (RW 5.3, appendix F)."""
    columns = """model scope spaces null quantity n_samples observed_low observed_high sample_mean_low
                 sample_mean_high sample_low sample_high ratio_low ratio_high"""
    rows = []
    for comparison in _with_nulls(models):
        for null in NULLS if comparison.rho.size else ():
            for statistic, unit in (("spread", ""), ("mean", ""), ("min_angle", "_deg")):
                if statistic in comparison.nulls[null]:
                    names = {**comparison.names, "null": null, "quantity": statistic + unit}
                    rows.append({**names, **_ranges(comparison, null, statistic)})
    return Table(tidy(columns, rows), _without_nulls(models))


def random_baseline(models: Sequence[ModelResults]) -> Table:
    """Set sampled pairs of random subspaces beside their closed-form mean and deviation (RW sections 5.1, 5.3)."""
    rows = []
    for model in models:
        rho = (model.nulls or {}).get("random/rho")
        if rho is not None:
            shape = model.attributes["d_model"], model.attributes["d_head"]
            rows.append((model.name, *shape, rho.size, rho.mean(), model.isotropic, rho.std(), model.random_sd))
    columns = "model d_model d_head n_pairs sampled_mean isotropic sampled_sd random_sd"
    return Table(tidy(columns, rows), _without_nulls(models))


def first_samples(models: Sequence[ModelResults]) -> Table:
    """Set the spread within each layer against the first three samples of each null model, as RW did for Qwen3-235B."""
    columns = """model spaces layer n_samples spread rotation_spread_mean reassignment_spread_mean rotation_ratio
                 reassignment_ratio r n_above_all"""
    rows: list[Row] = []
    for comparison in (one for one in compare_all(models, "within") if one.has_nulls()):
        samples = {null: comparison.nulls[null]["spread"][:FIRST] for null in NULLS}
        means = {null: row_means(of_null.T) for null, of_null in samples.items()}
        r, above = (of(comparison.spread, *samples.values()) for of in (spread_ratio, above_all))
        rows += [
            {
                **comparison.names, "layer": layer, "n_samples": min(map(len, samples.values())),
                "spread": comparison.spread[layer], "r": r[layer], "n_above_all": int(above[layer]),
                **{f"{null}_spread_mean": means[null][layer] for null in NULLS},
                **{f"{null}_ratio": mean_ratio(comparison.spread, samples[null])[layer] for null in NULLS},
            }
            for layer in range(comparison.n_conditions)
        ]  # fmt: skip
    frame = tidy(columns, rows)
    choice = "the layer of smallest r in each comparison"
    printed = frame.sort_values("r", kind="stable").drop_duplicates(["model", "spaces"]).sort_index()
    return Table(frame, _without_nulls(models), printed, choice)


def mean_direction(models: Sequence[ModelResults]) -> Table:
    """Average rho across layers by layer distance, and count means outside all null samples (RW appendix F)."""
    columns = """model spaces distance n_layer_pairs mean_rho mean_isotropic_ratio n_mean_below_all
                 n_mean_above_all decay_distance"""
    rows = []
    for comparison in compare_all(models, "across"):
        distances = comparison.layers[:, 1] - comparison.layers[:, 0]
        decayed = [
            at for at in np.unique(distances) if comparison.mean[distances == at].mean() <= comparison.model.isotropic
        ]
        for distance in np.unique(distances):
            at = distances == distance
            mean = float(comparison.mean[at].mean())
            row: Row = {
                **comparison.names, "distance": distance, "n_layer_pairs": int(at.sum()), "mean_rho": mean,
                "mean_isotropic_ratio": mean / comparison.model.isotropic,
                "decay_distance": decayed[0] if decayed else None,
            }  # fmt: skip
            if comparison.has_nulls("mean"):
                samples = [sample[:, at] for sample in comparison.samples("mean")]
                row["n_mean_below_all"] = int(below_all(comparison.mean[at], *samples).sum())
                row["n_mean_above_all"] = int(above_all(comparison.mean[at], *samples).sum())
            rows.append(row)
    frame = tidy(columns, rows)
    powers = frame["distance"].isin([2**power for power in range(10)])
    return Table(frame, _without_nulls(models), frame[powers], "distances 1, 2, 4, 8 and so on")


def _with_nulls(models: Iterable[ModelResults]) -> Iterator[Comparison]:
    return (comparison for comparison in compare_all(models) if comparison.has_nulls())


def _without_nulls(models: Iterable[ModelResults]) -> tuple[str, ...]:
    names = [model.name for model in models if model.nulls is None]
    return (f"No null samples: {', '.join(names)}.",) if names else ()


def _n_sampled(comparison: Comparison) -> int:
    """Count the conditions that both null models have samples of."""
    return int(np.all([np.isfinite(samples).any(axis=0) for samples in comparison.samples("spread")], axis=0).sum())


def _n_outside(
    comparison: Comparison, statistic: str, outside: Callable[..., np.ndarray], nulls: Sequence[str] = NULLS
) -> int:
    samples = [comparison.nulls[null][statistic] for null in nulls]
    return int(outside(comparison.statistics[statistic], *samples).sum())


def _over_mean(comparison: Comparison, null: str) -> np.ndarray:
    return mean_ratio(comparison.spread, comparison.nulls[null]["spread"])


def _counts(comparison: Comparison) -> Row:
    """Count what tables 7 and 8 share; nothing without null samples or without pairs."""
    counted = (("mean", "below", below_all), ("mean", "above", above_all), ("spread", "above", above_all))
    if not comparison.has_nulls() or not comparison.rho.size:
        return {}
    return {f"n_{name}_{side}_all": _n_outside(comparison, name, outside) for name, side, outside in counted}


def _ranges(comparison: Comparison, null: str, statistic: str) -> Row:
    """Lowest and highest of the observed values, the samples' means, the samples and the ratios to the means."""
    observed, samples = comparison.statistics[statistic], comparison.nulls[null][statistic]
    return {
        "n_samples": len(samples),
        **ends("observed_{}", observed),
        **ends("sample_mean_{}", row_means(samples.T)),
        **ends("sample_{}", samples.ravel()),
        **ends("ratio_{}", mean_ratio(observed, samples)),
    }
