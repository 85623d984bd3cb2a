"""Headers of the stream: which tensors of a checkpoint are its embedding, MLPs and unembedding, checked as heads' are.

What a checkpoint lacks as a whole (no MLP, no embedding) is left out and said; what it holds in some layers only is an
error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.formats.dtypes import check_supported
from headspaces.weights.headers import Headers, TensorHeader
from headspaces.weights.headers_file import load_headers
from headspaces.weights.interpretation import hugging_face_names, interpretation_sum
from headspaces.weights.layouts import find_layout
from headspaces.weights.packed import with_scales
from headspaces.weights.stream_layouts import find_stream_row
from headspaces.weights.stream_row import OF_A_LAYER, StreamRow

ENDS = "ends"
"""Name of the part that is no layer: embedding, positions, final norm and unembedding."""


@dataclass(frozen=True)
class StreamHeaders:
    """The rest of a checkpoint's stream, as it is understood.

    Attributes
    ----------
    headers
        The checkpoint's, with the tensors and files of the stream in place of the heads'.
    row
        The architecture's row without what the checkpoint lacks; names outside the layers are whole names.
    notes
        What is left out or tied, one sentence each.
    """

    headers: Headers
    row: StreamRow
    notes: tuple[str, ...]

    def names(self, layers: range | None = None) -> list[str]:
        """Names of the tensors of some layers, scales included; None for those outside the layers."""
        if layers is None:
            names = self.row.end_names()
        else:
            starts = (self.headers.prefix + self.headers.row.layer.format(layer=layer) for layer in layers)
            names = [name for start in starts for name in self.row.layer_names(start)]
        tensors, block, where = self.headers.tensors, self.headers.scale_block, self.headers.source
        return [part for name in names for part in with_scales(name, tensors, block, where)]

    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        names = self.names() + self.names(range(self.headers.shape.n_layers))
        return sum(self.headers.tensors[name].size for name in names)


def stream_headers(headers: Headers) -> StreamHeaders:
    """Find the stream's tensors among all of a checkpoint.

    Raises
    ------
    InputError
        If the architecture's stream is not served, or a tensor is missing in some layers, packed, or of another shape.
    """
    tensors, prefix, where = headers.checkpoint.tensors, headers.prefix, headers.source
    config = hugging_face_names(headers.checkpoint.config, tensors)
    _, decoder = find_layout(config, where)
    row = find_stream_row(headers.layout, headers.model_type, _telling(headers, decoder), where)
    ends = {field: prefix + getattr(row, field) for field in ("embedding", "positions", "embedding_norm", "final_norm")}
    ends = {field: name for field, name in ends.items() if name != prefix}
    row, notes = replace(row, **ends), [row.note] if row.note else []
    tied = config.get("tie_word_embeddings", decoder.get("tie_word_embeddings")) is not False
    row, more = _ends_present(row, prefix, tensors, tied=tied)
    starts = [prefix + headers.row.layer.format(layer=layer) for layer in range(headers.shape.n_layers)]
    matrices = [name for name in (row.gate, row.up, row.gate_up, row.down) if name]
    if matrices and not any(start + name in tensors for start in starts for name in matrices):
        row = row.without(*OF_A_LAYER)
        more.append("no tensors of the MLPs: left out")
    needed: dict[str, TensorHeader] = {}
    for name in [*row.end_names(), *(name for start in starts for name in row.layer_names(start))]:
        if name not in tensors:
            raise InputError(f"{where}: missing tensor {name!r} of the stream; fetch the checkpoint again")
        check_supported(tensors[name].dtype, f"{where}: tensor {name!r}", scaled=True)
        _check_shape(row, headers, name, tensors[name].shape)
        needed |= with_scales(name, tensors, headers.scale_block, where)
    used = {tensor.file for tensor in needed.values()}
    files = {name: file for name, file in headers.checkpoint.files.items() if name in used}
    return StreamHeaders(replace(headers, tensors=needed, files=files), row, (*notes, *more))


def _telling(headers: Headers, decoder: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add to a GGUF file's configuration what chooses between two rows of an architecture."""
    values = headers.checkpoint.config.get("gguf")
    if not isinstance(values, Mapping):
        return decoder
    architecture = headers.model_type.removeprefix("gguf:")
    return {
        **decoder,
        "ffn_norm": f"{headers.prefix}blk.0.ffn_norm.weight" in headers.checkpoint.tensors,
        "use_parallel_residual": values.get(f"{architecture}.use_parallel_residual"),
    }


def _ends_present(
    row: StreamRow, prefix: str, tensors: Mapping[str, TensorHeader], *, tied: bool
) -> tuple[StreamRow, list[str]]:
    """Give the whole name of the unembedding, and empty the names of what is not there; with notes."""
    words, notes = prefix.rstrip(".").split("."), []
    roots = ["".join(f"{word}." for word in words[:length] if word) for length in range(len(words), -1, -1)]
    stored = next((root + row.unembedding for root in roots if root + row.unembedding in tensors), "")
    if row.embedding not in tensors:
        row = row.without("embedding", "embedding_norm")
        notes.append("no token embedding: left out")
    if row.positions and row.positions not in tensors:
        row = row.without("positions")
        notes.append("no learnt positions: left out")
    row = replace(row, unembedding=stored or (row.embedding if tied else ""))
    if not row.unembedding:
        row = row.without("final_norm")
        notes.append("no unembedding: left out")
    elif not stored:
        notes.append("the unembedding is tied to the embedding")
    return row, notes


def _check_shape(row: StreamRow, headers: Headers, name: str, shape: tuple[int, ...]) -> None:
    """Refuse a tensor that does not read or write the stream's dimensions."""
    d_model = headers.shape.d_model
    # Of a matrix in a layer one side is the stream's: rows of what writes, columns of what reads.
    side = 0 if row.down and name.endswith(row.down) else -1
    if headers.row.transposed and name not in row.end_names():
        side = -1 - side
    if not shape or len(shape) > 2 or shape[side] != d_model:
        raise InputError(
            f"{headers.source}: tensor {name!r} has the shape {list(shape)}, expected {d_model} residual dimensions: "
            "the embedding of another width, or a broken checkpoint; leave stream false"
        )


def stream_interpretation_of(path: str | Path) -> str:
    """Sum of how the stream of a headers file is understood now; empty where there is none yet, else why it is not."""
    try:
        stream = stream_headers(load_headers(path)) if Path(path).is_file() else None
    except InputError as error:
        return str(error)
    decided = stream and [stream.row.to_json(), interpretation_sum(stream.headers)]
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest() if decided else ""
