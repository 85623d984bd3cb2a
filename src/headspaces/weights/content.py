"""Contents of local checkpoints: a file counts by what it holds, not by its name or its date.

A sum of gigabytes is remembered beside what the system says of the file (size, inode, times of change), which no copy,
link or tool keeps as a whole when the content changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headspaces.errors import InputError
from headspaces.files import whole_file
from headspaces.weights.formats.gguf_parts import gguf_parts
from headspaces.weights.headers import Headers

CHECKPOINT_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json")
"""Files of a folder that its weights are read from."""


def local_files(source: str) -> list[Path]:
    """Files of a local checkpoint; none for sources elsewhere."""
    try:
        path = Path(source).expanduser()
        if ":" in source or not path.exists():
            return []
    except (OSError, ValueError, RuntimeError):  # no file can have this name: reading the headers says so
        return []
    if path.is_file():
        if path.suffix == ".gguf":
            return [part for part in gguf_parts(path) if part.is_file()]
        beside = path.parent / "config.json"
        return [path, beside] if beside.is_file() else [path]
    return sorted(file for pattern in CHECKPOINT_FILES for file in path.glob(pattern))


def content_sum(source: str, memory: str | Path) -> str:
    """Sum of the contents of a local checkpoint's files; empty for sources elsewhere.

    Parameters
    ----------
    source
        Where the checkpoint is.
    memory
        A JSON file that keeps the sums from one run to the next. It is written where that is possible.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    files = local_files(source)
    if not files:
        return ""
    known = _remembered(Path(memory))
    found = {str(file.resolve()): _sum_of(file, known.get(str(file.resolve()))) for file in files}
    if found != known:
        with suppress(InputError, OSError), whole_file(memory) as beside:
            beside.write_text(json.dumps(found, indent=0), encoding="utf-8")
    return _joined((file.name, found[str(file.resolve())][-1]) for file in files)


def with_content(headers: Headers, content: str) -> Headers:
    """Let the revision of a local checkpoint tell its content too; a sum of no content leaves it."""
    if not content:
        return headers
    revision = "sha256:" + hashlib.sha256(f"{headers.revision} {content}".encode()).hexdigest()
    return replace(headers, checkpoint=replace(headers.checkpoint, revision=revision))


def _sum_of(file: Path, known: list[str] | None) -> list[str]:
    """State of a file and the sum of its content, which is read only where the state is another one."""
    try:
        state = file.stat()
        marks = [str(mark) for mark in (state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)]
        if known and known[:-1] == marks:
            return known
        with file.open("rb") as stream:
            return [*marks, hashlib.file_digest(stream, "sha256").hexdigest()]
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error})") from error


def _remembered(memory: Path) -> dict[str, list[str]]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _joined(parts: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256("".join(f"{name} {part}\n" for name, part in parts).encode()).hexdigest()
