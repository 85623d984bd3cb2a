"""Heads of one attention layer: their maps, and the norm folded into them (RW section 2).

A head's read factor is ``W_X^T`` (``d_model x d_head``) for X in Q, K, V; its write factor is ``W_O``. The column space
of a factor is the head's space. Pure functions of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

NormKind = Literal["layernorm", "rmsnorm", "none"]


@dataclass(frozen=True)
class Norm:
    """The linear part of a normalisation layer: ``diag(gain) P_c``, without the division by sigma and the bias.

    ``layernorm`` subtracts the mean first (``P_c = I - 11^T/D``), ``rmsnorm`` does not, ``none`` is the identity.
    ``gain`` is the factor of every residual dimension as the model applies it (an offset of 1 is already added); None
    for ones.
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

    ``factors`` are by kind (``O``, ``Q``, ``K``, ``V``) in float64 and unfolded: ``W_O`` or ``W_X^T`` of every head. K
    and V have one head per key-value head, never repeated. ``read_norm`` stands between the residual stream and the
    query, key and value projections, ``write_norm`` on the attention's output before it is added to the stream (Gemma 2
    and 3, OLMo 2). ``dtypes`` are by kind the types in which the weights are stored (``BF16``, ``ggml:Q8_0``), as far
    as they are known.
    """

    layer: int
    factors: Mapping[str, Float[np.ndarray, "head d_model d_head"]]
    read_norm: Norm
    write_norm: Norm | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)


def fold(heads: LayerHeads, kind: str) -> Float[np.ndarray, "head d_model d_head"]:
    """Fold the norm's linear part into one kind's factors (RW section 2.2).

    A read through a norm is ``W (diag(gain) P_c x / sigma + bias)``: its space is spanned by ``P_c diag(gain) W^T``. A
    write through a norm is ``diag(gain) P_c W_O y / sigma + bias``. Sigma scales a whole token and the biases shift it,
    so neither changes a space. Where there is nothing to fold it is the unfolded array itself.
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
