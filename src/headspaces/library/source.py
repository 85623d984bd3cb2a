"""A model's heads, wherever they are: what is known before any weight is read, and a way to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headspaces.spaces import Shape

if TYPE_CHECKING:
    from headspaces.geometry.heads import LayerHeads


@dataclass(frozen=True)
class HeadSource:
    """Where a model's heads come from.

    Attributes
    ----------
    name
        The model's name.
    origin
        The checkpoint as the user named it, or the class of the object in memory.
    revision
        Which state of it: a commit, ``sha256:`` of a local checkpoint's headers, or empty for weights in memory.
    architecture, layout
        Model type, and the row of the layouts table that cuts its tensors into heads.
    norm
        The norm before the attention: ``layernorm``, ``rmsnorm`` or ``none``.
    shape
        Numbers and widths of layers and heads.
    kinds
        The kinds of heads that are there, letters of ``OQKV``.
    dtypes
        Types of the stored weights.
    read
        Gives the layers with the heads of the given kinds, one after the other.
    notes
        What a reader of the numbers must know, one sentence each.
    details
        Gives more facts, for ``python -m headspaces inspect``.
    checkpoint
        What runs the model: the path of a checkpoint, or ``hub:owner/name@revision``; None where nothing does.
    leave_out_rounding
        Whether the heads that are read lack the directions that the storage's rounding may have made.
    held
        What must live as long as the model does: the folder of a wheel's file.
    """

    name: str
    origin: str
    revision: str
    architecture: str
    layout: str
    norm: str
    shape: Shape
    kinds: str
    dtypes: tuple[str, ...]
    read: Callable[[str], Iterator[LayerHeads]]
    notes: tuple[str, ...] = ()
    details: Callable[[], Mapping[str, Any]] = dict
    checkpoint: str | None = None
    leave_out_rounding: bool = False
    held: object = None

    def without_rounding(self) -> HeadSource:
        """Return the same heads without the directions that the storage's rounding may have made."""

        def read(kinds: str) -> Iterator[LayerHeads]:
            from headspaces.geometry.rounding import without_rounding

            return map(without_rounding, self.read(kinds))

        return replace(self, read=read, leave_out_rounding=True)


def summary(heads: HeadSource, fold: bool) -> str:
    """Say in a few lines what a model is: layers, heads, kinds, type, layout, notes."""
    shape = heads.shape
    norm = f"{heads.norm} folded into the reads" if fold else f"{heads.norm} left out"
    norm = "no norm" if heads.norm == "none" else norm
    counts = f"{shape.n_layers} layers, {shape.n_query_heads} query and {shape.n_kv_heads} key-value heads"
    first = f"<ModelSpaces {heads.name!r}: {counts}, {shape.d_head} wide, in {shape.d_model} dimensions"
    facts = (f"kinds {' '.join(heads.kinds)}", f"type {' '.join(heads.dtypes)}", f"layout {heads.layout}", norm)
    rounding = ("directions within rounding left out",) if heads.leave_out_rounding else ()
    second = f"  {', '.join(facts + rounding)}, from {heads.origin}"
    return "\n".join([first, second, *(f"  note: {note}" for note in heads.notes)]) + ">"
