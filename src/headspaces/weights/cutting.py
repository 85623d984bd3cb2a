"""A layer's tensors, cut into heads as the architecture's layout says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
from jaxtyping import Shaped

from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, Norm, NormKind
from headspaces.spaces import Shape
from headspaces.weights.layout import Layout, layer_tensors


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
        The tensors of :func:`~headspaces.weights.layout.layer_tensors` by name, in any float type.

    Raises
    ------
    InputError
        If a tensor has another number of rows or columns than the heads need.
    """
    start = prefix + layout.layer.format(layer=layer)
    matrices: dict[str, np.ndarray] = {}
    for name in layer_tensors(layout, prefix, layer, kinds):
        array = arrays[name].astype(np.float64, copy=False)
        matrices[name.removeprefix(start)] = array.T if layout.transposed and array.ndim == 2 else array
    factors = {}
    for kind in kinds:
        matrix = matrices[layout.tensor(kind)]
        _check_size(layout, shape, kind, matrix, start + layout.tensor(kind))
        if kind == "O":
            factors[kind] = matrix.reshape(shape.d_model, shape.n_query_heads, shape.d_head).transpose(1, 0, 2)
        else:
            factors[kind] = rows_of_heads(layout.split, shape, kind, matrix).transpose(0, 2, 1)
    read_norm = Norm(cast("NormKind", layout.norm), _gain(layout, matrices.get(layout.read_norm)))
    write_norm = Norm("rmsnorm", _gain(layout, matrices.get(layout.write_norm))) if layout.write_norm else None
    return LayerHeads(layer, factors, read_norm, write_norm)


def rows_of_heads(
    split: str, shape: Shape, kind: str, matrix: Shaped[np.ndarray, "rows columns"]
) -> Shaped[np.ndarray, "head d_head columns"]:
    """Cut the rows of a projection, separate or fused (:attr:`Layout.split`), into the heads of one kind."""
    n_query, n_kv, d_head = shape.n_query_heads, shape.n_kv_heads, shape.d_head
    if split == "heads":
        return matrix.reshape(n_query, 3, d_head, -1)[:, "QKV".index(kind)]
    if split == "groups":
        group = matrix.reshape(n_kv, n_query // n_kv + 2, d_head, -1)
        return group[:, :-2].reshape(n_query, d_head, -1) if kind == "Q" else group[:, {"K": -2, "V": -1}[kind]]
    if split == "flat":
        first = {"Q": 0, "K": n_query, "V": n_query + n_kv}[kind] * d_head
        matrix = matrix[first : first + shape.n_heads(kind) * d_head]
    return matrix.reshape(shape.n_heads(kind), d_head, -1)


def _check_size(layout: Layout, shape: Shape, kind: str, matrix: np.ndarray, name: str) -> None:
    heads = shape.n_query_heads + 2 * shape.n_kv_heads if layout.qkv and kind != "O" else shape.n_heads(kind)
    expected = (heads * shape.d_head, shape.d_model)
    found = matrix.shape[::-1] if kind == "O" else matrix.shape
    if found != expected:
        raise InputError(
            f"tensor {name!r}: {heads} heads of width {shape.d_head} need {expected[0]} rows for {expected[1]} "
            f"residual dimensions, it has {found}"
        )


def _gain(layout: Layout, weight: np.ndarray | None) -> np.ndarray | None:
    # The offset is added in float64: in bfloat16 it would cost most of a small weight's digits.
    return None if weight is None else weight + layout.gain_offset
