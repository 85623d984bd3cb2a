"""Figure of the whole stream: which share of embeddings, MLPs and unembedding lies in heads' spaces, by depth."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from headspaces.report.figures import layout
from headspaces.report.figures.panels import LINES, MARKERS, colour, log_axis, reference, whole_ticks
from headspaces.report.results import ModelResults
from headspaces.report.stream_results import shares_by_layer
from headspaces.report.tidy_frames import tidy

TITLES = {
    "E": "tokens in read spaces", "X": "positions in read spaces", "U": "unembedding in write spaces",
    "M": "MLPs in head spaces",
}  # fmt: skip


def shares(data: pd.DataFrame, axes: Axes) -> None:
    """Energy in heads' spaces over the isotropic value by layer; pale, two deviations of randomly rotated operators."""
    for spaces, rows in data.groupby("spaces", sort=False):
        kind, layers = str(spaces), rows["layer"].to_numpy(dtype=float)
        axes.fill_between(layers, rows["low"], rows["high"], color=colour(kind), alpha=0.2, lw=0)
        axes.plot(
            layers, rows["share_ratio"], color=colour(kind), ls=LINES[kind], marker=MARKERS[kind], ms=2,
            label=f"{kind} ({'write' if kind == 'O' else 'read'})", markevery=max(1, len(rows) // 30),
        )  # fmt: skip
    axes.axhline(1.0, **reference("isotropic d/D"))
    log_axis(axes, "y")
    # At least two ticks, however little there is to see.
    axes.set_ylim(min(0.45, 0.9 * data["share_ratio"].min()), max(2.2, 1.1 * data["share_ratio"].max()))
    whole_ticks(axes, "x", int(data["layer"].max()))
    axes.set(xlabel="layer", ylabel="energy / isotropic")


@layout.drawn(
    layout.beside("quantity", lambda model, name, data: layout.Panel(f"{model}\n{TITLES[name]}", data, shares)),
    subject="embeddings or MLPs in the stage stream",
)
def stream(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Share of the energy over d / D by layer, with the interval of two deviations around 1."""
    rows = [
        (model.name, found.quantity, found.kind, layer, ratio, 1 - 2 * sd, 1 + 2 * sd)
        for model in models
        for found in shares_by_layer(model)
        for layer, (ratio, sd) in enumerate(zip(found.ratio, found.sd, strict=True))
        if ratio == ratio  # not where nothing is met: an MLP before the first layer
    ]
    return tidy("model quantity spaces layer share_ratio low high", rows)
