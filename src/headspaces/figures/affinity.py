"""What stands in a panel of PK's figures, and how the panels are arranged."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.ticker import MaxNLocator

from headspaces.affinity_numbers import SCATTER_BINS
from headspaces.figures.panels import CLASSES, arrow, colour
from headspaces.head_graph import TYPES
from headspaces.informativeness import ORDER

NODE_POINTS = 11.5
"""Diameter of a head in figures 1 and 4."""

PORTS = {"Q": -0.5, "K": 0.0, "V": 0.5}
"""Where a read enters a head's box in figure 6, as a part of the box's width."""

LINE_LETTERS = 28
"""Letters on a line of a head's top tokens in figure 6."""

PATTERN_TITLES = {"identity": "itself", "previous_token": "previous token", "induction": "token after earlier copy"}
METHOD_TITLES = {"pk": "PK", "cs": "CS"}


def class_colours(names: Iterable[str]) -> dict[str, str]:
    """Choose the colours of head classes: a known class keeps its own, others take those that are left, by name."""
    found = set(names) - {""}
    free = [role for role in CLASSES if role not in found] or list(CLASSES)
    strange = sorted(found - set(CLASSES))
    return {name: colour(name) for name in CLASSES if name in found} | {
        name: colour(free[place % len(free)]) for place, name in enumerate(strange)
    }


def figure1(data: pd.DataFrame, axes: Axes) -> None:
    """Heads as discs coloured by class, those of a class inside the ring; edges coloured by type."""
    nodes, edges = data[data["item"] == "node"], data[data["item"] == "edge"]
    tints = class_colours(nodes["head_class"])
    places = {row["node"]: (row["x"], row["y"]) for row in nodes.to_dict("records")}
    # The ring is 650 points long on the page.
    size = min(NODE_POINTS, 580 / len(nodes))
    for row in edges.sort_values("rank", ascending=False).to_dict("records"):
        _arrow(axes, places[row["source"]], places[row["target"]], row["type"], size / 2)
    for row in nodes.to_dict("records"):
        fill = tints.get(row["head_class"], colour("neither"))
        axes.plot(row["x"], row["y"], "o", ms=size, mfc=fill, mec=colour("observed"), mew=0.3, zorder=3)
        axes.annotate(_head_label(row["node"]), places[row["node"]], ha="center", va="center", size=4, zorder=4)
    _name_edges(axes)
    for name, tint in tints.items():
        axes.plot([], [], "o", ms=5, mfc=tint, mec=colour("observed"), mew=0.3, ls="none", label=name)
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), aspect="equal")
    axes.axis("off")


def figure4(data: pd.DataFrame, axes: Axes) -> None:
    """All pairs of two layers: the wider and darker a line, the more its PK exceeds that of random subspaces."""
    isotropic, largest = data["isotropic"].iloc[0], data["largest"].iloc[0]
    spaces = data["spaces"].iloc[0]
    strength = ((data["pk"] - isotropic) / max(largest - isotropic, 1e-9)).clip(0, 1)
    for (_, row), share in zip(data.iterrows(), strength, strict=True):
        axes.plot(
            [row["source_head"], row["target_head"]], [0, 1], color=colour(spaces[1]), lw=0.2 + 2.2 * share,
            alpha=share, solid_capstyle="butt",
        )  # fmt: skip
    tints = class_colours([*data["source_class"], *data["target_class"]])
    for end, y in (("source", 0), ("target", 1)):
        heads = data.drop_duplicates(f"{end}_head")
        for head, name in zip(heads[f"{end}_head"], heads[f"{end}_class"], strict=True):
            fill = tints.get(name, colour("neither"))
            axes.plot(head, y, "o", ms=NODE_POINTS, mfc=fill, mec=colour("observed"), mew=0.3, zorder=3)
            axes.annotate(f"{y}.{head}", (head, y), ha="center", va="center", size=4, zorder=4)
    for name, tint in tints.items():
        axes.plot([], [], "o", ms=5, mfc=tint, mec=colour("observed"), mew=0.3, ls="none", label=name)
    axes.set(ylim=(-0.2, 1.2), yticks=[0, 1], xticks=[], ylabel="layer")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False)


def figure5(data: pd.DataFrame, axes: Axes) -> None:
    """Pairs by CS and PK on a log scale of counts; dashed, the cut-offs of the strongest 3 % by each."""
    first = data.iloc[0]
    cutoff, limit = ({score: float(first[f"{score}_{end}"]) for score in ("pk", "cs")} for end in ("cutoff", "limit"))
    ends = {score: np.linspace(0, limit[score], SCATTER_BINS + 1) for score in limit}
    places = [np.rint(data[score] / limit[score] * SCATTER_BINS).astype(int) for score in ("pk", "cs")]
    counts = np.full((SCATTER_BINS, SCATTER_BINS), np.nan)
    counts[places[0], places[1]] = data["n_pairs_in_bin"]
    axes.pcolormesh(ends["cs"], ends["pk"], counts, norm=LogNorm(1, max(10, np.nanmax(counts))), rasterized=True)
    line: dict[str, Any] = {"color": colour("observed"), "ls": "--", "lw": 0.7}
    axes.axhline(cutoff["pk"], **line)
    axes.axvline(cutoff["cs"], **line)
    label: dict[str, Any] = {"textcoords": "offset points", "size": 5.5}
    axes.annotate(
        f"{cutoff['pk']:.2f}", (0.99, cutoff["pk"]), (0, 1), xycoords=("axes fraction", "data"), ha="right", **label
    )
    side, shift = ("left", 2) if cutoff["cs"] < 0.7 * limit["cs"] else ("right", -2)
    axes.annotate(
        f"{cutoff['cs']:.4f}", (cutoff["cs"], 0.99), (shift, 0), xycoords=("data", "axes fraction"), va="top", ha=side,
        **label,
    )  # fmt: skip
    axes.set(xlim=(0, limit["cs"]), ylim=(0, limit["pk"]), xlabel="CS", ylabel="PK")


def figure6(data: pd.DataFrame, axes: Axes) -> None:
    """Heads as boxes, layers upwards: writes leave at the top, reads enter at the bottom by the ports Q, K and V."""
    nodes, edges = data[data["item"] == "node"], data[data["item"] == "edge"]
    rows = {layer: place for place, layer in enumerate(sorted(nodes["layer"].unique()))}
    width = min(0.085, 0.8 / nodes.groupby("layer").size().max())
    # The page has room for a dozen rows or more.
    height = 0.4 * min(1, len(rows) / 12)
    places = {row["node"]: (row["x"], rows[row["layer"]]) for row in nodes.to_dict("records")}
    ports = {kind: 0.66 * part * width for kind, part in PORTS.items()}
    for row in edges.sort_values("rank", ascending=False).to_dict("records"):
        (x, y), (later_x, later_y) = places[row["source"]], places[row["target"]]
        port = later_x + ports[row["type"][1]], later_y - height / 2
        _arrow(axes, (x, y + height / 2), port, row["type"], shrink=0.0, bend=0.0)
    tints = class_colours(nodes["head_class"])
    for row in nodes.to_dict("records"):
        x, y = places[row["node"]]
        fill = tints.get(row["head_class"], colour("neither"))
        axes.add_patch(
            Rectangle((x - width / 2, y - height / 2), width, height, fc=fill, ec=colour("observed"), lw=0.3, zorder=3)
        )
        centred: dict[str, Any] = {"ha": "center", "zorder": 4}
        axes.annotate(_head_label(row["node"]), (x, y), va="center", size=4.5, **centred)
        for kind, shift in ports.items():
            axes.annotate(kind, (x + shift, y - height / 2), (0, 0.5), textcoords="offset points", size=3, **centred)
        lines = textwrap.wrap(row["tokens"], LINE_LETTERS, max_lines=2, placeholder=" …")
        axes.annotate(
            "\n".join(lines), (x, y + height / 2), (0, 1), textcoords="offset points", va="bottom", size=3.2,
            parse_math=False, **centred,
        )  # fmt: skip
    _name_edges(axes)
    for name, tint in tints.items():
        axes.plot([], [], "s", ms=5, mfc=tint, mec=colour("observed"), mew=0.3, ls="none", label=name)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.6, len(rows) - 0.4), xticks=[], ylabel="layer")
    axes.set_yticks(list(rows.values()), [str(int(layer)) for layer in rows])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False)


def figure7(data: pd.DataFrame, axes: Axes) -> None:
    """Mean attention of every head as colour from 0 to 1."""
    values = data.pivot(index="layer", columns="head", values="value").to_numpy()
    ends = [np.arange(size + 1) - 0.5 for size in values.shape]
    axes.pcolormesh(ends[1], ends[0], values, vmin=0, vmax=1, rasterized=True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.set(xlabel="head", ylabel="layer")


def figure8_map(data: pd.DataFrame, axes: Axes) -> None:
    """Divergence of every kind pair, as colour and number; infinite ones have the largest one's colour."""
    values = data.pivot(index="source", columns="target", values="value").loc[list(ORDER), list(ORDER)].to_numpy()
    finite = values[np.isfinite(values)]
    top = max(float(finite.max()), 1e-3) if finite.size else 1.0
    shown = np.where(np.isposinf(values), top, values)
    axes.imshow(shown, vmin=0, vmax=top, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        text = "∞" if np.isposinf(value) else "" if np.isnan(value) else f"{value:.3f}"
        axes.annotate(text, (j, i), ha="center", va="center", color="black" if shown[i, j] > 0.6 * top else "white")
    axes.set_xticks(range(4), list(ORDER))
    axes.set_yticks(range(4), list(ORDER))
    axes.set(xlabel="target (later layer)", ylabel="source")


def figure8_histogram(data: pd.DataFrame, axes: Axes) -> None:
    """Shares of PK: observed pairs, and random subspaces."""
    left, width = data["low"], data["high"] - data["low"]
    axes.bar(
        left, data["value"], width, align="edge", color=colour(data["source"].iloc[0]), lw=0, label="observed pairs"
    )
    axes.bar(
        left, data["random"], width, align="edge", color=colour("random"), alpha=0.6, lw=0, label="random subspaces"
    )
    weight = data["value"].cumsum() / data["value"].sum()
    axes.set_xlim(0, 1.05 * float(data["high"][weight <= 0.999].max()))
    axes.set(xlabel="PK", ylabel="share of pairs")


def _arrow(
    axes: Axes, start: tuple[float, float], stop: tuple[float, float], kind: str, shrink: float, bend: float = 0.12
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, stop, connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>,head_length=1.6,head_width=0.8", lw=0.5,
            color=colour(kind[1]), alpha=0.75, shrinkA=shrink, shrinkB=shrink, mutation_scale=1, zorder=2,
        )
    )  # fmt: skip


def _name_edges(axes: Axes) -> None:
    for kind in TYPES:
        axes.plot([], [], color=colour(kind[1]), lw=1.2, label=arrow(kind))


def _head_label(node: str) -> str:
    """Write a key-value head's node as layer, k, head."""
    return node.replace(".kv.", "k")
