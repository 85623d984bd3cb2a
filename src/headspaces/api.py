"""A quick look at models without the workflow: what one is, its strongest pairs, two of one shape side by side.

Overlaps come from ``results/overlaps/`` where the workflow left them for the same weights; else they are computed in
memory from the checkpoint, of which only the tensors in question are fetched. Everything returned is plain values,
ready for JSON. Heavy imports wait until they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspaces.errors import InputError
from headspaces.named_models import Found, open_checkpoint
from headspaces.spaces import KINDS
from headspaces.study.configuration import Study, own_model
from headspaces.weights.fetch import fetch_block
from headspaces.weights.headers import Headers
from headspaces.weights.hub.repository import bytes_to_fetch
from headspaces.weights.source import read_headers

if TYPE_CHECKING:
    import numpy as np

WITHIN, ACROSS = tuple(KINDS), ("OQ", "OK", "OV")
"""Spaces that are compared within a layer, and from writers to the readers of later layers."""

DOES = {"O": "writes", "Q": "queries read", "K": "keys read", "V": "values read"}


def inspect_model(found: Found) -> dict[str, Any]:
    """Describe a model from its headers: architecture, spaces, bytes, and which stages of the workflow it allows.

    Returns
    -------
    dict
        ``model, source, revision, architecture, layout, norm, shape, isotropic``, ``spaces`` (by kind: heads, their
        summed width, the deficiency that the dimension forces on their sum), ``n_tensors, n_files, dtypes, bytes,
        bytes_to_fetch``, ``stages`` (by stage None, or why it is left out), ``notes``.
    """
    with open_checkpoint(found) as (headers, _):
        model = found.row or own_model(found.source, headers)
        study = Study(found.name, {model.name: model}, {})
        shape = headers.shape
        return {
            "model": found.name,
            "source": headers.source,
            "revision": headers.revision,
            "architecture": headers.model_type,
            "layout": headers.layout,
            "norm": headers.norm,
            "shape": asdict(shape),
            "isotropic": shape.d_head / shape.d_model,
            "spaces": {kind: _room(headers, kind) for kind in headers.kinds},
            "n_tensors": len(headers.tensors),
            "n_files": len(headers.files),
            "dtypes": sorted({tensor.dtype for tensor in headers.tensors.values()}),
            "bytes": headers.n_bytes(),
            "bytes_to_fetch": bytes_to_fetch(headers, model.blocks.values()),
            "stages": {stage: left_out.get(model.name) for stage, left_out in study.stages.items()},
            "notes": list(headers.notes),
        }


def _room(headers: Headers, kind: str) -> dict[str, Any]:
    """How much of the residual stream the spaces of one kind in a layer would fill together."""
    shape = headers.shape
    width = shape.n_heads(kind) * shape.d_head
    # A LayerNorm's folded reads have mean zero.
    room = shape.d_model - (kind != "O" and headers.norm == "layernorm")
    return {"what": DOES[kind], "heads": shape.n_heads(kind), "width": width, "forced_deficiency": max(0, width - room)}


@dataclass(frozen=True)
class Overlaps:
    """Overlaps of one model, of the spaces that were asked for.

    Attributes
    ----------
    facts
        Model, source, revision, whether norms are folded, and where the overlaps come from.
    shape
        Numbers and widths of layers and heads.
    rho
        By spaces: [layer, head, head] within layers, [layer, later layer, head, head] across; NaN where undefined.
    smaller_rank
        By spaces, the smaller rank of each pair, in the same shape.
    angle
        The smallest angle in degrees of the pair of these spaces at this place.
    """

    facts: Mapping[str, Any]
    shape: Mapping[str, int]
    rho: Mapping[str, np.ndarray]
    smaller_rank: Mapping[str, np.ndarray]
    angle: Callable[[str, tuple[int, ...]], float]


def read_overlaps(found: Found, spaces: Sequence[str] = (), *, fold: bool = True) -> Overlaps:
    """Read a model's overlaps from the results, or compute them where these are of other weights or of none.

    Parameters
    ----------
    found
        The model.
    spaces
        Names of :data:`WITHIN` and :data:`ACROSS`; by default all that the model has.
    fold
        Whether the norm's linear part belongs to the reads.

    Raises
    ------
    InputError
        If the checkpoint cannot be read or lacks a kind of heads.
    """
    return _stored(found, spaces, fold) or _computed(found, spaces, fold)


def _stored(found: Found, spaces: Sequence[str], fold: bool) -> Overlaps | None:
    from headspaces.report.results import StoredArrays
    from headspaces.store import read_attributes

    path = found.overlaps
    if not path.is_file():
        return None
    attributes = read_attributes(path, "overlaps")
    arrays = StoredArrays(path, "overlaps")
    chosen = list(spaces) or [name for name in (*WITHIN, *ACROSS) if f"{_place(name)}/rho" in arrays]
    if any(f"{_place(name)}/rho" not in arrays for name in chosen):
        return None
    if attributes["source"] != found.source or attributes["fold"] != fold or _changed(found, attributes["revision"]):
        return None
    return Overlaps(
        _facts(found, attributes["revision"], fold, str(path)),
        {key: int(attributes[key]) for key in ("n_layers", "d_model", "n_query_heads", "n_kv_heads", "d_head")},
        {name: arrays[f"{_place(name)}/rho"] for name in chosen},
        {name: _smaller(arrays[f"rank/{name[0]}"], arrays[f"rank/{name[-1]}"], name) for name in chosen},
        lambda name, at: float(arrays[f"{_place(name)}/angle"][at]),
    )


def _changed(found: Found, revision: object) -> bool:
    """Whether a local checkpoint is another one than that of the results; one that is gone cannot say."""
    if not Path(found.source).exists():
        return False
    return read_headers(found.source, found.kinds).revision != revision


def _computed(found: Found, spaces: Sequence[str], fold: bool) -> Overlaps:
    from headspaces.geometry.angles import smallest_angles
    from headspaces.geometry.bases import block_bases
    from headspaces.geometry.pairs import layer_overlaps, normalised
    from headspaces.weights.blocks import each_layer

    kinds = "".join(kind for kind in KINDS if not spaces or kind in "".join(spaces))
    with open_checkpoint(found, kinds if spaces else "") as (headers, folder):
        if spaces and (lacking := [kind for kind in kinds if kind not in headers.kinds]):
            raise InputError(f"{found.source}: holds no tensors for {', '.join(lacking)}; it has {headers.kinds}")
        fetch_block(headers, range(headers.shape.n_layers), folder / "block.safetensors")
        arrays = block_bases(each_layer(folder / "block.safetensors"), fold_norms=fold)
    bases = {kind: arrays[f"{kind}/basis"] for kind in headers.kinds if kind in kinds}
    chosen = list(spaces) or [name for name in (*WITHIN, *ACROSS) if set(name) <= set(bases)]
    across = [name for name in chosen if name in ACROSS]
    pairs = layer_overlaps(
        bases,
        within="".join(name for name in chosen if name in WITHIN),
        sources="O" if across else "",
        targets="".join(name[1] for name in across),
    )
    smaller = {name: _smaller(arrays[f"rank/{name[0]}"], arrays[f"rank/{name[-1]}"], name) for name in chosen}

    def angle(name: str, at: tuple[int, ...]) -> float:
        first = bases[name[0]][at[0], at[-2]]
        second = bases[name[-1]][at[-3] if len(at) == 4 else at[0], at[-1]]
        return float(smallest_angles(first[None], second[None])[0, 0])

    found_pairs = pairs.within | pairs.across
    return Overlaps(
        _facts(found, headers.revision, fold, "computed from the checkpoint"),
        asdict(headers.shape),
        {name: normalised(found_pairs[name], smaller[name]) for name in chosen},
        smaller,
        angle,
    )


def _place(spaces: str) -> str:
    return f"within/{spaces}" if spaces in WITHIN else f"cross/{spaces}"


def _facts(found: Found, revision: object, fold: bool, origin: str) -> dict[str, Any]:
    return {"model": found.name, "source": found.source, "revision": revision, "fold": fold, "from": origin}


def _smaller(left: np.ndarray, right: np.ndarray, spaces: str) -> np.ndarray:
    import numpy as np

    if spaces in WITHIN:
        return np.asarray(np.minimum(left[:, :, None], right[:, None, :]))
    return np.asarray(np.minimum(left[:, None, :, None], right[None, :, None, :]))


def strongest_pairs(found: Found, spaces: str, top: int, *, fold: bool = True) -> dict[str, Any]:
    """Return a model's pairs of largest overlap.

    Returns
    -------
    dict
        The facts of :class:`Overlaps`, ``spaces``, ``isotropic``, and ``pairs``, strongest first: ``source`` and
        ``target`` (layer and head; within a layer the two heads), ``rho``, ``pk``, ``angle_deg``.
    """
    import numpy as np

    overlaps = read_overlaps(found, (spaces,), fold=fold)
    rho = overlaps.rho[spaces]
    if spaces in WITHIN:
        rho = np.where(np.triu(np.ones(rho.shape[1:], dtype=bool), k=1), rho, np.nan)
    order = np.argsort(-rho, axis=None, kind="stable")  # NaN comes last
    places = [tuple(map(int, np.unravel_index(place, rho.shape))) for place in order[:top]]
    smaller = np.broadcast_to(overlaps.smaller_rank[spaces], rho.shape)
    pairs = [
        {
            "source": {"layer": at[0], "head": at[-2]},
            "target": {"layer": at[-3] if len(at) == 4 else at[0], "head": at[-1]},
            "rho": float(rho[at]),
            "pk": float(rho[at] * smaller[at]),
            "angle_deg": overlaps.angle(spaces, at),
        }
        for at in places
        if np.isfinite(rho[at])
    ]
    isotropic = overlaps.shape["d_head"] / overlaps.shape["d_model"]
    return {**overlaps.facts, "spaces": spaces, "isotropic": isotropic, "pairs": pairs}


def compare_models(one: Found, other: Found, spaces: Sequence[str] = (), *, fold: bool = True) -> dict[str, Any]:
    """Set the overlaps of two models of one shape side by side, pair by pair.

    Returns
    -------
    dict
        ``models`` (the facts of both), ``comparisons`` (by spaces, over all pairs) and ``layers`` (the same by layer,
        within layers only): mean and spread of rho in both, largest and median absolute difference, largest relative
        difference.

    Raises
    ------
    InputError
        If the shapes differ, or the models share no kind of spaces.
    """
    both = [read_overlaps(found, spaces, fold=fold) for found in (one, other)]
    for key, value in both[0].shape.items():
        if both[1].shape[key] != value:
            raise InputError(
                f"{one.name} and {other.name}: {key} is {value} and {both[1].shape[key]}; only models of one shape "
                "can be compared pair by pair"
            )
    shared = [name for name in both[0].rho if name in both[1].rho]
    if not shared:
        raise InputError(f"{one.name} and {other.name}: no kind of spaces in common")
    cut = {name: [_pairs(overlaps.rho[name], name) for overlaps in both] for name in shared}
    return {
        "models": [dict(overlaps.facts) for overlaps in both],
        "comparisons": [{"spaces": name, **_side_by_side(*pairs)} for name, pairs in cut.items()],
        "layers": [
            {"spaces": name, "layer": layer, **_side_by_side(*rows)}
            for name, pairs in cut.items()
            if name in WITHIN
            for layer, rows in enumerate(zip(*pairs))
        ],
    }


def _pairs(rho: np.ndarray, spaces: str) -> np.ndarray:
    """Cut overlaps to their pairs: one row a layer, or a layer pair."""
    import numpy as np

    if spaces in WITHIN:
        return np.asarray(rho[(slice(None), *np.triu_indices(rho.shape[1], k=1))])
    earlier, later = np.triu_indices(len(rho), k=1)
    return np.asarray(rho[earlier, later].reshape(len(earlier), -1))


def _side_by_side(one: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    from headspaces.geometry.statistics import pair_statistics, rho_differences

    values = [pair_statistics(rho.ravel()) for rho in (one, other)]
    return {
        "mean_rho": [float(value["mean"]) for value in values],
        "spread": [float(value["spread"]) for value in values],
        **rho_differences(one, other),
    }
