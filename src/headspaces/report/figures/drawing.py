"""The report's figures: numbers to panels to PDF and PNG. The only package that knows matplotlib.

Pictures are made without pyplot and without a display, in the style of ``config/paper.mplstyle`` whatever the user's
own settings are, and the same numbers give the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.image import imsave

from headspaces.files import whole_file
from headspaces.report.figures import effect_figures, numbers, pk_numbers, series, stream_figure, stream_graph
from headspaces.report.figures.layout import Maker, Panel, Rows
from headspaces.report.results import ModelResults
from headspaces.report.tidy_frames import write_frame
from headspaces.study import items

MAKERS: Mapping[str, Maker] = items.functions_of(
    items.FIGURES, (numbers, pk_numbers, effect_figures, series, stream_figure, stream_graph)
)

LIKE_DEPTH = 4
"""So many times deeper, a model's panels are on another page: its layers need other widths, its scales differ."""

UNDATED_PDF: dict[str, Any] = {"CreationDate": None, "Creator": None, "Producer": None}
UNDATED_PNG: dict[str, Any] = {"Software": None}
"""Without the dates and the program's version the same numbers give the same bytes."""

NOTHING = "no model of this study has what this figure shows"


def draw_figure(
    name: str,
    models: Sequence[ModelResults],
    style_path: str | Path,
    pdf_path: str | Path,
    png_path: str | Path,
    csv_path: str | Path,
) -> None:
    """Write a figure as PDF and PNG and its numbers as CSV, each file whole or not at all.

    Models of very different depth have pages of their own; in the PNG these stand below each other.

    Sizes, fonts and colours are those of Matplotlib's style sheet at ``style_path``.
    """
    for library in ("matplotlib", "fontTools"):
        logging.getLogger(library).setLevel(logging.WARNING)
    drawn = MAKERS[name](models)
    write_frame(drawn, csv_path)
    with style.context(str(style_path), after_reset=True):
        figures = [make_figure(name, page) for page in pages_of(drawn, models)]
        with whole_file(pdf_path) as path, PdfPages(path, metadata=UNDATED_PDF) as pdf:
            for figure in figures:
                pdf.savefig(figure)
        with whole_file(png_path) as path:
            pixels = np.concatenate([_pixels(figure) for figure in figures])
            imsave(path, pixels, format="png", metadata=UNDATED_PNG)


def pages_of(drawn: pd.DataFrame, models: Sequence[ModelResults]) -> list[pd.DataFrame]:
    """Cut a figure's numbers into pages: a model shares one with those of like depth, in the order of the study."""
    if "model" not in drawn:
        return [drawn]
    pages: list[list[ModelResults]] = []
    shown = set(drawn["model"])
    for model in (model for model in models if model.name in shown):
        for page in pages:
            if all(1 / LIKE_DEPTH < model.shape.n_layers / other.shape.n_layers < LIKE_DEPTH for other in page):
                page.append(model)
                break
        else:
            pages.append([model])
    return [drawn[drawn["model"].isin([model.name for model in page])] for page in pages] or [drawn]


def _pixels(figure: Figure) -> np.ndarray:
    """Draw a page as it is saved: its rows of pixels, red, green, blue and opacity."""
    figure.set_dpi(matplotlib.rcParams["savefig.dpi"])
    canvas: Any = FigureCanvasAgg(figure)  # without types
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def make_figure(name: str, drawn: pd.DataFrame) -> Figure:
    """Draw a figure from its numbers, in the style that is in force.

    The style's figure size is the width of the page and the height of one row of panels.
    """
    maker = MAKERS[name]
    rows = maker.rows(drawn) if len(drawn) else []
    width, unit = matplotlib.rcParams["figure.figsize"]
    heights = [max(panel.inches or unit * maker.height for panel in row) for row in rows]
    figure = Figure(figsize=(width, sum(heights) + 0.25))
    if not rows:
        figure.set_figheight(0.5)
        subject = f": {maker.subject}" if maker.subject else ""
        figure.text(0.5, 0.5, NOTHING + subject, ha="center", va="center")
        return figure
    grid = _draw_panels(figure, rows, heights)
    _label_outside(grid)
    _colour_bars(figure, rows, grid)
    _legend(figure, [axes for line in grid for axes in line])
    return figure


def _draw_panels(figure: Figure, rows: Rows, heights: Sequence[float]) -> list[list[Axes]]:
    spec = figure.add_gridspec(len(rows), max(len(row) for row in rows), height_ratios=heights)
    grid = [[figure.add_subplot(spec[line, place]) for place in range(len(row))] for line, row in enumerate(rows)]
    for row, line in zip(rows, grid):
        for panel, axes in zip(row, line):
            panel.draw(panel.data, axes)
            axes.set_title(panel.title, parse_math=False)  # a model's name may hold a $
    return grid


def _label_outside(grid: Sequence[Sequence[Axes]]) -> None:
    """Drop an axis' label where the panel below or on the left has the same."""
    for line, below in pairwise(grid):
        for axes, other in zip(line, below):
            if axes.get_xlabel() == other.get_xlabel():
                axes.set_xlabel("")
    for line in grid:
        # From the right, so that every panel still has its label when it is compared.
        for axes, other in list(zip(line[1:], line))[::-1]:
            if axes.get_ylabel() == other.get_ylabel():
                axes.set_ylabel("")


def _colour_bars(figure: Figure, rows: Iterable[Sequence[Panel]], grid: Iterable[Sequence[Axes]]) -> None:
    """Explain the colours of each panel that asks for it."""
    for row, line in zip(rows, grid):
        for panel, axes in zip(row, line):
            if panel.bar:
                figure.colorbar(axes.collections[0], ax=axes, label=panel.bar, format="%g", aspect=25, pad=0.01)


def _legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """Name every line once, above all panels."""
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            found.setdefault(label, handle)
    if found:
        # A letter of the legend is about 0.05 inches wide, a line's sample with its gaps 0.5.
        columns = int(figure.get_figwidth() / (0.5 + 0.05 * max(len(label) for label in found)))
        columns = max(1, min(columns, len(found)))
        # Rows of one length: none ends with a single name.
        columns = -(-len(found) // -(-len(found) // columns))
        # The legend fills its columns one by one; people read rows.
        order = [label for column in range(columns) for label in list(found)[column::columns]]
        figure.legend([found[label] for label in order], order, loc="outside upper center", ncols=columns)
