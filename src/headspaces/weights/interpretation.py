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
from headspaces.weights.formats.dtypes import SCALE, SCALED, check_supported
from headspaces.weights.guards import check_adapters, check_pruned, check_unused
from headspaces.weights.headers import Checkpoint, Headers, TensorHeader
from headspaces.weights.layer_stack import Stack, find_names, find_stack
from headspaces.weights.layout import Layout, layer_tensors
from headspaces.weights.layouts import available_kinds, find_layout
from headspaces.weights.shapes import CONFIG_KEYS, count, expected_shape, read_shape
from headspaces.weights.strays import file_notes

_GGUF_NAMES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "nextn_predict_layers": "num_nextn_predict_layers",
}
"""By a GGUF file's names, those of Hugging Face configurations."""


def interpret(checkpoint: Checkpoint, kinds: str = KINDS) -> Headers:
    """Choose the layout, check that every needed tensor is there in its right shape, and keep only those.

    Raises
    ------
    InputError
        If the architecture is not supported, or a tensor is missing, packed or of another shape than its layer needs.
    """
    source, tensors = checkpoint.source, checkpoint.tensors
    config = _hugging_face_names(checkpoint.config)
    check_adapters(tensors, source)
    layout, decoder = find_layout(config, source)
    check_pruned(decoder, source)
    _check_packed(tensors, source)
    layout, prefix = find_names(layout, tensors, source)
    present = available_kinds(layout, prefix, tensors, kinds)
    if not present:
        raise InputError(f"{source}: the checkpoint holds no tensors for {', '.join(kinds)}")
    _check_types(layout, prefix, tensors, source)
    told = count(decoder, CONFIG_KEYS["n_layers"], source)
    predicting = decoder.get("num_nextn_predict_layers")
    stack = find_stack(layout, prefix, tensors, told, predicting if type(predicting) is int else 0, source)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    shape = read_shape(layout, decoder, shapes, prefix, stack.n_layers, source)
    needed: dict[str, TensorHeader] = {}
    block = scale_block(config)
    for layer in range(shape.n_layers):
        start = prefix + layout.layer.format(layer=layer)
        for name in layer_tensors(layout, prefix, layer, present):
            expected = expected_shape(layout, shape, name.removeprefix(start))
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
        notes=(*([layout.note] if layout.note else []), *_notes(checkpoint, decoder, kinds, present, stack, shape)),
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


def _hugging_face_names(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the configuration of a GGUF file or a training checkpoint the names that Hugging Face's have."""
    if "gguf" in config and "model_type" not in config:
        values = config["gguf"]
        architecture = str(values.get("general.architecture", ""))
        named = {name: values.get(f"{architecture}.{key}") for key, name in _GGUF_NAMES.items()}
        return {"model_type": f"gguf:{architecture}"} | {
            name: value for name, value in named.items() if value is not None
        }
    if "model_args" in config and "model_type" not in config:
        return {"model_type": "nanogpt"} | {key: config["model_args"][key] for key in ("n_layer", "n_head", "n_embd")}
    return config


def scale_block(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns that share one scale in an FP8 checkpoint, or None."""
    block = (config.get("quantization_config") or {}).get("weight_block_size")
    if not isinstance(block, list) or len(block) != 2 or not all(type(size) is int and size > 0 for size in block):
        return None
    return block[0], block[1]


_PACKED = {
    ".qweight": "GPTQ or AWQ", ".qzeros": "GPTQ or AWQ", ".SCB": "bitsandbytes, 8 bits",
    ".absmax": "bitsandbytes, 4 bits", ".quant_map": "bitsandbytes, 4 bits", ".weight_packed": "compressed-tensors",
    ".weight_scale": "one scale per tensor or row",
}  # fmt: skip
"""Ends of names that only packed weights have."""


def _check_packed(names: Iterable[str], source: str) -> None:
    for name in sorted(names):
        scheme = next((scheme for end, scheme in _PACKED.items() if name.endswith(end)), None)
        if scheme and ("attn" in name or "attention" in name):
            raise InputError(
                f"{source}: tensor {name!r} says that the attention's weights are quantised ({scheme}): the file holds "
                "codes; use the original checkpoint or a GGUF file"
            )


def _check_types(layout: Layout, prefix: str, tensors: Mapping[str, TensorHeader], source: str) -> None:
    """Check types before shapes: packed weights have other shapes, and the type is what explains them."""
    for name in layer_tensors(layout, prefix, 0, KINDS):
        if name in tensors:
            check_supported(tensors[name].dtype, f"{source}: tensor {name!r}", scaled=name + SCALE in tensors)


def _checked(
    name: str,
    expected: tuple[int, ...],
    tensors: Mapping[str, TensorHeader],
    block: tuple[int, int] | None,
    source: str,
) -> dict[str, TensorHeader]:
    """Return one needed tensor, with its scales if it has any, checked."""
    if name not in tensors:
        raise InputError(f"{source}: missing tensor {name!r}; the checkpoint is incomplete, fetch it again")
    tensor, scale = tensors[name], tensors.get(name + SCALE)
    check_supported(tensor.dtype, f"{source}: tensor {name!r}", scaled=scale is not None)
    if tensor.shape != expected:
        raise InputError(f"{source}: tensor {name!r} has the shape {list(tensor.shape)}, expected {list(expected)}")
    if tensor.dtype != SCALED or scale is None:
        return {name: tensor}
    if block is None:
        raise InputError(f"{source}: tensor {name!r} has scales, but the configuration has no weight_block_size")
    check_supported(scale.dtype, f"{source}: tensor {name + SCALE!r}")
    blocks = (-(-expected[0] // block[0]), -(-expected[1] // block[1]))
    if scale.shape != blocks:
        raise InputError(
            f"{source}: tensor {name + SCALE!r} has the shape {list(scale.shape)}, expected {list(blocks)}"
        )
    return {name: tensor, name + SCALE: scale}
