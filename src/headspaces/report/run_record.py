"""The record of a run, its origin and its cost: sources and revisions, settings, software, machine, time and memory."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

STAGES = (
    "wheel", "headers", "weights", "bases", "overlaps", "nulls", "orthonormal", "self_heads", "affinity", "texts",
    "activations",
)  # fmt: skip
"""In the order in which a reader meets them; others follow by name."""

SOFTWARE = (
    "headspaces", "numpy", "scipy", "torch", "transformers", "h5py", "safetensors", "gguf", "huggingface_hub",
    "pandas", "matplotlib", "networkx", "scikit-learn", "snakemake",
)  # fmt: skip


@dataclass(frozen=True)
class StageCost:
    """What the jobs of one stage took for one model or study, as Snakemake's benchmarks have it.

    Seconds are those of all jobs together, on the clock and of the processors; ``peak_mib`` is the largest resident
    memory of a job, None where every job was too short to be seen. ``subject`` is a model, study or text.
    """

    stage: str
    subject: str
    n_jobs: int
    seconds: float
    cpu_seconds: float
    peak_mib: float | None


@dataclass(frozen=True)
class RunRecord:
    """All that a report says about where its numbers come from.

    ``attributes`` are, by model and stage, the root attributes of the stage's file; ``notes``, by model, what its row
    or its headers have to say, parted by semicolons; ``left_out``, by model, the stages that it does not have, with the
    reason; ``settings`` the study's configuration.
    """

    attributes: Mapping[str, Mapping[str, Mapping[str, Any]]]
    notes: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    costs: Sequence[StageCost] = ()
    software: Sequence[tuple[str, str]] = ()
    machine: Sequence[tuple[str, str]] = ()


def read_costs(folder: str | Path, subjects: Collection[str]) -> list[StageCost]:
    """Add up the benchmarks ``{folder}/{stage}/{subject}[/…].tsv`` of the given models, studies and texts.

    Benchmarks are of the last run of every job; a file that is not there is of a job that ran elsewhere.
    """
    found: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for path in sorted(Path(folder).rglob("*.tsv")):
        stage, *parts = path.relative_to(folder).parts
        subject = (parts[0] if len(parts) > 1 else parts[0].removesuffix(".tsv")) if parts else ""
        if subject in subjects:
            with path.open(encoding="utf-8", newline="") as file:
                found.setdefault((stage, subject), []).extend(csv.DictReader(file, delimiter="\t"))
    costs = [_cost(stage, subject, jobs) for (stage, subject), jobs in found.items()]
    stages, order = ({name: place for place, name in enumerate(names)} for names in (STAGES, subjects))
    return sorted(costs, key=lambda cost: (stages.get(cost.stage, 99), cost.stage, order[cost.subject]))


def _cost(stage: str, subject: str, jobs: Sequence[Mapping[str, str]]) -> StageCost:
    # Snakemake writes NA or a dash for a job that ended before it was looked at.
    table = pd.DataFrame(jobs).reindex(columns=["s", "cpu_time", "max_rss"]).apply(pd.to_numeric, errors="coerce")
    peak = None if table["max_rss"].isna().all() else float(table["max_rss"].max())
    return StageCost(stage, subject, len(jobs), float(table["s"].sum()), float(table["cpu_time"].sum()), peak)


def installed_software() -> list[tuple[str, str]]:
    """Name and version of Python and of every package that makes numbers or pictures."""
    found = [("Python", platform.python_version())]
    for name in SOFTWARE:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return found


def describe_machine() -> list[tuple[str, str]]:
    """Facts about this machine that bear on times; its name is nobody's business."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    facts = [("system", f"{platform.system()} {platform.release()}, {platform.machine()}")]
    if model := _processor():
        facts.append(("processor", model))
    facts.append(("CPUs of the job", str(cpus)))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        facts.append(("memory", f"{memory / 2**30:.0f} GiB"))
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
