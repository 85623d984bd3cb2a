"""The Hub's own cache: whole files of a repository on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headspaces.weights.formats.torch_archive import ReadRange
from headspaces.weights.headers import Headers
from headspaces.weights.hub.refusals import explained
from headspaces.weights.hub.source import COMMIT, HubSource, parse_hub


def cached_file(repository: str, revision: str, name: str) -> Path | None:
    """Path of a whole file in the Hub's cache, or None."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
    if not COMMIT.fullmatch(revision):
        reference = folder / "refs" / revision
        revision = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    path = folder / "snapshots" / revision / name
    return path if path.is_file() else None


def list_cached(wanted: HubSource) -> tuple[str, dict[str, tuple[int | None, str]]]:
    """List what the cache holds of a revision, for offline mode."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    config = cached_file(wanted.repository, wanted.revision, "config.json")
    if config is None:
        raise explained(OfflineModeIsEnabled(), wanted.repository, wanted.revision, "config.json")
    files = {path.name: (path.stat().st_size, "") for path in config.parent.iterdir() if path.is_file()}
    return config.parent.name, dict(files)


def split_by_cache(headers: Headers, names: list[str]) -> tuple[tuple[Headers, list[str]] | None, list[str]]:
    """Separate the tensors whose files are in the cache, as headers of local files, from those to fetch."""
    wanted = parse_hub(headers.source)
    paths = {file: cached_file(wanted.repository, headers.revision, file) for file in headers.files}
    local = {
        file: replace(headers.files[file], location=str(path), form="safetensors")
        for file, path in paths.items()
        if path is not None
    }
    here = [name for name in names if headers.tensors[name].file in local]
    cached = (replace(headers, files={**headers.files, **local}), here) if here else None
    return cached, [name for name in names if headers.tensors[name].file not in local]


def local_range(path: Path) -> ReadRange:
    """Give a function that reads ranges of bytes of a local file."""

    def read(begin: int, end: int) -> Iterator[bytes]:
        with path.open("rb") as stream:
            stream.seek(begin)
            yield stream.read(end - begin)

    return read
