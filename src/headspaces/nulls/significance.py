"""How sure a finding is: corrections over many conditions, and pairs of heads against the null of their condition.

Samples stand along the first axis, conditions along all others, pairs of heads along the last; NaN marks what is
undefined, and is left out. Per condition p is :func:`headspaces.geometry.statistics.monte_carlo_p`.
"""
# ruff: noqa: F821, UP037 - the shape "sample *conditions" reads as a product of two names

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

LEAST_SKEWNESS = 1e-4
"""Below this a gamma law is a normal one to four digits of p."""


def tail_statistics(rho: Float[np.ndarray, "*conditions pair"]) -> dict[str, Float[np.ndarray, "*conditions"]]:
    """Take from a sample's pairs what is kept of them beside mean and spread, to compare single pairs with.

    Returns
    -------
    dict of arrays
        ``max``: the largest rho; ``skewness``: third central moment over the cube of the spread, 0 where the spread
        is. NaN where a condition has no defined pair.
    """
    defined = np.isfinite(rho)
    count = np.where(defined.any(axis=-1), defined.sum(axis=-1), np.nan)
    mean = np.where(defined, rho, 0.0).sum(axis=-1) / count
    deviation = np.where(defined, rho - mean[..., None], 0.0)
    variance, third = ((deviation**power).sum(axis=-1) / count for power in (2, 3))
    cube = variance**1.5
    skewness = np.divide(third, cube, out=np.where(np.isnan(count), np.nan, 0.0), where=cube > 0)
    largest = np.where(defined, rho, -np.inf).max(axis=-1, initial=-np.inf)
    return {"max": np.where(np.isnan(count), np.nan, largest), "skewness": skewness}


def expected_above_all(
    observed: Float[np.ndarray, "*conditions"], samples: Float[np.ndarray, "sample *conditions"]
) -> float:
    """Count the conditions whose observed value chance would put above all samples: the sum of ``1 / (n + 1)``.

    Conditions without a sample or an observed value are no conditions.
    """
    n = np.isfinite(samples).sum(axis=0)
    return float(np.sum(1 / (n + 1), where=(n > 0) & np.isfinite(observed)))


def benjamini_hochberg(p: Float[np.ndarray, "*tests"]) -> Float[np.ndarray, "*tests"]:
    """Adjust p-values: those up to q are then a list of findings of which a part q is false on average.

    For independent tests, and for those that hang together positively (Benjamini and Hochberg 1995, Benjamini and
    Yekutieli 2001). NaN are no tests and stay.
    """
    adjusted = np.full(p.shape, np.nan)
    tests = np.isfinite(p)
    order = np.argsort(p[tests], kind="stable")
    n = len(order)
    stepped = p[tests][order] * n / np.arange(1, n + 1)
    values = np.empty(n)
    values[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1.0)
    adjusted[tests] = values
    return adjusted


def max_statistic_p(
    observed: Float[np.ndarray, "*conditions"], samples: Float[np.ndarray, "sample *conditions"]
) -> Float[np.ndarray, "*conditions"]:
    """P-values of conditions that hold for all of them at once: of the largest value over all conditions of a sample.

    Parameters
    ----------
    observed
        Value of each condition.
    samples
        Whole samples: the conditions of one belong together, whatever they have in common.

    Returns
    -------
    array
        ``(k + 1) / (n + 1)``, where in k of n samples some condition is as extreme as this one's observed value. Few
        samples do: the smallest p is ``1 / (n + 1)`` however many conditions there are. NaN for undefined conditions.

    Notes
    -----
    Conditions have scales of their own, so each is standardised by mean and deviation over its samples and its observed
    value, which treats them alike and so keeps them exchangeable (Westfall and Young 1993).
    """
    values = np.concatenate([observed[None], samples]).reshape(1 + len(samples), observed.size)
    usable = np.isfinite(values).all(axis=0)
    values = values[:, usable]
    deviation = values - values.mean(axis=0)
    spread = np.sqrt((deviation**2).mean(axis=0))
    # A condition that does not vary is at 0; rounding must not tell equal values apart.
    scores = np.round(np.divide(deviation, spread, out=np.zeros_like(deviation), where=spread > 0), 9)
    largest = scores[1:].max(axis=1, initial=-np.inf)
    p = np.full(observed.size, np.nan)
    p[usable] = ((largest[:, None] >= scores[0]).sum(axis=0) + 1) / (len(samples) + 1)
    return p.reshape(observed.shape)


def exchangeable(ranks: Int[np.ndarray, "*conditions head"]) -> Bool[np.ndarray, "*conditions"]:
    """Whether all heads that are not of rank zero have one rank: the swap null then treats them alike."""
    return np.asarray(((ranks == 0) | (ranks == ranks.max(axis=-1, keepdims=True))).all(axis=-1))


def pair_scores(
    rho: Float[np.ndarray, "*conditions pair"],
    mean: Float[np.ndarray, "sample *conditions"],
    spread: Float[np.ndarray, "sample *conditions"],
    skewness: Float[np.ndarray, "sample *conditions"],
) -> tuple[Float[np.ndarray, "*conditions pair"], Float[np.ndarray, "*conditions pair"]]:
    """Score every pair of heads against all pairs of all samples of its condition, by their first three moments.

    Heads of equal rank are exchangeable under the swap null, so that all pairs of a condition have one law.

    Parameters
    ----------
    rho
        Observed overlaps.
    mean, spread, skewness
        Of the pairs of each sample.

    Returns
    -------
    z, p
        Distance from the mean in standard deviations, and the part of the law above, for which a shifted gamma law of
        these moments is taken (Pearson's type III): overlaps are sums of squares. NaN where there is no variation.
    """
    centre = _average(mean)
    # Samples' moments about their own means, moved to the common one.
    shift = mean - centre
    variance = _average(spread**2 + shift**2)
    third = _average(skewness * spread**3 + 3 * shift * spread**2 + shift**3)
    sd = np.sqrt(np.where(variance > 0, variance, np.nan))
    z = (rho - centre[..., None]) / sd[..., None]
    return z, _gamma_tail(z, np.broadcast_to((third / sd**3)[..., None], z.shape))


def largest_pair_p(
    rho: Float[np.ndarray, "*conditions pair"], largest: Float[np.ndarray, "sample *conditions"]
) -> Float[np.ndarray, "*conditions pair"]:
    """P-values of pairs that hold for all pairs of their condition at once: of the largest overlap of each sample.

    ``(k + 1) / (n + 1)``, where in k of n samples some pair overlaps at least as much.
    """
    defined = np.isfinite(largest)
    as_large = (largest[..., None] >= rho[None] - 1e-12).sum(axis=0)
    p = (as_large + 1) / (defined.sum(axis=0) + 1)[..., None]
    return np.where(np.isfinite(rho) & defined.any(axis=0)[..., None], p, np.nan)


def _average(values: Float[np.ndarray, "sample *conditions"]) -> Float[np.ndarray, "*conditions"]:
    defined = np.isfinite(values)
    count = np.where(defined.any(axis=0), defined.sum(axis=0), np.nan)
    average: np.ndarray = np.where(defined, values, 0.0).sum(axis=0) / count
    return average


def _gamma_tail(z: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Part above z of the standardised gamma law of a skewness, mirrored where that is negative."""
    size = np.maximum(np.abs(skewness), LEAST_SKEWNESS)
    shape = 4 / size**2
    tail = np.where(
        skewness > 0,
        special.gammaincc(shape, np.maximum(shape + z * np.sqrt(shape), 0)),
        special.gammainc(shape, np.maximum(shape - z * np.sqrt(shape), 0)),
    )
    above: np.ndarray = np.where(np.abs(skewness) < LEAST_SKEWNESS, special.ndtr(-z), tail)
    return above
