"""Checkpoints by name: what a name stands for, its headers, and its heads read block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from headspaces.errors import InputError
from headspaces.library.source import HeadSource
from headspaces.spaces import KINDS, Shape
from headspaces.study.models import MODEL_NAME, Model, read_models
from headspaces.study.names import model_name, read_names
from headspaces.weights.content import content_sum, with_content
from headspaces.weights.fetch import fetch_block
from headspaces.weights.headers import Headers
from headspaces.weights.headers_file import load_headers
from headspaces.weights.source import read_headers
from headspaces.weights.wheel import fetch_wheel

if TYPE_CHECKING:
    from headspaces.geometry.heads import LayerHeads


@dataclass(frozen=True)
class Found:
    """What the name of a model stands for.

    Attributes
    ----------
    name
        Its name in the results.
    source
        Where the checkpoint is.
    results
        Folder of the pipeline's results; None to leave them alone.
    row
        Its row in the table of models, if it has one.
    """

    name: str
    source: str
    results: Path | None
    row: Model | None = None

    @property
    def kinds(self) -> str:
        """The kinds of heads that are analysed."""
        return self.row.kinds if self.row else KINDS

    @property
    def headers(self) -> Path | None:
        """The headers that the workflow read, where it did."""
        return self.made(f"weights/{self.name}/headers.json")

    @property
    def overlaps(self) -> Path | None:
        """The overlaps that the workflow computed, where it did."""
        return self.made(f"overlaps/{self.name}.h5")

    def made(self, place: str) -> Path | None:
        """Give the path of a result where it is there."""
        path = self.results / place if self.results is not None else None
        return path if path is not None and path.is_file() else None


def find_model(text: str, results: str | Path | None = None, table: str | Path | None = None) -> Found:
    """Look up what a model's name stands for: a row of the table of models, a source, or a name in the results.

    Raises
    ------
    InputError
        If it is none of these.
    """
    known = read_models(Path(table)) if table is not None else {}
    folder = None if results is None else Path(results)
    if row := known.get(text):
        return Found(row.name, row.source, folder, row)
    if text.startswith(("hub:", "wheel:")):
        return Found(_name_in(folder, text), text, folder)
    if _exists(text):
        path = Path(text).expanduser().resolve()
        # What a file of this name holds is described by the configuration beside it.
        path = path.parent if path.name == "model.safetensors" else path
        return Found(_name_in(folder, str(path)), str(path), folder)
    made = Found(text, "", folder)
    if re.fullmatch(MODEL_NAME, text) and made.headers is not None:
        return replace(made, source=load_headers(made.headers).source)
    if re.fullmatch(MODEL_NAME, text) and made.overlaps is not None:
        from headspaces.store import read_attributes

        return replace(made, source=str(read_attributes(made.overlaps, "overlaps")["source"]))
    rows = f", a row of {table} ({', '.join(sorted(known))})" if known else ""
    there = f", nor a name in {results}/" if results is not None else ""
    meant = f" (did you mean hub:{text}?)" if re.fullmatch(rf"{MODEL_NAME}/{MODEL_NAME}(@\S+)?", text) else ""
    raise InputError(f"model {text[:200]!r}{meant}: neither a folder or file, hub:owner/name, wheel:…{rows}{there}")


def _name_in(results: Path | None, source: str) -> str:
    """Name of a source: the one under which the results have it, else that of its folder, file or repository."""
    known = read_names(results).weights if results is not None else {}
    return next((name for name, owner in known.items() if owner == source), model_name(source))


def _exists(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # no file can have this name
        return False


def open_checkpoint(found: Found, kinds: str = KINDS) -> HeadSource:
    """Read a checkpoint's headers and no weights; of a wheel the one file, which is removed with the model.

    Parameters
    ----------
    found
        What :func:`find_model` found.
    kinds
        The kinds of heads wanted.

    Raises
    ------
    InputError
        If the source does not exist, is damaged, or is of an architecture that is not supported.
    """
    stored = load_headers(found.headers) if found.headers is not None and not _exists(found.source) else None
    held = inside = None
    if stored is not None and stored.source == found.source:
        headers = stored
    elif found.overlaps is not None and not found.source.startswith(("hub:", "wheel:")) and not _exists(found.source):
        return _from_results(found, found.overlaps)
    else:
        held = TemporaryDirectory(prefix="headspaces-") if found.source.startswith("wheel:") else None
        inside = Path(held.name) / "model.gguf" if held is not None else None
        if inside is not None:
            fetch_wheel(found.source, inside)
        wanted = "".join(kind for kind in found.kinds if kind in kinds)
        headers = read_headers(found.source, wanted, path=inside)
        if found.results is not None and found.overlaps is not None:
            # Overlaps are of a content, whatever the files' names and dates say.
            memory = found.results / "weights" / found.name / "content.json"
            headers = with_content(headers, content_sum(found.source, memory))

    def read(kinds: str) -> Iterator[LayerHeads]:
        from headspaces.weights.blocks import each_layer

        blocks = Model(found.name, found.source, kinds, headers.shape).blocks
        with TemporaryDirectory(prefix="headspaces-") as folder:
            for layers in blocks.values():
                path = Path(folder) / "block.safetensors"
                fetch_block(replace(headers, kinds=kinds), layers, path)
                yield from each_layer(path)

    return HeadSource(
        name=found.name,
        origin=headers.source,
        revision=headers.revision,
        architecture=headers.model_type,
        layout=headers.layout,
        norm=headers.norm,
        shape=headers.shape,
        kinds=headers.kinds,
        dtypes=tuple(sorted({tensor.dtype for tensor in headers.tensors.values()})),
        read=read,
        notes=headers.notes,
        details=lambda: _details(found, headers),
        checkpoint=_to_run(found, headers, inside),
        held=held,
    )


def _to_run(found: Found, headers: Headers, inside: Path | None) -> str | None:
    """Name the checkpoint at the commit of its headers; of a wheel the file that was taken out of it."""
    if found.source.startswith("wheel:"):
        inside = inside or found.made(f"weights/{found.name}/checkpoint/model.gguf")
        return None if inside is None else str(inside)
    source = headers.source
    return f"{source.partition('@')[0]}@{headers.revision}" if source.startswith("hub:") else source


def _from_results(found: Found, overlaps: Path) -> HeadSource:
    """Describe a model whose checkpoint is gone by its overlaps file."""
    from headspaces.store import read_attributes

    facts = read_attributes(overlaps, "overlaps")

    def read(kinds: str) -> Iterator[LayerHeads]:
        raise InputError(f"{found.source}: the checkpoint is gone and its {kinds} with it; {overlaps} is all there is")

    return HeadSource(
        name=found.name,
        origin=found.source,
        revision=str(facts["revision"]),
        architecture=str(facts.get("model_type", "unknown")),
        layout="unknown",
        norm=str(facts.get("norm", "none")),
        shape=Shape.from_attributes(facts),
        kinds=str(facts.get("kinds", KINDS)),
        dtypes=(),
        read=read,
        notes=(f"the checkpoint is gone: what {overlaps} holds is all that is known",),
    )


def _details(found: Found, headers: Headers) -> dict[str, object]:
    """Tell sizes, and which stages of the workflow the checkpoint allows."""
    from headspaces.study.configuration import Study
    from headspaces.study.own_models import own_model
    from headspaces.weights.hub.repository import bytes_to_fetch

    model = found.row or own_model(found.source, headers)
    study = Study(found.name, {model.name: model}, {})
    return {
        "n_tensors": len(headers.tensors),
        "n_files": len(headers.files),
        "bytes": headers.n_bytes(),
        "bytes_to_fetch": bytes_to_fetch(headers, model.blocks.values()),
        "stages": {stage: left_out.get(model.name) for stage, left_out in study.stages.items()},
    }
