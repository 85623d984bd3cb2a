"""Statistics of overlaps: closed forms for random subspaces, and comparisons with null samples (RW section 5.1).

A *condition* is one layer, or one pair of a writer's and a reader's layer. Samples stand along the first axis,
conditions along all others; NaN marks what is undefined: a statistic of no pair, a condition that does not exist, rho
of a space of dimension zero. An undefined observed value gives NaN (False where the answer is yes or no); undefined
samples are left out, as if they had not been drawn.
"""
# ruff: noqa: F821, UP037 - the shape "sample *conditions" reads as a product of two names

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

TIE_RTOL, TIE_ATOL = 1e-9, 1e-12
"""Values that differ by less are equal: the same rho summed in another order must not count as more extreme."""

DIFFERENCES = ("max_abs_difference", "median_abs_difference", "max_relative_difference")
"""What :func:`rho_differences` says of the pairs of two models."""


def isotropic_mean(d_model: int, d_head: int, other: int | None = None) -> float:
    """Isotropic value of rho: the mean ``max(p, q) / D`` over two independent uniform random subspaces (RW 5.1)."""
    return max(_dimensions(d_model, d_head, other)) / d_model


def isotropic_sd(d_model: int, d_head: int, other: int | None = None) -> float:
    """Deviation (standard) of rho of two independent uniform random subspaces of dimensions p and q (RW 5.1).

    ``Var PK = 2 p q (D - p)(D - q) / (D^2 (D - 1)(D + 2))``; rho divides PK by the smaller dimension. A head wider
    than the residual stream spans all of it, and on a line there is one space: both leave nothing to vary.
    """
    p, q = _dimensions(d_model, d_head, other)
    D = d_model
    variance = 2 * p * q * (D - p) * (D - q) / (D**2 * max(D - 1, 1) * (D + 2))
    return math.sqrt(variance) / min(p, q)


def _dimensions(d_model: int, d_head: int, other: int | None) -> tuple[int, int]:
    return min(d_head, d_model), min(other or d_head, d_model)


def pair_statistics(rho: Float[np.ndarray, "*conditions pair"]) -> dict[str, Float[np.ndarray, "*conditions"]]:
    """Spread, mean, median and 95th percentile of rho over the pairs of each condition.

    NaN pairs (a space of dimension zero) are left out. ``spread`` is the standard deviation with ddof = 0, exactly 0
    where rho is constant to rounding (range at most 1e-12); ``median`` and ``p95`` are quantiles with linear
    interpolation. NaN where a condition has no defined pair.
    """
    conditions = rho.shape[:-1]
    if rho.size == 0:
        return {name: np.full(conditions, np.nan) for name in ("spread", "mean", "median", "p95")}
    defined = np.isfinite(rho)
    count = defined.sum(axis=-1)
    empty = count == 0
    present = np.where(defined, rho, 0.0)
    with np.errstate(invalid="ignore"):
        mean = np.divide(present.sum(axis=-1), count, out=np.full(conditions, np.nan), where=~empty)
        deviations = np.where(defined, rho - mean[..., None], 0.0)
    variance = np.divide((deviations**2).sum(axis=-1), count, out=np.full(conditions, np.nan), where=~empty)
    span = np.where(defined, rho, -np.inf).max(axis=-1) - np.where(defined, rho, np.inf).min(axis=-1)
    median, p95 = _quantiles(rho, (0.5, 0.95), axis=-1)
    spread = np.where(span <= TIE_ATOL, np.where(empty, np.nan, 0.0), np.sqrt(variance))
    return {"spread": spread, "mean": mean, "median": median, "p95": p95}


def spread_ratio(
    observed: Float[np.ndarray, "*conditions"], *samples: Float[np.ndarray, "_ *conditions"]
) -> Float[np.ndarray, "*conditions"]:
    """Observed spread over the largest spread among all samples of all given null models: r of RW section 5.3.

    Since it is a ratio to a maximum, it depends on the number of samples. NaN without a defined sample, and where the
    largest sample is 0 (a condition with a single pair).
    """
    largest = np.fmax.reduce(np.concatenate(samples), axis=0, initial=np.nan)
    return _divided(observed, largest)


def mean_ratio(
    observed: Float[np.ndarray, "*conditions"], samples: Float[np.ndarray, "sample *conditions"]
) -> Float[np.ndarray, "*conditions"]:
    """Observed value over the mean of one null model's samples (RW table 4); NaN without a sample or where it is 0."""
    defined = np.isfinite(samples)
    return _divided(observed, _divided(np.where(defined, samples, 0.0).sum(axis=0), defined.sum(axis=0)))


def above_all(
    observed: Float[np.ndarray, "*conditions"], *samples: Float[np.ndarray, "_ *conditions"]
) -> Bool[np.ndarray, "*conditions"]:
    """Whether the observed value is above every sample of all given null models; False without a sample or in a tie."""
    return _beyond_all(observed, np.concatenate(samples), "greater")


def below_all(
    observed: Float[np.ndarray, "*conditions"], *samples: Float[np.ndarray, "_ *conditions"]
) -> Bool[np.ndarray, "*conditions"]:
    """Whether the observed value is below every sample of all given null models; False without a sample or in a tie."""
    return _beyond_all(observed, np.concatenate(samples), "less")


def monte_carlo_p(
    observed: Float[np.ndarray, "*conditions"],
    samples: Float[np.ndarray, "sample *conditions"],
    alternative: Literal["greater", "less"] = "greater",
) -> Float[np.ndarray, "*conditions"]:
    """One-sided p-value ``(k + 1) / (n + 1)``, where k of n samples are at least as extreme as the observed value.

    Never zero (Phipson and Smyth 2010): without a sample it is 1. NaN where the observed value is undefined.
    """
    extreme = _at_least_as_extreme(observed, samples, alternative).sum(axis=0)
    p = (extreme + 1) / (np.isfinite(samples).sum(axis=0) + 1)
    return np.where(np.isfinite(observed), p, np.nan)


def quantile_band(
    samples: Float[np.ndarray, "sample *conditions"], low: float = 0.05, high: float = 0.95
) -> tuple[Float[np.ndarray, "*conditions"], Float[np.ndarray, "*conditions"]]:
    """Two quantiles over the samples with linear interpolation, by default 5 and 95 %; NaN without a defined sample."""
    if len(samples) == 0:
        return np.full(samples.shape[1:], np.nan), np.full(samples.shape[1:], np.nan)
    lower, upper = _quantiles(samples, (low, high), axis=0)
    return lower, upper


def upper_median_layer(spreads: Float[np.ndarray, " layer"]) -> int | None:
    """Layer at the upper median of the layers' spreads: the layer of RW figure 2.

    Of n layers with a defined spread, the one with ``n // 2`` layers before it in ascending order; of equal spreads the
    earlier layer comes first. None where no spread is defined.
    """
    order = np.argsort(spreads, kind="stable")[: np.isfinite(spreads).sum()]
    return int(order[len(order) // 2]) if len(order) else None


def rho_differences(
    one: Float[np.ndarray, "*condition pair"], other: Float[np.ndarray, "*condition pair"]
) -> dict[str, float | int]:
    """Differences of two models' overlaps, pair by pair, over everything given (RW section 5.5).

    An overlap does not change when both spaces are rotated together: equal overlaps do not say that the spaces stayed
    where they were. Pairs that are undefined in either model are left out. ``n_pairs`` are left;
    ``max_relative_difference`` is relative to the first model's overlap (infinite where only that is zero). NaN without
    a pair.
    """
    defined = np.isfinite(one) & np.isfinite(other)
    difference, size = np.abs(one - other)[defined], one[defined]
    if not difference.size:
        return {"n_pairs": 0, **dict.fromkeys(DIFFERENCES, np.nan)}
    relative = np.divide(difference, size, out=np.where(difference > 0, np.inf, 0.0), where=size > 0)
    values = (difference.max(), np.median(difference), relative.max())
    return {"n_pairs": difference.size, **{name: float(value) for name, value in zip(DIFFERENCES, values, strict=True)}}


def _at_least_as_extreme(observed: np.ndarray, samples: np.ndarray, alternative: str) -> np.ndarray:
    tie = TIE_RTOL * np.abs(observed) + TIE_ATOL
    # A comparison with NaN is False: undefined samples are never extreme.
    return np.asarray(samples >= observed - tie if alternative == "greater" else samples <= observed + tie)


def _beyond_all(observed: np.ndarray, samples: np.ndarray, alternative: str) -> np.ndarray:
    none_as_extreme = ~_at_least_as_extreme(observed, samples, alternative).any(axis=0)
    return np.asarray(none_as_extreme & np.isfinite(samples).any(axis=0) & np.isfinite(observed))


def _quantiles(values: np.ndarray, fractions: tuple[float, ...], axis: int) -> list[np.ndarray]:
    if np.isfinite(values).all():
        return [np.asarray(quantile) for quantile in np.quantile(values, fractions, axis=axis)]
    # Needed only where something is undefined, and half a second to import.
    from scipy import stats

    return [np.asarray(stats.quantile(values, fraction, axis=axis, nan_policy="omit")) for fraction in fractions]


def _divided(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    quotient: np.ndarray = np.divide(numerator, denominator, out=np.full(shape, np.nan), where=denominator > 0)
    return quotient
