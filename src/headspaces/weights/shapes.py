"""How many heads a checkpoint has and how wide they are, from its tensors; the configuration must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS, Shape
from headspaces.weights.head_marks import FIXED_WIDTH, agreed, head_marks
from headspaces.weights.layout import Layout

CONFIG_KEYS: dict[str, tuple[str, ...]] = {
    "n_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "n_query_heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "d_model": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "d_head": ("head_dim",),
}
"""What configurations call the numbers of a :class:`~headspaces.spaces.Shape`."""


def read_shape(
    layout: Layout,
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    prefix: str,
    n_layers: int,
    where: str,
) -> Shape:
    """Read the numbers and widths of heads.

    Only the number of query heads is believed from the configuration alone, unless a tensor as long as a head is wide
    contradicts it; where the configuration has none, such a tensor tells it. Widths are never the quotient of the
    hidden size and the heads, nor a default of a configuration class: Qwen3, Gemma and Mistral-Nemo have others.

    Parameters
    ----------
    layout, config
        What :func:`~headspaces.weights.layouts.find_layout` returned.
    shapes
        Shape of every tensor of the checkpoint, by name.
    prefix
        What :func:`~headspaces.weights.layouts.find_prefix` returned.
    n_layers
        Number of layers.
    where
        The checkpoint, for messages.

    Raises
    ------
    InputError
        If heads do not divide, or tensors and configuration disagree.
    """
    sizes = {kind: _size(layout, shapes, prefix, kind, n_layers) for kind in KINDS}
    d_model = _d_model(sizes, where)
    widths = {kind: size[1 if kind == "O" else 0] for kind, size in sizes.items() if size}
    marks = list(head_marks(layout, config, shapes, prefix, n_layers, widths))
    width = widths["O"] if "O" in widths else 0 if layout.qkv else widths.get("Q", 0)
    heads = count(config, CONFIG_KEYS["n_query_heads"], where)
    if heads is None and marks and width:
        heads = _quotient(width, marks[0].d_head, f"{where}: all heads by the width of {marks[0].tensor}")
    if heads is None:
        keys = " or ".join(CONFIG_KEYS["n_query_heads"])
        raise InputError(
            f"{where}: the configuration gives no number of heads ({keys}), nor does a tensor; add it to config.json, "
            "for a model of several parts to its text_config"
        )
    if width and width % heads == 0:
        agreed(marks, width // heads, heads, width, where)
    d_head, n_kv_heads = _head_sizes(layout, config, sizes, heads, where)
    if layout.name in FIXED_WIDTH and heads * d_head != d_model and not config.get("head_dim"):
        raise InputError(
            f"{where}: {heads} heads by the configuration, but {layout.o} has {heads * d_head} dimensions for them "
            f"where {layout.name} has {d_model}: heads are pruned; use the checkpoint before pruning"
        )
    if heads % n_kv_heads:
        raise InputError(f"{where}: {heads} query heads do not divide into {n_kv_heads} key-value heads")
    for key, value in (("d_head", d_head), ("d_model", d_model)):
        told = count(config, CONFIG_KEYS[key], where)
        if told is not None and told != value:
            raise InputError(f"{where}: the configuration has {key} {told}, the tensors {value}; one of them is wrong")
    return Shape(n_layers, d_model, heads, n_kv_heads, d_head)


def expected_shape(layout: Layout, shape: Shape, tensor: str) -> tuple[int, ...]:
    """Shape that a layer's tensor must have, by its name inside the layer."""
    queries, keys = shape.n_query_heads * shape.d_head, shape.n_kv_heads * shape.d_head
    if tensor in (layout.read_norm, layout.write_norm):
        return (shape.d_model,)
    if tensor == layout.o:
        out_in = (shape.d_model, queries)
    elif tensor == layout.qkv:
        out_in = (queries + 2 * keys, shape.d_model)
    else:
        out_in = (queries if tensor == layout.q else keys, shape.d_model)
    return out_in[::-1] if layout.transposed else out_in


def count(config: Mapping[str, Any], names: tuple[str, ...], where: str) -> int | None:
    """Return the configuration's value under the first of the names that it has, or None.

    Raises
    ------
    InputError
        If it is no positive whole number, the same for all layers.
    """
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise InputError(f"{where}: the configuration's {name} is {value!r}, expected one positive whole number")
        return value
    return None


def _size(
    layout: Layout, shapes: Mapping[str, tuple[int, ...]], prefix: str, kind: str, n_layers: int
) -> tuple[int, int] | None:
    """Shape (out, in) of the tensor that holds one kind in the first layer that has it."""
    for layer in range(n_layers):
        shape = shapes.get(prefix + layout.layer.format(layer=layer) + layout.tensor(kind))
        if shape is not None:
            if len(shape) != 2:
                return None
            return (shape[1], shape[0]) if layout.transposed else (shape[0], shape[1])
    return None


def _d_model(sizes: Mapping[str, tuple[int, int] | None], where: str) -> int:
    found = {kind: size[0 if kind == "O" else 1] for kind, size in sizes.items() if size is not None}
    if not found:
        raise InputError(f"{where}: the attention tensors are no matrices; packed or quantised weights cannot be read")
    if len(set(found.values())) > 1:
        raise InputError(
            f"{where}: the kinds disagree on d_model: {found}; the checkpoint is not what its configuration says"
        )
    return next(iter(found.values()))


def _head_sizes(
    layout: Layout, config: Mapping[str, Any], sizes: Mapping[str, tuple[int, int] | None], heads: int, where: str
) -> tuple[int, int]:
    """Width of a head and number of key-value heads."""
    output, query, key, value = (sizes[kind] for kind in KINDS)
    told = heads if layout.split == "heads" else count(config, layout.kv_heads, where)
    if output is not None:
        d_head = _quotient(output[1], heads, f"{where}: the columns of {layout.o}")
    elif query is not None:
        parts = heads + 2 * (told or heads) if layout.qkv else heads
        d_head = _quotient(query[0], parts, f"{where}: the rows of {layout.tensor('Q')}")
    else:
        d_head = count(config, CONFIG_KEYS["d_head"], where) or 0
        if not d_head:
            raise InputError(f"{where}: neither {layout.o} nor {layout.q} is there to tell the width of a head")
    if layout.qkv and query is not None:
        total = _quotient(query[0], d_head, f"{where}: the rows of {layout.qkv}")
        n_kv_heads = _quotient(total - heads, 2, f"{where}: the key and value rows of {layout.qkv}")
    elif key or value:
        n_kv_heads = _quotient(
            (key or value or (0, 0))[0], d_head, f"{where}: the rows of {layout.k if key else layout.v}"
        )
    else:
        n_kv_heads = told or heads
    if told is not None and told != n_kv_heads:
        raise InputError(f"{where}: {told} key-value heads expected, the tensors hold {n_kv_heads} of width {d_head}")
    return d_head, n_kv_heads


def _quotient(total: int, parts: int, what: str) -> int:
    if total <= 0 or total % parts:
        raise InputError(f"{what}: {total} do not divide by {parts}; the number of heads is wrong, or the tensor")
    return total // parts
