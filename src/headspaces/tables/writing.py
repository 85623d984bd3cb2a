"""One table as CSV for programs, Markdown for the page and LaTeX (booktabs) for the paper.

The CSV holds every row with 12 significant digits, which is what stays the same on any number of cores. Markdown and
LaTeX hold the rows to read, rounded as RW prints them, and say below the table how the numbers are defined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from headspaces.jobs import whole_file
from headspaces.report_items import TABLES, Item
from headspaces.tidy import missing, whole, write_csv

MISSING = "–"
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
    """

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    printed: pd.DataFrame | None = None


@dataclass(frozen=True)
class _Column:
    heading: str
    decimals: int | None = None


_COLUMNS = {
    "d_model": _Column("D"),
    "d_head": _Column("d"),
    "n_query_heads": _Column("query heads"),
    "n_kv_heads": _Column("key-value heads"),
    "n_write_pairs": _Column("write pairs"),
    "isotropic": _Column("isotropic d/D", 4),
    "random_sd": _Column("random sd", 4),
    "min_angle_deg": _Column("smallest angle (°)", 2),
    "median_min_angle_deg": _Column("median smallest angle (°)", 1),
    "observed_min_angle_deg": _Column("observed smallest angle (°)", 3),
    "reassignment_min_angle_deg": _Column("reassignment, smallest angle (°)", 3),
    "lambda_min_low": _Column("λ min, low", 3),
    "lambda_min_high": _Column("λ min, high", 3),
    "min_max_rho": _Column("min max ρ", 3),
    "n_below_isotropic": _Column("layer pairs below isotropic"),
    "n_layers_below_10deg": _Column("layers below 10°"),
    "n_above_all": _Column("above all samples"),
    "n_samples": _Column("samples of each null"),
    "r_median": _Column("median r", 1),
    "rotation_ratio_median": _Column("median ratio to rotation", 1),
    "reassignment_ratio_median": _Column("median ratio to reassignment", 1),
    "n_mean_below_all": _Column("mean below all samples"),
    "n_mean_above_all": _Column("mean above all samples"),
    "n_spread_above_all": _Column("spread above all samples"),
    **{
        f"{name}_{end}": _Column(f"{name.replace('_', ' ')} ({end})", 4)
        for name in ("observed", "sample", "sample_mean")
        for end in ("low", "high")
    },
    "max_rho": _Column("largest ρ", 3),
    "max_weighted": _Column("largest weighted score", 1),
    "own_mean": _Column("own spaces, mean ρ", 3),
    "others_mean": _Column("different heads, mean ρ", 3),
    "n_labels": _Column("labels"),
    "n_permutations": _Column("permutations"),
    "p_is_smallest": _Column("p is the smallest possible"),
    "random_sds": _Column("random sds from isotropic", 1),
    "isotropic_ratio": _Column("ratio to isotropic", 2),
    "max_abs_difference": _Column("largest difference of ρ", 7),
    "median_abs_difference": _Column("median difference of ρ", 7),
    "max_relative_difference": _Column("largest relative difference", 5),
    "mean_rho_other": _Column("mean ρ, other"),
    "spread_other": _Column("spread, other"),
    "min_angle_other_deg": _Column("smallest angle, other (°)", 2),
}
_WORDS = {"rho": "ρ", "p95": "95th percentile", "low": "(low)", "high": "(high)"}


def heading(column: str) -> str:
    """Return a column's heading: the listed one, or its name in words with the unit in brackets."""
    if column in _COLUMNS:
        return _COLUMNS[column].heading
    name, unit = (column.removesuffix("_deg"), " (°)") if column.endswith("_deg") else (column, "")
    return " ".join(_WORDS.get(word, word) for word in name.removeprefix("n_").split("_")) + unit


def shown(value: Any, column: str) -> str:
    """Write one cell for the reader: rounded, never a rounded-off zero for a number that is not zero.

    A dash stands for a missing value. A p-value (column ``p`` or ``…_p``) below 0.001 is in scientific form.
    """
    if missing(value):
        return MISSING
    if isinstance(value, str):
        return value
    if whole(value):
        return str(int(value))
    return _rounded(float(value), _decimals(column))


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
    notes = [f"- {escape_markdown(note)}" for note in (*item.notes, *table.notes)]
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
        *(f"\\par\\footnotesize {escape_latex(note)}" for note in (*item.notes, *table.notes)),
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
    mantissa, marker, exponent = cell.partition("e")
    try:
        float(cell)
    except ValueError:
        return escape_latex(cell)
    if marker:
        return f"${mantissa} \\times 10^{{{int(exponent)}}}$"
    return f"${cell}$" if cell.startswith("-") else cell


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    frame = _frame(table)
    columns = [str(column) for column in frame.columns]
    return columns, [[shown(c, k) for c, k in zip(row, columns)] for row in frame.itertuples(index=False, name=None)]


def _numeric(table: Table) -> list[bool]:
    return [bool(pd.api.types.is_numeric_dtype(dtype)) for dtype in _frame(table).dtypes]


def _frame(table: Table) -> pd.DataFrame:
    """Return the rows for the reader."""
    return table.frame if table.printed is None else table.printed


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _decimals(column: str) -> int:
    if column in _COLUMNS:
        decimals = _COLUMNS[column].decimals
        return 3 if decimals is None else decimals
    if column.endswith("_deg"):
        return 2
    return 1 if "ratio" in column else 3


def _rounded(value: float, decimals: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    # Halves are rounded up as on paper: d/D = 0.03125 is RW's 0.0313, where binary formatting gives 0.0312.
    text = str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))
    if float(text) != 0:
        return text
    return f"{0:.{decimals}f}" if value == 0 else f"{value:.1e}"
