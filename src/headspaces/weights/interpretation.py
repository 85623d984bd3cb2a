"""Interpretation of a checkpoint: which layout serves it, how many heads it has, which tensors they need.

What is fetched is kept as it is; this code is run on it again whenever it is read (:func:`interpretation_sum`), so that
a mended row of the layouts table needs no byte anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS, Shape
from headspaces.weights.formats.dtypes import check_supported
from headspaces.weights.formats.gguf_names import gguf_config
from headspaces.weights.guards import check_adapters, check_pruned, check_unused
from headspaces.weights.headers import Checkpoint, Headers, TensorHeader
from headspaces.weights.known_forms import why_missing
from headspaces.weights.layer_stack import Stack, find_names, find_stack
from headspaces.weights.layout import layer_tensors
from headspaces.weights.layouts import available_kinds, find_layout
from headspaces.weights.packed import check_packed, configured_block, with_scales
from headspaces.weights.refused import quantisation_of
from headspaces.weights.shapes import CONFIG_KEYS, count, expected_shape, read_shape
from headspaces.weights.strays import file_notes


def interpret(checkpoint: Checkpoint, kinds: str = KINDS) -> Headers:
    """Choose the layout, check that every needed tensor is there in its right shape, and keep only those.

    Raises
    ------
    InputError
        If the architecture is not supported, or a tensor is missing, packed or of another shape than its layer needs.
    """
    source, tensors = checkpoint.source, checkpoint.tensors
    config = hugging_face_names(checkpoint.config, tensors)
    check_adapters(tensors, source)
    layout, decoder = find_layout(config, source)
    check_pruned(decoder, source)
    layout, prefix = find_names(layout, tensors, source)
    quantisation = quantisation_of(config, decoder)
    kept_plain = check_packed(layout, prefix, tensors, quantisation, source)
    present = available_kinds(layout, prefix, tensors, kinds)
    if not present:
        raise InputError(f"{source}: the checkpoint holds no tensors for {', '.join(kinds)}")
    told = count(decoder, CONFIG_KEYS["n_layers"], source)
    predicting = decoder.get("num_nextn_predict_layers")
    stack = find_stack(layout, prefix, tensors, told, predicting if type(predicting) is int else 0, source)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    shape = read_shape(layout, decoder, shapes, prefix, stack.n_layers, source)
    needed: dict[str, TensorHeader] = {}
    block = configured_block(quantisation)
    for layer in range(shape.n_layers):
        start = prefix + layout.layer.format(layer=layer)
        for name in layer_tensors(layout, prefix, layer, present):
            expected = expected_shape(layout, shape, name.removeprefix(start))
            if name not in tensors:
                raise InputError(f"{source}: {why_missing(layout, start, name, tensors)}")
            needed |= _checked(name, expected, tensors, block, source)
    check_unused(layout, prefix, shape.n_layers, tensors, needed, source)
    used = {tensor.file for tensor in needed.values()}
    return Headers(
        checkpoint=checkpoint,
        model_type=str(decoder["model_type"]),
        row=layout,
        shape=shape,
        kinds=present,
        prefix=prefix,
        tensors=needed,
        files={name: file for name, file in checkpoint.files.items() if name in used},
        scale_block=block,
        notes=(*filter(None, (layout.note, kept_plain)), *_notes(checkpoint, decoder, kinds, present, stack, shape)),
    )


def _notes(
    checkpoint: Checkpoint, decoder: Mapping[str, Any], kinds: str, present: str, stack: Stack, shape: Shape
) -> list[str]:
    """Say what is left out, and what was not said by the checkpoint."""
    source = checkpoint.source
    notes = [*stack.notes, *file_notes(checkpoint.files)]
    if count(decoder, CONFIG_KEYS["n_query_heads"], source) is None:
        notes.append(f"the configuration gives no number of heads: {shape.n_query_heads} by the sizes of the tensors")
    if absent := [kind for kind in kinds if kind not in present]:
        notes.append(f"no tensors for {', '.join(absent)}: left out")
    if source.startswith("hub:") and source.rpartition("@")[2] != checkpoint.revision:
        repository, _, revision = source.partition("@")
        notes.append(
            f"revision {revision or 'main'!r} is not pinned; it was commit {checkpoint.revision}: "
            f"{repository}@{checkpoint.revision} keeps it"
        )
    return notes


def interpretation_sum(headers: Headers) -> str:
    """Sum of everything that the table of layouts and this module decide: equal sums, equal numbers."""
    decided = [
        headers.row.to_json(), headers.model_type, headers.kinds, headers.prefix, asdict(headers.shape),
        headers.scale_block, sorted(headers.tensors),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()


def hugging_face_names(config: Mapping[str, Any], tensors: Iterable[str]) -> Mapping[str, Any]:
    """Give the configuration of a GGUF file or a training checkpoint the names that Hugging Face's have."""
    if "gguf" in config and "model_type" not in config:
        return gguf_config(config["gguf"], tensors)
    if "model_args" in config and "model_type" not in config:
        return {"model_type": "nanogpt"} | {key: config["model_args"][key] for key in ("n_layer", "n_head", "n_embd")}
    return config


def _checked(
    name: str,
    expected: tuple[int, ...],
    tensors: Mapping[str, TensorHeader],
    block: tuple[int, int] | None,
    source: str,
) -> dict[str, TensorHeader]:
    """Return one needed tensor, with its scales if it has any, checked."""
    tensor = tensors[name]
    check_supported(tensor.dtype, f"{source}: tensor {name!r}", scaled=True)
    if tensor.shape != expected:
        raise InputError(f"{source}: tensor {name!r} has the shape {list(tensor.shape)}, expected {list(expected)}")
    return with_scales(name, tensors, block, source)
