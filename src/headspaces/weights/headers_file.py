"""The headers file: what a checkpoint's own files say, as one JSON file that is interpreted whenever it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headspaces.errors import DamagedFileError, InputError
from headspaces.files import read_bytes, whole_file
from headspaces.weights.headers import Checkpoint, FileHeader, Headers, TensorHeader
from headspaces.weights.interpretation import interpret, interpretation_sum

FORMAT = "headspaces-headers"
FORMAT_VERSION = 2


def write_headers(headers: Headers, path: str | Path) -> None:
    """Write headers as JSON."""
    checkpoint = headers.checkpoint
    content: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION, "kinds": headers.kinds}
    content |= asdict(checkpoint)
    tensors = {
        name: [tensor.dtype, list(tensor.shape), tensor.file, tensor.begin, tensor.end]
        for name, tensor in checkpoint.tensors.items()
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
        If the file is no such JSON, of another version, or has changed since it was written.
    InputError
        If the system cannot read it, or the checkpoint is not understood any more.
    """
    data = read_bytes(path)
    try:
        text = data.decode("utf-8")
        content = json.loads(text)
        found_sum = content.pop("sha256")
        found = (content.pop("format"), content.pop("format_version"))
        if found != (FORMAT, FORMAT_VERSION):
            raise ValueError(f"expected {FORMAT} version {FORMAT_VERSION}, found {found[0]} version {found[1]}")
        kinds = content.pop("kinds")
        content["tensors"] = {
            name: TensorHeader(dtype, tuple(shape), file, begin, end)
            for name, (dtype, shape, file, begin, end) in content["tensors"].items()
        }
        content["files"] = {name: FileHeader(**file) for name, file in content["files"].items()}
        checkpoint = Checkpoint(**content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(path, f"not a readable headers file ({error})") from error
    # The sum is that of all lines after its own.
    if found_sum != _sum(text.split("\n", 2)[-1]):
        raise DamagedFileError(path, "not a readable headers file (changed since it was written: its checksum differs)")
    return interpret(checkpoint, kinds)


def interpretation_of(path: str | Path) -> str:
    """Sum of how a headers file is understood now; empty where there is none yet, why where it is not understood."""
    try:
        return interpretation_sum(load_headers(path)) if Path(path).is_file() else ""
    except InputError as error:
        return str(error)
