"""Pairs of heads through the layers of a model: squared overlaps within layers and from earlier to later ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from jaxtyping import Float, Int

from headspaces.devices import Array, ToDevice, identity
from headspaces.geometry.kernel import rectangle_overlaps
from headspaces.spaces import KINDS, READS

LEAF_HEADS = 64
"""Rectangles of layer pairs with at most so many heads on the earlier side are not cut further."""

GPU_LEAF_HEADS = 256
"""The same on a GPU, where few products matter more than few operations."""


@dataclass(frozen=True)
class LayerPairs:
    """Squared overlaps of a model's heads.

    ``within`` has by kind all pairs of one kind in one layer; ``across`` by source and target kind (``"OQ"``) all pairs
    of layers, NaN where the target layer is not later.
    """

    within: dict[str, Float[np.ndarray, "layer head head"]]
    across: dict[str, Float[np.ndarray, "source_layer target_layer source_head target_head"]]


def layer_overlaps(
    factors: Mapping[str, Float[Array, "layer _ d_model d_head"]],
    *,
    within: str = KINDS,
    sources: str = "O",
    targets: str = READS,
    algorithm: str | None = None,
    to_device: ToDevice = identity,
) -> LayerPairs:
    """Squared overlaps inside each layer and from every layer's sources to every later layer's targets, in one pass.

    ``factors`` has by kind a stack of factors per layer, ``within`` the kinds whose pairs inside a layer are wanted,
    ``sources`` and ``targets`` the kinds of the earlier and of the later head; kinds without factors are left out.
    Factors move to the device once they are side by side. The triangle of layer pairs with a later target is cut into
    rectangles by halving (first half of the layers against the second half, then each half by itself), down to
    :data:`LEAF_HEADS`: the few pairs too many that the last rectangles hold cost less than smaller products would.
    """
    n_layers = next(iter(factors.values())).shape[0]
    within, sources, targets = (
        "".join(kind for kind in kinds if kind in factors) for kinds in (within, sources, targets)
    )
    groups = _groups({kind: stack.shape[1] for kind, stack in factors.items()}, n_layers, within, sources, targets)
    stacks = [to_device(_joined([factors[kind] for kind in group.columns])) for group in groups]
    group_of = {kind: group for group in groups for kind in group.columns}
    squares = [(group_of[kind].heads(kind, layer),) * 2 for kind in within for layer in range(n_layers)]
    if not (sources and targets):
        return LayerPairs(_by_kind(within, rectangle_overlaps(stacks, squares, algorithm=algorithm)), {})
    source, target = group_of[sources[0]], group_of[targets[0]]
    leaf_heads = LEAF_HEADS if is_numpy_array(stacks[0]) else GPU_LEAF_HEADS
    spans = list(_later_spans(0, n_layers, leaf_heads // source.per_layer))
    rectangles = [(source.layers(*earlier), target.layers(*later)) for earlier, later in spans]
    results = rectangle_overlaps(stacks, squares + rectangles, algorithm=algorithm)
    triangle = np.full((n_layers, n_layers, source.per_layer, target.per_layer), np.nan)
    for (earlier, later), block in zip(spans, results[len(squares) :], strict=True):
        shape = (earlier[1] - earlier[0], source.per_layer, later[1] - later[0], target.per_layer)
        triangle[slice(*earlier), slice(*later)] = block.reshape(shape).transpose(0, 2, 1, 3)
    triangle[np.tril_indices(n_layers)] = np.nan
    across = {x + y: triangle[:, :, source.columns[x], target.columns[y]].copy() for x in sources for y in targets}
    return LayerPairs(_by_kind(within, results[: len(squares)]), across)


def kind_columns(n_heads: Mapping[str, int]) -> dict[str, slice]:
    """Columns of each kind where the heads of several kinds stand side by side, by their numbers of heads."""
    edges = pairwise(accumulate(n_heads.values(), initial=0))
    return {kind: slice(*edge) for kind, edge in zip(n_heads, edges, strict=True)}


@dataclass(frozen=True)
class _Group:
    """Kinds that share a stack: side by side in a layer, and layer after layer, so that a run of layers is a slice.

    ``first`` is the number of the first head among those of all stacks; ``columns`` are each kind's in a layer.
    """

    first: int
    columns: Mapping[str, slice]

    @property
    def per_layer(self) -> int:
        return int(max(columns.stop for columns in self.columns.values()))

    def layers(self, start: int, stop: int) -> slice:
        return slice(self.first + start * self.per_layer, self.first + stop * self.per_layer)

    def heads(self, kind: str, layer: int) -> slice:
        start = self.first + layer * self.per_layer
        return slice(start + self.columns[kind].start, start + self.columns[kind].stop)


def _groups(n_heads: Mapping[str, int], n_layers: int, within: str, sources: str, targets: str) -> list[_Group]:
    """Group the sources, and the targets, or all kinds where one is both; any other kind is a group of its own."""
    shared = ["".join(n_heads)] if set(sources) & set(targets) else [kinds for kinds in (sources, targets) if kinds]
    lone = [kind for kind in within if not any(kind in kinds for kinds in shared)]
    groups: list[_Group] = []
    first = 0
    for kinds in [*shared, *lone]:
        groups.append(_Group(first, kind_columns({kind: n_heads[kind] for kind in kinds})))
        first += n_layers * groups[-1].per_layer
    return groups


def _joined(factors: Sequence[Float[Array, "layer _ d_model d_head"]]) -> Float[Array, "_ d_model d_head"]:
    """Put the factors of some kinds side by side in every layer, and all layers in one stack."""
    xp = array_namespace(*factors)
    stack = xp.concat(list(factors), axis=1) if len(factors) > 1 else factors[0]
    return xp.reshape(stack, (-1, *stack.shape[2:]))


def _by_kind(kinds: str, results: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Stack the layers of each kind, which follow each other."""
    n_layers = len(results) // max(1, len(kinds))
    return {kind: np.stack(results[i * n_layers : (i + 1) * n_layers]) for i, kind in enumerate(kinds)}


def _later_spans(start: int, stop: int, leaf: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Cut the pairs of an earlier and a later layer into rectangles of layers; up to ``leaf`` layers are one."""
    if stop - start < 2:
        return
    if stop - start <= leaf:
        yield (start, stop - 1), (start + 1, stop)
        return
    middle = (start + stop) // 2
    yield (start, middle), (middle, stop)
    yield from _later_spans(start, middle, leaf)
    yield from _later_spans(middle, stop, leaf)


def smaller_ranks(left: Int[np.ndarray, "*n"], right: Int[np.ndarray, "*m"]) -> Int[np.ndarray, "*n *m"]:
    """Smaller rank of every pair, by which PK is divided to give rho; an empty space makes it 0."""
    smaller: np.ndarray = np.minimum.outer(left, right)
    return smaller


def normalised(
    squared: Float[np.ndarray, "*pairs"], smaller_rank: Int[np.ndarray, "*pairs"]
) -> Float[np.ndarray, "*pairs"]:
    """Overlap ``rho = PK / min(rank, rank)`` (RW section 4.2); NaN where a space is empty."""
    rho: np.ndarray = np.divide(squared, smaller_rank, out=np.full(squared.shape, np.nan), where=smaller_rank > 0)
    return rho
