"""Pairs of heads through the layers of a model: squared overlaps within layers and from earlier to later ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from jaxtyping import Float, Int

from headspaces.devices import Array, Place, unmoved
from headspaces.geometry.kernel import rectangle_overlaps

LEAF_HEADS = 64
"""Rectangles of layer pairs with at most so many heads on the earlier side are not cut further."""

GPU_LEAF_HEADS = 256
"""The same on a GPU, where few products matter more than few operations."""


@dataclass(frozen=True)
class LayerPairs:
    """Squared overlaps of a model's heads.

    Attributes
    ----------
    within
        By kind: ``(layer, head, head)``, all pairs of one kind in one layer.
    across
        By source and target kind (``"OQ"``): ``(source_layer, target_layer, source_head, target_head)``, NaN where the
        target layer is not later.
    """

    within: dict[str, Float[np.ndarray, "layer head head"]]
    across: dict[str, Float[np.ndarray, "source_layer target_layer source_head target_head"]]


def layer_overlaps(
    factors: Mapping[str, Float[Array, "layer _ d_model d_head"]],
    *,
    within: str = "OQKV",
    sources: str = "O",
    targets: str = "QKV",
    algorithm: str | None = None,
    place: Place = unmoved,
) -> LayerPairs:
    """Squared overlaps inside each layer and from every layer's sources to every later layer's targets, in one pass.

    Parameters
    ----------
    factors
        By kind, a stack of factors per layer.
    within
        Kinds whose pairs inside a layer are wanted.
    sources, targets
        Kinds of the earlier and of the later head. Kinds without factors are left out.
    algorithm
        As in :func:`squared_overlaps`.
    place
        Puts the factors where the work is to be done, once they are side by side.

    Notes
    -----
    The triangle of layer pairs with a later target is cut into rectangles by halving (first half of the layers against
    the second half, then each half by itself), down to :data:`LEAF_HEADS`: the few pairs too many that the last
    rectangles hold cost less than smaller products would.
    """
    xp = array_namespace(*factors.values())
    n_layers = next(iter(factors.values())).shape[0]
    same = bool(set(sources) & set(targets))
    # Layer-major order makes every rectangle of layers a rectangle of heads.
    groups = [kinds for kinds in (["".join(factors)] if same else [sources, targets]) if set(kinds) & set(factors)]
    members = [[kind for kind in group if kind in factors] for group in groups]
    lone = [kind for kind in within if kind in factors and not any(kind in group for group in members)]
    members.extend([kind] for kind in lone)
    stacks, places, first = [], {}, 0
    for kinds in members:
        stack = xp.concat([factors[kind] for kind in kinds], axis=1) if len(kinds) > 1 else factors[kinds[0]]
        per_layer, offset = stack.shape[1], 0
        for kind in kinds:
            places[kind] = _Place(first, per_layer, offset, factors[kind].shape[1])
            offset += factors[kind].shape[1]
        stacks.append(place(xp.reshape(stack, (n_layers * per_layer, *stack.shape[2:]))))
        first += n_layers * per_layer
    inside = [(kind, layer) for kind in within if kind in factors for layer in range(n_layers)]
    rectangles = [(places[kind].heads(layer),) * 2 for kind, layer in inside]
    spans = []
    across = bool(set(sources) & set(factors) and set(targets) & set(factors))
    if across:
        source, target = (next(places[kind] for kind in kinds if kind in places) for kinds in (sources, targets))
        leaf_heads = LEAF_HEADS if is_numpy_array(stacks[0]) else GPU_LEAF_HEADS
        spans = list(_later_spans(0, n_layers, leaf_heads // source.per_layer))
        rectangles += [(source.layers(*earlier), target.layers(*later)) for earlier, later in spans]
    results = rectangle_overlaps(stacks, rectangles, algorithm=algorithm)
    pairs = LayerPairs({kind: np.stack(_of(kind, inside, results)) for kind in within if kind in factors}, {})
    if across:
        full = np.full((n_layers, n_layers, source.per_layer, target.per_layer), np.nan)
        for (earlier, later), block in zip(spans, results[len(inside) :], strict=True):
            shape = (earlier[1] - earlier[0], source.per_layer, later[1] - later[0], target.per_layer)
            full[slice(*earlier), slice(*later)] = block.reshape(shape).transpose(0, 2, 1, 3)
        full[np.tril_indices(n_layers)] = np.nan
        for x in sources:
            for y in targets:
                if x in places and y in places:
                    pairs.across[x + y] = full[:, :, places[x].columns, places[y].columns].copy()
    return pairs


@dataclass(frozen=True)
class _Place:
    """Where one kind's heads stand in the numbering of all heads."""

    first: int
    per_layer: int
    offset: int
    n_heads: int

    def heads(self, layer: int) -> slice:
        start = self.first + layer * self.per_layer + self.offset
        return slice(start, start + self.n_heads)

    def layers(self, start: int, stop: int) -> slice:
        return slice(self.first + start * self.per_layer, self.first + stop * self.per_layer)

    @property
    def columns(self) -> slice:
        return slice(self.offset, self.offset + self.n_heads)


def _of(kind: str, inside: Sequence[tuple[str, int]], results: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [result for (own, _), result in zip(inside, results, strict=False) if own == kind]


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
