"""Numbers of the atlas as base64 text, rounded to what the page shows."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

# Values of 16 bits between fixed ends: steps of 1.5e-5 in rho and 0.0014 degrees. The last code is "undefined".
_UNDEFINED = 2**16 - 1
_ENDS = {
    "rho": (0.0, 1.0),
    "angle": (0.0, 90.0),
    "simple_composition": (0.0, 1.0),
    "cosine": (0.0, 1.0),
    "share": (0.0, 1.0),
}

Packed = dict[str, Any]


def pack(values: np.ndarray, name: str) -> Packed:
    """Write numbers as base64: 16 bits between the quantity's ends, or float32 where it has none."""
    if name not in _ENDS:
        return {"data": as_base64(values.astype("<f4"))}
    low, high = _ENDS[name]
    steps = np.round((np.clip(values, low, high) - low) / (high - low) * (_UNDEFINED - 1))
    codes = np.where(np.isfinite(values), steps, _UNDEFINED).astype("<u2")
    return {"low": low, "high": high, "data": as_base64(codes)}


def as_base64(array: np.ndarray) -> str:
    """Write the bytes of an array as text."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
