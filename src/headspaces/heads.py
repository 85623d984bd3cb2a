"""The maps of one attention layer, cut into heads, and the norm folded into them (RW section 2).

A head's read factor is ``W_X^T`` (``d_model x d_head``) for X in Q, K, V; its write factor is ``W_O``. The column space
of a factor is the head's space. Pure functions of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from jaxtyping import Float, Int

from headspaces.errors import InputError
from headspaces.layouts import Layout, layer_tensors
from headspaces.models import Shape

NormKind = Literal["layernorm", "rmsnorm", "none"]


@dataclass(frozen=True)
class Norm:
    """The linear part of a normalisation layer: ``diag(gain) P_c``, without the division by sigma and the bias.

    Attributes
    ----------
    kind
        ``layernorm`` subtracts the mean first (``P_c = I - 11^T/D``), ``rmsnorm`` does not, ``none`` is the identity.
    gain
        Factor of every residual dimension as the model applies it (an offset of 1 is already added); None for ones.
    """

    kind: NormKind
    gain: Float[np.ndarray, " d_model"] | None = None

    @property
    def centred(self) -> bool:
        """Whether the norm removes the mean over the residual dimensions."""
        return self.kind == "layernorm"


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one layer.

    Attributes
    ----------
    layer
        Number of the layer in the model, from 0.
    factors
        By kind (``O``, ``Q``, ``K``, ``V``), float64, unfolded: ``W_O`` or ``W_X^T`` of every head. K and V have one
        head per key-value head, never repeated.
    read_norm
        The norm between the residual stream and the query, key and value projections.
    write_norm
        A norm on the attention's output before it is added to the residual stream (Gemma 2 and 3, OLMo 2), or None.
    """

    layer: int
    factors: Mapping[str, Float[np.ndarray, "head d_model d_head"]]
    read_norm: Norm
    write_norm: Norm | None = None


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
        The tensors of :func:`~headspaces.layouts.layer_tensors` by name, in any float type.

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
    split: str, shape: Shape, kind: str, matrix: Float[np.ndarray, "rows d_model"]
) -> Float[np.ndarray, "head d_head d_model"]:
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


def fold(heads: LayerHeads, kind: str) -> Float[np.ndarray, "head d_model d_head"]:
    """Fold the norm's linear part into one kind's factors (RW section 2.2).

    A read through a norm is ``W (diag(gain) P_c x / sigma + bias)``: its space is spanned by ``P_c diag(gain) W^T``.
    A write through a norm is ``diag(gain) P_c W_O y / sigma + bias``. Sigma scales a whole token and the biases shift
    it, so neither changes a space.

    Parameters
    ----------
    heads
        One layer.
    kind
        ``O``, ``Q``, ``K`` or ``V``.

    Returns
    -------
    The folded factors; the unfolded array itself where there is nothing to fold.
    """
    factors = heads.factors[kind]
    if kind == "O":
        return factors if heads.write_norm is None else _scaled(_centred(factors, heads.write_norm), heads.write_norm)
    return _centred(_scaled(factors, heads.read_norm), heads.read_norm)


def kv_heads_of(n_query_heads: int, n_kv_heads: int) -> Int[np.ndarray, " query_head"]:
    """Key-value head that each query head reads: 0, 0, 1, 1 for four query and two key-value heads."""
    return np.arange(n_query_heads) // (n_query_heads // n_kv_heads)


def _scaled(factors: Float[np.ndarray, "head d_model d_head"], norm: Norm) -> Float[np.ndarray, "head d_model d_head"]:
    return factors if norm.gain is None else norm.gain[:, np.newaxis] * factors


def _centred(factors: Float[np.ndarray, "head d_model d_head"], norm: Norm) -> Float[np.ndarray, "head d_model d_head"]:
    return factors - factors.mean(axis=1, keepdims=True) if norm.centred else factors
