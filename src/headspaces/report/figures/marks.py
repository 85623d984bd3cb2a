"""Marks of heads and edges in PK's graphs: colours of classes, arrows by type, and their names for the legend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from headspaces.report.figures.panels import CLASSES, LINES, arrow, colour
from headspaces.spaces import ACROSS

ARROW: Mapping[str, Any] = {
    "arrowstyle": "-|>,head_length=2.5,head_width=1.2", "alpha": 0.85, "mutation_scale": 1, "zorder": 2,
}  # fmt: skip
"""Style of an edge, but for what :func:`edge_style` adds."""

EDGE_POINTS = (0.5, 1.6)
"""Widths of the weakest and the strongest edge of a graph."""


def edge_style(kind: str, strength: float = 0.5) -> dict[str, Any]:
    """Colour, line and width of an edge of a type, whose strength goes from 0 to 1: told apart without colour too."""
    low, high = EDGE_POINTS
    return {"color": colour(kind[1]), "ls": LINES[kind[1]], "lw": low + (high - low) * strength}


def strengths(scores: pd.Series) -> pd.Series:
    """Place scores between the smallest, 0, and the largest, 1."""
    low, high = float(scores.min()), float(scores.max())
    return ((scores - low) / max(high - low, 1e-12)).rename("strength")


def class_colours(names: Iterable[str]) -> dict[str, str]:
    """Choose the colours of head classes: a known class keeps its own, others take those that are left, by name."""
    found = set(names) - {""}
    free = [role for role in CLASSES if role not in found] or list(CLASSES)
    strange = sorted(found - set(CLASSES))
    return {name: colour(name) for name in CLASSES if name in found} | {
        name: colour(free[place % len(free)]) for place, name in enumerate(strange)
    }


def name_edges(axes: Axes) -> None:
    """Name the types of edges in the legend."""
    for kind in ACROSS:
        axes.plot([], [], **edge_style(kind), label=arrow(kind))
    axes.plot([], [], color=colour("observed"), lw=EDGE_POINTS[1], label="the wider, the stronger")


def name_classes(axes: Axes, tints: Mapping[str, str], marker: str) -> None:
    """Name the classes of heads in the legend."""
    for name, tint in tints.items():
        axes.plot([], [], marker, ms=5, mfc=tint, mec=colour("observed"), mew=0.3, ls="none", label=name)


def head_label(node: str) -> str:
    """Write a key-value head's node as layer, k, head."""
    return node.replace(".kv.", "k")
