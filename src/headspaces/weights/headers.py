"""What is known of a checkpoint before any weight is read: configuration and tensor headers, as one JSON file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from headspaces.errors import DamagedFileError, InputError
from headspaces.files import read_bytes, whole_file
from headspaces.spaces import KINDS, Shape
from headspaces.weights.formats.dtypes import SCALE, SCALED, check_supported
from headspaces.weights.layouts import LAYOUTS, Layout, available_kinds, find_layout, find_prefix, layer_tensors
from headspaces.weights.shapes import expected_shape, read_shape

Bytes: TypeAlias = bytes | memoryview
"""A part of a tensor on its way into a block."""
Stream: TypeAlias = "Iterator[tuple[str, Iterable[Bytes]]]"
"""Named tensors with their bytes in parts; the parts of one are taken before the next is asked for."""

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
        The checkpoint's configuration.
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
        names = [name for layer in layers for name in layer_tensors(self.row, self.prefix, layer, self.kinds)]
        return [part for name in names for part in (name, name + SCALE) if part == name or part in self.tensors]

    def n_bytes(self, layers: Iterable[int] | None = None) -> int:
        """Bytes of the tensors that the given layers, or all, need."""
        chosen = range(self.shape.n_layers) if layers is None else layers
        return sum(self.tensors[name].size for name in self.layer_names(chosen))


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
    layout, decoder = find_layout(config, source)
    _check_packed(tensors, source)
    prefix = find_prefix(layout, tensors, source)
    present = available_kinds(layout, prefix, tensors, kinds)
    if not present:
        raise InputError(f"{source}: the checkpoint holds no tensors for {', '.join(kinds)}")
    _check_types(layout, prefix, tensors, source)
    shape = read_shape(layout, decoder, {name: tensor.shape for name, tensor in tensors.items()}, prefix, source)
    notes = [layout.note] if layout.note else []
    if absent := [kind for kind in kinds if kind not in present]:
        notes.append(f"no tensors for {', '.join(absent)}: left out")
    needed: dict[str, TensorHeader] = {}
    for layer in range(shape.n_layers):
        start = prefix + layout.layer.format(layer=layer)
        for name in layer_tensors(layout, prefix, layer, present):
            expected = expected_shape(layout, shape, name.removeprefix(start))
            needed |= _checked(name, expected, tensors, scale_block(config), source)
    used = {tensor.file for tensor in needed.values()}
    return Headers(
        source=source,
        revision=revision,
        model_type=str(decoder["model_type"]),
        layout=layout.name,
        shape=shape,
        kinds=present,
        prefix=prefix,
        tensors=needed,
        files={name: file for name, file in files.items() if name in used},
        config=dict(config),
        notes=tuple(notes),
    )


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


def scale_block(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns that share one scale in an FP8 checkpoint, or None."""
    block = (config.get("quantization_config") or {}).get("weight_block_size")
    if not isinstance(block, list) or len(block) != 2 or not all(type(size) is int and size > 0 for size in block):
        return None
    return block[0], block[1]


_PACKED = {
    ".qweight": "GPTQ or AWQ", ".qzeros": "GPTQ or AWQ", ".SCB": "bitsandbytes, 8 bits",
    ".absmax": "bitsandbytes, 4 bits", ".quant_map": "bitsandbytes, 4 bits", ".weight_packed": "compressed-tensors",
    ".weight_scale": "one scale per tensor or row",
}  # fmt: skip
"""Ends of names that only packed weights have."""


def _check_packed(names: Iterable[str], source: str) -> None:
    for name in sorted(names):
        scheme = next((scheme for end, scheme in _PACKED.items() if name.endswith(end)), None)
        if scheme and ("attn" in name or "attention" in name):
            raise InputError(
                f"{source}: tensor {name!r} says that the attention's weights are quantised ({scheme}): the file holds "
                "codes; use the original checkpoint or a GGUF file"
            )


def _check_types(layout: Layout, prefix: str, tensors: Mapping[str, TensorHeader], source: str) -> None:
    """Check types before shapes: packed weights have other shapes, and the type is what explains them."""
    for name in layer_tensors(layout, prefix, 0, KINDS):
        if name in tensors:
            check_supported(tensors[name].dtype, f"{source}: tensor {name!r}", scaled=name + SCALE in tensors)


def _checked(
    name: str,
    expected: tuple[int, ...],
    tensors: Mapping[str, TensorHeader],
    block: tuple[int, int] | None,
    source: str,
) -> dict[str, TensorHeader]:
    """Return one needed tensor, with its scales if it has any, checked."""
    if name not in tensors:
        raise InputError(f"{source}: missing tensor {name!r}; the checkpoint is incomplete, fetch it again")
    tensor, scale = tensors[name], tensors.get(name + SCALE)
    check_supported(tensor.dtype, f"{source}: tensor {name!r}", scaled=scale is not None)
    if tensor.shape != expected:
        raise InputError(f"{source}: tensor {name!r} has the shape {list(tensor.shape)}, expected {list(expected)}")
    if tensor.dtype != SCALED or scale is None:
        return {name: tensor}
    if block is None:
        raise InputError(f"{source}: tensor {name!r} has scales, but the configuration has no weight_block_size")
    check_supported(scale.dtype, f"{source}: tensor {name + SCALE!r}")
    blocks = (-(-expected[0] // block[0]), -(-expected[1] // block[1]))
    if scale.shape != blocks:
        raise InputError(
            f"{source}: tensor {name + SCALE!r} has the shape {list(scale.shape)}, expected {list(blocks)}"
        )
    return {name: tensor, name + SCALE: scale}


def write_headers(headers: Headers, path: str | Path) -> None:
    """Write headers as JSON."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(headers)}
    tensors = {
        name: [tensor.dtype, list(tensor.shape), tensor.file, tensor.begin, tensor.end]
        for name, tensor in headers.tensors.items()
    }
    # One line per tensor and per file: a model of 94 layers stays readable, and differences between two can be seen.
    parts = [f'"{key}": {json.dumps(value)}' for key, value in content.items() if key not in ("tensors", "files")]
    parts += [f'"{key}": {{\n{_lines(part)}\n}}' for key, part in (("files", content["files"]), ("tensors", tensors))]
    text = ",\n".join(parts) + "\n}\n"
    with whole_file(path) as beside:
        beside.write_text(f'{{\n"sha256": "{_sum(text)}",\n{text}', encoding="utf-8")


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _lines(part: Mapping[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in part.items())


def load_headers(path: str | Path) -> Headers:
    """Read headers that :func:`write_headers` wrote.

    Raises
    ------
    DamagedFileError
        If the file is no such JSON, of another version, has changed since it was written, or lacks a tensor that its
        layers need.
    InputError
        If the system cannot read it.
    """
    data = read_bytes(path)
    try:
        text = data.decode("utf-8")
        content = json.loads(text)
        found_sum = content.pop("sha256")
        found = (content.pop("format"), content.pop("format_version"))
        if found != (FORMAT, FORMAT_VERSION):
            raise ValueError(f"expected {FORMAT} version {FORMAT_VERSION}, found {found[0]} version {found[1]}")
        content["shape"] = Shape(**content["shape"])
        content["tensors"] = {
            name: TensorHeader(dtype, tuple(shape), file, begin, end)
            for name, (dtype, shape, file, begin, end) in content["tensors"].items()
        }
        content["files"] = {name: FileHeader(**file) for name, file in content["files"].items()}
        content["notes"] = tuple(content["notes"])
        headers = Headers(**content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(path, f"not a readable headers file ({error})") from error
    if headers.layout not in LAYOUTS:
        raise DamagedFileError(path, f"the layout {headers.layout!r} is not in the table any more")
    # The sum is that of all lines after its own.
    if found_sum != _sum(text.split("\n", 2)[-1]):
        raise DamagedFileError(path, "not a readable headers file (changed since it was written: its checksum differs)")
    _check_whole(headers, path)
    return headers


def _check_whole(headers: Headers, path: str | Path) -> None:
    """Check that every tensor that the layers need is there, in one of the files."""
    for name in headers.layer_names(range(headers.shape.n_layers)):
        if name not in headers.tensors or headers.tensors[name].file not in headers.files:
            raise DamagedFileError(path, f"n_layers is {headers.shape.n_layers}, but the tensor {name!r} is not there")
