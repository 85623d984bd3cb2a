"""Element types of weight files: their sizes, and their exact values in float64.

numpy has no bfloat16 and no 8-bit floats, so their bits are widened here. Only functions that decode import numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headspaces.errors import InputError

if TYPE_CHECKING:
    import numpy as np

SIZES: dict[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Bytes of one element, by the names that safetensors uses."""

SUB_BYTE = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of one element of the packed types that safetensors knows."""

FLOATS = ("F64", "F32", "F16", "BF16")
"""The types that hold weights as they are."""

GGML_PLAIN = {"F32": "F32", "F16": "F16", "F64": "F64", "BF16": "BF16"}
"""The ggml types that are plain numbers."""


def n_bytes(dtype: str, shape: tuple[int, ...], what: str) -> int:
    """Bytes of a tensor of a safetensors type.

    Raises
    ------
    InputError
        If the type is not known.
    """
    elements = 1
    for length in shape:
        elements *= length
    if dtype in SIZES:
        return elements * SIZES[dtype]
    if dtype in SUB_BYTE:
        return elements * SUB_BYTE[dtype] // 8
    raise InputError(f"{what} has the unknown type {dtype!r}; known are {', '.join([*SIZES, *SUB_BYTE])}")


def check_supported(dtype: str, what: str) -> None:
    """Refuse a type whose numbers are not the weights themselves."""
    if dtype.startswith("ggml:") or dtype in FLOATS:
        return
    raise InputError(
        f"{what} has the type {dtype}: packed or quantised weights are codes, not the weights; "
        f"use the original checkpoint ({', '.join(FLOATS)}) or a GGUF file"
    )


def decode(data: bytes | memoryview, dtype: str, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Return a tensor's exact values in float64.

    Raises
    ------
    InputError
        If the type is not one of the float types.
    """
    import numpy as np

    check_supported(dtype, what)
    if dtype == "BF16":
        # A bfloat16 is the upper half of a float32.
        values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype])
    return values.astype(np.float64).reshape(shape)
