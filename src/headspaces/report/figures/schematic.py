"""The picture of the idea (RW figure 1): what a reader sees of a write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from headspaces.report.figures.panels import colour


def projection(data: pd.DataFrame, axes: Axes) -> None:
    """Draw RW's figure 1: the write u, its projection p on the plane R, u - p in the kernel, and the angle."""
    vectors = {row["quantity"]: np.array([row["x"], row["y"], row["z"]]) for _, row in data.iterrows()}
    u, p, rest = vectors["u"], vectors["p"], vectors["u - p"]
    plane = np.array([[-0.75, -0.85, 0], [2.0, -0.85, 0], [2.0, 1.2, 0], [-0.75, 1.2, 0]])
    normal, origin = np.array([0.0, 0.0, 1.0]), np.zeros(3)
    reader, writer, plain = colour("Q"), colour("O"), colour("observed")
    # What lies below the plane is drawn first: the plane's tint covers it.
    for end, tint in ((-0.42 * u, writer), (-0.5 * normal, plain)):
        _line(axes, origin, end, color=tint, lw=0.8, ls=":", alpha=0.6, zorder=0)
    axes.add_patch(Polygon(_seen(plane), closed=True, facecolor=reader, alpha=0.16, lw=0, zorder=1))
    axes.add_patch(Polygon(_seen(plane), closed=True, fill=False, edgecolor=reader, lw=0.8, zorder=1))
    _line(axes, origin, 1.3 * normal, color=plain, lw=0.8)
    _line(axes, origin, 1.2 * u, color=writer, lw=0.8)
    _arrow_to(axes, origin, u, writer)
    _arrow_to(axes, origin, p, reader)
    _arrow_to(axes, p, u, plain, ls="--")
    # The right angle between p and u - p, and the angle theta between u and p.
    ahead, up = p / np.linalg.norm(p), rest / np.linalg.norm(rest)
    _line(axes, p - 0.13 * ahead, p - 0.13 * ahead + 0.13 * up, p + 0.13 * up, color=plain, lw=0.7)
    turns = np.linspace(0, np.arctan2(np.linalg.norm(rest), np.linalg.norm(p)), 30)[:, None]
    arc = 0.5 * (np.cos(turns) * ahead + np.sin(turns) * up)
    _line(axes, *arc, color=plain, lw=0.8)
    for text, place, shift, side, tint in (
        (r"$\theta$", arc[len(arc) // 2], (4, -1), "left", plain),
        (r"$O$", origin, (-4, 3), "right", plain),
        (r"$u$", u, (-6, 3), "right", writer),
        (r"$p = P_R\,u$", p, (4, -7), "left", reader),
        (r"$\Vert p \Vert = \Vert u \Vert \cos\theta$", 0.55 * p, (0, -11), "center", reader),
        (r"$u - p \in \ker W_Q$", (u + p) / 2, (5, 3), "left", plain),
        ("not seen by the reader", (u + p) / 2, (5, -7), "left", plain),
        (r"write space $U = \mathrm{Im}\,W_O$", 1.2 * u, (4, -1), "left", writer),
        (r"read space $R = (\ker W_Q)^\perp = \mathrm{Im}\,W_Q^\top$", plane[1], (-10, 28), "right", reader),
        (r"$\ker W_Q$", 1.3 * normal, (0, 3), "center", plain),
    ):
        axes.annotate(text, tuple(_seen(place)), shift, textcoords="offset points", color=tint, ha=side)
    axes.set_aspect("equal")
    axes.margins(0.01)
    axes.axis("off")


def _seen(points: np.ndarray) -> np.ndarray:
    """Project points in space on the page: a parallel projection from above the plane's front."""
    return np.asarray(points @ np.array([[0.94, -0.12], [0.42, 0.40], [0.0, 1.0]]))


def _line(axes: Axes, *points: np.ndarray, **style: Any) -> None:
    axes.plot(*_seen(np.array(points)).T, **style)


def _arrow_to(axes: Axes, start: np.ndarray, end: np.ndarray, tint: str, ls: str = "-") -> None:
    head, foot = (tuple(_seen(point)) for point in (end, start))
    arrow = {"arrowstyle": "-|>", "color": tint, "lw": 1.4, "ls": ls, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
    axes.annotate("", head, foot, arrowprops=arrow)
