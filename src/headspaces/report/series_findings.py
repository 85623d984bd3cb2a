"""The findings of a series of checkpoints: when the overlaps leave the null models, and which comparison is first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headspaces.report.findings import READ_NAMES, Findings, Tables
from headspaces.report.tables.headings import shown


def series_findings(tables: Tables) -> list[Findings]:
    """Sum the table of series up, a finding for each; the sentences' numbers are those of the table."""
    frame = tables.get("series")
    if frame is None:
        return []
    parts = (_steps, _leaving, _effects)
    return [
        Findings(f"{name}, by step", [sentence for part in parts for sentence in part(own)], [])
        for name, own in frame.groupby("series", sort=False)
    ]


def leaving_steps(frame: pd.DataFrame) -> dict[str, int]:
    """By comparison, the step from which on its median spread is above all samples of all null models.

    ``frame`` is the table of one series. Comparisons that are not so at the last step are left out; the earliest come
    first.
    """
    found: dict[str, int] = {}
    for spaces, rows in frame.groupby("spaces", sort=False):
        steps, above = rows["step"].tolist(), (_ratio(rows) > 1).to_numpy()
        n_above = int(np.argmin(above[::-1])) if not above.all() else len(above)
        if n_above:
            found[str(spaces)] = steps[-n_above]
    return dict(sorted(found.items(), key=lambda one: one[1]))


def _ratio(frame: pd.DataFrame) -> pd.Series:
    """Ratio to the null model that lets a spread stand out least."""
    return frame[["r_rw", "r_swap"]].min(axis=1)


def _steps(frame: pd.DataFrame) -> Iterator[str]:
    once = frame.drop_duplicates("step")
    said = [f"{len(once)} steps, {once['step'].iloc[0]} to {once['step'].iloc[-1]}"]
    words = {
        "loss": "the loss goes from {} to {} nats per token",
        "induction": "the best induction score from {} to {}",
    }
    for column, sentence in words.items():
        known = once[column].dropna()
        if len(known) > 1:
            said.append(sentence.format(shown(known.iloc[0], column), shown(known.iloc[-1], column)))
    repeated = once.loc[once["duplicate_of"].notna(), "step"].astype(str).tolist()
    if repeated:
        said.append(f"the weights of an earlier one are those of {_listed(repeated)}")
    yield "; ".join(said) + "."


def _leaving(frame: pd.DataFrame) -> Iterator[str]:
    defined = frame.assign(r=_ratio(frame)).dropna(subset="r")
    if defined.empty:
        return
    start, end = (defined[defined["step"] == defined["step"].iloc[at]] for at in (0, -1))
    yield (
        f"At step {start['step'].iloc[0]}, {int((start['r'] <= 1).sum())} of {len(start)} comparisons lie inside the "
        "null models: their median spread is not beyond the widest sample."
    )
    left = leaving_steps(defined)
    if not left:
        nearest = end.loc[end["r"].idxmax()]
        r = shown(nearest["r"], "r_rw")
        yield f"At the last step none has left them; the nearest is {_named(nearest['spaces'])}, {r} of that width."
        return
    by_step: dict[int, list[str]] = {}
    for spaces, step in left.items():
        by_step.setdefault(step, []).append(_named(spaces))
    order = "; ".join(f"{_listed(names)} from step {step}" for step, names in by_step.items())
    never = [_named(spaces) for spaces in defined["spaces"].unique() if spaces not in left]
    inside = f"; not {_listed(never)}" if never else ""
    yield f"They leave all null models in this order, for good: {order}{inside}."


def _effects(frame: pd.DataFrame) -> Iterator[str]:
    known = frame.dropna(subset="effect_sum")
    if known.empty:
        return
    most = known.sort_values("effect_sum").iloc[-1]
    at_end = known[known["spaces"] == most["spaces"]].iloc[-1]
    said = (
        f"Edges matter most at step {most['step']}: the sizes of their first-order effects through "
        f"{READ_NAMES[most['spaces']]} add up to {shown(most['effect_sum'], 'effect_sum')} nats"
    )
    if at_end["step"] != most["step"]:
        said += f", at step {at_end['step']} to {shown(at_end['effect_sum'], 'effect_sum')}"
    yield said + "."


def _named(spaces: str) -> str:
    """Name a comparison as the figures do."""
    return f"{spaces} within layers" if len(spaces) == 1 else "→".join(spaces)


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
