"""What is known of a checkpoint before any weight is read: configuration and tensor headers, as one JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.jobs import whole_file
from headspaces.layouts import LAYOUTS, Layout, available_kinds, find_layout, find_prefix, layer_tensors
from headspaces.models import KINDS, Shape
from headspaces.weights.dtypes import check_supported
from headspaces.weights.shapes import expected_shape, read_shape

FORMAT = "headspaces-headers"
FORMAT_VERSION = 1


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
    """One file of a checkpoint: its path or address, bytes, and the mark that changes when it does."""

    location: str
    size: int
    etag: str
    form: str = "safetensors"


@dataclass(frozen=True)
class Headers:
    """A checkpoint's configuration and the headers of the tensors that the attention's heads need.

    Attributes
    ----------
    source
        As the user named it.
    revision
        Commit of a Hub repository; for local files ``sha256:`` of the configuration and all headers.
    model_type, layout
        The configuration's architecture and the row of the layouts table that serves it.
    shape
        Numbers and widths of layers and heads.
    kinds
        Those of the kinds asked for that the checkpoint holds.
    prefix
        What stands before the layers' names.
    tensors, files
        The needed tensors by name, and the files that hold them.
    config
        The decoder's configuration.
    notes
        What a reader of the results must know, one sentence each.
    """

    source: str
    revision: str
    model_type: str
    layout: str
    shape: Shape
    kinds: str
    prefix: str
    tensors: Mapping[str, TensorHeader]
    files: Mapping[str, FileHeader]
    config: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def row(self) -> Layout:
        """The row of the layouts table."""
        return LAYOUTS[self.layout]

    @property
    def norm(self) -> str:
        """Kind of the norm that is folded into the reads: ``layernorm``, ``rmsnorm`` or ``none``."""
        return self.row.norm

    def layer_names(self, layers: Iterable[int]) -> list[str]:
        """Names of the tensors that the given layers need."""
        return [name for layer in layers for name in layer_tensors(self.row, self.prefix, layer, self.kinds)]

    def n_bytes(self, layers: Iterable[int] | None = None) -> int:
        """Bytes of the tensors that the given layers, or all, need."""
        return sum(self.tensors[name].size for name in self.layer_names(layers or range(self.shape.n_layers)))


def needed_headers(
    source: str,
    revision: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorHeader],
    files: Mapping[str, FileHeader],
    kinds: str = KINDS,
) -> Headers:
    """Choose the layout, check that every needed tensor is there in its right shape, and keep only those.

    Raises
    ------
    InputError
        If the architecture is not supported, or a tensor is missing, packed or of another shape than its layer needs.
    """
    layout, config = find_layout(config, source)
    prefix = find_prefix(layout, tensors, source)
    shape = read_shape(layout, config, {name: tensor.shape for name, tensor in tensors.items()}, prefix, source)
    present = available_kinds(layout, prefix, tensors, kinds)
    notes = [layout.note] if layout.note else []
    if absent := [kind for kind in kinds if kind not in present]:
        notes.append(f"no tensors for {', '.join(absent)}: left out")
    if not present:
        raise InputError(f"{source}: the checkpoint holds no tensors for {', '.join(kinds)}")
    needed: dict[str, TensorHeader] = {}
    for layer in range(shape.n_layers):
        start = prefix + layout.layer.format(layer=layer)
        for name in layer_tensors(layout, prefix, layer, present):
            if name not in tensors:
                raise InputError(f"{source}: missing tensor {name!r}; the checkpoint is incomplete, fetch it again")
            tensor, expected = tensors[name], expected_shape(layout, shape, name.removeprefix(start))
            check_supported(tensor.dtype, f"{source}: tensor {name!r}")
            if tensor.shape != expected:
                raise InputError(
                    f"{source}: tensor {name!r} has the shape {list(tensor.shape)}, expected {list(expected)}"
                )
            needed[name] = tensor
    used = {tensor.file for tensor in needed.values()}
    return Headers(
        source=source,
        revision=revision,
        model_type=str(config["model_type"]),
        layout=layout.name,
        shape=shape,
        kinds=present,
        prefix=prefix,
        tensors=needed,
        files={name: file for name, file in files.items() if name in used},
        config=dict(config),
        notes=tuple(notes),
    )


def write_headers(headers: Headers, path: str | Path) -> None:
    """Write headers as JSON."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(headers)}
    content["tensors"] = {
        name: [tensor.dtype, list(tensor.shape), tensor.file, tensor.begin, tensor.end]
        for name, tensor in headers.tensors.items()
    }
    with whole_file(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load_headers(path: str | Path) -> Headers:
    """Read headers that :func:`write_headers` wrote.

    Raises
    ------
    InputError
        If the file is no such JSON, or of another version.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        found = (content.pop("format"), content.pop("format_version"))
        if found != (FORMAT, FORMAT_VERSION):
            raise InputError(f"{path}: expected {FORMAT} version {FORMAT_VERSION}, found {found[0]} version {found[1]}")
        content["shape"] = Shape(**content["shape"])
        content["tensors"] = {
            name: TensorHeader(dtype, tuple(shape), file, begin, end)
            for name, (dtype, shape, file, begin, end) in content["tensors"].items()
        }
        content["files"] = {name: FileHeader(**file) for name, file in content["files"].items()}
        content["notes"] = tuple(content["notes"])
        headers = Headers(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable headers file ({error}); delete it and run again") from error
    if headers.layout not in LAYOUTS:
        raise InputError(f"{path}: the layout {headers.layout!r} is not in the table any more; delete the file and run again")
    return headers
