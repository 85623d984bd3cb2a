"""The stage stream: all of a model's stream in one pass through its layers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import numpy as np
from tqdm import tqdm

from headspaces.geometry.heads import LayerHeads
from headspaces.spaces import READS
from headspaces.stream.operators import Operator, gram, row_operators, unit_trace
from headspaces.stream.parts import StreamParts
from headspaces.stream.scores import Dense, stream_scores
from headspaces.stream.strongest import StrongestNeurons, strongest_tokens


def whole_stream(
    parts: StreamParts,
    heads: Iterable[LayerHeads],
    bases: Mapping[str, np.ndarray],
    dtype: str = "float64",
) -> dict[str, np.ndarray]:
    """Compute scores, energy fractions, and the strongest neurons and tokens of every head.

    Parameters
    ----------
    parts
        The embedding, MLPs and unembedding.
    heads
        The heads of all layers in order, taken one by one.
    bases
        Orthonormal bases of their spaces by kind, ``(layer, head, d_model, d_head)``.
    dtype
        Of the scores' arithmetic.

    Returns
    -------
    dict
        Datasets of the file: ``score/…``, ``fraction/…``, ``purity/…`` (:func:`stream_scores`), ``neurons/…``
        (:class:`StrongestNeurons`) and ``tokens/…`` (:func:`strongest_tokens`).
    """
    parallel, n_layers = parts.row.parallel, parts.shape.n_layers
    ends = {letter: row_operators(parts.end_rows(letter)) for letter in parts.ends}
    neurons = StrongestNeurons(bases if parts.inputs else {}, parallel=parallel)
    mlps: dict[str, list[Operator]] = {}
    for layer in tqdm(range(n_layers if parts.inputs else 0), desc="MLPs", file=sys.stderr, mininterval=5):
        rows = parts.mlp_rows(layer)
        for letter, own in rows.items():
            mlps.setdefault(letter, []).append(unit_trace(gram(own)).astype(dtype))
        neurons.add_layer(layer, rows)
    writers, readers = (Dense.of({e: two[:2] for e, two in ends.items()}, mlps, own, dtype) for own in ("EXM", "GIU"))
    mlps.clear()
    arrays = stream_scores(parts.shape, heads, bases, writers, readers, parallel=parallel) | neurons.arrays()
    for letter, kinds in (("E", READS), ("U", "O")):
        if letter in ends and (chosen := {kind: bases[kind] for kind in kinds if kind in bases}):
            arrays |= strongest_tokens(parts.end_rows(letter), ends[letter][2], chosen)
    return arrays
