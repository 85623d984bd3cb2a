"""Rounding of stored weights: which of a head's directions the storage's number type may have made.

Weights in bfloat16 or in a quantised type are rounded, and a factor of exact rank 8 has 16 singular values above any
small tolerance once it is stored. Errors of rounding are nearly independent of one another and uniform in their step. A
singular value below the spectral norm that such errors have may be rounding alone. This is not a tolerance at the
type's precision: a spectrum that decays over three orders is kept in bfloat16.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads

_FLOATS = {
    "F64": (53, -1074), "F32": (24, -149), "F16": (11, -24), "BF16": (8, -133), "F8_E4M3": (4, -1074),
    "F8_E5M2": (3, -1074),
}  # fmt: skip
"""Bits of the fraction, the hidden one counted, and exponent of the smallest step (8-bit floats have scales)."""

_SYMMETRIC = {"Q8_0": (32, 127), "Q4_0": (32, 8), "Q5_0": (32, 16), "Q3_K": (16, 4), "Q6_K": (16, 32)}
_OFFSET = {"Q4_1": (32, 15), "Q5_1": (32, 31), "Q2_K": (16, 3), "Q4_K": (32, 15), "Q5_K": (32, 31)}
"""Of the ggml types, weights that share a scale, and steps from zero or from the smallest to the largest of them."""

MARGIN = 1.15
"""By how much the norm of rounding exceeds its estimate at most: 1.14 in 64 x 16 factors, 1.03 from 256 x 32 on."""

UNKNOWN = -1
"""Count where the rounding of a type is not known."""


def directions_within_rounding(
    factors: Float[np.ndarray, "head d_model d_head"], kind: str, dtype: str, rtol: float
) -> Int[np.ndarray, " head"]:
    """Count the directions of every head that its rank counts and that may be rounding alone.

    Parameters
    ----------
    factors
        As they are stored, without any norm.
    kind
        ``O``, ``Q``, ``K`` or ``V``: quantised types share scales along stored rows, which run across the heads of O.
    dtype
        Type of the stored weights, as :class:`~headspaces.weights.headers.TensorHeader` names it.
    rtol
        Relative tolerance of the ranks.

    Returns
    -------
    Counts; :data:`UNKNOWN` where the type's rounding is not known.
    """
    steps = rounding_steps(factors, kind, dtype)
    if steps is None:
        return np.full(len(factors), UNKNOWN)
    bounds = rounding_norms(steps)
    return np.array([_count(*head, rtol) for head in zip(factors, steps, bounds, strict=True)], dtype=np.int64)


def without_rounding(heads: LayerHeads) -> LayerHeads:
    """Heads without the directions that may be rounding alone: each map's nearest of the rank that is left.

    Raises
    ------
    InputError
        If the rounding of a stored type is not known.
    """
    factors = dict(heads.factors)
    for kind, stack in heads.factors.items():
        dtype = heads.dtypes.get(kind, "an unknown type")
        if (steps := rounding_steps(stack, kind, dtype)) is None:
            raise InputError(
                f"layer {heads.layer}: how weights of {dtype} are rounded is not known, so leave_out_rounding cannot "
                f"leave directions of {kind} out; set it to false, or take the checkpoint in another type"
            )
        bounds = rounding_norms(steps)
        kept = [directions_beyond_rounding(*head) for head in zip(stack, steps, bounds, strict=True)]
        factors[kind] = np.stack([_nearest(*head) for head in zip(stack, kept, strict=True)])
    return replace(heads, factors=factors, dtypes={})


def _nearest(factor: Float[np.ndarray, "d_model d_head"], rank: int) -> Float[np.ndarray, "d_model d_head"]:
    """Map of a rank that is nearest to a factor."""
    if rank >= min(factor.shape):
        return factor
    right = np.linalg.svd(np.linalg.qr(factor, mode="r"))[2][:rank]
    return np.asarray(factor @ right.T @ right)


def _count(factor: Float[np.ndarray, "d_model d_head"], steps: np.ndarray, bound: float, rtol: float) -> int:
    """Count one head's directions that its rank counts and that are within rounding."""
    # The largest singular value is at least the root mean square of all.
    if MARGIN * bound < rtol * np.linalg.norm(factor) / min(factor.shape) ** 0.5:
        return 0
    singular = _singular_values(factor)
    return max(0, int(np.sum(singular > rtol * singular[0])) - directions_beyond_rounding(factor, steps, bound))


def directions_beyond_rounding(
    factor: Float[np.ndarray, "d_model d_head"], steps: Float[np.ndarray, "d_model d_head"], bound: float
) -> int:
    """Count the fewest directions of one head whose remainder may be rounding.

    ``steps`` are those of :func:`rounding_steps`, ``bound`` that of :func:`rounding_norms`, which spares most heads the
    draws.
    """
    singular = _singular_values(factor)
    if singular[-1] > MARGIN * bound:
        return len(singular)
    kept = np.arange(len(singular))
    # Errors outside of the directions that are kept: a smaller matrix of the same entries.
    rows, columns = factor.shape
    smaller = (np.sqrt(rows - kept) + np.sqrt(columns - kept)) / (rows**0.5 + columns**0.5)
    rounding = singular < MARGIN * drawn_norm(steps) * smaller
    return int(np.argmax(rounding)) if rounding.any() else len(singular)


def _singular_values(factor: Float[np.ndarray, "d_model d_head"]) -> Float[np.ndarray, " direction"]:
    return np.linalg.svd(np.linalg.qr(factor, mode="r"), compute_uv=False)


def drawn_norm(steps: Float[np.ndarray, "d_model d_head"]) -> float:
    """Spectral norm of errors that are uniform in half a step to both sides: the median of five draws, always the same.

    The bound of :func:`rounding_norms` is up to twice as large.
    """
    rng = np.random.default_rng(0)
    errors = ((rng.random(steps.shape) - 0.5) * steps for _ in range(5))
    return float(np.median([np.linalg.eigvalsh(one.T @ one)[-1] for one in errors]) ** 0.5)


def rounding_norms(steps: Float[np.ndarray, "head d_model d_head"]) -> Float[np.ndarray, " head"]:
    """Upper bound of that norm for every head: the largest root mean square of a row, and of a column, together.

    For independent entries of any variances the expected norm is no larger but for a few per cent (Bandeira and van
    Handel 2016).
    """
    variances = steps**2 / 12
    norms: np.ndarray = sum(np.sqrt(variances.sum(axis=axis).max(axis=1)) for axis in (1, 2))
    return norms


def rounding_steps(
    factors: Float[np.ndarray, "head d_model d_head"], kind: str, dtype: str
) -> Float[np.ndarray, "head d_model d_head"] | None:
    """Distance between neighbouring numbers of the type at every weight; None for a type that is not known."""
    name = dtype.removeprefix("ggml:")
    if name in _FLOATS:
        bits, smallest = _FLOATS[name]
        distances: np.ndarray = np.ldexp(1.0, np.maximum(np.frexp(factors)[1] - bits, smallest))
        return distances
    size, levels = (_SYMMETRIC | _OFFSET).get(name, (0, 0))
    # Stored rows: of O over the heads' dimensions, of the others over the residual stream.
    rows = factors.transpose(1, 0, 2).reshape(factors.shape[1], -1) if kind == "O" else factors.swapaxes(1, 2)
    if not size or rows.shape[-1] % size:
        return None
    blocks = rows.reshape(*rows.shape[:-1], -1, size)
    low = blocks.min(axis=-1, keepdims=True)
    width = np.abs(blocks).max(axis=-1, keepdims=True) if name in _SYMMETRIC else blocks.max(-1, keepdims=True) - low
    spread = np.broadcast_to(width / levels, blocks.shape).reshape(rows.shape)
    if kind == "O":
        return spread.reshape(factors.shape[1], len(factors), -1).transpose(1, 0, 2)
    return spread.swapaxes(1, 2)
