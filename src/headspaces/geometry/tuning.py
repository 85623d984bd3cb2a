"""Two models of one shape, such as a base model and its instruction-tuned one: how far their overlaps differ (RW 5.5).

An overlap does not change when both spaces are rotated together, so equal overlaps do not say that the spaces stayed
where they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

SHAPE = ("n_layers", "d_model", "n_query_heads", "n_kv_heads", "d_head")
"""Attributes in which two models must agree for their heads to be compared one by one."""

MEASURES = ("max_abs_difference", "median_abs_difference", "max_relative_difference")

Named = TypeVar("Named")


def of_one_shape(models: Sequence[Named], attributes: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[Named, Named]]:
    """Pairs of models that have the same shape, each pair once, in the order of the models.

    Parameters
    ----------
    models
        Anything with a ``name``.
    attributes
        By name, the attributes of :data:`SHAPE`.
    """
    for one, other in combinations(models, 2):
        shapes = [[attributes[model.name][key] for key in SHAPE] for model in (one, other)]  # type: ignore[attr-defined]
        if shapes[0] == shapes[1]:
            yield one, other


def rho_differences(
    one: Float[np.ndarray, "*condition pair"], other: Float[np.ndarray, "*condition pair"]
) -> dict[str, float | int]:
    """Differences of two models' overlaps, pair by pair, over everything given.

    Parameters
    ----------
    one, other
        Overlaps of the same pairs of heads in both models; pairs that are undefined in either are left out.

    Returns
    -------
    dict
        ``n_pairs``; ``max_abs_difference`` and ``median_abs_difference``; ``max_relative_difference``, relative to the
        first model's overlap (infinite where only that is zero). NaN without a pair.
    """
    defined = np.isfinite(one) & np.isfinite(other)
    difference, size = np.abs(one - other)[defined], one[defined]
    if not difference.size:
        return {"n_pairs": 0, **dict.fromkeys(MEASURES, np.nan)}
    relative = np.divide(difference, size, out=np.where(difference > 0, np.inf, 0.0), where=size > 0)
    values = (difference.max(), np.median(difference), relative.max())
    return {"n_pairs": difference.size, **{name: float(value) for name, value in zip(MEASURES, values, strict=True)}}
