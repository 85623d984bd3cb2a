"""Scores of every writer of the stream with every later reader, and energies inside heads' spaces.

Letters: E embedding, X learnt positions, O a head's write, M an MLP's output; Q, K, V a head's reads, G and I an MLP's
input matrices (gate, or the only one; and the one beside a gate), U the unembedding. Those of a head's write with later
heads' reads are RW's weighted scores, which the overlaps have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headspaces.geometry.heads import LayerHeads, fold
from headspaces.geometry.overlaps import unit_factors
from headspaces.spaces import Shape
from headspaces.stream.operators import Operator, by_heads, head_purity

ENDS = "EXU"
"""Letters of what is outside the layers."""

MADE = ("", "centred_")
"""What the names of arrays begin with: of an end's operator as it is, and of its rows without their mean."""


@dataclass(frozen=True)
class Dense:
    """Operators of trace 1 in one stack: two of every end (:data:`MADE`), and those of the MLPs layer by layer.

    ``letters`` has of each operator its letter, layer (0 for an end) and what its arrays' names begin with.
    """

    operators: Float[np.ndarray, "operator d_model d_model"]
    letters: Sequence[tuple[str, int, str]]

    @classmethod
    def of(
        cls, ends: Mapping[str, Sequence[Operator]], mlps: Mapping[str, Sequence[Operator]], wanted: str, dtype: str
    ) -> Dense:
        """Stack the operators of some letters: writers' ends stand before the layers, the readers' behind."""
        first = [(end, 0, start, ends[end][at]) for end in ends if end in wanted for at, start in enumerate(MADE)]
        chosen = [letter for letter in mlps if letter in wanted]
        n_layers = len(mlps[chosen[0]]) if chosen else 0
        inner = [(letter, layer, "", mlps[letter][layer]) for layer in range(n_layers) for letter in chosen]
        parts = inner + first if "U" in wanted else first + inner
        operators = (
            np.stack([part[3] for part in parts]).astype(dtype, copy=False) if parts else np.zeros((0, 1, 1), dtype)
        )
        return cls(operators, [part[:3] for part in parts])

    def purities(self) -> Float[np.ndarray, " operator"]:
        """Purity ``tr A^2`` of each."""
        return np.array([np.vdot(one, one) for one in self.operators], dtype=np.float64)


class StreamArrays:
    """Arrays of a file by their names, made when first filled: NaN, with the layers and heads of their letters."""

    def __init__(self, shape: Shape) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._shape = shape

    def put(self, name: str, place: tuple[int | slice, ...], values: np.ndarray | float) -> None:
        """Fill a part of an array; ``place`` are layers and heads, 0 where there is one."""
        if name not in self.arrays:
            counts = [self._counts(letter) for letter in name.rpartition("/")[2]]
            size = [*(layers for layers, _ in counts), *(heads for _, heads in counts)]
            self.arrays[name] = np.full(size, np.nan)
        self.arrays[name][place] = values

    def _counts(self, letter: str) -> tuple[int, int]:
        if letter in ENDS:
            return 1, 1
        return self._shape.n_layers, self._shape.n_heads(letter) if letter in "OQKV" else 1


def stream_scores(
    shape: Shape,
    heads: Iterable[LayerHeads],
    bases: Mapping[str, Float[np.ndarray, "layer head d_model d_head"]],
    writers: Dense,
    readers: Dense,
    *,
    parallel: bool,
) -> dict[str, np.ndarray]:
    """Scores, energy fractions and purities.

    Parameters
    ----------
    shape
        The model's.
    heads
        Its heads, layer by layer.
    bases
        Orthonormal bases of their spaces, by kind.
    writers, readers
        Operators of embedding, positions and MLP outputs; of MLP inputs and the unembedding.
    parallel
        Whether an MLP reads before its own layer's attention has written.

    Returns
    -------
    dict
        ``score/{W}{R}`` [writer_layer, reader_layer, writer_head, reader_head], length 1 where there is one, NaN where
        the reader is not later; ``fraction/{W}{R}`` of the same shape, the share of the operator's energy inside the
        head's space, where one of the two is a head; ``purity/{letter}`` [layer, head]. Before the names stands
        ``centred_`` where ends of the stream are without the mean of their rows.
    """
    found = StreamArrays(shape)
    for dense in (writers, readers):
        for (letter, layer, start), purity in zip(dense.letters, dense.purities(), strict=True):
            found.put(f"{start}purity/{letter}", (layer, 0), purity)
    _put_dense(found, writers, readers)
    for own in heads:
        units = {kind: unit_factors(fold(own, kind)) for kind in own.factors}
        for kind, factors in units.items():
            found.put(f"purity/{kind}", (own.layer,), head_purity(factors))
            dense = readers if kind == "O" else writers
            chosen = _met(kind, own.layer, dense, parallel=parallel)
            stacks = {"score": factors, "fraction": bases[kind][own.layer]} if dense.letters[chosen] else {}
            for name, stack in stacks.items():
                values = by_heads(dense.operators[chosen], stack.astype(dense.operators.dtype, copy=False))
                values *= shape.d_model if name == "score" else 1
                for (letter, layer, start), of_heads in zip(dense.letters[chosen], values, strict=True):
                    if kind == "O":
                        found.put(f"{start}{name}/O{letter}", (own.layer, layer, slice(None), 0), of_heads)
                    else:
                        found.put(f"{start}{name}/{letter}{kind}", (layer, own.layer, 0, slice(None)), of_heads)
    return found.arrays


def _met(kind: str, layer: int, dense: Dense, *, parallel: bool) -> slice:
    """Operators that a layer's heads of a kind meet: those that read after they wrote, or wrote before they read."""
    if kind != "O":
        return slice(sum(letter in ENDS or other < layer for letter, other, _ in dense.letters))
    first = layer + parallel
    return slice(sum(letter not in ENDS and other < first for letter, other, _ in dense.letters), None)


def _put_dense(found: StreamArrays, writers: Dense, readers: Dense) -> None:
    """Put the scores of dense writers with dense readers: both as they are, or both centred where they are ends."""
    if not (writers.letters and readers.letters):
        return
    d_model = writers.operators.shape[1]
    products = (
        writers.operators.reshape(len(writers.letters), -1) @ readers.operators.reshape(len(readers.letters), -1).T
    )
    for i, (writer, layer, made) in enumerate(writers.letters):
        for j, (reader, later, read) in enumerate(readers.letters):
            both_ends = writer in ENDS and reader in ENDS
            if (made != read) if both_ends else (writer not in ENDS and reader not in ENDS and later <= layer):
                continue
            found.put(f"{made or read}score/{writer}{reader}", (layer, later, 0, 0), d_model * products[i, j])
