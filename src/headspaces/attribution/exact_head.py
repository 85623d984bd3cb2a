"""Effects of chosen edges with the reader head computed exactly: what removing a write does to the head's own output.

The first order follows the gradient through the norm, the scores and the softmax, which bend on the way. Here the
reader's attention runs again without the write at one read, and only what its output changes by meets a gradient:

    A_head = - sum over tokens of <z'(t) - z(t), dL/dz(t)>,

where ``z`` is what the layer's heads give before the output's map, and ``z'`` the same without the write at this read.
So the norm, the pattern and its saturation are exact, and what comes after the head is first order. An edge costs one
run of one layer's attention instead of the rest of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from headspaces.attribution.ablation import Edge, instead, without, writes_of
from headspaces.attribution.cases import Case
from headspaces.attribution.running import RunningModel


def exact_heads(model: RunningModel, cases: Sequence[Case], edges: Sequence[Edge]) -> Float[np.ndarray, "edge case"]:
    """Effects A_head of edges on every case's measure, of the same sign and unit as the first order.

    Raises :class:`InputError` as :func:`headspaces.attribution.first_order.first_order` does.
    """
    order = sorted(range(len(edges)), key=lambda number: edges[number].reader_layer)
    layers = {layer: _Attention(model, layer) for layer in sorted({edge.reader_layer for edge in edges})}
    found = np.zeros((len(edges), len(cases)))
    with tqdm(total=len(cases) * len(edges), desc="heads", unit="edge", mininterval=5) as bar:
        for number, case in enumerate(cases):
            watched = model.watched()
            with ExitStack() as hooks:
                hooks.enter_context(model.watching(watched))
                for attention in layers.values():
                    attention.listen(hooks)
                case.measure(model.run(case.tokens)).backward()  # type: ignore[no-untyped-call]
            writes = writes_of(model, watched, {edge.writer for edge in edges})
            for layer, group in groupby(order, key=lambda at: edges[at].reader_layer):
                for at in group:
                    found[at, number] = layers[layer].effect(edges[at], writes[edges[at].writer])
                    bar.update()
    return found


class _Attention:
    """The attention of one layer: what it was called with, what its heads gave, and the measure's gradient there."""

    def __init__(self, model: RunningModel, layer: int) -> None:
        name, _, output = model.output_name(layer).rpartition(".")
        self.module = model.module.get_submodule(name)
        self.output = self.module.get_submodule(output)
        self.reads = model.reads(layer)

    def listen(self, hooks: ExitStack) -> None:
        """Keep them from the model's next run."""

        def keep_call(_module: Any, args: Any, kwargs: Any) -> None:
            self.call = args, kwargs

        def keep_heads(_module: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
            self.z = inputs[0].detach()
            self.leaf = torch.zeros_like(self.z, requires_grad=True)
            return (inputs[0] + self.leaf,)

        def keep_output(_module: Any, _inputs: Any, output: Tensor) -> None:
            self.written = output.detach()

        def keep_stream(_norm: Any, inputs: tuple[Tensor]) -> None:
            self.stream = inputs[0].detach()

        hooks.callback(self.module.register_forward_pre_hook(keep_call, with_kwargs=True).remove)
        hooks.callback(self.output.register_forward_pre_hook(keep_heads).remove)
        hooks.callback(self.output.register_forward_hook(keep_output).remove)
        if self.reads.norm is not None:
            hooks.callback(self.reads.norm.register_forward_pre_hook(keep_stream).remove)

    @torch.no_grad()
    def effect(self, edge: Edge, write: Float[Tensor, "token d_model"]) -> float:
        """Give A_head of an edge into this layer."""
        if self.leaf.grad is None:  # nothing that is measured depends on the layer
            return 0.0
        seen: list[Tensor] = []

        def output(z: Tensor) -> Tensor:
            seen.append(z)
            return self.written  # what comes of it is not asked for

        with ExitStack() as hooks:
            hooks.enter_context(without(self.reads, edge, write))
            hooks.enter_context(instead(self.output, output))
            if self.reads.norm is not None:
                self.reads.norm(self.stream)
            args, kwargs = self.call
            self.module(*args, **kwargs)
        return -float(((seen[0] - self.z).double() * self.leaf.grad).sum())
