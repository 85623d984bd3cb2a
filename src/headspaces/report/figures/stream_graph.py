"""Figure of the whole stream as a graph: writers and readers from the embedding to the unembedding, strongest edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from headspaces.report.figures import layout
from headspaces.report.figures.marks import ARROW, EDGE_POINTS, strengths
from headspaces.report.figures.panels import LINES, colour
from headspaces.report.results import ModelResults
from headspaces.report.stream_results import effects_on_first_loss, stream_pairs
from headspaces.report.tidy_frames import tidy
from headspaces.spaces import KINDS, READS
from headspaces.stream.scores import ENDS

STRONGEST = 3
"""Edges of each kind of writer and of reader that are drawn: the largest scores, above 1."""

STYLES: dict[str, dict[str, Any]] = {
    **{kind: {"color": kind, "ls": LINES[kind]} for kind in READS},
    "MLP": {"color": "O", "ls": (0, (8, 2))},
    "unembedding": {"color": "observed", "ls": "-"},
}
"""Colour and line of an edge by what reads: told apart without colour too."""

BOTTOM = 0.0
"""Height of the MLPs; heads are above, from :data:`LOWEST_HEAD` to 1."""
LOWEST_HEAD = 0.2

HEIGHTS = {"embedding": 0.75, "positions": 0.4, "unembedding": 0.6}
"""Heights of what is outside the layers."""


def strongest_edges(model: ModelResults) -> Iterator[dict[str, Any]]:
    """Of each kind of writer and of reader the strongest edges; tokens, positions and logits less their mean."""
    scores = {
        (names["writer"], names["reader"]): pairs.score
        for pairs in stream_pairs([model])
        if bool(set(pairs.letters) & set(ENDS)) == bool(pairs.made) and (names := pairs.names)
    }
    scores |= {
        ("O", kind): model.overlaps[name] for kind in READS if (name := f"cross/O{kind}/weighted") in model.overlaps
    }
    effects = effects_on_first_loss(model)
    for (writer, reader), values in scores.items():
        order = np.argsort(-np.nan_to_num(values, nan=-1.0), axis=None, kind="stable")[:STRONGEST]
        for layer, later, head, other in np.stack(np.unravel_index(order, values.shape), axis=1).tolist():
            score = values[layer, later, head, other]
            if score > 1:
                found = {"model": model.name, "score": score, "n_layers": model.shape.n_layers}
                if (own := effects.get((writer, reader.split()[0]))) is not None:
                    found["effect"] = own[layer, later, head, other]
                yield found | _end(model, "writer", writer, layer, head) | _end(model, "reader", reader, later, other)


def _end(model: ModelResults, side: str, name: str, layer: int, head: int) -> dict[str, Any]:
    """Name one end of an edge, with its layer and head where it has these, and its height in the drawing."""
    found = {side: name, f"{side}_y": HEIGHTS.get(name, BOTTOM)}
    if name in KINDS:
        height = LOWEST_HEAD + (1 - LOWEST_HEAD) * (head + 0.5) / model.shape.n_heads(name)
        found |= {f"{side}_head": head, f"{side}_y": height}
    return found | ({f"{side}_layer": layer} if name not in HEIGHTS else {})


def graph_of_stream(data: pd.DataFrame, axes: Axes) -> None:
    """Columns: embedding and positions, each layer's heads and half a column later its MLP, unembedding."""
    n_layers = int(data["n_layers"].iloc[0])
    end = n_layers + 0.5
    edges = data.assign(
        start=data["writer_layer"].astype(float).fillna(-1) + 0.5 * (data["writer"] == "MLP"),
        stop=data["reader_layer"].astype(float).fillna(end) + 0.5 * data["reader"].str.startswith("MLP"),
        strength=strengths(np.log(data["score"])),
    )
    low, high = EDGE_POINTS
    for row in edges.to_dict("records"):
        style = STYLES["MLP" if row["reader"].startswith("MLP") else row["reader"]]
        ends = (row["start"], row["writer_y"]), (row["stop"], row["reader_y"])
        axes.add_patch(
            FancyArrowPatch(
                *ends, connectionstyle="arc3,rad=-0.12", shrinkA=1.5, shrinkB=1.5, color=colour(style["color"]),
                ls=style["ls"], lw=low + (high - low) * row["strength"], **ARROW,
            )
        )  # fmt: skip
    _nodes(edges, axes)
    for reader, style in STYLES.items():
        axes.plot([], [], color=colour(style["color"]), ls=style["ls"], label=f"to {reader}")
    axes.set(xlim=(-1 - 0.12 * (end + 1), end + 0.14 * (end + 1)), ylim=(-0.15, 1.1), yticks=[], xlabel="layer")
    axes.set_xticks(range(0, n_layers, max(1, n_layers // 10)))
    axes.spines["left"].set_visible(False)


def _nodes(edges: pd.DataFrame, axes: Axes) -> None:
    """Mark the ends of the edges: heads, MLPs, and by their names what is outside the layers."""
    writes = edges[["writer", "start", "writer_y"]].to_numpy().tolist()
    ends = {(name, x, y) for name, x, y in [*writes, *edges[["reader", "stop", "reader_y"]].to_numpy().tolist()]}
    for label, mark in {"head": "o", "MLP": "s", "": "D"}.items():
        own = [end for end in ends if ("head" if end[0] in KINDS else "MLP" if end[0][:3] == "MLP" else "") == label]
        places = np.array([end[1:] for end in own]).reshape(-1, 2)
        axes.plot(*places.T, mark, color=colour("observed"), ms=2.5, ls="none", zorder=3, label=label or None)
        for name, x, y in () if label else own:
            side = "left" if name == "unembedding" else "right"
            shift = (4, -2) if side == "left" else (-4, -2)
            axes.annotate(name, (x, y), shift, textcoords="offset points", ha=side, size=7, annotation_clip=False)


@layout.drawn(
    lambda numbers: [
        [layout.Panel(str(model), data, graph_of_stream, inches=3.4)]
        for model, data in numbers.groupby("model", sort=False)
    ],
    subject="embeddings or MLPs in the stage stream",
)
def stream_graph(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Strongest edges of each kind of writer and of reader, and at which height of the drawing their ends are."""
    columns = """model writer reader writer_layer writer_head reader_layer reader_head score effect writer_y reader_y
                 n_layers"""
    return tidy(columns, (row for model in models if model.stream for row in strongest_edges(model)))
