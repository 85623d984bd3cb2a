"""The numbers that the two papers print, and where each measured counterpart stands: ``config/published.tsv``.

One row per number or range. Its *address* names the measured value in the report's tables::

    table4:r_median?model=gpt2&spaces=OQ
    table4:n_above_all?model=gpt2&spaces=O,Q,K|sum
    right_tail:mean_rho?model=qwen2.5-7b&spaces=V&layer=24..27
    right_tail:spread_rho?model=qwen2.5-7b&spaces=Q|max/0.00035

A table, one or more of its columns, conditions on other columns (alternatives separated by commas, whole numbers from
``a`` to ``b`` as ``a..b``), and where several numbers become one, how (``sum``, ``min``, ``max``, ``mean``, ``median``,
``count``), and what the paper divides it by where the tables do not. Every alternative must be there: half of the
models or layers give no number. ``-`` stands for a number that no table holds.

``config/reference.tsv`` has the same form: numbers that other machines measured, of models that anyone can have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeAlias

from headspaces.errors import InputError

IN_HOUSE = "124m-baseline"
"""RW's own model, whose weights are not public: GPT-2 of the same shape stands beside it, never as a match."""

AGGREGATES = ("sum", "min", "max", "mean", "median", "count")
_CHOICES = {
    "paper": ("RW", "PK", "reference"),
    "relation": ("equal", "at_most", "at_least", "within"),
    "status": ("stated", "figure", "inferred", "fitted", "measured"),
}
_NUMBER = r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?"
_ADDRESS = re.compile(
    r"(?P<table>\w+):(?P<columns>\w+(,\w+)*)(\?(?P<conditions>[^?|/]+))?(\|(?P<aggregate>[a-z]+))?"
    rf"(/(?P<divisor>{_NUMBER}))?"
)
_SETTING = re.compile(r"(?P<name>\w+(\.\w+)*)=(?P<value>\S+)")
_CONDITION = re.compile(r"(?P<column>\w+)=(?P<values>[^=&,]+(,[^=&,]+)*)")
_INTERVAL = re.compile(r"([0-9]+)\.\.([0-9]+)")

Interval: TypeAlias = tuple[float, float]
"""The two ends of a range; of a single number both are equal."""


@dataclass(frozen=True)
class Address:
    """Where a measured number stands in the report's tables.

    ``conditions`` are the allowed values of other columns, as text; ``aggregate`` is empty where several numbers stay a
    range; the number is divided by ``divisor``.
    """

    table: str
    columns: tuple[str, ...]
    conditions: tuple[tuple[str, tuple[str, ...]], ...]
    aggregate: str
    divisor: float = 1.0

    @property
    def models(self) -> tuple[str, ...]:
        """The models whose rows are read."""
        return dict(self.conditions).get("model", ())


@dataclass(frozen=True)
class Published:
    """One row of ``config/published.tsv``: a number, or the two ends of a range, as a paper prints it.

    ``id`` is a stable name; ``paper`` ``RW`` or ``PK``, ``place`` its table, figure or section; ``model`` a name in
    ``config/models.tsv`` or :data:`IN_HOUSE`, several joined by ``+``; ``quantity`` the address of the measured value.
    ``relation`` is ``equal`` (a range: both ends), a bound ``at_most`` or ``at_least`` (in ``low``), or ``within`` the
    range; ``low`` is the printed number, or with ``high`` the range, digits as printed. ``tolerance`` is the largest
    absolute difference that still matches, or ``x`` and a factor for a printed power of ten, and ``why`` says where it
    comes from; ``status`` is ``stated`` by the paper, read off a ``figure``, ``inferred``, ``fitted`` where what is
    measured was itself fitted to the number, or ``measured`` elsewhere; ``settings`` are those that the number was made
    with, as ``fold=true nulls.samples=30``, ``-`` where none matters.
    """

    id: str
    paper: str
    place: str
    model: str
    quantity: str
    relation: str
    low: str
    high: str
    unit: str
    tolerance: str
    status: str
    why: str
    settings: str = "-"

    @property
    def asked_settings(self) -> dict[str, str]:
        """The settings that the number was made with."""
        return {part["name"]: part["value"] for part in _SETTING.finditer(self.settings)}

    @property
    def address(self) -> Address | None:
        """The parsed quantity; None for a number that no table holds."""
        return None if self.quantity == "-" else parse_address(self.quantity, self.id)

    @property
    def ends(self) -> Interval:
        """The printed number twice, or both ends of the printed range."""
        return float(self.low), float(self.high or self.low)

    @property
    def is_in_house(self) -> bool:
        """Whether the number says something about weights that are not public."""
        return IN_HOUSE in self.model.split("+")


COLUMNS = tuple(field.name for field in fields(Published))
_MAY_BE_EMPTY = ("high",)


def read_published(path: str | Path) -> list[Published]:
    """Read the table of published numbers.

    Raises :class:`InputError` if a column is missing or unknown, a cell is empty or no number, an address cannot be
    parsed, a range is upside down, or two rows share an id: with the line and the column.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    header = tuple(lines[0].split("\t")) if lines else ()
    if header != COLUMNS:
        wrong = next((name for name in (*header, *COLUMNS) if (name in header) != (name in COLUMNS)), "order")
        raise InputError(f"{path}, line 1: column {wrong!r}: the header must be {', '.join(COLUMNS)}")
    rows: dict[str, Published] = {}
    for number, line in enumerate(lines[1:], start=2):
        row = _published(line.split("\t"), f"{path}, line {number}")
        if row.id in rows:
            raise InputError(f"{path}, line {number}, column 'id': {row.id!r} names an earlier row; make it unique")
        rows[row.id] = row
    return list(rows.values())


def published_models(rows: Iterable[Published]) -> list[str]:
    """Return the names of the models that measured numbers are asked of, in alphabetical order."""
    return sorted({name for row in rows if row.address for name in row.address.models})


def of_models(rows: Iterable[Published], models: Collection[str]) -> list[Published]:
    """Return the rows that only ask models of a study."""
    return [row for row in rows if row.address and set(row.address.models) <= set(models)]


def compared_as(rows: Iterable[Published], published_as: Mapping[str, str]) -> list[Published]:
    """Ask a model of another name for the numbers of a published one: its own name goes into the addresses.

    ``published_as`` says by a model's name in the report's tables which published model it is.
    """
    own = {published: name for name, published in published_as.items()}
    # Whole values only: qwen2.5-7b is not a part of qwen2.5-7b-instruct.
    values = re.compile(r"(?<=[=,])[^=&,|/]+")
    return [replace(row, quantity=values.sub(lambda value: own.get(value[0], value[0]), row.quantity)) for row in rows]


def _published(cells: list[str], where: str) -> Published:
    if len(cells) != len(COLUMNS):
        raise InputError(f"{where}: {len(cells)} cells, expected {len(COLUMNS)}, separated by tabs")
    for name, cell in zip(COLUMNS, cells):
        if cell != cell.strip() or (not cell and name not in _MAY_BE_EMPTY):
            raise InputError(f"{where}, column {name!r}: {cell!r} is empty or has blanks around it")
        if name in _CHOICES and cell not in _CHOICES[name]:
            raise InputError(f"{where}, column {name!r}: {cell!r} is not one of {', '.join(_CHOICES[name])}")
        if name in ("low", "high") and cell and not re.fullmatch(f"-?{_NUMBER}", cell):
            raise InputError(f"{where}, column {name!r}: {cell!r} is not a number such as 12, -0.5 or 6.4e-4")
    row = Published(*cells)
    if not re.fullmatch(f"x?{_NUMBER}", row.tolerance):
        raise InputError(f"{where}, column 'tolerance': {row.tolerance!r} is neither a number nor x and a factor")
    if row.ends[0] > row.ends[1] or (row.relation == "within") > bool(row.high):
        raise InputError(f"{where}, column 'high': {row.high!r} is below {row.low} or missing")
    if row.settings != "-" and not all(map(_SETTING.fullmatch, row.settings.split(" "))):
        raise InputError(f"{where}, column 'settings': {row.settings!r} is neither - nor of the form name=value …")
    if row.quantity != "-":
        parse_address(row.quantity, f"{where}, column 'quantity'")
    return row


def parse_address(text: str, where: str) -> Address:
    """Take an address apart.

    Raises :class:`InputError` if it is not of the form ``table:column,…?column=value,…&…|aggregate/divisor``.
    """
    found = _ADDRESS.fullmatch(text)
    parts = found["conditions"].split("&") if found and found["conditions"] else []
    conditions = [_CONDITION.fullmatch(part) for part in parts]
    if not found or not all(conditions) or (found["aggregate"] or "sum") not in AGGREGATES:
        form = f"table:column,…?column=value,…&…|{' or '.join(AGGREGATES)}/divisor"
        raise InputError(f"{where}: {text!r} is not of the form {form}")
    parsed = tuple((part["column"], _alternatives(part["values"])) for part in conditions if part)
    divisor = float(found["divisor"] or 1)
    return Address(found["table"], tuple(found["columns"].split(",")), parsed, found["aggregate"] or "", divisor)


def _alternatives(text: str) -> tuple[str, ...]:
    values: list[str] = []
    for value in text.split(","):
        interval = _INTERVAL.fullmatch(value)
        values += map(str, range(int(interval[1]), int(interval[2]) + 1)) if interval else [value]
    return tuple(values)
