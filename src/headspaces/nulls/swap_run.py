"""Samples of the swap null model: burnt-in bases, and what is drawn from them.

The chain of swaps forgets where it began only after some sweeps. So it is *burnt in* once per layer and kind, and the
bases that it then has are kept in a file; every sample goes a few sweeps on from there. A sample depends on the seed,
the model, the layer, the kind and its own number alone, and given the burnt-in bases samples are independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headspaces.devices import Array
from headspaces.nulls.draws import generator
from headspaces.nulls.samples import NullRun
from headspaces.nulls.significance import tail_statistics
from headspaces.nulls.swap import swapped
from headspaces.spaces import KINDS
from headspaces.threads import map_in_order


def burnt_in(
    block: Mapping[str, np.ndarray], first_layer: int, *, seed: int, model: str, burn_in: int, dtype: str
) -> dict[str, np.ndarray]:
    """Bases of a block of layers after the burn-in, from which all samples of the swap null model start.

    Parameters
    ----------
    block
        As :func:`headspaces.geometry.bases.block_bases` makes it.
    first_layer
        Number of the block's first layer.
    seed, model
        With layer and kind they alone determine the random numbers.
    burn_in
        Sweeps from the observed spaces.
    dtype
        Arithmetic, and of the result.

    Returns
    -------
    dict of arrays
        Per layer and kind ``{layer}/{X}``, head, d_model, d: orthonormal columns, zero beyond the rank.
    """
    kinds = [kind for kind in KINDS if f"{kind}/basis" in block]
    tasks = [(position, kind) for position in range(len(block[f"rank/{kinds[0]}"])) for kind in kinds]

    def bases(task: tuple[int, str]) -> np.ndarray:
        position, kind = task
        rng = generator(seed, model, first_layer + position, kind, "swap burn-in", 0)
        observed = block[f"{kind}/basis"][position].astype(dtype)
        burnt: np.ndarray = swapped(observed, block[f"rank/{kind}"][position], rng, burn_in)
        return burnt

    return {
        f"{first_layer + position}/{kind}": burnt
        for (position, kind), burnt in zip(tasks, map_in_order(bases, tasks), strict=True)
    }


@dataclass(frozen=True)
class SwapRun(NullRun):
    """What all shards of a model's swap null have in common.

    Its ``factors`` are the burnt-in bases.

    Attributes
    ----------
    burn_in
        Sweeps from the observed spaces to the burnt-in bases.
    sweeps
        Sweeps from there to a sample.
    """

    # An overlap of two heads alone is kept by every swap.
    fewest_heads = 3

    burn_in: int = 0
    sweeps: int = 1

    def statistics(self, rho: Float[np.ndarray, "condition pair"]) -> dict[str, Float[np.ndarray, " condition"]]:
        """Summarise a sample's pairs by condition, so that single pairs can be compared with them too."""
        return super().statistics(rho) | tail_statistics(rho)

    @property
    def settings(self) -> dict[str, int]:
        """Settings of the chain of swaps."""
        return {"burn_in": self.burn_in, "sweeps": self.sweeps}

    def draw(
        self, null: str, layer: int, kind: str, sample: int
    ) -> tuple[Float[Array, "head d_model d_head"], Int[np.ndarray, " head"]]:
        """Go some sweeps on from the burnt-in bases."""
        start = self.factors(layer, kind).astype(self.dtype, copy=False)
        ranks = (start != 0).any(axis=1).sum(axis=1)
        rng = generator(self.seed, self.model, layer, kind, null, sample)
        return swapped(self.to_device(start), ranks, rng, self.sweeps), ranks
