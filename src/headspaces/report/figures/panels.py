"""Panels: functions ``(data, axes)``, each from rows of a figure's numbers to one axes.

Colours come by role from the style's colour cycle, so that a role looks the same in every figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

CLASSES = (
    "Duplicate Token", "Previous Token", "Induction", "S-Inhibition", "Name Mover", "Negative Name Mover",
    "Backup Name Mover", "Identity",
)  # fmt: skip
"""Classes of heads with a colour of their own."""
ROLES = ("observed", "rotation", "reassignment", "random", "O", "Q", "K", "V", "below", "neither", "above", *CLASSES)
"""What the colours of ``paper.mplstyle`` stand for, in the order of its cycle."""
LABELS = {
    "observed": "observed",
    "rotation": "rotation null",
    "reassignment": "reassignment null",
    "random": "random subspaces",
}
MARKERS = {"O": "o", "Q": "s", "K": "^", "V": "D"}
LINES = {"O": "-", "Q": "--", "K": "-.", "V": ":"}
DEEP_LAYERS, DEEP_POINTS = 17, 230.0
"""From so many layers on a panel of layers takes half the page, which is so many points wide; else a quarter."""
FEW_PAIRS = 9
"""So many pairs of a layer are shown one by one."""
RATIO_LIMITS = (1.0, 30.0)
"""Limits of figure 9's colour scale: the same in all models, so that their panels can be compared."""


def colour(role: str) -> str:
    """Return the colour of a role in the style that is in force."""
    return str(matplotlib.rcParams["axes.prop_cycle"].by_key()["color"][ROLES.index(role)])


def survival_curves(data: pd.DataFrame, axes: Axes) -> None:
    """Survival curves of rho: observed in black, each null model's median and 5-95 % band."""
    for series, rows in _series(data):
        # A share of zero has no place on a log scale: it is drawn below the axes' end.
        share, low, high = (np.maximum(rows[name], 1e-9) for name in ("share", "share_low", "share_high"))
        if series == "observed":
            axes.step(rows["rho"], share, where="pre", color=colour(series), label=LABELS[series], zorder=3)
            if data["n_pairs"].iloc[0] <= FEW_PAIRS:
                # Few pairs are no curve: each is shown where it is.
                steps = rows[rows["share"].shift(-1) < rows["share"]]
                axes.plot(steps["rho"], steps["share"], "o", color=colour(series), label="one observed pair", zorder=3)
        else:
            axes.fill_between(rows["rho"], low, high, color=colour(series), alpha=0.35, lw=0)
            axes.plot(rows["rho"], share, color=colour(series), label=LABELS[series])
    axes.axvline(data["isotropic"].iloc[0], **reference("isotropic d/D"))
    log_axis(axes, "y")
    axes.set_ylim(min(0.08, 0.6 / data["n_pairs"].iloc[0]), 1.3)
    axes.set_xlim(left=0)
    axes.set(xlabel="ρ", ylabel="share of pairs ≥ ρ")


def ratio_columns(data: pd.DataFrame, axes: Axes) -> None:
    """Ratio r of every condition by comparison, on a log scale, with medians and counts above all samples."""
    groups = list(data.groupby("spaces", sort=False))
    low, high = min(data["r"][data["r"] > 0].min(), 1) / 1.3, max(data["r"].max(), 1) * 1.3
    for place, (spaces, rows) in enumerate(groups):
        # Constant overlaps (r = 0) stand at the lower end, where the log scale has its last place for them.
        r = np.maximum(rows["r"].to_numpy(), low)
        tint, x, above = colour(str(spaces)[-1]), place + _jitter(r), rows["n_above_all"].to_numpy(dtype=bool)
        _median_bar(axes, place, r)
        axes.scatter(x[above], r[above], s=5, color=tint, alpha=0.5, lw=0, zorder=4 if r.size < 10 else 1)
        axes.scatter(x[~above], r[~above], s=12, color=tint, marker="^", lw=0)
        at: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top"}
        axes.annotate(f"{above.sum()}/{r.size}", (place, 0.99), **at)
    _side_by_side(axes, groups, 1.0)
    for marker, size, label in (("o", 2.2, "above all null samples"), ("^", 3.5, "not above"), ("_", 9, "median")):
        axes.plot([], [], marker, ms=size, color=colour("observed"), label=label)
    log_axis(axes, "y")
    # The counts stand above all points.
    axes.set_ylim(low / 1.05, high * (high / low) ** 0.14)
    axes.set_ylabel("r: spread / largest null spread")


def lines_by_layer(data: pd.DataFrame, axes: Axes) -> None:
    """Mean or spread of rho by layer, one line per kind of space; dotted, what random subspaces give."""
    for spaces, rows in data.groupby("spaces", sort=False):
        kind = str(spaces)
        axes.plot(
            rows["layer"], rows["value"], color=colour(kind), ls=LINES[kind], marker=MARKERS[kind], ms=2,
            label=f"{kind} ({'write' if kind == 'O' else 'read'})", markevery=max(1, len(rows) // 30),
        )  # fmt: skip
    quantity = data["quantity"].iloc[0]
    axes.axhline(data["random"].iloc[0], **reference(LABELS["random"]))
    if quantity == "spread" and (data["value"] > 0).any():
        log_axis(axes, "y")
    else:
        axes.set_ylim(bottom=0)
    whole_ticks(axes, "x", int(data["layer"].max()))
    axes.set(xlabel="layer", ylabel="mean ρ" if quantity == "mean" else "spread of ρ")


def bands_by_layer(data: pd.DataFrame, axes: Axes) -> None:
    """Median and 95th percentile of rho by layer; the null models' 5-95 % as bars beside the observed points."""
    # Marks of neighbouring layers do not meet, and the bars stand close beside the points.
    n_layers = int(data["layer"].max()) + 1
    layer_points = (DEEP_POINTS if n_layers >= DEEP_LAYERS else DEEP_POINTS / 2) / n_layers
    size = float(np.clip(0.28 * layer_points, 1.2, 6))
    aside = min(0.33, (size / 2 + 2.5) / layer_points)
    shifts = {"observed": 0.0, "rotation": -aside, "reassignment": aside}
    for series, rows in _series(data):
        for quantity, part in rows.groupby("quantity", sort=False):
            x = part["layer"].to_numpy(dtype=float) + shifts[series]
            tail = quantity == "p95"
            label = LABELS[series] + (", p95" if tail else ", median")
            style: dict[str, Any] = {"color": colour(series), "label": label}
            if series == "observed":
                axes.plot(x, part["value"], "^" if tail else "o", ms=min(1.3 * size, 3), zorder=3, **style)
            else:
                style["alpha"] = 0.55 if tail else 1.0
                axes.vlines(x, part["low"], part["high"], lw=size, **style)
                # A narrow band is thinner than a line: its median stays visible.
                axes.plot(x, part["value"], "_", ms=size, mew=0.9, **style | {"label": "_"})
    axes.axhline(data["isotropic"].iloc[0], **reference("isotropic d/D"))
    axes.set_ylim(bottom=0)
    whole_ticks(axes, "x", int(data["layer"].max()))
    axes.set(xlabel="layer", ylabel="ρ")


def largest_spreads(data: pd.DataFrame, axes: Axes) -> None:
    """Spread of rho by layer: observed, and the largest sample of each null model."""
    styles = {"observed": "o-", "rotation": "v-", "reassignment": "s-"}
    for series, rows in _series(data):
        label = LABELS[series] if series == "observed" else f"{LABELS[series]}, largest sample"
        axes.plot(rows["layer"], rows["spread"], styles[series], color=colour(series), ms=1.8, lw=0.8, label=label)
    axes.set_ylim(bottom=0)
    whole_ticks(axes, "x", int(data["layer"].max()))
    axes.set(xlabel="layer", ylabel="spread of ρ")


def ratio_map(data: pd.DataFrame, axes: Axes) -> None:
    """Ratio r of each pair of a writer's and a later reader's layer, as colour on a log scale."""
    r = _by_layers(data, data["r"])
    palette = matplotlib.colormaps[matplotlib.rcParams["image.cmap"]].with_extremes(under=colour("random"), bad="none")
    mesh = axes.pcolormesh(_edges(r), _edges(r), r, norm=LogNorm(*RATIO_LIMITS), cmap=palette, rasterized=True)
    if (r < RATIO_LIMITS[0]).any():
        axes.plot([], [], "s", color=colour("random"), ms=5, label="r below 1")
    _layer_pairs(axes, len(r) - 1)
    # No reader is earlier than its writer: that corner is free for the scale.
    scale = axes.inset_axes((0.07, 0.48, 0.05, 0.4))
    axes.figure.colorbar(mesh, cax=scale, extend="both", format="%g", ticks=[1, 3, 10, 30])
    scale.minorticks_off()
    scale.set_title("r", pad=2)


def direction_map(data: pd.DataFrame, axes: Axes) -> None:
    """Whether each layer pair's mean lies below all null samples, above all, or neither."""
    sides = ("below", "neither", "above")
    codes = _by_layers(data, data["direction"].map(sides.index).astype(float))
    palette = ListedColormap([colour(side) for side in sides])
    axes.pcolormesh(_edges(codes), _edges(codes), codes, vmin=-0.5, vmax=2.5, cmap=palette, rasterized=True)
    for side in sides:
        text = "mean between the null samples" if side == "neither" else f"mean {side} all null samples"
        axes.plot([], [], "s", color=colour(side), ms=5, label=text)
    _layer_pairs(axes, len(codes) - 1)


def energy_against_rho(data: pd.DataFrame, axes: Axes) -> None:
    """Energy share against rho as hexagons, counts on a log scale; dashed, where isotropic writes would lie."""
    span = (0.0, float(max(data["rho"].max(), data["energy_fraction"].max())))
    axes.hexbin(data["rho"], data["energy_fraction"], gridsize=40, bins="log", extent=(*span, *span), mincnt=1, lw=0.1)
    axes.plot(span, span, color=colour("observed"), ls="--", lw=0.7, label="equal")
    axes.set(xlim=span, ylim=span, aspect="equal")
    axes.set(xlabel="ρ", ylabel=r"energy share $\mathrm{tr}(P_V C)\,/\,\mathrm{tr}\,C$")


def energy_over_rho(data: pd.DataFrame, axes: Axes) -> None:
    """Distribution of energy share / rho on a log scale, with its median and 5-95 %."""
    ratio = (data["energy_fraction"] / data["rho"]).to_numpy()
    ratio = ratio[np.isfinite(ratio) & (ratio > 0)]
    low, middle, high = np.quantile(ratio, (0.05, 0.5, 0.95))
    edges = np.geomspace(ratio.min(), ratio.max() * (1 + 1e-9), 61)
    axes.axvspan(low, high, color=colour("random"), alpha=0.25, lw=0, label="5–95 % of the pairs")
    axes.hist(ratio, edges.tolist(), color=colour(data["spaces"].iloc[0][-1]), lw=0)
    axes.axvline(middle, color=colour("observed"), label="median")
    axes.axvline(1, color=colour("observed"), ls="--", lw=0.7, label="equal")
    log_axis(axes, "x")
    axes.set(xlabel="energy share / ρ", ylabel="pairs")


def layer_pair_correlations(data: pd.DataFrame, axes: Axes) -> None:
    """Rank correlation of rho and energy share in every layer pair, by kind of reader."""
    groups = list(data.groupby("spaces", sort=False))
    for place, (spaces, rows) in enumerate(groups):
        values = rows["value"].to_numpy()
        axes.scatter(place + _jitter(values), values, s=6, color=colour(str(spaces)[-1]), alpha=0.5, lw=0)
        _median_bar(axes, place, values)
    _side_by_side(axes, groups, 0.0)
    axes.set(ylabel="Spearman in a layer pair")


def linear_term_against_rho(data: pd.DataFrame, axes: Axes) -> None:
    """Mean squared norm of V's linear term against rho, both on a log scale."""
    shown = data[(data["rho"] > 0) & (data["value"] > 0)]
    axes.hexbin(shown["rho"], shown["value"], gridsize=40, bins="log", xscale="log", yscale="log", mincnt=1, lw=0.1)
    log_axis(axes, "x")
    axes.set(xlabel="ρ", ylabel="linear term, mean squared norm")


def effect_hexagons(data: pd.DataFrame, axes: Axes) -> None:
    """Size of an edge's first-order effect against rho, both on a log scale."""
    shown = data[(data["rho"] > 0) & (data["effect"] > 0)]
    axes.hexbin(shown["rho"], shown["effect"], gridsize=40, bins="log", xscale="log", yscale="log", mincnt=1, lw=0.1)
    log_axis(axes, "x")
    axes.set(xlabel="ρ", ylabel="|A| (nats)")


def _series(data: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Go through the series of a panel, the observed one last and so on top."""
    found = dict(list(data.groupby("series", sort=False)))
    return ((name, found[name]) for name in ("random", "rotation", "reassignment", "observed") if name in found)


def reference(label: str) -> dict[str, Any]:
    """Style of the dotted line of what random subspaces give."""
    return {"color": colour("random"), "ls": ":", "lw": 1, "label": label, "zorder": 0}


def _side_by_side(axes: Axes, groups: Sequence[tuple[Any, pd.DataFrame]], line: float) -> None:
    """Name the columns of points after their comparisons; dashed, the value that they stand against."""
    axes.axhline(line, color=colour("observed"), lw=0.7, ls="--")
    axes.set_xticks(range(len(groups)), [arrow(str(spaces)) for spaces, _ in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)


def _median_bar(axes: Axes, place: int, values: np.ndarray) -> None:
    axes.hlines(np.median(values), place - 0.36, place + 0.36, color=colour("observed"), lw=1.2, zorder=3)


def _jitter(values: np.ndarray) -> np.ndarray:
    """Spread points sideways by their rank, the same way each time: neighbours in value stand apart."""
    golden = (np.sqrt(5) - 1) / 2
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.asarray(0.6 * ((ranks * golden) % 1 - 0.5))


def arrow(spaces: str) -> str:
    """Return a comparison's name as a label: O→Q for OQ."""
    return spaces if len(spaces) == 1 else f"{spaces[0]}→{spaces[1]}"


def whole_ticks(axes: Axes, axis: str, last: int) -> None:
    """Put an axis' ticks at whole numbers from 0 to the last that there is."""
    found = MaxNLocator(6, integer=True, min_n_ticks=1).tick_values(0, last)
    (axes.xaxis if axis == "x" else axes.yaxis).set_ticks([tick for tick in found if 0 <= tick <= last])


def log_axis(axes: Axes, which: str) -> None:
    """Make an axis logarithmic with ticks at 1, 2, 5, 10, of three decades or more at these alone, as plain numbers."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", nonpositive="mask")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,), numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _by_layers(data: pd.DataFrame, values: pd.Series) -> np.ndarray:
    """Values of layer pairs as a square, writers along the rows, NaN where no later reader is."""
    size = int(data["reader_layer"].max()) + 1
    square = np.full((size, size), np.nan)
    square[data["writer_layer"].to_numpy(dtype=int), data["reader_layer"].to_numpy(dtype=int)] = values
    return square


def _edges(square: np.ndarray) -> np.ndarray:
    return np.asarray(np.arange(len(square) + 1) - 0.5)


def _layer_pairs(axes: Axes, last: int) -> None:
    axes.set_aspect("equal")
    for axis in "xy":
        whole_ticks(axes, axis, last)
    axes.set(xlabel="reader's layer", ylabel="writer's layer")
