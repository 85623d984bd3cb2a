"""GGUF files: header without the vocabulary, and the tensors' bytes.

The reader of the package ``gguf`` makes an array of every word of the vocabulary (seconds for a header), so
the header is walked here: a magic number, counts, typed key-value pairs, tensor names with shapes and offsets.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.formats.dtypes import n_elements
from headspaces.weights.headers import FileHeader, Headers, Stream, TensorHeader, unchanged

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_ARRAY = 1024
"""Longer arrays (the vocabulary) are stepped over."""
_LONGEST_TEXT = 2**16
"""Longer texts (licences, chat templates) are stepped over; no name is longer."""
_MOST_ENTRIES = 2**17
"""Most metadata values and tensors that are believed; the largest files have a few thousand."""
_MOST_DIMENSIONS, _DEEPEST = 8, 4
"""Most dimensions of a tensor (ggml has 4), and of arrays inside arrays."""


class _Walk:
    """A position in a memory-mapped header, with the reads that GGUF is made of."""

    def __init__(self, data: mmap.mmap, where: str) -> None:
        self.data, self.where, self.position = data, where, 0

    def number(self, code: str) -> Any:
        layout = struct.Struct("<" + code)
        if self.position + layout.size > len(self.data):
            raise InputError(f"{self.where} ends inside its header; it is cut off, download it again")
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return value

    def text(self, keep: bool = True) -> str:
        length = self.number("Q")
        begin, self.position = self.position, self.position + length
        keep = keep and length <= _LONGEST_TEXT
        if self.position > len(self.data):
            raise InputError(f"{self.where} ends inside its header; it is cut off, download it again")
        return self.data[begin : self.position].decode("utf-8", errors="replace") if keep else ""

    def name(self) -> str:
        begin = self.position
        text = self.text()
        if self.position - begin > _LONGEST_TEXT + 8:
            raise InputError(f"{self.where} has a name of more than {_LONGEST_TEXT} bytes; the file is damaged")
        return text

    def count(self, what: str) -> int:
        number = int(self.number("Q"))
        if number > _MOST_ENTRIES:
            raise InputError(f"{self.where} claims {number} {what} (at most {_MOST_ENTRIES}); the file is damaged")
        return number

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth == _DEEPEST:
            raise InputError(f"{self.where} has a header value of the unknown type {kind}; the file is damaged")
        item, length = self.number("I"), self.number("Q")
        if length <= _LONGEST_ARRAY:
            return [self.value(item, depth + 1) for _ in range(length)]
        if item in _SCALARS:
            self.position += length * struct.calcsize("<" + _SCALARS[item])
        else:
            for _ in range(length):
                self.text(keep=False)
        return None


def read_gguf(path: Path) -> tuple[str, dict[str, Any], dict[str, TensorHeader], dict[str, FileHeader]]:
    """Read the header of a GGUF file.

    Returns
    -------
    revision
        ``sha256:`` of the header with the file's size.
    config
        The metadata under its own names, in ``gguf``.
    tensors, files
        As in :class:`~headspaces.weights.headers.Headers`.

    Raises
    ------
    InputError
        If the file cannot be read, is cut off or damaged.
    """
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data, path)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as a GGUF file ({error})") from error


def _parse(data: mmap.mmap, path: Path) -> tuple[str, dict[str, Any], dict[str, TensorHeader], dict[str, FileHeader]]:
    walk = _Walk(data, str(path))
    if data[:4] != b"GGUF":
        if data[:23] == b"version https://git-lfs":
            raise InputError(
                f"{path} is a git-LFS pointer, not the weights; run `git lfs pull` in its folder or download it again"
            )
        raise InputError(f"{path} does not begin with GGUF; it is not a GGUF file")
    walk.position = 4
    version = walk.number("I")
    if version not in (2, 3):
        raise InputError(f"{path} is of GGUF version {version}, expected 2 or 3 (little-endian)")
    n_tensors, n_values = walk.count("tensors"), walk.count("values")
    values = {}
    for _ in range(n_values):
        key = walk.name()
        values[key] = walk.value(walk.number("I"))
    entries = []
    for _ in range(n_tensors):
        name, n_dimensions = walk.name(), walk.number("I")
        if n_dimensions > _MOST_DIMENSIONS:
            raise InputError(f"{path}: tensor {name!r} has {n_dimensions} dimensions; the file is damaged")
        dimensions = tuple(walk.number("Q") for _ in range(n_dimensions))
        entries.append((name, dimensions[::-1], walk.number("I"), walk.number("Q")))
    revision = "sha256:" + hashlib.sha256(data[: walk.position] + len(data).to_bytes(8, "little")).hexdigest()
    alignment = values.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20:
        raise InputError(f"{path}: the alignment is {alignment!r}, expected a positive whole number")
    start = -(-walk.position // alignment) * alignment
    tensors = _tensor_headers(entries, start, len(data), path)
    return revision, _config(values), tensors, {path.name: FileHeader(str(path.resolve()), len(data), revision, "gguf")}


def _tensor_headers(
    entries: list[tuple[str, tuple[int, ...], int, int]], start: int, file_size: int, path: Path
) -> dict[str, TensorHeader]:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    tensors: dict[str, TensorHeader] = {}
    for name, shape, number, offset in entries:
        try:
            kind = GGMLQuantizationType(number)
            per_block, block_bytes = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{path}: tensor {name!r} has the unknown ggml type {number}; a newer gguf package may know it"
            ) from error
        elements = n_elements(shape, f"{path}: tensor {name!r}")
        if elements % per_block:
            raise InputError(f"{path}: tensor {name!r} has no whole number of blocks; the file is damaged")
        end = start + offset + elements // per_block * block_bytes
        if name in tensors:
            raise InputError(f"{path}: tensor {name!r} occurs twice; the file is damaged")
        if end > file_size:
            raise InputError(
                f"{path}: tensor {name!r} ends at byte {end}, the file at {file_size}; it is cut off, download it again"
            )
        tensors[name] = TensorHeader(f"ggml:{kind.name}", shape, path.name, start + offset, end)
    return tensors


def _config(values: dict[str, Any]) -> dict[str, Any]:
    """Return what the file says of the architecture, in its own words, without the tokenizer's large part."""
    kept = {key: value for key, value in values.items() if not key.startswith("tokenizer.") and value is not None}
    return {"gguf": kept}


def stream_gguf(headers: Headers, names: Iterable[str]) -> Stream:
    """Yield the named tensors' bytes, in the order of the files."""
    for name in sorted(names, key=lambda name: (headers.tensors[name].file, headers.tensors[name].begin)):
        tensor = headers.tensors[name]
        with unchanged(headers.files[tensor.file]).open("rb") as file:
            file.seek(tensor.begin)
            yield name, [file.read(tensor.size)]
