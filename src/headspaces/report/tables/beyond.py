"""Tables beyond the papers: the swap null, RW's null models of another basis, and what the spread is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headspaces.geometry.spread_sources import REMOVED
from headspaces.geometry.statistics import above_all, below_all, mean_ratio, spread_ratio
from headspaces.nulls.significance import expected_above_all
from headspaces.report.results import Comparison, ModelResults, compare_all
from headspaces.report.tables.observed import Row, pair_notes
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


def orthonormal(models: Sequence[ModelResults]) -> Table:
    """Set every comparison against RW's null models of the stored and of orthonormal columns of the same spaces."""
    names = "model scope spaces columns n_conditions n_samples n_spread_above_all r_median"
    rows: list[Row] = []
    for model in models:
        if model.nulls is None or model.orthonormal is None:
            continue
        for stored, of_bases in zip(model.compare_all(), model.on_orthonormal_columns.compare_all(), strict=True):
            if stored.has_nulls() and of_bases.has_nulls() and stored.rho.size:
                n = min(len(samples) for one in (stored, of_bases) for samples in one.samples("spread"))
                rows += [_beside_means(one, name, n) for one, name in ((stored, "stored"), (of_bases, "orthonormal"))]
    notes = tuple(f"{model.name}: not drawn." for model in models if model.nulls is None or model.orthonormal is None)
    return Table(tidy(f"{names} n_mean_below_all n_mean_above_all", rows), notes)


def _beside_means(comparison: Comparison, columns: str, n_samples: int) -> Row:
    """Count on which side of the first samples of both null models the spread and the mean lie."""
    spreads, means = ([one[:n_samples] for one in comparison.samples(name)] for name in ("spread", "mean"))
    return {
        **comparison.names,
        "columns": columns,
        "n_conditions": comparison.n_conditions,
        "n_samples": n_samples,
        "n_spread_above_all": int(above_all(comparison.spread, *spreads).sum()),
        "r_median": extremes(spread_ratio(comparison.spread, *spreads))[1],
        "n_mean_below_all": int(below_all(comparison.mean, *means).sum()),
        "n_mean_above_all": int(above_all(comparison.mean, *means).sum()),
    }


def spread_sources(models: Sequence[ModelResults]) -> Table:
    """Say how much of a condition's mean and spread is left without shared directions, and without coordinates."""
    columns = "model scope spaces layer reader_layer removed n_removed mean_left spread_left"
    rows: list[Row] = []
    for comparison in compare_all(models):
        overlaps, before = comparison.model.overlaps, {"mean": comparison.mean, "spread": comparison.spread}
        for removed in ("directions", "coordinates"):
            start = f"sources/{comparison.spaces}/{removed}"
            if f"{start}_mean" not in overlaps:
                continue
            across = comparison.scope == "across"
            at = tuple(comparison.layers.T) if across else comparison.layers[:, 0]
            left = {name: _over(overlaps[f"{start}_{name}"][at], value[:, None]) for name, value in before.items()}
            for condition, step in np.ndindex(left["mean"].shape):
                layer, reader = comparison.layers[condition].tolist()
                place: Row = {"layer": layer, "removed": removed, "n_removed": REMOVED[step]}
                place |= {"reader_layer": reader} if across else {}
                values = {f"{name}_left": part[condition, step] for name, part in left.items()}
                rows.append({**comparison.names, **place, **values})
    frame = tidy(columns, rows)
    by = ["model", "scope", "spaces", "removed", "n_removed"]
    medians = frame.drop(columns=["layer", "reader_layer"]).groupby(by, sort=False).median().reset_index()
    return Table(frame, pair_notes(compare_all(models, "within")), medians, "medians over the layers or layer pairs")


def layer_spectra(models: Sequence[ModelResults]) -> Table:
    """Say of every layer how uneven its maps are: singular values, the norm's gain, the closest pair's direction."""
    columns = """model scope spaces layer singular_first singular_second singular_p95 singular_median singular_p5
                 gain_max gain_median participation"""
    rows: list[Row] = []
    for comparison in _with_sources(models):
        overlaps = comparison.model.overlaps
        singular = overlaps[f"sources/{comparison.spaces}/singular_values"]
        quantiles = dict(zip(("p5", "median", "p95"), np.quantile(singular, (0.05, 0.5, 0.95), axis=1)))
        reads = comparison.spaces != "O"
        for layer, values in enumerate(singular):
            rows.append({
                **comparison.names, "layer": layer,
                "singular_first": values[0], "singular_second": values[1] if len(values) > 1 else np.nan,
                **{f"singular_{name}": quantile[layer] for name, quantile in quantiles.items()},
                **{name: overlaps[f"sources/{name}"][layer] for name in ("gain_max", "gain_median") if reads},
                "participation": overlaps[f"sources/{comparison.spaces}/participation"][layer],
            })  # fmt: skip
    frame = tidy(columns, rows)
    medians = frame.drop(columns="layer").groupby(["model", "scope", "spaces"], sort=False).median().reset_index()
    return Table(frame, (), medians, "medians over the layers")


def _with_sources(models: Sequence[ModelResults]) -> Iterator[Comparison]:
    """Go through the comparisons within layers whose sources were computed."""
    for comparison in compare_all(models, "within"):
        if f"sources/{comparison.spaces}/participation" in comparison.model.overlaps:
            yield comparison


def _over(left: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Part that is left; NaN where there was nothing."""
    shape = np.broadcast_shapes(left.shape, before.shape)
    part: np.ndarray = np.divide(left, before, out=np.full(shape, np.nan), where=before > 0)
    return part
