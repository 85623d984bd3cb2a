"""The one kernel of the package, and the geometry of pairs of spaces that is read off it.

Every score of both papers is an inner product of two positive semi-definite operators on the residual stream,

    score(F, G) = ||F^T G||_F^2 = <F F^T, G G^T>,

with factors ``F`` (D x a) and ``G`` (D x b) whose columns span the two spaces. For orthonormal factors it is the
projection kernel PK (RW section 4.2), divided by the smaller rank it is the overlap rho.

Two exact algorithms compute it, and :func:`squared_overlaps` takes the one with fewer operations:

*Gram*      forms ``F^T G`` pair by pair: ``2 D a b`` operations a pair.
*operator*  forms ``F F^T`` and ``G G^T`` and multiplies them entry by entry: ``D^2`` a pair, by symmetry, and
            ``D^2 a`` a head. Far cheaper as soon as each head meets more than a few partners, since ``2 a b > D``.

The operator algorithm never holds a D x D matrix per head: it goes through tiles of them. Tiles are independent, so
they are spread over threads whose BLAS is single-threaded; their sums are added in a fixed order in float64. The
result has the same bits for every number of threads.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array, is_numpy_namespace
from jaxtyping import Float, Int

from headspaces.devices import BATCH_BYTES, Array, Place, tile_rows, to_numpy, unmoved
from headspaces.jobs import map_in_order

Rectangle: TypeAlias = tuple[slice, slice]
"""Rows and columns of the matrix of all head pairs that are wanted."""

Tile: TypeAlias = tuple[slice, slice]
"""Rows and columns of the operators on the residual stream."""

TILE_ROWS = 128
"""Rows and columns of a tile: smaller ones wait for memory, larger ones are no faster."""

DIAGONAL_ROWS = 32
"""Rows and columns of a tile on the diagonal, half of which is computed for nothing."""

TILE_BYTES = 2**26
"""Bytes of the tiles that one thread holds over all heads: many enough to make the products of operators efficient."""

LEAST_CHUNKS = 8
"""Parts into which tiles, or pairs for their angles, are cut at least, so that there is work for all threads."""

LEAF_HEADS = 64
"""Rectangles of layer pairs with at most so many heads on the earlier side are not cut further."""

GPU_LEAF_HEADS = 256
"""The same on a GPU, where few products matter more than few operations."""

GRAM_BYTES = 2**25
"""Bytes of one thread's batch of Gram matrices."""

SINE_FROM = 1e-2
"""Below this angle (radian) the cosine no longer resolves it well, and the sine is computed instead."""


def squared_overlaps(
    left: Float[Array, "n d_model a"],
    right: Float[Array, "m d_model b"],
    *,
    algorithm: str | None = None,
) -> Float[np.ndarray, "n m"]:
    """Squared Frobenius norms ``||F_i^T G_j||^2`` of all pairs of factors.

    Parameters
    ----------
    left, right
        Stacks of factors: column ``k`` of head ``i`` is ``left[i, :, k]``. Any dtype of real numbers, numpy or torch.
    algorithm
        ``"gram"`` or ``"operator"``; by default the one with fewer operations.

    Returns
    -------
    array of float64
        PK for orthonormal factors. The arithmetic runs in the factors' dtype, sums over tiles in float64.
    """
    n, m = left.shape[0], right.shape[0]
    return rectangle_overlaps([left, right], [(slice(0, n), slice(n, n + m))], algorithm=algorithm)[0]


def rectangle_overlaps(
    stacks: Sequence[Float[Array, "_ d_model _"]], rectangles: Sequence[Rectangle], *, algorithm: str | None = None
) -> list[Float[np.ndarray, "_ _"]]:
    """Squared overlaps of chosen rectangles of the head-by-head matrix; a head's operator is formed once for all.

    Parameters
    ----------
    stacks
        Stacks of factors over one residual stream. Heads are numbered through all stacks in order.
    rectangles
        Pairs of slices into that numbering.
    algorithm
        As in :func:`squared_overlaps`.
    """
    if not rectangles:
        return []
    compute = {"gram": _gram_rectangles, "operator": _operator_rectangles}
    return compute[algorithm or cheaper_algorithm(stacks, rectangles)](stacks, rectangles)


def operation_counts(stacks: Sequence[Float[Array, "_ d_model _"]], rectangles: Sequence[Rectangle]) -> dict[str, int]:
    """Floating-point operations of both algorithms for the given rectangles, by the algorithm's name."""
    widths = np.concatenate([np.full(stack.shape[0], stack.shape[2]) for stack in stacks])
    d_model = stacks[0].shape[1]
    pairs = sum(len(widths[rows]) * len(widths[columns]) for rows, columns in rectangles)
    columns_product = sum(int(widths[rows].sum()) * int(widths[columns].sum()) for rows, columns in rectangles)
    return {
        "gram": 2 * d_model * columns_product,
        "operator": d_model**2 * (pairs + int(widths.sum())),
    }


def cheaper_algorithm(stacks: Sequence[Float[Array, "_ d_model _"]], rectangles: Sequence[Rectangle]) -> str:
    """Name of the algorithm with fewer operations."""
    counts = operation_counts(stacks, rectangles)
    return min(counts, key=lambda name: counts[name])


def _operator_rectangles(stacks: Sequence[Array], rectangles: Sequence[Rectangle]) -> list[np.ndarray]:
    xp = array_namespace(*stacks)
    on_cpu, where = is_numpy_namespace(xp), device(stacks[0])
    n_heads = sum(stack.shape[0] for stack in stacks)
    edges = np.cumsum([0, *(stack.shape[0] for stack in stacks)]).tolist()
    chunks = _chunks(stacks[0].shape[1], *_chunk_sizes(stacks[0].shape[1], n_heads * stacks[0].dtype.itemsize, on_cpu))
    # Every thread fills the same memory over and over: new pages cost as much as the arithmetic.
    own = threading.local()
    length = max((sum(map(_area, chunk)) for _, chunk in chunks), default=0)

    def products(weighted: tuple[float, Sequence[Tile]]) -> list[Array]:
        weight, chunk = weighted
        if not hasattr(own, "entries"):
            own.entries = xp.empty((n_heads, length), dtype=stacks[0].dtype, device=where)
        filled = 0
        for rows, columns in chunk:
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            part = own.entries[:, filled : filled + _area((rows, columns))]
            for stack, first, last in zip(stacks, edges, edges[1:], strict=False):
                tile = xp.reshape(part[first:last, :], (last - first, *shape))
                xp.matmul(stack[:, rows, :], xp.matrix_transpose(stack[:, columns, :]), out=tile)
            filled += part.shape[1]
        flat = own.entries[:, :filled]
        return [weight * (flat[rows] @ xp.matrix_transpose(flat[columns])) for rows, columns in rectangles]

    shapes = [[len(range(n_heads)[side]) for side in rectangle] for rectangle in rectangles]
    totals = [xp.zeros((rows, columns), dtype=xp.float64, device=where) for rows, columns in shapes]
    for parts in map_in_order(products, chunks, parallel=on_cpu):
        for total, part in zip(totals, parts, strict=True):
            total += part
    return [to_numpy(total) for total in totals]


def _chunk_sizes(d_model: int, entry_bytes: int, on_cpu: bool) -> tuple[int, int]:
    """Rows of a tile, and entries of a chunk of tiles at most; ``entry_bytes`` are all heads' together."""
    if on_cpu:
        return TILE_ROWS, max(TILE_ROWS**2, min(TILE_BYTES // entry_bytes, d_model**2 // (2 * LEAST_CHUNKS)))
    rows = tile_rows(entry_bytes)
    return rows, rows**2


def _chunks(d_model: int, rows: int, largest: int) -> list[tuple[float, list[Tile]]]:
    """Tiles that cover a symmetric D x D matrix on and above its diagonal, in chunks, with the weight of their entries.

    An entry off the diagonal stands for its mirror image too.
    """
    diagonal: list[Tile] = []
    above: list[Tile] = []
    slices = [slice(start, min(start + rows, d_model)) for start in range(0, d_model, rows)]
    for own in slices:
        _cut_diagonal(own, diagonal, above)
    above += itertools.combinations(slices, 2)
    chunks: list[tuple[float, list[Tile]]] = []
    for weight, tiles in ((1.0, diagonal), (2.0, above)):
        area = largest
        for tile in tiles:
            area += _area(tile)
            if area > largest:
                chunks.append((weight, []))
                area = _area(tile)
            chunks[-1][1].append(tile)
    return chunks


def _cut_diagonal(own: slice, diagonal: list[Tile], above: list[Tile]) -> None:
    """Cut a tile on the diagonal into small ones on it and larger ones above it, so that little is computed twice."""
    if own.stop - own.start <= DIAGONAL_ROWS:
        diagonal.append((own, own))
        return
    middle = own.start + DIAGONAL_ROWS * -(-(own.stop - own.start) // (2 * DIAGONAL_ROWS))
    first, second = slice(own.start, middle), slice(middle, own.stop)
    above.append((first, second))
    _cut_diagonal(first, diagonal, above)
    _cut_diagonal(second, diagonal, above)


def _area(tile: Tile) -> int:
    rows, columns = tile
    return int((rows.stop - rows.start) * (columns.stop - columns.start))


def _gram_rectangles(stacks: Sequence[Array], rectangles: Sequence[Rectangle]) -> list[np.ndarray]:
    xp = array_namespace(*stacks)
    on_cpu = is_numpy_namespace(xp)
    heads, batch = _padded(xp, stacks), GRAM_BYTES if on_cpu else BATCH_BYTES
    totals = []
    for rows, columns in rectangles:
        left, right = heads[rows], heads[columns]
        step = max(1, batch // max(1, right.shape[0] * right.shape[2] * left.shape[2] * left.dtype.itemsize))

        def norms(start: int, left: Array = left, right: Array = right, step: int = step) -> Array:
            grams = gram_matrices(left[start : start + step], right)
            return xp.astype(xp.sum(grams * grams, axis=(2, 3)), xp.float64)

        parts = list(map_in_order(norms, range(0, left.shape[0], step), parallel=on_cpu))
        totals.append(to_numpy(xp.concat(parts)) if parts else np.zeros((left.shape[0], right.shape[0])))
    return totals


def gram_matrices(left: Float[Array, "n d_model a"], right: Float[Array, "m d_model b"]) -> Float[Array, "n m a b"]:
    """All products ``F_i^T G_j`` as one matrix product."""
    xp = array_namespace(left, right)
    n, d_model, a = left.shape
    m, _, b = right.shape
    rows = xp.reshape(xp.matrix_transpose(left), (n * a, d_model))
    columns = xp.reshape(xp.matrix_transpose(right), (m * b, d_model))
    return xp.permute_dims(xp.reshape(rows @ xp.matrix_transpose(columns), (n, a, m, b)), (0, 2, 1, 3))


def _padded(xp: Any, stacks: Sequence[Array]) -> Array:
    """All heads in one stack; narrower ones get zero columns, which change no overlap."""
    width = max(stack.shape[2] for stack in stacks)
    padded = []
    for stack in stacks:
        n, d_model, own = stack.shape
        zeros = xp.zeros((n, d_model, width - own), dtype=stack.dtype, device=device(stack))
        padded.append(xp.concat([stack, zeros], axis=2) if own < width else stack)
    return padded[0] if len(padded) == 1 else xp.concat(padded)


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


def smallest_angles(left: Float[Array, "n d_model a"], right: Float[Array, "m d_model b"]) -> Float[np.ndarray, "n m"]:
    """Smallest principal angle of every pair of spaces, in degrees.

    Parameters
    ----------
    left, right
        Orthonormal bases, numpy or torch; columns beyond a space's rank are zero. The same stack twice costs half.

    Returns
    -------
    array
        From 0 to 90 degrees; NaN where a space is empty. In float64 the error is below 1e-6 degrees everywhere, and
        about 1e-14 radian near zero.

    Notes
    -----
    The cosine is the largest singular value of ``U^T V``, taken as the root of the largest eigenvalue of its smaller
    square: the largest one loses nothing by squaring. Near zero the cosine is flat, and the angle is taken from the
    sine instead, the smallest singular value of ``V - U U^T V`` (Björck and Golub 1973), as
    ``scipy.linalg.subspace_angles`` does.

    The products are formed where the bases are, their eigenvalues by LAPACK on this process's threads: on a GPU torch
    takes matrices above 32 x 32 one after the other, at more than a millisecond each.
    """
    n, m, size, same = left.shape[0], right.shape[0], left.dtype.itemsize, left is right
    # Neither the products nor what they are made of may grow with the number of heads.
    width = max(1, min(GRAM_BYTES // max(1, right.shape[1] * right.shape[2] * size), -(-m // LEAST_CHUNKS)))
    step = max(1, GRAM_BYTES // max(1, left.shape[2] * max(left.shape[1], min(m, width) * right.shape[2]) * size))
    if same:
        # Rows meet the columns from their own first on: fewer rows, fewer pairs twice.
        step = min(step, -(-n // 8))
    rows_from = range(0, n, step)
    blocks = [(slice(i, i + step), slice(j, j + width)) for i in rows_from for j in range(i if same else 0, m, width)]
    # A GPU's memory holds one block's products at a time, whatever the number of threads.
    turn = nullcontext() if is_numpy_array(left) else threading.Lock()

    def angles(block: tuple[slice, slice]) -> np.ndarray:
        rows, columns = left[block[0]], right[block[1]]
        with turn:
            squares = to_numpy(_smaller_squares(gram_matrices(rows, columns)))
        cosines = np.sqrt(np.clip(np.linalg.eigvalsh(squares)[..., -1], 0.0, 1.0))
        radians = np.arccos(cosines)
        near = np.nonzero(radians < SINE_FROM)
        if near[0].size:
            radians[near] = _small_angles(to_numpy(rows), to_numpy(columns), *near)
        degrees: np.ndarray = np.degrees(radians)
        return degrees

    result = np.empty((n, m))
    for block, part in zip(blocks, map_in_order(angles, blocks), strict=True):
        result[block] = part
    if same:
        result = np.triu(result) + np.triu(result, 1).T
    result[np.add.outer(_ranks(left) == 0, _ranks(right) == 0)] = np.nan
    return result


def _smaller_squares(grams: Float[Array, "n m a b"]) -> Float[Array, "n m c c"]:
    a, b = grams.shape[2:]
    transposed = array_namespace(grams).matrix_transpose(grams)
    return grams @ transposed if a <= b else transposed @ grams


def _small_angles(left: np.ndarray, right: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Smallest angles (radian) of the given pairs by the sine; sound where they are small."""
    angles = np.empty(rows.size)
    left_ranks, right_ranks = _ranks(left), _ranks(right)
    step = max(1, GRAM_BYTES // (left.shape[1] * max(left.shape[2], right.shape[2]) * left.dtype.itemsize))
    for start in range(0, rows.size, step):
        i, j = rows[start : start + step], columns[start : start + step]
        # The sines of all angles come from the smaller of the two spaces; a zero column adds a zero in front.
        swap = left_ranks[i] < right_ranks[j]
        for chosen, big, small, ranks in (
            (~swap, left[i[~swap]], right[j[~swap]], right_ranks[j[~swap]]),
            (swap, right[j[swap]], left[i[swap]], left_ranks[i[swap]]),
        ):
            if not chosen.any():
                continue
            residual = small - big @ (big.swapaxes(1, 2) @ small)
            sines = np.linalg.svd(residual, compute_uv=False)[:, ::-1]
            smallest = np.take_along_axis(sines, (small.shape[2] - ranks)[:, None], axis=1)[:, 0]
            angles[start : start + step][chosen] = np.arcsin(np.clip(smallest, 0.0, 1.0))
    return angles


def _ranks(bases: Float[Array, "head d_model d_head"]) -> Int[np.ndarray, " head"]:
    ranks: np.ndarray = to_numpy(array_namespace(bases).any(bases != 0, axis=1)).sum(axis=1)
    return ranks
