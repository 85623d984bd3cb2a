"""What every job of the workflow does around its one call: log, threads, whole files, code fingerprints."""

from __future__ import annotations

import ast
import ctypes
import logging
import os
import platform
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headspaces.errors import DamagedFileError, InputError

SOURCE = Path(__file__).resolve().parents[1]
"""The folder that holds the package."""


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


def sources(*modules: str) -> list[str]:
    """Files of the package that the named modules are made of: themselves and what they import, transitively.

    A rule that names them as input is rerun by an edit of exactly this code, and by nothing else. Only absolute
    imports count (``from headspaces.x import y``), wherever they stand in the file.
    """
    found: set[Path] = set()
    waiting = [f"headspaces.{module}" for module in modules]
    while waiting:
        file = _module_file(waiting.pop())
        if file is None or file in found:
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headspaces"):
                waiting.append(str(node.module))
                waiting.extend(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                waiting.extend(alias.name for alias in node.names if alias.name.startswith("headspaces"))
    # The package's own __init__ holds documentation and the version only.
    return sorted(str(file) for file in found if file != SOURCE / "headspaces" / "__init__.py")


def _module_file(module: str) -> Path | None:
    place = SOURCE.joinpath(*module.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def hand_on_environment() -> None:
    """Let the jobs that this process starts use this copy of the package, and HDF5 files without locks.

    Files are never changed in place, so locks protect nothing, and some network file systems have none.
    """
    paths = [str(SOURCE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")


def release_dead_locks(folder: Path = Path(".snakemake")) -> None:
    """Release Snakemake's locks where every run that may hold them is dead, so that a kill needs no ``--unlock``.

    Each run leaves its host and process in ``drivers``. Locks stay as long as one of these runs, or may run on another
    machine.
    """
    drivers = folder / "drivers"
    drivers.mkdir(parents=True, exist_ok=True)
    own = drivers / writer_name()
    found = [driver for driver in drivers.iterdir() if driver != own]
    dead = []
    for driver in found:
        host, _, process = driver.name.rpartition("-")
        if host == platform.node() and process.isdecimal() and not _runs(int(process)):
            dead.append(driver)
    if dead and dead == found:
        for lock in folder.glob("locks/*.lock"):
            lock.unlink(missing_ok=True)
    for driver in dead:
        driver.unlink(missing_ok=True)
    own.touch()


def reuse_memory() -> None:
    """Let this process keep the memory that large arrays gave back, instead of returning it to the system each time.

    A new page costs as much as the arithmetic on it: null samples took a quarter more time without this. Arrays from
    256 MiB on are still returned, so that peaks stay. Does nothing where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    arena_max, mmap_threshold, trim_threshold = -8, -3, -1
    # Older versions of glibc take 32 MiB at most.
    if mallopt(mmap_threshold, 2**28) or mallopt(mmap_threshold, 2**25):
        # One heap for all threads, since the others' hold no large arrays.
        mallopt(arena_max, 1)
        mallopt(trim_threshold, 2**31 - 1)


def worker_count() -> int:
    """Threads that this process may use: its CPUs, or fewer where the job was given fewer (``OMP_NUM_THREADS``)."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(cpus, int(allowed)) if allowed.isdecimal() and int(allowed) > 0 else cpus


def map_in_order(
    function: Callable[[Any], Any], items: Iterable[Any], *, parallel: bool = True, workers: int | None = None
) -> Iterator[Any]:
    """Apply a function to independent items on this process's threads, BLAS single-threaded; yield in the items' order.

    Results are taken as they come in order, so no more than a few wait; nothing depends on the number of threads.
    """
    if not parallel:
        yield from map(function, items)
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), ThreadPoolExecutor(workers or worker_count()) as pool:
        yield from pool.map(function, items)


@contextmanager
def job(log_path: str, threads: int) -> Iterator[logging.Logger]:
    """Run a script's body with its log open and its threads set.

    Messages go to the log file and to the console. An :class:`InputError` ends the job with its one line, anything
    else with a traceback in both places; the exit status is 1. A damaged file of the workflow is removed, so that the
    next run makes it anew.
    """
    import headspaces

    os.environ["OMP_NUM_THREADS"] = str(threads)
    reuse_memory()
    Path(log_path).parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        logging.FileHandler(log_path, mode="w", encoding="utf-8"),
        logging.StreamHandler(sys.stderr),
    ]
    handlers[0].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handlers[1].setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    # A log file on a full disk must not hide the message on the console under tracebacks of its own.
    logging.raiseExceptions = False
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logger = logging.getLogger("headspaces")
    origin = f"headspaces {headspaces.__version__} from {SOURCE}, {threads} threads"
    # Only to the file: the console shows what the user asked for.
    handlers[0].handle(logger.makeRecord("headspaces", logging.INFO, "", 0, origin, (), None))
    try:
        yield logger
    except InputError as error:
        logger.error("error: %s", error)
        if isinstance(error, DamagedFileError):
            error.path.unlink(missing_ok=True)
        raise SystemExit(1) from None
    except Exception:
        logger.error("%s", traceback.format_exc().rstrip())
        raise SystemExit(1) from None
