"""Running models for attribution: one of transformers, or the toy model, with its heads and their hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headspaces.activations.forward_pass import find_modules, load_model
from headspaces.activations.hooks import WatchedLayer
from headspaces.activations.replicas import map_with_replicas
from headspaces.activations.response import LayerActivations
from headspaces.activations.toy_model import ToyModel, is_toy, load_toy
from headspaces.attribution.cases import Case
from headspaces.attribution.reads import LayerReads
from headspaces.attribution.stream_sites import StreamSites
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads
from headspaces.spaces import Shape
from headspaces.threads import worker_count
from headspaces.weights.layout import Layout
from headspaces.weights.layouts import LAYOUTS, find_layout
from headspaces.weights.stream_layouts import find_stream_row
from headspaces.weights.stream_row import OF_A_LAYER, StreamRow

TOY_STREAM = StreamRow(model_types=(), embedding="wte.weight", final_norm="ln_f.weight").without(*OF_A_LAYER)
"""The toy model has no MLP, and no positions in its stream."""

State = TypeVar("State")
Result = TypeVar("Result")


@dataclass(frozen=True)
class RunningModel:
    """A model and its heads, ready to run with gradients.

    ``logits`` runs a module on sequences; ``layout`` and ``prefix`` say where the layers' modules are; ``scale`` is
    what the model multiplies its attention's writes by; ``stream`` says where the rest of the residual stream is, None
    where the table of the stream does not serve it; ``tokenizer`` is None for the toy model; ``longest`` is the most
    tokens of a sequence, None where there is no limit.
    """

    module: torch.nn.Module
    logits: Callable[[torch.nn.Module, Int[Tensor, "sequence token"]], Tensor]
    heads: Sequence[LayerHeads]
    layout: Layout
    prefix: str
    scale: float
    stream: StreamRow | None
    tokenizer: Any
    longest: int | None
    where: str

    def __post_init__(self) -> None:
        """Take gradients with respect to reads alone: those of parameters would cost as much again."""
        self.module.requires_grad_(False)
        torch.set_num_threads(worker_count())

    @property
    def shape(self) -> Shape:
        """Numbers of layers and heads, and widths."""
        n_heads, d_model, d_head = self.heads[0].factors["O"].shape
        return Shape(len(self.heads), d_model, n_heads, len(self.heads[0].factors["K"]), d_head)

    @property
    def known_tokens(self) -> Int[np.ndarray, " known"]:
        """Tokens that random sequences are made of: all but the special ones."""
        if self.tokenizer is None:
            return np.arange(self.module.config.vocab_size)  # type: ignore[union-attr,arg-type]
        special = set(self.tokenizer.all_special_ids)
        n_known = min(len(self.tokenizer), len(self.module.get_output_embeddings().weight))  # type: ignore[operator]
        return np.array([token for token in range(n_known) if token not in special])

    def layer_name(self, layer: int) -> str:
        """Name of a layer's module."""
        return (self.prefix + self.layout.layer.format(layer=layer)).removesuffix(".")

    def output_name(self, layer: int) -> str:
        """Name of a layer's output projection, whose input is what the heads give."""
        return f"{self.layer_name(layer)}.{self.layout.o.removesuffix('.weight')}"

    def reads(self, layer: int) -> LayerReads:
        """Find the projections of a layer."""
        return LayerReads(self.module, self.layout, self.prefix, self.heads[layer], self.shape)

    def watched(self) -> list[WatchedLayer]:
        """Make the hooks that keep what heads put out and norms read; every token counts."""
        return [WatchedLayer(self.module, self.layout, self.prefix, layer, 0, self.where) for layer in self.heads]

    def sites(self) -> StreamSites:
        """Find the parts of the stream beside the heads."""
        return StreamSites(self.module, self.stream, self.layout, self.prefix, len(self.heads), self.scale)

    @property
    def parallel(self) -> bool:
        """Whether MLPs read the stream before the attention of their own layer has written."""
        return self.stream is not None and self.stream.parallel

    @contextmanager
    def watching(self, watched: Sequence[WatchedLayer]) -> Iterator[None]:
        """Let the hooks listen."""
        with ExitStack() as hooks:
            for layer in watched:
                hooks.enter_context(layer.listening())
            yield

    def taken(self, watched: Sequence[WatchedLayer]) -> list[LayerActivations]:
        """Take what the hooks have kept since they were last asked."""
        return [layer.take(self.scale) for layer in watched]

    def run(self, tokens: Int[np.ndarray, " token"]) -> Tensor:
        """Run one sequence; raises :class:`InputError` if it is longer than the model's context."""
        return self.run_all(tokens[None])[0]

    def run_all(self, tokens: Int[np.ndarray, "sequence token"]) -> Tensor:
        """Run sequences at once, which do not see each other; errors as :meth:`run`."""
        if self.longest is not None and (n_tokens := tokens.shape[1]) > self.longest:
            raise InputError(
                f"{self.where}: sequences of {n_tokens} tokens, but the model's context has {self.longest}; take "
                "shorter ones"
            )
        return self.logits(self.module, torch.from_numpy(tokens))

    def on_each(
        self, prepare: Callable[[RunningModel], State], function: Callable[[State, Case], Result], cases: Sequence[Case]
    ) -> Iterator[Result]:
        """Apply a function to cases side by side, as :func:`headspaces.activations.replicas.map_with_replicas` does."""
        return map_with_replicas(self.module, lambda module: prepare(replace(self, module=module)), function, cases)


def running(model: Any, tokenizer: Any, heads: Sequence[LayerHeads], where: str) -> RunningModel:
    """Make a causal language model of transformers ready; raises :class:`InputError` as its forward pass does."""
    layout, prefix, scale = find_modules(model, where)
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    def logits(module: torch.nn.Module, tokens: Tensor) -> Tensor:
        found: Tensor = module(tokens, use_cache=False).logits
        return found

    return RunningModel(
        model, logits, heads, layout, prefix, scale, _stream(model, layout, where), tokenizer, longest, where
    )


def _stream(model: Any, layout: Layout, where: str) -> StreamRow | None:
    """Find the architecture's row of the stream; None where there is none."""
    config = find_layout({**model.config.to_dict(), "quantization_config": None}, where)[1]
    try:
        return find_stream_row(layout.name, str(config["model_type"]), config, where)
    except InputError:
        return None


def running_toy(model: ToyModel, heads: Sequence[LayerHeads], where: str) -> RunningModel:
    """Make a toy model ready: its names are GPT-2's."""
    longest = model.config.n_positions
    return RunningModel(
        model,
        lambda module, tokens: module(tokens)[0],
        heads,
        LAYOUTS["gpt2"],
        "",
        1.0,
        TOY_STREAM,
        None,
        longest,
        where,
    )


def open_running(checkpoint: str, heads: Sequence[LayerHeads], where: str) -> RunningModel:
    """Load a model and make it ready.

    ``checkpoint`` is a folder, one of the toy model too, a ``.gguf`` file, or ``hub:owner/name[@revision]``; ``heads``
    are those of all layers in order; ``where`` the model's name, for messages. Raises :class:`InputError` if the model
    cannot be loaded.
    """
    if is_toy(checkpoint):
        return running_toy(load_toy(checkpoint), heads, where)
    return running(*load_model(checkpoint, where), heads, where)
