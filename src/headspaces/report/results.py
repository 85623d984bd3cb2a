"""Results of the stages for one model, cut into the comparisons of RW section 5.

A *condition* is one layer (spaces of one kind within it) or one pair of a writer layer and a later reader layer; a
*comparison* is all conditions of the same spaces. Tables and figures are functions of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headspaces.errors import check_own
from headspaces.geometry.statistics import isotropic_mean, isotropic_sd, pair_statistics
from headspaces.spaces import KINDS, NULLS, READS, SWAP, Shape
from headspaces.store import dataset_names, read_arrays, read_attributes

Arrays = Mapping[str, np.ndarray]

MEASURES = {"text": "", "repeats": "repeats/", "prompts": "prompts/"}
"""By what effects are measured on, where its arrays stand in the attribution file."""


class StoredArrays(Mapping[str, np.ndarray]):
    """The arrays of one file of the pipeline, each read when first asked for."""

    def __init__(self, path: str | Path, stage: str) -> None:
        self._path, self._stage = path, stage
        self._names = dataset_names(path, stage)
        self._read: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the array, from memory after the first time."""
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            self._read |= read_arrays(self._path, self._stage, [name])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the arrays."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._names)


@dataclass(frozen=True)
class NullPairs:
    """Every pair of every null sample, for one layer.

    ``layer`` is the one with the upper median of the layers' observed spreads; ``rho`` holds, by null model, ``random``
    subspaces among them, the overlap of each pair of each sample.
    """

    layer: int
    rho: Mapping[str, Float[np.ndarray, "sample pair"]]


@dataclass(frozen=True)
class Comparison:
    """The pairs of head spaces of one kind within each layer, or of writers and readers across each layer pair.

    ``scope`` is ``within`` a layer or ``across`` two; ``spaces`` are ``O``, ``Q``, ``K``, ``V`` or ``OQ``, ``OK``,
    ``OV`` (writer, then reader). ``layers`` has of each condition the layer twice, or the writer's and the reader's.
    ``rho`` is NaN where a space has dimension zero; ``angles`` are the smallest principal ones in degrees;
    ``nulls["rotation"]["spread"]`` are a statistic's values in every sample.
    """

    model: ModelResults
    scope: str
    spaces: str
    layers: Int[np.ndarray, "condition 2"]
    rho: Float[np.ndarray, "condition pair"]
    angles: Float[np.ndarray, "condition pair"]
    nulls: Mapping[str, Mapping[str, Float[np.ndarray, "sample condition"]]] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """Model, scope and spaces: what names a row of a table."""
        return {"model": self.model.name, "scope": self.scope, "spaces": self.spaces}

    @property
    def n_conditions(self) -> int:
        """Number of layers or layer pairs."""
        return len(self.layers)

    @property
    def n_pairs(self) -> int:
        """Number of pairs in one condition."""
        return int(self.rho.shape[1])

    @cached_property
    def statistics(self) -> dict[str, Float[np.ndarray, " condition"]]:
        """Statistics of each condition's pairs, those that the null samples have: spread, mean, median, p95, min_angle.

        Spread is the standard deviation with ddof = 0; angles are in degrees. NaN for a condition without pairs.
        """
        defined = [row[np.isfinite(row)] for row in self.angles]
        smallest = np.array([row.min() if row.size else np.nan for row in defined], dtype=np.float64)
        return {**pair_statistics(self.rho), "min_angle": smallest}

    @property
    def spread(self) -> Float[np.ndarray, " condition"]:
        """Standard deviation of rho, ddof = 0."""
        return self.statistics["spread"]

    @property
    def mean(self) -> Float[np.ndarray, " condition"]:
        """Mean of rho."""
        return self.statistics["mean"]

    def samples(self, statistic: str) -> list[Float[np.ndarray, "sample condition"]]:
        """Return the samples of the rotation and of the reassignment null model."""
        return [self.nulls[null][statistic] for null in NULLS]

    def null_pairs(self) -> NullPairs | None:
        """Return the null samples' pairs in the layer of RW figure 2, where the null models kept them."""
        nulls, place = self.model.nulls, f"pairs/{self.spaces}"
        if nulls is None or f"{place}/layer" not in nulls:
            return None
        names = {null: f"{place}/{null}/rho" for null in (*NULLS, "random")}
        rho = {null: nulls[name] for null, name in names.items() if name in nulls}
        return NullPairs(int(nulls[f"{place}/layer"]), rho)

    def has_nulls(self, statistic: str = "spread") -> bool:
        """Whether both null models have samples of a statistic."""
        return all(statistic in self.nulls.get(null, {}) for null in NULLS)


@dataclass(frozen=True)
class ModelResults:
    """The files of one model.

    ``attributes`` are the overlaps file's root attributes: shape, source, what made it. The others are a stage's arrays
    by their path in its file; ``None`` where the stage did not run.
    """

    name: str
    attributes: Mapping[str, Any]
    overlaps: Arrays
    nulls: Arrays | None = None
    orthonormal: Arrays | None = None
    activations: Arrays | None = None
    affinity: Arrays | None = None
    attention: Arrays | None = None
    self_heads: Arrays | None = None
    attribution: Arrays | None = None
    ablation: Arrays | None = None
    stream: Arrays | None = None
    series: Arrays | None = None

    @property
    def on_orthonormal_columns(self) -> ModelResults:
        """The same model beside RW's null models of orthonormal columns; without null samples where there are none."""
        return replace(self, nulls=self.orthonormal)

    @property
    def kinds(self) -> str:
        """Kinds of head spaces that were compared, in the order O Q K V."""
        return "".join(kind for kind in KINDS if f"within/{kind}/rho" in self.overlaps)

    @property
    def shape(self) -> Shape:
        """The model's shape."""
        return Shape.from_attributes(self.attributes)

    @property
    def isotropic(self) -> float:
        """Expected rho of two independent uniform random subspaces, d / D."""
        return isotropic_mean(self.attributes["d_model"], self.attributes["d_head"])

    @property
    def random_sd(self) -> float:
        """Standard deviation of rho of two independent uniform random subspaces (RW section 5.1)."""
        return isotropic_sd(self.attributes["d_model"], self.attributes["d_head"])

    def within(self, kind: str) -> Comparison:
        """Compare the unordered pairs of one kind of spaces within each layer."""
        one, other = np.triu_indices(self.overlaps[f"within/{kind}/rho"].shape[1], k=1)
        rho, angles = (self.overlaps[f"within/{kind}/{quantity}"][:, one, other] for quantity in ("rho", "angle"))
        layers = np.repeat(np.arange(len(rho))[:, None], 2, axis=1)
        return Comparison(self, "within", kind, layers, rho, angles, self._nulls(f"within/{kind}"))

    def across(self, kind: str) -> Comparison:
        """Compare every writer head of each layer with every reader head of each later layer."""
        writer, reader = np.triu_indices(len(self.overlaps[f"cross/O{kind}/rho"]), k=1)
        rho, angles = (self.across_values(f"O{kind}", quantity) for quantity in ("rho", "angle"))
        nulls = self._nulls(f"cross/O{kind}", (slice(None), writer, reader))
        return Comparison(self, "across", f"O{kind}", np.stack([writer, reader], axis=1), rho, angles, nulls)

    def across_values(self, spaces: str, quantity: str, stage: str = "overlaps") -> Float[np.ndarray, "condition pair"]:
        """Cut any pairwise quantity to the pairs of :meth:`across`, in the same order."""
        path = f"cross/{spaces}/{quantity}" if stage == "overlaps" else f"{spaces[1]}/{quantity}"
        array = getattr(self, stage)[path]
        writer, reader = np.triu_indices(len(array), k=1)
        return np.asarray(array[writer, reader].reshape(len(writer), array.shape[2] * array.shape[3]), dtype=np.float64)

    def compare_all(self, scope: str = "") -> Iterator[Comparison]:
        """Make all comparisons: within O, Q, K, V, then across OQ, OK, OV, as far as the model has the kinds.

        Or only those of one scope: those of the other are then not even read.
        """
        if scope != "across":
            yield from (self.within(kind) for kind in self.kinds)
        if scope != "within":
            yield from (self.across(kind) for kind in READS if f"cross/O{kind}/rho" in self.overlaps)

    def _nulls(self, place: str, kept: Any = ...) -> dict[str, dict[str, Float[np.ndarray, "sample condition"]]]:
        arrays, found = self.nulls or {}, {}
        for null in (*NULLS, SWAP) if self.nulls is not None else ():
            names = [name for name in arrays if name.startswith(f"{place}/{null}/")]
            if names or null != SWAP:
                found[null] = {name.rsplit("/", 1)[1]: arrays[name][kept] for name in names}
        return found


def compare_all(models: Iterable[ModelResults], scope: str = "") -> Iterator[Comparison]:
    """Make every comparison of every model, or all of them ``within`` layers or ``across``."""
    return (found for model in models for found in model.compare_all(scope))


def first_measure(attribution: Arrays) -> str:
    """Say where the attribution file has the arrays of the first measure: at its root, where there is a text."""
    return next(start for start in MEASURES.values() if f"{start}Q/effect" in attribution)


def read_results(name: str, files: Mapping[str, str | Path]) -> ModelResults:
    """Open a model's files.

    ``files`` are the paths by stage: ``overlaps``, and where there are any, the others of :class:`ModelResults`; of a
    series of checkpoints ``series`` alone. Raises :class:`InputError` if a file cannot be read, has changed since it
    was written or is of another kind or version.
    """
    for stage, path in files.items():
        check_own(path, {"model": name} | read_attributes(path, stage), {"model": name})
    arrays = {stage: StoredArrays(path, stage) for stage, path in files.items()}
    first = "overlaps" if "overlaps" in files else "series"
    return ModelResults(name, read_attributes(files[first], first), **{"overlaps": {}, **arrays})
