"""Devices, on which the heavy linear algebra runs: the CPU with numpy, or a GPU with torch.

The numerical modules work wherever their arrays are. A stage moves its arrays to the device, block by block, and what
is computed from them comes back as numpy arrays. Everything else (files, random numbers, LAPACK) stays on the CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from headspaces.errors import InputError

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""

ToDevice: TypeAlias = Callable[[Any], Any]
"""Moves a numpy array to the device that is to compute with it."""

DEVICES = ("cpu", "cuda", "auto")
"""What the setting ``device`` may say. Jobs get its number: resources of jobs that share a submission are numbers."""

GPU = "cuda"
"""Torch's name of the GPU, AMD's ones included."""

DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""What the drivers of NVIDIA, of Windows' subsystem and of AMD make. Without them torch sees no GPU, and is not
imported: that takes seconds."""

WORK_BYTES = 2**30
"""GPU memory for the kernel's tiles over all heads."""

BATCH_BYTES = 2**27
"""GPU memory for a batch of the kernel's Gram matrices; some copies of it exist at a time."""

GRAM_BYTES = 2**25
"""Bytes of one thread's batch of Gram matrices; on a GPU this is for those of the angles alone."""

PAIR_BYTES = 2**26
"""Bytes of the products of pairs of bases that are held at a time while the closest pair is sought."""

TILE_ROWS = 256
"""Rows and columns of the kernel's tiles on a GPU, which wants large products. No more, so that float32 sums 2^16
entries at most before float64 takes over."""

LEAST_TILE_ROWS = 32
"""The same where a model has very many heads."""

MIB = 2**20

logger = logging.getLogger(__name__)


def identity(array: Array) -> Array:
    """Leave an array where it is."""
    return array


@dataclass(frozen=True)
class Device:
    """Where a job computes.

    ``to_device`` moves a numpy array there: itself, or a torch tensor on the GPU (``cuda``).
    """

    name: str
    to_device: ToDevice


CPU = Device("cpu", identity)


def device_setting(device: str | Mapping[str, str], stage: str) -> str:
    """Return the setting ``device`` of one stage: it is one word for all stages, or a word for some of them."""
    return device if isinstance(device, str) else device.get(stage, "cpu")


def choose_device(setting: str, needed_mb: int) -> Device:
    """Find out where a job computes, log it, and keep the GPU memory that it needs for this process.

    ``auto`` is a GPU where torch sees one with enough free memory, of which the job needs ``needed_mb`` MiB. Raises
    :class:`InputError` if ``cuda`` is requested and there is no such GPU.
    """
    has_driver = any(Path(file).exists() for file in DRIVER_FILES)
    if setting == "cpu" or (setting == "auto" and not has_driver):
        logger.info("device: cpu")
        return CPU
    if trouble := _gpu_trouble(needed_mb):
        if setting == "cuda":
            raise InputError(
                f"device is cuda, but {trouble}; say cpu or auto, or see docs/cluster.md for what a GPU needs"
            )
        logger.info("device: cpu, since %s", trouble)
        return CPU
    import torch

    logger.info("device: cuda, %s, %d MiB kept for this job", torch.cuda.get_device_name(), needed_mb)
    return Device("cuda", lambda array: torch.asarray(array, device=GPU))


def tile_rows(entry_bytes: int) -> int:
    """Rows of the kernel's tiles on a GPU: as many as :data:`WORK_BYTES` hold of all heads' entries."""
    rows = TILE_ROWS
    while rows > LEAST_TILE_ROWS and rows**2 * entry_bytes > WORK_BYTES:
        rows //= 2
    return rows


def _gpu_trouble(needed_mb: int) -> str | None:
    """Take the GPU memory that is needed; why that cannot be done, or None."""
    import torch

    if not torch.cuda.is_available():
        built = "" if torch.version.cuda or torch.version.hip else ", which is built for the CPU alone,"
        return f"torch {torch.__version__}{built} sees no GPU"
    # No TensorFloat-32, which has three digits: float32 means float32.
    torch.set_float32_matmul_precision("highest")
    try:
        # Memory that is given back stays with torch in this process: no other job can take it in between.
        torch.empty(needed_mb * MIB, dtype=torch.uint8, device=GPU)
        # A GPU that this torch has no code for fails here and not before.
        torch.ones((2, 2), device=GPU) @ torch.ones((2, 2), device=GPU)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        return f"the GPU cannot be used with {needed_mb} MiB of its memory ({reason}); fewer jobs at a time may help"
    return None


def to_numpy(array: Array) -> np.ndarray:
    """Give an array as numpy's, from wherever it is."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu())
