"""Overlaps and angles of one model: computed from its weights, or read from the pipeline's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from headspaces.geometry.angles import smallest_angles
from headspaces.geometry.bases import orthonormal_bases
from headspaces.geometry.heads import LayerHeads, fold
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.pairs import layer_overlaps, smaller_ranks
from headspaces.library.comparisons import WITHIN
from headspaces.report.results import ModelResults
from headspaces.spaces import Shape
from headspaces.threads import map_in_order, worker_count

KEPT_BYTES = 2**31
"""Bases up to this size together stay in memory between two questions."""

SINGLE_ANGLES = 300
"""From so many pairs on all angles of a comparison are computed at once."""

Places = Sequence[tuple[int, ...]]
"""Indices of pairs in the array of a comparison."""


@dataclass(frozen=True)
class KindSpaces:
    """Spaces of one kind in consecutive layers.

    Attributes
    ----------
    basis
        Orthonormal columns, the most weighted direction first, zero beyond the rank.
    singular_values
        Of the heads' maps, descending.
    rank
        Numerical ranks.
    """

    basis: Float[np.ndarray, "layer head d_model direction"]
    singular_values: Float[np.ndarray, "layer head direction"]
    rank: Int[np.ndarray, "layer head"]

    def leading(self, n: int | None) -> KindSpaces:
        """Keep the ``n`` most weighted directions of every head, or all."""
        if n is None:
            return self
        return KindSpaces(self.basis[..., :n], self.singular_values[..., :n], np.minimum(self.rank, n))


@runtime_checkable
class Geometry(Protocol):
    """What can be asked about pairs of spaces; arrays have the axes of :func:`~.comparisons.dimensions`."""

    def kernel(self, spaces: str) -> tuple[np.ndarray, np.ndarray]:
        """Give PK and the smaller rank of every pair; NaN where the reader's layer is not later."""

    def angles(self, spaces: str) -> np.ndarray:
        """Give the smallest principal angle of every pair in degrees."""

    def angles_at(self, spaces: str, places: Places) -> Float[np.ndarray, " pair"]:
        """Give the smallest principal angles of some pairs in degrees."""


@dataclass(frozen=True)
class StoredGeometry:
    """Overlaps of the pipeline's results."""

    results: ModelResults

    def kernel(self, spaces: str) -> tuple[np.ndarray, np.ndarray]:
        """Give PK and the smaller rank of every pair."""
        arrays = self.results.overlaps
        smaller = _smaller(arrays[f"rank/{spaces[0]}"], arrays[f"rank/{spaces[-1]}"], spaces)
        rho = arrays[dataset(spaces, "rho")]
        return rho * smaller, np.broadcast_to(smaller, rho.shape)

    def angles(self, spaces: str) -> np.ndarray:
        """Give the smallest principal angle of every pair in degrees."""
        return self.results.overlaps[dataset(spaces, "angle")]

    def angles_at(self, spaces: str, places: Places) -> Float[np.ndarray, " pair"]:
        """Give the smallest principal angles of some pairs in degrees."""
        return _chosen(self.angles(spaces), places)


def dataset(spaces: str, quantity: str) -> str:
    """Path of a comparison's quantity in an overlaps file."""
    return f"{'within' if spaces in WITHIN else 'cross'}/{spaces}/{quantity}"


class ComputedGeometry:
    """Overlaps that are computed from weights.

    Parameters
    ----------
    read
        Gives the layers with the heads of some kinds, one after the other.
    shape
        Shape of the model.
    fold_norms, rtol, n_leading
        Whether norms are folded; the tolerance of ranks; how many directions of a head count, or None for all.
    """

    def __init__(
        self, read: Callable[[str], Iterator[LayerHeads]], shape: Shape, fold_norms: bool, rtol: float,
        n_leading: int | None = None,
    ) -> None:  # fmt: skip
        self._read, self._shape = read, shape
        self._fold, self._rtol, self._n_leading = fold_norms, rtol, n_leading
        self._kept: dict[str, KindSpaces] = {}

    def factors(self, kind: str) -> Iterator[Float[np.ndarray, "head d_model d_head"]]:
        """Give the factors of one kind layer by layer, folded where norms are."""
        for heads in self._read(kind):
            yield fold(heads, kind) if self._fold else heads.factors[kind]

    def each_layer(self, kind: str) -> Iterator[KindSpaces]:
        """Give one kind's spaces layer by layer, each with its layer's axis; what is small is kept for later."""
        if kind not in self._kept and self._bytes(kind) <= KEPT_BYTES:
            self.all_layers([kind])
        if kind in self._kept:
            of = self._kept[kind]
            for i in range(self._shape.n_layers):
                yield KindSpaces(of.basis[i : i + 1], of.singular_values[i : i + 1], of.rank[i : i + 1])
            return
        for layer in self._computed([kind]):
            yield layer[kind]

    def all_layers(self, kinds: Sequence[str]) -> Mapping[str, KindSpaces]:
        """Give the spaces of some kinds in all layers; the weights are read once for all that are not kept."""
        found = {kind: self._kept[kind] for kind in kinds if kind in self._kept}
        missing = [kind for kind in dict.fromkeys(kinds) if kind not in found]
        parts: dict[str, list[KindSpaces]] = {kind: [] for kind in missing}
        for layer in self._computed(missing) if missing else ():
            for kind in missing:
                parts[kind].append(layer[kind])
        for kind in missing:
            own = parts.pop(kind)
            found[kind] = KindSpaces(
                np.concatenate([part.basis for part in own]),
                np.concatenate([part.singular_values for part in own]),
                np.concatenate([part.rank for part in own]),
            )
            self._keep(kind, found[kind])
        return found

    def kernel(self, spaces: str) -> tuple[np.ndarray, np.ndarray]:
        """Give PK and the smaller rank of every pair."""
        if spaces in WITHIN:
            squared, smaller = [], []
            for layer in self.each_layer(spaces):
                squared.append(squared_overlaps(layer.basis[0], layer.basis[0]))
                smaller.append(smaller_ranks(layer.rank[0], layer.rank[0]))
            return np.stack(squared), np.stack(smaller)
        found = self.all_layers(spaces)
        bases = {kind: own.basis for kind, own in found.items()}
        pairs = layer_overlaps(bases, within="", sources=spaces[0], targets=spaces[1])
        pk = pairs.across[spaces]
        smaller_rank = _smaller(found[spaces[0]].rank, found[spaces[1]].rank, spaces)
        return pk, np.broadcast_to(smaller_rank, pk.shape)

    def angles(self, spaces: str) -> np.ndarray:
        """Give the smallest principal angle of every pair in degrees."""
        if spaces in WITHIN:
            return np.stack([smallest_angles(layer.basis[0], layer.basis[0]) for layer in self.each_layer(spaces)])
        found = self.all_layers(spaces)
        left, right = found[spaces[0]].basis, found[spaces[1]].basis
        angles = np.full((len(left), len(right), left.shape[1], right.shape[1]), np.nan)
        for layer in range(len(left) - 1):
            later = right[layer + 1 :]
            flat = smallest_angles(left[layer], later.reshape(-1, *later.shape[2:]))
            angles[layer, layer + 1 :] = flat.reshape(len(flat), *later.shape[:2]).swapaxes(0, 1)
        return angles

    def angles_at(self, spaces: str, places: Places) -> Float[np.ndarray, " pair"]:
        """Give the smallest principal angles of some pairs in degrees."""
        if len(places) >= SINGLE_ANGLES or (spaces in WITHIN and spaces not in self._kept):
            return _chosen(self.angles(spaces), places)
        found = self.all_layers(spaces)
        values = np.empty(len(places))
        for number, at in enumerate(places):
            later = at[1] if len(at) == 4 else at[0]
            one, other = found[spaces[0]].basis[at[0], at[-2]], found[spaces[-1]].basis[later, at[-1]]
            values[number] = smallest_angles(one[None], other[None])[0, 0]
        return values

    def _computed(self, kinds: Sequence[str]) -> Iterator[dict[str, KindSpaces]]:
        layers = self._read("".join(kinds))
        # A few layers at a time, so that weights and bases of all are never in memory together.
        while batch := list(islice(layers, worker_count())):
            yield from map_in_order(lambda heads: {kind: self._spaces(heads, kind) for kind in kinds}, batch)

    def _spaces(self, heads: LayerHeads, kind: str) -> KindSpaces:
        bases = orthonormal_bases(fold(heads, kind) if self._fold else heads.factors[kind], self._rtol)
        spaces = KindSpaces(bases.basis[None], bases.singular_values[None], bases.rank[None])
        return spaces.leading(self._n_leading)

    def _bytes(self, kind: str) -> int:
        shape = self._shape
        return 8 * shape.n_layers * shape.n_heads(kind) * shape.d_model * shape.d_head

    def _keep(self, kind: str, spaces: KindSpaces) -> None:
        if sum(self._bytes(own) for own in (kind, *self._kept)) > KEPT_BYTES:
            self._kept.clear()
        if self._bytes(kind) <= KEPT_BYTES:
            self._kept[kind] = spaces


def _smaller(left: Int[np.ndarray, "layer n"], right: Int[np.ndarray, "layer m"], spaces: str) -> np.ndarray:
    """Smaller rank of every pair, broadcast over the layers that a side has not."""
    if spaces in WITHIN:
        return np.asarray(np.minimum(left[:, :, None], right[:, None, :]))
    return np.asarray(np.minimum(left[:, None, :, None], right[None, :, None, :]))


def _chosen(array: np.ndarray, places: Places) -> np.ndarray:
    if not places:
        return np.empty(0)
    return np.asarray(array[tuple(np.array(places).T)])
