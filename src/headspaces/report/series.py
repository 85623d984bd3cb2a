"""Series of checkpoints: the comparisons of every step against the nulls, and how far every head has come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headspaces.errors import DamagedFileError
from headspaces.files import read_bytes
from headspaces.geometry.travel import own_angle, own_overlap
from headspaces.report.effect_results import rank_correlation, square
from headspaces.report.results import Comparison, ModelResults, first_measure, read_results
from headspaces.spaces import KINDS, NULLS, READS, SWAP, Shape
from headspaces.store import read_arrays, read_attributes

STATISTICS = ("mean", "spread", "min_angle", "largest_rw", "largest_swap")
"""What is kept of every condition of a step; the last two are the largest spreads of the nulls' samples."""


@dataclass(frozen=True)
class StepFiles:
    """One step: its number, its model's name, that model's files by stage, and its bases in blocks of layers.

    Beside ``overlaps`` and ``nulls`` these are ``activations``, ``attention`` and ``attribution`` where the model runs.

    ``run`` is the file that says what the model does, where the training wrote one.
    """

    step: int
    model: str
    files: Mapping[str, str]
    bases: Sequence[str]
    run: str = ""


def collect_series(steps: Sequence[StepFiles]) -> dict[str, np.ndarray]:
    """Collect what the files of all steps say, and compare every head with itself at other steps.

    Returns
    -------
    The datasets of kind ``series`` in :mod:`headspaces.fields`.

    Raises
    ------
    InputError
        If a file is damaged or another model's.
    """
    parts = [dict(_step_arrays(step)) for step in steps]
    # What the model does, a step may lack that was saved without its tokenizer.
    known = {name: np.full_like(array, np.nan) for part in parts for name, array in part.items()}
    arrays = {name: np.stack([part.get(name, missing) for part in parts]) for name, missing in known.items()}
    sums = [read_attributes(step.files["overlaps"], "overlaps")["weights_sha256"] for step in steps]
    first = [sums.index(one) for one in sums]
    same = [steps[at].step if at < place else -1 for place, at in enumerate(first)]
    numbers = np.array([step.step for step in steps], dtype=np.int64)
    return arrays | {"steps": numbers, "duplicate_of": np.array(same, dtype=np.int64)} | _travel(steps)


def series_attributes(steps: Sequence[StepFiles]) -> dict[str, Any]:
    """Root attributes that hold for all steps, as the last one's overlaps and nulls say them."""
    last = steps[-1].files
    overlaps, nulls = read_attributes(last["overlaps"], "overlaps"), read_attributes(last["nulls"], "nulls")
    loss = (
        "the text"
        if any("attention" in step.files for step in steps)
        else "second copies of random tokens"
        if steps[-1].run
        else "not run"
    )
    own = {name: overlaps[name] for name in (*Shape.__dataclass_fields__, "kinds", "norm", "fold", "rank_rtol")}
    return own | {"seed": nulls["seed"], "samples": nulls["samples"], "loss_on": loss}


def _step_arrays(step: StepFiles) -> Iterator[tuple[str, np.ndarray]]:
    read = {stage: path for stage, path in step.files.items() if stage in ("overlaps", "nulls", "attribution")}
    results = read_results(step.model, read)
    for comparison in results.compare_all():
        place = f"{'within' if comparison.scope == 'within' else 'cross'}/{comparison.spaces}"
        for name, values in zip(STATISTICS, _statistics(comparison), strict=True):
            yield f"{place}/{name}", _by_layers(comparison, values, results.shape.n_layers)
    yield from _effects(results)
    if "attention" in step.files:
        loss = read_arrays(step.files["activations"], "activations", ["run/loss_nats_per_token"])
        yield "loss", np.array(float(loss["run/loss_nats_per_token"]))
        yield "induction", read_arrays(step.files["attention"], "attention", ["induction"])["induction"]
    elif step.run:
        run = _read_run(step.run)
        yield "loss", np.array(float(run["loss"]))
        yield "induction", np.array(run["induction"], dtype=np.float64)


def _effects(results: ModelResults) -> Iterator[tuple[str, np.ndarray]]:
    """Sum the sizes of all edges' effects on the model's loss, and correlate them with the overlaps."""
    if results.attribution is None:
        return
    start = first_measure(results.attribution)
    for kind in READS:
        size = np.abs(square(results.attribution[f"{start}{kind}/effect"]))
        yield f"cross/O{kind}/effect_sum", np.array(np.nansum(size))
        rho = square(results.overlaps[f"cross/O{kind}/rho"])
        yield f"cross/O{kind}/spearman_effect", np.array(rank_correlation(size, rho)[0])


def _read_run(path: str) -> dict[str, Any]:
    try:
        run: dict[str, Any] = json.loads(read_bytes(path))
        return {name: run[name] for name in ("loss", "induction")}
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(path, f"does not say what the model does ({error})") from error


def _statistics(comparison: Comparison) -> Iterator[np.ndarray]:
    yield comparison.mean
    yield comparison.spread
    yield comparison.statistics["min_angle"]
    for nulls in (NULLS, (SWAP,)):
        drawn = [comparison.nulls.get(null, {}) for null in nulls]
        samples = [one["spread"] for one in drawn if "spread" in one]
        # Where a null is undefined, so is its largest spread.
        yield np.fmax.reduce(np.concatenate(samples)) if samples else np.full(comparison.n_conditions, np.nan)


def _by_layers(comparison: Comparison, values: np.ndarray, n_layers: int) -> np.ndarray:
    """Values of layers as they are; of layer pairs as a square, NaN where no later reader is."""
    if comparison.scope == "within":
        return np.asarray(values, dtype=np.float64)
    square = np.full((n_layers, n_layers), np.nan)
    square[tuple(comparison.layers.T)] = values
    return square


def _travel(steps: Sequence[StepFiles]) -> dict[str, np.ndarray]:
    """Every head's overlap with itself, and the angle between, at the last and at the previous step; block by block."""
    blocks = []
    for at in range(len(steps[-1].bases)):
        last = read_arrays(steps[-1].bases[at], "bases")
        kinds = [kind for kind in KINDS if f"{kind}/basis" in last]
        found: dict[str, list[np.ndarray]] = {}
        previous = None
        for step in steps:
            own = read_arrays(step.bases[at], "bases")
            for kind in kinds:
                for name, other in (("last", last), ("previous", own if previous is None else previous)):
                    pair = [one[part] for part in (f"{kind}/basis", f"rank/{kind}") for one in (own, other)]
                    itself = step is steps[-1] if name == "last" else previous is None
                    found.setdefault(f"heads/{kind}/rho_{name}", []).append(own_overlap(*pair))
                    # Of a step with itself no rounding is left.
                    found.setdefault(f"heads/{kind}/angle_{name}", []).append(own_angle(*pair) * (0 if itself else 1))
            previous = own
        blocks.append({name: np.stack(values) for name, values in found.items()})
    return {name: np.concatenate([block[name] for block in blocks], axis=1) for name in blocks[0]}
