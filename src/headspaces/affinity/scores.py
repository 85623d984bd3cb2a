"""Scores between two heads' maps, those that PK compares.

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

Procrustes similarity has the nuclear norm ``2 ||F^T G||_*`` instead of the kernel and ``||F||^2 + ||G||^2`` below it.

PK takes the head dimensions as the samples of linear CKA and Procrustes (``cka``, ``procrustes``): dimension k of one
head is matched with dimension k of the other, so they depend on the arbitrary basis inside each head and do not measure
overlap in the residual stream. With the residual coordinates as samples (``…_invariant``) they do, and depend on no
basis: nothing is centred there, since a mean over residual coordinates would depend on the stream's basis.

Weights are unfolded, as in PK; ``fold_pk`` folds the norms into the spaces of ``pk``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from headspaces.affinity.maps import Maps, Stacks, layer_by_layer
from headspaces.devices import GRAM_BYTES
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.pairs import kind_columns, layer_overlaps
from headspaces.spaces import KINDS
from headspaces.threads import map_in_order

Pairs: TypeAlias = dict[str, Float[np.ndarray, "_source_layer _target_layer _source_head _target_head"]]
"""By source and target kind (``OQ``), a score of every pair; NaN where the target layer is earlier.

Inside a layer there are the pairs of equal kinds (``OO``), and NaN for others.
"""


def _kernel(source: Stacks, target: Stacks, sources: str, targets: str) -> Pairs:
    """Kernel of the sources' heads with the targets', of the same layers or of another block's."""
    if target is not source:
        return _rectangle_kernel(source, target, sources, targets)
    by_kind = {kind: source[kind] for kind in source.kinds if kind in sources + targets}
    both = "".join(kind for kind in sources if kind in targets)
    overlaps = layer_overlaps(by_kind, within=both, sources=sources, targets=targets, to_device=source.to_device)
    pairs: Pairs = {}
    for x, y in product(sources, targets):
        pairs[x + y] = overlaps.across.get(x + y, np.full(_pairs_shape(source[x], source[y]), np.nan))
        if x == y:
            every = np.arange(len(source[x]))
            pairs[x + y][every, every] = overlaps.within[x]
    return pairs


def _rectangle_kernel(source: Stacks, target: Stacks, sources: str, targets: str) -> Pairs:
    left, right = source[sources], target[targets]
    kernel = squared_overlaps(*(source.to_device(stack.reshape(-1, *stack.shape[2:])) for stack in (left, right)))
    pairs = kernel.reshape(*left.shape[:2], *right.shape[:2]).transpose(0, 2, 1, 3)
    rows, columns = (
        kind_columns({kind: stacks[kind].shape[1] for kind in kinds})
        for stacks, kinds in ((source, sources), (target, targets))
    )
    return {x + y: pairs[:, :, rows[x], columns[y]].copy() for x in sources for y in targets}


def _pairs_shape(left: np.ndarray, right: np.ndarray) -> tuple[int, int, int, int]:
    return left.shape[0], right.shape[0], left.shape[1], right.shape[1]


def _projection_kernel(source: Maps, target: Maps, sources: str, targets: str) -> dict[str, Pairs]:
    return {"pk": _kernel(source.bases, target.bases, sources, targets)}


def _of_weights(source: Maps, target: Maps, sources: str, targets: str) -> dict[str, Pairs]:
    left, right = source.weights, target.weights
    kernel = _kernel(left, right, sources, targets)
    roots = {pair: np.sqrt(values) for pair, values in kernel.items()}
    return {
        "simple_cs": _scaled(roots, _norms(left, sources), _norms(right, targets)),
        "cka_invariant": _scaled(kernel, _operator_norms(left, sources), _operator_norms(right, targets)),
    }


def _composition(source: Maps, target: Maps, sources: str, targets: str) -> dict[str, Pairs]:
    """``||F^T G|| / (||F|| ||G||)`` of the full products, without a baseline (Elhage et al. 2021)."""
    if target is source:
        left = right = source.full_products(KINDS)
    else:
        left, right = source.full_products(sources), target.full_products(targets)
    roots = {pair: np.sqrt(values) for pair, values in _kernel(left, right, sources, targets).items()}
    return {"cs": _scaled(roots, _norms(left, sources), _norms(right, targets))}


def _head_alignment(source: Maps, target: Maps, sources: str, targets: str) -> dict[str, Pairs]:
    left = source.centred_triangles
    right = left if target is source else target.centred_triangles
    kernel = _kernel(left, right, sources, targets)
    return {"cka": _scaled(kernel, _operator_norms(left, sources), _operator_norms(right, targets))}


def _norms(stacks: Stacks, kinds: str) -> dict[str, Float[np.ndarray, "_layer _head"]]:
    return {kind: np.sqrt(np.einsum("lhij,lhij->lh", stacks[kind], stacks[kind])) for kind in kinds}


def _operator_norms(stacks: Stacks, kinds: str) -> dict[str, Float[np.ndarray, "_layer _head"]]:
    """``||F F^T|| = ||F^T F||``, of which the second is small."""
    grams = {kind: layer_by_layer(np.matmul, stacks[kind].swapaxes(2, 3), stacks[kind]) for kind in kinds}
    return {kind: np.sqrt(np.sum(gram * gram, axis=(2, 3))) for kind, gram in grams.items()}


def _scaled(pairs: Pairs, left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> Pairs:
    """Divide by the product of both heads' norms."""
    return {
        pair: _ratio(values, left[pair[0]][:, None, :, None] * right[pair[1]][None, :, None, :])
        for pair, values in pairs.items()
    }


def _ratio(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.divide(values, scale, out=np.full(values.shape, np.nan), where=scale > 0)
    return ratio


def _head_procrustes(source: Maps, target: Maps, sources: str, targets: str) -> dict[str, Pairs]:
    # ||W_a W_b^T||_* = ||R_a R_b^T||_*: rotations do not change a nuclear norm.
    return {"procrustes": _procrustes(source.triangles, target.triangles, sources, targets)}


def _residual_procrustes(source: Maps, target: Maps, sources: str, targets: str) -> dict[str, Pairs]:
    return {"procrustes_invariant": _procrustes(source.weights, target.weights, sources, targets)}


def _procrustes(source: Stacks, target: Stacks, sources: str, targets: str) -> Pairs:
    """``2 ||F^T G||_* / (||F||^2 + ||G||^2) = 1 - min_T ||F - G T||^2 / (||F||^2 + ||G||^2)`` over orthogonal T."""
    pairs: Pairs = {}
    for x, y in product(sources, targets):
        pairs[x + y] = np.full(_pairs_shape(source[x], target[y]), np.nan)
        for layer, left in enumerate(source[x]):
            first = 0 if target is not source else layer if x == y else layer + 1
            right = target[y][first:].reshape(-1, *target[y].shape[2:])
            sizes = np.add.outer(np.sum(left * left, axis=(1, 2)), np.sum(right * right, axis=(1, 2)))
            similarities = _ratio(2 * nuclear_norms(left, right), sizes)
            pairs[x + y][layer, first:] = similarities.reshape(len(left), -1, target[y].shape[1]).swapaxes(0, 1)
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


Family: TypeAlias = Callable[[Maps, Maps, str, str], dict[str, Pairs]]

FAMILIES: Mapping[tuple[str, ...], Family] = {
    ("pk",): _projection_kernel,
    ("simple_cs", "cka_invariant"): _of_weights,
    ("cs",): _composition,
    ("cka",): _head_alignment,
    ("procrustes",): _head_procrustes,
    ("procrustes_invariant",): _residual_procrustes,
}
"""Scores that share a kernel, and what computes them.

Its arguments: the maps of a block, those of a later block or the same, the kinds of the sources and the targets.
"""
