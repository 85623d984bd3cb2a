"""Files: written beside their place and renamed into it, read with patience, set aside where they are damaged."""

from __future__ import annotations

import errno
import io
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from headspaces.errors import DamagedFileError, InputError, made_by

T = TypeVar("T")


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a path beside ``path`` to write to; on success it becomes ``path``, on failure nothing is left.

    The rename comes after an fsync of the file, so that a kill at any moment, or a full disk, leaves the old file or
    none: never a part. Two writers use different names, the last rename wins. What a killed writer of the same file
    left is removed first.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{writer_name()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, f".{path.name}.")
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
        reason = system_reason(error)
        if reason is None:
            raise
        raise InputError(f"cannot write {path}: {reason}; free space or fix permissions, then run again") from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


PASSING = frozenset({errno.EIO, errno.ESTALE, errno.EINTR, errno.EAGAIN})
"""Errors of the system that may pass by themselves, as those of a network file system do."""

WAITS = (0.1, 0.5, 2.0)
"""Seconds before every further attempt."""

_WAY_OUT = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close other programs: the machine has too many files open",
    errno.ENOMEM: "give the job more memory",
    errno.EACCES: "fix its permissions",
    errno.EPERM: "fix its permissions",
    errno.ENOENT: "see whether it was moved",
}


def read_patiently(path: str | Path, read: Callable[[], T]) -> T:
    """Call what reads a file; an error of the system that may pass is tried again a few times.

    Raises
    ------
    InputError
        In the system's words, if it does not pass. It says nothing against the file, which stays as it is.
    """
    waits = iter(WAITS)
    while True:
        try:
            return read()
        except OSError as error:
            number = system_errno(error)
            wait = next(waits, None) if number in PASSING else None
            if wait is None:
                way_out = _WAY_OUT.get(number or 0, "see to the disk or the network")
                reason = f"{system_reason(error)}; the file is as it was, {way_out}, then run again"
                raise InputError(f"cannot read {path}: {reason}") from error
        time.sleep(wait)


class SteadyFile(io.FileIO):
    """An unbuffered file for a library that expects every read and write to be whole, and breaks on those that fail.

    Reads give all that they are asked for, as far as the file goes (a buffered file takes EAGAIN for its end, and one
    system call ends at 2 GiB). A write that fails is kept in :attr:`failed` and nothing more is written: HDF5, told of
    it, would end the process later, when it closes other files.
    """

    failed: OSError | None = None

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return how far."""
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and (n := _answered(super().readinto(view[done:]))):
            done += n
        return done

    def write(self, data: Any) -> int:
        """Write all of the data, or keep the reason."""
        view, done = memoryview(data).cast("B"), 0
        try:
            while self.failed is None and done < len(view):
                done += _answered(super().write(view[done:]))
        except OSError as error:
            self.failed = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Cut the file, or keep the reason."""
        try:
            if self.failed is None:
                return super().truncate(size)
        except OSError as error:
            self.failed = error
        return size or 0


def _answered(number: int | None) -> int:
    if number is None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return number


def read_bytes(path: str | Path, begin: int = 0, size: int | None = None) -> bytearray:
    """Read a file, or as much of a part of it as there is; errors as in :func:`read_patiently`."""

    def read() -> bytearray:
        with SteadyFile(path) as file:
            left = file.seek(0, io.SEEK_END) - begin
            data = bytearray(max(0, left if size is None else min(left, size)))
            file.seek(begin)
            del data[file.readinto(data) :]
            return data

    return read_patiently(path, read)


def set_aside(error: DamagedFileError) -> str:
    """Rename a damaged file to ``NAME.damaged`` (``.damaged.1``, …), so that the next run makes it anew.

    Nothing is deleted and no other file overwritten. Returns what to tell the user.
    """
    path, rule = error.path, made_by(error.path)
    makes = f"the rule {rule!r} makes it" if rule else "a rule of the workflow makes it"
    try:
        for number in count():
            aside = path.with_name(f"{path.name}.damaged{f'.{number}' if number else ''}")
            try:
                os.close(os.open(aside, os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                continue
        try:
            path.replace(aside)
        except OSError:
            aside.unlink()
            raise
    except FileNotFoundError:
        return f"{path}: {error.what}; {makes}, it is no longer there: run again to make it anew"
    except OSError as refused:
        return f"{path}: {error.what}; {makes}, but it cannot be set aside ({system_reason(refused)}): move it away"
    return f"{path}: {error.what}; {makes}, it is set aside as {aside.name}: run again to make it anew"


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


def system_errno(error: BaseException) -> int | None:
    """Return the system's number of an error, which h5py buries in a longer message; None where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno:
            return seen.errno
        if found := re.search(r"errno = (\d+)", str(seen)):
            return int(found[1])
        seen = seen.__context__
    return None


def system_reason(error: BaseException) -> str | None:
    """Return what the system said, in its words and one line; None for a fault of the program."""
    if (number := system_errno(error)) is not None:
        return os.strerror(number)
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, OSError):
        seen = seen.__context__
    return " ".join(str(seen).split()) if seen is not None else None
