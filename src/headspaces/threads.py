"""Threads and memory of a process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


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
