"""Closest pair of a stack of spaces: the smallest angle of all pairs, with the squared overlaps of all.

Where only the closest pair's angle is wanted, most pairs need no eigenvalues. For the matrix ``A = G^T G`` of a pair
(``G = U^T V``), whose largest eigenvalue is the squared cosine of the smallest angle, traces of powers bound it,

    tr A^2p / tr A^p  <=  lambda_max^p  <=  (tr A^2p)^(1/2),

ever closer as p is doubled. Pairs whose upper bound is below another's lower bound drop out, so that after a few
squarings, which are matrix products, eigenvalues of a handful are left to compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from jaxtyping import Float, Int

from headspaces.devices import PAIR_BYTES, Array, to_numpy
from headspaces.geometry.angles import SINE_FROM, smallest_angles

PRODUCT_ROWS = 512
"""Rows of one product of bases: fewer waste less of the symmetric half, more make the product efficient."""

SQUARINGS = 6
"""Doublings of the power; the upper bound is then within ``d^(1/64)``, 8 % for d = 128."""

ROUNDING = {8: 1e-12, 4: 1e-5}
"""By bytes of the number: relative error of the bounds, by which they are widened."""


def pairs_within(
    bases: Float[Any, "head d_model d_head"], ranks: Int[np.ndarray, " head"]
) -> tuple[Float[np.ndarray, " pair"], float]:
    """Squared overlaps (PK) of all unordered pairs of a stack, and the smallest principal angle of all.

    Bases are orthonormal, numpy or torch; columns beyond a space's rank are zero. The overlaps of the pairs i < j stand
    by i, then j, in the order of ``numpy.triu_indices(n, 1)``; the angle is in degrees, NaN where no pair has two
    spaces that are not empty, and as exact as :func:`headspaces.geometry.angles.smallest_angles` in the arithmetic of
    the bases.
    """
    xp = array_namespace(bases)
    n, d_model, d_head = bases.shape
    squared = np.zeros((n, n))
    search = _Search(xp, bases)
    rows = xp.reshape(xp.matrix_transpose(bases), (n * d_head, d_model))
    pair_bytes = max(1, n * d_head**2 * bases.dtype.itemsize)
    step = max(1, min(PRODUCT_ROWS // d_head, PAIR_BYTES // pair_bytes))
    for start in range(0, n - 1, step):
        stop = min(start + step, n - 1)
        products = rows[start * d_head : stop * d_head, :] @ rows[(start + 1) * d_head :, :].T
        grams = xp.permute_dims(xp.reshape(products, (stop - start, d_head, -1, d_head)), (0, 2, 1, 3))
        # Row i of the block is head start + i, column j is head start + 1 + j.
        i, j = np.nonzero(np.arange(stop - start)[:, None] <= np.arange(n - 1 - start))
        grams = grams[_numbers(xp, i, bases), _numbers(xp, j, bases)]
        squared[start + i, start + 1 + j] = to_numpy(xp.sum(grams * grams, axis=(1, 2)))
        both = np.flatnonzero((ranks[start + i] > 0) & (ranks[start + 1 + j] > 0))
        search.add(_chosen(xp, grams, both), start + i[both], start + 1 + j[both])
    return squared[np.triu_indices(n, 1)], search.angle()


class _Search:
    """The pairs that may be the closest, by what is known so far of the squared cosines of their smallest angles."""

    def __init__(self, xp: Any, bases: Any) -> None:
        self._xp, self._bases = xp, bases
        self._slack = ROUNDING[bases.dtype.itemsize]
        self._best = -1.0
        self._solved: list[tuple[float, int, int]] = []

    def add(self, grams: Any, i: np.ndarray, j: np.ndarray) -> None:
        """Look for closer pairs among new ones, given the products of their bases."""
        if len(i) == 0:
            return
        xp = self._xp
        squares = xp.matrix_transpose(grams) @ grams
        alive = self._candidates(squares)
        eigenvalues = np.linalg.eigvalsh(to_numpy(_chosen(xp, squares, alive)).astype(np.float64))[:, -1]
        self._best = max(self._best, float(eigenvalues.max(initial=-1.0)))
        self._solved += zip(eigenvalues.tolist(), i[alive].tolist(), j[alive].tolist(), strict=True)

    def _candidates(self, squares: Any) -> np.ndarray:
        """Numbers of the pairs whose largest eigenvalue may be the largest of all."""
        xp = self._xp
        alive = np.arange(squares.shape[0])
        # A^p = exp(log_scale) power, where the trace of power is 1.
        power, log_scale = _unit_trace(xp, squares, xp.linalg.trace(squares))
        for p in 2 ** np.arange(SQUARINGS):
            trace = xp.sum(power * power, axis=(1, 2))
            with np.errstate(divide="ignore"):
                log_trace = np.log(to_numpy(trace).astype(np.float64))
            lower, upper = np.exp((log_scale + log_trace) / p), np.exp((log_scale + log_trace / 2) / p)
            self._best = max(self._best, float(lower.max()) * (1 - self._slack))
            kept = np.flatnonzero(upper * (1 + self._slack) >= self._best)
            alive, log_scale = alive[kept], log_scale[kept]
            if len(alive) <= 1:
                break
            power = _chosen(xp, power, kept)
            power, log_trace = _unit_trace(xp, power @ power, _chosen(xp, trace, kept))
            log_scale = 2 * log_scale + log_trace
        return alive

    def angle(self) -> float:
        """Smallest angle of all pairs that were added, in degrees."""
        if not self._solved:
            return float("nan")
        cosine = min(1.0, max(0.0, self._best)) ** 0.5
        if (radians := float(np.arccos(cosine))) >= SINE_FROM:
            return float(np.degrees(radians))
        # The cosine is flat here: of every pair that may be the closest the sine is taken.
        flat = np.cos(SINE_FROM) ** 2 * (1 - self._slack)
        near = [(i, j) for eigenvalue, i, j in self._solved if eigenvalue >= flat]
        return min(float(smallest_angles(self._double(i), self._double(j))[0, 0]) for i, j in near)

    def _double(self, head: int) -> np.ndarray:
        return to_numpy(self._bases[head : head + 1, :, :]).astype(np.float64)


def _numbers(xp: Any, numbers: Int[np.ndarray, " number"], like: Array) -> Array:
    """Put indices where the array is that they are for."""
    return xp.asarray(numbers, device=device(like))


def _chosen(xp: Any, array: Array, numbers: Int[np.ndarray, " number"]) -> Array:
    return xp.take(array, _numbers(xp, numbers, array), axis=0)


def _unit_trace(xp: Any, matrices: Any, trace: Any) -> tuple[Any, np.ndarray]:
    """Matrices divided by their traces, and the logarithms of these; a zero matrix stays, with minus infinity."""
    with np.errstate(divide="ignore"):
        logarithm = np.log(to_numpy(trace).astype(np.float64))
    return matrices / xp.where(trace > 0, trace, xp.ones_like(trace))[:, None, None], logarithm
