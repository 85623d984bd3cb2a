"""Residual streams of tiny models, recorded from their own modules while they run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import torch

from support.tiny_models import Tiny

TOKENS = [5, 3, 17, 17, 9, 30]


@dataclass
class RecordedStream:
    """Residuals before every layer and behind the last, and by module what came in and went out, each (token, _)."""

    residuals: list[np.ndarray] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    logits: np.ndarray = field(default_factory=lambda: np.zeros(0))


def record_stream(model: torch.nn.Module, tiny: Tiny, modules: list[str]) -> RecordedStream:
    """Run a model on :data:`TOKENS`; modules are named beneath the model, logits are the output embedding's own."""
    found = RecordedStream()

    def rows(values) -> np.ndarray:
        values = values[0] if isinstance(values, tuple) else values
        return values.detach().reshape(len(TOKENS), -1).numpy().copy()

    def keep(name):
        def hook(_module, args, output):
            found.inputs[name], found.outputs[name] = rows(args), rows(output)

        return hook

    def before(_module, args, kwargs):
        found.residuals.append(rows(args[0] if args else kwargs["hidden_states"]))

    with ExitStack() as stack, torch.no_grad():
        layers = model.get_submodule(tiny.layers)
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
        last = layers[-1].register_forward_hook(lambda _m, _a, output: found.residuals.append(rows(output)))
        stack.callback(last.remove)
        for name in modules:
            stack.callback(model.get_submodule(name).register_forward_hook(keep(name)).remove)
        head = model.get_output_embeddings()
        stack.callback(head.register_forward_hook(lambda _m, _a, output: setattr(found, "logits", rows(output))).remove)
        model(torch.tensor([TOKENS]), use_cache=False)
    return found


def biased(module: torch.nn.Module, norm: torch.nn.Module | None) -> np.ndarray:
    """What a module makes of the bias of the norm before it: its own bias comes on top."""
    width = module.weight.shape[-1] if isinstance(module, torch.nn.Linear) else module.weight.shape[0]
    shift = getattr(norm, "bias", None)
    with torch.no_grad():
        return module(torch.zeros(1, width, dtype=torch.float64) if shift is None else shift[None])[0].numpy()
