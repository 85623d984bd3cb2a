"""A layout: where one architecture keeps its heads, and the names that follow from it.

The table of all layouts is :mod:`headspaces.weights.layouts`. A block of weights carries its own layout, so that jobs
read it without the table: a new row of it reruns nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Layout:
    """One row of the table.

    Attributes
    ----------
    name
        The row's own name.
    model_types
        The ``model_type`` of the configurations that it serves; ``gguf:ARCHITECTURE`` for GGUF files.
    layer
        What the names of a layer's tensors begin with, after the model's prefix.
    o, q, k, v, qkv
        Names of the weights; ``qkv`` in place of q, k, v where they are fused.
    split
        How the rows of ``qkv`` run. ``flat``: all queries, all keys, all values. ``heads``: head by head, each query,
        key, value. ``groups``: key-value head by key-value head, each its queries, key, value.
    transposed
        Whether weights are stored (in, out), as in GPT-2's Conv1D, instead of (out, in).
    norm
        Kind of the norm before the attention: ``layernorm``, ``rmsnorm`` or ``none``.
    read_norm
        Name of that norm's weight; empty for a norm without parameters or no norm.
    write_norm
        Name of the weight of an RMSNorm on the attention's output; empty for none.
    gain_offset
        What is added to a stored norm weight to give the gain: 1 for Gemma.
    when
        Values of the configuration that choose this row among those of a model type, each with its default.
    kv_heads
        Keys of the configuration that say how many key-value heads there are; where none is present the tensors say.
    note
        What a reader of the results must know.
    """

    name: str
    model_types: tuple[str, ...]
    layer: str = "layers.{layer}."
    o: str = "self_attn.o_proj.weight"
    q: str = "self_attn.q_proj.weight"
    k: str = "self_attn.k_proj.weight"
    v: str = "self_attn.v_proj.weight"
    qkv: str = ""
    split: str = ""
    transposed: bool = False
    norm: str = "rmsnorm"
    read_norm: str = "input_layernorm.weight"
    write_norm: str = ""
    gain_offset: float = 0.0
    when: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    note: str = ""

    def tensor(self, kind: str) -> str:
        """Name, inside a layer, of the tensor that holds one kind."""
        if kind != "O" and self.qkv:
            return self.qkv
        name: str = getattr(self, kind.lower())
        return name

    def to_json(self) -> str:
        """Write what reading a file needs of the row as text; which models it is chosen for is no part of that."""
        return json.dumps(asdict(replace(self, model_types=(), when={}, note="")), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read what :meth:`to_json` wrote."""
        fields = json.loads(text)
        values: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return cls(**values)


def layer_tensors(layout: Layout, prefix: str, layer: int, kinds: str) -> list[str]:
    """Names of the tensors that the given kinds of one layer need, norms included, without repetition."""
    wanted = [layout.tensor(kind) for kind in kinds]
    if layout.read_norm and set(kinds) & set("QKV"):
        wanted.append(layout.read_norm)
    if layout.write_norm and "O" in kinds:
        wanted.append(layout.write_norm)
    return list(dict.fromkeys(prefix + layout.layer.format(layer=layer) + name for name in wanted))


def tensors_by_kind(layout: Layout, prefix: str, layer: int, kinds: Iterable[str]) -> dict[str, str]:
    """Name of the tensor that holds each kind of one layer; fused kinds share one."""
    return {kind: prefix + layout.layer.format(layer=layer) + layout.tensor(kind) for kind in kinds}
