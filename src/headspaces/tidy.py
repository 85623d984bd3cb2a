"""Tidy data frames whose types follow from the columns' names, the same in tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

TEXT = frozenset({"model", "scope", "spaces", "null", "series", "quantity", "direction"})
WHOLE = frozenset({"layer", "later_layer", "writer_layer", "reader_layer", "distance", "d_model", "d_head"})


def tidy(columns: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Make a frame of rows with these columns, named in one string; what a row does not name is missing.

    Names (``model``, ``spaces``, …) are text; layers, dimensions and counts (``n_…``) are whole numbers that may be
    missing; everything else is float64.

    Raises
    ------
    ValueError
        If a row names a column that the frame does not have.
    """
    rows, names = list(rows), columns.split()
    if unknown := {key for row in rows for key in row} - set(names):
        raise ValueError(f"columns {sorted(unknown)} are not among {names}")
    return pd.DataFrame({column: _series(column, [row.get(column) for row in rows]) for column in names})


def extremes(values: Float[np.ndarray, " condition"]) -> tuple[float, float, float]:
    """Return the smallest, the median and the largest defined value; NaN three times where there is none."""
    defined = values[np.isfinite(values)]
    if not defined.size:
        return np.nan, np.nan, np.nan
    return float(defined.min()), float(np.median(defined)), float(defined.max())


def row_means(values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " row"]:
    """Return the mean of each row's defined values; NaN where there is none."""
    defined = np.isfinite(values)
    count = defined.sum(axis=1)
    total = np.where(defined, values, 0.0).sum(axis=1)
    means = np.full(len(values), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means


def _series(column: str, values: list[Any]) -> pd.Series[Any]:
    if column in TEXT:
        return pd.Series(values, dtype=object)
    if column in WHOLE or column.startswith("n_"):
        return pd.Series([pd.NA if value is None else int(value) for value in values], dtype="Int64")
    return pd.Series([np.nan if value is None else float(value) for value in values], dtype="float64")
