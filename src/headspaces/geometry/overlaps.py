"""Overlaps of a model: every overlap, angle and composition score of its heads, as the overlaps file holds them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from headspaces.devices import Array, ToDevice, identity
from headspaces.geometry.angles import smallest_angles
from headspaces.geometry.bases import random_condition
from headspaces.geometry.heads import LayerHeads, fold
from headspaces.geometry.pairs import layer_overlaps, normalised, smaller_ranks
from headspaces.geometry.spread_sources import sources_across
from headspaces.spaces import READS, kinds_of

CENTRED_MEAN = 1e-6
"""Mean of a unit vector's entries below which it counts as centred, in float32, too."""


def observed_overlaps(
    blocks: Iterable[Mapping[str, np.ndarray]], to_device: ToDevice = identity
) -> dict[str, np.ndarray]:
    """Overlaps, smallest angles, ranks and direct sums of all head pairs.

    Blocks of layers are as :func:`headspaces.geometry.bases.block_bases` makes them, in order. Where only writes are
    known, no more than one block is held at a time; else all bases, and the reads' once more. The device computes the
    kernel and the products of bases.

    Returns
    -------
    dict
        =========================== ============================================== ====== ==========================
        field                       dimensions                                     unit   meaning
        =========================== ============================================== ====== ==========================
        ``within/{X}/rho``          layer, head, head                              1      overlap; 1 on the diagonal
        ``within/{X}/angle``        layer, head, head                              degree smallest principal angle
        ``cross/O{Y}/rho``          writer_ and reader_layer, writer_, reader_head 1      NaN unless reader is later
        ``cross/O{Y}/angle``        the same                                       degree the same
        ``sources/O{Y}/…``          writer_layer, reader_layer, removed            1      see ``sources_across``
        ``direct_sum/{X}/…``        layer                                          1      see ``block_bases``
        ``…/random_condition``      none                                           1      see ``random_condition``
        ``rank/{X}``                layer, head                                    1      numerical rank
        ``within_rounding/{X}``     the same                                       1      see ``block_bases``
        =========================== ============================================== ====== ==========================
    """
    parts: dict[str, list[np.ndarray]] = {}
    kept: list[dict[str, np.ndarray]] = []
    sizes: dict[str, tuple[int, int, int]] = {}
    for block in tqdm(blocks, desc="within layers", unit="block", file=sys.stderr, mininterval=5):
        kinds = kinds_of(block)
        bases = {kind: to_device(block[f"{kind}/basis"]) for kind in kinds}
        pairs = layer_overlaps(bases, sources="", targets="")
        for kind in kinds:
            smaller = np.stack([smaller_ranks(rank, rank) for rank in block[f"rank/{kind}"]])
            parts.setdefault(f"within/{kind}/rho", []).append(normalised(pairs.within[kind], smaller))
            angles = np.stack([smallest_angles(layer, layer) for layer in bases[kind]])
            parts.setdefault(f"within/{kind}/angle", []).append(angles)
            sizes.setdefault(kind, _room(block[f"{kind}/basis"][0]))
        for name in block:
            if name.startswith(("rank/", "direct_sum/", "within_rounding/")):
                parts.setdefault(name, []).append(block[name])
        if "O" in kinds and len(kinds) > 1:
            kept.append(dict(block))
        del block, bases
    arrays = {name: np.concatenate(values) for name, values in parts.items()}
    for kind, size in sizes.items():
        arrays[f"direct_sum/{kind}/random_condition"] = np.array(random_condition(*size))
    return arrays | (_across(kept, to_device) if kept else {})


def _room(bases: Float[np.ndarray, "head d_model d_head"]) -> tuple[int, int, int]:
    """Count heads, dimensions that a layer's spaces lie in (one less where all have mean zero), and directions."""
    n_heads, d_model, d_head = bases.shape
    centred = bool(np.abs(bases.mean(axis=1)).max() < CENTRED_MEAN)
    return n_heads, d_model - centred, d_head


def _across(blocks: list[dict[str, np.ndarray]], to_device: ToDevice) -> dict[str, np.ndarray]:
    kinds = kinds_of(blocks[0])
    # A kind's blocks go as soon as they are joined.
    bases = {kind: np.concatenate([block.pop(f"{kind}/basis") for block in blocks]) for kind in kinds}
    ranks = {kind: np.concatenate([block[f"rank/{kind}"] for block in blocks]) for kind in kinds}
    arrays: dict[str, np.ndarray] = {}
    for spaces, squared in layer_overlaps(bases, within="", to_device=to_device).across.items():
        smaller = np.minimum.outer(ranks["O"], ranks[spaces[1]]).transpose(0, 2, 1, 3)
        arrays[f"cross/{spaces}/rho"] = normalised(squared, smaller)
        arrays[f"cross/{spaces}/angle"] = np.full(squared.shape, np.nan)
    for writer, kind, angles in _angles_across({kind: to_device(bases[kind]) for kind in kinds}):
        arrays[f"cross/O{kind}/angle"][writer, writer + 1 :] = angles
    return arrays | sources_across(bases, ranks, to_device)


def _angles_across(bases: Mapping[str, Array]) -> Iterator[tuple[int, str, Float[np.ndarray, "later writer reader"]]]:
    """Give every layer's smallest angles of its writes with the later reads, kind by kind."""
    n_layers = len(bases["O"])
    for writer in tqdm(range(n_layers - 1), desc="angles across layers", unit="layer", file=sys.stderr, mininterval=5):
        for kind in (kind for kind in READS if kind in bases):
            readers = bases[kind][writer + 1 :]
            angles = smallest_angles(bases["O"][writer], readers.reshape(-1, *readers.shape[2:]))
            yield writer, kind, angles.reshape(len(angles), *readers.shape[:2]).swapaxes(0, 1)


def composition_scores(
    read: Callable[[], Iterable[LayerHeads]], dtype: str = "float64", to_device: ToDevice = identity
) -> dict[str, np.ndarray]:
    """Score how strongly every writer's map composes with every later reader's, from the maps themselves.

    ``read`` reads the heads of all layers in order. It is called once for the bare maps and once for those with the
    norms' linear part, so that one set of them is in memory at a time. ``cross/O{Y}/simple_composition`` is ``||W_X
    W_O|| / (||W_X|| ||W_O||)`` of the bare maps, ``cross/O{Y}/weighted`` RW's spectrally weighted score ``D ||R^T B||^2
    / (||R||^2 ||B||^2)`` of the folded ones (appendix G): [writer_layer, reader_layer, writer_head, reader_head], NaN
    unless the reader is later, or where a map is zero.
    """
    arrays = {}
    for folded in (False, True):
        lists: dict[str, list[np.ndarray]] = {}
        for layer in read():
            for kind, factors in layer.factors.items():
                lists.setdefault(kind, []).append(
                    unit_factors((fold(layer, kind) if folded else factors).astype(dtype))
                )
        stacks = {kind: np.stack(lists.pop(kind)) for kind in list(lists)}
        for spaces, squared in layer_overlaps(stacks, within="", to_device=to_device).across.items():
            if folded:
                arrays[f"cross/{spaces}/weighted"] = stacks["O"].shape[2] * squared
            else:
                arrays[f"cross/{spaces}/simple_composition"] = np.sqrt(squared)
    return arrays


def unit_factors(factors: Float[np.ndarray, "head d_model d_head"]) -> Float[np.ndarray, "head d_model d_head"]:
    """Scale factors to Frobenius norm 1, NaN for a zero map; in two steps, so that no square leaves the numbers."""
    largest = np.abs(factors).max(axis=(1, 2), keepdims=True)
    scaled = np.divide(factors, largest, out=np.full(factors.shape, np.nan, dtype=factors.dtype), where=largest > 0)
    unit: np.ndarray = scaled / np.sqrt(np.sum(scaled * scaled, axis=(1, 2), keepdims=True))
    return unit
