"""Figures of series of checkpoints: the comparisons against the nulls step by step, and the way of every head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from headspaces.report.figures import layout
from headspaces.report.figures.panels import LINES, MARKERS, arrow, colour, log_axis, reference
from headspaces.report.results import ModelResults
from headspaces.report.tables.series import comparison_rows, head_rows
from headspaces.report.tidy_frames import tidy

RATIOS = {"r_rw": "r against RW's nulls", "r_swap": "r against the swap null"}
TITLES = {**RATIOS, "effect_sum": "sum of |A| over edges (nats)"}


def comparisons_by_step(data: pd.DataFrame, axes: Axes) -> None:
    """Ratio to a null or effects by step, one line per comparison; in grey on an axis of its own, the loss."""
    quantity = data["quantity"].iloc[0]
    for spaces, rows in data.groupby("spaces", sort=False):
        kind, within = str(spaces)[-1], len(str(spaces)) == 1
        axes.plot(
            rows["step"], rows["value"], color=colour(kind), ls="-" if within else "--", lw=0.9 if within else 1.3,
            marker=MARKERS[kind], ms=2, label=arrow(str(spaces)) + (" within layers" if within else ""),
        )  # fmt: skip
    if quantity in RATIOS:
        axes.axhline(1.0, **reference("equal"))
    log_axis(axes, "y")
    _steps(axes, data["step"])
    axes.set_ylabel(TITLES[quantity])
    run = data.dropna(subset="loss_nats").drop_duplicates("step")
    if len(run):
        beside = axes.twinx()
        beside.plot(run["step"], run["loss_nats"], color=colour("random"), lw=2, alpha=0.5, zorder=0)
        beside.set_ylim(bottom=0)
        beside.set_ylabel("loss (nats per token)")
        axes.plot([], [], color=colour("random"), lw=2, alpha=0.5, label="loss")


def heads_by_step(data: pd.DataFrame, axes: Axes) -> None:
    """Every head's overlap with itself at the last step, one line a head, broken by layers' line styles."""
    styles = list(LINES.values())
    for _, rows in data.groupby(["layer", "head"], sort=False):
        kind, layer = str(rows["spaces"].iloc[0]), int(rows["layer"].iloc[0])
        axes.plot(rows["step"], rows["rho_last"], color=colour(kind), lw=0.6, alpha=0.6, ls=styles[layer % len(styles)])
    axes.axhline(data["isotropic"].iloc[0], **reference("isotropic d/D"))
    axes.set_ylim(0, 1.03)
    _steps(axes, data["step"])
    axes.set_ylabel("ρ with itself at the last step")


def _steps(axes: Axes, steps: pd.Series) -> None:
    """Make the axis of steps logarithmic from the first step after 0, which has a place of its own."""
    every = np.unique(steps.to_numpy(dtype=float))
    first = next((step for step in every if step > 0), 1.0)
    axes.set_xscale("symlog", linthresh=first, linscale=0.4)
    decades = [10.0**power for power in range(8) if first <= 10.0**power <= every[-1]]
    start = [every[0]] if every[0] == 0 else []
    axes.xaxis.set_major_locator(FixedLocator([*start, *(decades if len(decades) > 1 else {first, *decades})]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("step")


@layout.drawn(
    layout.quantities_beside(dict.fromkeys(TITLES, comparisons_by_step)), height=1.3, subject="a series of checkpoints"
)
def series(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Ratio to the nulls of every comparison by step, the effects of its edges, and the loss."""
    rows = [
        {"model": model.name, "quantity": quantity, "value": row[quantity], **_some(row, "step spaces loss_nats")}
        for model in models
        for quantity in TITLES
        for row in comparison_rows(model)
        if np.isfinite(row.get(quantity, np.nan))
    ]
    return tidy("model quantity spaces step value loss_nats", rows)


@layout.drawn(
    layout.beside("spaces", lambda model, spaces, data: layout.Panel(f"{model}\n{arrow(spaces)}", data, heads_by_step)),
    subject="a series of checkpoints",
)
def series_heads(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Every head's overlap with itself at the last step."""
    rows = [
        {"model": model.name, "isotropic": model.isotropic, **_some(row, "spaces layer head step rho_last")}
        for model in models
        for row in head_rows(model)
        if np.isfinite(row["rho_last"])
    ]
    return tidy("model spaces layer head step rho_last isotropic", rows)


def _some(row: Mapping[str, Any], names: str) -> dict[str, Any]:
    return {name: row.get(name) for name in names.split()}
