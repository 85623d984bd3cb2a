"""Replicas of a module, one for each thread: sequences that do not see each other run side by side.

The products of one sequence are small. Threads that share one spend their time in waiting for each other, all of it
where other processes want the same cores; a sequence on one thread waits for nobody. Every thread has the module's
structure to itself, so that its hooks hear its own sequence alone; parameters and buffers are shared.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from headspaces.threads import map_in_order, worker_count

State = TypeVar("State")
Item = TypeVar("Item")
Result = TypeVar("Result")


def replica(module: torch.nn.Module) -> torch.nn.Module:
    """Copy a module's structure, with the same tensors."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared)


def map_with_replicas(
    module: torch.nn.Module,
    prepare: Callable[[torch.nn.Module], State],
    function: Callable[[State, Item], Result],
    items: Sequence[Item],
) -> Iterator[Result]:
    """Apply a function to independent sequences on this process's threads; yield in the items' order.

    ``prepare`` makes what a thread needs from its replica, once a thread: the first has the module itself. Where there
    are fewer sequences than threads, torch has the others inside its operations; else the results have the same bits
    for every number of threads. Modes of torch (``no_grad``, ``inference_mode``) hold in the thread that enters them:
    ``function`` must.
    """
    workers = max(1, min(worker_count(), len(items)))
    free: SimpleQueue[torch.nn.Module] = SimpleQueue()
    for one in (module, *(replica(module) for _ in range(workers - 1))):
        free.put(one)
    own, before = threading.local(), torch.get_num_threads()

    def work(item: Item) -> Result:
        if not hasattr(own, "state"):
            torch.set_num_threads(worker_count() // workers)
            own.state = prepare(free.get())
        return function(own.state, item)

    try:
        yield from map_in_order(work, items, workers=workers)
    finally:
        torch.set_num_threads(before)
