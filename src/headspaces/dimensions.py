"""What a file says of itself against its arrays: which dimension of which array is which attribute.

An array that is shorter than its file's attributes say would be taken for whole: a shard of fewer samples, a block of
fewer layers. Every file is held against this table when an array is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

_HEADS = {"O": "n_query_heads", "Q": "n_query_heads", "K": "n_kv_heads", "V": "n_kv_heads"}
_PAIRS = ("n_layers", "n_layers", "X", "Y")
_OF_QUERIES = ("n_layers", "n_layers", "n_query_heads", "n_query_heads")


def _samples(count: str) -> dict[str, tuple[str, ...]]:
    return {
        "within/{X}/*": (count, "n_layers"),
        "cross/{X}{Y}/*": (count, "n_layers", "n_layers"),
        "pairs/{X}/layer": (),
        "pairs/{X}/*": (count,),
        "random/*": (),
    }


DIMENSIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "bases": {
        "{X}/basis": ("block_layers", "X", "d_model"),
        "{X}/singular_values": ("block_layers", "X"),
        "rank/{X}": ("block_layers", "X"),
        "direct_sum/{X}/*": ("block_layers",),
    },
    "overlaps": {
        "within/{X}/*": ("n_layers", "X", "X"),
        "cross/{X}{Y}/*": _PAIRS,
        "rank/{X}": ("n_layers", "X"),
        "direct_sum/{X}/*": ("n_layers",),
    },
    "null-shard": _samples("n_samples"),
    "nulls": _samples("samples"),
    "self_heads": {"{X}{Y}/rho": ("n_layers", "X", "Y"), "{X}{Y}/*": ("n_layers",)},
    "affinity": {
        "cs/{X}{Y}": _OF_QUERIES,
        "same_kind/*/{X}{Y}": _PAIRS,
        "kl": (),
        "head_classes/*": (),
        "*/{X}{Y}": _PAIRS,
    },
    "activations": {
        "O/*": ("n_layers", "n_query_heads"),
        "{X}/*": ("n_layers", "n_layers", "n_query_heads", "X"),
        "run/*": (),
    },
    "attention": {"*": ("n_layers", "n_query_heads")},
}
"""By kind of file and name of the array, its first dimensions: attributes of the file, or ``X`` and ``Y`` for the heads
of the kinds that stand in the name. The first row that fits counts."""


def dimension_fault(kind: str, name: str, shape: tuple[int, ...], says: Mapping[str, object]) -> str | None:
    """Say where an array's dimensions are not what its file's attributes say; None where all that are said agree."""
    dimensions, kinds = dimensions_of(kind, name) or ((), {})
    for axis, dimension in enumerate(dimensions):
        key = _HEADS[kinds[dimension]] if dimension in kinds else dimension
        length = shape[axis] if axis < len(shape) else None
        if key in says and length != says[key]:
            return f"{key} is {says[key]}, but {name!r} has {length} in dimension {axis}"
    return None


@cache
def dimensions_of(kind: str, name: str) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """Return an array's first dimensions, and the kinds that stand for ``X`` and ``Y``; None for an unknown array."""
    for pattern, dimensions in DIMENSIONS.get(kind, {}).items():
        text = re.escape(pattern).replace(r"\{X\}", "(?P<X>[OQKV])").replace(r"\{Y\}", "(?P<Y>[OQKV])")
        if fits := re.fullmatch(text.replace(r"\*", ".+"), name):
            return dimensions, fits.groupdict()
    return None
