"""Requests of the jobs: memory, minutes, threads and GPU memory, from the model's shape alone.

Only what Snakemake imports anyway is imported: the Snakefile reads this module at every start.
"""

from __future__ import annotations

import math

from headspaces.costs.cost import MIB, Cost, Workload
from headspaces.costs.stages import STAGES, START_SECONDS
from headspaces.study.models import Model

CORE_GFLOPS = 10.0  # Rate per thread for the requested minutes: half of what a core of 2015 gives in float64.
GPU_PROCESS = 3 * 1024 * MIB  # Torch's libraries, the GPU's, and the driver's part of a process: from above.
GPU_WORKSPACE = 128 * MIB  # What the GPU's libraries take for themselves, and what is lost between pieces of memory.
THREADS_WORKSPACE = 512 * MIB  # The same where a job's 16 threads all ask the GPU for products: up to 32 MiB each.
MARGIN = 1.3  # Requested memory over the predicted peak.
PATIENCE = 3.0  # Requested minutes over the predicted ones: a job that is stopped at its limit has cost all its time.
LEAST_MINUTES = 10  # Requested at least: file systems are slow at times.
THREAD_SECONDS = 10.0  # Work of one thread that makes another one worth having.
_OTHER_SECONDS = {"wheel": 10.0, "unpack": 30.0, "text": 5.0, "toy_model": 60.0, "atlas": 5.0}
MOST_THREADS = 16  # Threads of any job: nodes with fewer cores are rare, and more wait for each other.


def stage_cost(stage: str, model: Model, work: Workload | None = None) -> Cost:
    """Predict what a stage, a key of :data:`STAGES`, costs for a model."""
    return STAGES[stage](model, work or Workload())


def memory_mb(stage: str, model: Model, threads: int = 1, attempt: int = 1, device: str = "cpu") -> int:
    """Return the memory to ask for, in MiB: the predicted peak with a margin, and half as much more for every retry."""
    peak = stage_cost(stage, model, Workload(threads)).memory + (GPU_PROCESS if device == "cuda" else 0)
    return math.ceil(MARGIN * peak / MIB * (1 + (attempt - 1) / 2))


def minutes(stage: str, model: Model, threads: int = 1, attempt: int = 1, **work: int) -> int:
    """Return the minutes to ask for: of the longest job, at :data:`CORE_GFLOPS`; as many more for every retry.

    ``work`` are fields of :class:`Workload` that are not at their defaults.
    """
    # Threads wait for each other, and for memory.
    seconds = START_SECONDS + _longest_seconds(stage, model, **work) / math.pow(threads, 0.8)
    return attempt * max(LEAST_MINUTES, math.ceil(PATIENCE * seconds / 60))


def job_seconds(rule: str, model: Model | None) -> float:
    """Seconds of one job of a rule, from which follows what part of a run is over.

    Of rules that are no key of :data:`STAGES` the known times stand here; of those that need no time, that of a start.
    """
    if model is None or rule not in STAGES:
        return START_SECONDS + _OTHER_SECONDS.get(rule, 0.0)
    cost = stage_cost(rule, model)
    return START_SECONDS + cost.operations / cost.jobs / (2 * CORE_GFLOPS * 1e9)


def gpu_mb(stage: str, model: Model) -> int:
    """Return the GPU memory that a job needs, in MiB; the driver's own part, some hundred, comes on top."""
    # Angles are the only products that many threads ask for.
    workspace = GPU_WORKSPACE + (THREADS_WORKSPACE if stage == "overlaps" else 0)
    return math.ceil((stage_cost(stage, model).gpu + workspace) / MIB)


def n_threads(stage: str, model: Model) -> int:
    """Return the threads that are worth having: one for every :data:`THREAD_SECONDS` that one thread would take.

    Null samples are jobs enough: with one thread each, no thread ever waits.
    """
    if stage in ("weights", "stream_weights", "null_shard", "swap_shard"):
        return 1
    return min(MOST_THREADS, max(1, math.ceil(_longest_seconds(stage, model) / THREAD_SECONDS)))


def _longest_seconds(stage: str, model: Model, **work: int) -> float:
    cost = stage_cost(stage, model, Workload(**work))
    return cost.longest * cost.operations / (CORE_GFLOPS * 1e9)
