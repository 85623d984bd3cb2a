"""The scorecard as files: every digit as CSV, and for a reader as Markdown and for the report's page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from headspaces.report.document import MISSING, Section, TextTable, sort_key, text_table, write_sections
from headspaces.report.scorecard import DIFFERS, MATCHES, NOT_RUN, OTHER_SETTINGS, OTHER_WEIGHTS, VERDICTS
from headspaces.report.tidy_frames import write_frame


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
    heading: str = "Published and measured numbers",
) -> None:
    """Write the scorecard as CSV (every digit), and as Markdown and JSON (counts, then what differs, matches, …).

    ``published_as`` says of a model which published one it was compared as
    (:func:`headspaces.study.published.compared_as`); ``heading`` is the page's.
    """
    write_frame(card, csv_path)
    write_sections(sections(card, published_as, heading), markdown_path, data_path)


def sections(
    card: pd.DataFrame,
    published_as: Mapping[str, str] | None = None,
    heading: str = "Published and measured numbers",
) -> list[Section]:
    """Return the scorecard for a reader: the counts, then one section a verdict; parameters as for the files."""
    said = [
        f"{model} was compared as {name}: it answers for every number that the papers print of {name}."
        for model, name in (published_as or {}).items()
    ]
    if not (card["verdict"] != NOT_RUN).any():
        said.append("The papers print no number of the models of this report.")
    said += _kinds_of_matches(card[card["verdict"] == MATCHES])
    counts = summary(card)
    table = text_table(list(counts.columns), counts.astype(str).to_numpy().tolist())
    parts = {name: card[card["verdict"] == name] for name in VERDICTS}
    return [
        Section(table, heading=heading, paragraphs=said),
        *(
            Section(_printed_table(part), heading=f"{name.capitalize()} ({len(part)})", paragraphs=[_MEANING[name]])
            for name, part in parts.items()
            if len(part)
        ),
    ]


_STATUSES = {
    "stated": "stated in text or tables",
    "figure": "read off figures",
    "inferred": "inferred",
    "fitted": "circular, since the set of heads that is measured was fitted to them",
}


def _kinds_of_matches(matches: pd.DataFrame) -> list[str]:
    """Say how many of the matching numbers are no independent statement of a paper."""
    counts = matches["status"].value_counts()
    kinds = [f"{counts[status]} {words}" for status, words in _STATUSES.items() if counts.get(status)]
    return [f"Of the {len(matches)} numbers that match: {', '.join(kinds)}."] if kinds else []


_MEANING = {
    DIFFERS: (
        "The measured value is further from the published one than the tolerance allows, or the layer, head or edge is "
        "absent from the table."
    ),
    MATCHES: "The measured value agrees with the published one within the tolerance.",
    OTHER_SETTINGS: (
        "The study's settings are not those of the published number; the last column says which. Its values stand "
        "beside the published ones and are neither a match nor a contradiction."
    ),
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
