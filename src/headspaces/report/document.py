"""Rows for a reader, once as data: the same sections become Markdown, JSON and a part of the report's page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headspaces.text_tables import escape_markdown, markdown_table, write_text

MISSING = "–"
"""What is printed where there is no value."""


@dataclass(frozen=True)
class TextTable:
    """A table as it is printed.

    ``keys`` has by column the number that each cell sorts by, as JavaScript reads it, or None where a cell has none;
    None for a column of text.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: Sequence[Sequence[str | None] | None]

    @property
    def numeric(self) -> list[bool]:
        """By column, whether it is one of numbers."""
        return [column is not None for column in self.keys]

    @property
    def cells(self) -> list[list[tuple[str, str | None]]]:
        """By row, what each cell says and the number that it sorts by."""
        columns = [column or [None] * len(self.rows) for column in self.keys]
        return [list(zip(row, keys, strict=True)) for row, keys in zip(self.rows, zip(*columns), strict=True)]


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool] | None = None
) -> TextTable:
    """Make a table of printed cells; numbers sort by what is printed.

    ``numeric`` says by column whether it is one of numbers; by default where all its cells are numbers or missing.
    """
    columns = [[row[index] for row in rows] for index in range(len(header))]
    if numeric is None:
        numeric = [all(map(is_number, column)) and any(cell != MISSING for cell in column) for column in columns]
    keys = [list(map(_printed_key, column)) if number else None for column, number in zip(columns, numeric)]
    return TextTable(header, rows, keys)


def is_number(cell: object) -> bool:
    """Whether a cell is a number or stands for a missing one."""
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return cell == MISSING
    return True


def sort_key(value: float) -> str | None:
    """Return what a number sorts by, as JavaScript reads it; None where it is undefined."""
    return None if math.isnan(value) else f"{value:.12g}".replace("inf", "Infinity")


def _printed_key(cell: str) -> str | None:
    return None if cell == MISSING else cell.replace("∞", "Infinity")


@dataclass(frozen=True)
class Section:
    """A table with what is said about it.

    Heading, title (a caption) and paragraphs stand above it, notes below.
    """

    table: TextTable
    heading: str = ""
    title: str = ""
    paragraphs: Sequence[str] = ()
    notes: Sequence[str] = ()


def write_sections(sections: Sequence[Section], markdown_path: str | Path, data_path: str | Path) -> None:
    """Write sections as a page in Markdown and as JSON, each file whole or not at all."""
    for path, text in ((markdown_path, markdown(sections)), (data_path, json.dumps(list(map(asdict, sections))))):
        write_text(text, path)


def read_sections(path: str | Path) -> list[Section]:
    """Read the JSON that :func:`write_sections` wrote."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    return [Section(**{**section, "table": TextTable(**section["table"])}) for section in found]


def markdown(sections: Iterable[Section]) -> str:
    """Return sections as a page in Markdown; the first one's heading is that of the page."""
    blocks: list[str] = []
    for number, section in enumerate(sections):
        level = "##" if number else "#"
        blocks += [f"{level} {escape_markdown(section.heading)}"] if section.heading else []
        blocks += [f"**{escape_markdown(section.title)}.**"] if section.title else []
        blocks += map(escape_markdown, section.paragraphs)
        table = section.table
        rows = [list(map(escape_markdown, row)) for row in table.rows]
        blocks.append("\n".join(markdown_table(list(map(escape_markdown, table.header)), rows, table.numeric)))
        blocks += ["\n".join(f"- {escape_markdown(note)}" for note in section.notes)] if section.notes else []
    return "\n\n".join(blocks) + "\n"
