"""Orthonormal bases of head spaces, their ranks, and the direct sums of a layer (RW sections 3 and 4.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int
from scipy.sparse.linalg import LinearOperator, eigsh

from headspaces.geometry.heads import LayerHeads, fold
from headspaces.geometry.rounding import directions_within_rounding, without_rounding
from headspaces.threads import map_in_order

RANK_RTOL = 1e-6
"""Singular values above this part of the largest count towards the rank (RW 5.1)."""


@dataclass(frozen=True)
class Bases:
    """Orthonormal bases of a stack of spaces.

    Attributes
    ----------
    basis
        ``(head, d_model, d_head)``; the columns beyond a head's rank are zero, so that they change no overlap.
    singular_values
        ``(head, d_head)`` of the factors, descending.
    rank
        ``(head,)`` numerical rank.
    """

    basis: Float[np.ndarray, "head d_model d_head"]
    singular_values: Float[np.ndarray, "head d_head"]
    rank: Int[np.ndarray, " head"]


def orthonormal_bases(factors: Float[np.ndarray, "head d_model d_head"], rtol: float = RANK_RTOL) -> Bases:
    """Orthonormal bases of the column spaces of a stack of factors.

    The bases are left singular vectors: the first columns are the directions that the map weights most. A head wider
    than the residual stream keeps ``d_model`` columns at most.
    """
    basis, singular = _left_singular_vectors(factors)
    kept = (singular > rtol * singular[:, :1]) & (singular[:, :1] > 0)
    return Bases(basis * kept[:, None, :], singular, kept.sum(axis=1))


def _left_singular_vectors(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # A tall factor's singular vectors are those of its small triangular factor, rotated.
    tall = factors.shape[1] > factors.shape[2]
    rotation, small = np.linalg.qr(factors) if tall else (None, factors)
    # Scaling by the largest entry keeps squares of 1e30 and 1e-30 inside the range of numbers.
    scale = np.abs(small).max(axis=(1, 2), keepdims=True)
    scale[scale == 0] = 1
    try:
        left, singular, _ = np.linalg.svd(small / scale, full_matrices=False)
    except np.linalg.LinAlgError:
        # The fast driver fails on rare matrices; the slower one does not.
        logging.getLogger(__name__).warning("gesdd did not converge, gesvd is used for %d heads", len(small))
        slow = [scipy.linalg.svd(one, full_matrices=False, lapack_driver="gesvd") for one in small / scale]
        left, singular = np.stack([one[0] for one in slow]), np.stack([one[1] for one in slow])
    return (rotation @ left if rotation is not None else left), singular * scale[:, :, 0]


@dataclass(frozen=True)
class DirectSum:
    """Distance of the spaces of one layer and kind from a direct sum (RW 4.1, 5.1 and table 2).

    Attributes
    ----------
    rank
        Dimension of the sum of the spaces.
    deficiency
        Sum of the spaces' ranks less ``rank``: 0 for a direct sum.
    lambda_min
        Smallest eigenvalue of ``S = sum P_i`` on the residual stream; 0 where the spaces cannot span it.
    condition
        How near the edge the rank is: of the stacked bases' singular values the one that is nearest to the tolerance,
        divided by the largest. For a direct sum the smallest value by the largest.
    """

    rank: int
    deficiency: int
    lambda_min: float
    condition: float


def direct_sum(bases: Bases, rtol: float = RANK_RTOL) -> DirectSum:
    """Rank, deficiency and lambda_min of the sum of a layer's spaces.

    ``S = B B^T`` for the stacked bases ``B``, so lambda_min is the square of B's smallest singular value; an eigenvalue
    solver on S would lose it, since it is 1e-10 and less.
    """
    stacked = np.concatenate([one[:, :rank] for one, rank in zip(bases.basis, bases.rank, strict=True)], axis=1)
    d_model, width = stacked.shape
    if width == 0:
        return DirectSum(0, 0, 0.0, 0.0)
    extremes = _spanning_extremes(stacked, rtol) if width > d_model else None
    if extremes is None:
        triangular: np.ndarray = np.linalg.qr(stacked if width <= d_model else stacked.T, mode="r")  # type: ignore[assignment]
        extremes = _extreme_singular_values(triangular)
    if extremes is not None and extremes[0] > rtol * extremes[1]:
        rank, smallest, condition = min(stacked.shape), extremes[0], extremes[0] / extremes[1]
    else:
        singular = np.linalg.svd(triangular, compute_uv=False)
        rank, smallest = int(np.sum(singular > rtol * singular[0])), float(singular[-1])
        ratios = np.maximum(singular / singular[0], np.finfo(float).tiny)
        condition = float(ratios[np.argmin(np.abs(np.log(ratios / rtol)))])
    return DirectSum(rank, width - rank, smallest**2 if width >= d_model else 0.0, condition)


@lru_cache(maxsize=64)
def random_condition(n_heads: int, d_model: int, d_head: int) -> float:
    """:attr:`DirectSum.condition` of heads of random directions: the median of three draws, always the same."""
    rng = np.random.default_rng([n_heads, d_model, d_head])
    drawn = (np.linalg.qr(rng.standard_normal((n_heads, d_model, min(d_head, d_model))))[0] for _ in range(3))
    sizes = np.zeros((n_heads, min(d_head, d_model)))
    return float(
        np.median([direct_sum(Bases(basis, sizes, np.full(n_heads, basis.shape[2]))).condition for basis in drawn])
    )


def _spanning_extremes(stacked: Float[np.ndarray, "d_model width"], rtol: float) -> tuple[float, float] | None:
    """Smallest and largest singular value of more directions than dimensions, from ``S``; None where S may lose one.

    A third of a QR decomposition's time. S squares the condition number, so that the relative error of the smallest
    value is the rounding unit times that square: below 1e-11 where this is used.
    """
    try:
        extremes = _extreme_singular_values(np.ascontiguousarray(np.linalg.cholesky(stacked @ stacked.T).T))
    except np.linalg.LinAlgError:
        return None
    return extremes if extremes is not None and extremes[0] > max(1e-2, rtol) * extremes[1] else None


def _extreme_singular_values(triangular: np.ndarray) -> tuple[float, float] | None:
    """Smallest and, roughly, largest singular value of a triangular matrix by Lanczos; None where it may be singular.

    A full singular value decomposition costs 20 times as much at width 3584. Inverse iteration with backward stable
    triangular solves is as exact: the absolute error of the smallest value is the rounding unit times the largest.
    """
    size = triangular.shape[0]
    diagonal = np.abs(np.diag(triangular))
    if size < 256 or diagonal.min() < 1e-9 * diagonal.max():
        return None
    start = np.random.default_rng(0).standard_normal(size)

    def product(x: np.ndarray) -> np.ndarray:
        return np.asarray(triangular.T @ (triangular @ x))

    def inverse(x: np.ndarray) -> np.ndarray:
        half = scipy.linalg.solve_triangular(triangular, x, trans="T", check_finite=False)
        return np.asarray(scipy.linalg.solve_triangular(triangular, half, check_finite=False))

    def extreme(apply: Callable[[np.ndarray], np.ndarray], tolerance: float) -> float:
        operator = LinearOperator((size, size), matvec=apply, dtype=triangular.dtype)
        return float(eigsh(operator, k=1, v0=start, tol=tolerance, return_eigenvectors=False)[0])

    # The largest value only says what counts as zero beside it.
    largest, inverse_smallest = extreme(product, 1e-3), extreme(inverse, 0.0)
    return inverse_smallest**-0.5, largest**0.5


def block_bases(
    layers: Iterable[LayerHeads],
    *,
    fold_norms: bool,
    rtol: float = RANK_RTOL,
    dtype: str = "float64",
    leave_out_rounding: bool = False,
) -> dict[str, np.ndarray]:
    """Bases, ranks and direct sums of consecutive layers, as the bases file holds them.

    Parameters
    ----------
    layers
        Heads of the layers.
    fold_norms
        Whether the norms' linear part belongs to the spaces (RW section 2); the bare weights otherwise.
    rtol
        Relative tolerance of the ranks.
    dtype
        Of the stored bases. The arithmetic is float64.
    leave_out_rounding
        Whether directions that the storage's rounding may have made are left out of the spaces.

    Returns
    -------
    dict
        ========================== ========================== ======= ==========================================
        field                      dimensions                 dtype   meaning
        ========================== ========================== ======= ==========================================
        ``{X}/basis``              layer, head, d_model, d    `dtype` orthonormal columns, zero beyond the rank
        ``{X}/singular_values``    layer, head, d             float64 of the head's map, descending
        ``rank/{X}``               layer, head                int64   numerical rank
        ``direct_sum/{X}/rank``    layer                      int64   dimension of the sum of the layer's spaces
        ``…/deficiency``           layer                      int64   sum of the ranks less that dimension
        ``…/lambda_min``           layer                      float64 see :class:`DirectSum`
        ``…/condition``            layer                      float64 see :class:`DirectSum`
        ``within_rounding/{X}``    layer, head                int64   directions that the rank counts, or would if
                                                                      they were not left out, and that the storage's
                                                                      rounding may have made; only where the layers
                                                                      say their types
        ========================== ========================== ======= ==========================================
    """

    def spaces(task: tuple[LayerHeads, str]) -> dict[str, np.ndarray]:
        stored, kind = task
        layer = replace(stored, factors={kind: stored.factors[kind]})
        layer = without_rounding(layer) if leave_out_rounding else layer
        bases = orthonormal_bases(fold(layer, kind) if fold_norms else layer.factors[kind], rtol)
        total = direct_sum(bases, rtol)
        found = {
            f"{kind}/basis": bases.basis.astype(dtype, copy=False),
            f"{kind}/singular_values": bases.singular_values,
            f"rank/{kind}": bases.rank,
            f"direct_sum/{kind}/rank": np.array(total.rank),
            f"direct_sum/{kind}/deficiency": np.array(total.deficiency),
            f"direct_sum/{kind}/lambda_min": np.array(total.lambda_min),
            f"direct_sum/{kind}/condition": np.array(total.condition),
        }
        if type_ := stored.dtypes.get(kind):
            found[f"within_rounding/{kind}"] = directions_within_rounding(stored.factors[kind], kind, type_, rtol)
        return found

    arrays: dict[str, list[np.ndarray]] = {}
    for part in map_in_order(spaces, ((layer, kind) for layer in layers for kind in layer.factors)):
        for name, array in part.items():
            arrays.setdefault(name, []).append(array)
    return {name: np.stack(arrays.pop(name)) for name in list(arrays)}
