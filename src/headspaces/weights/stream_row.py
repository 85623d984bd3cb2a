"""A row of the stream: where one architecture keeps what writes to the residual stream and reads it beside its heads.

The table of all rows is :mod:`headspaces.weights.stream_layouts`. The stream's files of weights carry their own row, so
that jobs read them without the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

ENDS = ("embedding", "positions", "embedding_norm", "final_norm", "unembedding")
"""Fields that name tensors outside the layers."""

OF_A_LAYER = ("gate", "up", "gate_up", "down", "mlp_norm", "mlp_write_norm")
"""Fields that name tensors of a layer."""

INPUTS = {"G": "gate", "I": "up"}
"""Letters of the MLP's input matrices: the gate, or the only one there is (G), and the one beside a gate (I)."""


@dataclass(frozen=True)
class StreamRow:
    """One row of the table; an empty name stands for what the architecture does not have.

    Attributes
    ----------
    model_types
        The ``model_type`` of the configurations that it serves; ``gguf:ARCHITECTURE`` for GGUF files.
    when
        Values of the configuration that choose this row among those of a model type, each with its default.
    embedding, positions, embedding_norm, final_norm
        Names of the token embedding, of learnt positions, of a LayerNorm on the token embedding, and of the norm before
        the unembedding, after the model's prefix.
    unembedding
        Name of the unembedding after the model's root; where it is not stored it is tied to the embedding.
    positions_skipped
        Rows of the positions before that of the first token.
    gate, up, gate_up, down
        Names of the MLP's matrices after the layer's; ``gate`` is the only input matrix where there is no ``up``, and
        ``gate_up`` both one above the other, the gate first.
    mlp_norm, mlp_write_norm
        Names of the norm before the MLP and of an RMSNorm on its output, after the layer's. An empty ``mlp_norm`` is a
        norm without parameters.
    final_norm_kind
        Kind of the norm before the unembedding where it is another than before the attention.
    parallel
        Whether the MLP reads the stream before the attention of its own layer has written.
    note
        What a reader of the results must know.
    """

    model_types: tuple[str, ...]
    when: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    embedding: str = "embed_tokens.weight"
    positions: str = ""
    positions_skipped: int = 0
    embedding_norm: str = ""
    gate: str = "mlp.gate_proj.weight"
    up: str = "mlp.up_proj.weight"
    gate_up: str = ""
    down: str = "mlp.down_proj.weight"
    mlp_norm: str = "post_attention_layernorm.weight"
    mlp_write_norm: str = ""
    final_norm: str = "norm.weight"
    final_norm_kind: str = ""
    unembedding: str = "lm_head.weight"
    parallel: bool = False
    note: str = ""

    def without(self, *names: str) -> StreamRow:
        """Give the row with some fields empty: the checkpoint does not have them."""
        empty: dict[str, Any] = dict.fromkeys(names, "")
        return replace(self, **empty)

    @property
    def inputs(self) -> str:
        """Letters of the MLP's input matrices that there are; see :data:`INPUTS`."""
        return "GI" if self.gate_up else "".join(letter for letter, name in INPUTS.items() if getattr(self, name))

    def end_names(self) -> list[str]:
        """Names of all tensors outside the layers, once they are whole names."""
        return _named(self, ENDS)

    def layer_names(self, start: str) -> list[str]:
        """Names of all tensors of a layer whose names begin with ``start``."""
        return [start + name for name in _named(self, OF_A_LAYER)]

    def to_json(self) -> str:
        """Write what reading a file needs of the row as text."""
        return json.dumps(asdict(replace(self, model_types=(), when={}, note="")), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StreamRow:
        """Read what :meth:`to_json` wrote."""
        values = json.loads(text)
        return cls(**values | {"model_types": tuple(values["model_types"])})


def _named(row: StreamRow, fields: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in (getattr(row, one) for one in fields) if name))
