"""Split GGUF files: ``NAME-00001-of-00003.gguf`` and the parts beside it, read as the one file that they were."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.formats.gguf_header import read_gguf
from headspaces.weights.headers import FileHeader, TensorHeader

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""How llama.cpp names the parts; the number of the first is 1."""
_MOST_PARTS = 1000


def gguf_parts(path: Path) -> list[Path]:
    """All parts of the file that a path belongs to, by their names; the path alone where the name says nothing."""
    found = _PART.fullmatch(path.name)
    if found is None or not 1 < int(found["count"]) <= _MOST_PARTS:
        return [path]
    numbers = range(1, int(found["count"]) + 1)
    return [path.with_name(f"{found['stem']}-{number:05d}-of-{found['count']}.gguf") for number in numbers]


def read_gguf_parts(path: Path) -> tuple[str, dict[str, Any], dict[str, TensorHeader], dict[str, FileHeader]]:
    """Read the headers of a GGUF file, and of all parts of a split one, which is named by its first part.

    Returns
    -------
    As :func:`~headspaces.weights.formats.gguf_header.read_gguf`; the metadata is the first part's.

    Raises
    ------
    InputError
        If another part than the first is named, a part is missing, was renamed or is another file's, or a file is
        damaged.
    """
    parts = gguf_parts(path)
    if path != parts[0]:
        raise InputError(
            f"{path}: is part {parts.index(path) + 1} of {len(parts)} of a split GGUF file; name the first"
        )
    if absent := [part.name for part in parts if not part.is_file()]:
        raise InputError(
            f"{path}: is the first of {len(parts)} parts of a split GGUF file; not beside it: {', '.join(absent)}; "
            "download all parts into one folder"
        )
    read = [read_gguf(part) for part in parts]
    tensors: dict[str, TensorHeader] = {}
    for number, (part, (_, config, found, _)) in enumerate(zip(parts, read, strict=True)):
        _check_place(part, config["gguf"], number, len(parts))
        if twice := sorted(tensors.keys() & found.keys()):
            raise InputError(f"{part}: tensor {twice[0]!r} is in an earlier part, too; the parts are of several files")
        tensors |= found
    revision, config = read[0][0], read[0][1]
    if len(parts) > 1:
        revision = "sha256:" + hashlib.sha256("".join(one[0] for one in read).encode()).hexdigest()
    return revision, config, tensors, {name: file for one in read for name, file in one[3].items()}


def _check_place(part: Path, values: dict[str, Any], number: int, count: int) -> None:
    """Check what a part says of its own place: ``split.no`` counts from 0."""
    told = (values.get("split.no", number), values.get("split.count", count))
    if told in ((number, count), (number, 0)):
        return
    raise InputError(
        f"{part}: says that it is part {told[0] + 1} of {told[1]} of a split GGUF file, its name says "
        f"{number + 1} of {count}; give the parts the names that they were downloaded with"
        if all(type(value) is int for value in told)
        else f"{part}: split.no and split.count are {told}, expected numbers; the file is damaged"
    )
