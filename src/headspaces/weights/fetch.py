"""Fetch blocks of layers: only the attention's tensors, from wherever the checkpoint is, into one file.

What the file holds is written down in :mod:`headspaces.weights.blocks`, which reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from headspaces.errors import InputError
from headspaces.files import read_bytes, whole_file
from headspaces.weights.blocks import FORMAT, FORMAT_VERSION, header_checksum, read_metadata
from headspaces.weights.folder import stream_folder
from headspaces.weights.formats.gguf_header import stream_gguf
from headspaces.weights.formats.safetensors_header import read_header
from headspaces.weights.formats.torch_load import stream_torch
from headspaces.weights.headers import Headers, Stream, TensorHeader
from headspaces.weights.headers_file import load_headers
from headspaces.weights.hub.repository import stream_hub
from headspaces.weights.stream_headers import StreamHeaders

_STREAMS: dict[str, Callable[[Headers, Iterable[str]], Stream]] = {
    "safetensors": stream_folder,
    "gguf": stream_gguf,
    "torch": stream_torch,
    "hub": stream_hub,
}


def fetch_block(headers: Headers, layers: range, path: str | Path) -> None:
    """Write the attention weights of consecutive layers as one safetensors file.

    Parameters
    ----------
    headers
        The checkpoint.
    layers
        Which layers.
    path
        The file; it appears whole or not at all. What blocks in the folders beside its own hold of the very same files
        of a repository is not fetched again.

    Raises
    ------
    InputError
        If the checkpoint cannot be read, has changed, or delivers another number of bytes than its header says.
    """
    names = headers.layer_names(layers)
    kept = (_stream_kept(headers, names, block) for block in _kept_blocks(headers, names, Path(path)))
    _write(headers, names, layers, path, {}, next((found for found in kept if found), None))


def fetch_stream(stream: StreamHeaders, layers: range | None, path: str | Path) -> None:
    """Write the weights of the stream beside the heads as one safetensors file, like a block of these.

    Parameters
    ----------
    stream
        The checkpoint's rest of the stream.
    layers
        Which layers' MLPs; None for what is outside the layers.
    path
        The file; it appears whole or not at all.

    Raises
    ------
    InputError
        As :func:`fetch_block`.
    """
    own = {"stream": stream.row.to_json(), "stream_notes": json.dumps(stream.notes)}
    _write(stream.headers, stream.names(layers), range(0) if layers is None else layers, path, own)


def _write(
    headers: Headers, names: Sequence[str], layers: range, path: str | Path, more: Mapping[str, str],
    kept: Callable[[Headers, Iterable[str]], Stream] | None = None,
) -> None:  # fmt: skip
    """Write tensors as one file: out of a block that has them, or from where the checkpoint is."""
    sizes = {name: _stored(headers.tensors[name]) for name in names}
    sums = dict.fromkeys(names, "0" * 64)
    with whole_file(path) as beside, beside.open("wb") as file:
        offsets = _offsets(sizes)
        header = _header_bytes(headers, layers, sizes, offsets, sums, more)
        file.write(header)
        for name, chunks in _tensors_from(headers, names, kept):
            digest, written = hashlib.sha256(), 0
            file.seek(len(header) + offsets[name])
            for chunk in chunks:
                digest.update(chunk)
                written += len(chunk)
                file.write(chunk)
            if written != sizes[name].size:
                raise InputError(
                    f"{headers.source}: tensor {name!r} gave {written} bytes, expected {sizes[name].size}; run again"
                )
            sums[name] = digest.hexdigest()
        # The sums have a fixed width, so the header that holds them fits in place of the first one.
        file.seek(0)
        file.write(_header_bytes(headers, layers, sizes, offsets, sums, more))


def _tensors_from(
    headers: Headers, names: Sequence[str], kept: Callable[[Headers, Iterable[str]], Stream] | None
) -> Stream:
    if not names:
        return iter(())
    return (kept or _STREAMS[headers.files[headers.tensors[names[0]].file].form])(headers, names)


def _kept_blocks(headers: Headers, names: Iterable[str], path: Path) -> Iterator[Path]:
    """Blocks that hold a repository's tensors: the one that is to be replaced, and other revisions' of the same files.

    So a block that is understood otherwise than before costs no byte of the network, nor does a revision that repeats
    another one. What a commit holds never changes, and a file's mark at the Hub is its content's; of local files that
    cannot be said.
    """
    if not headers.source.startswith("hub:"):
        return
    with suppress(InputError):
        metadata = read_metadata(path)
        if (metadata["source"], metadata["revision"]) == (headers.source, headers.revision):
            yield path
    repository = headers.source.partition("@")[0].encode()
    for known in sorted(path.parent.parent.glob("*/headers.json")):
        block = known.parent / path.name
        with suppress(InputError):
            # The source stands among the first lines.
            other = known.parent != path.parent and block.is_file() and repository in read_bytes(known, 0, 4096)
            if other and _same_files(headers, load_headers(known), names):
                yield block


def _same_files(one: Headers, other: Headers, names: Iterable[str]) -> bool:
    """Whether two revisions have some tensors in the same places of files that the Hub says are the same."""
    tensors = [(one.tensors[name], other.tensors.get(name)) for name in names]
    files = [(one.files[tensor.file], other.files.get(tensor.file)) for tensor, _ in tensors]
    return all(tensor == same for tensor, same in tensors) and all(file.etag and file == same for file, same in files)


def _stream_kept(
    headers: Headers, names: Iterable[str], path: Path
) -> Callable[[Headers, Iterable[str]], Stream] | None:
    """Read tensors from a block, where that holds them all."""
    try:
        metadata, tensors = read_metadata(path), read_header(path, path.name)
    except InputError:
        return None
    if any(name not in tensors or tensors[name].size != headers.tensors[name].size for name in names):
        return None
    sums = json.loads(metadata["sha256"])
    # Read before the block is replaced, and checked: a damaged tensor is fetched again with the others.
    kept = {name: read_bytes(path, tensors[name].begin, tensors[name].size) for name in names}
    if any(hashlib.sha256(data).hexdigest() != sums[name] for name, data in kept.items()):
        return None
    return lambda _, wanted: ((name, [memoryview(kept[name])]) for name in wanted)


def _stored(tensor: TensorHeader) -> TensorHeader:
    """Header of a tensor as it is written: of a GGUF type that safetensors does not know, its bytes."""
    if not tensor.dtype.startswith("ggml:"):
        return TensorHeader(tensor.dtype, tensor.shape, "", 0, tensor.size)
    return TensorHeader("U8", (tensor.size,), "", 0, tensor.size)


def _offsets(sizes: Mapping[str, TensorHeader]) -> dict[str, int]:
    offsets, position = {}, 0
    for name, tensor in sizes.items():
        offsets[name], position = position, position + tensor.size
    return offsets


def _header_bytes(
    headers: Headers,
    layers: range,
    tensors: Mapping[str, TensorHeader],
    offsets: Mapping[str, int],
    sums: Mapping[str, str],
    more: Mapping[str, str],
) -> bytes:
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "source": headers.source,
        "revision": headers.revision,
        "model_type": headers.model_type,
        "layout": headers.row.to_json(),
        "prefix": headers.prefix,
        "kinds": headers.kinds,
        "shape": json.dumps(asdict(headers.shape)),
        "first_layer": str(layers.start),
        "n_layers": str(len(layers)),
        "sha256": json.dumps(sums),
        **more,
    }
    if headers.scale_block:
        metadata["scale_block"] = json.dumps(headers.scale_block)
    if ggml := {
        name: [headers.tensors[name].dtype, headers.tensors[name].shape]
        for name in tensors
        if headers.tensors[name].dtype.startswith("ggml:")
    }:
        metadata["ggml"] = json.dumps(ggml)
    content: dict[str, object] = {"__metadata__": metadata}
    for name, tensor in tensors.items():
        begin = offsets[name]
        content[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, begin + tensor.size]}
    metadata["header_sha256"] = header_checksum(content)
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
