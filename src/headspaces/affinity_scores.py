"""The scores between two heads' maps that PK compares.

Every score but Procrustes is the one kernel ``<F F^T, G G^T>``, with factors ``F`` of the earlier head and ``G`` of the
later one (Frobenius norms; ``W = Q R``; ``H`` removes the mean over the head's dimensions):

==================  =====================  ==========================================  ==========================
score               F                      G                                           scale
==================  =====================  ==========================================  ==========================
pk                  orthonormal basis      orthonormal basis                           1
simple_cs, squared  W_O                    W_X^T                                       1 / (||F||^2 ||G||^2)
cs, squared         W_O R_V^T              W_Q^T R_K^T, W_K^T R_Q^T or W_V^T R_O^T     1 / (||F||^2 ||G||^2)
cka                 H R^T                  H R^T                                       1 / (||F F^T|| ||G G^T||)
cka_invariant       W_O                    W_X^T                                       1 / (||F F^T|| ||G G^T||)
==================  =====================  ==========================================  ==========================

Procrustes similarity has the nuclear norm ``2 ||F^T G||_*`` in the kernel's place and ``||F||^2 + ||G||^2`` below it.

PK takes the head dimensions as the samples of linear CKA and Procrustes (``cka``, ``procrustes``): dimension k of one
head is matched with dimension k of the other, so they depend on the arbitrary basis inside each head and do not measure
overlap in the residual stream. With the residual coordinates as samples (``…_invariant``) they do, and depend on no
basis: nothing is centred there, since a mean over residual coordinates would depend on the stream's basis.

Weights are unfolded, as in PK; ``fold_pk`` folds the norms into the spaces of ``pk``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from headspaces.bases import orthonormal_bases
from headspaces.heads import LayerHeads, fold, kv_heads_of
from headspaces.jobs import map_in_order
from headspaces.models import KINDS
from headspaces.overlaps import GRAM_BYTES, layer_overlaps, squared_overlaps

Stacks: TypeAlias = Mapping[str, Float[np.ndarray, "_layer _head _rows _width"]]
"""By kind, the factors of some layers."""

Pairs: TypeAlias = dict[str, Float[np.ndarray, "_source_layer _target_layer _source_head _target_head"]]
"""By source and target kind (``OQ``), a score of every pair; NaN where the target layer is earlier.

Inside a layer there are the pairs of equal kinds (``OO``), and NaN for others.
"""


@dataclass(frozen=True)
class Maps:
    """The maps of some layers, and what the scores make of them when they first need it."""

    layers: Sequence[LayerHeads]
    fold_pk: bool
    dtype: str

    @cached_property
    def weights(self) -> Stacks:
        """``W_O`` and ``W_X^T``."""
        return {x: np.stack([one.factors[x] for one in self.layers]).astype(self.dtype, copy=False) for x in KINDS}

    @cached_property
    def bases(self) -> Stacks:
        """Orthonormal bases of the maps' spaces."""
        return {kind: np.stack([self._bases(one, kind) for one in self.layers]) for kind in KINDS}

    def _bases(self, heads: LayerHeads, kind: str) -> Float[np.ndarray, "head d_model d_head"]:
        factors = fold(heads, kind) if self.fold_pk else heads.factors[kind]
        return orthonormal_bases(factors.astype(self.dtype, copy=False)).basis

    @cached_property
    def triangles(self) -> Stacks:
        """``R^T`` of ``W = Q R``: a head's map up to a rotation of the residual stream; rows are head dimensions."""

        def triangles(heads: np.ndarray) -> np.ndarray:
            return np.asarray(np.linalg.qr(heads, mode="r")).swapaxes(1, 2)

        return {kind: np.stack(list(map_in_order(triangles, stack))) for kind, stack in self.weights.items()}

    @property
    def full_products(self) -> Stacks:
        """Factors of W_OV (as O writes and as V reads it) and of W_QK (as Q and as K reads it), by query head."""
        own = kv_heads_of(self.weights["O"].shape[1], self.weights["K"].shape[1])
        weights, triangles = dict(self.weights), dict(self.triangles)
        for kind in "KV":
            weights[kind], triangles[kind] = weights[kind][:, own], triangles[kind][:, own]
        partner = {"O": "V", "Q": "K", "K": "Q", "V": "O"}
        return {kind: weights[kind] @ triangles[partner[kind]] for kind in KINDS}

    @property
    def centred_triangles(self) -> Stacks:
        """``H R^T``, whose operator on the head dimensions is that of ``H W^T``."""
        return {kind: stack - stack.mean(axis=2, keepdims=True) for kind, stack in self.triangles.items()}


def _kernel(source: Stacks, target: Stacks | None, sources: str, targets: str) -> Pairs:
    """Kernel of the sources' heads with the targets', of the same layers or of another block's."""
    if target is not None:
        return _rectangle_kernel(source, target, sources, targets)
    own = "".join(kind for kind in sources if kind in targets)
    found = layer_overlaps(source, within=own, sources=sources, targets=targets)
    pairs: Pairs = {}
    for x, y in product(sources, targets):
        shape = (len(source[x]), len(source[y]), source[x].shape[1], source[y].shape[1])
        pairs[x + y] = found.across.get(x + y, np.full(shape, np.nan))
        if x == y:
            every = np.arange(len(source[x]))
            pairs[x + y][every, every] = found.within[x]
    return pairs


def _rectangle_kernel(source: Stacks, target: Stacks, sources: str, targets: str) -> Pairs:
    left, rows = _joined(source, sources)
    right, columns = _joined(target, targets)
    kernel = squared_overlaps(left.reshape(-1, *left.shape[2:]), right.reshape(-1, *right.shape[2:]))
    pairs = kernel.reshape(*left.shape[:2], *right.shape[:2]).transpose(0, 2, 1, 3)
    return {x + y: pairs[:, :, rows[x], columns[y]].copy() for x in sources for y in targets}


def _joined(stacks: Stacks, kinds: str) -> tuple[np.ndarray, dict[str, slice]]:
    """Several kinds as one stack, and where each stands in it."""
    ends = np.cumsum([stacks[kind].shape[1] for kind in kinds]).tolist()
    places = {kind: slice(end - stacks[kind].shape[1], end) for kind, end in zip(kinds, ends, strict=True)}
    joined = np.concatenate([stacks[kind] for kind in kinds], axis=1) if len(kinds) > 1 else stacks[kinds]
    return joined, places


def _projection_kernel(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    return {"pk": _kernel(source.bases, None if target is None else target.bases, sources, targets)}


def _of_weights(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    own, later = source.weights, (target or source).weights
    kernel = _kernel(own, None if target is None else later, sources, targets)
    return {
        "simple_cs": _scaled({pair: np.sqrt(values) for pair, values in kernel.items()}, _norms(own), _norms(later)),
        "cka_invariant": _scaled(kernel, _operator_norms(own), _operator_norms(later)),
    }


def _composition(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    """``||F^T G|| / (||F|| ||G||)`` of the full products, without a baseline (Elhage et al. 2021)."""
    own = source.full_products
    later = own if target is None else target.full_products
    kernel = _kernel(own, None if target is None else later, sources, targets)
    return {"cs": _scaled({pair: np.sqrt(values) for pair, values in kernel.items()}, _norms(own), _norms(later))}


def _head_alignment(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    own, later = source.centred_triangles, (target or source).centred_triangles
    kernel = _kernel(own, None if target is None else later, sources, targets)
    return {"cka": _scaled(kernel, _operator_norms(own), _operator_norms(later))}


def _norms(stacks: Stacks) -> dict[str, Float[np.ndarray, "_layer _head"]]:
    return {kind: np.sqrt(np.sum(stack * stack, axis=(2, 3))) for kind, stack in stacks.items()}


def _operator_norms(stacks: Stacks) -> dict[str, Float[np.ndarray, "_layer _head"]]:
    grams = {kind: stack.swapaxes(2, 3) @ stack for kind, stack in stacks.items()}
    return _norms(grams)


def _scaled(pairs: Pairs, own: Mapping[str, np.ndarray], later: Mapping[str, np.ndarray]) -> Pairs:
    """Divide by the product of both heads' norms."""
    return {
        pair: _ratio(values, own[pair[0]][:, None, :, None] * later[pair[1]][None, :, None, :])
        for pair, values in pairs.items()
    }


def _ratio(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.divide(values, scale, out=np.full(values.shape, np.nan), where=scale > 0)
    return ratio


def _head_procrustes(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    # ||W_a W_b^T||_* = ||R_a R_b^T||_*: rotations do not change a nuclear norm.
    return {"procrustes": _procrustes(source.triangles, None if target is None else target.triangles, sources, targets)}


def _residual_procrustes(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    return {
        "procrustes_invariant": _procrustes(
            source.weights, None if target is None else target.weights, sources, targets
        )
    }


def _procrustes(source: Stacks, target: Stacks | None, sources: str, targets: str) -> Pairs:
    """``2 ||F^T G||_* / (||F||^2 + ||G||^2) = 1 - min_T ||F - G T||^2 / (||F||^2 + ||G||^2)`` over orthogonal T."""
    pairs: Pairs = {}
    for x, y in product(sources, targets):
        left, right = source[x], (source if target is None else target)[y]
        pairs[x + y] = np.full((left.shape[0], right.shape[0], left.shape[1], right.shape[1]), np.nan)
        for layer, heads in enumerate(left):
            first = 0 if target is not None else layer if x == y else layer + 1
            later = right[first:].reshape(-1, *right.shape[2:])
            sizes = np.add.outer(np.sum(heads * heads, axis=(1, 2)), np.sum(later * later, axis=(1, 2)))
            similarities = _ratio(2 * nuclear_norms(heads, later), sizes)
            pairs[x + y][layer, first:] = similarities.reshape(len(heads), -1, right.shape[1]).swapaxes(0, 1)
    return pairs


def nuclear_norms(
    left: Float[np.ndarray, "n rows a"], right: Float[np.ndarray, "m rows b"]
) -> Float[np.ndarray, "n m"]:
    """Sum of the singular values of ``F^T G`` for all pairs of factors."""
    step = max(1, GRAM_BYTES // (right.shape[2] * left.shape[2] * left.itemsize))
    items = [(head, slice(start, start + step)) for head in range(len(left)) for start in range(0, len(right), step)]

    def norms(item: tuple[int, slice]) -> np.ndarray:
        head, others = item
        return np.asarray(np.linalg.svd(left[head].T @ right[others], compute_uv=False).sum(axis=1))

    parts = list(map_in_order(norms, items))
    return np.concatenate(parts).reshape(len(left), len(right)) if parts else np.empty((len(left), len(right)))


Family: TypeAlias = Callable[[Maps, Maps | None, str, str], dict[str, Pairs]]

FAMILIES: Mapping[tuple[str, ...], Family] = {
    ("pk",): _projection_kernel,
    ("simple_cs", "cka_invariant"): _of_weights,
    ("cs",): _composition,
    ("cka",): _head_alignment,
    ("procrustes",): _head_procrustes,
    ("procrustes_invariant",): _residual_procrustes,
}
"""Scores that share a kernel, and what computes them.

Its arguments: the maps of a block, those of a later block (None: the same), the kinds of the sources and the targets.
"""
