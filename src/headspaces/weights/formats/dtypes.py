"""Element types of weight files: their sizes, and their exact values in float64.

numpy has no bfloat16 and no 8-bit floats, so their bits are widened here. Only functions that decode import numpy.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
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

SCALED = "F8_E4M3"
"""The 8-bit type that is read when a tensor of scales stands beside it."""
SCALES = ("_scale_inv", "_scale")
"""What the name of the tensor of scales adds to the name of its weight; both are factors (no scheme divides)."""

MAX_ELEMENTS = 2**62
"""More elements than any file can hold."""


def n_elements(shape: Iterable[int], what: str) -> int:
    """Multiply the lengths of a shape.

    Raises
    ------
    InputError
        If the product is beyond any file: a long list of large lengths would take forever to multiply.
    """
    elements = 1
    for length in shape:
        elements *= length
        if elements > MAX_ELEMENTS:
            raise InputError(f"{what} claims more than {MAX_ELEMENTS} elements; the file is damaged")
    return elements


def n_bytes(dtype: str, shape: tuple[int, ...], what: str) -> int:
    """Bytes of a tensor of a safetensors type.

    Raises
    ------
    InputError
        If the type is not known.
    """
    elements = n_elements(shape, what)
    if dtype in SIZES:
        return elements * SIZES[dtype]
    if dtype in SUB_BYTE:
        return elements * SUB_BYTE[dtype] // 8
    raise InputError(f"{what} has the unknown type {dtype!r}; known are {', '.join([*SIZES, *SUB_BYTE])}")


def check_supported(dtype: str, what: str, scaled: bool = False) -> None:
    """Refuse a type whose numbers are not the weights themselves.

    Raises
    ------
    InputError
        If the type is neither a float type, nor a GGUF type, nor 8-bit floats with their scales.
    """
    if dtype.startswith("ggml:") or dtype in FLOATS or (scaled and dtype == SCALED):
        return
    raise InputError(
        f"{what} has the type {dtype}: packed or quantised weights are codes, not the weights; "
        f"use the original checkpoint ({', '.join(FLOATS)}) or a GGUF file"
    )


def decode(data: bytes | memoryview, dtype: str, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Return a tensor's exact values in float64 (8-bit floats without their scales, see :func:`rescale`).

    Raises
    ------
    InputError
        If the type is not one of the float types, or a GGUF type that cannot be dequantised.
    """
    import numpy as np

    check_supported(dtype, what, scaled=True)
    values: np.ndarray
    if dtype.startswith("ggml:"):
        return _dequantised(data, dtype.removeprefix("ggml:"), shape, what)
    if dtype == SCALED:
        values = _e4m3()[np.frombuffer(data, np.uint8)]
    elif dtype == "BF16":
        # A bfloat16 is the upper half of a float32.
        values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype])
    exact: np.ndarray = values.astype(np.float64).reshape(shape)
    return exact


def scale_name(name: str, names: Container[str]) -> str | None:
    """Name of the tensor that holds a weight's scales, or None."""
    return next((name + end for end in SCALES if name + end in names), None)


def scale_block(
    shape: tuple[int, ...], scales: tuple[int, ...], configured: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Rows and columns of a matrix that share one scale, by the shape of the scales.

    Parameters
    ----------
    shape
        The matrix's shape.
    scales
        The shape of the scales: one number, one a row, or one a block.
    configured
        Rows and columns of a block where the configuration names them.

    Returns
    -------
    None where the scales do not fit the matrix.
    """
    rows, columns = shape
    if n_elements(scales, "scales") == 1:
        return rows, columns
    if scales in ((rows,), (rows, 1)):
        return 1, columns
    if configured and scales == (-(-rows // configured[0]), -(-columns // configured[1])):
        return configured
    return None


def rescale(values: np.ndarray, scales: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """Multiply every block of a matrix by its own scale (the last blocks may be cut off)."""
    rows, columns = values.shape
    factors = scales.reshape(-(-rows // block[0]), -(-columns // block[1]))
    spread: np.ndarray = factors.repeat(block[0], axis=0)[:rows].repeat(block[1], axis=1)[:, :columns]
    scaled: np.ndarray = values * spread
    return scaled


def _e4m3() -> np.ndarray:
    """Values of the 256 codes of F8_E4M3: sign, 4 bits of exponent with bias 7, 3 bits of fraction, no infinities."""
    import numpy as np

    codes = np.arange(256)
    values: np.ndarray
    sign, exponent, fraction = np.where(codes < 128, 1.0, -1.0), codes >> 3 & 15, codes & 7
    values = np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
    values[(codes & 127) == 127] = np.nan
    signed: np.ndarray = sign * values
    return signed


def _dequantised(data: bytes | memoryview, kind: str, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Values of a GGUF tensor, which the package ``gguf`` gives in float32."""
    import numpy as np
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize, quant_shape_to_byte_shape

    if plain := {"F32": "<f4", "F16": "<f2", "F64": "<f8"}.get(kind):
        return np.frombuffer(data, plain).astype(np.float64).reshape(shape)
    number = GGMLQuantizationType[kind]
    try:
        raw = np.frombuffer(data, np.uint8).reshape(quant_shape_to_byte_shape(shape, number))
        return np.asarray(dequantize(raw, number), np.float64).reshape(shape)
    except (NotImplementedError, ValueError) as error:
        raise InputError(f"{what}: the ggml type {kind} cannot be dequantised ({error})") from error
