"""Heads of what is in memory: a model of transformers, one of TransformerLens, or plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, Norm, NormKind
from headspaces.library.source import HeadSource
from headspaces.spaces import KINDS, Shape
from headspaces.weights.cutting import cut_layer
from headspaces.weights.headers import Checkpoint, TensorHeader
from headspaces.weights.interpretation import interpret
from headspaces.weights.layout import layer_tensors, tensors_by_kind

DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "I8", "uint8": "U8",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
"""Names of torch's and numpy's types in the headers of checkpoints."""

ORIENTATIONS = {"W_Q": "Q", "W_K": "K", "W_V": "V", "W_O": "O"}
"""TransformerLens's names of the kinds."""

CENTRED_RTOL = 1e-5
"""Mean of a write over the residual dimensions, beside its size, below which writes count as centred."""


def open_state(
    state: Mapping[str, Any], config: Mapping[str, Any], name: str, origin: str, kinds: str = KINDS
) -> HeadSource:
    """Find the heads among named tensors, as a checkpoint of the same configuration has them.

    Parameters
    ----------
    state
        Tensors by name, torch's or numpy's: ``model.state_dict()``.
    config
        Content of the model's ``config.json``.
    name, origin
        The model's name, and what it is.
    kinds
        The kinds of heads wanted.

    Raises
    ------
    InputError
        If the architecture is not supported, or a tensor is missing, packed or of another shape.
    """
    tensors = {key: _tensor_header(tensor) for key, tensor in state.items() if hasattr(tensor, "shape")}
    headers = interpret(Checkpoint(origin, "", config, tensors, {}), kinds)
    where = headers.row, headers.prefix

    def read(wanted: str) -> Iterator[LayerHeads]:
        for layer in range(headers.shape.n_layers):
            names = layer_tensors(*where, layer, wanted)
            arrays = {key: _numbers(state[key], f"{origin}: tensor {key!r}") for key in names}
            dtypes = {kind: _dtype(state[key]) for kind, key in tensors_by_kind(*where, layer, wanted).items()}
            yield replace(cut_layer(headers.row, headers.shape, headers.prefix, layer, wanted, arrays), dtypes=dtypes)

    return HeadSource(
        name=name,
        origin=origin,
        revision="",
        architecture=headers.model_type,
        layout=headers.layout,
        norm=headers.norm,
        shape=headers.shape,
        kinds=headers.kinds,
        dtypes=tuple(sorted({tensor.dtype for tensor in headers.tensors.values()})),
        read=read,
        notes=headers.notes,
    )


def open_transformers(model: Any, name: str | None, kinds: str = KINDS) -> HeadSource:
    """Find the heads of a model of transformers; errors as in :func:`open_state`."""
    config = model.config.to_dict()
    given = name or str(getattr(model.config, "_name_or_path", "") or config.get("model_type", "model"))
    return open_state(model.state_dict(), config, given, f"transformers {type(model).__name__}", kinds)


def open_transformer_lens(model: Any, name: str | None, kinds: str = KINDS) -> HeadSource:
    """Find the heads of a HookedTransformer or a TransformerBridge of TransformerLens.

    Read are its ``cfg``, the stacks ``W_Q``, ``W_K``, ``W_V`` (layer, head, d_model, d_head) and ``W_O`` (layer, head,
    d_head, d_model), and the norms' ``w`` of its blocks. Weights are taken as the model carries them; the notes say
    what was done to them.

    Raises
    ------
    InputError
        If a stack has another shape than the configuration says.
    """
    cfg = model.cfg
    n_kv_heads = getattr(cfg, "n_key_value_heads", None) or cfg.n_heads
    shape = Shape(int(cfg.n_layers), int(cfg.d_model), int(cfg.n_heads), int(n_kv_heads), int(cfg.d_head))
    origin = f"TransformerLens {type(model).__name__}"
    kind_of_norm = str(getattr(cfg, "normalization_type", None) or "")
    norm = "layernorm" if kind_of_norm.startswith("LN") else "rmsnorm" if kind_of_norm.startswith("RMS") else "none"
    # A processed bridge keeps its norms, with gains of 1.
    gain = _lens_gain(model.blocks[0], "ln1")
    folded = kind_of_norm.endswith("Pre") or (norm != "none" and gain is not None and bool((gain == 1).all()))

    def stack(kind: str) -> Any:
        return _lens_stack(model, kind, shape, origin)

    def read(wanted: str) -> Iterator[LayerHeads]:
        stacks = {kind: stack(kind) for kind in wanted}
        for layer, block in enumerate(model.blocks):
            factors = {kind: _numbers(found[layer], f"{origin}: W_{kind}") for kind, found in stacks.items()}
            if "O" in factors:
                factors["O"] = factors["O"].swapaxes(1, 2)
            read_norm = Norm(cast("NormKind", norm), None if folded else _lens_gain(block, "ln1"))
            after = _lens_gain(block, "ln1_post")
            write_norm = None if after is None else Norm("rmsnorm", after)
            yield LayerHeads(layer, factors, read_norm, write_norm, dict.fromkeys(factors, _dtype(stacks[wanted[0]])))

    first = _numbers(stack("O")[0], f"{origin}: W_O")
    notes = []
    if folded:
        notes.append("the norms' gains are part of the reads' weights (fold_ln): fold=False cannot take them out")
    if np.abs(first.mean(axis=2)).max() <= CENTRED_RTOL * np.abs(first).max():
        notes.append("writes are centred over the residual dimensions (center_writing_weights)")
    return HeadSource(
        name=name or str(getattr(cfg, "model_name", None) or "model"),
        origin=origin,
        revision="",
        architecture=str(getattr(cfg, "original_architecture", None) or type(model).__name__),
        layout="TransformerLens",
        norm=norm,
        shape=shape,
        kinds="".join(kind for kind in KINDS if kind in kinds),
        dtypes=(_dtype(stack("O")),),
        read=read,
        notes=tuple(notes) or ("weights as they are stored: nothing is folded or centred",),
    )


def open_arrays(
    arrays: Mapping[str, Any], shape: Shape | None, norm: str, name: str | None, kinds: str = KINDS
) -> HeadSource:
    """Find heads in plain arrays, by kind.

    Parameters
    ----------
    arrays
        Under ``O``, ``Q``, ``K``, ``V`` (or ``W_O``, …): stacks of factors ``(layer, head, d_model, d_head)``, whose
        columns span a head's space; or, with a shape, matrices as ``torch.nn.Linear`` has them, ``(layer, out, in)``.
        Under ``norm``, if the norm has one, its gain ``(layer, d_model)``.
    shape
        Needed for matrices; stacks say it themselves.
    norm
        ``layernorm``, ``rmsnorm`` or ``none``: what ``fold`` folds into the reads.
    name, kinds
        The model's name; the kinds wanted.

    Raises
    ------
    InputError
        If arrays are of another shape than the others say.
    """
    where = name or "arrays"
    found = {ORIENTATIONS.get(key, key): value for key, value in arrays.items() if key != "norm"}
    if unknown := [key for key in found if key not in KINDS]:
        raise InputError(f"{where}: unknown array {unknown[0]!r}; expected O, Q, K, V (or W_O, …) and norm")
    if norm not in ("layernorm", "rmsnorm", "none"):
        raise InputError(f"{where}: norm is {norm!r}, expected layernorm, rmsnorm or none")
    shape = shape or _stacked_shape(found, where)
    for kind, value in found.items():
        _check_array(value, kind, shape, where)
    gains = arrays.get("norm")
    if gains is not None and tuple(gains.shape) != (shape.n_layers, shape.d_model):
        raise InputError(f"{where}: norm has the shape {tuple(gains.shape)}, expected {shape.n_layers, shape.d_model}")

    def read(wanted: str) -> Iterator[LayerHeads]:
        for layer in range(shape.n_layers):
            factors = {kind: _cut(_numbers(found[kind][layer], f"{where}: {kind}"), kind, shape) for kind in wanted}
            gain = None if gains is None else _numbers(gains[layer], f"{where}: norm")
            dtypes = {kind: _dtype(found[kind]) for kind in wanted}
            yield LayerHeads(layer, factors, Norm(cast("NormKind", norm), gain), dtypes=dtypes)

    return HeadSource(
        name=where,
        origin="arrays",
        revision="",
        architecture="arrays",
        layout="arrays",
        norm=norm,
        shape=shape,
        kinds="".join(kind for kind in KINDS if kind in found and kind in kinds),
        dtypes=tuple(sorted({_dtype(value) for value in found.values()})),
        read=read,
    )


def _tensor_header(tensor: Any) -> TensorHeader:
    return TensorHeader(_dtype(tensor), tuple(int(length) for length in tensor.shape), "", 0, 0)


def _dtype(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return DTYPES.get(name, name)


def _numbers(tensor: Any, where: str) -> Float[np.ndarray, ...]:
    """Give a tensor as float64, exactly, from wherever it is."""
    if getattr(tensor, "is_meta", False):
        raise InputError(f"{where} is on the device meta: it has no numbers; load the model's weights first")
    array = tensor.detach().cpu().double().numpy() if hasattr(tensor, "detach") else np.asarray(tensor, np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"{where} holds NaN or infinite values; the weights are broken")
    return np.asarray(array)


def _lens_stack(model: Any, kind: str, shape: Shape, origin: str) -> Any:
    """Give a stack with one head per key-value head: a HookedTransformer repeats them for every query head."""
    stack = getattr(model, f"W_{kind}").detach()
    n_heads = shape.n_heads(kind)
    if stack.shape[1] == shape.n_query_heads != n_heads:
        repeats = shape.n_query_heads // n_heads
        if not bool((stack[:, ::repeats] == stack[:, repeats - 1 :: repeats]).all()):
            raise InputError(f"{origin}: W_{kind} has {stack.shape[1]} different heads, expected {n_heads} repeated")
        stack = stack[:, ::repeats]
    sides = (shape.d_head, shape.d_model) if kind == "O" else (shape.d_model, shape.d_head)
    if tuple(stack.shape) != (shape.n_layers, n_heads, *sides):
        expected = (shape.n_layers, n_heads, *sides)
        raise InputError(f"{origin}: W_{kind} has the shape {tuple(stack.shape)}, expected {expected}")
    return stack


def _lens_gain(block: Any, name: str) -> Float[np.ndarray, " d_model"] | None:
    norm = getattr(block, name, None)
    weight = getattr(norm, "w", None)
    if weight is None:
        return None
    gain = _numbers(weight, f"TransformerLens: {name}.w")
    return 1 + gain if getattr(norm, "uses_weight_offset", False) else gain


def _stacked_shape(found: Mapping[str, Any], where: str) -> Shape:
    if not found or any(len(value.shape) != 4 for value in found.values()):
        raise InputError(
            f"{where}: expected stacks (layer, head, d_model, d_head); for matrices (layer, out, in) give shape="
        )
    if empty := [kind for kind, value in found.items() if 0 in value.shape]:
        raise InputError(f"{where}: {empty[0]} has the shape {tuple(found[empty[0]].shape)}; expected no length of 0")
    first: Callable[[str], Any] = lambda kinds: next((found[kind] for kind in kinds if kind in found), None)  # noqa: E731
    query, key = first("OQ"), first("KV")
    n_layers, n_query, d_model, d_head = (query if query is not None else key).shape
    return Shape(n_layers, d_model, n_query, key.shape[1] if key is not None else n_query, d_head)


def _check_array(value: Any, kind: str, shape: Shape, where: str) -> None:
    width = shape.n_heads(kind) * shape.d_head
    matrix = (shape.d_model, width) if kind == "O" else (width, shape.d_model)
    stack = (shape.n_heads(kind), shape.d_model, shape.d_head)
    expected = (shape.n_layers, *(stack if len(value.shape) == 4 else matrix))
    if tuple(value.shape) != expected:
        raise InputError(f"{where}: {kind} has the shape {tuple(value.shape)}, expected {expected}")


def _cut(array: np.ndarray, kind: str, shape: Shape) -> Float[np.ndarray, "head d_model d_head"]:
    if array.ndim == 3:
        return array
    if kind == "O":
        return array.reshape(shape.d_model, shape.n_heads(kind), shape.d_head).transpose(1, 0, 2)
    return array.reshape(shape.n_heads(kind), shape.d_head, shape.d_model).transpose(0, 2, 1)
