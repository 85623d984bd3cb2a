"""What made a file: the attributes that every cache hands on, and the check that a checkpoint is the one meant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from headspaces.errors import InputError
from headspaces.layouts import LAYOUTS
from headspaces.models import Shape

if TYPE_CHECKING:
    from headspaces.weights import Headers


def model_attributes(metadata: Mapping[str, str]) -> dict[str, str | int]:
    """Root attributes of a file made from a block of weights.

    Parameters
    ----------
    metadata
        As :func:`headspaces.weights.read_metadata` gives it.
    """
    return {
        "source": metadata["source"],
        "revision": metadata["revision"],
        "model_type": metadata["model_type"],
        "kinds": metadata["kinds"],
        "norm": LAYOUTS[metadata["layout"]].norm,
        **json.loads(metadata["shape"]),
    }


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
