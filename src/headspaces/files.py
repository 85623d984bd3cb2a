"""Whole files: written beside their place and renamed into it, so that no reader meets a part."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headspaces.errors import InputError


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a path beside ``path`` to write to; on success it becomes ``path``, on failure nothing is left.

    The rename comes after an fsync of the file, so that a kill at any moment, or a full disk, leaves the old file or
    none: never a part. Two writers use different names, the last rename wins. What a killed writer of the same file
    left is removed first.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, f".{path.name}.")
    beside = path.with_name(f".{path.name}.{writer_name()}.part")
    try:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (OSError, RuntimeError) as error:
        # Closing an HDF5 file on a full disk raises a RuntimeError after the write's own OSError.
        reason = _system_reason(error)
        if reason is None:
            raise
        raise InputError(f"cannot write {path}: {reason}; free space or fix permissions, then run again") from error
    finally:
        beside.unlink(missing_ok=True)


LEFT_AFTER = 24 * 3600
"""Seconds without a change after which another machine's unfinished file counts as left behind."""


def remove_leftovers(folder: Path, start: str) -> None:
    """Remove the unfinished files and folders of killed writers: ``{start}{host}-{process}.part``.

    Those of a process of this machine that is no more, and of whatever machine those that nothing has changed for a
    day.
    """
    for left in folder.iterdir():
        writer = left.name.removeprefix(start).removesuffix(".part")
        if not left.name.startswith(start) or not left.name.endswith(".part") or writer == writer_name():
            continue
        host, _, process = writer.rpartition("-")
        with suppress(OSError):
            gone = host == platform.node() and process.isdecimal() and not _runs(int(process))
            if not gone and time.time() - left.stat().st_mtime < LEFT_AFTER:
                continue
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()


def writer_name() -> str:
    """Name this process among all that may write into a folder."""
    return f"{platform.node()}-{os.getpid()}"


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _system_reason(error: BaseException) -> str | None:
    """Return what the system said, in its words and one line; h5py buries it in a longer message. None for a fault."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror and seen.errno:
            return os.strerror(seen.errno)
        if found := re.search(r"errno = (\d+)", str(seen)):
            return os.strerror(int(found[1]))
        if isinstance(seen, OSError):
            return " ".join(str(seen).split())
        seen = seen.__context__
    return None
