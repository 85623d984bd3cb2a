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
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise, product
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from headspaces.devices import GRAM_BYTES, Place, unmoved
from headspaces.geometry.heads import LayerHeads, fold, kv_heads_of
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.pairs import layer_overlaps
from headspaces.nulls.draws import orthonormalised
from headspaces.spaces import KINDS
from headspaces.threads import map_in_order

Pairs: TypeAlias = dict[str, Float[np.ndarray, "_source_layer _target_layer _source_head _target_head"]]
"""By source and target kind (``OQ``), a score of every pair; NaN where the target layer is earlier.

Inside a layer there are the pairs of equal kinds (``OO``), and NaN for others.
"""


@dataclass(frozen=True)
class Stacks:
    """Factors of the heads of some layers, all kinds in one array, so that any run of kinds is a part of it.

    Attributes
    ----------
    factors
        The heads of each layer, kind after kind.
    places
        Where each kind's heads are.
    place
        Puts factors where the kernel is to be computed.
    """

    factors: Float[np.ndarray, "layer head rows width"]
    places: Mapping[str, slice]
    place: Place = unmoved

    def __getitem__(self, kinds: str) -> Float[np.ndarray, "layer _head rows width"]:
        """Return the factors of one kind, or of kinds that follow each other."""
        return self.factors[:, self.places[kinds[0]].start : self.places[kinds[-1]].stop]

    @property
    def kinds(self) -> list[str]:
        """The kinds, in order."""
        return list(self.places)

    def with_factors(self, factors: Float[np.ndarray, "layer head _rows _width"]) -> Stacks:
        """Give the same heads other factors."""
        return replace(self, factors=factors)


def join_kinds(by_kind: Mapping[str, Float[np.ndarray, "layer _head rows width"]], place: Place = unmoved) -> Stacks:
    """Put the factors of several kinds into one array."""
    places = _places({kind: stack.shape[1] for kind, stack in by_kind.items()})
    return Stacks(np.concatenate(list(by_kind.values()), axis=1), places, place)


def _places(n_heads: Mapping[str, int]) -> dict[str, slice]:
    ends = pairwise(accumulate(n_heads.values(), initial=0))
    return {kind: slice(start, stop) for kind, (start, stop) in zip(n_heads, ends, strict=True)}


class Maps:
    """The maps of some layers, and what the scores make of them when they first need it.

    Parameters
    ----------
    layers
        Consecutive layers with all kinds.
    fold_pk
        Whether the bases are those of the folded maps.
    dtype
        Of the arithmetic.
    place
        Puts factors where the kernel is to be computed.
    """

    def __init__(self, layers: Sequence[LayerHeads], fold_pk: bool, dtype: str, place: Place = unmoved) -> None:
        self._norms = [(one.read_norm, one.write_norm) for one in layers]
        self._fold = fold_pk
        places = _places({kind: len(layers[0].factors[kind]) for kind in KINDS})
        shape = len(layers), places[KINDS[-1]].stop, *layers[0].factors[KINDS[0]].shape[1:]
        self.weights = Stacks(np.empty(shape, dtype), places, place)
        """``W_O`` and ``W_X^T``."""
        for own, one in zip(self.weights.factors, layers, strict=True):
            for kind, heads in places.items():
                own[heads] = one.factors[kind]

    @cached_property
    def bases(self) -> Stacks:
        """Orthonormal bases of the maps' spaces."""
        d_model, d_head = self.weights.factors.shape[2:]
        width = min(d_model, d_head)
        bases = np.empty((*self.weights.factors.shape[:2], d_model, width), self.weights.factors.dtype)

        def fill(place: tuple[int, str]) -> None:
            layer, kind = place
            heads = LayerHeads(layer, {kind: self.weights[kind][layer]}, *self._norms[layer])
            factors = fold(heads, kind) if self._fold else heads.factors[kind]
            bases[layer, self.weights.places[kind]] = orthonormalised(factors.astype(bases.dtype, copy=False))[0]

        list(map_in_order(fill, product(range(len(bases)), self.weights.kinds)))
        return self.weights.with_factors(bases)

    @cached_property
    def triangles(self) -> Stacks:
        """``R^T`` of ``W = Q R``: a head's map up to a rotation of the residual stream; rows are head dimensions."""

        def triangles(heads: np.ndarray) -> np.ndarray:
            return np.asarray(np.linalg.qr(heads, mode="r")).swapaxes(1, 2)

        return self.weights.with_factors(_layer_by_layer(triangles, self.weights.factors))

    def full_products(self, kinds: str) -> Stacks:
        """Factors of W_OV (as O writes and as V reads it) and of W_QK (as Q and as K reads it), by query head."""
        own = kv_heads_of(self.weights["O"].shape[1], self.weights["K"].shape[1])

        def by_query_head(stacks: Stacks, kind: str) -> np.ndarray:
            return stacks[kind][:, own] if kind in "KV" else stacks[kind]

        def product_with(kind: str, partner: str) -> np.ndarray:
            return _layer_by_layer(np.matmul, by_query_head(self.weights, kind), by_query_head(self.triangles, partner))

        partners = {"O": "V", "Q": "K", "K": "Q", "V": "O"}
        return join_kinds({kind: product_with(kind, partners[kind]) for kind in kinds}, self.weights.place)

    @property
    def centred_triangles(self) -> Stacks:
        """``H R^T``, whose operator on the head dimensions is that of ``H W^T``."""
        return self.triangles.with_factors(self.triangles.factors - self.triangles.factors.mean(axis=2, keepdims=True))


def _layer_by_layer(function: Callable[..., np.ndarray], *stacks: np.ndarray) -> np.ndarray:
    """Apply a function of the heads of one layer to all layers, on this process's threads."""
    return np.stack(list(map_in_order(lambda layer: function(*layer), zip(*stacks, strict=True))))


def _kernel(source: Stacks, target: Stacks | None, sources: str, targets: str) -> Pairs:
    """Kernel of the sources' heads with the targets', of the same layers or of another block's."""
    if target is not None:
        return _rectangle_kernel(source, target, sources, targets)
    by_kind = {kind: source[kind] for kind in source.kinds if kind in sources + targets}
    own = "".join(kind for kind in sources if kind in targets)
    found = layer_overlaps(by_kind, within=own, sources=sources, targets=targets, place=source.place)
    pairs: Pairs = {}
    for x, y in product(sources, targets):
        pairs[x + y] = found.across.get(x + y, np.full(_pairs_shape(source[x], source[y]), np.nan))
        if x == y:
            every = np.arange(len(source[x]))
            pairs[x + y][every, every] = found.within[x]
    return pairs


def _rectangle_kernel(source: Stacks, target: Stacks, sources: str, targets: str) -> Pairs:
    left, right = source[sources], target[targets]
    kernel = squared_overlaps(*(source.place(stack.reshape(-1, *stack.shape[2:])) for stack in (left, right)))
    pairs = kernel.reshape(*left.shape[:2], *right.shape[:2]).transpose(0, 2, 1, 3)
    rows, columns = (
        _places({kind: stacks[kind].shape[1] for kind in kinds})
        for stacks, kinds in ((source, sources), (target, targets))
    )
    return {x + y: pairs[:, :, rows[x], columns[y]].copy() for x in sources for y in targets}


def _pairs_shape(left: np.ndarray, right: np.ndarray) -> tuple[int, int, int, int]:
    return left.shape[0], right.shape[0], left.shape[1], right.shape[1]


def _projection_kernel(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    return {"pk": _kernel(source.bases, None if target is None else target.bases, sources, targets)}


def _of_weights(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    own, later = source.weights, (target or source).weights
    kernel = _kernel(own, None if target is None else later, sources, targets)
    roots = {pair: np.sqrt(values) for pair, values in kernel.items()}
    return {
        "simple_cs": _scaled(roots, _norms(own, sources), _norms(later, targets)),
        "cka_invariant": _scaled(kernel, _operator_norms(own, sources), _operator_norms(later, targets)),
    }


def _composition(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    """``||F^T G|| / (||F|| ||G||)`` of the full products, without a baseline (Elhage et al. 2021)."""
    if target is None:
        own = later = source.full_products(KINDS)
    else:
        own, later = source.full_products(sources), target.full_products(targets)
    kernel = _kernel(own, None if target is None else later, sources, targets)
    roots = {pair: np.sqrt(values) for pair, values in kernel.items()}
    return {"cs": _scaled(roots, _norms(own, sources), _norms(later, targets))}


def _head_alignment(source: Maps, target: Maps | None, sources: str, targets: str) -> dict[str, Pairs]:
    own = source.centred_triangles
    later = own if target is None else target.centred_triangles
    kernel = _kernel(own, None if target is None else later, sources, targets)
    return {"cka": _scaled(kernel, _operator_norms(own, sources), _operator_norms(later, targets))}


def _norms(stacks: Stacks, kinds: str) -> dict[str, Float[np.ndarray, "_layer _head"]]:
    return {kind: np.sqrt(np.einsum("lhij,lhij->lh", stacks[kind], stacks[kind])) for kind in kinds}


def _operator_norms(stacks: Stacks, kinds: str) -> dict[str, Float[np.ndarray, "_layer _head"]]:
    """``||F F^T|| = ||F^T F||``, of which the second is small."""
    grams = {kind: _layer_by_layer(np.matmul, stacks[kind].swapaxes(2, 3), stacks[kind]) for kind in kinds}
    return {kind: np.sqrt(np.sum(gram * gram, axis=(2, 3))) for kind, gram in grams.items()}


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
        pairs[x + y] = np.full(_pairs_shape(left, right), np.nan)
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
