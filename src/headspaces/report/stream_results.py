"""Scores of the stream, pair by pair of a writer and a reader, as its tables and its figure need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headspaces.report.results import MEASURES, Arrays, ModelResults
from headspaces.report.tidy_frames import row_means
from headspaces.spaces import READS
from headspaces.stream.operators import rotated_sd
from headspaces.stream.scores import ENDS, MADE

WRITERS = {"E": "embedding", "X": "positions", "O": "O", "M": "MLP"}
"""Names of the writers by letter."""

READERS = {**{kind: kind for kind in READS}, "G": "MLP gate", "I": "MLP up", "U": "unembedding"}
"""Names of the readers by letter, where an MLP has two inputs; its only one is called :data:`ONLY_INPUT`."""

ONLY_INPUT = "MLP in"

WHOLE_READERS = {**{kind: kind for kind in READS}, "M": "MLP", "U": "unembedding"}
"""Names of the readers by letter where an MLP reads as a whole."""

VECTORS = {"": "as they are", "centred_": "less their mean"}
"""What tokens' and positions' vectors are, by what the names of arrays begin with."""

Pairs = Float[np.ndarray, "writer_layer reader_layer writer_head reader_head"]


@dataclass(frozen=True)
class StreamPairs:
    """Scores of all pairs of one kind of writer and one of reader, and their deviation under random rotations."""

    model: ModelResults
    letters: str
    made: str
    score: Pairs
    sd: Pairs

    @property
    def names(self) -> dict[str, str]:
        """Model, writer, reader and vectors: what names a row of a table."""
        writer, reader = list(self.letters)
        return {
            "model": self.model.name, "writer": WRITERS[writer],
            "reader": reader_names(self.model.stream or {})[reader], "vectors": VECTORS[self.made],
        }  # fmt: skip


def reader_names(arrays: Arrays) -> dict[str, str]:
    """Names of a model's readers by letter."""
    return READERS if "purity/I" in arrays else READERS | {"G": ONLY_INPUT}


def stream_pairs(models: Sequence[ModelResults]) -> Iterator[StreamPairs]:
    """Go through the models, writers, readers, and ends as they are and without the mean of their vectors."""
    for model in models:
        arrays = model.stream or {}
        for letters in (writer + reader for writer in WRITERS for reader in READERS):
            for made in MADE:
                if (name := f"{made}score/{letters}") in arrays:
                    yield StreamPairs(model, letters, made, arrays[name], _sd(model, arrays, letters, made))


def stream_effects_of(model: ModelResults) -> Iterator[tuple[dict[str, str], str, Pairs]]:
    """Go through losses, writers and readers: what names a row of a table, the letters, and the effects A.

    Heads to heads are among them. An MLP reads as a whole.
    """
    arrays = model.attribution or {}
    for loss, start in MEASURES.items():
        for writer, written in WRITERS.items():
            for reader, read in WHOLE_READERS.items():
                if (name := start + effect_name(writer, reader)) in arrays:
                    names = {"model": model.name, "loss": loss, "writer": written, "reader": read}
                    yield names, writer + reader, arrays[name]


def effects_on_first_loss(model: ModelResults) -> dict[tuple[str, str], Pairs]:
    """Give the effects on the model's first loss by the names of writer and reader; empty without the stage."""
    found = list(stream_effects_of(model))
    return {(names["writer"], names["reader"]): A for names, _, A in found if names["loss"] == found[0][0]["loss"]}


def effect_name(writer: str, reader: str) -> str:
    """Name of the effects of a kind of edge in the attribution file."""
    return f"{reader}/effect" if writer == "O" and reader in READS else f"stream/{writer}{reader}/effect"


def _sd(model: ModelResults, arrays: Arrays, letters: str, made: str) -> Pairs:
    writer, reader = (arrays[f"{made if letter in ENDS else ''}purity/{letter}"] for letter in letters)
    return rotated_sd(writer[:, None, :, None], reader[None, :, None, :], model.shape.d_model)


@dataclass(frozen=True)
class Shares:
    """Share of an operator's energy inside one kind of space by layer, over the isotropic value d / D.

    ``ratio`` is the mean over the layer's heads and what they meet; ``sd`` the deviation of that mean where all
    operators are rotated at random.
    """

    quantity: str
    kind: str
    ratio: Float[np.ndarray, " layer"]
    sd: Float[np.ndarray, " layer"]


def shares_by_layer(model: ModelResults) -> Iterator[Shares]:
    """Energies of tokens and positions in read spaces, of the unembedding in write spaces, of MLPs in both."""
    arrays = model.stream or {}
    names = [(end, kind, f"centred_fraction/{end}{kind}", f"centred_purity/{end}") for end in "EX" for kind in READS]
    names += [("U", "O", "centred_fraction/OU", "centred_purity/U")]
    names += [("M", kind, f"fraction/M{kind}", "purity/M") for kind in READS]
    names += [("M", "O", "fraction/OG", "purity/G")]
    for quantity, kind, fraction, purity in names:
        if fraction not in arrays:
            continue
        # [other layer, own layer, head]
        values = arrays[fraction][:, :, :, 0].swapaxes(0, 1) if kind == "O" else arrays[fraction][:, :, 0]
        d_model, d_head = model.shape.d_model, model.shape.d_head
        sd = rotated_sd(arrays[purity][:, :1, None], np.array(1 / d_head), d_model)
        there = np.isfinite(values)
        count = np.maximum(there.sum(axis=(0, 2)), 1)
        of_mean = np.sqrt(np.where(there, sd**2, 0).sum(axis=(0, 2))) / count
        own = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)
        yield Shares(quantity, kind, row_means(own) / model.isotropic, of_mean)
