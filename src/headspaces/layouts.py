"""Where each architecture keeps its heads: one table, and the few functions that read it.

A :class:`Layout` is one row: the names of a layer's tensors, how a fused tensor is cut, and which norms stand between
the attention and the residual stream. To add an architecture, add a row (``docs/architectures.md``).

Norms on queries and keys (``q_norm``, ``k_norm``) act inside a head, after the projection: they change which
queries match which keys and no read space, so no row names them. The same holds for rotary embeddings, attention
scales, residual multipliers and every bias.

Imports are light, because headers are read before any array is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headspaces.errors import InputError
from headspaces.models import KINDS, Shape

if TYPE_CHECKING:
    import numpy as np

    from headspaces.heads import LayerHeads, Norm


@dataclass(frozen=True)
class Layout:
    """One row of the table.

    Attributes
    ----------
    name
        The row's own name.
    model_types
        The ``model_type`` of the configurations that it serves; ``gguf:ARCHITECTURE`` for GGUF files.
    layer
        What the names of a layer's tensors begin with, after the model's prefix.
    o, q, k, v, qkv
        Names of the weights; ``qkv`` in place of q, k, v where they are fused.
    split
        How the rows of ``qkv`` run. ``flat``: all queries, all keys, all values. ``heads``: head by head, each query,
        key, value. ``groups``: key-value head by key-value head, each its queries, key, value.
    transposed
        Whether weights are stored (in, out), as in GPT-2's Conv1D, instead of (out, in).
    norm
        Kind of the norm before the attention: ``layernorm``, ``rmsnorm`` or ``none``.
    read_norm
        Name of that norm's weight; empty for a norm without parameters or no norm.
    write_norm, write_norm_kind
        Name and kind of a norm on the attention's output.
    gain_offset
        What is added to a stored norm weight to give the gain: 1 for Gemma.
    when
        Values of the configuration that choose this row among those of a model type, each with its default.
    kv_heads
        Keys of the configuration that say how many key-value heads there are; where none is present the tensors say.
    note
        What a reader of the results must know.
    """

    name: str
    model_types: tuple[str, ...]
    layer: str
    o: str
    q: str = ""
    k: str = ""
    v: str = ""
    qkv: str = ""
    split: str = ""
    transposed: bool = False
    norm: str = "rmsnorm"
    read_norm: str = "input_layernorm.weight"
    write_norm: str = ""
    write_norm_kind: str = "rmsnorm"
    gain_offset: float = 0.0
    when: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    note: str = ""

    def tensor(self, kind: str) -> str:
        """Name, inside a layer, of the tensor that holds one kind."""
        own: str = getattr(self, kind.lower())
        return own or self.qkv


_SELF_ATTENTION = {
    "layer": "layers.{layer}.",
    "o": "self_attn.o_proj.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
}
_GGUF = {
    "layer": "blk.{layer}.",
    "o": "attn_output.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "read_norm": "attn_norm.weight",
}

ROWS: tuple[Layout, ...] = (
    Layout(
        name="gpt2", model_types=("gpt2",), layer="h.{layer}.", o="attn.c_proj.weight", qkv="attn.c_attn.weight",
        split="flat", transposed=True, norm="layernorm", read_norm="ln_1.weight",
    ),
    Layout(name="llama", model_types=("llama", "mistral", "qwen2"), **_SELF_ATTENTION),
    Layout(name="gguf-llama", model_types=("gguf:llama", "gguf:qwen2"), **_GGUF),
)  # fmt: skip
"""The table."""

LAYOUTS: dict[str, Layout] = {row.name: row for row in ROWS}
"""The rows by name."""

REFUSED: dict[str, str] = {}
"""Model types that are known and not served, with the reason."""

CONFIG_KEYS: dict[str, tuple[str, ...]] = {
    "n_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "n_query_heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "d_model": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "d_head": ("head_dim",),
}
"""What configurations call the numbers of a :class:`~headspaces.models.Shape`."""

_WRAPPERS = ("", "_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.")
_ROOTS = (
    "", "transformer.", "model.", "gpt_neox.", "decoder.", "model.decoder.", "model.language_model.", "language_model.model.",
    "language_model.",
)  # fmt: skip
PREFIXES = tuple(wrapper + root for wrapper in _WRAPPERS for root in _ROOTS)
"""What may stand before a layer's names: the model's own root, and what compiling or parallel wrappers add."""


def find_layout(config: Mapping[str, Any], where: str) -> tuple[Layout, Mapping[str, Any]]:
    """Choose the row for a configuration.

    Returns
    -------
    The row, and the part of the configuration that describes the decoder (``text_config`` of a multimodal model).

    Raises
    ------
    InputError
        If the model type is missing, refused or unknown: a layout is never guessed.
    """
    model_type = config.get("model_type")
    if not model_type:
        raise InputError(f"{where}: the configuration names no model_type; known are {', '.join(known_model_types())}")
    known = [row for row in ROWS if model_type in row.model_types]
    if not known and model_type not in REFUSED and isinstance(config.get("text_config"), Mapping):
        return find_layout(config["text_config"], where)
    if model_type in REFUSED:
        raise InputError(f"{where}: {model_type} is not supported: {REFUSED[model_type]}")
    for row in known:
        if all(config.get(key, default) == value for key, (value, default) in row.when.items()):
            return row, config
    if known:
        raise InputError(f"{where}: no layout of {model_type} fits this configuration; see docs/architectures.md")
    raise InputError(
        f"{where}: unknown model_type {model_type!r}; known are {', '.join(known_model_types())}. "
        "To add one, see docs/architectures.md"
    )


def known_model_types() -> list[str]:
    """All model types that the table serves, sorted."""
    return sorted({model_type for row in ROWS for model_type in row.model_types})


def find_prefix(layout: Layout, names: Iterable[str], where: str) -> str:
    """Find what stands before the layer names in a checkpoint.

    Raises
    ------
    InputError
        If no prefix fits, or more than one does.
    """
    found = set(names)
    first = layout.layer.format(layer=0)
    wanted = [first + layout.tensor(kind) for kind in KINDS]
    fitting = [prefix for prefix in PREFIXES if any(prefix + name in found for name in wanted)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError(
            f"{where}: layer 0 exists under the prefixes {', '.join(map(repr, fitting))}; the file must hold one decoder"
        )
    example = sorted(found)[0] if found else "none at all"
    raise InputError(
        f"{where}: missing tensor {wanted[0]!r} (nor under a prefix such as 'model.' or 'transformer.'), needed by the "
        f"layout {layout.name}; the first tensor there is {example!r}"
    )


def layer_tensors(layout: Layout, prefix: str, layer: int, kinds: str) -> list[str]:
    """Names of the tensors that the given kinds of one layer need, norms included, without repetition."""
    wanted = [layout.tensor(kind) for kind in kinds]
    if layout.read_norm and layout.norm != "none" and set(kinds) & set("QKV"):
        wanted.append(layout.read_norm)
    if layout.write_norm and "O" in kinds:
        wanted.append(layout.write_norm)
    return list(dict.fromkeys(prefix + layout.layer.format(layer=layer) + name for name in wanted))


def read_shape(
    layout: Layout, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], prefix: str, where: str
) -> Shape:
    """Number and width of layers and heads, from the tensors; the configuration must agree.

    Only the number of query heads is believed from the configuration alone. Widths are never the quotient of the
    hidden size and the heads, nor a default of a configuration class: Qwen3, Gemma and Mistral-Nemo have others.

    Parameters
    ----------
    layout, config
        What :func:`find_layout` returned.
    shapes
        Shape of every tensor of the checkpoint, by name.
    prefix
        What :func:`find_prefix` returned.
    where
        The checkpoint, for messages.

    Raises
    ------
    InputError
        If layers are missing or too many, heads do not divide, or tensors and configuration disagree.
    """
    n_layers = _layers_present(layout, prefix, shapes)
    told = _number(config, "n_layers", where)
    if told is not None and told != n_layers:
        raise InputError(
            f"{where}: the configuration has {told} layers, the tensors {n_layers}; the checkpoint is incomplete or not its own"
        )
    heads = _number(config, "n_query_heads", where)
    if heads is None:
        raise InputError(
            f"{where}: the configuration gives no number of heads ({' or '.join(CONFIG_KEYS['n_query_heads'])})"
        )
    sizes = {kind: _size(layout, shapes, prefix, kind) for kind in KINDS}
    d_model = _d_model(sizes, config, where)
    d_head, n_kv_heads = _head_sizes(layout, config, sizes, heads, where)
    if heads % n_kv_heads:
        raise InputError(f"{where}: {heads} query heads do not divide into {n_kv_heads} key-value heads")
    for key, value in (("d_head", d_head), ("d_model", d_model)):
        told = _number(config, key, where)
        if told is not None and told != value:
            raise InputError(f"{where}: the configuration has {key} {told}, the tensors {value}; one of them is wrong")
    return Shape(n_layers, d_model, heads, n_kv_heads, d_head)


def expected_shape(layout: Layout, shape: Shape, tensor: str) -> tuple[int, ...]:
    """Shape that a layer's tensor must have, by its name inside the layer."""
    query, keys = shape.n_query_heads * shape.d_head, shape.n_kv_heads * shape.d_head
    if tensor in (layout.read_norm, layout.write_norm):
        return (shape.d_model,)
    if tensor == layout.o:
        rows_columns = (shape.d_model, query)
    else:
        rows_columns = ({layout.q: query, layout.qkv: query + 2 * keys}.get(tensor, keys), shape.d_model)
    return rows_columns[::-1] if layout.transposed else rows_columns


def cut_layer(
    layout: Layout, shape: Shape, prefix: str, layer: int, kinds: str, arrays: Mapping[str, np.ndarray]
) -> LayerHeads:
    """Cut one layer's tensors into heads.

    Parameters
    ----------
    layout, shape, prefix
        How the checkpoint is laid out.
    layer
        Number of the layer.
    kinds
        The kinds wanted.
    arrays
        The tensors of :func:`layer_tensors` by name, in any float type.

    Raises
    ------
    InputError
        If a tensor has another shape than the heads need.
    """
    import numpy as np

    from headspaces.heads import LayerHeads

    start = prefix + layout.layer.format(layer=layer)
    matrices: dict[str, np.ndarray] = {}
    for name in layer_tensors(layout, prefix, layer, kinds):
        tensor = name.removeprefix(start)
        expected = expected_shape(layout, shape, tensor)
        if arrays[name].shape != expected:
            raise InputError(f"tensor {name!r} has the shape {list(arrays[name].shape)}, expected {list(expected)}")
        array = arrays[name].astype(np.float64, copy=False)
        matrices[tensor] = array.T if layout.transposed and array.ndim == 2 else array
    factors = {}
    for kind in kinds:
        matrix = matrices[layout.tensor(kind)]
        if kind == "O":
            factors[kind] = matrix.reshape(shape.d_model, shape.n_query_heads, shape.d_head).transpose(1, 0, 2)
        else:
            factors[kind] = _rows_of_heads(layout, shape, kind, matrix).transpose(0, 2, 1)
    read_norm = _norm(layout.norm, layout.read_norm, layout, matrices)
    write_norm = _norm(layout.write_norm_kind, layout.write_norm, layout, matrices) if layout.write_norm else None
    return LayerHeads(layer, factors, read_norm, write_norm)


def _norm(kind: str, tensor: str, layout: Layout, matrices: Mapping[str, np.ndarray]) -> Norm:
    from headspaces.heads import Norm

    gain = matrices.get(tensor)
    # The offset is added in float64: in bfloat16 it would cost most of a small weight's digits.
    return Norm(kind, None if gain is None else gain + layout.gain_offset)  # type: ignore[arg-type]


def _rows_of_heads(layout: Layout, shape: Shape, kind: str, matrix: np.ndarray) -> np.ndarray:
    """Cut the rows of a (rows, d_model) matrix into (head, d_head, d_model) of one kind."""
    heads, kv, d = shape.n_query_heads, shape.n_kv_heads, shape.d_head
    if layout.split == "heads":
        return matrix.reshape(heads, 3, d, -1)[:, "QKV".index(kind)]
    if layout.split == "groups":
        grouped = matrix.reshape(kv, heads // kv + 2, d, -1)
        return grouped[:, :-2].reshape(heads, d, -1) if kind == "Q" else grouped[:, {"K": -2, "V": -1}[kind]]
    if layout.split == "flat":
        starts = {"Q": 0, "K": heads * d, "V": (heads + kv) * d}
        matrix = matrix[starts[kind] : starts[kind] + shape.n_heads(kind) * d]
    return matrix.reshape(shape.n_heads(kind), d, -1)


def _number(config: Mapping[str, Any], key: str, where: str, names: tuple[str, ...] = ()) -> int | None:
    """Return the configuration's value of one number, or None where it has none."""
    for name in names or CONFIG_KEYS[key]:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise InputError(f"{where}: the configuration's {name} is {value!r}, expected one positive whole number")
        return value
    return None


def _size(layout: Layout, shapes: Mapping[str, tuple[int, ...]], prefix: str, kind: str) -> tuple[int, int] | None:
    """Shape (out, in) of the tensor that holds one kind in the first layer that has it."""
    for layer in range(_layers_present(layout, prefix, shapes)):
        shape = shapes.get(prefix + layout.layer.format(layer=layer) + layout.tensor(kind))
        if shape is not None and len(shape) == 2:
            return (shape[1], shape[0]) if layout.transposed else (shape[0], shape[1])
        if shape is not None:
            return None
    return None


def _d_model(sizes: Mapping[str, tuple[int, int] | None], config: Mapping[str, Any], where: str) -> int:
    found = {kind: size[0 if kind == "O" else 1] for kind, size in sizes.items() if size is not None}
    if not found:
        raise InputError(f"{where}: the attention tensors are no matrices; packed or quantised weights cannot be read")
    told = _number(config, "d_model", where)
    if len(set(found.values())) > 1:
        raise InputError(f"{where}: the kinds disagree on d_model: {found}, the configuration has {told}")
    return next(iter(found.values()))


def _head_sizes(
    layout: Layout, config: Mapping[str, Any], sizes: Mapping[str, tuple[int, int] | None], heads: int, where: str
) -> tuple[int, int]:
    """Width of a head and number of key-value heads."""
    told = (
        heads if layout.split == "heads" else _number(config, "", where, layout.kv_heads) if layout.kv_heads else None
    )
    output, query, key, value = (sizes[kind] for kind in KINDS)
    if output is not None:
        d_head = _divide(output[1], heads, f"{where}: the columns of {layout.o}")
    elif layout.qkv:
        d_head = _divide(query[0] if query else 0, heads + 2 * (told or heads), f"{where}: the rows of {layout.qkv}")
    elif query is not None:
        d_head = _divide(query[0], heads, f"{where}: the rows of {layout.q}")
    else:
        d_head = _number(config, "d_head", where) or 0
        if not d_head:
            raise InputError(f"{where}: neither {layout.o} nor {layout.q} is there to tell the width of a head")
    if layout.qkv and query is not None:
        total = _divide(query[0], d_head, f"{where}: the rows of {layout.qkv}")
        found = _divide(total - heads, 2, f"{where}: the key and value rows of {layout.qkv}")
    elif key is not None or value is not None:
        found = _divide((key or value or (0, 0))[0], d_head, f"{where}: the rows of {layout.k if key else layout.v}")
    else:
        found = told or heads
    if found <= 0 or (told is not None and told != found):
        raise InputError(
            f"{where}: {told if told is not None else 'some'} key-value heads expected, the tensors hold {found} of width {d_head}"
        )
    return d_head, found


def _divide(total: int, parts: int, what: str) -> int:
    if parts <= 0 or total <= 0 or total % parts:
        raise InputError(f"{what}: {total} do not divide by {parts} heads")
    return total // parts


def _layers_present(layout: Layout, prefix: str, names: Iterable[str]) -> int:
    """Return one more than the highest layer of which any attention tensor is there."""
    before, after = (prefix + layout.layer).split("{layer}")
    tensors = {layout.tensor(kind) for kind in KINDS}
    numbers = [-1]
    for name in names:
        number, dot, rest = name[len(before) :].partition(after) if name.startswith(before) else ("", "", "")
        if dot and number.isdecimal() and rest in tensors:
            numbers.append(int(number))
    return max(numbers) + 1


def available_kinds(layout: Layout, prefix: str, names: Iterable[str], kinds: str) -> str:
    """Return those of the given kinds that the checkpoint holds in at least one layer."""
    found = set(names)
    starts = [prefix + layout.layer.format(layer=layer) for layer in range(_layers_present(layout, prefix, found))]
    return "".join(kind for kind in kinds if any(start + layout.tensor(kind) in found for start in starts))
