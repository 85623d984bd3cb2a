"""Tidy data frames, the same in tables and figures: types follow from the columns' names, CSV from the types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from headspaces.text_tables import write_csv

TEXT = frozenset({
    "model", "other", "scope", "spaces", "null", "series", "quantity", "direction", "removed", "loss", "predictor",
    "chosen_by", "columns", "writer", "reader", "vectors", "matrix", "text",
})  # fmt: skip
WHOLE = frozenset({
    "layer", "later_layer", "writer_layer", "reader_layer", "writer_head", "reader_head",
    "distance", "d_model", "d_head", "window_tokens",
    "p_is_smallest", "spread_rank", "rank_low", "rank_high", "deficiency_low", "deficiency_high", "forced_deficiency",
    "total_width", "decay_distance", "mean_outside", "step", "duplicate_of", "head",
    "place", "neuron_layer", "neuron", "token",
})  # fmt: skip


def tidy(columns: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> pd.DataFrame:
    """Make a frame with these columns, named in one string; a row has all cells, or names some and lacks the others.

    Names (``model``, ``spaces``, …) are text; layers, dimensions and counts (``n_…``) are whole numbers that may be
    missing; everything else is float64. Raises :class:`ValueError` if a row names a column that the frame does not
    have, or has more or fewer cells.
    """
    names = columns.split()
    cells = [row if isinstance(row, Mapping) else dict(zip(names, row, strict=True)) for row in rows]
    # The spaces tell the scope.
    if unknown := {key for row in cells for key in row} - {*names, "scope"}:
        raise ValueError(f"columns {sorted(unknown)} are not among {names}")
    return pd.DataFrame({column: _series(column, [row.get(column) for row in cells]) for column in names})


def plain(columns: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> pd.DataFrame:
    """Make a frame of rows with these columns, named in one string; types are those of the values."""
    return pd.DataFrame(list(rows), columns=columns.split())


def joined(columns: str, frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put frames below each other and keep these columns; without a frame there is no row."""
    return pd.concat(frames, ignore_index=True)[columns.split()] if frames else plain(columns, ())


def extremes(values: Float[np.ndarray, " condition"]) -> tuple[float, float, float]:
    """Return the smallest, the median and the largest defined value; NaN three times where there is none."""
    defined = values[np.isfinite(values)]
    if not defined.size:
        return np.nan, np.nan, np.nan
    return float(defined.min()), float(np.median(defined)), float(defined.max())


def ends(name: str, values: Shaped[np.ndarray, "*conditions"], which: str = "low high") -> dict[str, float]:
    """Return some of the :func:`extremes` (``low median high``) by column: ``name`` with the end in its braces."""
    found = dict(zip(("low", "median", "high"), extremes(values.astype(np.float64).ravel())))
    return {name.format(end): found[end] for end in which.split()}


def row_means(values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " row"]:
    """Return the mean of each row's defined values; NaN where there is none."""
    defined = np.isfinite(values)
    count = defined.sum(axis=1)
    total = np.where(defined, values, 0.0).sum(axis=1)
    means = np.full(len(values), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means


def write_frame(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a frame as one whole CSV file: 12 significant digits, which is what any number of cores agrees on."""
    rows = (map(exact, row) for row in frame.itertuples(index=False, name=None))
    write_csv([str(column) for column in frame.columns], rows, path)


def exact(value: Any) -> str:
    """Write one cell for programs: 12 significant digits, whole numbers as such, nothing where it is missing."""
    if missing(value):
        return ""
    if isinstance(value, str):
        return value
    return str(int(value)) if whole(value) else f"{float(value) + 0.0:.12g}"


def missing(value: Any) -> bool:
    """Whether a cell has no value."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def whole(value: Any) -> bool:
    """Whether a cell is a whole number by its type."""
    return isinstance(value, int) or (hasattr(value, "dtype") and value.dtype.kind in "iu")


def _series(column: str, values: list[Any]) -> pd.Series[Any]:
    if column in TEXT:
        return pd.Series(values, dtype=object)
    if column in WHOLE or column.startswith("n_"):
        return pd.Series([pd.NA if missing(value) else int(value) for value in values], dtype="Int64")
    return pd.Series([np.nan if value is None else float(value) for value in values], dtype="float64")
