"""Panels of PK's figures; figure 6 has a module of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import FancyArrowPatch

from headspaces.affinity.informativeness import ORDER
from headspaces.report.figures.marks import (
    ARROW,
    class_colours,
    edge_style,
    head_label,
    name_classes,
    name_edges,
    strengths,
)
from headspaces.report.figures.panels import arrow, colour, whole_ticks

NODE_POINTS = 6.0
"""Diameter of a head in figures 1 and 4; its label stands beside it."""

SCATTER_BINS = 120
"""Bins of each axis of figure 5, up to its limit."""

BENDS = {"OQ": 0.06, "OK": 0.14, "OV": 0.22}
"""How far an edge of figure 1 bends: edges of two types between the same heads stand apart."""

FEW_PAIRS, COARSER = 5000, 4
"""With fewer pairs a cell of figure 5 is so many bins wide: single pairs can be seen."""

PATTERN_TITLES = {
    "identity": "to the token itself",
    "previous_token": "to the token before",
    "induction": "to the token after a copy",
}
METHOD_TITLES = {"pk": "PK", "cs": "CS"}


def ring_graph(data: pd.DataFrame, axes: Axes) -> None:
    """Heads as discs coloured by class, those of a class inside the ring; edges coloured by type."""
    nodes, edges = data[data["item"] == "node"], data[data["item"] == "edge"]
    tints = class_colours(nodes["head_class"])
    places = {row["node"]: (row["x"], row["y"]) for row in nodes.to_dict("records")}
    edges = edges.assign(strength=strengths(edges["score"])).sort_values("rank", ascending=False)
    for row in edges.to_dict("records"):
        _arrow(axes, places[row["source"]], places[row["target"]], row["type"], row["strength"])
    for row in nodes.to_dict("records"):
        fill = tints.get(row["head_class"], colour("neither"))
        axes.plot(row["x"], row["y"], "o", ms=NODE_POINTS, mfc=fill, mec=colour("observed"), mew=0.3, zorder=3)
        _outside(axes, head_label(row["node"]), row["x"], row["y"])
    name_edges(axes)
    name_classes(axes, tints, "o")
    axes.set(xlim=(-1.24, 1.24), ylim=(-1.24, 1.24), aspect="equal")
    axes.axis("off")


def two_layers(data: pd.DataFrame, axes: Axes) -> None:
    """All pairs of two layers: the wider and darker a line, the more its PK exceeds that of random subspaces."""
    isotropic, largest = data["isotropic"].iloc[0], data["largest"].iloc[0]
    spaces = data["spaces"].iloc[0]
    strength = ((data["pk"] - isotropic) / max(largest - isotropic, 1e-9)).clip(0, 1)

    def style(share: float) -> dict[str, Any]:
        return {"lw": 0.2 + 2.2 * share, "alpha": share, "solid_capstyle": "butt"}

    for (_, row), share in zip(data.iterrows(), strength, strict=True):
        axes.plot([row["source_head"], row["target_head"]], [0, 1], color=colour(spaces[1]), **style(share))
    tints = class_colours([*data["source_class"], *data["target_class"]])
    for end, y in (("source", 0), ("target", 1)):
        heads = data.drop_duplicates(f"{end}_head")
        for head, name in zip(heads[f"{end}_head"], heads[f"{end}_class"], strict=True):
            fill = tints.get(name, colour("neither"))
            axes.plot(head, y, "o", ms=NODE_POINTS, mfc=fill, mec=colour("observed"), mew=0.3, zorder=3)
            side: dict[str, Any] = {"va": "bottom" if y else "top", "textcoords": "offset points"}
            axes.annotate(f"{y}.{head}", (head, y), (0, 5 if y else -5), ha="center", **side)
    for share in (1 / 3, 2 / 3, 1.0):
        value = isotropic + share * (largest - isotropic)
        axes.plot([], [], color=colour("observed"), label=f"PK {value:.1f}", **style(share))
    name_classes(axes, tints, "o")
    axes.set(ylim=(-0.2, 1.2), yticks=[0, 1], xticks=[], ylabel="layer")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False)


def pk_against_cs(data: pd.DataFrame, axes: Axes) -> None:
    """Pairs by CS and PK on a log scale of counts; dashed, the cut-offs of the strongest 3 % by each."""
    first = data.iloc[0]
    cutoff, limit = ({score: float(first[f"{score}_{end}"]) for score in ("pk", "cs")} for end in ("cutoff", "limit"))
    step = COARSER if first["n_pairs"] < FEW_PAIRS else 1
    cells = SCATTER_BINS // step
    ends = {score: np.linspace(0, limit[score], cells + 1) for score in limit}
    places = tuple(np.rint(data[score] / limit[score] * SCATTER_BINS).astype(int) // step for score in ("pk", "cs"))
    counts = np.zeros((cells, cells))
    np.add.at(counts, places, data["n_pairs_in_bin"])
    counts[counts == 0] = np.nan
    axes.pcolormesh(ends["cs"], ends["pk"], counts, norm=LogNorm(1, max(10, np.nanmax(counts))), rasterized=True)
    line: dict[str, Any] = {"color": colour("observed"), "ls": "--", "lw": 0.7}
    axes.axhline(cutoff["pk"], **line)
    axes.axvline(cutoff["cs"], **line)
    # Weak pairs lie low on the left: the top left and the bottom right are free.
    label: dict[str, Any] = {
        "textcoords": "offset points",
    }
    up, right = cutoff["pk"] < 0.9 * limit["pk"], cutoff["cs"] < 0.75 * limit["cs"]
    axes.annotate(
        f"{cutoff['pk']:.2f}", (0.02, cutoff["pk"]), (0, 2 if up else -2), va="bottom" if up else "top",
        xycoords=("axes fraction", "data"), **label,
    )  # fmt: skip
    axes.annotate(
        f"{cutoff['cs']:.4f}", (cutoff["cs"], 0.02), (2 if right else -2, 0), ha="left" if right else "right",
        xycoords=("data", "axes fraction"), **label,
    )  # fmt: skip
    axes.set(xlim=(0, limit["cs"]), ylim=(0, limit["pk"]), xlabel="CS", ylabel="PK")


def attention_map(data: pd.DataFrame, axes: Axes) -> None:
    """Mean attention of every head as colour from 0 to 1."""
    values = data.pivot(index="layer", columns="head", values="value").to_numpy()
    ends = [np.arange(size + 1) - 0.5 for size in values.shape]
    axes.pcolormesh(ends[1], ends[0], values, vmin=0, vmax=1, rasterized=True)
    for axis, size in zip("yx", values.shape):
        whole_ticks(axes, axis, size - 1)
    axes.set(xlabel="head", ylabel="layer")


def divergence_map(data: pd.DataFrame, axes: Axes) -> None:
    """Divergence of every kind pair, as colour and number; an infinite one has a sign and no colour."""
    values = data.pivot(index="source", columns="target", values="value").loc[list(ORDER), list(ORDER)].to_numpy()
    finite = values[np.isfinite(values)]
    top = max(float(finite.max()), 1e-3) if finite.size else 1.0
    axes.imshow(np.where(np.isfinite(values), values, np.nan), vmin=0, vmax=top, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        text = "∞" if np.isposinf(value) else "" if np.isnan(value) else f"{value:.3f}"
        dark = np.isfinite(value) and value < 0.45 * top
        axes.annotate(text, (j, i), ha="center", va="center", color="white" if dark else "black")
    if np.isposinf(values).any():
        label = "no pair in a bin where random subspaces have ten or more"
        axes.plot([], [], ls="none", marker=r"$\infty$", ms=5, color=colour("observed"), label=label)
    axes.set_xticks(range(4), list(ORDER))
    axes.set_yticks(range(4), list(ORDER))
    axes.set(xlabel="target (later layer)", ylabel="source")


def pk_histogram(data: pd.DataFrame, axes: Axes) -> None:
    """Shares of PK: observed pairs, and random subspaces."""
    left, width = data["low"], data["high"] - data["low"]
    source, target = data["source"].iloc[0], data["target"].iloc[0]
    style: dict[str, Any] = {"align": "edge", "lw": 0}
    label = f"observed pairs, {arrow(source + target)}"
    axes.bar(left, data["value"], width, color=colour(source), label=label, **style)
    axes.bar(left, data["random"], width, color=colour("random"), alpha=0.6, label="random subspaces", **style)
    weight = data["value"].cumsum() / data["value"].sum()
    axes.set_xlim(0, 1.05 * float(data["high"][weight <= 0.999].max()))
    axes.set(xlabel="PK", ylabel="share of pairs in a bin")


def _arrow(axes: Axes, start: tuple[float, float], stop: tuple[float, float], kind: str, strength: float) -> None:
    gap = NODE_POINTS / 2
    style = {"connectionstyle": f"arc3,rad={BENDS[kind]}", "shrinkA": gap, "shrinkB": gap, **ARROW}
    axes.add_patch(FancyArrowPatch(start, stop, **edge_style(kind, strength), **style))


def _outside(axes: Axes, label: str, x: float, y: float) -> None:
    """Write a head's name away from the ring's middle, along its radius, so that neighbours do not meet."""
    angle = float(np.degrees(np.arctan2(y, x)))
    left = abs(angle) > 90
    away = (NODE_POINTS / 2 + 1.5) * np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    axes.annotate(
        label, (x, y), tuple(away), textcoords="offset points", rotation=angle - 180 if left else angle,
        rotation_mode="anchor", ha="right" if left else "left", va="center", zorder=4,
    )  # fmt: skip
