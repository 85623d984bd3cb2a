"""The scorecard: every number that the two papers print beside what was measured here, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headspaces.study.items import TABLES as ITEMS
from headspaces.study.published import COLUMNS, Address, Interval, Published

MATCHES, DIFFERS, NOT_RUN = "matches", "differs", "not run"
OTHER_WEIGHTS, OTHER_SETTINGS = "other weights", "other settings"
VERDICTS = (DIFFERS, MATCHES, OTHER_SETTINGS, OTHER_WEIGHTS, NOT_RUN)
"""In the order of the scorecard: what needs a look comes first."""


NAMES = frozenset(
    {"model", "other", "scope", "spaces", "null", "quantity", "type", "method", "set", "source", "target"}
)
"""Columns of names: what has another name was not asked for; what is absent by its number is an answer."""

ABSENT: Interval = (math.nan, math.nan)
"""Measured counterpart of a number whose layer, head or edge is not among the rows that the table has."""


class _NotMeasuredError(Exception):
    """Why the tables do not hold a number."""


class _AbsentError(Exception):
    """Which layer, head or edge is not in a table that holds others of the same model."""


def read_tables(paths: Mapping[str, str | Path]) -> dict[str, pd.DataFrame]:
    """Read the report's tables by name; only an empty cell is a missing value."""
    return {name: pd.read_csv(path, keep_default_na=False, na_values=[""]) for name, path in paths.items()}


def measure(row: Published, tables: Mapping[str, pd.DataFrame]) -> tuple[Interval | None, str]:
    """Look the measured counterpart of a published number up in the tables.

    It is the smallest and largest of the numbers at the row's address, the same twice for a single number; None, and
    why, where the tables do not hold it, or hold more numbers than a single published one can be compared with. A
    layer, head or edge that is not in a table which holds others of the same model and kind is :data:`ABSENT`: a count
    of 0, else no number, which never matches.
    """
    try:
        return _measured(row, tables), ""
    except _AbsentError as error:
        counted = row.address and row.address.aggregate == "count"
        return (0.0, 0.0) if counted else ABSENT, str(error)
    except _NotMeasuredError as error:
        return None, str(error)


def _measured(row: Published, tables: Mapping[str, pd.DataFrame]) -> Interval:
    address = row.address
    if address is None:
        raise _NotMeasuredError("no table holds this number")
    values = _values(address, tables)
    if address.aggregate:
        value = float(getattr(values, address.aggregate)()) / address.divisor
        return value, value
    if len(values) > 1 and row.relation == "equal" and not row.high:
        raise _NotMeasuredError(f"{len(values)} numbers where one is expected")
    return float(values.min()) / address.divisor, float(values.max()) / address.divisor


def _values(address: Address, tables: Mapping[str, pd.DataFrame]) -> pd.Series[float]:
    if address.table not in tables:
        needs = ITEMS[address.table].needs[1:] if address.table in ITEMS else ()  # every table has the overlaps
        why = f": it needs the stage {' and '.join(needs)}" if needs else ""
        raise _NotMeasuredError(f"no table {address.table} in this report{why}")
    frame = tables[address.table]
    if lacking := [name for name in (*address.columns, *dict(address.conditions)) if name not in frame]:
        raise _NotMeasuredError(f"{address.table} has no column {lacking[0]}")
    # Names first: only of what was measured can a layer or an edge be absent.
    for column, alternatives in sorted(address.conditions, key=lambda condition: condition[0] not in NAMES):
        cells = frame[column].map(_as_text)
        if absent := [value for value in alternatives if value not in set(cells)]:
            error = _NotMeasuredError if column in NAMES or frame.empty else _AbsentError
            raise error(f"{address.table} holds no such row with {column} {absent[0]}")
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


def verdict(row: Published, measured: Interval | None, settings: Mapping[str, str] | None = None) -> str:
    """Say whether a measured value agrees with the published one.

    ``other weights`` whatever the values for a number of RW's in-house model, ``other settings`` where ``settings`` are
    not those of the published number; a number that is not finite never matches.
    """
    if measured is None:
        return NOT_RUN
    if row.is_in_house:
        return OTHER_WEIGHTS
    if other_settings(row, settings or {}):
        return OTHER_SETTINGS
    return MATCHES if _agrees(row, measured) else DIFFERS


def other_settings(row: Published, settings: Mapping[str, str]) -> str:
    """Name the settings that differ from those of a published number, empty where none does."""
    asked = {name: value for name, value in row.asked_settings.items() if settings.get(name, value) != value}
    return ", ".join(f"{name} is {settings[name]}, there {value}" for name, value in asked.items())


def setting_texts(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Write the settings of a study as published numbers name them: ``nulls.samples``, ``true``, ``1e-06``."""
    texts: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            texts |= setting_texts(value, f"{prefix}{key}.")
        else:
            texts[f"{prefix}{key}"] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


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


def scorecard(
    published: Iterable[Published], tables: Mapping[str, pd.DataFrame], settings: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Set every published number beside the measured one; ``settings`` are the study's (:func:`setting_texts`).

    Returns
    -------
    DataFrame
        One row per published number, by verdict in the order of :data:`VERDICTS`, then as published.

        ================ =====================================================================================
        column           meaning
        ================ =====================================================================================
        verdict          matches, differs, other settings, other weights (RW's in-house model), not run
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
        status, why      stated, read off a figure, inferred, fitted; where the tolerance comes from
        settings         those of the published number
        reason           why a number was not run, what is absent, which settings are others
        quantity         the address of the measured value
        ================ =====================================================================================
    """
    rows = [_scored(row, tables, settings or {}) for row in published]
    frame = pd.DataFrame(rows, columns=list(SCORECARD_COLUMNS))
    order = {name: place for place, name in enumerate(VERDICTS)}
    return frame.sort_values("verdict", key=lambda names: names.map(order), kind="stable", ignore_index=True)


SCORECARD_COLUMNS = (
    "verdict", "id", "paper", "place", "model", "measured_model", "relation", "unit", "published", "published_low",
    "published_high", "measured_low", "measured_high", "difference", "tolerance", "status", "why", "reason", "quantity",
    "settings",
)  # fmt: skip


def _scored(row: Published, tables: Mapping[str, pd.DataFrame], settings: Mapping[str, str]) -> dict[str, object]:
    measured, reason = measure(row, tables)
    found = verdict(row, measured, settings)
    if found == OTHER_SETTINGS:
        reason = other_settings(row, settings)
    low, high = measured or (math.nan, math.nan)
    own = {name: getattr(row, name) for name in COLUMNS if name in SCORECARD_COLUMNS}
    address = row.address
    return {
        **own,
        "verdict": found,
        "measured_model": "+".join(address.models) if address and measured else "",
        "published": f"{row.low} – {row.high}" if row.high else row.low,
        "published_low": row.ends[0],
        "published_high": row.ends[1] if row.high else math.nan,
        "measured_low": low,
        "measured_high": high if row.high or low != high else math.nan,
        "difference": difference(row, measured) if measured else math.nan,
        "reason": reason,
    }
