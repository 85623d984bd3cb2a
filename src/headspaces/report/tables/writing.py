"""One table as CSV for programs, Markdown for the page and LaTeX (booktabs) for the paper.

The CSV holds every row with 12 significant digits, which is what stays the same on any number of cores. Markdown and
LaTeX hold the rows to read, rounded as RW prints them, and say below the table how the numbers are defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from headspaces.files import whole_file
from headspaces.report.tables.headings import heading, is_number, shown
from headspaces.report.tables.latex import latex
from headspaces.report.tidy_frames import write_csv
from headspaces.study.items import TABLES, Item


@dataclass(frozen=True)
class Table:
    """A table with what has to be said about it.

    Attributes
    ----------
    frame
        Every row; missing values are ``NaN`` or ``pd.NA``.
    notes
        What holds for these models only: why a cell is empty, which rows are left out.
    printed
        The rows for the reader, where there are too many; ``None`` prints all.
    choice
        What was chosen of the frame to be printed: a note says so.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    printed: pd.DataFrame | None = None
    choice: str = ""

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, with what is shown where the CSV holds more."""
        if not self.choice or self.printed is None or len(self.printed) == len(self.frame):
            return self.notes
        return (f"Shown: {self.choice}, of {len(self.frame)} rows in the CSV.", *self.notes)


def write_table(
    name: str, table: Table, csv_path: str | Path, markdown_path: str | Path, latex_path: str | Path
) -> None:
    """Write a table's three files, each whole or not at all.

    Parameters
    ----------
    name
        The table in :data:`headspaces.study.items.TABLES`: its title and definitions.
    table
        Its rows and notes.
    csv_path, markdown_path, latex_path
        The files.
    """
    item = TABLES[name]
    write_csv(table.frame, csv_path)
    with whole_file(markdown_path) as path:
        path.write_text(markdown(item, table), encoding="utf-8")
    with whole_file(latex_path) as path:
        columns, rows = _cells(table)
        notes = (*item.notes, *table.all_notes)
        page = latex(name, item.title, [heading(column) for column in columns], rows, _numeric(table), notes)
        path.write_text(page, encoding="utf-8")


def markdown(item: Item, table: Table) -> str:
    """Return the table as a Markdown page: title, rows, notes."""
    columns, rows = _cells(table)
    numeric = _numeric(table)
    lines = [
        f"**{escape_markdown(item.title)}.**",
        "",
        _row([escape_markdown(heading(column)) for column in columns]),
        _row(["--:" if number else ":--" for number in numeric]),
        *(_row([escape_markdown(cell) for cell in row]) for row in rows),
    ]
    notes = [f"- {escape_markdown(note)}" for note in (*item.notes, *table.all_notes)]
    return "\n".join(lines + (["", *notes] if notes else [])) + "\n"


def escape_markdown(text: str) -> str:
    """Write text so that Markdown shows it as it is."""
    for sign in "\\`*_[]|":
        text = text.replace(sign, "\\" + sign)
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    frame = _frame(table)
    columns = [str(column) for column in frame.columns]
    return columns, [[shown(c, k) for c, k in zip(row, columns)] for row in frame.itertuples(index=False, name=None)]


def _numeric(table: Table) -> list[bool]:
    """Whether a column is set as numbers: by its type, or because all its cells are numbers in text."""
    frame = _frame(table)
    return [
        bool(pd.api.types.is_numeric_dtype(frame[column]) or (len(frame) and frame[column].map(is_number).all()))
        for column in frame
    ]


def _frame(table: Table) -> pd.DataFrame:
    """Return the rows for the reader."""
    return table.frame if table.printed is None else table.printed


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
