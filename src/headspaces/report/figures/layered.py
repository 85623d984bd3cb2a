"""PK's figure 6: heads as boxes with ports, layers upwards, and edges that go around the boxes between their ends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path

from headspaces.report.figures.marks import (
    ARROW,
    class_colours,
    edge_style,
    head_label,
    name_classes,
    name_edges,
    strengths,
)
from headspaces.report.figures.panels import colour

PORTS = {"Q": -0.33, "K": 0.0, "V": 0.33}
"""Where a read enters a head's box, as a part of the box's width."""

TEXT_POINTS = 7.0
"""Height of all letters: no text is smaller in print."""
ROW_POINTS, BOX_POINTS = 56.0, 26.0
"""Height of a layer and of a box where the page has room: for its name, its ports, and two lines of tokens above it."""
TIGHT_ROW_POINTS, TIGHT_BOX_POINTS = 17.0, 9.0
"""The least, where it has not: for the name alone. Ports are then told by the lines that end there."""
PANEL_INCHES = (2.2, 9.5)
"""Least and largest height of a panel: a page has no more."""

Point = tuple[float, float]


def panel_inches(data: pd.DataFrame) -> float:
    """Height of a panel: by its layers, up to a page, and beyond it only where names would meet."""
    full, tight = (_n_rows(data) * points / 72 + 0.3 for points in (ROW_POINTS, TIGHT_ROW_POINTS))
    return float(max(tight, np.clip(full, *PANEL_INCHES)))


def layered_graph(data: pd.DataFrame, axes: Axes) -> None:
    """Heads as boxes, layers upwards: writes leave at the top, reads enter at the bottom by the ports Q, K and V."""
    nodes, edges = data[data["item"] == "node"], data[data["item"] == "edge"]
    rows = {layer: float(place) for place, layer in enumerate(sorted(nodes["layer"].unique()))}
    row_points = 72 * (panel_inches(data) - 0.3) / len(rows)
    is_full = row_points >= 0.99 * ROW_POINTS
    box_points = BOX_POINTS if is_full else TIGHT_BOX_POINTS
    width, height = min(0.085, 0.8 / nodes.groupby("layer").size().max()), box_points / row_points
    places = {row["node"]: (row["x"], rows[row["layer"]]) for row in nodes.to_dict("records")}
    streets = Streets.between(places.values(), width, height)
    edges = edges.assign(strength=strengths(edges["score"])).sort_values("rank", ascending=False)
    for row in edges.to_dict("records"):
        (x, y), (later_x, later_y) = places[row["source"]], places[row["target"]]
        port = later_x + width * PORTS[row["type"][1]]
        draw_edge(axes, streets.route((x, y + height / 2), (port, later_y - height / 2)), row["type"], row["strength"])
    tints = class_colours(nodes["head_class"])
    shared = bool((nodes["kind"] == "key-value").any())
    in_row = nodes.groupby("layer").size()
    for row in nodes.to_dict("records"):
        fill = tints.get(row["head_class"], colour("neither"))
        ports = _ports(row["kind"], shared) if is_full else ""
        _box(axes, places[row["node"]], (width, height), fill, head_label(row["node"]), ports)
        # The axes are 6.6 inches wide; a letter is about 0.6 of its height wide.
        letters = int(6.6 * 72 / in_row[row["layer"]] / (0.6 * TEXT_POINTS)) - 1
        tokens = row["tokens"] if is_full else ""
        lines = textwrap.wrap(tokens, min(max(letters, 3), 40), max_lines=2, placeholder=" …")
        _above(axes, places[row["node"]], height, "\n".join(lines))
    name_edges(axes)
    name_classes(axes, tints, "s")
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.6, len(rows) - 0.4), xticks=[], ylabel="layer")
    axes.set_yticks(list(rows.values()), [str(int(layer)) for layer in rows])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False)


@dataclass
class Streets:
    """Where edges can pass a row without touching its boxes.

    ``free`` are, by row, the intervals of x between its boxes of this ``height``; ``taken`` counts the edges that
    already go along a box, by row and x.
    """

    free: Mapping[int, Sequence[Point]]
    height: float
    taken: dict[tuple[int, float], int] = field(default_factory=dict)

    @classmethod
    def between(cls, places: Iterable[Point], width: float, height: float, margin: float = 0.006) -> Streets:
        """Leave free what no box, with a margin around it, takes: ``places`` are the boxes' middles."""
        by_row: dict[int, list[float]] = {}
        for x, row in places:
            by_row.setdefault(int(row), []).append(x)
        free = {}
        for row, centres in by_row.items():
            ends = np.array(
                [-0.01, *(x + side * (width / 2 + margin) for x in sorted(centres) for side in (-1, 1)), 1.01]
            )
            free[row] = [(low, high) for low, high in ends.reshape(-1, 2).tolist() if low < high]
        return cls(free, height)

    def route(self, start: Point, stop: Point) -> list[Point]:
        """Points of an edge from one height to a larger: straight where it is free to, else along the nearest box."""
        points = [start]
        for row in range(int(np.floor(start[1])) + 1, int(np.ceil(stop[1]))):
            heights = np.array([row - self.height / 2, row + self.height / 2])
            straight = np.interp(heights, *np.array([start, stop]).T[::-1])
            middle = straight.mean()
            low, high = min(self.free[row], key=lambda street: max(street[0] - middle, middle - street[1]))
            passed = np.clip(straight, low, high)
            if (passed != straight).any():
                passed = self._beside(row, passed, low, high)
            points += zip(passed.tolist(), heights.tolist(), strict=True)
        return [*points, stop]

    def _beside(self, row: int, x: np.ndarray, low: float, high: float) -> np.ndarray:
        """Keep edges apart that go along the same side of a box."""
        end = low if (x == low).any() else high
        count = self.taken[row, end] = self.taken.get((row, end), -1) + 1
        return np.clip(x + (0.004 if end == low else -0.004) * count, low, high)


def draw_edge(axes: Axes, points: Sequence[Point], kind: str, strength: float = 0.5) -> None:
    """Draw a smooth curve that goes upwards through the points, with an arrow's head."""
    x, y = np.array(points).T
    secants = np.diff(x) / np.diff(y)
    # Harmonic means of neighbouring slopes keep the curve between its points: it does not touch a box.
    below, above = secants[:-1], secants[1:]
    inner = np.divide(2 * below * above, below + above, out=np.zeros_like(below), where=below * above > 0)
    slopes = np.concatenate([secants[:1], inner, secants[-1:]])
    third = np.diff(y) / 3
    controls = np.stack([
        np.stack([x[:-1] + slopes[:-1] * third, y[:-1] + third], axis=1),
        np.stack([x[1:] - slopes[1:] * third, y[1:] - third], axis=1),
        np.stack([x[1:], y[1:]], axis=1),
    ], axis=1).reshape(-1, 2)  # fmt: skip
    path = Path(np.vstack([points[0], controls]), [Path.MOVETO] + [Path.CURVE4] * len(controls))
    axes.add_patch(FancyArrowPatch(path=path, **edge_style(kind, strength), **ARROW))


def _ports(kind: str, shared: bool) -> str:
    """Letters of the reads and of the write that a head has, where key and value heads may be apart."""
    return "KV" if kind == "key-value" else "QO" if shared else "QKVO"


def _box(axes: Axes, place: Point, size: tuple[float, float], fill: str, label: str, ports: str) -> None:
    (x, y), (width, height) = place, size
    corner = x - width / 2, y - height / 2
    axes.add_patch(Rectangle(corner, width, height, fc=fill, ec=colour("observed"), lw=0.4, zorder=3))
    text: dict[str, Any] = {"ha": "center", "zorder": 4, "textcoords": "offset points"}
    axes.annotate(label, (x, y), (0, -0.36 * TEXT_POINTS), size=TEXT_POINTS, **text)
    for port in ports:
        # A capital is 0.73 of a letter's size high.
        shift = 1.0 if port in PORTS else -0.73 * TEXT_POINTS - 1.0
        at = (x + width * PORTS.get(port, 0.0), y + (-height if port in PORTS else height) / 2)
        axes.annotate(port, at, (0, shift), size=TEXT_POINTS, **text)


def _above(axes: Axes, place: Point, height: float, words: str) -> None:
    """Write words above a box, readable where edges pass behind them."""
    if words:
        axes.annotate(
            words, (place[0], place[1] + height / 2), (0, 1), textcoords="offset points", ha="center", va="bottom",
            size=TEXT_POINTS, linespacing=1.0, parse_math=False, zorder=2.5,
            bbox={"fc": "white", "ec": "none", "alpha": 0.75, "pad": 0.2},
        )  # fmt: skip


def _n_rows(data: pd.DataFrame) -> int:
    return int(data.loc[data["item"] == "node", "layer"].nunique())
