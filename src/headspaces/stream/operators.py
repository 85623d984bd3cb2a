"""Operators on the residual stream, and their inner products with each other and with heads.

An operator is ``F F^T`` of the map ``F`` whose columns write, or ``G G^T`` of one whose columns are read; here it is
divided by its trace. The score of a writer and a reader is ``D <A, B>`` of their operators: RW's spectrally weighted
score, 1 on average where one of the two is rotated at random. An operator of an embedding or MLP is dense (D x D), a
head's is given by its factor (D x d).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from headspaces.threads import map_in_order

SLAB_BYTES = 2**22
"""Bytes of the rows of heads' operators that one thread forms at once."""

SLAB_ROWS = 128
"""Rows of a dense operator that one thread computes at once."""

Operator = Float[np.ndarray, "d_model d_model"]


def row_operators(blocks: Iterable[Float[np.ndarray, "row d_model"]]) -> tuple[Operator, Operator, np.ndarray]:
    """Operator of some rows, that of the rows without their mean, and the mean.

    Both operators have trace 1. The rows come in blocks, so that no more than one is in memory, beside D x D sums.
    """
    operator, total, count = np.zeros(()), np.zeros(()), 0
    for rows in blocks:
        operator = operator + gram(rows)
        total = total + rows.sum(axis=0)
        count += len(rows)
    mean = total / count
    centred = operator - count * np.outer(mean, mean)
    return unit_trace(operator), unit_trace(centred), mean


def gram(rows: Float[np.ndarray, "row d_model"]) -> Operator:
    """Sum of ``r r^T`` over rows: columns from the diagonal on, a slab a thread; the same bits for any threads."""
    d_model = rows.shape[1]
    upper = np.zeros((d_model, d_model), rows.dtype)

    def fill(start: int) -> None:
        upper[start : start + SLAB_ROWS, start:] = rows[:, start : start + SLAB_ROWS].T @ rows[:, start:]

    list(map_in_order(fill, range(0, d_model, SLAB_ROWS)))
    above = np.triu(upper)
    return above + np.triu(above, 1).T


def unit_trace(operator: Operator) -> Operator:
    """Divide an operator by its trace; NaN for a map that is zero."""
    trace = np.trace(operator)
    scaled: Operator = operator / trace if trace > 0 else np.full(operator.shape, np.nan)
    return scaled


def by_heads(
    operators: Float[np.ndarray, "operator d_model d_model"], factors: Float[np.ndarray, "head d_model d_head"]
) -> Float[np.ndarray, "operator head"]:
    """Inner products ``<A_k, F_n F_n^T>`` of dense operators with heads: ``tr(F_n^T A_k F_n)``.

    For factors of norm 1 and operators of trace 1 the score is D times it; for an orthonormal basis it is the share of
    the operator's energy inside the head's space, ``tr(P A) / tr A``. Heads' operators are formed a slab of rows at a
    time; slabs are independent, and added in order in float64.
    """
    n_heads, d_model, _ = factors.shape
    step = max(1, SLAB_BYTES // max(1, n_heads * d_model * factors.itemsize))

    def products(start: int) -> Float[np.ndarray, "operator head"]:
        rows = slice(start, start + step)
        slab = factors[:, rows] @ factors.transpose(0, 2, 1)
        found: np.ndarray = operators[:, rows].reshape(len(operators), -1) @ slab.reshape(n_heads, -1).T
        return found

    total = np.zeros((len(operators), n_heads))
    for part in map_in_order(products, range(0, d_model, step)) if len(operators) and n_heads else ():
        total += part
    return total


def head_purity(factors: Float[np.ndarray, "head d_model d_head"]) -> Float[np.ndarray, " head"]:
    """Purity ``tr A^2 / (tr A)^2`` of heads' operators, from factors of norm 1: one over their effective rank."""
    grams = factors.transpose(0, 2, 1) @ factors
    purity: np.ndarray = np.einsum("hij,hij->h", grams, grams, dtype=np.float64)
    return purity


def rotated_sd(writer: Float[np.ndarray, ...], reader: Float[np.ndarray, ...], d_model: int) -> Float[np.ndarray, ...]:
    """Give the standard deviation of a pair's score under random rotation of one operator, from both purities.

    For symmetric A and B and R uniform in the orthogonal group (Haar), ``<A, R B R^T>`` has the mean ``tr A tr B / D``
    and the variance ``2 |A'|^2 |B'|^2 / ((D - 1) (D + 2))``, where ``A' = A - (tr A / D) I``; for projections that is
    RW's variance of PK. With traces 1, ``|A'|^2`` is the purity less 1 / D. Scores of different pairs are uncorrelated
    where every operator has a rotation of its own.
    """
    beyond = np.maximum(writer - 1 / d_model, 0) * np.maximum(reader - 1 / d_model, 0)
    return np.asarray(d_model * np.sqrt(2 * beyond / ((d_model - 1) * (d_model + 2))))
