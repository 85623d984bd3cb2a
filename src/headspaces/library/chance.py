"""A model's overlaps against chance: the null models of RW section 5.1 for one comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headspaces.errors import InputError
from headspaces.geometry.statistics import monte_carlo_p, pair_statistics, spread_ratio
from headspaces.library.comparisons import OF_THE_PAPER, check_spaces, dimensions
from headspaces.library.model import ModelSpaces
from headspaces.library.overlaps_of import ComputedGeometry
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.nulls.significance import exchangeable, pair_scores
from headspaces.nulls.swap_run import SwapRun, burnt_in
from headspaces.spaces import KINDS, NULLS, SWAP, WITHIN

BURN_IN = 10
"""Sweeps of the swap null from the observed spaces to where samples start, as the pipeline's configuration has them."""

PAIRS = {
    "z": "distance of a pair's rho from the swap null's mean, in standard deviations",
    "pair_p": "one-sided p of a pair's rho against the swap null",
}
"""What is said of single pairs."""


def null_test(
    model: ModelSpaces,
    spaces: str,
    null: str | Sequence[str] = NULLS,
    *,
    samples: int = 30,
    seed: int = 0,
    fold: bool | None = None,
    rank_rtol: float | None = None,
) -> xr.Dataset:
    """Ask of every layer, or layer pair, whether its overlaps spread more than null models let expect.

    Parameters
    ----------
    model
        The model. Its weights of the kinds in question are held in memory.
    spaces
        ``O``, ``Q``, ``K``, ``V`` within layers, or ``OQ``, ``OK``, ``OV`` across.
    null
        One or several null models: ``rotation`` (all directions rotated at random, the spectrum kept), ``reassignment``
        (the learnt directions given to heads at random), ``swap`` (pairs of heads exchange principal vectors; a layer
        needs three heads).
    samples
        Samples of each.
    seed
        With the model's name and a sample's number it determines the draws: the pipeline's nulls stage gives the same
        samples for the same seed and name.
    fold, rank_rtol
        As in :class:`ModelSpaces`.

    Returns
    -------
    xarray.Dataset
        Over ``layer``, or ``writer_layer`` and ``reader_layer`` (NaN unless the reader's is later): ``spread``, the
        standard deviation (ddof = 0) of the observed rho; ``r``, that over the largest spread of all samples; and over
        ``null`` too, ``p`` (one-sided, ``(k + 1) / (n + 1)`` for k of n samples that spread at least as much) and
        ``null_spread`` of every ``sample``. With the swap null, over all pairs as :meth:`ModelSpaces.overlaps` has
        them, ``z`` and ``pair_p``: of every pair of heads against all pairs of all swap samples of its layer or layer
        pair, for which heads of one rank serve alike; NaN where ranks differ. No units.

    Raises
    ------
    InputError
        If a null model is not known, there is no such comparison, or the weights cannot be read.

    Notes
    -----
    RW 5.1 and 5.3. ``r`` is a ratio to a maximum and depends on the number of samples; ``p`` is no smaller than
    ``1 / (samples + 1)``.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> heads = np.random.default_rng(0).normal(size=(2, 4, 16, 2))
    >>> heads[1, 1] = heads[1, 0]  # two heads of layer 1 write to one space
    >>> found = hs.null_test(hs.load({"O": heads}), "O", samples=9)
    >>> found["p"].sel(layer=1).values.tolist()
    [0.1, 0.1]
    >>> bool(found["r"].sel(layer=1) > 1)
    True
    """
    name = check_spaces(spaces, model.kinds, model.name)
    nulls = (null,) if isinstance(null, str) else tuple(null)
    _check(name, nulls, samples, model.name)
    folded, tolerance = model.answers.settings(fold, rank_rtol)
    kinds = "".join(kind for kind in KINDS if kind in name)
    place = f"within/{name}" if name in WITHIN else f"cross/{name}"
    drawn, pairs = [], {}
    geometry, overlaps = model.answers.computed(fold, rank_rtol), model.overlaps(name, fold=fold, rank_rtol=rank_rtol)
    for one in nulls:
        run = _run(geometry, one, model, kinds, seed, tolerance)
        shard = null_shard(run, one, range(samples))
        drawn.append(shard[f"{place}/{one}/spread"])
        if one == SWAP:
            ranks = {kind: found.rank for kind, found in geometry.all_layers(kinds).items()}
            moments = [shard[f"{place}/{one}/{moment}"] for moment in ("mean", "spread", "skewness")]
            pairs = _pair_scores(overlaps.values, name, moments, ranks)
    observed = _observed(overlaps.values, name)
    axes = tuple(axis for axis in dimensions(name) if axis.endswith("layer"))
    together, p = np.concatenate(drawn), [monte_carlo_p(observed, one) for one in drawn]
    return xr.Dataset(
        {
            "spread": (axes, observed, _described("spread of the observed rho")),
            "r": (axes, spread_ratio(observed, together, together[:0]), _described("over the largest null spread")),
            "p": (("null", *axes), np.stack(p), _described("one-sided p")),
            "null_spread": (("null", "sample", *axes), np.stack(drawn), _described("spread of a null sample's rho")),
            **{quantity: (overlaps.dims, values, _described(PAIRS[quantity])) for quantity, values in pairs.items()},
        },
        {
            "null": list(nulls),
            "sample": range(samples),
            **{axis: range(model.shape.n_layers) for axis in axes},
            **({axis: overlaps[axis] for axis in overlaps.dims} if pairs else {}),
        },
        {
            "model": model.name,
            "spaces": name,
            "fold": int(folded),
            "rank_rtol": tolerance,
            "leave_out_rounding": int(model.heads.leave_out_rounding),
            "seed": seed,
        },
    )


def _run(geometry: ComputedGeometry, null: str, model: ModelSpaces, kinds: str, seed: int, rtol: float) -> NullRun:
    """Say how a null model is sampled; the swap null starts from bases that have forgotten the observed spaces."""
    common: dict[str, Any] = {"shape": model.shape, "kinds": kinds, "model": model.name, "seed": seed, "rtol": rtol}
    if null != SWAP:
        factors = {kind: list(geometry.factors(kind)) for kind in kinds}
        return NullRun(lambda layer, kind: factors[kind][layer], **common)
    block: dict[str, np.ndarray] = {}
    for kind, found in geometry.all_layers(kinds).items():
        block |= {f"{kind}/basis": found.basis, f"rank/{kind}": found.rank}
    start = burnt_in(block, 0, seed=seed, model=model.name, burn_in=BURN_IN, dtype="float64")
    return SwapRun(lambda layer, kind: start[f"{layer}/{kind}"], **common, burn_in=BURN_IN)


def _pair_scores(
    rho: np.ndarray, spaces: str, moments: Sequence[np.ndarray], ranks: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Score every pair against the swap null of its condition; NaN where its heads differ in rank."""
    left, right = ranks[spaces[0]], ranks[spaces[-1]]
    within = spaces in WITHIN
    one, other = np.triu_indices(rho.shape[-2], k=1) if within else np.indices(rho.shape[2:]).reshape(2, -1)
    same = exchangeable(left) if within else exchangeable(left)[:, None] & exchangeable(right)[None]
    scored = pair_scores(np.where(same[..., None], rho[..., one, other], np.nan), *moments)
    found = {}
    for quantity, values in zip(PAIRS, scored, strict=True):
        found[quantity] = np.full(rho.shape, np.nan)
        found[quantity][..., one, other] = values
        if within:
            found[quantity][..., other, one] = values
    return found


def _described(meaning: str) -> dict[str, Any]:
    return {"long_name": meaning, "units": "1"}


def _check(spaces: str, nulls: Sequence[str], samples: int, where: str) -> None:
    if spaces not in OF_THE_PAPER:
        raise InputError(f"{where}: null models compare {', '.join(OF_THE_PAPER)}, not {spaces}")
    if unknown := [name for name in nulls if name not in (*NULLS, SWAP)]:
        raise InputError(f"{where}: unknown null model {unknown[0]!r}; known are {', '.join((*NULLS, SWAP))}")
    if not nulls or isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise InputError(f"{where}: {samples!r} samples of {len(nulls)} null models; expected at least one of one")


def _observed(rho: np.ndarray, spaces: str) -> np.ndarray:
    """Spread of every condition; NaN where no reader's layer is later."""
    if spaces in WITHIN:
        one, other = np.triu_indices(rho.shape[1], k=1)
        return pair_statistics(rho[:, one, other])["spread"]
    return pair_statistics(rho.reshape(*rho.shape[:2], -1) if rho.size else rho[..., 0])["spread"]
