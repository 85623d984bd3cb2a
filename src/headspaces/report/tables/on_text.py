"""The table of what real activations do on the direct path from write to read (RW section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from headspaces.report.document import MISSING
from headspaces.report.results import ModelResults
from headspaces.report.tables.headings import shown
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import ends, extremes, tidy

Pairs = Float[np.ndarray, "condition pair"]
NUMBERS = ("n_tokens", "n_windows", "window_tokens", "loss_nats_per_token")
TERMS = ("linear", "normalisation", "total", "energy_fraction")


def activations(models: Sequence[ModelResults]) -> Table:
    """Sizes of the response's terms, and how rho ranks pairs of heads by what their activations do (RW section 5.4)."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for model in models:
        if model.activations is None:
            notes.append(f"{model.name}: not run on a text.")
            continue
        if model.affinity is None:
            notes.append(f"{model.name}: no composition scores (stage affinity).")
        for kind in (kind for kind in "QKV" if f"{kind}/total" in model.activations):
            comparison = model.across(kind)
            found = {term: model.across_values(f"O{kind}", term, "activations") for term in TERMS}
            rho = comparison.rho
            defined = np.isfinite(np.stack([rho, *found.values()])).all(axis=0)
            if undefined := int((~defined).sum()):
                notes.append(f"{model.name}, O{kind}: {undefined} pairs left out, where a space or a write is zero.")
            rows.append({
                "model": model.name, "spaces": f"O{kind}",
                **{name: model.activations[f"run/{name}"].item() for name in NUMBERS},
                "n_pairs": int(defined.sum()), "n_layer_pairs": comparison.n_conditions,
                **_sizes(*(found[term][defined] for term in TERMS[:3])),
                **_quantiles("energy_over_rho", found["energy_fraction"][defined], rho[defined]),
                **_correlations(rho[defined], found["energy_fraction"][defined], "energy_"),
                **_correlations(rho[defined], found["linear"][defined], "linear_"),
                **_composition(model, kind),
                **_by_layer_pair(rho, found["energy_fraction"]),
            })  # fmt: skip
    columns = """model spaces n_tokens n_windows window_tokens loss_nats_per_token n_pairs
                 linear_over_total_p5 linear_over_total_median linear_over_total_p95 relative_rms_median
                 normalisation_over_linear_sum normalisation_over_linear_median total_over_linear_sum
                 n_cross_term_positive energy_over_rho_p5 energy_over_rho_median energy_over_rho_p95
                 energy_spearman energy_pearson linear_spearman linear_pearson composition_spearman composition_pearson
                 n_layer_pairs layer_pair_spearman_low layer_pair_spearman_median layer_pair_spearman_high
                 n_layer_pairs_negative"""
    frame = tidy(columns, rows)
    return Table(frame, tuple(notes), _by_quantity(frame))


def _by_quantity(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows for the reader: one a quantity, the read kinds side by side."""
    kinds = list(dict.fromkeys(frame["spaces"]))
    rows = []
    for model, part in frame.groupby("model", sort=False):
        values = part.set_index("spaces")
        for name in frame.columns[2:]:
            cells = {kind: shown(values.at[kind, name], name) if kind in values.index else MISSING for kind in kinds}
            rows.append({"model": model, "quantity": name, **cells})
    return pd.DataFrame(rows, columns=["model", "quantity", *kinds])


def _sizes(linear: np.ndarray, normalisation: np.ndarray, total: np.ndarray) -> dict[str, float | int]:
    return {
        **_quantiles("linear_over_total", linear, total),
        "relative_rms_median": _median(np.sqrt(_ratio(normalisation, total))),
        "normalisation_over_linear_sum": _of_sums(normalisation, linear),
        "normalisation_over_linear_median": _median(_ratio(normalisation, linear)),
        "total_over_linear_sum": _of_sums(total, linear),
        "n_cross_term_positive": int(np.sum(total - linear - normalisation > 0)),
    }


def _composition(model: ModelResults, kind: str) -> dict[str, float]:
    """Correlations of rho with Elhage's composition score, which belongs to query heads on both sides."""
    if model.affinity is None or f"cs/O{kind}" not in model.affinity:
        return {}
    rho, score = model.across(kind).rho, model.affinity[f"cs/O{kind}"]
    writers, readers = score.shape[2:]
    # A group of query heads shares one key-value space, and so its rho.
    by_head = rho.reshape(len(rho), writers, -1)
    repeated = np.repeat(by_head, readers // by_head.shape[2], axis=2).ravel()
    scores = score[np.triu_indices(len(score), k=1)].ravel()
    defined = np.isfinite(repeated) & np.isfinite(scores)
    return _correlations(repeated[defined], scores[defined], "composition_")


def _by_layer_pair(rho: Pairs, fraction: Pairs) -> dict[str, float | int]:
    """Rank correlation of rho and energy fraction inside each pair of layers, over the layer pairs."""
    defined = np.isfinite(rho) & np.isfinite(fraction)
    pairs = [(one[kept], other[kept]) for one, other, kept in zip(rho, fraction, defined)]
    within = np.array([_correlations(*pair)["spearman"] for pair in pairs])
    spearman = ends("layer_pair_spearman_{}", within, "low median high")
    return {**spearman, "n_layer_pairs_negative": int(np.sum(within < 0))}


def _correlations(x: np.ndarray, y: np.ndarray, start: str = "") -> dict[str, float]:
    # A constant has no correlation with anything.
    constant = len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0
    # Half a second to import: only this table's job waits for it.
    from scipy import stats

    found = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}
    return {start + name: np.nan if constant else float(function(x, y).statistic) for name, function in found.items()}


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0))


def _of_sums(numerator: np.ndarray, denominator: np.ndarray) -> float:
    total = float(denominator.sum())
    return float(numerator.sum()) / total if total > 0 else np.nan


def _median(values: np.ndarray) -> float:
    return extremes(values)[1]


def _quantiles(name: str, numerator: np.ndarray, denominator: np.ndarray) -> dict[str, float]:
    ratios = _ratio(numerator, denominator)
    ratios = ratios[np.isfinite(ratios)]
    values = np.quantile(ratios, (0.05, 0.5, 0.95)).tolist() if ratios.size else [np.nan] * 3
    return dict(zip((f"{name}_p5", f"{name}_median", f"{name}_p95"), values))
