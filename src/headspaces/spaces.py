"""The words of the subject: kinds of head spaces, comparisons, null models, and the shape of a decoder.

Only the standard library is imported: the Snakefile reads this module at every start.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = "OQKV"
"""The four kinds of head spaces: what is written (O) and what queries, keys and values read (Q, K, V)."""

NULLS = ("rotation", "reassignment")
"""The two null models of RW section 5.1, which mix columns; RW's tables and figures compare with these."""

SWAP = "swap"
"""The null model of the spaces alone, which depends on no basis."""


@dataclass(frozen=True)
class Shape:
    """How many layers and heads a decoder has and how wide they are (RW table 3)."""

    n_layers: int
    d_model: int
    n_query_heads: int
    n_kv_heads: int
    d_head: int

    def n_heads(self, kind: str) -> int:
        """Count the spaces of one kind in a layer: query heads for O and Q, key-value heads for K and V."""
        return self.n_query_heads if kind in "OQ" else self.n_kv_heads
