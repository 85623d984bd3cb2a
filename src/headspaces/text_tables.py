"""Tables as text: delimited files for programs, Markdown for readers."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headspaces.files import whole_file


def write_text(text: str, path: str | Path) -> None:
    """Write a text as one whole file in UTF-8, with line feeds on every system."""
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")


def write_csv(header: Sequence[str], rows: Iterable[Iterable[Any]], path: str | Path, delimiter: str = ",") -> None:
    """Write a header and rows as one whole file, in UTF-8, with line feeds on every system."""
    with whole_file(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[bool]) -> list[str]:
    """Return the lines of a table in Markdown; cells are as they come, so escape what is not to be markup.

    ``right`` says by column whether it is aligned on the right.
    """
    sides = ["--:" if side else ":--" for side in right]
    return ["| " + " | ".join(cells) + " |" for cells in (header, sides, *rows)]


def escape_markdown(text: str) -> str:
    """Write text so that Markdown shows it as it is."""
    for sign in "\\`*_[]|":
        text = text.replace(sign, "\\" + sign)
    return text.replace("<", "&lt;").replace(">", "&gt;")
