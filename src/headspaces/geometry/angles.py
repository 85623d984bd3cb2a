"""Smallest principal angles of pairs of spaces, exact from 0 to 90 degrees."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from jaxtyping import Float, Int

from headspaces.devices import GRAM_BYTES, Array, to_numpy
from headspaces.geometry.kernel import LEAST_CHUNKS, gram_matrices
from headspaces.threads import map_in_order

SINE_FROM = 1e-2
"""Below this angle (radian) the cosine no longer resolves it well, and the sine is computed instead."""


def smallest_angles(left: Float[Array, "n d_model a"], right: Float[Array, "m d_model b"]) -> Float[np.ndarray, "n m"]:
    """Smallest principal angle of every pair of spaces, in degrees.

    Parameters
    ----------
    left, right
        Orthonormal bases, numpy or torch; columns beyond a space's rank are zero. The same stack twice costs half.

    Returns
    -------
    array
        From 0 to 90 degrees; NaN where a space is empty. In float64 the error is below 1e-6 degrees everywhere, and
        about 1e-14 radian near zero.

    Notes
    -----
    The cosine is the largest singular value of ``U^T V``, taken as the root of the largest eigenvalue of its smaller
    square: the largest one loses nothing by squaring. Near zero the cosine is flat, and the angle is taken from the
    sine instead, the smallest singular value of ``V - U U^T V`` (Björck and Golub 1973), as
    ``scipy.linalg.subspace_angles`` does.

    The products are formed where the bases are, their eigenvalues by LAPACK on this process's threads: on a GPU torch
    takes matrices above 32 x 32 one after the other, at more than a millisecond each.
    """
    n, m, size, same = left.shape[0], right.shape[0], left.dtype.itemsize, left is right
    # Neither the products nor what they are made of may grow with the number of heads.
    width = max(1, min(GRAM_BYTES // max(1, right.shape[1] * right.shape[2] * size), -(-m // LEAST_CHUNKS)))
    step = max(1, GRAM_BYTES // max(1, left.shape[2] * max(left.shape[1], min(m, width) * right.shape[2]) * size))
    if same:
        # Rows meet the columns from their own first on: fewer rows, fewer pairs twice.
        step = min(step, -(-n // 8))
    rows_from = range(0, n, step)
    blocks = [(slice(i, i + step), slice(j, j + width)) for i in rows_from for j in range(i if same else 0, m, width)]
    # A GPU's memory holds one block's products at a time, whatever the number of threads.
    turn = nullcontext() if is_numpy_array(left) else threading.Lock()

    def angles(block: tuple[slice, slice]) -> np.ndarray:
        rows, columns = left[block[0]], right[block[1]]
        with turn:
            squares = to_numpy(_smaller_squares(gram_matrices(rows, columns)))
        cosines = np.sqrt(np.clip(np.linalg.eigvalsh(squares)[..., -1], 0.0, 1.0))
        radians = np.arccos(cosines)
        near = np.nonzero(radians < SINE_FROM)
        if near[0].size:
            radians[near] = _small_angles(to_numpy(rows), to_numpy(columns), *near)
        degrees: np.ndarray = np.degrees(radians)
        return degrees

    result = np.empty((n, m))
    for block, part in zip(blocks, map_in_order(angles, blocks), strict=True):
        result[block] = part
    if same:
        result = np.triu(result) + np.triu(result, 1).T
    result[np.add.outer(_ranks(left) == 0, _ranks(right) == 0)] = np.nan
    return result


def _smaller_squares(grams: Float[Array, "n m a b"]) -> Float[Array, "n m c c"]:
    a, b = grams.shape[2:]
    transposed = array_namespace(grams).matrix_transpose(grams)
    return grams @ transposed if a <= b else transposed @ grams


def _small_angles(left: np.ndarray, right: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Smallest angles (radian) of the given pairs by the sine; well-conditioned where they are small."""
    angles = np.empty(rows.size)
    left_ranks, right_ranks = _ranks(left), _ranks(right)
    step = max(1, GRAM_BYTES // (left.shape[1] * max(left.shape[2], right.shape[2]) * left.dtype.itemsize))
    for start in range(0, rows.size, step):
        i, j = rows[start : start + step], columns[start : start + step]
        # The sines of all angles come from the smaller of the two spaces; a zero column adds a zero in front.
        swap = left_ranks[i] < right_ranks[j]
        for chosen, big, small, ranks in (
            (~swap, left[i[~swap]], right[j[~swap]], right_ranks[j[~swap]]),
            (swap, right[j[swap]], left[i[swap]], left_ranks[i[swap]]),
        ):
            if not chosen.any():
                continue
            residual = small - big @ (big.swapaxes(1, 2) @ small)
            sines = np.linalg.svd(residual, compute_uv=False)[:, ::-1]
            smallest = np.take_along_axis(sines, (small.shape[2] - ranks)[:, None], axis=1)[:, 0]
            angles[start : start + step][chosen] = np.arcsin(np.clip(smallest, 0.0, 1.0))
    return angles


def _ranks(bases: Float[Array, "head d_model d_head"]) -> Int[np.ndarray, " head"]:
    ranks: np.ndarray = to_numpy(array_namespace(bases).any(bases != 0, axis=1)).sum(axis=1)
    return ranks
