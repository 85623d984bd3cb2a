"""Divergence of the observed distribution of PK from that of random subspaces (PK, figure 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from headspaces.geometry.statistics import isotropic_mean, isotropic_sd

ORDER = "QKVO"
"""Rows (source) and columns (target) of the heat map."""

N_EDGES = 256
"""Edges of the histogram's bins over [0, d_head]: 255 bins."""

FEW_PAIRS = 10
"""An empty bin says nothing as long as the reference expects fewer pairs in it: it is left out."""


def bin_edges(d_head: int, n_edges: int = N_EDGES) -> Float[np.ndarray, " edge"]:
    """Edges of the bins of PK over its range [0, d_head]."""
    return np.linspace(0.0, d_head, n_edges)


def random_fractions(edges: Float[np.ndarray, " edge"], d_model: int, d_head: int) -> Float[np.ndarray, " bin"]:
    """Fraction of each bin in the PK of two independent uniformly random subspaces, in normal approximation.

    Mean ``d^2 / D``, variance ``2 d^2 (D - d)^2 / (D^2 (D - 1)(D + 2))``. A head as wide as the residual stream spans
    all of it: every PK is then D.
    """
    mean, sd = reference_moments(d_model, d_head)
    if sd == 0:
        return observed_counts(edges, np.array([mean])).astype(float)
    below = [0.5 * math.erfc((mean - edge) / (sd * math.sqrt(2))) for edge in edges.tolist()]
    return np.diff(below)


def observed_counts(edges: Float[np.ndarray, " edge"], pk: Float[np.ndarray, "*pairs"]) -> Int[np.ndarray, " bin"]:
    """Count the defined values in each bin."""
    values = pk[np.isfinite(pk)]
    # Rounding may lift the PK of two equal spaces above d_head.
    counts: np.ndarray = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    return counts


def reference_moments(d_model: int, d_head: int) -> tuple[float, float]:
    """Mean and standard deviation of the PK of two independent uniformly random subspaces."""
    d = min(d_head, d_model)
    return d * isotropic_mean(d_model, d), d * isotropic_sd(d_model, d)


def distance(pk: Float[np.ndarray, "*pairs"], d_model: int, d_head: int) -> float:
    """Distance of the observed PK from that of random subspaces, in the latter's standard deviations, without bins.

    The Wasserstein distance (of order 1) of the defined values from the normal law of :func:`reference_moments`: how
    far a value has to move on average. NaN without a pair, and where the reference does not vary.
    """
    mean, sd = reference_moments(d_model, d_head)
    values = np.sort(pk[np.isfinite(pk)])
    if not values.size or sd == 0:
        return math.nan
    z, part = (values - mean) / sd, np.arange(len(values) + 1) / len(values)
    low, high = part[:-1], part[1:]
    # Between its ranks a value is compared with all quantiles of the reference: those below it, then those above.
    meets = np.clip(special.ndtr(z), low, high)
    density = np.exp(-(special.ndtri(np.stack([low, meets, high])) ** 2) / 2) / math.sqrt(2 * math.pi)
    return float(np.sum(z * (2 * meets - low - high) + 2 * density[1] - density[0] - density[2]))


def left_out(reference: Float[np.ndarray, " bin"], counts: Int[np.ndarray, " bin"]) -> float:
    """Part of the reference that :func:`divergence` leaves out: what lies in empty bins."""
    return float(np.sum(reference, where=counts == 0))


def divergence(reference: Float[np.ndarray, " bin"], counts: Int[np.ndarray, " bin"]) -> float:
    """Kullback-Leibler divergence ``KL(reference || observed)`` in nats.

    The reference is the fraction of each bin; the counts are of observed pairs. It is infinite where a bin is empty in
    which the reference expects :data:`FEW_PAIRS` or more; NaN without any pair.
    """
    n_pairs = int(counts.sum())
    if not n_pairs:
        return math.nan
    if np.any((counts == 0) & (n_pairs * reference >= FEW_PAIRS)):
        return math.inf
    kept = (counts > 0) & (reference > 0)
    if not kept.any():
        return math.inf
    expected = reference[kept] / reference[kept].sum()
    return float(np.sum(expected * np.log(expected * n_pairs / counts[kept])))


def informativeness(
    pk: Mapping[str, Float[np.ndarray, "*pairs"]], d_model: int, d_head: int
) -> Float[np.ndarray, "4 4"]:
    """Divergence of every kind pair's PK from the random reference.

    ``pk`` has by source and target kind (``OQ``) the PK of head pairs; NaN where there is no pair. Rows are source
    kinds, columns target kinds, both in the order Q, K, V, O.
    """
    edges = bin_edges(d_head)
    reference = random_fractions(edges, d_model, d_head)
    return np.array([[divergence(reference, observed_counts(edges, pk[x + y])) for y in ORDER] for x in ORDER])
