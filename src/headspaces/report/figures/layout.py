"""The arrangement of a figure's numbers: rows of panels, for one model or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes

from headspaces.report.figures import layered, panels, pk_panels
from headspaces.report.figures.panels import arrow
from headspaces.report.results import ModelResults

Draw = Callable[[pd.DataFrame, Axes], None]

FEW_LAYERS_INCHES = 1.4
"""Height of figure 9's panels for a model that has a handful of layer pairs."""


@dataclass(frozen=True)
class Panel:
    """One axes of a figure.

    ``bar`` is the label of the colour bar, where colour is a scale; ``inches`` the height, where it is not that of the
    figure's rows.
    """

    title: str
    data: pd.DataFrame
    draw: Draw
    bar: str = ""
    inches: float | None = None


Rows = list[list[Panel]]
Arrange = Callable[[pd.DataFrame], Rows]


@dataclass(frozen=True)
class Maker:
    """A figure: called with the models' results it returns the numbers that it draws.

    ``rows`` makes rows of panels from the numbers, where there are any; ``height`` is that of a row in the style's
    unit; ``subject`` says what a model must have to be shown, beyond the stages that the figure needs.
    """

    numbers: Callable[[Sequence[ModelResults]], pd.DataFrame]
    rows: Arrange
    height: float = 1.0
    subject: str = ""

    def __call__(self, models: Sequence[ModelResults]) -> pd.DataFrame:
        """Return the numbers that the figure draws of these models."""
        return self.numbers(models)


def drawn(
    rows: Arrange, *, height: float = 1.0, subject: str = ""
) -> Callable[[Callable[[Sequence[ModelResults]], pd.DataFrame]], Maker]:
    """Make a figure of the function of its numbers; parameters as of :class:`Maker`."""
    return lambda numbers: Maker(numbers, rows, height, subject)


def single(draw: Draw) -> Arrange:
    """One panel for all."""
    return lambda numbers: [[Panel("", numbers, draw)]]


def _parts(numbers: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    """Rows of each value of a column, in the order in which the values come."""
    return {str(name): data for name, data in numbers.groupby(column, sort=False)}


def _flow(found: Sequence[Panel], columns: int) -> Rows:
    """Break a line of panels into rows."""
    return [list(found[start : start + columns]) for start in range(0, len(found), columns)]


def by_model(draw: Draw, columns: int) -> Arrange:
    """One panel for each model."""
    return lambda numbers: _flow(
        [Panel(model, data, draw) for model, data in _parts(numbers, "model").items()], columns
    )


def by_space(draw: Draw, deep: int = 1000) -> Arrange:
    """One panel for each kind of space of each model, four in a row, or two where a model has ``deep`` layers.

    Every model begins a row: panels of very different ones do not share one.
    """

    def rows(numbers: pd.DataFrame) -> Rows:
        found: dict[str, list[Panel]] = {}
        for (model, spaces), data in numbers.groupby(["model", "spaces"], sort=False):
            one_layer = draw is panels.survival_curves and data["layer"].nunique() == 1
            layer = f", layer {data['layer'].iloc[0]}" if one_layer else ""
            n_pairs = int(data["n_pairs"].iloc[0])
            few = f", {n_pairs} pair{'s' if n_pairs > 1 else ''} a layer" if n_pairs <= panels.FEW_PAIRS else ""
            found.setdefault(str(model), []).append(Panel(f"{model}\n{spaces}{layer}{few}", data, draw))
        columns = 2 if numbers["layer"].max() >= deep else 4
        return [row for own in found.values() for row in _flow(own, columns)]

    return rows


def beside(column: str, panel: Callable[[str, str, pd.DataFrame], Panel]) -> Arrange:
    """One row for each model, one panel for each value of a column, made of the model, the value and its rows."""
    return lambda numbers: [
        [panel(model, value, data) for value, data in _parts(of_model, column).items()]
        for model, of_model in _parts(numbers, "model").items()
    ]


def quantities_beside(draws: Mapping[str, Draw]) -> Arrange:
    """One row for each model, one panel for each quantity."""

    def panel(model: str, quantity: str, data: pd.DataFrame) -> Panel:
        counts = quantity == "linear"  # of pairs, of one kind of reader
        title = f"{model}, {arrow(data['spaces'].iloc[0])}" if counts else model
        return Panel(title, data, draws[quantity], "pairs" if counts else "")

    return beside("quantity", panel)


graphs_by_method = beside(
    "method",
    lambda model, method, data: Panel(
        f"{model}, {pk_panels.METHOD_TITLES[method]}\n{data['n_in_class'].iloc[0]} heads of a class, "
        f"{data['n_out_of_class'].iloc[0]} others",
        data,
        pk_panels.ring_graph,
    ),
)
"""Graphs of the scores, with PK's counts of heads in the title."""

patterns = beside(
    "quantity",
    lambda model, name, data: Panel(
        f"{model}\n{pk_panels.PATTERN_TITLES[name]}", data, pk_panels.attention_map, "attention"
    ),
)
"""Maps of the attention patterns."""


def rows_below(draws: Mapping[Draw, str]) -> Arrange:
    """For each model one row for each way to draw, with the label of its colour bar, and one panel for each space."""
    return lambda numbers: [
        [
            Panel(("" if place else f"{model}\n") + arrow(spaces), data, draw, bar)
            for spaces, data in _parts(of_model, "spaces").items()
        ]
        for model, of_model in _parts(numbers, "model").items()
        for place, (draw, bar) in enumerate(draws.items())
    ]


def layer_pairs(numbers: pd.DataFrame) -> Rows:
    """For each model a row of ratios and one of directions; a model of few layers has small squares."""
    rows = rows_below({panels.ratio_map: "", panels.direction_map: ""})(numbers)
    return [
        [replace(panel, inches=FEW_LAYERS_INCHES if panel.data["reader_layer"].max() < 4 else None) for panel in row]
        for row in rows
    ]


def layered_graphs(numbers: pd.DataFrame) -> Rows:
    """One graph below the other, each as high as its layers need."""
    return [
        [replace(panel, inches=layered.panel_inches(panel.data)) for panel in row]
        for row in by_model(layered.layered_graph, columns=1)(numbers)
    ]


def informativeness(numbers: pd.DataFrame) -> Rows:
    """One row for each model: the map of divergences, then the histograms."""

    def panel(model: str, pair: str, data: pd.DataFrame) -> Panel:
        if data["item"].iloc[0] == "kl":
            return Panel(f"{model}\nKL(random || observed), nats", data, pk_panels.divergence_map)
        return Panel(f"{model}\n{arrow(pair)}", data, pk_panels.pk_histogram)

    pairs = (numbers["source"] + numbers["target"]).where(numbers["item"] != "kl", "")
    return beside("pair", panel)(numbers.assign(pair=pairs))
