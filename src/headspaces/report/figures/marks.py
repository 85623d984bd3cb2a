"""Marks of heads and edges in PK's graphs: colours of classes, arrows by type, and their names for the legend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes

from headspaces.report.figures.panels import CLASSES, arrow, colour
from headspaces.spaces import ACROSS

ARROW: Mapping[str, Any] = {
    "arrowstyle": "-|>,head_length=2,head_width=1", "lw": 0.7, "alpha": 0.85, "mutation_scale": 1, "zorder": 2,
}  # fmt: skip
"""Style of an edge, but for its colour."""


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
        axes.plot([], [], color=colour(kind[1]), lw=1.2, label=arrow(kind))


def name_classes(axes: Axes, tints: Mapping[str, str], marker: str) -> None:
    """Name the classes of heads in the legend."""
    for name, tint in tints.items():
        axes.plot([], [], marker, ms=5, mfc=tint, mec=colour("observed"), mew=0.3, ls="none", label=name)


def head_label(node: str) -> str:
    """Write a key-value head's node as layer, k, head."""
    return node.replace(".kv.", "k")
