"""Models of a study that share weights: revisions, seeds or copies that turn out to hold another one's.

Branches of training checkpoints that all hold the final weights, or a fine-tune that was never uploaded, make a
trajectory flat and two seeds alike. Nothing else of the pipeline would notice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headspaces.text_tables import write_csv
from headspaces.weights.blocks import read_metadata
from headspaces.weights.formats.safetensors_header import read_header

SAME_RHO = 1e-6
"""Overlaps that differ by no more are those of one set of weights, whatever the format and arithmetic: float32 rounds
by less."""


@dataclass(frozen=True)
class Duplicate:
    """Two models that share weights.

    Attention matrices of one name in both are common, byte for byte equal ones the same. ``max_rho_difference`` is the
    largest difference of any overlap within a layer; NaN where the shapes differ, or nothing can be told from them.
    """

    model: str
    other: str
    n_same_tensors: int
    n_common_tensors: int
    max_rho_difference: float

    @property
    def is_one_model(self) -> bool:
        """Whether all that they have in common is the same, and not some layers alone, as after frozen training."""
        return self.n_same_tensors == self.n_common_tensors > 0 or self.max_rho_difference <= SAME_RHO

    def __str__(self) -> str:
        """Say it in one sentence."""
        if self.n_same_tensors:
            what = f"{self.n_same_tensors} of {self.n_common_tensors} attention matrices are byte for byte the same"
        else:
            what = f"all overlaps within layers agree to {self.max_rho_difference:.0e}"
        return f"{self.model} and {self.other}: {what}"


def tensor_sums(blocks: Iterable[str | Path]) -> dict[str, str]:
    """SHA-256 of each of a model's attention matrices, from its blocks' headers; no weight is read.

    Gains are left out: those of untrained norms are all alike.
    """
    sums: dict[str, str] = {}
    for path in map(Path, blocks):
        tensors = read_header(path, path.name)
        values = json.loads(read_metadata(path)["sha256"])
        sums |= {name: value for name, value in values.items() if len(tensors[name].shape) > 1}
    return sums


def find_duplicates(
    sums: Mapping[str, Mapping[str, str]], rho: Mapping[str, Mapping[str, np.ndarray]]
) -> list[Duplicate]:
    """Find the pairs of models that share a matrix, or all of whose overlaps within layers are the same.

    ``sums`` has by model what :func:`tensor_sums` gives; ``rho`` by model and dataset [layer, head, head]: the same
    weights in another number format have other bytes and the same overlaps.
    """
    found = []
    for model, other in combinations(sums, 2):
        common = sums[model].keys() & sums[other].keys()
        same = sum(sums[model][name] == sums[other][name] for name in common)
        difference = _largest_difference(rho[model], rho[other])
        if same or difference <= SAME_RHO:
            found.append(Duplicate(model, other, same, len(common), difference))
    return found


def _largest_difference(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    names = sorted(one.keys() & other.keys())
    if not names or any(one[name].shape != other[name].shape for name in names):
        return math.nan
    left, right = (np.concatenate([model[name].ravel() for name in names]) for model in (one, other))
    # Undefined overlaps stand in the same places. A space with itself, or the whole stream, has 1 in every model.
    telling = np.isfinite(left) & ~np.isclose(left, 1.0) & ~np.isclose(left, 0.0)
    if not telling.any() or not np.array_equal(np.isnan(left), np.isnan(right)):
        return math.nan
    return float(np.nanmax(np.abs(left - right)))


def write_duplicates(found: Sequence[Duplicate], path: str | Path) -> None:
    """Write one row per pair of models as CSV; only the header where there is none."""
    write_csv(list(Duplicate.__dataclass_fields__), map(astuple, found), path)


def read_duplicates(path: str | Path) -> list[Duplicate]:
    """Read what :func:`write_duplicates` wrote."""
    names: Any = {"model": str, "other": str}
    frame = pd.read_csv(path, dtype=names, keep_default_na=False, na_values={"max_rho_difference": ["nan"]})
    return [Duplicate(*row) for row in frame.itertuples(index=False, name=None)]
