"""Maps of a block of layers, and the factors that the scores make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Float

from headspaces.devices import ToDevice, identity
from headspaces.geometry.bases import RANK_RTOL
from headspaces.geometry.heads import LayerHeads, fold, kv_heads_of
from headspaces.geometry.pairs import kind_columns
from headspaces.nulls.draws import orthonormalised
from headspaces.spaces import KINDS
from headspaces.threads import map_in_order


@dataclass(frozen=True)
class Stacks:
    """Factors of the heads of some layers, all kinds in one array, so that any run of kinds is a part of it.

    ``factors`` are the heads of each layer, kind after kind; ``columns`` the slice of each kind's heads; ``to_device``
    moves factors to the device that computes the kernel.
    """

    factors: Float[np.ndarray, "layer head rows width"]
    columns: Mapping[str, slice]
    to_device: ToDevice = identity

    def __getitem__(self, kinds: str) -> Float[np.ndarray, "layer _head rows width"]:
        """Return the factors of one kind, or of kinds that follow each other."""
        return self.factors[:, self.columns[kinds[0]].start : self.columns[kinds[-1]].stop]

    @property
    def kinds(self) -> list[str]:
        """The kinds, in order."""
        return list(self.columns)

    def with_factors(self, factors: Float[np.ndarray, "layer head _rows _width"]) -> Stacks:
        """Give the same heads other factors."""
        return replace(self, factors=factors)


def join_kinds(
    by_kind: Mapping[str, Float[np.ndarray, "layer _head rows width"]], to_device: ToDevice = identity
) -> Stacks:
    """Put the factors of several kinds into one array."""
    columns = kind_columns({kind: stack.shape[1] for kind, stack in by_kind.items()})
    return Stacks(np.concatenate(list(by_kind.values()), axis=1), columns, to_device)


class Maps:
    """The maps of some layers, and what the scores make of them when they first need it.

    The layers are consecutive and have all kinds; with ``fold_pk`` the bases are those of the folded maps.
    """

    def __init__(
        self,
        layers: Sequence[LayerHeads],
        fold_pk: bool,
        dtype: str,
        to_device: ToDevice = identity,
        rtol: float = RANK_RTOL,
    ) -> None:
        self._norms = [(layer.read_norm, layer.write_norm) for layer in layers]
        self._fold, self._rtol = fold_pk, rtol
        columns = kind_columns({kind: len(layers[0].factors[kind]) for kind in KINDS})
        shape = len(layers), columns[KINDS[-1]].stop, *layers[0].factors[KINDS[0]].shape[1:]
        self.weights = Stacks(np.empty(shape, dtype), columns, to_device)
        """``W_O`` and ``W_X^T``."""
        for factors, layer in zip(self.weights.factors, layers, strict=True):
            for kind, heads in columns.items():
                factors[heads] = layer.factors[kind]

    @cached_property
    def bases(self) -> Stacks:
        """Orthonormal bases of the maps' spaces."""
        d_model, d_head = self.weights.factors.shape[2:]
        width = min(d_model, d_head)
        bases = np.empty((*self.weights.factors.shape[:2], d_model, width), self.weights.factors.dtype)

        def fill(task: tuple[int, str]) -> None:
            layer, kind = task
            heads = LayerHeads(layer, {kind: self.weights[kind][layer]}, *self._norms[layer])
            factors = fold(heads, kind) if self._fold else heads.factors[kind]
            stack = factors.astype(bases.dtype, copy=False)
            bases[layer, self.weights.columns[kind]] = orthonormalised(stack, self._rtol)[0]

        list(map_in_order(fill, product(range(len(bases)), self.weights.kinds)))
        return self.weights.with_factors(bases)

    @cached_property
    def triangles(self) -> Stacks:
        """``R^T`` of ``W = Q R``: a head's map up to a rotation of the residual stream; rows are head dimensions."""

        def triangles(heads: np.ndarray) -> np.ndarray:
            return np.asarray(np.linalg.qr(heads, mode="r")).swapaxes(1, 2)

        return self.weights.with_factors(layer_by_layer(triangles, self.weights.factors))

    def full_products(self, kinds: str) -> Stacks:
        """Factors of W_OV (as O writes and as V reads it) and of W_QK (as Q and as K reads it), by query head."""
        kv_heads = kv_heads_of(self.weights["O"].shape[1], self.weights["K"].shape[1])

        def by_query_head(stacks: Stacks, kind: str) -> np.ndarray:
            return stacks[kind][:, kv_heads] if kind in "KV" else stacks[kind]

        def product_with(kind: str, partner: str) -> np.ndarray:
            return layer_by_layer(np.matmul, by_query_head(self.weights, kind), by_query_head(self.triangles, partner))

        partners = {"O": "V", "Q": "K", "K": "Q", "V": "O"}
        return join_kinds({kind: product_with(kind, partners[kind]) for kind in kinds}, self.weights.to_device)

    @property
    def centred_triangles(self) -> Stacks:
        """``H R^T``, whose operator on the head dimensions is that of ``H W^T``."""
        return self.triangles.with_factors(self.triangles.factors - self.triangles.factors.mean(axis=2, keepdims=True))


def layer_by_layer(function: Callable[..., np.ndarray], *stacks: np.ndarray) -> np.ndarray:
    """Apply a function of the heads of one layer to all layers, on this process's threads."""
    return np.stack(list(map_in_order(lambda layer: function(*layer), zip(*stacks, strict=True))))
