"""Headers: what is known of a checkpoint before any weight is read, its configuration and where its tensors lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from headspaces.errors import InputError
from headspaces.spaces import Shape
from headspaces.weights.formats.dtypes import scale_name
from headspaces.weights.layout import Layout, layer_tensors

Bytes: TypeAlias = bytes | memoryview
"""A part of a tensor on its way into a block."""
Stream: TypeAlias = "Iterator[tuple[str, Iterable[Bytes]]]"
"""Named tensors with their bytes in parts; the parts of one are taken before the next is asked for."""


@dataclass(frozen=True)
class TensorHeader:
    """Where one tensor lies.

    Attributes
    ----------
    dtype
        As the file names it: ``F32``, ``BF16``, …; for GGUF the ggml type, such as ``Q4_1``.
    shape
        Rows first, as numpy has it (a GGUF file lists it the other way round).
    file
        Key of :attr:`Headers.files`.
    begin, end
        Bytes from the start of the file; for PyTorch files 0 and the tensor's size, their places are torch's business.
    """

    dtype: str
    shape: tuple[int, ...]
    file: str
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.begin


@dataclass(frozen=True)
class FileHeader:
    """One file of a checkpoint.

    Attributes
    ----------
    location
        Its path; for the Hub its name in the repository.
    size
        Bytes.
    etag
        The Hub's mark that changes when the content does; empty if there is none.
    form
        Who reads it: ``safetensors``, ``gguf``, ``torch`` or ``hub``.
    """

    location: str
    size: int
    etag: str
    form: str = "safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint's own files say, as they say it: nothing of it is interpreted.

    Attributes
    ----------
    source
        As the user named it.
    revision
        Commit of a Hub repository; for local files ``sha256:`` of the configuration and all headers.
    config
        The configuration: ``config.json``, or what stands for it in a GGUF or PyTorch file.
    tensors, files
        All tensors by name, but the experts' of a mixture, and the files that hold them.
    """

    source: str
    revision: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorHeader]
    files: Mapping[str, FileHeader]


@dataclass(frozen=True)
class Headers:
    """A checkpoint as it is understood: its layout, its shape, and the tensors that the attention's heads need.

    Attributes
    ----------
    checkpoint
        What is understood.
    model_type, row
        The configuration's architecture and the layout that serves it.
    shape
        Numbers and widths of layers and heads.
    kinds
        Those of the kinds asked for that the checkpoint holds.
    prefix
        What stands before the layers' names.
    tensors, files
        The needed tensors by name, and the files that hold them.
    scale_block
        Rows and columns that share one scale in an FP8 checkpoint whose configuration names blocks, or None.
    notes
        What a reader of the results must know, one sentence each.
    """

    checkpoint: Checkpoint
    model_type: str
    row: Layout
    shape: Shape
    kinds: str
    prefix: str
    tensors: Mapping[str, TensorHeader]
    files: Mapping[str, FileHeader]
    scale_block: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The checkpoint as the user named it."""
        return self.checkpoint.source

    @property
    def revision(self) -> str:
        """Commit, or sum of configuration and headers."""
        return self.checkpoint.revision

    @property
    def layout(self) -> str:
        """Name of the layout."""
        return self.row.name

    @property
    def norm(self) -> str:
        """Kind of the norm that is folded into the reads: ``layernorm``, ``rmsnorm`` or ``none``."""
        return self.row.norm

    def layer_names(self, layers: Iterable[int]) -> list[str]:
        """Names of the tensors that the given layers need."""
        names = [name for layer in layers for name in layer_tensors(self.row, self.prefix, layer, self.kinds)]
        return [part for name in names for part in (name, scale_name(name, self.tensors)) if part is not None]

    def n_bytes(self, layers: Iterable[int] | None = None) -> int:
        """Bytes of the tensors that the given layers, or all, need."""
        chosen = range(self.shape.n_layers) if layers is None else layers
        return sum(self.tensors[name].size for name in self.layer_names(chosen))


def unchanged(file: FileHeader) -> Path:
    """Return the path of a local file, which must still be as long as when its header was read.

    Raises
    ------
    InputError
        If it is not.
    """
    path = Path(file.location)
    if not path.is_file() or path.stat().st_size != file.size:
        raise InputError(f"{path}: has changed since its header was read; delete the model's headers and run again")
    return path
