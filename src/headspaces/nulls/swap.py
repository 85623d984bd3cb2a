"""The swap null model: a layer's directions, given to its heads anew, with the sum of all projections kept.

What degree-preserving edge swaps are for graphs, swaps of principal vectors are for subspaces. Two heads' bases
``U_i, U_j`` have principal vectors ``U_i W`` and ``U_j V``, where ``U_i^T U_j = W cos(theta) V^T``: vector k of one is
orthogonal to all of the other but its partner. Exchanging partners therefore leaves both bases orthonormal, and
``P_i + P_j`` what it was, and with it ``S``, the sum over all heads. ``docs/swap.md`` has the proofs: of the law that
this keeps, and of what a sample may be compared with.

Bases are changed as rows ``(head, d, D)``, which are contiguous. The products run where the bases are and in their own
arithmetic, the small decompositions on the CPU in float64.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace, device, is_numpy_namespace
from jaxtyping import Bool, Float, Int

from headspaces.devices import Array, to_numpy

SMALLEST_SQUARE = 1e-10
"""Squared cosine, over the largest, below which eigenvectors do not tell a partner from rounding."""


def swapped(
    bases: Float[Array, "head d_model d_head"], ranks: Int[np.ndarray, " head"], rng: np.random.Generator, sweeps: int
) -> Float[Array, "head d_model d_head"]:
    """Bases after some sweeps; a sweep exchanges principal vectors of every pair of heads once.

    Parameters
    ----------
    bases
        Orthonormal bases of one layer and kind, numpy or torch; columns beyond a head's rank are zero.
    ranks
        Their ranks. Where they differ, the larger space's principal vectors without a partner, which are orthogonal to
        all of the smaller one, stay. Heads of rank zero meet nobody.
    rng
        Gives the order of the pairs, uniform up to the naming of the heads and the order of the rounds, and for each
        pair of partners whether they are exchanged, with probability 1/2. As many numbers are drawn for every rank.
    sweeps
        Number of sweeps.

    Returns
    -------
    array
        A new stack of the same kind. The sum of the projections is the old one's to rounding, and so are the ranks.
    """
    xp = array_namespace(bases)
    rows = xp.asarray(xp.matrix_transpose(bases), copy=True)
    rows = np.ascontiguousarray(rows) if is_numpy_namespace(xp) else rows.contiguous()
    for _ in range(sweeps):
        for first, second in rounds(np.flatnonzero(ranks), rng):
            exchanged = rng.integers(0, 2, (len(first), rows.shape[1]), dtype=bool)
            _exchange(rows, ranks, first, second, exchanged)
    # One Newton step towards orthonormal rows: their defect, which is small, is squared.
    gram = rows @ xp.matrix_transpose(rows)
    rows = 1.5 * rows - 0.5 * (gram @ rows)
    return xp.matrix_transpose(rows)


def rounds(
    heads: Int[np.ndarray, " head"], rng: np.random.Generator
) -> Iterator[tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]]:
    """Pair the heads in rounds so that every head meets every other one once, in random order.

    The pairs of a round share no head, so that they can be exchanged together. The reverse of an order is as likely as
    the order, which makes a sweep reversible.
    """
    players = [*rng.permutation(heads).tolist(), *([None] if len(heads) % 2 else [])]
    half = len(players) // 2
    for turn in rng.permutation(max(0, len(players) - 1)).tolist():
        # The first player stays, the others move on by one place a round; whoever meets None pauses.
        circle = [*players[:1], *players[1 + turn :], *players[1 : 1 + turn]]
        pairs = [pair for pair in zip(circle[:half], circle[: half - 1 : -1], strict=True) if None not in pair]
        yield np.array([one for one, _ in pairs], int), np.array([other for _, other in pairs], int)


def _exchange(
    rows: Float[Array, "head d_head d_model"],
    ranks: Int[np.ndarray, " head"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    exchanged: Bool[np.ndarray, "pair d_head"],
) -> None:
    """Exchange the chosen principal vectors of disjoint pairs of heads, in place."""
    xp = array_namespace(rows)
    larger_first = ranks[first] > ranks[second]
    small, large = np.where(larger_first, second, first), np.where(larger_first, first, second)
    ranks_of_pairs = np.stack([ranks[small], ranks[large]], axis=1)
    for p, q in np.unique(ranks_of_pairs, axis=0).tolist():
        alike = np.flatnonzero((ranks_of_pairs == (p, q)).all(axis=1))
        pairs = list(zip(small[alike].tolist(), large[alike].tolist(), strict=True))
        grams = xp.stack([rows[i, :p, :] @ rows[j, :q, :].T for i, j in pairs])
        # Partners that stay come first, so that what is exchanged is one slice.
        left, right = _principal_rotations(to_numpy(grams), np.argsort(exchanged[alike, :p], axis=1, kind="stable"))
        n_kept = p - exchanged[alike, :p].sum(axis=1)
        for (i, j), W, V, k in zip(pairs, _like(grams, left), _like(grams, right), n_kept.tolist(), strict=True):
            X, Y = W @ rows[i, :p, :], V @ rows[j, :q, :]
            rows[i, :k, :], rows[i, k:p, :] = X[:k, :], Y[k:p, :]
            rows[j, :k, :], rows[j, k:p, :], rows[j, p:q, :] = Y[:k, :], X[k:, :], Y[p:, :]


def _like(array: Array, values: np.ndarray) -> Array:
    return array_namespace(array).asarray(values, dtype=array.dtype, device=device(array))


def _principal_rotations(
    grams: Float[np.ndarray, "pair p q"], order: Int[np.ndarray, "pair p"]
) -> tuple[Float[np.ndarray, "pair p p"], Float[np.ndarray, "pair q q"]]:
    """``W^T`` and ``V^T`` of the singular value decompositions ``W cos(theta) V^T``, the partners in the given order.

    Any choice among equal cosines is fine. In float64 by LAPACK: a GPU takes larger matrices one after the other.
    """
    rounded = grams.dtype == np.float32
    grams = grams.astype(np.float64)
    if not rounded or grams.shape[1] != grams.shape[2] or (found := _by_eigenvectors(grams)) is None:
        found = _by_singular_values(grams)
    left, right = found
    partners = np.take_along_axis(right, order[:, :, None], axis=1)
    return (
        np.take_along_axis(left.swapaxes(1, 2), order[:, :, None], axis=1),
        np.concatenate([partners, right[:, order.shape[1] :]], axis=1),
    )


def _by_singular_values(grams: Float[np.ndarray, "pair p q"]) -> tuple[np.ndarray, np.ndarray]:
    """``W`` and ``V^T``, cosines descending."""
    try:
        left, _, right = np.linalg.svd(grams)
    except np.linalg.LinAlgError:
        # The fast driver fails on rare matrices; the slower one does not.
        logging.getLogger(__name__).warning("gesdd did not converge, gesvd is used for %d pairs", len(grams))
        slow = [scipy.linalg.svd(one, lapack_driver="gesvd") for one in grams]
        left, right = np.stack([one[0] for one in slow]), np.stack([one[2] for one in slow])
    return left, right


def _by_eigenvectors(grams: Float[np.ndarray, "pair p p"]) -> tuple[np.ndarray, np.ndarray] | None:
    """Give the same in two thirds of the time from ``M M^T = W cos^2(theta) W^T``; None where a cosine is too small.

    Two partners are orthogonal to about the rounding of float64 over the smaller cosine: far below that of float32.
    """
    squares, left = np.linalg.eigh(grams @ grams.swapaxes(1, 2))
    if not (squares > SMALLEST_SQUARE * squares[:, -1:]).all():
        return None
    left, cosines = left[:, :, ::-1], np.sqrt(squares[:, ::-1])
    right = (left.swapaxes(1, 2) @ grams) / cosines[:, :, None]
    # One Newton step: the rows' defect is squared.
    return left, 1.5 * right - 0.5 * (right @ right.swapaxes(1, 2)) @ right
