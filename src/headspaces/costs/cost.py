"""A cost, and the work that it is of."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20
PROCESS = 200 * MIB  # A process with numpy, scipy, HDF5 and the work buffers of BLAS: measured 110 to 170 MiB.


@dataclass(frozen=True)
class Workload:
    """Work of a study.

    Threads of a job, samples of each null model, tokens of the text that models are run on, samples of RW's null models
    of orthonormal columns; of the swap null model the sweeps before all samples, and of each; strongest edges that are
    ablated, of each kind of read by each score; and those of each kind and loss whose effect is to second order.
    """

    threads: int = 1
    samples: int = 30
    tokens: int = 2048
    orthonormal: int = 10
    burn_in: int = 10
    sweeps: int = 1
    edges: int = 2
    second_order: int = 30


@dataclass(frozen=True)
class Cost:
    """What one stage costs for one model.

    ``memory`` is the largest job's peak and ``disk`` what stays, in bytes; ``operations`` are those of all ``jobs``, of
    which the longest has the part ``longest``; ``gpu`` is what a job holds at once on a GPU, beside the libraries.
    """

    memory: float | int
    disk: float | int
    operations: float | int
    jobs: int = 1
    longest: float = 1.0
    gpu: int = 0
