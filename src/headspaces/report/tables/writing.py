"""One table as CSV for programs, Markdown for readers, JSON for the page and LaTeX (booktabs) for the paper.

The CSV holds every row with 12 significant digits, which is what stays the same on any number of cores. The
others hold the rows to read, rounded as RW prints them, and say below the table how the numbers are defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from headspaces.report.document import Section, TextTable, is_number, text_table, write_sections
from headspaces.report.tables.headings import column_heading, shown
from headspaces.report.tables.latex import latex
from headspaces.report.tidy_frames import write_frame
from headspaces.study.items import TABLES
from headspaces.text_tables import write_text


@dataclass(frozen=True)
class Table:
    """A table with what has to be said about it.

    ``frame`` has every row; missing values are ``NaN`` or ``pd.NA``. ``notes`` hold for these models only: why a cell
    is empty, which rows are left out. ``printed`` are the rows for the reader where there are too many, and ``choice``
    says what was chosen.
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
    name: str,
    table: Table,
    csv_path: str | Path,
    markdown_path: str | Path,
    latex_path: str | Path,
    data_path: str | Path,
) -> None:
    """Write a table's four files, each whole or not at all.

    Title and definitions are those of ``name`` in :data:`headspaces.study.items.TABLES`; from ``data_path``, in JSON,
    the report's page shows the printed rows.
    """
    item = TABLES[name]
    section = Section(printed_table(table), title=item.title, notes=[*item.notes, *table.all_notes])
    write_frame(table.frame, csv_path)
    write_sections([section], markdown_path, data_path)
    write_text(latex(name, section), latex_path)


def printed_table(table: Table) -> TextTable:
    """Return the rows for the reader, rounded, with headings in words."""
    frame = table.frame if table.printed is None else table.printed
    names = [str(column) for column in frame.columns]
    rows = [[shown(cell, name) for cell, name in zip(row, names)] for row in frame.itertuples(index=False, name=None)]
    # A column is one of numbers by its type, or because all its cells are numbers in text.
    numeric = [
        bool(pd.api.types.is_numeric_dtype(frame[name]) or (len(frame) and frame[name].map(is_number).all()))
        for name in names
    ]
    return text_table([column_heading(name) for name in names], rows, numeric)
