"""What a model is, as plain values for the command line: facts from its headers, and nothing computed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headspaces.library.model import ModelSpaces

DOES = {"O": "writes", "Q": "queries read", "K": "keys read", "V": "values read"}


def describe(model: ModelSpaces, *, count_rounding: bool = False) -> dict[str, Any]:
    """Describe a model from its headers, and from its weights where directions are to be counted.

    Parameters
    ----------
    model
        The model.
    count_rounding
        Whether to read the weights and count the directions that their rounding may have made, where no results of the
        pipeline hold the counts.

    Returns
    -------
    dict
        ``model, source, revision, architecture, layout, norm, shape, isotropic``, ``spaces`` (by kind: heads, their
        summed width, the deficiency that the dimension forces on their sum), ``within_rounding`` (by kind, where they
        were counted: directions and heads that have any, or None where the type's rounding is not known), ``dtypes``,
        ``notes``; of a checkpoint
        also ``n_tensors, n_files, bytes, bytes_to_fetch`` and ``stages`` (by stage of the workflow None, or why it is
        left out).
    """
    heads, shape = model.heads, model.shape
    return {
        "model": heads.name,
        "source": heads.origin,
        "revision": heads.revision,
        "architecture": heads.architecture,
        "layout": heads.layout,
        "norm": heads.norm,
        "shape": asdict(shape),
        "isotropic": shape.d_head / shape.d_model,
        "spaces": {kind: _room(model, kind) for kind in heads.kinds},
        "within_rounding": _rounding(model, count_rounding),
        "dtypes": list(heads.dtypes),
        **heads.details(),
        "notes": list(heads.notes),
    }


def _rounding(model: ModelSpaces, read_weights: bool) -> dict[str, dict[str, int] | None]:
    counts = model.answers.within_rounding(read_weights=read_weights)
    return {
        kind: None if (own < 0).any() else {"directions": int(own.sum()), "heads": int((own > 0).sum())}
        for kind, own in counts.items()
    }


def _room(model: ModelSpaces, kind: str) -> dict[str, Any]:
    """Say how much of the residual stream the spaces of one kind in a layer would fill together."""
    shape = model.shape
    width = shape.n_heads(kind) * shape.d_head
    # A LayerNorm's folded reads have mean zero.
    room = shape.d_model - (kind != "O" and model.heads.norm == "layernorm")
    return {"what": DOES[kind], "heads": shape.n_heads(kind), "width": width, "forced_deficiency": max(0, width - room)}
