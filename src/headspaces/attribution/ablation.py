"""Exact effects of chosen edges, by path ablation: a read computed again without one write, everything else as it is.

The reader's norm and map get ``x - u`` in place of ``x`` and give this head's query, key or value anew; what other
heads read, and what everything else adds to the stream, is computed from there by the model itself. Layers below the
reader's give what they gave before, without being run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from headspaces.activations.hooks import WatchedLayer
from headspaces.attribution.cases import Case
from headspaces.attribution.reads import LayerReads
from headspaces.attribution.running import RunningModel
from headspaces.geometry.heads import fold


class Edge(NamedTuple):
    """A writer head, and a reader: the kind and head of a later layer's read; K and V by key-value head."""

    kind: str
    writer_layer: int
    writer_head: int
    reader_layer: int
    reader_head: int

    @property
    def writer(self) -> tuple[int, int]:
        """Layer and head of the writer."""
        return self.writer_layer, self.writer_head

    @property
    def indices(self) -> tuple[int, int, int, int]:
        """Where the edge stands in arrays of all pairs."""
        return self.writer_layer, self.reader_layer, self.writer_head, self.reader_head


@dataclass(frozen=True)
class Removal:
    """What is taken from a read: a ``share`` of the write, or of what it departs from its mean over the sequence."""

    share: float = 1.0
    around_mean: bool = False

    def of(self, write: Float[Tensor, "token d_model"]) -> Float[Tensor, "token d_model"]:
        """Give what is taken of a write."""
        return self.share * (write - write.mean(dim=0) if self.around_mean else write)


ZERO, MEAN = Removal(), Removal(around_mean=True)


def ablate(
    model: RunningModel, cases: Sequence[Case], edges: Sequence[Edge], removals: Sequence[Removal] = (ZERO,)
) -> Float[np.ndarray, "removal edge case"]:
    """Change of every case's measure when a write is removed from one read only: a loss rises where it mattered.

    Edges of one reader layer share what is below it. Raises :class:`InputError` as
    :func:`headspaces.attribution.first_order.first_order` does.
    """
    order = sorted(range(len(edges)), key=lambda number: edges[number].reader_layer)
    changes = np.zeros((len(removals), len(edges), len(cases)))
    reads = {layer: model.reads(layer) for layer in sorted({edge.reader_layer for edge in edges})}
    with torch.inference_mode(), tqdm(total=len(cases) * len(edges), desc="edges", unit="edge", mininterval=5) as bar:
        for number, case in enumerate(cases):
            whole = _Recorded(model, case, {edge.writer for edge in edges})
            for layer, group in groupby(order, key=lambda at: edges[at].reader_layer):
                with whole.from_layer(layer):
                    for at in group:
                        for row, removal in enumerate(removals):
                            taken = removal.of(whole.writes[edges[at].writer])
                            with without(reads[layer], edges[at], taken):
                                value = case.measure(model.run(case.tokens)).item()
                            changes[row, at, number] = value - whole.value
                        bar.update()
    return changes


class _Recorded:
    """A whole run of a case: its measure, what its layers gave, and the writes of some heads."""

    def __init__(self, model: RunningModel, case: Case, writers: set[tuple[int, int]]) -> None:
        self.layers = [model.module.get_submodule(model.layer_name(layer)) for layer in range(len(model.heads))]
        self.given: list[Any] = [None] * len(self.layers)
        watched = model.watched()
        with ExitStack() as hooks:
            hooks.enter_context(model.watching(watched))
            for number, layer in enumerate(self.layers):

                def keep(_module: Any, _inputs: Any, output: Any, number: int = number) -> None:
                    self.given[number] = output

                hooks.callback(layer.register_forward_hook(keep).remove)
            self.value = case.measure(model.run(case.tokens)).item()
        self.writes = writes_of(model, watched, writers)

    @contextmanager
    def from_layer(self, first: int) -> Iterator[None]:
        """Let the layers below one give what they gave, without being run."""
        with ExitStack() as stack:
            for layer, given in zip(self.layers[:first], self.given, strict=False):
                stack.enter_context(instead(layer, lambda *_args, given=given, **_kwargs: given))
            yield


@contextmanager
def instead(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module give something else than what it computes."""
    module.forward = forward
    try:
        yield
    finally:
        del module.forward


def writes_of(
    model: RunningModel, watched: Sequence[WatchedLayer], writers: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], Float[Tensor, "token d_model"]]:
    """Take what some heads, by layer and head, have written in the run that was watched."""
    activations = model.taken(watched)
    writes = {}
    for layer, head in writers:
        z = activations[layer].head_outputs[:, head]
        writes[layer, head] = torch.from_numpy(z @ fold(model.heads[layer], "O")[head].T.astype(z.dtype))
    return writes


@contextmanager
def without(reads: LayerReads, edge: Edge, taken: Float[Tensor, "*sequence token d_model"]) -> Iterator[None]:
    """Take something from what one read sees of the residual stream."""
    name, rows = reads.places[edge.kind]
    module, own = reads.modules[name], torch.from_numpy(rows[edge.reader_head])
    changed: list[Tensor] = []

    def read_norm(norm: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        changed.append(norm.forward(inputs[0] - taken) - output)

    def read(_module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        # What is added to the normalised stream, as the toy model's positions are, stays.
        again = module.forward(inputs[0] + changed[-1] if changed else inputs[0] - taken)
        return output.index_copy(-1, own, again[..., own])

    with ExitStack() as hooks:
        if reads.norm is not None:
            hooks.callback(reads.norm.register_forward_hook(read_norm).remove)
        hooks.callback(module.register_forward_hook(read).remove)
        yield
