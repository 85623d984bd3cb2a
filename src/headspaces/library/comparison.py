"""Two models of one shape side by side, pair by pair (RW 5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from headspaces.errors import InputError
from headspaces.geometry.statistics import pair_statistics, rho_differences
from headspaces.library.comparisons import check_spaces
from headspaces.library.matching import match_heads
from headspaces.library.model import ModelSpaces
from headspaces.spaces import WITHIN


def compare(
    one: ModelSpaces,
    other: ModelSpaces,
    spaces: Sequence[str] = (),
    *,
    fold: bool | None = None,
    rank_rtol: float | None = None,
    match: bool = False,
) -> pd.DataFrame:
    """Set the overlaps of two models of one shape side by side, such as a base model and its tuned one.

    Parameters
    ----------
    one, other
        The models.
    spaces
        Names of comparisons; by default those of RW that both models allow: ``O`` … ``V`` within layers, ``OQ``,
        ``OK``, ``OV`` across.
    fold, rank_rtol
        As in :class:`ModelSpaces`.
    match
        Whether the second model's heads are put, layer by layer, into the order in which their O and V spaces together
        overlap most with the first one's; by default a head's number is its place in both. Of models that do not share
        a training the residual streams have nothing in common, nor have matched heads: ``mean_rho`` tells.

    Returns
    -------
    pandas.DataFrame
        A row for each comparison over all its pairs (``layer`` is missing), then one for each layer of those within
        layers: ``spaces``, ``layer``, ``n_pairs``, ``mean_rho_one``, ``mean_rho_other``, ``spread_one``,
        ``spread_other`` (standard deviation, ddof = 0), ``max_abs_difference``, ``median_abs_difference``,
        ``max_relative_difference`` (relative to the first). No units. Without a pair ``n_pairs`` is 0 and all else NaN:
        one head a layer has no pair within it, one layer none across. With ``match`` the frame's ``attrs["matching"]``
        says what was done: ``n_heads``, ``n_moved``, ``mean_rho`` of the matched heads by kind, ``order`` by layer.

    Raises
    ------
    InputError
        If the shapes differ, which is said before anything is computed; if the models share no comparison, or the
        weights cannot be read.

    Notes
    -----
    An overlap does not change when both spaces are rotated together, so equal overlaps do not say that the spaces
    stayed where they were.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> rng = np.random.default_rng(0)
    >>> base = {"O": rng.normal(size=(2, 3, 16, 2))}
    >>> tuned = {"O": base["O"] + 0.01 * rng.normal(size=(2, 3, 16, 2))}
    >>> found = hs.compare(hs.load(base, name="base"), hs.load(tuned, name="tuned"))
    >>> found[["spaces", "layer", "n_pairs", "max_abs_difference"]].round(4)
      spaces  layer  n_pairs  max_abs_difference
    0      O   <NA>        6              0.0027
    1      O      0        3              0.0027
    2      O      1        3              0.0025
    """
    both = (one, other)
    check_shapes(*both)
    names = tuple(dict.fromkeys(check_spaces(name, model.kinds, model.name) for name in spaces for model in both))
    names = names or tuple(name for name in one.comparisons if name in other.comparisons)
    if not names:
        raise InputError(f"{one.name} and {other.name}: no kind of spaces in common")
    matching = match_heads(one, other, fold=fold, rank_rtol=rank_rtol) if match else None
    overall, by_layer = [], []
    for name in names:
        rho = [model.overlaps(name, fold=fold, rank_rtol=rank_rtol).values for model in both]
        pairs = [_pairs(rho[0], name), _pairs(matching.reordered(rho[1], name) if matching else rho[1], name)]
        overall.append({"spaces": name, "layer": pd.NA, **_side_by_side(*pairs)})
        if name in WITHIN:
            by_layer += [
                {"spaces": name, "layer": layer, **_side_by_side(*rows)}
                for layer, rows in enumerate(zip(*pairs, strict=True))
            ]
    frame = pd.DataFrame([*overall, *by_layer]).astype({"layer": "Int64"})
    if matching:
        frame.attrs["matching"] = {
            "n_heads": matching.queries.size,
            "n_moved": matching.n_moved,
            "mean_rho": {kind: float(np.nanmean(values)) for kind, values in matching.rho.items()},
            "order": matching.queries.tolist(),
        }
    return frame


def check_shapes(one: ModelSpaces, other: ModelSpaces) -> None:
    """Refuse models whose heads cannot be set side by side.

    Raises
    ------
    InputError
        Naming the first number that differs.
    """
    expected, found = asdict(one.shape), asdict(other.shape)
    for key, value in expected.items():
        if found[key] != value:
            raise InputError(
                f"{one.name} and {other.name}: {key} is {value} and {found[key]}; only models of one shape "
                "can be compared pair by pair"
            )


def _pairs(rho: np.ndarray, spaces: str) -> Float[np.ndarray, "condition pair"]:
    """Cut overlaps to their pairs: one row a layer, or a layer pair."""
    if spaces in WITHIN:
        return np.asarray(rho[(slice(None), *np.triu_indices(rho.shape[1], k=1))])
    earlier, later = np.triu_indices(len(rho), k=1)
    return np.asarray(rho[earlier, later].reshape(len(earlier), rho.shape[2] * rho.shape[3]))


def _side_by_side(one: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    values = [pair_statistics(rho.ravel()) for rho in (one, other)]
    means = {f"mean_rho_{side}": float(value["mean"]) for side, value in zip(("one", "other"), values, strict=True)}
    spreads = {f"spread_{side}": float(value["spread"]) for side, value in zip(("one", "other"), values, strict=True)}
    differences = rho_differences(one, other)
    return {"n_pairs": differences.pop("n_pairs"), **means, **spreads, **differences}
