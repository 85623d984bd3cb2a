"""Tables of series of checkpoints: the comparisons against the nulls step by step, and the way of every head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headspaces.report.results import Arrays, ModelResults
from headspaces.report.tables.observed import Row
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import extremes, tidy
from headspaces.spaces import ACROSS, KINDS, WITHIN

SHOWN_STEPS = 12
"""Most steps of a series that a reader is shown."""


def series(models: Sequence[ModelResults]) -> Table:
    """Set every comparison of every step of a series against the nulls, with what the model does by then."""
    columns = """series step duplicate_of scope spaces mean_rho spread_median r_rw r_swap n_conditions n_above_all_rw
                 n_above_all_swap smallest_angle_deg loss_nats induction effect_sum spearman_effect"""
    notes, shown = [], []
    for model in (model for model in models if model.series):
        arrays = _arrays(model)
        numbers, same = arrays["steps"].tolist(), arrays["duplicate_of"].tolist()
        places = np.unique(np.linspace(0, len(numbers) - 1, min(SHOWN_STEPS, len(numbers))).round().astype(int))
        shown += [(model.name, numbers[place]) for place in places]
        notes += [
            f"{model.name}: step {step} holds the weights of step {other}."
            for step, other in zip(numbers, same)
            if other >= 0
        ]
        on = str(model.attributes["loss_on"])
        notes.append(
            f"{model.name}: {'its model was not run' if on == 'not run' else f'loss on {on}, nats per token'}."
        )
    # In other tables the loss is a name, here a number.
    frame = tidy(columns, [row for model in models for row in comparison_rows(model)])
    frame = frame.rename(columns={"loss_nats": "loss"})
    printed = frame[np.array([pair in shown for pair in zip(frame["series"], frame["step"])], dtype=bool)]
    return Table(frame, tuple(notes), printed, f"at most {SHOWN_STEPS} steps of a series")


def comparison_rows(model: ModelResults) -> Iterator[Row]:
    """Summarise each comparison of each step: medians over its conditions where they are defined."""
    arrays = _arrays(model)
    for index, step in enumerate(np.asarray(arrays.get("steps", ())).tolist()):
        other = int(arrays["duplicate_of"][index])
        run = {"loss_nats": float(arrays["loss"][index])} if "loss" in arrays else {}
        run |= {"induction": float(arrays["induction"][index].max())} if "induction" in arrays else {}
        for spaces in (*WITHIN, *ACROSS):
            scope, place = ("within", "within") if spaces in WITHIN else ("across", "cross")
            if f"{place}/{spaces}/spread" not in arrays:
                continue
            names = ("mean", "spread", "min_angle", "largest_rw", "largest_swap")
            mean, spread, angle, rw, swap = (arrays[f"{place}/{spaces}/{name}"][index].ravel() for name in names)
            row: Row = {"series": model.name, "step": step, "scope": scope, "spaces": spaces, **run}
            row |= {"duplicate_of": other} if other >= 0 else {}
            effects = {name: arrays.get(f"{place}/{spaces}/{name}") for name in ("effect_sum", "spearman_effect")}
            row |= {name: float(values[index]) for name, values in effects.items() if values is not None}
            yield row | {
                "mean_rho": float(np.mean(mean[np.isfinite(mean)])) if np.isfinite(mean).any() else np.nan,
                "spread_median": extremes(spread)[1],
                "r_rw": _ratio(spread, rw),
                "r_swap": _ratio(spread, swap),
                "n_conditions": int(np.isfinite(spread).sum()),
                "n_above_all_rw": int((spread > rw).sum()),
                "n_above_all_swap": int((spread > swap).sum()),
                "smallest_angle_deg": extremes(angle)[0],
            }


def _ratio(spread: np.ndarray, largest: np.ndarray) -> float:
    """Median over the conditions of the spread over the nulls' largest one."""
    return extremes(np.divide(spread, largest, out=np.full(spread.shape, np.nan), where=largest > 0))[1]


def series_heads(models: Sequence[ModelResults]) -> Table:
    """Follow every head's spaces through a series: the overlap with its own at the last step, and the way it went."""
    columns = """series step spaces layer head rho_last angle_last_deg rho_previous angle_previous_deg travelled_deg"""
    frame = tidy(columns, [row for model in models for row in head_rows(model)])
    at_end = frame[frame["step"] == frame.groupby("series", sort=False)["step"].transform("max")]
    farthest = at_end.groupby(["series", "spaces"], sort=False)["travelled_deg"].idxmax()
    return Table(frame, (), frame.loc[farthest], "of each kind the head that went the longest way, at the last step")


def head_rows(model: ModelResults) -> Iterator[Row]:
    """One row for each step, kind, layer and head; the way is the sum of the angles between successive steps."""
    arrays = _arrays(model)
    for kind in KINDS:
        if f"heads/{kind}/rho_last" not in arrays:
            continue
        names = ("rho_last", "angle_last", "rho_previous", "angle_previous")
        values = [arrays[f"heads/{kind}/{name}"] for name in names]
        way = np.cumsum(np.nan_to_num(values[3]), axis=0)
        for index, layer, head in np.ndindex(*way.shape):
            rho_last, angle_last, rho_previous, angle_previous = (float(one[index, layer, head]) for one in values)
            yield {
                "series": model.name, "step": int(arrays["steps"][index]), "spaces": kind, "layer": layer, "head": head,
                "rho_last": rho_last, "angle_last_deg": angle_last, "rho_previous": rho_previous,
                "angle_previous_deg": angle_previous, "travelled_deg": float(way[index, layer, head]),
            }  # fmt: skip


def _arrays(model: ModelResults) -> Arrays:
    return model.series or {}
