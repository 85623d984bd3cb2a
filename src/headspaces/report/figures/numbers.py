"""RW's figures, one function each: it returns the numbers, a tidy frame, which all that is drawn is a function of.

They are written as CSV beside the pictures. ``@drawn`` says how they become panels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from headspaces.geometry.statistics import above_all, below_all, quantile_band, spread_ratio
from headspaces.report.figures import layout, panels
from headspaces.report.figures.schematic import projection
from headspaces.report.results import Comparison, ModelResults, compare_all
from headspaces.report.tidy_frames import tidy
from headspaces.spaces import NULLS, SWAP

Row = dict[str, Any]
GRID = 200
"""Number of rho values where figure 2's curves are evaluated, beside the observed ones."""


@layout.drawn(layout.single(projection), height=1.7)
def figure1(_: Sequence[ModelResults]) -> pd.DataFrame:
    """Vectors of the schematic: a write u, its projection p on a read plane R, and what the reader cannot see."""
    plane = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    u = np.array([1.35, 0.55, 1.05])
    p = plane.T @ plane @ u
    rows = [
        {"quantity": name, **dict(zip("xyz", vector)), "length": np.linalg.norm(vector)}
        for name, vector in {"u": u, "p": p, "u - p": u - p}.items()
    ]
    return tidy("quantity x y z length", rows)


@layout.drawn(layout.by_space(panels.survival_curves))
def figure2(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Share of pairs whose rho is at least a value: observed, and the median and 5-95 % over each null's samples."""
    rows = [row for comparison in _within_nulls(models) for row in _survival_rows(comparison)]
    return tidy("model spaces layer n_pairs series rho share share_low share_high isotropic", rows)


@layout.drawn(layout.by_model(panels.ratio_columns, columns=2), height=1.2)
def figure3(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Ratio r of the spread for every condition that has one; ``n_above_all`` is 1 above all samples, else 0."""
    rows = []
    for comparison in compare_all(models):
        if comparison.has_nulls():
            samples = comparison.samples("spread")
            r, above = (statistic(comparison.spread, *samples) for statistic in (spread_ratio, above_all))
            found = zip(comparison.layers, r, above)
            rows += [(*comparison.names.values(), *layers, *pair) for layers, *pair in found if np.isfinite(pair[0])]
    return tidy("model scope spaces layer later_layer r n_above_all", rows)


@layout.drawn(layout.rows_below({panels.energy_against_rho: "pairs", panels.energy_over_rho: ""}))
def figure4(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Share of a write's energy that a read space takes, beside rho, for every pair of heads."""
    rows = [
        _activation_pairs(model, kind, {"energy_fraction": "energy_fraction"}) for model, kind in _activations(models)
    ]
    columns = "model spaces writer_layer reader_layer writer_head reader_head rho energy_fraction"
    return pd.concat([tidy(columns, ()), *rows], ignore_index=True) if rows else tidy(columns, ())


@layout.drawn(
    layout.quantities_beside({"spearman": panels.layer_pair_correlations, "linear": panels.linear_term_against_rho})
)
def figure5(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Spearman of rho and energy share in each layer pair (``spearman``), and V's linear term by pair (``linear``)."""
    columns = "model quantity spaces writer_layer reader_layer writer_head reader_head rho value"
    parts = [tidy(columns, [row for model, kind in _activations(models) for row in _spearman_rows(model, kind)])]
    for model, kind in _activations(models):
        if kind == "V":
            parts.append(_activation_pairs(model, kind, {"linear": "value"}).assign(quantity="linear"))
    return pd.concat(parts, ignore_index=True)[columns.split()]


@layout.drawn(layout.quantities_beside({"mean": panels.lines_by_layer, "spread": panels.lines_by_layer}))
def figure6(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Mean and spread of rho by layer, beside what two random subspaces would give."""
    rows = [
        (comparison.model.name, quantity, comparison.spaces, layer, observed, random)
        for comparison in compare_all(models, "within")
        for quantity, random in (("mean", comparison.model.isotropic), ("spread", comparison.model.random_sd))
        for layer, observed in enumerate(comparison.statistics[quantity])
        if np.isfinite(observed)
    ]
    return tidy("model quantity spaces layer value random", rows)


@layout.drawn(layout.by_space(panels.bands_by_layer, deep=panels.DEEP_LAYERS - 1))
def figure7(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Median and 95th percentile of rho by layer: observed, and 5-95 % over each null's samples."""
    rows = []
    for comparison in _within_nulls(models):
        for quantity in ("median", "p95"):
            series: dict[str, Sequence[np.ndarray]] = {"observed": [comparison.statistics[quantity]] * 3}
            for null in NULLS:
                samples = comparison.nulls[null][quantity]
                series[null] = [_median(samples), *quantile_band(samples)]
            rows += _layer_rows(comparison, series, ("value", "low", "high"), quantity=quantity)
    return tidy("model spaces layer series quantity value low high isotropic n_pairs", rows)


@layout.drawn(layout.by_space(panels.largest_spreads))
def figure8(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Spread of rho by layer: observed, and the largest of each null's samples."""
    rows = []
    for comparison in _within_nulls(models):
        largest = {null: [np.fmax.reduce(comparison.nulls[null]["spread"], axis=0)] for null in NULLS}
        rows += _layer_rows(comparison, {"observed": [comparison.spread], **largest}, ("spread",))
    return tidy("model spaces layer series spread isotropic n_pairs", rows).drop(columns="isotropic")


@layout.drawn(layout.layer_pairs, height=1.2)
def figure9(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Ratio r of the spread, and the direction of the mean against all null samples, for every layer pair."""
    rows = []
    for comparison in compare_all(models):
        if comparison.scope == "across" and comparison.has_nulls():
            r = spread_ratio(comparison.spread, *comparison.samples("spread"))
            below, above = (outside(comparison.mean, *comparison.samples("mean")) for outside in (below_all, above_all))
            direction = np.where(below, "below", np.where(above, "above", "neither"))
            names = comparison.model.name, comparison.spaces
            rows += [(*names, *layers, *found) for layers, *found in zip(comparison.layers, r, direction)]
    return tidy("model spaces writer_layer reader_layer r direction", rows)


@layout.drawn(layout.layer_pairs, height=1.2)
def figure9_orthonormal(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Figure 9 beside RW's null models of orthonormal columns."""
    return figure9([model.on_orthonormal_columns for model in models if model.orthonormal is not None])


@layout.drawn(layout.by_model(panels.ratio_columns, columns=2), height=1.2)
def swap_ratio(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Figure 3 beside the swap null: r of every condition that has one."""
    rows = []
    for comparison in compare_all(models):
        samples = comparison.nulls.get(SWAP, {}).get("spread")
        if samples is not None:
            r, above = (statistic(comparison.spread, samples) for statistic in (spread_ratio, above_all))
            found = zip(comparison.layers, r, above)
            rows += [(*comparison.names.values(), *layers, *pair) for layers, *pair in found if np.isfinite(pair[0])]
    return tidy("model scope spaces layer later_layer r n_above_all", rows)


def survival(rho: Float[np.ndarray, " pair"], at: Float[np.ndarray, " value"]) -> Float[np.ndarray, " value"]:
    """Share of the defined pairs whose rho is at least each given value; NaN without a pair."""
    defined = np.sort(rho[np.isfinite(rho)])
    below = np.searchsorted(defined, at, side="left")
    return 1 - below / len(defined) if len(defined) else np.full(len(at), np.nan)


def _within_nulls(models: Sequence[ModelResults]) -> Iterator[Comparison]:
    return (found for found in compare_all(models, "within") if found.has_nulls() and found.n_pairs)


def _survival_rows(comparison: Comparison) -> Iterator[Row]:
    pairs = comparison.null_pairs()
    if pairs is None:
        return
    observed = comparison.rho[pairs.layer]
    observed = observed[np.isfinite(observed)]
    reach = np.concatenate([observed, *(values.ravel() for values in pairs.rho.values())])
    if not observed.size:
        return
    low, high = float(np.nanmin(reach)), float(np.nanmax(reach))
    # One step beyond the largest value the share is 0: the curve comes down.
    at = np.unique([*np.linspace(low, high, GRID), *observed, high + (high - low) / GRID])
    counts = {"layer": pairs.layer, "n_pairs": observed.size, "isotropic": comparison.model.isotropic}
    names = {**comparison.names, **counts}
    for x, share in zip(at, survival(observed, at)):
        yield {**names, "series": "observed", "rho": x, "share": share}
    for null, rho in pairs.rho.items():
        shares = np.array([survival(sample, at) for sample in rho])
        for x, median, low, high in zip(at, _median(shares), *quantile_band(shares)):
            yield {**names, "series": null, "rho": x, "share": median, "share_low": low, "share_high": high}


def _layer_rows(
    comparison: Comparison, series: Mapping[str, Sequence[np.ndarray]], columns: Sequence[str], **names: str
) -> list[Row]:
    """Make rows of several series of values by layer, without undefined ones."""
    shared = {**comparison.names, **names, "isotropic": comparison.model.isotropic, "n_pairs": comparison.n_pairs}
    return [
        {**shared, "series": name, "layer": layer, **dict(zip(columns, values))}
        for name, by_layer in series.items()
        for layer, values in enumerate(zip(*by_layer))
        if np.isfinite(values[0])
    ]


def _median(samples: Float[np.ndarray, "sample layer"]) -> Float[np.ndarray, " layer"]:
    return quantile_band(samples, 0.5, 0.5)[0]


def _activations(models: Sequence[ModelResults]) -> list[tuple[ModelResults, str]]:
    """Models and read kinds that were measured on a text."""
    measured = [model for model in models if model.activations is not None]
    return [
        (model, kind) for model in measured for kind in "QKV" if f"{kind}/energy_fraction" in (model.activations or {})
    ]


def _activation_pairs(model: ModelResults, kind: str, values: Mapping[str, str]) -> pd.DataFrame:
    """Every pair of heads across layers: where it is, its rho, and values of the activations under other names.

    Pairs without one of them (a space of dimension zero, a head that writes nothing) are left out.
    """
    place = f"cross/O{kind}/rho"
    rho = model.overlaps[place]
    writers, readers = np.triu_indices(len(rho), k=1)
    pair, writer, reader = np.indices((len(writers), *rho.shape[2:])).reshape(3, -1)
    found = {column: model.across_values(f"O{kind}", name, "activations").ravel() for name, column in values.items()}
    return pd.DataFrame({
        "model": model.name, "spaces": f"O{kind}", "writer_layer": writers[pair], "reader_layer": readers[pair],
        "writer_head": writer, "reader_head": reader, "rho": rho[writers, readers].ravel(), **found,
    }).dropna(ignore_index=True)  # fmt: skip


def _spearman_rows(model: ModelResults, kind: str) -> Iterator[Row]:
    # Half a second to import: only this figure's job waits for it.
    from scipy import stats

    rho, share = (model.across_values(f"O{kind}", *which) for which in (("rho",), ("energy_fraction", "activations")))
    for writer, reader, one, other in zip(*np.triu_indices(model.attributes["n_layers"], k=1), rho, share):
        defined = np.isfinite(one) & np.isfinite(other)
        # A constant has no ranks to correlate.
        if defined.any() and np.ptp(one[defined]) > 0 and np.ptp(other[defined]) > 0:
            value = stats.spearmanr(one[defined], other[defined]).statistic
            names = {"model": model.name, "quantity": "spearman", "spaces": f"O{kind}"}
            yield {**names, "writer_layer": writer, "reader_layer": reader, "value": value}
