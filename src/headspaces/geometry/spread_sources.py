"""Sources of a layer's overlaps: shared directions, single coordinates, the norm's gain, the layer's singular values.

RW 5.3 says that learnt writes go to a few directions much more strongly. Here some directions are taken out of all
spaces of a layer and kind, and what is left of the overlaps is set beside what there was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int
from scipy.sparse.linalg import LinearOperator, eigsh
from tqdm import tqdm

from headspaces.devices import ToDevice, identity
from headspaces.geometry.angles import smallest_angles
from headspaces.geometry.heads import LayerHeads, fold
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.pairs import layer_overlaps, normalised, smaller_ranks
from headspaces.geometry.statistics import pair_statistics
from headspaces.spaces import kinds_of
from headspaces.threads import map_in_order

REMOVED = (1, 4, 16, 64)
"""Numbers of directions, or coordinates, that are taken out."""

DENSE_SIDE = 2048
"""Up to this dimension of the stream all eigenvectors of S are computed at once; beyond, the largest by Lanczos."""

INSIDE = 1 - 1e-12
"""Squared cosine with what is taken out from which a direction of a space is gone: its rank falls by one."""


def spread_sources(
    blocks: Iterable[tuple[Mapping[str, np.ndarray], Iterable[LayerHeads]]], *, fold_norms: bool
) -> dict[str, np.ndarray]:
    """Take the overlaps within every layer apart by where they come from.

    Parameters
    ----------
    blocks
        Of consecutive layers, in order: bases as :func:`headspaces.geometry.bases.block_bases` makes them, and the
        heads that they are of.
    fold_norms
        Whether the norms are folded into these bases.

    Returns
    -------
    dict
        ================================= ================= ==== ======================================================
        field                             dimensions        unit meaning
        ================================= ================= ==== ======================================================
        ``sources/{X}/directions_mean``   layer, removed    1    mean rho without the top eigenvectors of S = sum P_i
        ``sources/{X}/directions_spread`` the same          1    its standard deviation (ddof = 0)
        ``sources/{X}/coordinates_mean``  the same          1    mean rho without the largest diagonal entries of S
        ``sources/{X}/coordinates_spread`` the same         1    its standard deviation
        ``sources/{X}/participation``     layer             1    coordinates that the closest pair's direction spreads
                                                                 over, ``1 / sum u_c^4``
        ``sources/{X}/singular_values``   layer, singular   1    of the layer's maps side by side, descending
        ``sources/gain_max``              layer             1    largest absolute gain of the read norm; NaN without one
        ``sources/gain_median``           layer             1    their median
        ================================= ================= ==== ======================================================

        NaN where a layer has no pair, or nothing is left.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for block, layers in blocks:
        kinds = kinds_of(block)
        for position, heads in enumerate(layers):
            gain = np.abs([np.nan] if heads.read_norm.gain is None else heads.read_norm.gain)
            parts.setdefault("sources/gain_max", []).append(gain.max())
            parts.setdefault("sources/gain_median", []).append(np.median(gain))
            of_kind = partial(_of_kind, block, position, heads, fold_norms)
            for kind, found in zip(kinds, map_in_order(of_kind, kinds), strict=True):
                for name, value in found.items():
                    parts.setdefault(f"sources/{kind}/{name}", []).append(value)
    return {name: np.stack(values) for name, values in parts.items()}


def _of_kind(
    block: Mapping[str, np.ndarray], position: int, heads: LayerHeads, fold_norms: bool, kind: str
) -> dict[str, np.ndarray]:
    factors = fold(heads, kind) if fold_norms else heads.factors[kind]
    bases = block[f"{kind}/basis"][position].astype(np.float64, copy=False)
    found = layer_sources(bases, block[f"rank/{kind}"][position])
    return found | {"singular_values": layer_singular_values(factors)}


def layer_sources(
    bases: Float[np.ndarray, "head d_model d_head"], ranks: Int[np.ndarray, " head"]
) -> dict[str, np.ndarray]:
    """Give the fields of :func:`spread_sources` that the spaces of one layer and kind decide."""
    arrays = {"participation": np.array(closest_participation(bases))}
    for name, removed in _removed(_stacked(bases)):
        left = [pair_statistics(_rho_without(bases, ranks, removed[:, :k])) for k in REMOVED]
        for statistic in ("mean", "spread"):
            arrays[f"{name}_{statistic}"] = np.array([one[statistic] for one in left])
    return arrays


def sources_across(
    bases: Mapping[str, Float[np.ndarray, "layer _ d_model d_head"]],
    ranks: Mapping[str, Int[np.ndarray, "layer _"]],
    to_device: ToDevice = identity,
) -> dict[str, np.ndarray]:
    """Take the overlaps of writes with later reads apart by what the heads of the writing layer share.

    From the writes of a layer the top eigenvectors of their S, or its largest coordinates, are taken out; the reads
    stay as they are. Returns ``sources/O{Y}/directions_mean`` and the other three names of :func:`spread_sources`,
    [writer_layer, reader_layer, removed], NaN unless the reader is later.
    """
    writes, own_ranks = bases["O"], ranks["O"]
    reads = {kind: stack for kind, stack in bases.items() if kind != "O"}
    removed = [dict(_removed(_stacked(layer))) for layer in writes.astype(np.float64, copy=False)]
    arrays: dict[str, np.ndarray] = {}
    steps = [(name, at) for name in ("directions", "coordinates") for at in range(len(REMOVED))]
    for name, at in tqdm(steps, desc="sources across layers", file=sys.stderr, mininterval=5):
        rest, rest_ranks = np.empty_like(writes), np.empty_like(own_ranks)
        for layer, own in enumerate(removed):
            whole = writes[layer].astype(np.float64, copy=False)
            rest[layer], rest_ranks[layer] = without_directions(whole, own_ranks[layer], own[name][:, : REMOVED[at]])
        pairs = layer_overlaps({"O": rest, **reads}, within="", to_device=to_device)
        for spaces, squared in pairs.across.items():
            smaller = np.minimum.outer(rest_ranks, ranks[spaces[1]]).transpose(0, 2, 1, 3)
            rho = normalised(squared, smaller).reshape(*squared.shape[:2], -1)
            for statistic, values in (("mean", rho.mean(axis=2)), ("spread", rho.std(axis=2))):
                field = f"sources/{spaces}/{name}_{statistic}"
                arrays.setdefault(field, np.full((*values.shape, len(REMOVED)), np.nan))[:, :, at] = values
    return arrays


def _stacked(bases: Float[np.ndarray, "head d_model d_head"]) -> Float[np.ndarray, "d_model width"]:
    return bases.transpose(1, 0, 2).reshape(bases.shape[1], -1)


def _removed(stacked: Float[np.ndarray, "d_model width"]) -> Iterator[tuple[str, Float[np.ndarray, "d_model k"]]]:
    """Give what can be taken out of a layer's spaces, the largest first."""
    yield "directions", top_directions(stacked, max(REMOVED))
    largest = np.argsort(-np.sum(stacked**2, axis=1), kind="stable")[: max(REMOVED)]
    yield "coordinates", np.eye(len(stacked))[:, largest]


def without_directions(
    bases: Float[np.ndarray, "head d_model d_head"],
    ranks: Int[np.ndarray, " head"],
    removed: Float[np.ndarray, "d_model k"],
) -> tuple[Float[np.ndarray, "head d_model d_head"], Int[np.ndarray, " head"]]:
    """Orthonormal bases, up to their order, of spaces projected to where some orthonormal directions are not.

    With ``U^T E = W c V^T`` the projected basis ``U - E E^T U`` has the Gram matrix ``I - W c^2 W^T``; multiplied by
    its inverse root it is orthonormal again. A direction that lies in what is removed is gone: the rank falls, and the
    columns span the rest, not orthonormal but with the same projection ``B B^T``.
    """
    left, cosines, _ = np.linalg.svd(bases.swapaxes(1, 2) @ removed, full_matrices=False)
    gone = cosines**2 > INSIDE
    stretch = np.where(gone, 0.0, 1 / np.sqrt(1 - np.where(gone, 0.0, cosines) ** 2)) - 1
    projected = bases - removed @ (removed.T @ bases)
    return projected + (projected @ (left * stretch[:, None, :])) @ left.swapaxes(1, 2), ranks - gone.sum(axis=1)


def _rho_without(bases: np.ndarray, ranks: np.ndarray, removed: np.ndarray) -> Float[np.ndarray, " pair"]:
    pairs = np.triu_indices(len(bases), 1)
    rest, rest_ranks = without_directions(bases, ranks, removed)
    return normalised(squared_overlaps(rest, rest), smaller_ranks(rest_ranks, rest_ranks))[pairs]


def top_directions(stacked: Float[np.ndarray, "d_model width"], k: int) -> Float[np.ndarray, "d_model k"]:
    """Eigenvectors of ``S = B B^T`` of the k largest eigenvalues, descending, of stacked bases B."""
    d_model = len(stacked)
    k = min(k, d_model)
    if d_model <= DENSE_SIDE:
        vectors = scipy.linalg.eigh(stacked @ stacked.T, subset_by_index=[d_model - k, d_model - 1])[1]
    else:
        times_s = LinearOperator((d_model, d_model), matvec=lambda x: stacked @ (stacked.T @ x), dtype=np.float64)
        vectors = eigsh(times_s, k, v0=np.ones(d_model))[1]
    return np.asarray(vectors[:, ::-1])


def closest_participation(bases: Float[np.ndarray, "head d_model d_head"]) -> float:
    """Participation ratio ``1 / sum u_c^4`` of the direction of the pair of heads with the smallest angle.

    The direction u is the one halfway between their first principal vectors: 1 for a single coordinate, D for all
    alike. NaN without a pair.
    """
    pairs = np.triu_indices(len(bases), 1)
    angles = smallest_angles(bases, bases)[pairs]
    if not np.isfinite(angles).any():
        return float("nan")
    first, second = (int(heads[np.nanargmin(angles)]) for heads in pairs)
    left, _, right = np.linalg.svd(bases[first].T @ bases[second])
    direction = bases[first] @ left[:, 0] + bases[second] @ right[0]
    return float(np.sum(direction**2) ** 2 / np.sum(direction**4))


def layer_singular_values(factors: Float[np.ndarray, "head d_model d_head"]) -> Float[np.ndarray, " singular"]:
    """Singular values of a layer's maps of one kind side by side (D x n d, RW 5.3), descending.

    From the smaller Gram matrix: the error is below 1e-7 of the largest.
    """
    largest = np.abs(factors).max(initial=0.0) or 1.0
    stacked = factors.transpose(1, 0, 2).reshape(factors.shape[1], -1) / largest
    gram = stacked @ stacked.T if len(stacked) <= stacked.shape[1] else stacked.T @ stacked
    singular: np.ndarray = largest * np.sqrt(np.maximum(scipy.linalg.eigvalsh(gram)[::-1], 0.0))
    return singular
