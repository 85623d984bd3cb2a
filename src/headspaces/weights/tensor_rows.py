"""Rows of large tensors: an embedding is read block of rows by block, so that float64 never holds all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from headspaces.errors import DamagedFileError, InputError
from headspaces.files import read_bytes
from headspaces.weights.blocks import read_metadata, stored_tensors
from headspaces.weights.formats.dtypes import decode, rescale, scale_block, scale_name
from headspaces.weights.headers import TensorHeader

BLOCK_BYTES = 2**26
"""Bytes in float64 of the rows that are read at once."""


def tensor_rows(path: str | Path, name: str, block_bytes: int = BLOCK_BYTES) -> Iterator[Float[np.ndarray, "row _"]]:
    """Yield a tensor's rows in float64, block by block; a vector is one row.

    Its checksum is compared behind the last block, so that nothing may be kept of an iteration that was cut short.

    Raises
    ------
    DamagedFileError
        If the file is damaged, or has no tensor of this name.
    InputError
        If the tensor holds a NaN or an infinity, or the system cannot read the file.
    """
    path = Path(path)
    metadata, tensors = read_metadata(path), stored_tensors(path)
    if name not in tensors:
        raise DamagedFileError(path, f"no tensor {name!r}")
    tensor, where = tensors[name], f"{path}: tensor {name!r}"
    dtype, shape = json.loads(metadata.get("ggml", "{}")).get(name, (tensor.dtype, tensor.shape))
    n_rows, width = shape if len(shape) == 2 else (1, *shape, 1)[:2]
    scales, block = _scales(path, name, (n_rows, width), tensors, metadata)
    # One scale of the whole tensor is that of any rows; others are shared by some, which are read together.
    unit = block[0] if scales is not None and len(scales) > 1 else 1
    step = unit * max(1, block_bytes // (8 * width * unit))
    digest, row_bytes = hashlib.sha256(), tensor.size // n_rows
    for start in range(0, n_rows, step):
        count = min(step, n_rows - start)
        data = read_bytes(path, tensor.begin + start * row_bytes, count * row_bytes)
        digest.update(data)
        values = decode(memoryview(data), dtype, (count, width), where)
        if scales is not None:
            own = scales if len(scales) == 1 else scales[start // unit : -(-(start + count) // unit)]
            values = rescale(values, own, (unit if len(scales) > 1 else count, block[1]))
        if not np.isfinite(values).all():
            raise InputError(f"{where} holds NaN or infinite values; the checkpoint is broken, fetch another")
        yield values
    if digest.hexdigest() != json.loads(metadata["sha256"]).get(name):
        raise DamagedFileError(path, f"tensor {name!r} is damaged (its checksum differs)")


def read_rows(path: str | Path, name: str) -> Float[np.ndarray, "row _"]:
    """Read all rows of a tensor in float64; errors as in :func:`tensor_rows`."""
    return np.concatenate(list(tensor_rows(path, name)))


def _scales(
    path: Path, name: str, shape: tuple[int, int], tensors: Mapping[str, TensorHeader], metadata: Mapping[str, str]
) -> tuple[Float[np.ndarray, "_ _"] | None, tuple[int, int]]:
    """Scales of 8-bit floats, and the rows and columns that share one; without scales, None and any block."""
    scale = scale_name(name, tensors)
    if scale is None:
        return None, (1, 1)
    configured = json.loads(metadata["scale_block"]) if "scale_block" in metadata else None
    block = scale_block(shape, tensors[scale].shape, configured and (configured[0], configured[1]))
    if block is None:
        raise DamagedFileError(path, f"the scales {scale!r} do not fit their weight")
    rows, columns = -(-shape[0] // block[0]), -(-shape[1] // block[1])
    return read_rows(path, scale).reshape(rows, columns), block
