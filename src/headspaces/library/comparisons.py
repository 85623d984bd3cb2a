"""Comparisons by name: ``O`` is all pairs of write spaces in a layer, ``OK`` writes with later layers' key reads."""

from __future__ import annotations

from itertools import product

from headspaces.errors import InputError
from headspaces.spaces import KINDS

WITHIN = tuple(KINDS)
"""Comparisons inside a layer: all pairs of one kind."""

ACROSS = tuple(one + other for one, other in product(KINDS, repeat=2))
"""Comparisons of a layer with all later ones: the 16 ordered pairs of kinds."""

OF_THE_PAPER = (*WITHIN, "OQ", "OK", "OV")
"""Those of RW: within layers, and from writes to the reads of later layers."""


def check_spaces(spaces: str, kinds: str, where: str) -> str:
    """Return the name of a comparison in capitals.

    Parameters
    ----------
    spaces
        As the user wrote it.
    kinds
        The kinds that the model has.
    where
        The model, for messages.

    Raises
    ------
    InputError
        If there is no such comparison, or the model lacks a kind.
    """
    name = spaces.upper() if isinstance(spaces, str) else ""
    if name not in WITHIN and name not in ACROSS:
        raise InputError(
            f"{where}: spaces {spaces!r} are not one of {', '.join(WITHIN)} (within a layer) or two of these letters "
            "(from a layer to later ones), such as OK"
        )
    if lacking := [kind for kind in name if kind not in kinds]:
        raise InputError(f"{where}: holds no heads of kind {', '.join(lacking)}; it has {', '.join(kinds)}")
    return name


def dimensions(spaces: str) -> tuple[str, ...]:
    """Names of the axes of a comparison's overlaps."""
    if spaces in WITHIN:
        return ("layer", "head", "other_head")
    return ("writer_layer", "reader_layer", "writer_head", "reader_head")
