"""Tables of the whole stream: every writer with every later reader, and each head's strongest neurons and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headspaces.report.results import Arrays, ModelResults
from headspaces.report.stream_results import ONLY_INPUT, Pairs, StreamPairs, stream_effects_of, stream_pairs
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import tidy
from headspaces.spaces import KINDS
from headspaces.stream.scores import ENDS

PRINTED = 10
"""Rows for the reader of each kind of space."""


def stream_scores(models: Sequence[ModelResults]) -> Table:
    """Mean and largest score of every kind of writer with every kind of later reader."""
    columns = """model writer reader vectors n_pairs mean_score mean_z largest_score largest_z writer_layer writer_head
                 reader_layer reader_head"""
    rows = [_score_row(pairs) for pairs in stream_pairs(models)]
    said = [(model.name, (model.stream or {}).get("left_out", ())) for model in models]
    notes = tuple(
        f"{name}: {'; '.join(note.decode() for note in left_out)}." for name, left_out in said if len(left_out)
    )
    return Table(tidy(columns, rows), notes)


def _score_row(pairs: StreamPairs) -> dict[str, Any]:
    there = np.isfinite(pairs.score)
    n_pairs = int(there.sum())
    row: dict[str, Any] = {**pairs.names, "n_pairs": n_pairs}
    if not n_pairs:
        return row
    mean, error = pairs.score[there].mean(), np.sqrt(np.sum(pairs.sd[there] ** 2)) / n_pairs
    largest = np.unravel_index(np.nanargmax(pairs.score), pairs.score.shape)
    row |= {"mean_score": mean, "mean_z": _quotient(mean - 1, error), "largest_score": pairs.score[largest]}
    row["largest_z"] = _quotient(pairs.score[largest] - 1, pairs.sd[largest])
    return row | _where(pairs.letters, largest)


def _where(letters: str, at: Sequence[Any]) -> dict[str, Any]:
    """Name a writer's and a reader's layer and head, where they have these."""
    row: dict[str, Any] = {}
    for letter, side, layer, head in zip(letters, ("writer", "reader"), at[:2], at[2:], strict=True):
        row |= {f"{side}_layer": layer} if letter not in ENDS else {}
        row |= {f"{side}_head": head} if letter in KINDS else {}
    return row


def _quotient(difference: float, deviation: float) -> float:
    return float(difference / deviation) if deviation > 0 else np.nan


def stream_effects(models: Sequence[ModelResults]) -> Table:
    """Effects of all that writes to the stream at all later reads, by kind of writer and of reader."""
    columns = """model loss writer reader n_edges effect absolute_effect largest_effect writer_layer writer_head
                 reader_layer reader_head"""
    return Table(tidy(columns, (_effect_row(*found) for model in models for found in stream_effects_of(model))))


def _effect_row(names: Mapping[str, str], letters: str, effect: Pairs) -> dict[str, Any]:
    there = np.isfinite(effect)
    row: dict[str, Any] = {**names, "n_edges": int(there.sum())}
    if not row["n_edges"]:
        return row
    largest = np.unravel_index(np.nanargmax(np.abs(effect)), effect.shape)
    row |= {"effect": effect[there].sum(), "absolute_effect": np.abs(effect[there]).sum()}
    return row | {"largest_effect": effect[largest]} | _where(letters, largest)


def stream_neurons(models: Sequence[ModelResults]) -> Table:
    """Neurons of later MLPs that read a head's write space, and of earlier ones that write into its read spaces."""
    columns = "model spaces layer head place neuron_layer neuron matrix share isotropic_ratio"
    rows = [
        row | {"neuron_layer": layer, "neuron": neuron, "matrix": _matrix(arrays, row["spaces"], matrix)}
        for model, arrays in _of(models)
        for row, (layer, neuron, matrix) in _places(model, arrays, "neurons", ("layer", "neuron", "matrix"))
    ]
    return _strongest(tidy(columns, rows))


def stream_tokens(models: Sequence[ModelResults]) -> Table:
    """Tokens whose embedding lies most in a head's read spaces, and whose unembedding in its write space."""
    columns = "model spaces layer head place token text share isotropic_ratio"
    rows = [
        row | {"token": token, "text": "" if text is None else repr(text.decode(errors="replace"))}
        for model, arrays in _of(models)
        for row, (token, text) in _places(model, arrays, "tokens", ("token", "text"))
    ]
    notes = tuple(
        f"{model.name}: no tokenizer, tokens by their numbers."
        for model, arrays in _of(models)
        if any(name.startswith("tokens/") for name in arrays) and not any(name.endswith("/text") for name in arrays)
    )
    return _strongest(tidy(columns, rows), notes)


def _of(models: Sequence[ModelResults]) -> list[tuple[ModelResults, Arrays]]:
    return [(model, model.stream) for model in models if model.stream is not None]


def _places(
    model: ModelResults, arrays: Arrays, what: str, names: Sequence[str]
) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Go through all places of all heads' lists: a row with what all lists have, and the labels."""
    for kind in (kind for kind in KINDS if f"{what}/{kind}/share" in arrays):
        share = arrays[f"{what}/{kind}/share"]
        labels = [arrays.get(f"{what}/{kind}/{name}") for name in names]
        for layer, head, place in zip(*np.nonzero(np.isfinite(share)), strict=True):
            at = layer, head, place
            row: Mapping[str, Any] = {
                "model": model.name, "spaces": kind, "layer": layer, "head": head, "place": place,
                "share": share[at], "isotropic_ratio": share[at] / model.isotropic,
            }  # fmt: skip
            yield dict(row), [None if one is None else one[at].item() for one in labels]


def _matrix(arrays: Arrays, kind: str, number: int | None) -> str:
    if kind != "O":
        return "MLP out"
    return ("MLP gate", "MLP up")[number or 0] if "purity/I" in arrays else ONLY_INPUT


def _strongest(frame: pd.DataFrame, notes: tuple[str, ...] = ()) -> Table:
    """Print the strongest rows of each model and kind of space, of each head the first."""
    first = frame[frame["place"] == 0].sort_values("share", ascending=False, kind="stable")
    printed = first.groupby(["model", "spaces"], sort=False).head(PRINTED).sort_index().reset_index(drop=True)
    return Table(frame, notes, printed, f"the {PRINTED} heads of each kind with the largest first share")
