"""Single pairs of heads against the swap null of their condition, as tables and the graph of heads show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headspaces.affinity.graph import EDGE_ENDS
from headspaces.nulls.significance import benjamini_hochberg, exchangeable, largest_pair_p, pair_scores
from headspaces.report.results import Comparison, ModelResults
from headspaces.spaces import SWAP

FALSE_DISCOVERY_RATES = (0.05, 0.01)
"""Of these lists of pairs such a part is false on average."""

MOMENTS = ("mean", "spread", "skewness")


@dataclass(frozen=True)
class PairTests:
    """How every pair of a comparison stands against all pairs of all swap samples of its condition.

    ``z`` is the distance from their mean in standard deviations, ``p`` the part of their law above, ``q`` the same
    adjusted over all pairs of the comparison (Benjamini and Hochberg), ``p_condition`` from the largest pair of each
    sample of the condition. NaN where heads of a condition differ in rank: they are not exchangeable.
    """

    comparison: Comparison
    z: Float[np.ndarray, "condition pair"]
    p: Float[np.ndarray, "condition pair"]
    q: Float[np.ndarray, "condition pair"]
    p_condition: Float[np.ndarray, "condition pair"]

    def standing(self, rate: float) -> Bool[np.ndarray, "condition pair"]:
        """Whether a pair belongs to the list of a false discovery rate; False where it was not tested."""
        return np.asarray(self.q <= rate)

    def frame(self, chosen: Bool[np.ndarray, "condition pair"]) -> pd.DataFrame:
        """List the chosen pairs, the most certain first.

        Columns are ``layer``, ``head``, ``later_layer``, ``later_head`` (within a layer: the same layer, the other
        head), ``rho``, ``z``, ``p``, ``q``, ``p_condition``.
        """
        condition, pair = np.nonzero(chosen)
        layers, heads = self.comparison.layers[condition], heads_of_pairs(self.comparison)[pair]
        columns = {"layer": layers[:, 0], "head": heads[:, 0], "later_layer": layers[:, 1], "later_head": heads[:, 1]}
        columns["rho"] = self.comparison.rho[chosen]
        columns |= {name: getattr(self, name)[chosen] for name in ("z", "p", "q", "p_condition")}
        return pd.DataFrame(columns).sort_values(["p", "z"], ascending=[True, False], kind="stable", ignore_index=True)


def pair_tests(comparison: Comparison) -> PairTests | None:
    """Test every pair of a comparison; None where there is no sample of the swap null."""
    samples = comparison.nulls.get(SWAP, {})
    if not {*MOMENTS, "max"} <= set(samples):
        return None
    rho = np.where(_exchangeable(comparison)[:, None], comparison.rho, np.nan)
    z, p = pair_scores(rho, *(samples[name] for name in MOMENTS))
    return PairTests(comparison, z, p, benjamini_hochberg(p), largest_pair_p(rho, samples["max"]))


def all_pair_tests(models: Sequence[ModelResults]) -> Iterator[PairTests]:
    """Test the pairs of every comparison that has samples of the swap null."""
    for model in models:
        for comparison in model.compare_all():
            if (tests := pair_tests(comparison)) is not None:
                yield tests


def heads_of_pairs(comparison: Comparison) -> Int[np.ndarray, "pair 2"]:
    """Return the heads of each pair: two of a kind, or the writer and the reader."""
    shape, spaces = comparison.model.shape, comparison.spaces
    if comparison.scope == "within":
        return np.stack(np.triu_indices(shape.n_heads(spaces), k=1), axis=1)
    return np.argwhere(np.ones((shape.n_heads("O"), shape.n_heads(spaces[1])), bool))


def edge_tests(model: ModelResults, rate: float = FALSE_DISCOVERY_RATES[0]) -> pd.DataFrame:
    """List all tested pairs across layers as edges, with ``standing`` for those of a false discovery rate.

    The frame has the columns that name an edge, ``rho``, ``z``, ``p``, ``q``, ``p_condition`` and ``standing``; it has
    no row where the swap null was not drawn.
    """
    names = dict(zip(("layer", "head", "later_layer", "later_head"), EDGE_ENDS[1:], strict=True))
    frames = []
    for tests in filter(None, map(pair_tests, model.compare_all("across"))):
        frame = tests.frame(np.isfinite(tests.q)).rename(columns=names)
        frames.append(frame.assign(type=tests.comparison.spaces, standing=frame["q"] <= rate))
    columns = [*EDGE_ENDS, "rho", "z", "p", "q", "p_condition", "standing"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def _exchangeable(comparison: Comparison) -> Bool[np.ndarray, " condition"]:
    """Whether the live heads on each side of a condition are of one rank."""
    overlaps, layers = comparison.model.overlaps, comparison.layers
    sides = comparison.spaces[0], comparison.spaces[-1]
    same = [exchangeable(overlaps[f"rank/{kind}"][layers[:, side]]) for side, kind in enumerate(sides)]
    return np.asarray(same[0] & same[1])
