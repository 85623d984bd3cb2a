"""Travel of head spaces between two checkpoints of one model: a head's overlap with itself, and the angle between."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def own_overlap(
    one: Float[np.ndarray, "*stack d_model d_head"],
    other: Float[np.ndarray, "*stack d_model d_head"],
    rank_one: Int[np.ndarray, "*stack"],
    rank_other: Int[np.ndarray, "*stack"],
) -> Float[np.ndarray, "*stack"]:
    """Overlap of every space with its counterpart, PK / min(rank, rank); NaN where one has dimension zero.

    Bases are orthonormal columns, zero beyond the rank.
    """
    squared = np.asarray(np.sum((one.swapaxes(-1, -2) @ other) ** 2, axis=(-1, -2), dtype=np.float64))
    smaller = np.minimum(rank_one, rank_other)
    return np.asarray(np.divide(squared, smaller, out=np.full(squared.shape, np.nan), where=smaller > 0))


def own_angle(
    one: Float[np.ndarray, "*stack d_model d_head"],
    other: Float[np.ndarray, "*stack d_model d_head"],
    rank_one: Int[np.ndarray, "*stack"],
    rank_other: Int[np.ndarray, "*stack"],
) -> Float[np.ndarray, "*stack"]:
    """Root mean square of the principal angles between every space and its counterpart, in degrees.

    That is the geodesic distance of the Grassmann manifold over the square root of the dimension: 0 for the same space,
    90 for orthogonal ones. NaN where one has dimension zero; of unequal ranks the smaller one's angles count.
    """
    # From cosines and from sines, each where it is exact: arccos alone cannot tell 1e-8 rad from 0.
    inner = one.swapaxes(-1, -2) @ other
    cosines = np.linalg.svd(inner, compute_uv=False)
    sines = np.linalg.svd(other - one @ inner, compute_uv=False)[..., ::-1]
    angles = np.arctan2(sines, cosines)
    width = one.shape[-1]
    for index in np.argwhere((rank_one < width) | (rank_other < width)):
        at = tuple(index)
        angles[at] = _of_lower_rank(one[at][:, : rank_one[at]], other[at][:, : rank_other[at]], width)
    return np.asarray(np.degrees(np.sqrt(np.mean(angles**2, axis=-1, dtype=np.float64))))


def _of_lower_rank(one: np.ndarray, other: np.ndarray, width: int) -> np.ndarray:
    """Principal angles of two spaces, scaled so that the mean square over the width is theirs."""
    from scipy.linalg import subspace_angles

    n = min(one.shape[1], other.shape[1])
    return np.full(width, np.sqrt(np.mean(subspace_angles(one, other) ** 2)) if n else np.nan)
