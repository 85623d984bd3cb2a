"""A repository on the Hugging Face Hub: ``hub:owner/name[@revision]``.

Only headers and the needed tensors travel. Files that the Hub's own cache holds whole are read there instead.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.folder import SINGLE, check_disjoint, check_index, choose_weights, stream_folder, weight_map
from headspaces.weights.formats.safetensors_header import header_length, parse_header, read_header
from headspaces.weights.formats.torch_archive import read_archive
from headspaces.weights.headers import FileHeader, Headers, Stream, TensorHeader
from headspaces.weights.hub.cache import cached_file, list_cached, local_range, split_by_cache
from headspaces.weights.hub.ranges import Progress, Window, merged_ranges
from headspaces.weights.hub.refusals import explained
from headspaces.weights.hub.source import HubSource, parse_hub
from headspaces.weights.hub.transfer import RemoteFile, patiently
from headspaces.weights.known_forms import describe_files
from headspaces.weights.strays import ASIDE, names_aside

logger = logging.getLogger(__name__)

CONNECTIONS = 8
"""Headers of a sharded model are read side by side over this many connections."""


def read_hub(source: str) -> tuple[str, dict[str, Any], dict[str, TensorHeader], dict[str, FileHeader]]:
    """Read configuration and headers of a repository; see :func:`~headspaces.weights.formats.gguf_header.read_gguf`.

    The revision returned is the commit that the named one stands for now; every file comes from that commit.

    Raises
    ------
    InputError
        If the repository, revision or a file is missing, gated or damaged, or the network or the cache lacks it.
    """
    from huggingface_hub import is_offline_mode

    wanted = parse_hub(source)
    commit, listed = list_cached(wanted) if is_offline_mode() else _list_files(wanted)
    files = {name: RemoteFile(wanted.repository, commit, name, *mark) for name, mark in listed.items()}
    config = _read_json(files, "config.json", wanted)
    chosen, placed = _find_weights(files, wanted)
    place, names = chosen[0], sorted(set(placed.values())) or chosen
    if absent := [name for name in names if name not in files]:
        message = f"{source}: {place} names the file {absent[0]}, which the repository does not hold"
        raise _absent(" ".join(absent), message, wanted)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        found = dict(zip(names, pool.map(lambda name: _read_file_header(files[name]), names), strict=True))
    tensors: dict[str, TensorHeader] = {}
    for name in names:
        own = {key: tensor for key, tensor in found[name][0].items() if placed.get(key, name) == name}
        check_disjoint(tensors, own, f"{source}: {name}")
        tensors |= own
    check_index(placed, tensors, f"{source}: {place}")
    places = {name: FileHeader(name, found[name][1], files[name].etag, "hub") for name in names}
    aside = {name: FileHeader(name, 0, files[name].etag, ASIDE) for name in names_aside(place, files, places)}
    return commit, config, tensors, places | aside


def _find_weights(files: Mapping[str, RemoteFile], wanted: HubSource) -> tuple[list[str], dict[str, str]]:
    """Return the files or the index that hold the weights, and which file holds which tensor."""
    where = f"hub:{wanted.repository}"
    try:
        chosen = choose_weights(files, lambda index: _is_complete(files, index, wanted), where)
    except InputError as error:
        raise _absent(SINGLE, f"{error}, once `hf download {wanted.repository} FILE` has fetched it", wanted) from error
    if not chosen[0].endswith(".json"):
        return chosen, {}
    return chosen, weight_map(_read_json(files, chosen[0], wanted), f"{where}: {chosen[0]}")


def _is_complete(files: Mapping[str, RemoteFile], index: str, wanted: HubSource) -> bool:
    """Whether the repository holds all files that an index names."""
    try:
        return set(weight_map(_read_json(files, index, wanted), index).values()) <= set(files)
    except InputError:
        return False


def _absent(name: str, message: str, wanted: HubSource) -> InputError:
    """Say that a file is missing: from the cache in offline mode, else from the repository."""
    from huggingface_hub import is_offline_mode
    from huggingface_hub.errors import OfflineModeIsEnabled

    if is_offline_mode():
        return explained(OfflineModeIsEnabled(), wanted.repository, wanted.revision, name)
    return InputError(message)


def moved_revision(headers: Headers) -> str | None:
    """Return the commit that an unpinned source stands for now, if it is not the one whose headers were read.

    None for other sources, and in offline mode, where nobody can be asked.

    Raises
    ------
    InputError
        If the Hub cannot be asked.
    """
    from huggingface_hub import is_offline_mode

    if not headers.source.startswith("hub:") or is_offline_mode():
        return None
    wanted = parse_hub(headers.source)
    if wanted.pinned:
        return None
    commit, _ = _list_files(wanted)
    return None if commit == headers.revision else commit


def stream_hub(headers: Headers, names: Iterable[str]) -> Stream:
    """Yield the named tensors' bytes: from the cache where it holds the whole file, else by merged ranges."""
    wanted = parse_hub(headers.source)
    cached, remote = split_by_cache(headers, list(names))
    if cached is not None:
        logger.info("%s: %d tensors from the cache", headers.source, len(cached[1]))
        yield from stream_folder(cached[0], cached[1])
    if not remote:
        return
    total = sum(end - begin for _, begin, end, _ in merged_ranges(headers, remote))
    with Progress(total, wanted.repository) as count:
        for file, begin, end, inside in merged_ranges(headers, remote):
            place = headers.files[file]
            source = RemoteFile(wanted.repository, headers.revision, file, place.size, place.etag)
            window = Window(count(source.read(begin, end)), begin)
            for name in inside:
                tensor = headers.tensors[name]
                window.skip_to(tensor.begin)
                yield name, window.take(tensor.size)
            window.skip_to(end)


def bytes_to_fetch(headers: Headers, blocks: Iterable[range] | None = None) -> int:
    """Bytes that fetching a model will move over the network, from its headers alone.

    Parameters
    ----------
    headers
        The checkpoint.
    blocks
        Its layers as they will be fetched, block by block; None for all at once.

    Returns
    -------
    The tensors with the small gaps inside merged ranges; 0 for local files and for files that the Hub's cache holds.
    """
    chosen = [range(headers.shape.n_layers)] if blocks is None else blocks
    if not headers.source.startswith("hub:"):
        return 0
    _, remote = split_by_cache(headers, [name for block in chosen for name in headers.layer_names(block)])
    return sum(
        end - begin
        for block in chosen
        for _, begin, end, _ in merged_ranges(headers, set(headers.layer_names(block)) & set(remote))
    )


def _list_files(wanted: HubSource) -> tuple[str, dict[str, tuple[int | None, str]]]:
    """Resolve the revision and list the repository's files with size and etag."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(endpoint=constants.ENDPOINT, library_name="headspaces")
    try:
        info = patiently(
            lambda: api.model_info(
                wanted.repository,
                revision=wanted.revision,
                files_metadata=True,
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            ),
            f"hub:{wanted.repository}",
        )
    except HfHubHTTPError as error:
        raise explained(error, wanted.repository, wanted.revision) from error
    if not info.sha:
        raise InputError(
            f"hub:{wanted.repository}: {constants.ENDPOINT} does not say which commit {wanted.revision!r} is"
        )
    files = {}
    for sibling in info.siblings or []:
        etag = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        files[sibling.rfilename] = (sibling.lfs.size if sibling.lfs else sibling.size, etag or "")
    return info.sha, files


def _read_json(files: Mapping[str, RemoteFile], name: str, wanted: HubSource) -> dict[str, Any]:
    if name not in files:
        raise InputError(
            f"hub:{wanted.repository}: no file {name!r}; it is not a model in Hugging Face layout. There is "
            f"{describe_files(files)}"
        )
    cached = cached_file(wanted.repository, files[name].commit, name)
    data = cached.read_bytes() if cached else files[name].read_whole()
    try:
        content = json.loads(data)
    except ValueError as error:
        raise InputError(f"hub:{wanted.repository}: {name} is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError(f"hub:{wanted.repository}: {name}: expected a JSON object")
    return content


def _read_file_header(file: RemoteFile) -> tuple[dict[str, TensorHeader], int]:
    """Return a file's tensors and its size, from the cache or by a few small range requests."""
    where = f"hub:{file.repository}@{file.commit[:12]}: {file.name}"
    cached = cached_file(file.repository, file.commit, file.name)
    if cached and not file.name.endswith(".bin"):
        return read_header(cached, file.name), cached.stat().st_size
    size = file.size if file.size is not None else _ask_size(file)
    file = replace(file, size=size)
    if file.name.endswith(".bin"):
        return read_archive(local_range(cached) if cached else file.read, file.name, size, where), size
    start = b"".join(file.read(0, min(8, size))) if size else b""
    length = header_length(start, size, where)
    return parse_header(b"".join(file.read(8, 8 + length)), file.name, size, where), size


def _ask_size(file: RemoteFile) -> int:
    from huggingface_hub import get_hf_file_metadata
    from huggingface_hub.errors import HfHubHTTPError

    try:
        size = patiently(lambda: get_hf_file_metadata(file.url), f"{file.repository}: {file.name}").size
    except HfHubHTTPError as error:
        raise explained(error, file.repository, file.commit, file.name) from error
    if size is None:
        raise InputError(f"hub:{file.repository}: the server does not say how long {file.name} is")
    return size
