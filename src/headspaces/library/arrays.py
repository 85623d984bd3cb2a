"""The kernel on plain arrays, numpy's or torch's: bases, overlaps, principal angles.

What comes in as a tensor goes out as one, on its own device; everything else is numpy's. The arithmetic is float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array
from jaxtyping import Float

from headspaces.errors import InputError
from headspaces.geometry import bases as geometry
from headspaces.geometry.bases import RANK_RTOL
from headspaces.geometry.kernel import squared_overlaps

ArrayLike: TypeAlias = Any
"""A numpy array, a torch tensor, or nested lists."""

ORTHONORMAL_ATOL = {8: 1e-6, 4: 1e-3, 2: 3e-2}
"""By bytes of the numbers: how far the products of a basis' columns may be from 0 and 1."""


class Bases(NamedTuple):
    """Bases of one space, or of a stack; what :func:`orthonormal_bases` gives."""

    basis: Any
    singular_values: Any
    rank: Any


def orthonormal_bases(factors: ArrayLike, *, rank_rtol: float = RANK_RTOL) -> Bases:
    """Orthonormal bases of the column spaces of matrices.

    Parameters
    ----------
    factors
        ``(d_model, d_head)``, or a stack ``(head, d_model, d_head)``: a head's map to the residual stream, ``W_O`` or
        the transpose of ``W_Q``, ``W_K``, ``W_V``. Numpy or torch, any real type.
    rank_rtol
        Singular values above this part of the largest count towards the rank.

    Returns
    -------
    Bases
        ``basis``, shaped as the factors (no wider than ``d_model``): orthonormal columns, the most weighted direction
        first, zero beyond the rank; ``singular_values``, descending; ``rank``. No units.

    Raises
    ------
    InputError
        If the array has other than two or three axes, holds a NaN, an infinity or complex numbers, or ``rank_rtol`` is
        not from 0 to below 1.

    Notes
    -----
    Left singular vectors (RW 5.1). A zero map has rank 0 and a zero basis, which overlaps nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> found = hs.orthonormal_bases(np.array([[3.0, 6.0], [0.0, 0.0], [4.0, 8.0]]))
    >>> int(found.rank), np.abs(found.basis[:, 0]).round(6).tolist()
    (1, [0.6, 0.0, 0.8])
    """
    stack = _stack(factors, "factors")
    if not 0 <= rank_rtol < 1:
        raise InputError(f"rank_rtol is {rank_rtol}, expected a number from 0 to below 1")
    found = geometry.orthonormal_bases(stack, rank_rtol)
    parts = (found.basis, found.singular_values, found.rank)
    return Bases(*(_like(part[0] if np.ndim(factors) == 2 else part, factors) for part in parts))


def projection_kernel(U: ArrayLike, V: ArrayLike) -> Any:
    """Projection kernel of two spaces, ``||U^T V||_F^2``: the sum of the squared cosines of their principal angles.

    Parameters
    ----------
    U, V
        Orthonormal bases ``(d_model, a)`` and ``(d_model, b)``, or stacks of them ``(n, d_model, a)`` and
        ``(m, d_model, b)``; columns beyond a space's rank are zero, as :func:`orthonormal_bases` gives them.

    Returns
    -------
    float or array
        From 0 to the smaller rank, but for rounding; ``(n, m)`` where a stack came in, one space counting as a stack
        of one. No units.

    Raises
    ------
    InputError
        If the arrays do not fit, or columns are neither orthonormal nor zero.

    Notes
    -----
    PK, section 3; RW 4.2, whose rho is this over the smaller rank. Two exact algorithms, the cheaper is taken (see
    :func:`headspaces.geometry.kernel.squared_overlaps`).

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> axes = np.eye(3)
    >>> hs.projection_kernel(axes[:, :2], axes[:, 1:])
    1.0
    """
    left, right = _bases(U, "U"), _bases(V, "V")
    _check_stream(left, right)
    values = squared_overlaps(left, right)
    if np.ndim(U) == 2 and np.ndim(V) == 2:
        return float(values[0, 0])
    return _like(values, U)


def principal_angles(U: ArrayLike, V: ArrayLike) -> Any:
    """All principal angles of two spaces.

    Parameters
    ----------
    U, V
        Orthonormal bases as for :func:`projection_kernel`.

    Returns
    -------
    array
        Degrees from 0 to 90, smallest first: ``(c,)`` with c the smaller number of columns, ``(n, m, c)`` where a stack
        came in; NaN beyond the smaller rank of a pair.

    Raises
    ------
    InputError
        If the arrays do not fit, or columns are neither orthonormal nor zero.

    Notes
    -----
    Cosines above 45 degrees, sines below, each where it is exact (Björck and Golub 1973; Knyazev and Argentati 2002),
    as ``scipy.linalg.subspace_angles`` does, which gives radians, largest first.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> axes = np.eye(4)
    >>> hs.principal_angles(axes[:, :2], axes[:, 1:3]).tolist()
    [0.0, 90.0]
    """
    left, right = _bases(U, "U"), _bases(V, "V")
    _check_stream(left, right)
    angles = np.full((len(left), len(right), min(left.shape[2], right.shape[2])), np.nan)
    for i, j in np.ndindex(angles.shape[:2]):
        found = _pair_angles(_full_rank(left[i]), _full_rank(right[j]))
        angles[i, j, : len(found)] = found
    return _like(angles[0, 0] if np.ndim(U) == np.ndim(V) == 2 else angles, U)


def _pair_angles(
    one: Float[np.ndarray, "d_model a"], other: Float[np.ndarray, "d_model b"]
) -> Float[np.ndarray, " angle"]:
    """Principal angles of two spaces of full rank, in degrees, ascending."""
    wide, narrow = (one, other) if one.shape[1] >= other.shape[1] else (other, one)
    if narrow.shape[1] == 0:
        return np.empty(0)
    products = wide.T @ narrow
    cosines = np.linalg.svd(products, compute_uv=False)
    sines = np.linalg.svd(narrow - wide @ products, compute_uv=False)[::-1]
    by_sine = np.arcsin(np.clip(sines, 0.0, 1.0))
    radians = np.where(cosines**2 >= 0.5, by_sine, np.arccos(np.clip(cosines, 0.0, 1.0)))
    return np.asarray(np.degrees(radians))


def _full_rank(basis: Float[np.ndarray, "d_model d"]) -> Float[np.ndarray, "d_model rank"]:
    return basis[:, np.any(basis != 0, axis=0)]


def _stack(array: ArrayLike, name: str) -> Float[np.ndarray, "head d_model d_head"]:
    """Give an array of one or many matrices as a stack in float64."""
    if array.is_complex() if hasattr(array, "is_complex") else np.iscomplexobj(array):
        raise InputError(f"{name}: holds complex numbers; expected real ones")
    values = np.asarray(array.detach().cpu().double().numpy() if hasattr(array, "detach") else array, dtype=np.float64)
    if values.ndim not in (2, 3) or 0 in values.shape[-2:]:
        raise InputError(
            f"{name}: expected (d_model, d_head) or (head, d_model, d_head), got the shape {tuple(values.shape)}"
        )
    if not np.isfinite(values).all():
        raise InputError(f"{name}: holds NaN or infinite values")
    return np.asarray(values if values.ndim == 3 else values[None])


def _bases(array: ArrayLike, name: str) -> Float[np.ndarray, "head d_model d_head"]:
    stack = _stack(array, name)
    grams = stack.swapaxes(1, 2) @ stack
    expected = np.zeros_like(grams)
    diagonal = np.arange(grams.shape[1])
    expected[:, diagonal, diagonal] = np.any(stack != 0, axis=1)
    error = float(np.abs(grams - expected).max(initial=0.0))
    size = getattr(getattr(array, "dtype", None), "itemsize", 8)
    if error > ORTHONORMAL_ATOL.get(size, ORTHONORMAL_ATOL[8]):
        raise InputError(
            f"{name}: expected orthonormal columns, their products are off by {error:.2g}; "
            "headspaces.orthonormal_bases(…).basis makes them so"
        )
    return stack


def _check_stream(left: np.ndarray, right: np.ndarray) -> None:
    if left.shape[1] != right.shape[1]:
        raise InputError(f"U lies in {left.shape[1]} dimensions, V in {right.shape[1]}; expected one residual stream")


def _like(values: Any, given: ArrayLike) -> Any:
    """Give a result as the input came: a tensor for a tensor."""
    if not is_torch_array(given):
        return values
    return array_namespace(given).asarray(np.ascontiguousarray(values), device=device(given))
