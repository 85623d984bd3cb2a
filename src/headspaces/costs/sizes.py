"""Sizes and counts that costs are made of: heads, and how many bytes in which arrays."""

from __future__ import annotations

from dataclasses import dataclass

from headspaces import devices
from headspaces.study.models import Model


def number_bytes(dtype: str) -> int:
    """Bytes of a number."""
    return 4 if dtype == "float32" else 8


@dataclass(frozen=True)
class Size:
    """Sizes and counts that follow from a model's shape, kinds and dtypes."""

    model: Model

    @property
    def heads(self) -> int:
        """Heads of all kinds in a layer."""
        return sum(self.model.shape.n_heads(kind) for kind in self.model.kinds)

    @property
    def layer_numbers(self) -> int:
        """Numbers in the bases of one layer."""
        return self.heads * self.model.shape.d_model * self.model.shape.d_head

    @property
    def panel(self) -> int:
        """Bytes of the largest layer and kind in float64."""
        shape = self.model.shape
        return 8 * shape.d_model * shape.d_head * max(shape.n_heads(kind) for kind in self.model.kinds)

    @property
    def block_share(self) -> float:
        """Part of the layers that the largest block has."""
        return max(len(layers) for layers in self.model.blocks.values()) / self.model.shape.n_layers

    @property
    def block(self) -> float:
        """Bytes of the bases of the largest block of layers in float64."""
        return self.model.bases_bytes * self.block_share

    @property
    def stored(self) -> float:
        """Bytes of a stored number relative to float64."""
        return number_bytes(self.model.bases_dtype) / 8

    @property
    def square(self) -> int:
        """Bytes of an array over all writers and readers, the undefined half included."""
        return 8 * self.model.shape.n_layers**2 * self.model.shape.n_query_heads * self.model.readers

    @property
    def inside(self) -> int:
        """Bytes of arrays of all pairs of a kind within a layer."""
        return 8 * self.model.shape.n_layers * sum(self.model.shape.n_heads(kind) ** 2 for kind in self.model.kinds)

    @property
    def null_numbers(self) -> int:
        """Numbers that are kept of one null sample."""
        kinds, n_layers = len(self.model.kinds), self.model.shape.n_layers
        across = 2 * (kinds - 1) * n_layers**2 if self.model.readers else 0
        return 5 * kinds * n_layers + across + self.model.n_within_pairs // n_layers

    @property
    def blocks_held(self) -> float:
        """Bytes of the stored bases of a block of layers, and of the one before until it is replaced."""
        return min(2, len(self.model.blocks)) * self.block * self.stored

    def kernel(self, pairs: int) -> float:
        """Operations of the squared overlaps of some pairs (:mod:`headspaces.geometry.kernel`), by the cheaper way.

        ``D^2`` a pair and ``D^2 d`` a head, or ``2 D d^2`` a pair.
        """
        shape = self.model.shape
        columns = shape.n_layers * self.heads * shape.d_head
        return float(min(shape.d_model**2 * (pairs + columns), 2 * shape.d_model * shape.d_head**2 * pairs))

    def kernel_bytes(self, heads: int, pairs: int, number: int) -> int:
        """Bytes on a GPU of the kernel beside its factors, and of its results.

        *Operator*: a chunk of tiles over all heads. *Gram*: all factors once more in one stack, and those of one side
        transposed; the products of a batch of pairs, their squares, and a copy. Results are sums and summands in
        float64, of up to twice the pairs.
        """
        d_model, d_head = self.model.shape.d_model, self.model.shape.d_head
        if 2 * d_head**2 * pairs < d_model * (pairs + heads * d_head):
            work = 2 * number * heads * d_model * d_head + 3 * devices.BATCH_BYTES
        else:
            work = min(devices.tile_rows(number * heads), d_model) ** 2 * number * heads
        return work + 32 * pairs
