"""Sizes and counts that costs are made of: heads, and how many bytes in which arrays."""

from __future__ import annotations

from headspaces import devices
from headspaces.study.models import Model


def number_bytes(dtype: str) -> int:
    """Bytes of a number."""
    return 4 if dtype == "float32" else 8


class Size:
    """Sizes and counts that follow from a model's shape, kinds and dtypes; bytes are those of float64."""

    def __init__(self, model: Model) -> None:
        shape, n_layers, blocks = model.shape, model.shape.n_layers, model.blocks
        counts = [shape.n_heads(kind) for kind in model.kinds]
        self.shape = shape
        # Heads of all kinds in a layer, and the numbers in their bases.
        self.heads = sum(counts)
        self.layer_numbers = self.heads * shape.d_model * shape.d_head
        # Bytes of the largest layer and kind.
        self.panel = 8 * shape.d_model * shape.d_head * max(counts)
        # The largest block of layers: its part of all, and the bytes of its bases.
        self.block_share = max(len(layers) for layers in blocks.values()) / n_layers
        self.block = model.bases_bytes * self.block_share
        # Stored numbers, in float64's; bytes of a stored block, and of the one before until it is replaced.
        self.stored = number_bytes(model.bases_dtype) / 8
        self.blocks_held = min(2, len(blocks)) * self.block * self.stored
        # Bytes of an array over all writers and readers, and of arrays of all pairs of a kind within a layer.
        self.square = 8 * n_layers**2 * shape.n_query_heads * model.readers
        self.inside = 8 * n_layers * sum(n**2 for n in counts)
        # Numbers that are kept of one null sample.
        across = 2 * (len(counts) - 1) * n_layers**2 if model.readers else 0
        self.null_numbers = 5 * len(counts) * n_layers + across + model.n_within_pairs // n_layers

    def kernel(self, pairs: int) -> float:
        """Operations of the squared overlaps of some pairs (:mod:`headspaces.geometry.kernel`), by the cheaper way.

        ``D^2`` a pair and ``D^2 d`` a head, or ``2 D d^2`` a pair.
        """
        shape = self.shape
        columns = shape.n_layers * self.heads * shape.d_head
        return float(min(shape.d_model**2 * (pairs + columns), 2 * shape.d_model * shape.d_head**2 * pairs))

    def kernel_bytes(self, heads: int, pairs: int, number: int) -> int:
        """Bytes on a GPU of the kernel beside its factors, and of its results.

        *Operator*: a chunk of tiles over all heads. *Gram*: all factors once more in one stack, and those of one side
        transposed; the products of a batch of pairs, their squares, and a copy. Results are sums and summands in
        float64, of up to twice the pairs.
        """
        d_model, d_head = self.shape.d_model, self.shape.d_head
        if 2 * d_head**2 * pairs < d_model * (pairs + heads * d_head):
            work = 2 * number * heads * d_model * d_head + 3 * devices.BATCH_BYTES
        else:
            work = min(devices.tile_rows(number * heads), d_model) ** 2 * number * heads
        return work + 32 * pairs
