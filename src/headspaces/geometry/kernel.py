"""Kernel of the package: squared overlaps of pairs of factors, from which all scores are read.

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
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace
from jaxtyping import Float

from headspaces.devices import BATCH_BYTES, GRAM_BYTES, Array, tile_rows, to_numpy
from headspaces.threads import map_in_order

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

    Heads are numbered through all stacks in order; rectangles are pairs of slices into that numbering.
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
    products = sum(int(widths[rows].sum()) * int(widths[columns].sum()) for rows, columns in rectangles)
    return {"gram": 2 * d_model * products, "operator": d_model**2 * (pairs + int(widths.sum()))}


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
    scratch = threading.local()
    length = max((sum(map(_area, chunk)) for _, chunk in chunks), default=0)

    def products(weighted: tuple[float, Sequence[Tile]]) -> list[Array]:
        weight, chunk = weighted
        if not hasattr(scratch, "entries"):
            scratch.entries = xp.empty((n_heads, length), dtype=stacks[0].dtype, device=where)
        filled = 0
        for rows, columns in chunk:
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            part = scratch.entries[:, filled : filled + _area((rows, columns))]
            for stack, first, last in zip(stacks, edges, edges[1:], strict=False):
                tile = xp.reshape(part[first:last, :], (last - first, *shape))
                xp.matmul(stack[:, rows, :], xp.matrix_transpose(stack[:, columns, :]), out=tile)
            filled += part.shape[1]
        flat = scratch.entries[:, :filled]
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
    for square in slices:
        _cut_diagonal(square, diagonal, above)
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


def _cut_diagonal(square: slice, diagonal: list[Tile], above: list[Tile]) -> None:
    """Cut a tile on the diagonal into small ones on it and larger ones above it, so that little is computed twice."""
    if square.stop - square.start <= DIAGONAL_ROWS:
        diagonal.append((square, square))
        return
    middle = square.start + DIAGONAL_ROWS * -(-(square.stop - square.start) // (2 * DIAGONAL_ROWS))
    first, second = slice(square.start, middle), slice(middle, square.stop)
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
        n, d_model, narrow = stack.shape
        zeros = xp.zeros((n, d_model, width - narrow), dtype=stack.dtype, device=device(stack))
        padded.append(xp.concat([stack, zeros], axis=2) if narrow < width else stack)
    return padded[0] if len(padded) == 1 else xp.concat(padded)
