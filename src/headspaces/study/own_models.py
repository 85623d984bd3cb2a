"""Models and series of a study as they are named: in the table of models, or by a source on the command line.

The Snakefile reads this module at every start; a checkpoint's headers are read only where a source is named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headspaces.errors import DamagedFileError, InputError
from headspaces.files import set_aside
from headspaces.study.models import SMALL_BYTES, Model
from headspaces.study.names import Names, model_name
from headspaces.study.series import Series, make_series

if TYPE_CHECKING:
    from headspaces.weights.headers import Headers


def absolute_source(source: str) -> str:
    """Return a source so that it says the same from every folder."""
    if source.startswith(("hub:", "wheel:", "toy:")):
        return source
    try:
        return str(Path(source).expanduser().resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"source {source[:200]!r}: no folder or file can have this name ({error})") from error


def own_model(source: str, headers: Headers | None = None, checkpoint: str = "") -> Model:
    """Make the row of a model that has none, from its checkpoint's headers.

    Parameters
    ----------
    source
        Where the model is.
    headers
        What was read there; by default it is read now.
    checkpoint
        Name of its weights in the results, where a repository's headers may be known already.
    """
    from headspaces.weights.headers_file import load_headers
    from headspaces.weights.layouts import of_several_parts
    from headspaces.weights.source import read_headers

    # A repository's headers are asked for once: jobs on nodes without a network start from the file.
    known = Path("results/weights") / (checkpoint or model_name(source)) / "headers.json"
    if headers is None and source.startswith("hub:") and known.is_file():
        try:
            headers = load_headers(known)
        except DamagedFileError as error:
            logging.getLogger("headspaces").warning("%s", set_aside(error))
        headers = headers if headers and headers.source == source else None
    headers = headers or read_headers(source)
    # A whole repository is fetched and run only where it is small; big bases are kept in float32, good to six digits.
    model = Model(
        name=model_name(source),
        source=absolute_source(source),
        kinds=headers.kinds,
        shape=headers.shape,
        note="; ".join(headers.notes),
    )
    small = model.bases_bytes < SMALL_BYTES
    # Of a local model the check of its files says why it is not run.
    runs = not source.startswith("hub:") or (small and not of_several_parts(headers.checkpoint.config))
    return replace(
        model,
        activations="yes" if runs else "",
        # It moves no statistic of RW's null models by a thousandth of their noise (tests/nulls/test_samples.py).
        nulls_dtype="float32",
        bases_dtype="float64" if model.bases_bytes < 8 * SMALL_BYTES else "float32",
    )


Named = TypeVar("Named", Model, Series)


def by_name(found: Iterable[Named]) -> dict[str, Named]:
    """Key models or series by their names."""
    return {one.name: one for one in found}


@dataclass(frozen=True)
class Namer:
    """Names of models and series that are their own; ``rows`` are the table's names with their sources."""

    names: Names
    rows: Mapping[str, str]
    known: Mapping[str, Model]
    settings: Mapping[str, Any]

    def settled(self, model: Model, *, chosen: bool = True) -> Model:
        """Give a model names that are its own, see :meth:`~headspaces.study.names.Names.settle`."""
        name, checkpoint = self.names.settle(model.name, model.source, self.settings, self.rows, chosen=chosen)
        return replace(model, name=name, checkpoint=checkpoint)

    def series_of(self, model: Model) -> Series:
        """Make the series of a row that has its names; all steps are of its kinds and shape."""
        trained = model if model.source.startswith("toy:") else None
        if trained and model.series != model.source:
            raise InputError(f"model {model.name!r}: series is {model.series!r}, but only {model.source!r} is its own")
        return make_series(model.name, _series_source(model.series), lambda _: model, self._step, trained)

    def series(self, source: str, wanted: str | None = None) -> Series:
        """Make the series of a source; its last step tells kinds and shape."""
        if source.startswith("toy:"):
            return self.series_of(self._toy(source, wanted))
        place = _series_source(source)
        stem = place.partition("@")[0] if place.startswith("hub:") else place
        reserved = {**self.rows, self.settings["study"]: "a study"}
        name, _ = self.names.settle(
            wanted or model_name(stem), place, self.settings, reserved, chosen=wanted is not None
        )
        # Where a name stands for the last step's headers already, they are not asked for again.
        known = {owner: checkpoint for checkpoint, owner in self.names.weights.items()}

        def row(last: str) -> Model:
            model = own_model(last, checkpoint=known.get(last, ""))
            # Running a model asks for its whole files: of a repository's every step they are not fetched unasked.
            return replace(model, activations="") if last.startswith("hub:") else model

        return make_series(name, place, row, self._step)

    def _step(self, model: Model) -> Model:
        return self.settled(model, chosen=False)

    def _toy(self, source: str, wanted: str | None) -> Model:
        row = next((model for model in self.known.values() if model.source.startswith("toy:")), None)
        if row is None or not source.removeprefix("toy:").isdecimal():
            raise InputError(f"series {source!r}: expected toy:SEED, and a row of the models table whose source is one")
        seed = source.removeprefix("toy:")
        name = row.name if source == row.source else f"{row.name}-seed{seed}"
        return self.settled(replace(row, name=wanted or name, source=source, series=source))


def _series_source(source: str) -> str:
    return source if source.startswith("toy:") else absolute_source(source)
