"""The scorecard: every number that the two papers print beside what was measured here, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from headspaces.report.document import MISSING, Section, TextTable, sort_key, text_table, write_sections
from headspaces.report.tidy_frames import write_frame
from headspaces.study.items import TABLES as ITEMS
from headspaces.study.published import COLUMNS, Address, Interval, Published

MATCHES, DIFFERS, OTHER_WEIGHTS, NOT_RUN = "matches", "differs", "other weights", "not run"
VERDICTS = (DIFFERS, MATCHES, OTHER_WEIGHTS, NOT_RUN)
"""In the order of the scorecard: what needs a look comes first."""


class _NotMeasuredError(Exception):
    """Why the tables do not hold a number."""


def read_tables(paths: Mapping[str, str | Path]) -> dict[str, pd.DataFrame]:
    """Read the report's tables by name; only an empty cell is a missing value."""
    return {name: pd.read_csv(path, keep_default_na=False, na_values=[""]) for name, path in paths.items()}


def measure(row: Published, tables: Mapping[str, pd.DataFrame]) -> tuple[Interval | None, str]:
    """Look the measured counterpart of a published number up in the tables.

    It is the smallest and largest of the numbers at the row's address, the same twice for a single number; None, and
    why, where the tables do not hold it, or hold more numbers than a single published one can be compared with.
    """
    try:
        return _measured(row, tables), ""
    except _NotMeasuredError as error:
        return None, str(error)


def _measured(row: Published, tables: Mapping[str, pd.DataFrame]) -> Interval:
    address = row.address
    if address is None:
        raise _NotMeasuredError("no table holds this number")
    values = _values(address, tables)
    if address.aggregate:
        value = float(getattr(values, address.aggregate)())
        return value, value
    if len(values) > 1 and row.relation == "equal" and not row.high:
        raise _NotMeasuredError(f"{len(values)} numbers where one is expected")
    return float(values.min()), float(values.max())


def _values(address: Address, tables: Mapping[str, pd.DataFrame]) -> pd.Series[float]:
    if address.table not in tables:
        needs = ITEMS[address.table].needs[1:] if address.table in ITEMS else ()  # every table has the overlaps
        why = f": it needs the stage {' and '.join(needs)}" if needs else ""
        raise _NotMeasuredError(f"no table {address.table} in this report{why}")
    frame = tables[address.table]
    if lacking := [name for name in (*address.columns, *dict(address.conditions)) if name not in frame]:
        raise _NotMeasuredError(f"{address.table} has no column {lacking[0]}")
    for column, alternatives in address.conditions:
        cells = frame[column].map(_as_text)
        if absent := [value for value in alternatives if value not in set(cells)]:
            raise _NotMeasuredError(f"{address.table} holds no such row with {column} {absent[0]}")
        frame = frame[cells.isin(alternatives)]
    values = pd.concat([frame[name] for name in address.columns])
    if values.isna().any():
        raise _NotMeasuredError(f"{address.table} has an empty cell there")
    try:
        return pd.Series(values, dtype="float64")
    except ValueError:
        raise _NotMeasuredError(f"{address.table} has text in {' or '.join(address.columns)}") from None


def _as_text(cell: object) -> str:
    # A column of whole numbers with a missing one comes as floats: layer 3.0 is layer 3.
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def verdict(row: Published, measured: Interval | None) -> str:
    """Say whether a measured value agrees with the published one.

    ``other weights`` whatever the values for a number of RW's in-house model; a number that is not finite never
    matches.
    """
    if measured is None:
        return NOT_RUN
    if row.is_in_house:
        return OTHER_WEIGHTS
    return MATCHES if _agrees(row, measured) else DIFFERS


def _agrees(row: Published, measured: Interval) -> bool:
    (low, high), (smallest, largest) = row.ends, measured
    if row.tolerance.startswith("x"):
        factor = float(row.tolerance[1:])
        floor, ceiling = (low / factor, high / factor), (low * factor, high * factor)
    else:
        # The last digits of binary fractions must not decide at the edge of the tolerance.
        slack = float(row.tolerance) * (1 + 1e-9) + 1e-12 * max(abs(low), abs(high))
        floor, ceiling = (low - slack, high - slack), (low + slack, high + slack)
    if row.relation == "at_most":
        return largest <= ceiling[0]
    if row.relation == "at_least":
        return smallest >= floor[0]
    if row.relation == "within":
        return floor[0] <= smallest and largest <= ceiling[1]
    return floor[0] <= smallest <= ceiling[0] and floor[1] <= largest <= ceiling[1]


def difference(row: Published, measured: Interval) -> float:
    """Measured minus published number; of a range the end that is further off, of a bound its own end.

    Inside a range that is only a bound (``within``) the difference is zero.
    """
    (low, high), (smallest, largest) = row.ends, measured
    ends = {
        "equal": (smallest - low, largest - high),
        "at_most": (largest - low,),
        "at_least": (smallest - low,),
        "within": (min(smallest - low, 0.0), max(largest - high, 0.0)),
    }
    return max(ends[row.relation], key=lambda end: (math.isnan(end), abs(end)))


def scorecard(published: Iterable[Published], tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Set every published number beside the measured one.

    Returns
    -------
    DataFrame
        One row per published number, by verdict in the order of :data:`VERDICTS`, then as published.

        ================ =====================================================================================
        column           meaning
        ================ =====================================================================================
        verdict          matches, differs, other weights (no claim: RW's in-house model), not run
        id … model       as in ``config/published.tsv``
        measured_model   the models that were measured
        relation, unit   how the numbers compare, in which unit
        published        the number or range with the digits that the paper prints, as text
        published_low    the number, or the lower end of the range
        published_high   the upper end, missing for a single number
        measured_low     the measured counterpart, missing where not run
        measured_high    its upper end, missing for a single number
        difference       measured minus published
        tolerance        as text: absolute, or ``x`` and a factor
        status, why      stated, read off a figure or inferred; where the tolerance comes from
        reason           why a number was not run
        quantity         the address of the measured value
        ================ =====================================================================================
    """
    rows = [_scored(row, tables) for row in published]
    frame = pd.DataFrame(rows, columns=list(SCORECARD_COLUMNS))
    order = {name: place for place, name in enumerate(VERDICTS)}
    return frame.sort_values("verdict", key=lambda names: names.map(order), kind="stable", ignore_index=True)


SCORECARD_COLUMNS = (
    "verdict", "id", "paper", "place", "model", "measured_model", "relation", "unit", "published", "published_low",
    "published_high", "measured_low", "measured_high", "difference", "tolerance", "status", "why", "reason", "quantity",
)  # fmt: skip


def _scored(row: Published, tables: Mapping[str, pd.DataFrame]) -> dict[str, object]:
    measured, reason = measure(row, tables)
    low, high = measured or (math.nan, math.nan)
    own = {name: getattr(row, name) for name in COLUMNS if name in SCORECARD_COLUMNS}
    address = row.address
    return {
        **own,
        "verdict": verdict(row, measured),
        "measured_model": "+".join(address.models) if address and measured else "",
        "published": f"{row.low} – {row.high}" if row.high else row.low,
        "published_low": row.ends[0],
        "published_high": row.ends[1] if row.high else math.nan,
        "measured_low": low,
        "measured_high": high if row.high or low != high else math.nan,
        "difference": difference(row, measured) if measured else math.nan,
        "reason": reason,
    }


def summary(card: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts: one row per paper and model, and one for all of a paper."""
    rows = [
        {"paper": paper, "model": model, **{name: int((part["verdict"] == name).sum()) for name in VERDICTS}}
        for paper, of_paper in card.groupby("paper", sort=False)
        for model, part in [("all", of_paper), *of_paper.sort_index().groupby("model")]
    ]
    return pd.DataFrame(rows, columns=["paper", "model", *VERDICTS])


def write_scorecard(
    card: pd.DataFrame,
    csv_path: str | Path,
    markdown_path: str | Path,
    data_path: str | Path,
    published_as: Mapping[str, str] | None = None,
) -> None:
    """Write the scorecard as CSV (every digit), and as Markdown and JSON (counts, then what differs, matches, …).

    ``published_as`` says of a model which published one it was compared as
    (:func:`headspaces.study.published.compared_as`).
    """
    write_frame(card, csv_path)
    write_sections(sections(card, published_as), markdown_path, data_path)


def sections(card: pd.DataFrame, published_as: Mapping[str, str] | None = None) -> list[Section]:
    """Return the scorecard for a reader: the counts, then one section a verdict; parameters as for the files."""
    said = [
        f"{model} was compared as {name}: it answers for every number that the papers print of {name}."
        for model, name in (published_as or {}).items()
    ]
    if not (card["verdict"] != NOT_RUN).any():
        said.append("The papers print no number of the models of this report.")
    counts = summary(card)
    table = text_table(list(counts.columns), counts.astype(str).to_numpy().tolist())
    parts = {name: card[card["verdict"] == name] for name in VERDICTS}
    return [
        Section(table, heading="Published and measured numbers", paragraphs=said),
        *(
            Section(_printed_table(part), heading=f"{name.capitalize()} ({len(part)})", paragraphs=[_MEANING[name]])
            for name, part in parts.items()
            if len(part)
        ),
    ]


_MEANING = {
    DIFFERS: "The measured value is further from the published one than the tolerance allows.",
    MATCHES: "The measured value agrees with the published one within the tolerance.",
    OTHER_WEIGHTS: (
        "RW's in-house 124M model is not public. GPT-2 has its shape and other weights: its values stand beside the "
        "published ones and are neither a match nor a contradiction."
    ),
    NOT_RUN: (
        "This report does not hold the measured value; the last column says why. A published model that has another "
        "name here is compared after the setting published_as says which it is."
    ),
}
_SIGNS = {"equal": "", "at_most": "≤ ", "at_least": "≥ ", "within": "within "}


def _printed_table(part: pd.DataFrame) -> TextTable:
    header = ["number", "place", "model", "published", "measured", "difference", "tolerance", "unit", "why"]
    table = text_table(header, [_printed(row) for row in part.to_dict("records")])
    keys = dict(zip(header, table.keys))
    # A range or a bound sorts by its number.
    for name, column in {"published": "published_low", "measured": "measured_low", "difference": "difference"}.items():
        keys[name] = [sort_key(value) for value in part[column]] if part[column].notna().any() else None
    return replace(table, keys=list(keys.values()))


def _printed(row: Mapping[Any, Any]) -> list[str]:
    status = "" if row["status"] == "stated" else f" ({row['status']})"
    other = f" ({row['measured_model']})" if row["verdict"] == OTHER_WEIGHTS else ""
    return [
        row["id"],
        f"{row['paper']} {row['place']}{status}",
        row["model"],
        _SIGNS[row["relation"]] + row["published"],
        _range(row["measured_low"], row["measured_high"]) + other,
        _short(row["difference"], 3),
        row["tolerance"],
        row["unit"],
        row["reason"] or row["why"],
    ]


def _range(low: float, high: float) -> str:
    return _short(low) if math.isnan(high) else f"{_short(low)} – {_short(high)}"


def _short(value: float, digits: int = 5) -> str:
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else "∞" if value > 0 else "-∞"
    return str(int(value)) if float(value).is_integer() else f"{value:.{digits}g}"
