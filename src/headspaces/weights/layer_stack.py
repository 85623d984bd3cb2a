"""The stack of layers: which numbers a checkpoint's names have, and which of them are layers of the model.

Training wrappers put words into the names (``layers.1._checkpoint_wrapped_module.self_attn…``), and layers that predict
later tokens (``num_nextn_predict_layers``) are stored after the last one under its names. No layer may vanish or appear
by either.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS
from headspaces.weights.layout import Layout
from headspaces.weights.layouts import find_prefix

_WRAPPER = re.compile(r"(?:_checkpoint_wrapped_module|_fsdp_wrapped_module|_forward_module|_orig_mod|module)\.")
_FIELDS = ("o", "q", "k", "v", "qkv", "read_norm", "write_norm")
_PREDICTION = re.compile(r"(?:nextn\.)?(?:eh_proj|enorm|hnorm|shared_head(?:_\w+)?|embed_tokens)\..*|mtp_\w+\..*")
"""Tensors that only a layer has which predicts later tokens."""


def unwrapped(name: str) -> str:
    """Remove what training wrappers put into a tensor's name."""
    return re.sub(rf"(^|\.)(?:{_WRAPPER.pattern})+", r"\1", name)


def layer_number(layout: Layout, prefix: str, name: str) -> tuple[int | None, str]:
    """Return the number of the layer that a tensor belongs to and its name inside; None for other tensors."""
    before, after = (prefix + layout.layer).split("{layer}")
    number, dot, inside = name[len(before) :].partition(after) if name.startswith(before) else ("", "", "")
    # Seven digits are more layers than any decoder has; a longer number is no layer.
    return (int(number), inside) if dot and number.isdecimal() and len(number) < 8 else (None, "")


def find_names(layout: Layout, names: Collection[str], where: str) -> tuple[Layout, str]:
    """Find the prefix, and the layout with the names that wrappers inside the layers made of its own.

    Raises
    ------
    InputError
        If no prefix fits, or some layers are wrapped and others are not.
    """
    try:
        row, prefix = layout, find_prefix(layout, names, where)
    except InputError:
        row = _wrapped_row(layout, names)
        if row == layout:
            raise
        prefix = find_prefix(row, names, where)
    plain, wanted = unwrapped(prefix), {layout.tensor(kind) for kind in KINDS}
    kept = {row.tensor(kind) for kind in KINDS}
    for name in names:
        if not _WRAPPER.search(name):
            continue
        layer, inside = layer_number(layout, plain, unwrapped(name))
        if layer is not None and inside in wanted and layer_number(row, prefix, name) not in {(layer, k) for k in kept}:
            raise InputError(
                f"{where}: layer {layer} is stored as {name!r}, a training wrapper's name, the first layer as "
                f"{prefix + row.layer.format(layer=0)}{row.tensor('O')!r}; save the model without the wrapper"
            )
    return row, prefix


def _wrapped_row(layout: Layout, names: Iterable[str]) -> Layout:
    """Put the wrappers that the first layer's names have into the row's."""
    first = layout.layer.format(layer=0)
    inside = {name.rpartition(first)[2] for name in names if _WRAPPER.search(name.rpartition(first)[2])}
    changed: dict[str, Any] = {
        field: name for field in _FIELDS for name in sorted(inside) if unwrapped(name) == getattr(layout, field)
    }
    return replace(layout, **changed)


@dataclass(frozen=True)
class Stack:
    """The layers of a checkpoint: their number, and the prediction layers that come after them."""

    n_layers: int
    prediction: tuple[int, ...]

    @property
    def notes(self) -> list[str]:
        """What is left out."""
        return [
            f"layer {layer} predicts later tokens (num_nextn_predict_layers) and is no layer of the stack: left out"
            for layer in self.prediction
        ]


def find_stack(
    layout: Layout, prefix: str, names: Iterable[str], told: int | None, predicting: int, where: str
) -> Stack:
    """Count the layers of which any attention tensor is there, without those that predict later tokens.

    Parameters
    ----------
    layout, prefix
        How the checkpoint is laid out.
    names
        All its tensors.
    told, predicting
        Numbers of layers and of prediction layers by the configuration; None and 0 where it says nothing.
    where
        The checkpoint, for messages.

    Raises
    ------
    InputError
        If the configuration has another number of layers, or a layer has no attention.
    """
    inside: dict[int, list[str]] = {}
    for name in names:
        layer, rest = layer_number(layout, prefix, name)
        if layer is not None:
            inside.setdefault(layer, []).append(rest)
    marked = {layer for layer, rests in inside.items() if any(_PREDICTION.fullmatch(unwrapped(one)) for one in rests)}
    if told is not None and predicting and not marked:
        marked = {layer for layer in inside if told <= layer < told + predicting}
    attention = {layout.tensor(kind) for kind in KINDS}
    stack = {layer for layer, rests in inside.items() if attention & set(rests)} - marked
    n_layers = max(stack, default=-1) + 1
    if told is not None and told not in (n_layers, n_layers + len(marked)):
        raise InputError(
            f"{where}: the configuration has {told} layers, the tensors {n_layers}; the checkpoint is incomplete or "
            "the configuration another one's"
        )
    if (missing := next((layer for layer in range(n_layers) if layer not in inside), None)) is not None:
        raise InputError(
            f"{where}: layer {missing} of {n_layers} has no tensors; the checkpoint is incomplete, fetch it again"
        )
    for layer in sorted(inside):
        if (layer >= n_layers) != (layer in marked):
            example = prefix + layout.layer.format(layer=layer) + min(inside[layer])
            what = "predicts later tokens, yet layers follow" if layer in marked else "has no attention"
            raise InputError(
                f"{where}: layer {layer} {what} (tensor {example!r}); {n_layers} layers have one: the checkpoint is "
                "incomplete, or of a kind that is not served"
            )
    return Stack(n_layers, tuple(sorted(marked)))
