"""One drawing in the report's style, in the axes that a user has."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def draw_in_style(draw: Callable[[Axes], None], axes: Axes | None) -> Axes:
    """Draw in the given axes, or in those of a new figure that pyplot does not know."""
    with style.context("headspaces.report.figures.paper"):
        axes = Figure().add_subplot() if axes is None else axes
        draw(axes)
    return axes
