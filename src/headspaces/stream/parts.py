"""Parts of the stream beside the heads, read from the files of its weights as rows: vectors of the residual stream.

A row is what one token adds (embedding) or one MLP neuron reads or writes. Reads have their norm's linear part folded
in, as the heads' reads have; biases, scales and the division by sigma are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float

from headspaces.errors import DamagedFileError
from headspaces.geometry.heads import Norm, NormKind
from headspaces.spaces import Shape
from headspaces.weights.blocks import read_metadata
from headspaces.weights.layout import Layout
from headspaces.weights.stream_row import INPUTS, StreamRow
from headspaces.weights.tensor_rows import read_rows, tensor_rows

Rows = Float[np.ndarray, "row d_model"]

NORM_EPSILON = 1e-5
"""Added to the variance of a token's embedding where a LayerNorm stands on it (BLOOM)."""


class StreamParts:
    """The stream's weights of one model, in the files of its ends and of its layers.

    Raises :class:`DamagedFileError` if a file is no such, or of another model or making than the first.
    """

    def __init__(self, ends: str | Path, layers: Iterable[str | Path]) -> None:
        metadata = read_metadata(ends)
        if "stream" not in metadata:
            raise DamagedFileError(ends, "holds no weights of the stream beside the heads")
        self.row = StreamRow.from_json(metadata["stream"])
        self.layout = Layout.from_json(metadata["layout"])
        self.shape = Shape(**json.loads(metadata["shape"]))
        self.notes: list[str] = json.loads(metadata["stream_notes"])
        self.metadata, self._ends, self._prefix = metadata, ends, metadata["prefix"]
        self._files: dict[int, str | Path] = {}
        for path in layers:
            own = read_metadata(path)
            if any(own.get(name) != metadata[name] for name in ("source", "revision", "stream", "layout")):
                raise DamagedFileError(path, "is of another checkpoint or layout than the ends of the stream")
            first = int(own["first_layer"])
            self._files |= dict.fromkeys(range(first, first + int(own["n_layers"])), path)

    @property
    def ends(self) -> str:
        """Letters of the parts outside the layers: embedding (E), learnt positions (X), unembedding (U)."""
        names = {"E": self.row.embedding, "X": self.row.positions, "U": self.row.unembedding}
        return "".join(letter for letter, name in names.items() if name)

    @property
    def inputs(self) -> str:
        """Letters of the MLPs' input matrices, G and I; none where the MLPs are left out."""
        return self.row.inputs if self.row.down else ""

    def end_rows(self, letter: str) -> Iterator[Rows]:
        """Yield the rows of E, X or U, block by block: what each token or position writes, or each token's logit reads.

        The unembedding has the final norm folded in.
        """
        row = self.row
        if letter == "U":
            norm = Norm(
                cast("NormKind", row.final_norm_kind or self.layout.norm), self._gain(self._ends, row.final_norm)
            )
            for rows in tensor_rows(self._ends, row.unembedding):
                yield folded(rows, norm)
        elif letter == "X":
            skipped = row.positions_skipped
            for rows in tensor_rows(self._ends, row.positions):
                yield rows[skipped:]
                skipped = max(0, skipped - len(rows))
        else:
            gain = self._gain(self._ends, row.embedding_norm)
            for rows in tensor_rows(self._ends, row.embedding):
                yield rows if gain is None else _layer_normed(rows) * gain

    def mlp_rows(self, layer: int) -> dict[str, Rows]:
        """Give the rows of a layer's MLP: what its neurons read through G and I, and what they write (M)."""
        if not self.inputs:
            return {}
        row, path = self.row, self._files[layer]
        start = self._prefix + self.layout.layer.format(layer=layer)

        def read(name: str) -> Float[np.ndarray, "out in"]:
            matrix = read_rows(path, start + name)
            return matrix.T if self.layout.transposed else matrix

        norm = Norm(cast("NormKind", self.layout.norm), self._gain(path, row.mlp_norm and start + row.mlp_norm))
        if row.gate_up:
            halves = np.split(read(row.gate_up), 2)
            found = {letter: folded(rows, norm) for letter, rows in zip(INPUTS, halves, strict=True)}
        else:
            found = {letter: folded(read(getattr(row, INPUTS[letter])), norm) for letter in row.inputs}
        writes = read(row.down).T
        gain = self._gain(path, row.mlp_write_norm and start + row.mlp_write_norm)
        return found | {"M": writes if gain is None else writes * gain}

    def _gain(self, path: str | Path, name: str) -> Float[np.ndarray, " d_model"] | None:
        return read_rows(path, name)[0] + self.layout.gain_offset if name else None


def folded(rows: Rows, norm: Norm) -> Rows:
    """Fold the linear part of the norm before a read into its rows: ``row diag(gain) P_c``."""
    scaled = rows if norm.gain is None else rows * norm.gain
    return scaled - scaled.mean(axis=1, keepdims=True) if norm.centred else scaled


def _layer_normed(rows: Rows) -> Rows:
    centred = rows - rows.mean(axis=1, keepdims=True)
    normed: Rows = centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + NORM_EPSILON)
    return normed
