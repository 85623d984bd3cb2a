"""A local folder in Hugging Face layout: ``config.json`` and one or several safetensors or PyTorch files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.formats.safetensors_header import MAX_HEADER, read_header
from headspaces.weights.formats.torch_load import read_torch
from headspaces.weights.headers import FileHeader, Headers, Stream, TensorHeader, unchanged
from headspaces.weights.known_forms import describe_files
from headspaces.weights.strays import files_aside

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
TORCH_SINGLE, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
MAX_NAME = 200
"""Longest name of a weight file that is believed."""
CHUNK = 8 * 2**20
"""Bytes that are copied at once."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    InputError
        If the file cannot be read or holds something else.
    """
    try:
        if path.stat().st_size > MAX_HEADER:
            raise InputError(f"{path}: has more than {MAX_HEADER} bytes; it is no file of a checkpoint")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object")
    return content


def weight_map(index: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return which file holds which tensor, from an index.

    Raises
    ------
    InputError
        If the index has no map of names to file names, or a name leaves the checkpoint's folder.
    """
    files = index.get("weight_map")
    if not isinstance(files, dict) or not files:
        raise InputError(f"{where}: no weight_map; the index is damaged, download it again")
    for tensor, file in files.items():
        if not isinstance(file, str) or not _is_inside(file):
            raise InputError(f"{where}: tensor {tensor!r} lies in {file!r}, which is no file of this checkpoint")
    return dict(files)


def _is_inside(file: str) -> bool:
    """Whether a name is that of a file inside the checkpoint's folder: no way out, nothing that no folder can hold."""
    path = PurePosixPath(file)
    return (
        bool(path.parts) and ".." not in path.parts and not path.is_absolute()
        and file.isprintable() and not set("\\:") & set(file) and len(file) <= MAX_NAME
    )  # fmt: skip


def check_index(files: Mapping[str, str], tensors: Mapping[str, TensorHeader], where: str) -> None:
    """Check that the files hold the tensors that the index names.

    Raises
    ------
    InputError
        If a tensor is not in its file.
    """
    for name, file in files.items():
        if name not in tensors or tensors[name].file != file:
            raise InputError(
                f"{where}: the index puts tensor {name!r} into {file}, which does not hold it; download both again"
            )


def read_folder(path: Path) -> tuple[str, dict[str, Any], dict[str, TensorHeader], dict[str, FileHeader]]:
    """Read configuration and headers of a folder; see :func:`~headspaces.weights.formats.gguf_header.read_gguf`.

    An index decides which files belong to the checkpoint; other weight files in the folder are left alone.
    """
    if not (path / "config.json").is_file():
        if (path / "adapter_config.json").is_file():
            raise InputError(f"{path} holds an adapter only (adapter_config.json); merge it into its base model first")
        there = describe_files(file.name for file in path.iterdir() if file.is_file())
        raise InputError(
            f"{path}: no config.json; name a folder in Hugging Face layout or a .gguf file. There is {there}"
        )
    config = read_json(path / "config.json")
    names = [file.name for file in path.iterdir() if file.is_file()]
    chosen = choose_weights(names, lambda index: _is_complete(path / index), str(path))
    place = chosen[0]
    placed = weight_map(read_json(path / place), str(path / place)) if place.endswith(".json") else {}
    tensors: dict[str, TensorHeader] = {}
    files: dict[str, FileHeader] = {}
    for name in sorted(set(placed.values())) or chosen:
        if not (path / name).is_file():
            raise InputError(f"{path / place}: names the file {name}, which is not in the folder; download it")
        form = "torch" if place.startswith("pytorch") else "safetensors"
        found = read_header(path / name, name) if form == "safetensors" else read_torch(path / name, name)[0]
        # A tensor that another file holds, too, counts where the index puts it.
        found = {key: tensor for key, tensor in found.items() if placed.get(key, name) == name}
        check_disjoint(tensors, found, str(path / name))
        tensors |= found
        files[name] = FileHeader(str((path / name).resolve()), (path / name).stat().st_size, "", form)
    check_index(placed, tensors, str(path / place))
    revision = fingerprint(config, tensors, files)
    return revision, config, tensors, files | files_aside(path, place, tensors, files)


def read_safetensors_file(path: Path) -> tuple[str, dict[str, Any], dict[str, TensorHeader], dict[str, FileHeader]]:
    """Read one safetensors file that is named itself, and the ``config.json`` beside it; see :func:`read_folder`."""
    shard = _SHARD.fullmatch(path.name)
    if shard and int(shard["count"]) > 1:
        raise InputError(f"{path}: is one of {int(shard['count'])} files of a checkpoint; name their folder")
    if not (path.parent / "config.json").is_file():
        raise InputError(f"{path}: no config.json beside it says what it holds; put the model's own there")
    config, tensors = read_json(path.parent / "config.json"), read_header(path, path.name)
    files = {path.name: FileHeader(str(path.resolve()), path.stat().st_size, "")}
    aside = files_aside(path.parent, path.name, tensors, files)
    return fingerprint(config, tensors, files), config, tensors, files | aside


_SHARD = re.compile(r"(?P<stem>model|pytorch_model)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(?P<end>safetensors|bin)")
"""How transformers names the files of a sharded checkpoint."""


def choose_weights(names: Collection[str], complete: Callable[[str], bool], where: str) -> list[str]:
    """Choose the files that hold the weights, among all files of a folder or repository; the order is transformers'.

    But an index whose files are all there is no leftover, and goes before a single file.

    Parameters
    ----------
    names
        All files.
    complete
        Whether all files are there that an index names; asked only where a single file lies beside it.
    where
        The folder or repository, for messages.

    Returns
    -------
    One file or index; or all files of a checkpoint whose index is missing.

    Raises
    ------
    InputError
        If none is there, with a list of what is.
    """
    for single, index in ((SINGLE, INDEX), (TORCH_SINGLE, TORCH_INDEX)):
        if index in names and (single not in names or complete(index)):
            return [index]
        if single in names:
            return [single]
    shards = [shard for name in sorted(names) if (shard := _SHARD.fullmatch(name))]
    for end in ("safetensors", "bin"):
        files = [shard.string for shard in shards if shard["end"] == end]
        counts = {int(shard["count"]) for shard in shards if shard["end"] == end}
        if counts == {len(files)}:
            return files
        if files:
            raise InputError(f"{where}: {files[0]} has no index beside it, and not all of its parts are there")
    raise InputError(
        f"{where}: neither {SINGLE} nor {TORCH_SINGLE} nor an index of several files is there; there is "
        f"{describe_files(names)}. A .safetensors or .gguf file in a folder can be named itself"
    )


def check_disjoint(tensors: Mapping[str, TensorHeader], others: Mapping[str, TensorHeader], where: str) -> None:
    """Refuse a tensor that two files hold where no index says which counts.

    Raises
    ------
    InputError
        Naming the first such tensor.
    """
    if twice := min(tensors.keys() & others.keys(), default=None):
        raise InputError(f"{where}: tensor {twice!r} is in {tensors[twice].file}, too, and no index says which counts")


def _is_complete(index: Path) -> bool:
    """Whether all files that an index names are there."""
    try:
        return all((index.parent / file).is_file() for file in set(weight_map(read_json(index), str(index)).values()))
    except InputError:
        return False


def fingerprint(config: Mapping[str, Any], tensors: Mapping[str, TensorHeader], files: Mapping[str, FileHeader]) -> str:
    """Identify a checkpoint without reading it whole: its configuration, headers and sizes."""
    content = [
        config,
        [[name, t.dtype, t.shape, t.file, t.begin, t.end] for name, t in sorted(tensors.items())],
        [[name, file.size] for name, file in sorted(files.items())],
    ]
    return "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def stream_folder(headers: Headers, names: Iterable[str]) -> Stream:
    """Yield the named tensors' bytes in the order of the files."""
    for name in sorted(names, key=lambda name: (headers.tensors[name].file, headers.tensors[name].begin)):
        tensor = headers.tensors[name]
        path = unchanged(headers.files[tensor.file])
        yield name, _chunks(path, tensor)


def _chunks(path: Path, tensor: TensorHeader) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            stream.seek(tensor.begin)
            left = tensor.size
            while left:
                chunk = stream.read(min(CHUNK, left))
                if not chunk:
                    raise InputError(f"{path}: ends before byte {tensor.end}; it was cut off while being read")
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
