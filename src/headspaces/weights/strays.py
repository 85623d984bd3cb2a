"""Stray files: weight files in a checkpoint's folder that are not the checkpoint, and adapters beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from headspaces.errors import InputError
from headspaces.weights.formats.safetensors_header import read_header
from headspaces.weights.headers import FileHeader, TensorHeader

ASIDE = "aside"
"""Form of a file that lies beside the weights and is not read."""

_SINGLES = {"model.safetensors.index.json": "model.safetensors", "pytorch_model.bin.index.json": "pytorch_model.bin"}
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_SAMPLE = 4096
"""Bytes that are compared at the begin, middle and end of a tensor."""


def files_aside(
    folder: Path, weights: str, tensors: Mapping[str, TensorHeader], files: Mapping[str, FileHeader]
) -> dict[str, FileHeader]:
    """Find the files beside the weights that a user may have meant, to be named in a note.

    Parameters
    ----------
    folder
        Where the checkpoint lies.
    weights
        The file or index that is read.
    tensors, files
        What it holds.

    Raises
    ------
    InputError
        If one file holds all that the index names, and other weights: nobody can tell which are meant.
    """
    there = [file.name for file in folder.iterdir() if file.is_file()]
    aside = {name: folder / name for name in names_aside(weights, there, files)}
    single = _SINGLES.get(weights, "")
    if single in aside and single.endswith(".safetensors"):
        _check_same(aside[single], folder / weights, tensors, files)
    return {name: FileHeader(str(path.resolve()), path.stat().st_size, "", ASIDE) for name, path in aside.items()}


def names_aside(weights: str, names: Collection[str], used: Collection[str]) -> list[str]:
    """List the files among all of a folder or repository that are not read, and that a user may have meant."""
    return [name for name in (_SINGLES.get(weights, ""), *_ADAPTERS) if name in names and name not in used]


def file_notes(files: Mapping[str, FileHeader]) -> list[str]:
    """Say which files lie beside the weights and are not read."""
    return [
        f"the adapter {name} lies beside the weights and is no part of them: the base model is analysed"
        if name in _ADAPTERS
        else f"{name} lies beside the weights and is not read: the files of the index are"
        for name, file in files.items()
        if file.form == ASIDE
    ]


def _check_same(
    single: Path, index: Path, tensors: Mapping[str, TensorHeader], files: Mapping[str, FileHeader]
) -> None:
    try:
        other = read_header(single, single.name)
    except InputError:
        return  # No weights: nobody can mean them.
    if not set(tensors) <= set(other):
        return
    for name, tensor in tensors.items():
        if (tensor.dtype, tensor.shape) != (other[name].dtype, other[name].shape) or _samples(
            Path(files[tensor.file].location), tensor
        ) != _samples(single, other[name]):
            raise InputError(
                f"{single}: holds all tensors that {index.name} names, and others: {name!r} differs; "
                "keep one of the two in the folder"
            )


def _samples(path: Path, tensor: TensorHeader) -> list[bytes]:
    """Read some bytes of a tensor: two models differ in nearly every one."""
    last = max(tensor.begin, tensor.end - _SAMPLE)
    found = []
    with path.open("rb") as file:
        for begin in (tensor.begin, (tensor.begin + last) // 2, last):
            file.seek(begin)
            found.append(file.read(min(_SAMPLE, tensor.end - begin)))
    return found
