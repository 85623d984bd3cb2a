"""Comparisons by name: ``O`` is all pairs of write spaces in a layer, ``OK`` writes with later layers' key reads."""

from __future__ import annotations

from itertools import product

from headspaces.errors import InputError
from headspaces.spaces import ACROSS, KINDS, WITHIN

PAIRS_OF_KINDS = tuple(one + other for one, other in product(KINDS, repeat=2))
"""Comparisons of a layer with all later ones: the 16 ordered pairs of kinds."""

OF_THE_PAPER = (*WITHIN, *ACROSS)
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
    if name not in WITHIN and name not in PAIRS_OF_KINDS:
        raise InputError(
            f"{where}: spaces {spaces!r} are not one of {', '.join(WITHIN)} (within a layer) or two of these letters "
            "(from a layer to later ones), such as OK"
        )
    if lacking := [kind for kind in name if kind not in kinds]:
        raise InputError(f"{where}: holds no heads of kind {', '.join(lacking)}; it has {', '.join(kinds)}")
    return name


def check_one_kind(spaces: str, where: str) -> None:
    """Refuse two kinds where spaces of one are asked for."""
    if spaces not in WITHIN:
        raise InputError(f"{where}: spaces of {spaces!r} were asked for, expected one kind of {', '.join(WITHIN)}")


ORDERS = ("rho", "pk", "angle_deg")
"""By what pairs are ordered: by their overlap, by PK, or by their smallest angle."""


def check_order(by: str, where: str) -> None:
    """Refuse an order of pairs that is not known."""
    if by not in ORDERS:
        raise InputError(f"{where}: by is {by!r}, expected one of {', '.join(ORDERS)}")


def check_count(value: int | None, name: str, where: str) -> None:
    """Refuse a number of pairs or directions that is none.

    Raises
    ------
    InputError
        If it is neither a positive whole number nor None, for all.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(f"{where}: {name} is {value!r}, expected a positive whole number, or None for all")


def dimensions(spaces: str) -> tuple[str, ...]:
    """Names of the axes of a comparison's overlaps."""
    if spaces in WITHIN:
        return ("layer", "head", "other_head")
    return ("writer_layer", "reader_layer", "writer_head", "reader_head")
