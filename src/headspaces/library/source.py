"""A model's heads, wherever they are: what is known before any weight is read, and a way to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
    held: object = None
