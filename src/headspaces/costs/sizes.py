"""How many pairs, and how many bytes in which arrays: what costs are made of. Only the standard library is used."""

from __future__ import annotations

from dataclasses import dataclass

from headspaces.study.models import Model


@dataclass(frozen=True)
class Size:
    """Sizes and counts that follow from a model's shape, kinds and dtypes."""

    model: Model

    @property
    def heads(self) -> int:
        """Heads of all kinds in a layer."""
        return sum(self.model.shape.n_heads(kind) for kind in self.model.kinds)

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
        return 0.5 if self.model.bases_dtype == "float32" else 1.0

    @property
    def readers(self) -> int:
        """Heads in a layer that are compared with earlier layers' writes."""
        kinds = self.model.kinds
        return sum(self.model.shape.n_heads(kind) for kind in kinds if kind != "O") if "O" in kinds else 0

    @property
    def within(self) -> int:
        """Unordered pairs of one kind within a layer."""
        counts = [self.model.shape.n_heads(kind) for kind in self.model.kinds]
        return self.model.shape.n_layers * sum(n * (n - 1) // 2 for n in counts)

    @property
    def across(self) -> int:
        """Pairs of a write and a later layer's read."""
        return self.model.n_observed_pairs - self.within

    @property
    def square(self) -> int:
        """Bytes of an array over all writers and readers, the undefined half included."""
        return 8 * self.model.shape.n_layers**2 * self.model.shape.n_query_heads * self.readers

    @property
    def inside(self) -> int:
        """Bytes of arrays of all pairs of a kind within a layer."""
        return 8 * self.model.shape.n_layers * sum(self.model.shape.n_heads(kind) ** 2 for kind in self.model.kinds)

    @property
    def null_numbers(self) -> int:
        """Numbers that are kept of one null sample."""
        kinds, n_layers = len(self.model.kinds), self.model.shape.n_layers
        across = 2 * (kinds - 1) * n_layers**2 if self.readers else 0
        return 5 * kinds * n_layers + across + self.within // n_layers

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
