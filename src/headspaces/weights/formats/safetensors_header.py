"""Headers of safetensors files, parsed strictly, from a file or from its first bytes.

The package ``safetensors`` reads whole files from a disk. Here the header alone is needed, also when the rest of the
file is far away, so it is parsed here: 8 bytes of length, a JSON object, then the tensors without gaps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.formats.dtypes import n_bytes
from headspaces.weights.headers import TensorHeader

MAX_HEADER = 100_000_000
"""Longest header that is believed, in bytes: the limit that the ``safetensors`` package has."""

MAX_MARKS = 4_000_000
"""Most commas and opening brackets of a header that is parsed: a tensor has about ten, and each costs memory."""

_LFS = b"version https://git-lfs"


def header_length(start: bytes, file_size: int, where: str) -> int:
    """Length of the JSON header from a file's first 8 bytes, checked against the file.

    Raises
    ------
    InputError
        If the file is a git-LFS pointer, empty, shorter than its header, or claims a gigantic header.
    """
    if start.startswith(_LFS[:8]):
        raise InputError(
            f"{where} is a git-LFS pointer, not the weights; run `git lfs pull` in its folder or download it again"
        )
    if len(start) < 8:
        raise InputError(f"{where} has {file_size} bytes, too few for a safetensors file; download it again")
    length = int.from_bytes(start[:8], "little")
    if length == 0:
        raise InputError(
            f"{where} has an empty header; the file is damaged or not a safetensors file, download it again"
        )
    if length > MAX_HEADER:
        raise InputError(
            f"{where} claims a header of {length} bytes (at most {MAX_HEADER}); it is not a safetensors file"
        )
    if 8 + length > file_size:
        raise InputError(
            f"{where} has {file_size} bytes, its header alone needs {8 + length}; it is cut off, download it again"
        )
    return length


def parse_header(text: bytes, file: str, file_size: int, where: str) -> dict[str, TensorHeader]:
    """Parse the JSON header.

    Parameters
    ----------
    text
        The header's bytes.
    file
        Key of the file, put into every tensor's header.
    file_size
        Bytes of the whole file.
    where
        The file, for messages.

    Returns
    -------
    The tensors by name, with begin and end counted from the start of the file.

    Raises
    ------
    InputError
        If the header is no JSON object, names a tensor twice, or its offsets are reversed, overlap, leave gaps, do not
        match shape and type, or reach beyond the file's end.
    """
    if sum(text.count(mark) for mark in (b"{", b"[", b",")) > MAX_MARKS:
        raise InputError(f"{where} has a header of more values than any checkpoint's; it is not a safetensors file")
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repetition)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{where} has a header that is no JSON ({error}); the file is damaged, download it again"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{where} has a header that is no JSON object; the file is damaged, download it again")
    content.pop("__metadata__", None)
    data = 8 + len(text)
    tensors = {name: _tensor_header(name, entry, file, data, where) for name, entry in content.items()}
    position = data
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != position:
            fault = "overlaps the tensor before it" if tensor.begin < position else "leaves a gap before it"
            raise InputError(f"{where}: tensor {name!r} {fault} (begins at byte {tensor.begin}, expected {position})")
        if tensor.end > file_size:
            raise InputError(
                f"{where}: tensor {name!r} ends at byte {tensor.end}, the file at {file_size}; it is cut off, "
                "download it again"
            )
        position = tensor.end
    if position != file_size:
        raise InputError(
            f"{where} has {file_size} bytes, its header accounts for {position}; the file is damaged, download it again"
        )
    return tensors


def read_header(path: Path, file: str) -> dict[str, TensorHeader]:
    """Read the header of a local file; see :func:`parse_header`."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = header_length(stream.read(len(_LFS))[: max(8, len(_LFS))], size, str(path))
            stream.seek(8)
            text = stream.read(length)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    return parse_header(text, file, size, str(path))


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice")
        found[key] = value
    return found


def _tensor_header(name: str, entry: Any, file: str, data: int, where: str) -> TensorHeader:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise InputError(f"{where}: tensor {name!r} has no dtype, shape and data_offsets; the file is damaged")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _natural_numbers(shape) or not _natural_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise InputError(
            f"{where}: tensor {name!r} has the shape {shape} and the offsets {offsets}; the file is damaged"
        )
    expected = n_bytes(str(entry["dtype"]), tuple(shape), f"{where}: tensor {name!r}")
    if offsets[1] - offsets[0] != expected:
        raise InputError(
            f"{where}: tensor {name!r} ({entry['dtype']} {shape}) needs {expected} bytes, its offsets {offsets} hold "
            f"{offsets[1] - offsets[0]}; the file is damaged"
        )
    return TensorHeader(str(entry["dtype"]), tuple(shape), file, data + offsets[0], data + offsets[1])


def _natural_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
