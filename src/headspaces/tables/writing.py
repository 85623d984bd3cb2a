"""One table as CSV for programs, Markdown for the page and LaTeX (booktabs) for the paper.

The CSV holds every row with 12 significant digits, which is what stays the same on any number of cores. Markdown and
LaTeX hold the rows to read, rounded as RW prints them, and say below the table how the numbers are defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headspaces.jobs import whole_file
from headspaces.report_items import TABLES, Item
from headspaces.tables.headings import MISSING, heading, shown
from headspaces.tidy import write_csv

WIDE = 8
"""Columns beyond which a LaTeX table is set small, to stay on the page."""
LONG = 40
"""Rows beyond which a LaTeX table breaks over pages."""


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
        The table in :data:`headspaces.report_items.TABLES`: its title and definitions.
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
        path.write_text(latex(name, item, table), encoding="utf-8")


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


def latex(name: str, item: Item, table: Table) -> str:
    """Return the table in LaTeX with booktabs rules: caption, rows, notes; a long one breaks over pages."""
    columns, rows = _cells(table)
    long = len(rows) > LONG
    spec = "".join("r" if number else "l" for number in _numeric(table))
    caption = f"\\caption{{{escape_latex(item.title)}.}}\\label{{tab:{name}}}"
    begin = (
        ["\\begin{longtable}{" + spec + "}", caption + " \\\\"] if long else [caption, "\\begin{tabular}{" + spec + "}"]
    )
    lines = [
        "% needs \\usepackage{booktabs" + (",longtable}" if long else "}"),
        "\\begingroup" if long else "\\begin{table}\n\\centering",
        *(["\\scriptsize\\setlength{\\tabcolsep}{3pt}"] if len(columns) > WIDE else []),
        *begin,
        "\\toprule",
        " & ".join(escape_latex(heading(column)) for column in columns) + " \\\\",
        "\\midrule" + ("\n\\endhead" if long else ""),
        *(" & ".join(_latex_cell(cell) for cell in row) + " \\\\" for row in rows),
        "\\bottomrule",
        "\\end{longtable}" if long else "\\end{tabular}",
        *(f"\\par\\footnotesize {escape_latex(note)}" for note in (*item.notes, *table.all_notes)),
        "\\par\\endgroup" if long else "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """Write text so that Markdown shows it as it is."""
    for sign in "\\`*_[]|":
        text = text.replace(sign, "\\" + sign)
    return text.replace("<", "&lt;").replace(">", "&gt;")


def escape_latex(text: str) -> str:
    """Write text so that LaTeX sets it as it is; Greek letters and signs become mathematics."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


_LATEX = {
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}",
    "ρ": "$\\rho$", "λ": "$\\lambda$", "°": "$^\\circ$", "→": "$\\to$", "×": "$\\times$", "±": "$\\pm$", "–": "--",
}  # fmt: skip


def _latex_cell(cell: str) -> str:
    if not _is_number(cell) or cell == MISSING:
        return escape_latex(cell)
    mantissa, marker, exponent = cell.partition("e")
    if marker:
        return f"${mantissa} \\times 10^{{{int(exponent)}}}$"
    return f"${cell}$" if cell.startswith("-") else cell


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    frame = _frame(table)
    columns = [str(column) for column in frame.columns]
    return columns, [[shown(c, k) for c, k in zip(row, columns)] for row in frame.itertuples(index=False, name=None)]


def _numeric(table: Table) -> list[bool]:
    """Whether a column is set as numbers: by its type, or because all its cells are numbers in text."""
    frame = _frame(table)
    return [
        bool(pd.api.types.is_numeric_dtype(frame[column]) or (len(frame) and frame[column].map(_is_number).all()))
        for column in frame
    ]


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return isinstance(cell, str) and cell == MISSING
    return True


def _frame(table: Table) -> pd.DataFrame:
    """Return the rows for the reader."""
    return table.frame if table.printed is None else table.printed


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
