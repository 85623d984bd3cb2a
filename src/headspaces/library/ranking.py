"""Tables of one model: its pairs by strength, and its heads' spectra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from headspaces.geometry.pairs import normalised
from headspaces.library.overlaps_of import Geometry, KindSpaces
from headspaces.spaces import WITHIN


def ranked_pairs(
    geometry: Geometry, spaces: str, k: int | None, by: str, effects: np.ndarray | None = None
) -> pd.DataFrame:
    """List the k strongest pairs, or all, with their effects if given; see :meth:`headspaces.ModelSpaces.top_pairs`."""
    squared, smaller = geometry.kernel(spaces)
    rho = normalised(squared, smaller)
    # Within a layer a pair stands twice, and every head once with itself.
    counted = np.isfinite(rho) & (np.triu(np.ones(rho.shape[1:], bool), 1) if spaces in WITHIN else True)
    strength = {"rho": rho, "pk": squared}.get(by)
    if strength is None:
        strength = -geometry.angles(spaces)
    strength = np.where(counted, strength, -np.inf)
    order = np.argsort(-strength, axis=None, kind="stable")[: min(int(counted.sum()), k or strength.size)]
    places = list(zip(*(axis.tolist() for axis in np.unravel_index(order, rho.shape)), strict=True))
    ends = ("head", "other_head") if spaces in WITHIN else ("writer", "reader")
    later = 0 if spaces in WITHIN else 1
    frame = pd.DataFrame(
        {
            ends[0]: [f"{at[0]}.{at[-2]}" for at in places],
            ends[1]: [f"{at[later]}.{at[-1]}" for at in places],
            "pk": squared.ravel()[order],
            "rho": rho.ravel()[order],
            "angle_deg": geometry.angles_at(spaces, places),
        }
    )
    return frame if effects is None else frame.assign(effect=effects.ravel()[order])


def spectra_frame(
    kinds: Mapping[str, Iterable[KindSpaces]],
) -> pd.DataFrame:
    """List every head's ranks, by kind and layer; see :meth:`headspaces.ModelSpaces.spectra`."""
    rows = []
    for kind, layers in kinds.items():
        for layer, spaces in enumerate(layers):
            singular, rank = spaces.singular_values[0], spaces.rank[0]
            largest = singular[:, :1]
            shares = np.divide(singular, largest, out=np.full(singular.shape, np.nan), where=largest > 0)
            stable = np.sum(shares**2, axis=1)
            shares = shares / shares.sum(axis=1, keepdims=True)
            entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
            rows += [
                (kind, f"{layer}.{head}", int(rank[head]), float(stable[head]), float(np.exp(entropy[head])))
                for head in range(len(rank))
            ]
    return pd.DataFrame(rows, columns=["kind", "head", "rank", "stable_rank", "entropy_rank"])
