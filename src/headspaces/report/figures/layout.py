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


@dataclass(frozen=True)
class Maker:
    """A figure: called with the models' results it returns the numbers that it draws.

    ``rows`` makes rows of panels from the numbers, where there are any; ``height`` is that of a row in the style's
    unit; ``subject`` says what a model must have to be shown, beyond the stages that the figure needs.
    """

    numbers: Callable[[Sequence[ModelResults]], pd.DataFrame]
    rows: Callable[[pd.DataFrame], Rows]
    height: float = 1.0
    subject: str = ""

    def __call__(self, models: Sequence[ModelResults]) -> pd.DataFrame:
        """Return the numbers that the figure draws of these models."""
        return self.numbers(models)


def drawn(
    rows: Callable[[pd.DataFrame], Rows], *, height: float = 1.0, subject: str = ""
) -> Callable[[Callable[[Sequence[ModelResults]], pd.DataFrame]], Maker]:
    """Make a figure of the function of its numbers; parameters as of :class:`Maker`."""
    return lambda numbers: Maker(numbers, rows, height, subject)


def _flow(found: Sequence[Panel], columns: int) -> Rows:
    """Break a line of panels into rows."""
    return [list(found[start : start + columns]) for start in range(0, len(found), columns)]


def by_space(draw: Draw, deep: int = 1000) -> Callable[[pd.DataFrame], Rows]:
    """One panel for each kind of space of each model, four in a row, or two where a model has ``deep`` layers."""

    def rows(numbers: pd.DataFrame) -> Rows:
        found = []
        for (model, spaces), data in numbers.groupby(["model", "spaces"], sort=False):
            layer = (
                f", layer {data['layer'].iloc[0]}"
                if data["layer"].nunique() == 1 and draw is panels.survival_curves
                else ""
            )
            found.append(Panel(f"{model}\n{spaces}{layer}", data, draw))
        return _flow(found, 2 if numbers["layer"].max() >= deep else 4)

    return rows


def by_model(draw: Draw, columns: int) -> Callable[[pd.DataFrame], Rows]:
    """One panel for each model."""
    return lambda numbers: _flow(
        [Panel(str(model), data, draw) for model, data in numbers.groupby("model", sort=False)], columns
    )


def quantities_beside(draws: Mapping[str, Draw]) -> Callable[[pd.DataFrame], Rows]:
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


def rows_below(draws: Mapping[Draw, str]) -> Callable[[pd.DataFrame], Rows]:
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
        [Panel(str(model), data, layered.layered_graph, inches=layered.panel_inches(data))]
        for model, data in numbers.groupby("model", sort=False)
    ]


def graphs_by_method(numbers: pd.DataFrame) -> Rows:
    """One row for each model, one graph for each score, with PK's counts of heads in the title."""
    found = []
    for model, of_model in numbers.groupby("model", sort=False):
        found.append([
            Panel(
                f"{model}, {pk_panels.METHOD_TITLES[str(method)]}\n{data['n_in_class'].iloc[0]} heads of a class, "
                f"{data['n_out_of_class'].iloc[0]} others",
                data, pk_panels.ring_graph,
            )
            for method, data in of_model.groupby("method", sort=False)
        ])  # fmt: skip
    return found


def patterns(numbers: pd.DataFrame) -> Rows:
    """One row for each model, one panel for each attention pattern."""
    return [
        [
            Panel(f"{model}\n{pk_panels.PATTERN_TITLES[str(name)]}", data, pk_panels.attention_map, "attention")
            for name, data in of_model.groupby("quantity", sort=False)
        ]
        for model, of_model in numbers.groupby("model", sort=False)
    ]


def informativeness(numbers: pd.DataFrame) -> Rows:
    """One row for each model: the map of divergences, then the histograms."""
    found = []
    for model, of_model in numbers.groupby("model", sort=False):
        is_map = of_model["item"] == "kl"
        row = [Panel(f"{model}\nKL(random || observed), nats", of_model[is_map], pk_panels.divergence_map)]
        for (source, target), data in of_model[~is_map].groupby(["source", "target"], sort=False):
            row.append(Panel(f"{model}\n{arrow(f'{source}{target}')}", data, pk_panels.pk_histogram))
        found.append(row)
    return found


def single(draw: Draw) -> Callable[[pd.DataFrame], Rows]:
    """One panel for all."""
    return lambda numbers: [[Panel("", numbers, draw)]]
