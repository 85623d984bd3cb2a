"""Matching of two models' heads whose order need not agree: which head of one has the place of which of the other.

What a head writes and the values that it reads tell it: the sum of the overlaps of matched heads' O and V spaces is the
largest there is (an assignment problem). Where query heads share key-value heads, groups are matched, and inside each
pair of groups the query heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from headspaces.errors import InputError
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.pairs import normalised, smaller_ranks
from headspaces.library.model import ModelSpaces

MATCHED_BY = "OV"


@dataclass(frozen=True)
class Matching:
    """Heads of another model in the order of the first one's.

    ``queries`` and ``groups`` have, by layer, for each query head and key-value head of the first model the one of the
    other that is matched with it; ``rho`` by kind, O and V, the overlap of the matched heads' spaces.
    """

    queries: Int[np.ndarray, "layer head"]
    groups: Int[np.ndarray, "layer kv_head"]
    rho: Mapping[str, Float[np.ndarray, "layer _head"]]

    @property
    def n_moved(self) -> int:
        """Number of query heads that stand in another place."""
        return int((self.queries != np.arange(self.queries.shape[1])).sum())

    def order(self, kind: str) -> Int[np.ndarray, "layer _head"]:
        """Order of the other model's heads of one kind."""
        return self.queries if kind in "OQ" else self.groups

    def reordered(self, values: np.ndarray, spaces: str) -> np.ndarray:
        """Put an array of the other model's pairs, with the axes of a comparison, into the first one's order."""
        one, other = self.order(spaces[0]), self.order(spaces[-1])
        layers = np.arange(len(one))
        if len(spaces) == 1:
            return np.asarray(values[layers[:, None, None], one[:, :, None], other[:, None, :]])
        earlier, later = layers[:, None, None, None], layers[None, :, None, None]
        return np.asarray(values[earlier, later, one[:, None, :, None], other[None, :, None, :]])


def match_heads(
    one: ModelSpaces, other: ModelSpaces, *, fold: bool | None = None, rank_rtol: float | None = None
) -> Matching:
    """Match the heads of two models of one shape, layer by layer.

    Raises
    ------
    InputError
        If a model lacks the kinds O and V, or the weights cannot be read.
    """
    for model in (one, other):
        if lacking := [kind for kind in MATCHED_BY if kind not in model.kinds]:
            raise InputError(f"{model.name}: holds no heads of kind {lacking[0]}; heads are matched by O and V")
    rho = {kind: [] for kind in MATCHED_BY}  # type: dict[str, list[np.ndarray]]
    for kind, layers in rho.items():
        geometries = [model.answers.computed(fold, rank_rtol).each_layer(kind) for model in (one, other)]
        for left, right in zip(*geometries, strict=True):
            squared = squared_overlaps(left.basis[0], right.basis[0])
            layers.append(normalised(squared, smaller_ranks(left.rank[0], right.rank[0])))
    orders = [matched_layer(*pair) for pair in zip(rho["O"], rho["V"], strict=True)]
    queries, groups = (np.stack(part) for part in zip(*orders, strict=True))
    chosen = {"O": queries, "V": groups}
    return Matching(
        queries,
        groups,
        {kind: np.take_along_axis(np.stack(rho[kind]), chosen[kind][..., None], axis=2)[..., 0] for kind in rho},
    )


def matched_layer(
    writes: Float[np.ndarray, "head head"], values: Float[np.ndarray, "group group"]
) -> tuple[Int[np.ndarray, " head"], Int[np.ndarray, " group"]]:
    """Match a layer's heads by the overlaps of all heads of one model with all of the other; undefined ones are 0."""
    n_groups, size = len(values), len(writes) // len(values)
    # (group, other group, head inside, other head inside)
    inside = np.nan_to_num(writes).reshape(n_groups, size, n_groups, size).swapaxes(1, 2)
    within = np.empty((n_groups, n_groups, size), dtype=int)
    score = size * np.nan_to_num(values)
    for pair in np.ndindex(n_groups, n_groups):
        rows, within[pair] = linear_sum_assignment(inside[pair], maximize=True)
        score[pair] += inside[pair][rows, within[pair]].sum()
    _, groups = linear_sum_assignment(score, maximize=True)
    queries = np.concatenate([group * size + within[own, group] for own, group in enumerate(groups)])
    return queries, groups
