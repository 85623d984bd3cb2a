"""Whether a head's own spaces overlap more than those of different heads (RW section 5.5 and appendix H).

Within a layer, the overlaps of a head's own two spaces are averaged over heads and compared with the same average after
the heads' labels have been permuted on one side. A key-value space belongs to a group of query heads: then it is the
groups' labels that are permuted, and a query head's own space is that of its group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import permutations
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.pairs import normalised, smaller_ranks
from headspaces.geometry.statistics import TIE_ATOL, TIE_RTOL, monte_carlo_p
from headspaces.nulls.draws import generator

COMPARISONS = ("VO", "QK", "QO")
"""Pairs of a head's own spaces: value read and write, query and key reads, query read and write."""

N_PERMUTATIONS = 10_000
"""Random permutations of labels; labels with no more permutations than that are permuted in every way."""


def self_heads(
    blocks: Iterable[Mapping[str, np.ndarray]], *, seed: int, model: str, n_permutations: int = N_PERMUTATIONS
) -> dict[str, np.ndarray]:
    """Compare every head's own spaces with other heads', layer by layer.

    Parameters
    ----------
    blocks
        Blocks of layers as :func:`headspaces.geometry.bases.block_bases` makes them, in order; one is held at a time.
    seed, model
        With the layer and the comparison they alone determine the random permutations.
    n_permutations
        Number of random permutations.

    Returns
    -------
    dict
        ========================= ============================ =======================================================
        field                     dimensions                   meaning
        ========================= ============================ =======================================================
        ``{XY}/rho``              layer, X head, Y head        overlap of all pairs within the layer (float64)
        ``{XY}/own``              layer                        mean over heads of the overlap of its own two spaces
        ``{XY}/others``           layer                        mean over pairs of different heads, or groups
        ``{XY}/p``                layer                        one-sided p of the own mean
        ``{XY}/n_permutations``   layer                        permutations it was compared with
        ``{XY}/exhaustive``       layer                        1 where these are all permutations there are
        ========================= ============================ =======================================================

        XY are those of VO, QK, QO whose kinds are there.
    """
    columns: dict[str, list[Any]] = {}
    first = 0
    for block in blocks:
        kinds = [kind for kind in "OQKV" if f"{kind}/basis" in block]
        n_layers = len(block[f"{kinds[0]}/basis"])
        for layer in range(n_layers):
            for spaces in (spaces for spaces in COMPARISONS if set(spaces) <= set(kinds)):
                bases, ranks = (
                    [block[name.format(kind)][layer] for kind in spaces] for name in ("{}/basis", "rank/{}")
                )
                rho = normalised(squared_overlaps(*bases), smaller_ranks(*ranks))
                rng = generator(seed, model, first + layer, spaces, "labels", 0)
                found = {"rho": rho, **label_test(label_matrix(rho), rng, n_permutations)}
                for name, value in found.items():
                    columns.setdefault(f"{spaces}/{name}", []).append(value)
        first += n_layers
    return {name: np.array(values) for name, values in columns.items()}


def label_matrix(rho: Float[np.ndarray, "one other"]) -> Float[np.ndarray, "label label"]:
    """Overlaps by label: where one side has a space for a group of heads of the other, the mean over the group."""
    n_one, n_other = rho.shape
    labels = min(n_one, n_other)
    return np.asarray(rho.reshape(labels, n_one // labels, labels, n_other // labels).mean(axis=(1, 3)))


def label_test(
    overlaps: Float[np.ndarray, "label label"], rng: np.random.Generator, n_permutations: int = N_PERMUTATIONS
) -> dict[str, float | int]:
    """Permutation test of whether the diagonal's mean is large.

    Parameters
    ----------
    overlaps
        Overlap of label i on one side with label j on the other; own pairs on the diagonal.
    rng
        Of the random permutations.
    n_permutations
        Number of random permutations. Where there are no more than that in all, every one is taken instead.

    Returns
    -------
    dict
        ``own`` and ``others``, the means on and off the diagonal; ``p``; ``n_permutations``; ``exhaustive``. Random
        permutations give ``(k + 1) / (n + 1)``; all of them, the identity among them, ``k / n``. NaN for ``others``
        where there is one label, and for everything where an overlap is undefined.
    """
    labels = len(overlaps)
    own = float(np.mean(np.diag(overlaps)))
    exhaustive = math.factorial(labels) <= n_permutations
    orders = _all_orders(labels) if exhaustive else _random_orders(labels, n_permutations, rng)
    means = overlaps[np.arange(labels), orders].mean(axis=1)
    if exhaustive:
        # The same numbers summed in another order must not count as smaller.
        p = float(np.mean(means >= own - TIE_RTOL * abs(own) - TIE_ATOL)) if math.isfinite(own) else math.nan
    else:
        p = float(monte_carlo_p(np.asarray(own), means))
    others = (overlaps.sum() - np.trace(overlaps)) / (labels * (labels - 1)) if labels > 1 else math.nan
    return {"own": own, "others": float(others), "p": p, "n_permutations": len(orders), "exhaustive": int(exhaustive)}


def _all_orders(labels: int) -> Int[np.ndarray, "order label"]:
    return np.array(list(permutations(range(labels))))


def _random_orders(labels: int, count: int, rng: np.random.Generator) -> Int[np.ndarray, "order label"]:
    return rng.permuted(np.broadcast_to(np.arange(labels), (count, labels)).copy(), axis=1)
