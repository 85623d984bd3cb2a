"""Geometry of the subspaces that attention heads read from and write to.

The residual stream of a decoder is ``R^D``. Every head reads through three linear maps (query, key, value) and writes
through one (output). The package computes the subspaces of these maps and how strongly they overlap:

>>> import headspaces as hs
>>> hs.projection_kernel([[1.0], [0.0], [0.0]], [[0.6], [0.8], [0.0]])
0.36

:func:`load` opens a model, :func:`read` a result file of the pipeline; :func:`compare` and :func:`null_test` set a
model against another one and against chance; :func:`projection_kernel`, :func:`principal_angles` and
:func:`orthonormal_bases` take plain arrays; :mod:`plot` draws. These names are stable: semantic versioning holds for
them, and for what ``python -m headspaces`` prints. Everything is imported when it is first used.

Symbols follow the two papers that the pipeline rebuilds (RW and PK, see the README).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import headspaces.library.plot as plot
    from headspaces.errors import InputError
    from headspaces.library.arrays import orthonormal_bases, principal_angles, projection_kernel
    from headspaces.library.chance import null_test
    from headspaces.library.comparison import compare
    from headspaces.library.loading import load
    from headspaces.library.model import ModelSpaces
    from headspaces.library.results import read
    from headspaces.spaces import Shape

__version__ = "0.1.0"

__all__ = [
    "InputError", "ModelSpaces", "Shape", "compare", "load", "null_test", "orthonormal_bases", "plot",
    "principal_angles", "projection_kernel", "read",
]  # fmt: skip

_MODULES = {
    "InputError": "errors",
    "ModelSpaces": "library.model",
    "Shape": "spaces",
    "compare": "library.comparison",
    "load": "library.loading",
    "null_test": "library.chance",
    "orthonormal_bases": "library.arrays",
    "principal_angles": "library.arrays",
    "projection_kernel": "library.arrays",
    "read": "library.results",
}


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("headspaces.library.plot")
    if name in _MODULES:
        return getattr(import_module(f"headspaces.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'headspaces' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
