"""The stages attribution and ablation: all edges' effects on two losses, and the exact ones of the strongest edges.

The losses are the mean next-token loss on a *text*, and on the second copies of random tokens that repeat (*repeats*):
there nothing helps but looking back, so that the edges of the induction circuit stand out. The toy model has no text.
A file of *prompts* adds a third measure, the difference of two answers' logits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headspaces.activations.forward_pass import cut_windows
from headspaces.activations.texts import Text
from headspaces.attribution.ablation import MEAN, ZERO, Edge, ablate
from headspaces.attribution.cases import Case, repeated_cases, text_cases
from headspaces.attribution.first_order import first_order
from headspaces.attribution.prompts import prompt_cases
from headspaces.attribution.running import RunningModel
from headspaces.attribution.second_order import second_order
from headspaces.files import read_bytes
from headspaces.spaces import READS

TEXT, REPEATS, PROMPTS = "text", "repeats", "prompts"

N_SEQUENCES, N_REPEATED = 8, 64
"""Random sequences, and the tokens that stand in each twice."""


@dataclass(frozen=True)
class Losses:
    """The cases of each loss by its name, and what a file says of them."""

    cases: Mapping[str, Sequence[Case]]
    facts: Mapping[str, str | int | float]


def losses(
    model: RunningModel, text: Text | None, n_windows: int, n_tokens: int, seed: int, prompts: str | None = None
) -> Losses:
    """Make the cases of all losses; the toy model, without a tokenizer, does without the text and the file ``prompts``.

    Raises :class:`InputError` if the text is shorter than the windows, or the prompts are none.
    """
    cases: dict[str, Sequence[Case]] = {}
    facts: dict[str, str | int | float] = {}
    before = np.array([], dtype=np.int64)
    if model.tokenizer is not None and text is not None:
        windows = cut_windows(model.tokenizer, text, n_windows, n_tokens)
        before = windows.before
        cases[TEXT] = text_cases(windows)
        facts |= {"text_source": text.source, "text_version": text.version, "text_sha256": text.sha256}
        facts |= windows.facts()
    n_repeated = N_REPEATED
    if model.longest is not None:
        n_repeated = min(n_repeated, (model.longest - len(before)) // 2)
    cases[REPEATS] = repeated_cases(
        model.known_tokens, before, n_sequences=N_SEQUENCES, n_repeated=n_repeated, seed=seed
    )
    if prompts and model.tokenizer is not None:
        cases[PROMPTS] = prompt_cases(prompts, model.tokenizer)
        facts |= {"n_prompts": len(cases[PROMPTS]), "prompts_sha256": hashlib.sha256(read_bytes(prompts)).hexdigest()}
    return Losses(cases, facts | {"n_sequences": N_SEQUENCES, "n_repeated": n_repeated, "seed": seed})


def prefix(loss: str) -> str:
    """Where the arrays of a loss stand in the attribution file: those of the text at its root."""
    return "" if loss == TEXT else f"{loss}/"


def attribution(model: RunningModel, chosen: Losses, n_second: int) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """All arrays of the attribution file, and its attributes ``loss_text`` and ``loss_repeats`` in nats per token.

    They are those of :func:`headspaces.attribution.first_order.first_order`, for the text as they are, for repeats
    under ``repeats/``, for prompts under ``prompts/`` (``loss_prompts`` is the mean difference of their logits), and
    ``{X}/effect_second_order``: A_2 of the ``n_second`` edges of each kind of largest ``|A|``, NaN for all others.
    """
    arrays: dict[str, np.ndarray] = {}
    values: dict[str, float] = {}
    for loss, cases in chosen.cases.items():
        found, values[f"loss_{loss}"] = first_order(model, cases)
        found |= _second_order_of_strongest(model, cases, found, n_second)
        arrays |= {prefix(loss) + name: array for name, array in found.items()}
    return arrays, values


def _second_order_of_strongest(
    model: RunningModel, cases: Sequence[Case], effects: Mapping[str, np.ndarray], n_edges: int
) -> dict[str, np.ndarray]:
    first = {kind: effects[f"{kind}/effect"] for kind in READS}
    edges = [edge for kind, values in first.items() for edge in strongest(kind, np.abs(values), n_edges)]
    arrays = {kind: np.full_like(values, np.nan) for kind, values in first.items()}
    for edge, effect in zip(edges, second_order(model, cases, edges).mean(axis=1), strict=True):
        arrays[edge.kind][edge.indices] = effect
    return {f"{kind}/effect_second_order": values for kind, values in arrays.items()}


@dataclass(frozen=True)
class ChosenEdge:
    """An edge, the score by which it is among the strongest, and another of the same layers and kind at random."""

    edge: Edge
    chosen_by: str
    matched: Edge


def choose_edges(
    scores: Mapping[str, Mapping[str, Float[np.ndarray, "writer_layer reader_layer writer_head reader_head"]]],
    n_strongest: int,
    seed: int,
) -> list[ChosenEdge]:
    """Choose the strongest edges of each kind of read by the size of each score, given by score and kind.

    An edge that two scores choose stands twice, with the same matched one. A layer pair with a single edge of a kind
    has no other: the edge is matched with itself.
    """
    rng = np.random.default_rng(seed)
    chosen, matches = [], {}
    for score, by_kind in scores.items():
        for kind, values in by_kind.items():
            for edge in strongest(kind, np.abs(values), n_strongest):
                if edge not in matches:
                    matches[edge] = _matched(edge, values.shape[2:], rng)
                chosen.append(ChosenEdge(edge, score, matches[edge]))
    return chosen


def strongest(kind: str, sizes: np.ndarray, n_strongest: int | None) -> list[Edge]:
    """List the edges of largest size, the largest first; all without a number."""
    indices = np.argwhere(np.isfinite(sizes))
    order = np.argsort(-sizes[tuple(indices.T)], kind="stable")[:n_strongest]
    return [
        Edge(kind, writer_layer, writer_head, reader_layer, reader_head)
        for writer_layer, reader_layer, writer_head, reader_head in indices[order].tolist()
    ]


def _matched(edge: Edge, n_heads: tuple[int, ...], rng: np.random.Generator) -> Edge:
    others = [
        edge._replace(writer_head=writer, reader_head=reader)
        for writer in range(n_heads[0])
        for reader in range(n_heads[1])
        if (writer, reader) != (edge.writer_head, edge.reader_head)
    ]
    return others[rng.integers(len(others))] if others else edge


def ablation(
    model: RunningModel, chosen: Losses, effects: Mapping[str, np.ndarray], edges: Sequence[ChosenEdge]
) -> dict[str, np.ndarray]:
    """All arrays of the ablation file: exact changes of the first loss that the model has, by edge and window.

    ``effects`` are the arrays of the attribution file. Returns ``kind``, ``chosen_by``, ``writer_layer``,
    ``writer_head``, ``reader_layer``, ``reader_head``, ``first_order``, ``second_order``; ``zero`` and ``mean``:
    without the write, and with its mean in its place; ``random_writer_head``, ``random_reader_head`` and
    ``random_zero`` of the matched edge.
    """
    loss, cases = next(iter(chosen.cases.items()))
    own = list(dict.fromkeys(one.edge for one in edges))
    zero, mean = (dict(zip(own, rows, strict=True)) for rows in ablate(model, cases, own, (ZERO, MEAN)))
    others = [edge for edge in dict.fromkeys(one.matched for one in edges) if edge not in zero]
    of_others = dict(zip(others, ablate(model, cases, others)[0], strict=True)) if others else {}
    names = ("writer_layer", "writer_head", "reader_layer", "reader_head")
    arrays = {name: np.array([getattr(one.edge, name) for one in edges]) for name in names}
    arrays["kind"] = np.array([one.edge.kind.encode() for one in edges])
    arrays["chosen_by"] = np.array([one.chosen_by.encode() for one in edges])
    arrays["random_writer_head"] = np.array([one.matched.writer_head for one in edges])
    arrays["random_reader_head"] = np.array([one.matched.reader_head for one in edges])
    arrays["first_order"] = np.array(
        [effects[f"{prefix(loss)}{one.edge.kind}/effect"][one.edge.indices] for one in edges]
    )
    curved = dict(zip(own, second_order(model, cases, own).mean(axis=1), strict=True))
    arrays["second_order"] = np.array([curved[one.edge] for one in edges])
    arrays["zero"] = np.stack([zero[one.edge] for one in edges])
    arrays["mean"] = np.stack([mean[one.edge] for one in edges])
    arrays["random_zero"] = np.stack([(zero | of_others)[one.matched] for one in edges])
    return arrays


def scores_to_choose_by(
    effects: Mapping[str, np.ndarray], overlaps: Mapping[str, np.ndarray], loss: str
) -> dict[str, dict[str, np.ndarray]]:
    """Give the scores whose strongest edges are ablated, by name and kind, from the attribution and overlaps files."""
    names = {"rho": "rho", "weighted": "weighted", "simple_cs": "simple_composition"}
    found = {"first_order": {kind: effects[f"{prefix(loss)}{kind}/effect"] for kind in READS}}
    for score, dataset in names.items():
        found[score] = {kind: overlaps[f"cross/O{kind}/{dataset}"] for kind in READS}
    return found
