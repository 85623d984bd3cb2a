"""Labels of the library's arrays: named axes with coordinates, and what made them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headspaces.library.comparisons import dimensions
from headspaces.library.overlaps_of import KindSpaces


def label_pairs(
    values: np.ndarray, spaces: str, quantity: tuple[str, str], attributes: Mapping[str, Any]
) -> xr.DataArray:
    """Label a comparison's array; a quantity is its long name and its unit."""
    names, (long_name, units) = dimensions(spaces), quantity
    coordinates = {name: range(size) for name, size in zip(names, values.shape, strict=True)}
    described = {"long_name": long_name, "units": units, **attributes}
    return xr.DataArray(values, coordinates, names, long_name.replace(" ", "_"), described)


def label_spaces(found: KindSpaces, attributes: Mapping[str, Any]) -> xr.Dataset:
    """Label one kind's spaces in all layers."""
    n_layers, n_heads = found.rank.shape
    return xr.Dataset(
        {
            "basis": (("layer", "head", "d_model", "direction"), found.basis),
            "singular_values": (("layer", "head", "direction"), found.singular_values),
            "rank": (("layer", "head"), found.rank),
        },
        {"layer": range(n_layers), "head": range(n_heads)},
        attributes,
    )
