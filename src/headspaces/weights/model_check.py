"""The check that a checkpoint is the one that the models table means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from headspaces.errors import InputError
from headspaces.spaces import Shape

if TYPE_CHECKING:
    from headspaces.weights.headers import Headers


def check_model(headers: Headers, kinds: str, shape: Mapping[str, int]) -> None:
    """Refuse a checkpoint whose kinds or shape are not what the models table says.

    Raises
    ------
    InputError
        Naming the first difference.
    """
    if headers.kinds != kinds:
        raise InputError(f"{headers.source}: holds the kinds {headers.kinds}, the models table says {kinds}")
    found = asdict(headers.shape)
    for field, expected in asdict(Shape(**shape)).items():
        if found[field] != expected:
            raise InputError(
                f"{headers.source}: {field} is {found[field]}, the models table says {expected}; mend its row"
            )
