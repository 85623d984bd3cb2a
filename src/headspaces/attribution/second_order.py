"""Effects of chosen edges to second order: what removing a write does to the reader head, exactly, then to the loss.

The first order follows the gradient through the norm, the scores and the softmax, which bend on the way, and leaves out
that a trained model's loss curves upwards. Here the reader's attention runs again without the write at one read; what
its heads give changes by ``Delta``, exactly, and the mean loss of ``T`` predicted tokens by

    -A_2 = <Delta, g> + T / 2 mean over s of <Delta, g_s>^2.

``g`` is the gradient at what the heads give; ``g_s`` the same of the loss on tokens that are drawn from the model's own
predictions. The second term estimates the Gauss-Newton curvature, which for a cross-entropy is the Fisher information
of the predictions. An edge costs one run of one layer's attention instead of the rest of the model; the curvature of
all edges two backward passes more. A measure that is no loss of predictions has no such term.
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
from headspaces.attribution.cases import Case, batches
from headspaces.attribution.running import RunningModel

N_SAMPLES = 2
"""Times that all tokens of a sequence are drawn: over eight windows the curvature is known to about a third."""


def second_order(
    model: RunningModel, cases: Sequence[Case], edges: Sequence[Edge], n_samples: int = N_SAMPLES
) -> Float[np.ndarray, "edge case"]:
    """Effects A_2 of edges on every case's measure, of the same sign and unit as the first order.

    The tokens that are drawn are the same at every call. Raises :class:`InputError` as
    :func:`headspaces.attribution.first_order.first_order` does.
    """
    order = sorted(range(len(edges)), key=lambda number: edges[number].reader_layer)
    layers = {layer: _Attention(model, layer) for layer in sorted({edge.reader_layer for edge in edges})}
    found = np.zeros((len(edges), len(cases)))
    if not edges:
        return found
    with tqdm(total=len(cases) * len(edges), desc="heads", unit="edge", mininterval=5) as bar:
        done = 0
        for batch in batches(cases):
            watched = model.watched()
            with ExitStack() as hooks:
                hooks.enter_context(model.watching(watched))
                for attention in layers.values():
                    attention.listen(hooks)
                logits = model.run_all(np.stack([case.tokens for case in batch]))
            _take_gradients(list(layers.values()), batch, logits, n_samples, seed=done)
            writes = writes_of(model, watched, {edge.writer for edge in edges})
            for layer, group in groupby(order, key=lambda at: edges[at].reader_layer):
                for at in group:
                    first, *drawn = layers[layer].products(edges[at], writes[edges[at].writer])
                    curvature = batch[0].n_predicted / 2 * np.square(drawn).mean(axis=0) if drawn else 0.0
                    found[at, done : done + len(batch)] = -first - curvature
                    bar.update(len(batch))
            done += len(batch)
    return found


def _take_gradients(
    layers: Sequence[_Attention], batch: Sequence[Case], logits: Tensor, n_samples: int, seed: int
) -> None:
    """Give every layer the gradients, at what its heads give, of the measure and of the loss on drawn tokens."""
    draw = torch.Generator().manual_seed(seed)
    each = list(zip(batch, logits, strict=True))
    # Sequences do not see each other, so that the gradients of a sum are each one's own.
    measures = [torch.stack([case.measure(one) for case, one in each]).sum()]
    measures += [
        torch.stack([case.sampled(one, draw) for case, one in each]).sum()
        for _ in range(n_samples if batch[0].n_predicted else 0)
    ]
    leaves = [layer.leaf for layer in layers]
    for layer in layers:
        layer.gradients = []
    for left, measure in zip(reversed(range(len(measures))), measures, strict=True):
        for layer, gradient in zip(layers, torch.autograd.grad(measure, leaves, retain_graph=left > 0), strict=True):
            layer.gradients.append(gradient)


class _Attention:
    """The attention of one layer: what it was called with, what its heads gave, and the gradients there."""

    leaf: Tensor
    gradients: list[Tensor]

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
    def products(self, edge: Edge, write: Float[Tensor, "token d_model"]) -> list[Float[np.ndarray, " case"]]:
        """Multiply what the heads' output changes by, without a write at one read, with every gradient."""
        seen: list[Tensor] = []

        def output(z: Tensor) -> Tensor:
            seen.append(z)
            return self.written  # what comes of it is not asked for

        with ExitStack() as hooks:
            hooks.enter_context(without(self.reads, edge, write.reshape(*self.z.shape[:-1], -1)))
            hooks.enter_context(instead(self.output, output))
            if self.reads.norm is not None:
                self.reads.norm(self.stream)
            args, kwargs = self.call
            self.module(*args, **kwargs)
        change = (seen[0] - self.z).double()
        return [(change * gradient).flatten(1).sum(dim=1).numpy() for gradient in self.gradients]
