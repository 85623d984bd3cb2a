"""Each head's strongest neurons and tokens on the atlas, and its strongest paths from and to what is no head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from headspaces.report.atlas_packing import Packed, as_base64, pack
from headspaces.report.results import ModelResults
from headspaces.report.stream_results import effects_on_first_loss, stream_pairs
from headspaces.spaces import KINDS
from headspaces.stream.scores import ENDS

Path = tuple[str, float, float | None]

N_MLPS = 3
"""MLPs of each head that are listed: those of the largest scores."""


def strongest_lists(stream: Mapping[str, np.ndarray]) -> Packed:
    """List by ``neurons`` or ``tokens`` and kind of space, layer by layer, head by head; empty without the stage.

    Every list has ``count`` places, the ``share`` of each (undefined where there is none), numbers (uint32) and, of
    tokens, their text where the file has it. ``matrices`` says what the numbers of an MLP's matrices mean.
    """
    lists = {
        what: {kind: _of_kind(stream, f"{what}/{kind}/") for kind in KINDS if f"{what}/{kind}/share" in stream}
        for what in ("neurons", "tokens")
    }
    if not any(lists.values()):
        return {}
    return lists | {"matrices": ["gate", "up"] if "purity/I" in stream else ["in"]}


def _of_kind(stream: Mapping[str, np.ndarray], start: str) -> Packed:
    share = stream[f"{start}share"]
    labels = {name: stream.get(start + name) for name in ("layer", "neuron", "matrix", "token")}
    packed: Packed = {"count": share.shape[-1], "share": pack(share, "share")}
    # Places that are empty (-1) wrap round; their share says that they are empty.
    packed |= {name: as_base64(values.astype("<u4")) for name, values in labels.items() if values is not None}
    if (texts := stream.get(f"{start}text")) is not None:
        packed["text"] = [text.decode(errors="replace") for text in texts.ravel().tolist()]
    return packed


def strongest_paths(model: ModelResults) -> dict[str, list[list[list[Path]]]]:
    """List each head's paths from or to embedding, positions, MLPs and unembedding, by kind, layer and head.

    A path is a name, its score, and its effect on the model's first loss, or None; the strongest first. Embedding,
    positions and unembedding are less their mean; of MLPs those of the largest scores.
    """
    effects, shape = effects_on_first_loss(model), model.shape
    found: dict[str, list[list[list[Path]]]] = {}
    for pairs in stream_pairs([model]):
        is_end, kinds = bool(set(pairs.letters) & set(ENDS)), set(pairs.letters) & set(KINDS)
        if len(kinds) != 1 or is_end != bool(pairs.made):
            continue
        (kind,) = kinds
        lists = found.setdefault(kind, [[[] for _ in range(shape.n_heads(kind))] for _ in range(shape.n_layers)])
        names = pairs.names
        effect = effects.get((names["writer"], names["reader"].split()[0]))
        name = names["reader" if kind == "O" else "writer"]
        for layer, head, other, at in _places(pairs.score, writes=kind == "O", n_others=1 if is_end else N_MLPS):
            size = None if effect is None else float(f"{effect[at]:.3g}")
            lists[layer][head].append((name if is_end else f"L{other} {name}", round(float(pairs.score[at]), 2), size))
    return {kind: [[_strongest(paths) for paths in heads] for heads in layers] for kind, layers in found.items()}


def _strongest(paths: list[Path]) -> list[Path]:
    paths = sorted(paths, key=lambda path: -path[1])
    mlps = [path for path in paths if "MLP" in path[0]]
    return [path for path in paths if path not in mlps[N_MLPS:]]


def _places(
    score: np.ndarray, *, writes: bool, n_others: int
) -> Iterator[tuple[int, int, int, tuple[int, int, int, int]]]:
    """Go through a head's largest scores: its layer and number, the other side's layer, and where the score is."""
    own = score[..., 0].transpose(0, 2, 1) if writes else score[:, :, 0].transpose(1, 2, 0)
    order = np.argsort(-np.nan_to_num(own, nan=-1.0), axis=2, kind="stable")[:, :, :n_others]
    for layer, head in np.ndindex(own.shape[:2]):
        for other in order[layer, head].tolist():
            if np.isfinite(own[layer, head, other]):
                yield layer, head, other, (layer, other, head, 0) if writes else (other, layer, 0, head)
