"""Blocks of layers: safetensors files that hold only the attention weights, and reading them back as heads.

Field of the file: every tensor under its original name, in its original type (of a GGUF file: its bytes).
``__metadata__``, all text: ``format`` (``headspaces-weights``), ``format_version``, ``source``, ``revision``,
``model_type``, ``layout`` (JSON, the row of the layouts table), ``prefix``, ``kinds``, ``shape`` (JSON),
``first_layer``, ``n_layers``, ``sha256`` (JSON, one per tensor), ``scale_block`` (JSON, FP8 checkpoints
with blocks only), ``ggml`` (JSON, GGUF only: type and shape of every tensor), ``header_sha256`` (of the header without
this field).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headspaces.errors import DamagedFileError, InputError
from headspaces.files import read_bytes, read_patiently
from headspaces.spaces import Shape
from headspaces.weights.formats.dtypes import decode, rescale, scale_block, scale_name
from headspaces.weights.formats.safetensors_header import parse_header
from headspaces.weights.headers import TensorHeader
from headspaces.weights.layout import Layout, layer_tensors, tensors_by_kind

if TYPE_CHECKING:
    import numpy as np

    from headspaces.geometry.heads import LayerHeads

FORMAT = "headspaces-weights"
FORMAT_VERSION = 2


def read_block(path: str | Path, *, leave_out_rounding: bool = False) -> list[LayerHeads]:
    """Read a block of layers as heads in float64; see :func:`each_layer`."""
    return list(each_layer(path, leave_out_rounding=leave_out_rounding))


def layer_reader(
    paths: Iterable[str | Path], n_kept: int, *, leave_out_rounding: bool = False
) -> Callable[[int], LayerHeads]:
    """Give a function that reads any layer of a model; the last ``n_kept`` layers stay in memory.

    Parameters
    ----------
    paths
        All blocks of the model.
    n_kept
        How many layers.
    leave_out_rounding
        As in :func:`each_layer`.
    """
    places: dict[int, str | Path] = {}
    for path in paths:
        metadata = read_metadata(path)
        first = int(metadata["first_layer"])
        places |= dict.fromkeys(range(first, first + int(metadata["n_layers"])), path)

    @lru_cache(maxsize=n_kept)
    def read(layer: int) -> LayerHeads:
        return next(each_layer(places[layer], [layer], leave_out_rounding=leave_out_rounding))

    return read


def each_layer(
    path: str | Path, layers: Iterable[int] | None = None, *, leave_out_rounding: bool = False
) -> Iterator[LayerHeads]:
    """Read all, or the given, layers of a block one after the other, in float64.

    With ``leave_out_rounding`` heads come without the directions that the storage's rounding may have made
    (:func:`headspaces.geometry.rounding.without_rounding`).

    Raises
    ------
    InputError
        If the file is damaged, of another format, or holds a NaN or an infinity; the message names tensor and head.
        If the system cannot read it.
    """
    # These import numpy, which reading headers does without.
    from headspaces.geometry.rounding import without_rounding
    from headspaces.weights.cutting import cut_layer

    path = Path(path)
    metadata, tensors = read_metadata(path), stored_tensors(path)
    layout, shape = Layout.from_json(metadata["layout"]), Shape(**json.loads(metadata["shape"]))
    sums: dict[str, str] = json.loads(metadata["sha256"])
    first, source = int(metadata["first_layer"]), metadata["source"]
    ggml: dict[str, list[str]] = json.loads(metadata.get("ggml", "{}"))
    for layer in range(first, first + int(metadata["n_layers"])) if layers is None else layers:
        names = layer_tensors(layout, metadata["prefix"], layer, metadata["kinds"])
        arrays = {name: _read_scaled(path, name, tensors, sums, metadata) for name in names}
        heads = cut_layer(layout, shape, metadata["prefix"], layer, metadata["kinds"], arrays)
        stored = tensors_by_kind(layout, metadata["prefix"], layer, heads.factors)
        dtypes = {kind: ggml.get(name, [tensors[name].dtype])[0] for kind, name in stored.items()}
        for kind, factors in heads.factors.items():
            _check_finite(factors, f"{source}: tensor {stored[kind]!r}", f"{kind} head")
        for name in names:
            if arrays[name].ndim == 1:
                _check_finite(arrays[name][None], f"{source}: tensor {name!r}", "")
        heads = replace(heads, dtypes=dtypes)
        yield without_rounding(heads) if leave_out_rounding else heads


def stored_tensors(path: Path) -> dict[str, TensorHeader]:
    """Read where a block's tensors lie; a :class:`DamagedFileError` where its header is none."""
    text = _header_text(path)
    size = read_patiently(path, lambda: path.stat().st_size)
    try:
        return parse_header(text, path.name, size, str(path))
    except InputError as error:
        raise DamagedFileError(path, f"damaged ({error})") from error


def read_metadata(path: str | Path) -> dict[str, str]:
    """Read what a block says about itself.

    Raises
    ------
    DamagedFileError
        If the file is not a block of this version.
    InputError
        If the system cannot read it.
    """
    path = Path(path)
    text = _header_text(path)
    try:
        header = json.loads(text)
        metadata: dict[str, str] = header["__metadata__"]
        header_sum = metadata.pop("header_sha256", "")
        found = (metadata["format"], metadata["format_version"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(path, f"not a readable block of weights ({error})") from error
    if found != (FORMAT, str(FORMAT_VERSION)):
        raise DamagedFileError(path, f"expected {FORMAT} version {FORMAT_VERSION}, found {found[0]} version {found[1]}")
    if header_sum != header_checksum(header):
        raise DamagedFileError(path, "its header is damaged (its checksum differs)")
    return metadata


def _header_text(path: Path) -> bytes:
    length = int.from_bytes(read_bytes(path, 0, 8), "little")
    text = bytes(read_bytes(path, 8, length))
    if len(text) < length:
        raise DamagedFileError(path, "not a readable block of weights (cut off)")
    return text


def header_checksum(header: Mapping[str, object]) -> str:
    """SHA-256 of a block's header, without its own sum."""
    return hashlib.sha256(json.dumps(header, separators=(",", ":")).encode()).hexdigest()


def _read_scaled(
    path: Path, name: str, tensors: Mapping[str, TensorHeader], sums: Mapping[str, str], metadata: Mapping[str, str]
) -> np.ndarray:
    values = _read_tensor(path, name, tensors, sums, metadata)
    scale = scale_name(name, tensors)
    if scale is None:
        return values
    configured = json.loads(metadata["scale_block"]) if "scale_block" in metadata else None
    block = scale_block(values.shape, tensors[scale].shape, configured and (configured[0], configured[1]))
    if block is None:
        raise DamagedFileError(path, f"the scales {scale!r} do not fit their weight")
    return rescale(values, _read_tensor(path, scale, tensors, sums, metadata), block)


def _read_tensor(
    path: Path, name: str, tensors: Mapping[str, TensorHeader], sums: Mapping[str, str], metadata: Mapping[str, str]
) -> np.ndarray:
    tensor = tensors.get(name)
    if tensor is None:
        raise DamagedFileError(path, f"no tensor {name!r}")
    data = read_bytes(path, tensor.begin, tensor.size)
    if hashlib.sha256(data).hexdigest() != sums.get(name):
        raise DamagedFileError(path, f"tensor {name!r} is damaged (its checksum differs)")
    dtype, shape = json.loads(metadata.get("ggml", "{}")).get(name, (tensor.dtype, tensor.shape))
    return decode(memoryview(data), dtype, tuple(shape), f"{path}: tensor {name!r}")


def _check_finite(stack: np.ndarray, where: str, what: str) -> None:
    import numpy as np

    counts = (~np.isfinite(stack)).reshape(len(stack), -1).sum(axis=1)
    if not counts.any():
        return
    head = int(np.argmax(counts > 0))
    of_head = f" in {what} {head}" if what else ""
    raise InputError(
        f"{where} holds {int(counts[head])} NaN or infinite values{of_head}; the checkpoint is broken, fetch another"
    )
