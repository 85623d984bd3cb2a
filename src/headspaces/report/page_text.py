"""Reading back the Markdown that tables and scorecard are written in, to show the same rows on a page.

Only what :mod:`headspaces.report.tables.writing` and :mod:`headspaces.report.scorecard` write is understood: headings,
paragraphs (one in bold is a title), tables with pipes, and lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

_RANGE = re.compile(r"(?:[≤≥] |within )?(-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|∞))(?: – \S+)?(?: \(.*\))?")
"""A number as it is printed: a bound, a range or a value with a remark behind it."""

MISSING = "–"


@dataclass(frozen=True)
class TextTable:
    """A table as it is printed."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def keys(self) -> list[list[str | None]]:
        """By row and column, the number to sort by; None for text and for what is missing."""
        numeric = self.numeric
        return [[sort_key(cell) if number else None for cell, number in zip(row, numeric)] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers only, and at least one."""
        columns = [[row[place] for row in self.rows if row[place] != MISSING] for place in range(len(self.header))]
        return [bool(cells) and all(sort_key(cell) is not None for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Section:
    """What stands below one heading: a title in bold, paragraphs, tables, list items."""

    heading: str = ""
    title: str = ""
    paragraphs: list[str] = field(default_factory=list)
    tables: list[TextTable] = field(default_factory=list)
    items: list[str] = field(default_factory=list)


def sort_key(cell: str) -> str | None:
    """Return the number at the start of a printed cell, as JavaScript reads it, or None for text."""
    found = _RANGE.fullmatch(cell)
    return found[1].replace("∞", "Infinity") if found else None


def read_sections(path: str | Path) -> list[Section]:
    """Read a file, cut at its headings; what stands before the first has none."""
    sections = [Section()]
    for block in _blocks(Path(path).read_text(encoding="utf-8")):
        if block[0].startswith("#"):
            sections.append(Section(heading=unescaped(block[0].lstrip("#").strip())))
        elif block[0].startswith("|"):
            sections[-1].tables.append(_table(block))
        elif block[0].startswith("- "):
            sections[-1].items.extend(unescaped(line[2:]) for line in block)
        elif block[0].startswith("**") and block[-1].endswith("**"):
            sections[-1] = Section(sections[-1].heading, unescaped(" ".join(block)[2:-2]))
        else:
            sections[-1].paragraphs.append(unescaped(" ".join(block)))
    return sections


def _blocks(text: str) -> Iterator[list[str]]:
    """Lines without an empty one between them."""
    for empty, lines in groupby(text.splitlines(), key=lambda line: not line.strip()):
        if not empty:
            yield list(lines)


def _table(lines: Sequence[str]) -> TextTable:
    header, _, *rows = ([unescaped(cell) for cell in _cells(line)] for line in lines)
    return TextTable(header, rows)


def _cells(line: str) -> list[str]:
    # A backslash before a pipe makes it part of the cell, one before a backslash does not.
    parts = re.findall(r"(?:\\.|[^\\|])+", line.strip())
    return [part.strip() for part in parts]


def unescaped(text: str) -> str:
    """Undo :func:`headspaces.report.tables.writing.escape_markdown`."""
    return re.sub(r"\\(.)", r"\1", text).replace("&lt;", "<").replace("&gt;", ">")
