"""Statistics of overlaps: closed forms for random subspaces, and comparisons with null samples."""

from __future__ import annotations

import math


def isotropic_mean(d_model: int, d_head: int, other: int | None = None) -> float:
    """Mean rho of two independent uniformly random subspaces, ``max(p, q) / D``: ``d / D`` for equal dimension (RW 5.1)."""
    return max(d_head, other or d_head) / d_model


def isotropic_sd(d_model: int, d_head: int, other: int | None = None) -> float:
    """Standard deviation of rho of two independent uniformly random subspaces of dimension p and q (RW 5.1).

    ``Var PK = 2 p q (D - p)(D - q) / (D^2 (D - 1)(D + 2))``; rho divides PK by the smaller dimension.
    """
    p, q, D = d_head, other or d_head, d_model
    variance = 2 * p * q * (D - p) * (D - q) / (D**2 * (D - 1) * (D + 2))
    return math.sqrt(variance) / min(p, q)
