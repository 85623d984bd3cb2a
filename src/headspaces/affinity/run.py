"""Affinity of the heads of earlier layers with those of later ones, for a whole model, block by block (PK).

The scores themselves are in :mod:`headspaces.affinity.scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from headspaces.affinity.informativeness import informativeness
from headspaces.affinity.maps import Maps
from headspaces.affinity.scores import FAMILIES
from headspaces.devices import ToDevice, identity
from headspaces.errors import InputError
from headspaces.geometry.bases import RANK_RTOL
from headspaces.geometry.heads import LayerHeads
from headspaces.spaces import KINDS, READS

Block: TypeAlias = Callable[[], Sequence[LayerHeads]]
"""Reads consecutive layers of a model."""

SCORES = ("simple_cs", "cs", "cka", "procrustes", "cka_invariant", "procrustes_invariant")
"""Scores beside ``pk``."""


def affinity(
    blocks: Sequence[Block],
    *,
    scores: Sequence[str] = SCORES,
    same_kind: bool = False,
    fold_pk: bool = False,
    dtype: str = "float64",
    to_device: ToDevice = identity,
    rtol: float = RANK_RTOL,
) -> dict[str, np.ndarray]:
    """Scores of all heads with all heads of later layers.

    Every block reads consecutive layers of the model, in order. No more than two blocks and what is derived from them
    are in memory at a time; a reader is called again for every earlier block. ``scores`` of :data:`SCORES` are wanted
    beside ``pk``, and with ``same_kind`` those between maps of one kind (PK table 2; ``cs`` has none). With ``fold_pk``
    the norms are folded into the spaces of ``pk``; ``dtype`` of the arithmetic is ``float64`` or ``float32``; ``rtol``
    is the tolerance of ranks. What makes the factors, and Procrustes, are LAPACK's on any device. Raises
    :class:`InputError` if the model lacks a kind.

    Returns
    -------
    dict
        =========================  =================================================  =================================
        name                       dimensions (float64)                               meaning
        =========================  =================================================  =================================
        pk/{XY}                    source_layer target_layer source_head target_head  PK, for X and Y in O, Q, K, V
        simple_cs/{OX}             the same, for X in Q, K, V                         Simple-CS
        cka/{OX}, procrustes/{OX}  the same                                           head dimensions as samples
        …_invariant/{OX}           the same                                           residual coordinates as samples
        cs/{OX}                    the same, by query head on both sides              Composition Score, full products
        same_kind/{score}/{XX}     the same; with the pairs inside a layer            the score between maps of a kind
        kl                         source, target in the order Q K V O                KL(random || observed PK), nats
        =========================  =================================================  =================================

        NaN where the target layer is not later. K and V are by key-value head, except in ``cs``: W_QK and W_OV belong
        to query heads. A head whose map is zero has PK and Procrustes 0 with all others and no value (NaN) in the
        other scores.
    """
    parts: dict[str, dict[tuple[int, int], np.ndarray]] = {}
    read_maps = partial(_read_maps, fold_pk=fold_pk, dtype=dtype, to_device=to_device, rtol=rtol)
    for i in range(len(blocks)):
        source = read_maps(blocks[i])
        d_model, d_head = source.weights.factors.shape[2:]
        for j in range(i, len(blocks)):
            # The later block is held by the iterator alone: it is gone before the next is read.
            for name, part in _block_scores(source, source if j == i else read_maps(blocks[j]), scores, same_kind):
                parts.setdefault(name, {})[i, j] = part
    arrays = {name: _assembled(part, len(blocks)) for name, part in parts.items()}
    pk = {name.removeprefix("pk/"): values for name, values in arrays.items() if name.startswith("pk/")}
    return arrays | {"kl": informativeness(pk, d_model, d_head)}


def _read_maps(read: Block, **settings: Any) -> Maps:
    layers = read()
    if missing := [kind for kind in KINDS if kind not in layers[0].factors]:
        raise InputError(
            f"layer {layers[0].layer}: no weights of kind {', '.join(missing)}; affinity needs the kinds {KINDS}"
        )
    return Maps(layers, **settings)


def _block_scores(
    source: Maps, target: Maps, scores: Sequence[str], same_kind: bool
) -> Iterator[tuple[str, np.ndarray]]:
    for names, compute in FAMILIES.items():
        wanted = [name for name in names if name in ("pk", *scores)]
        if not wanted:
            continue
        by_pair = compute(source, target, KINDS, KINDS) if names == ("pk",) else compute(source, target, "O", READS)
        for name in wanted:
            for pair, values in by_pair[name].items():
                yield f"{name}/{pair}", _without_own_layer(values) if target is source else values
        for kind in KINDS if same_kind and names != ("cs",) else "":
            by_pair = by_pair if names == ("pk",) else compute(source, target, kind, kind)
            for name in wanted:
                yield f"same_kind/{name}/{kind}{kind}", by_pair[name][kind + kind]


def _without_own_layer(values: np.ndarray) -> np.ndarray:
    return np.where(np.eye(len(values), dtype=bool)[:, :, None, None], np.nan, values)


def _assembled(parts: Mapping[tuple[int, int], np.ndarray], n_blocks: int) -> np.ndarray:
    """Put the parts of all block pairs together; NaN where the target's block is earlier."""
    n_layers = [parts[i, i].shape[0] for i in range(n_blocks)]
    starts = np.cumsum([0, *n_layers]).tolist()
    whole = np.full((starts[-1], starts[-1], *parts[0, 0].shape[2:]), np.nan)
    for (i, j), part in parts.items():
        whole[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = part
    return whole
