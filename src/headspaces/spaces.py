"""Words of the subject: kinds of head spaces, comparisons, null models, and the shape of a decoder.

Only the standard library is imported: the Snakefile reads this module at every start.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from typing import Any

KINDS = "OQKV"
"""The four kinds of head spaces: what is written (O) and what queries, keys and values read (Q, K, V)."""

READS = "QKV"
"""The three kinds of read spaces."""

WITHIN = tuple(KINDS)
"""Comparisons inside a layer: all pairs of one kind."""

ACROSS = tuple(f"O{kind}" for kind in READS)
"""Comparisons across layers, ``OQ``, ``OK`` and ``OV``: a write space with every later layer's read spaces."""

NULLS = ("rotation", "reassignment")
"""The two null models of RW section 5.1, which mix columns; RW's tables and figures compare with these."""

SWAP = "swap"
"""The null model of the spaces alone, which depends on no basis."""


def kinds_of(names: Container[str], dataset: str = "{}/basis") -> str:
    """Kinds that have a dataset among the names, in the order of :data:`KINDS`.

    Parameters
    ----------
    names
        Names of datasets: a block, the arrays of a file.
    dataset
        Name of the dataset that tells, with ``{}`` for the kind.
    """
    return "".join(kind for kind in KINDS if dataset.format(kind) in names)


@dataclass(frozen=True)
class Shape:
    """How many layers and heads a decoder has and how wide they are (RW table 3).

    Attributes
    ----------
    n_layers : int
        Layers with attention.
    d_model : int
        Dimensions of the residual stream, D.
    n_query_heads : int
        Query heads of a layer: as many spaces O and Q.
    n_kv_heads : int
        Key-value heads of a layer: as many spaces K and V.
    d_head : int
        Width of a head, d.

    Examples
    --------
    >>> import headspaces as hs
    >>> shape = hs.Shape(n_layers=30, d_model=576, n_query_heads=9, n_kv_heads=3, d_head=64)
    >>> shape.n_heads("O"), shape.n_heads("K")
    (9, 3)
    """

    n_layers: int
    d_model: int
    n_query_heads: int
    n_kv_heads: int
    d_head: int

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Shape:
        """Shape that a file's attributes, or any mapping with these five names, give; other names are left out."""
        return cls(**{field.name: int(attributes[field.name]) for field in fields(cls)})

    def n_heads(self, kind: str) -> int:
        """Count the spaces of one kind in a layer: query heads for O and Q, key-value heads for K and V."""
        return self.n_query_heads if kind in "OQ" else self.n_kv_heads
