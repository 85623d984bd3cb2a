"""Tables of how far head spaces are from sharing directions: the numbers of RW sections 4.1 and 5.1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headspaces.report.results import ModelResults, compare_all
from headspaces.report.tables.observed import pair_notes
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import ends, extremes, tidy

NEARLY_SHARED_DEG = 1.0
"""RW section 4.1 counts the pairs below this angle."""

MARGINAL = 10.0
"""A rank is marginal where a singular value is within this factor of the tolerance."""


def small_angles(models: Sequence[ModelResults]) -> Table:
    """Count the pairs that nearly share a direction, and give the sine of the smallest angle (RW section 4.1)."""
    rows = []
    for comparison in compare_all(models):
        lowest = extremes(comparison.angles.ravel())[0]
        n_below = int(np.sum(comparison.angles < NEARLY_SHARED_DEG))
        rows.append((*comparison.names.values(), comparison.rho.size, n_below, lowest, np.sin(np.deg2rad(lowest))))
    columns = "model scope spaces n_pairs n_pairs_below_1deg min_angle_deg min_angle_sine"
    return Table(tidy(columns, rows), pair_notes(compare_all(models), spread=False))


def direct_sum(models: Sequence[ModelResults]) -> Table:
    """Ranks of the spaces and deficiency of their sum, over the layers (RW sections 4.1 and 5.1)."""
    rows, notes = [], []
    for model in models:
        for kind in (kind for kind in model.kinds if f"rank/{kind}" in model.overlaps):
            ranks = model.overlaps[f"rank/{kind}"]
            deficiency, lambda_min, condition, random = (
                model.overlaps[f"direct_sum/{kind}/{name}"]
                for name in ("deficiency", "lambda_min", "condition", "random_condition")
            )
            counts = model.overlaps.get(f"within_rounding/{kind}", np.zeros((0, 0)))
            notes += _rounding(f"{model.name}, {kind}", counts, model.attributes.get("leave_out_rounding", False))
            notes += _marginal(f"{model.name}, {kind}", condition, random, model.attributes["rank_rtol"])
            width, d_model = ranks.shape[1] * model.attributes["d_head"], model.attributes["d_model"]
            rows.append({
                "model": model.name, "spaces": kind, "d_model": d_model, "total_width": width,
                "forced_deficiency": max(0, width - d_model), **ends("rank_{}", ranks),
                **ends("deficiency_{}", deficiency), **ends("lambda_min_{}", lambda_min),
                "condition_low": condition.min(), "random_condition": random,
            })  # fmt: skip
    columns = """model spaces d_model total_width rank_low rank_high deficiency_low deficiency_high
                 forced_deficiency lambda_min_low lambda_min_high condition_low random_condition"""
    return Table(tidy(columns, rows), tuple(notes))


def _rounding(name: str, counts: np.ndarray, left_out: bool) -> list[str]:
    """Say how many directions the storage of the weights may have made."""
    if np.any(counts < 0):
        return [f"{name}: how the stored type rounds is not known, so directions within its rounding are not counted."]
    what = (
        "they are left out of the spaces (leave_out_rounding)."
        if left_out
        else "the ranks count them, and another type of storage would give others (leave_out_rounding leaves them out)."
    )
    many = f"{int(counts.sum())} directions of {np.count_nonzero(counts)} heads are within the rounding"
    return [f"{name}: {many} of the stored weights: {what}"] if np.any(counts) else []


def _marginal(name: str, condition: np.ndarray, random: np.ndarray, rtol: float) -> list[str]:
    """Name the layers where a rank depends on the tolerance."""
    return [
        f"{name}: the rank of layer {layer} is marginal: σ / σ max {condition[layer]:.2e} is within a factor of "
        f"{MARGINAL:g} of the tolerance {rtol:.0e}; heads of random directions have {float(random):.2e}."
        for layer in np.flatnonzero((condition > rtol / MARGINAL) & (condition < rtol * MARGINAL))
    ]
