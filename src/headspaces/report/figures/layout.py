"""Which panels a figure has and where they stand: rows of panels, for one model or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes

from headspaces.report.figures import layered, panels, schematic
from headspaces.report.figures import pk_panels as affinity
from headspaces.report.figures.panels import arrow

Draw = Callable[[pd.DataFrame, Axes], None]

FEW_LAYERS_INCHES = 1.4
"""Height of figure 9's panels for a model that has a handful of layer pairs."""


@dataclass(frozen=True)
class Panel:
    """One axes of a figure.

    Attributes
    ----------
    title
        Stands above it.
    data
        Its rows of the figure's numbers.
    draw
        Puts them in the axes.
    bar
        Label of the colour bar, where colour is a scale.
    inches
        Height, where it is not that of the figure's rows.
    """

    title: str
    data: pd.DataFrame
    draw: Draw
    bar: str = ""
    inches: float | None = None


Rows = list[list[Panel]]


@dataclass(frozen=True)
class Arrangement:
    """How the numbers of a figure become rows of panels.

    Attributes
    ----------
    rows
        Makes the rows from the numbers; no row where there are no numbers.
    height
        Height of a row of panels in the style's unit.
    subject
        What a model must have to be shown, where it is not said by the stages that the figure needs.
    """

    rows: Callable[[pd.DataFrame], Rows]
    height: float = 1.0
    subject: str = ""


def _flow(found: Sequence[Panel], columns: int) -> Rows:
    """Break a line of panels into rows."""
    return [list(found[start : start + columns]) for start in range(0, len(found), columns)]


def _by_space(draw: Draw, deep: int = 1000) -> Callable[[pd.DataFrame], Rows]:
    """One panel for each kind of space of each model, four in a row, or two where a model has ``deep`` layers."""

    def rows(numbers: pd.DataFrame) -> Rows:
        found = []
        for (model, spaces), data in numbers.groupby(["model", "spaces"], sort=False):
            layer = (
                f", layer {data['layer'].iloc[0]}" if data["layer"].nunique() == 1 and draw is panels.figure2 else ""
            )
            found.append(Panel(f"{model}\n{spaces}{layer}", data, draw))
        return _flow(found, 2 if numbers["layer"].max() >= deep else 4)

    return rows


def _by_model(draw: Draw, columns: int) -> Callable[[pd.DataFrame], Rows]:
    """One panel for each model."""
    return lambda numbers: _flow(
        [Panel(str(model), data, draw) for model, data in numbers.groupby("model", sort=False)], columns
    )


def _quantities_beside(draws: Mapping[str, Draw]) -> Callable[[pd.DataFrame], Rows]:
    """One row for each model, one panel for each quantity."""

    def rows(numbers: pd.DataFrame) -> Rows:
        found = []
        for model, of_model in numbers.groupby("model", sort=False):
            by_quantity = dict(list(of_model.groupby("quantity", sort=False)))
            line = []
            for quantity, draw in draws.items():
                if quantity in by_quantity:
                    data = by_quantity[quantity]
                    counts = quantity == "linear"  # of pairs, of one kind of reader
                    title = f"{model}, {arrow(data['spaces'].iloc[0])}" if counts else str(model)
                    line.append(Panel(title, data, draw, "pairs" if counts else ""))
            found.append(line)
        return found

    return rows


def _rows_below(draws: Mapping[Draw, str]) -> Callable[[pd.DataFrame], Rows]:
    """For each model one row for each way to draw, with the label of its colour bar, and one panel for each space."""

    def rows(numbers: pd.DataFrame) -> Rows:
        found = []
        for model, of_model in numbers.groupby("model", sort=False):
            for place, (draw, bar) in enumerate(draws.items()):
                start = "" if place else f"{model}\n"
                spaces = of_model.groupby("spaces", sort=False)
                found.append([Panel(f"{start}{arrow(str(name))}", data, draw, bar) for name, data in spaces])
        return found

    return rows


def _layer_pairs(numbers: pd.DataFrame) -> Rows:
    """For each model a row of ratios and one of directions; a model of few layers has small squares."""
    rows = _rows_below({panels.figure9_ratio: "", panels.figure9_direction: ""})(numbers)
    return [
        [replace(panel, inches=FEW_LAYERS_INCHES if panel.data["reader_layer"].max() < 4 else None) for panel in row]
        for row in rows
    ]


def _layered(numbers: pd.DataFrame) -> Rows:
    """One graph below the other, each as high as its layers need."""
    return [
        [Panel(str(model), data, layered.figure6, inches=layered.panel_inches(data))]
        for model, data in numbers.groupby("model", sort=False)
    ]


def _graphs_by_method(numbers: pd.DataFrame) -> Rows:
    """One row for each model, one graph for each score, with PK's counts of heads in the title."""
    found = []
    for model, of_model in numbers.groupby("model", sort=False):
        found.append([
            Panel(
                f"{model}, {affinity.METHOD_TITLES[str(method)]}\n{data['n_in_class'].iloc[0]} heads of a class, "
                f"{data['n_out_of_class'].iloc[0]} others",
                data, affinity.figure1,
            )
            for method, data in of_model.groupby("method", sort=False)
        ])  # fmt: skip
    return found


def _patterns(numbers: pd.DataFrame) -> Rows:
    """One row for each model, one panel for each attention pattern."""
    return [
        [
            Panel(f"{model}\n{affinity.PATTERN_TITLES[str(name)]}", data, affinity.figure7, "attention")
            for name, data in of_model.groupby("quantity", sort=False)
        ]
        for model, of_model in numbers.groupby("model", sort=False)
    ]


def _informativeness(numbers: pd.DataFrame) -> Rows:
    """One row for each model: the map of divergences, then the histograms."""
    found = []
    for model, of_model in numbers.groupby("model", sort=False):
        is_map = of_model["item"] == "kl"
        row = [Panel(f"{model}\nKL(random || observed), nats", of_model[is_map], affinity.figure8_map)]
        for (source, target), data in of_model[~is_map].groupby(["source", "target"], sort=False):
            row.append(Panel(f"{model}\n{arrow(f'{source}{target}')}", data, affinity.figure8_histogram))
        found.append(row)
    return found


ARRANGEMENTS: Mapping[str, Arrangement] = {
    "figure1": Arrangement(lambda numbers: [[Panel("", numbers, schematic.figure1)]], height=1.7),
    "figure2": Arrangement(_by_space(panels.figure2)),
    "figure3": Arrangement(_by_model(panels.figure3, columns=2), height=1.2),
    "figure4": Arrangement(_rows_below({panels.figure4_pairs: "pairs", panels.figure4_ratio: ""})),
    "figure5": Arrangement(_quantities_beside({"spearman": panels.figure5_spearman, "linear": panels.figure5_linear})),
    "figure6": Arrangement(_quantities_beside({"mean": panels.figure6, "spread": panels.figure6})),
    "figure7": Arrangement(_by_space(panels.figure7, deep=17)),
    "figure8": Arrangement(_by_space(panels.figure8)),
    "figure9": Arrangement(_layer_pairs, height=1.2),
    "pk_figure1": Arrangement(_graphs_by_method, height=2.2),
    "pk_figure4": Arrangement(_rows_below({affinity.figure4: ""}), subject="two layers"),
    "pk_figure5": Arrangement(_rows_below({affinity.figure5: "pairs"}), height=1.2),
    "pk_figure6": Arrangement(_layered),
    "pk_figure7": Arrangement(_patterns),
    "pk_figure8": Arrangement(_informativeness),
}  # fmt: skip
