"""Shards of null samples: what each says of itself, and their merging into one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headspaces.errors import InputError
from headspaces.nulls.samples import NullRun

OWN_ATTRIBUTES = {"null", "first_sample", "n_samples", "package_version", "device"}
"""Attributes of a shard's file in which it may differ from another shard of the model."""

OF_ONE_NULL = {"code_sha256", "burn_in", "sweeps", "nulls_dtype"}
"""Attributes that only the shards of one null model share."""


@dataclass(frozen=True)
class Shard:
    """A shard as it was stored.

    Attributes
    ----------
    name
        Where it came from, for messages.
    attributes
        What :func:`shard_attributes` says, and whatever else must be the same for all shards of a model.
    arrays
        What :func:`null_shard` gave.
    """

    name: str
    attributes: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def shard_attributes(run: NullRun, null: str, samples: range) -> dict[str, str | int | float]:
    """Describe a shard; the numbers of its samples are consecutive."""
    return {
        **run.settings,
        "model": run.model,
        "seed": run.seed,
        "nulls_dtype": run.dtype,
        "rank_rtol": run.rtol,
        "null": null,
        "first_sample": samples.start,
        "n_samples": len(samples),
    }


def merge_shards(shards: Sequence[Shard], n_samples: int) -> dict[str, np.ndarray]:
    """Join the shards of a model: the first samples of every null model, in order.

    Parameters
    ----------
    shards
        In any order; those of one null model follow one another without a gap.
    n_samples
        Samples that are wanted; the last shard may hold more.

    Returns
    -------
    dict of arrays
        The fields of :func:`null_shard` for every null model that has a shard, with ``n_samples`` samples.

    Raises
    ------
    InputError
        If shards differ in what they must share, or samples are missing or there twice.
    """
    for shard in shards[1:]:
        _check_same(shards[0], shard, OWN_ATTRIBUTES | OF_ONE_NULL)
    merged: dict[str, np.ndarray] = {}
    for null in dict.fromkeys(shard.attributes["null"] for shard in shards):
        own = sorted(_of_null(shards, null), key=lambda shard: int(shard.attributes["first_sample"]))
        for shard in own[1:]:
            _check_same(own[0], shard, OWN_ATTRIBUTES)
        _check_sequence(own, null, n_samples)
        for name, array in own[0].arrays.items():
            parts = [shard.arrays[name] for shard in own]
            merged[name] = array if name.endswith("/layer") else np.concatenate(parts)[:n_samples]
    return merged


def _of_null(shards: Sequence[Shard], null: str) -> Iterator[Shard]:
    return (shard for shard in shards if shard.attributes["null"] == null)


def _check_same(first: Shard, shard: Shard, own: set[str]) -> None:
    for key in sorted({*first.attributes, *shard.attributes} - own):
        expected, found = (one.attributes.get(key) for one in (first, shard))
        if expected != found:
            raise InputError(
                f"{shard.name}: {key} is {found!r}, expected {expected!r} as in {first.name}; "
                "delete the one that is out of date and run again"
            )
    for name in (name for name in first.arrays if name.endswith("/layer")):
        if name not in shard.arrays or shard.arrays[name] != first.arrays[name]:
            raise InputError(
                f"{shard.name}: {name} is {shard.arrays.get(name)}, expected {first.arrays[name]} as in {first.name}; "
                "the observed overlaps have changed in between: delete both and run again"
            )


def _check_sequence(shards: Sequence[Shard], null: str, n_samples: int) -> None:
    expected = 0
    for shard in shards:
        if (first := int(shard.attributes["first_sample"])) != expected:
            raise InputError(
                f"{shard.name}: its first sample of the null model {null!r} is {first}, expected {expected}; "
                "the shards overlap or one is missing: give all of one size"
            )
        expected += int(shard.attributes["n_samples"])
    if expected < n_samples:
        raise InputError(
            f"{shards[-1].name}: the last sample of the null model {null!r} is {expected - 1}, but {n_samples} samples "
            "are wanted; give the shards that follow"
        )
