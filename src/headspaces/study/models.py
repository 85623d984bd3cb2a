"""The models of a study: one row of ``config/models.tsv`` each, or one source named on the command line.

Only the standard library is imported here: the Snakefile reads this module at every start.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS, Shape

MODEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""A model's name is one path component and one wildcard."""

MAX_NAME = 100
"""Longest name that is made of a source: file names hold more beside it."""

SHARD_OPERATIONS = 10**13
"""Floating-point operations of one job of null samples: some minutes of two cores."""

SHARD_SAMPLES = 15
"""Most null samples of one job, so that an interrupted run of a small model keeps what it has."""

BLOCK_BYTES = 2**30
"""Size of the float64 bases in one block of layers: a job's memory and a cache file's size follow from it."""


@dataclass(frozen=True)
class Model:
    """One model of a study."""

    name: str
    source: str
    kinds: str
    shape: Shape
    bases_dtype: str = "float64"
    nulls_dtype: str = "float64"
    activations: str = ""
    head_classes: str = ""
    note: str = ""

    @property
    def bases_bytes(self) -> int:
        """Size of all bases in float64, the measure of what a model costs."""
        shape = self.shape
        columns = sum(shape.n_heads(kind) for kind in self.kinds) * shape.d_head
        return 8 * shape.n_layers * shape.d_model * columns

    @property
    def blocks(self) -> dict[str, range]:
        """The layers in consecutive blocks of about :data:`BLOCK_BYTES` of bases, by the name of their files."""
        n_layers = self.shape.n_layers
        size = max(1, BLOCK_BYTES * n_layers // self.bases_bytes)
        blocks = [range(start, min(start + size, n_layers)) for start in range(0, n_layers, size)]
        return {f"layers{block[0]:03d}-{block[-1]:03d}": block for block in blocks}

    @property
    def n_observed_pairs(self) -> int:
        """Number of observed head pairs: unordered within a layer and kind, writer to every later reader across."""
        shape = self.shape
        within = sum(shape.n_heads(kind) * (shape.n_heads(kind) - 1) // 2 for kind in self.kinds) * shape.n_layers
        layer_pairs = shape.n_layers * (shape.n_layers - 1) // 2
        readers = sum(shape.n_heads(kind) for kind in self.kinds if kind != "O")
        return within + (layer_pairs * shape.n_query_heads * readers if "O" in self.kinds else 0)

    @property
    def null_sample_operations(self) -> int:
        """Floating-point operations of one null sample: the operator algorithm over all pairs, and the rotations.

        ``D^2`` a pair and ``D^2 d`` a head (see :mod:`headspaces.geometry.kernel`); a rotation of ``n d`` columns
        applies ``n d`` reflectors to D rows, ``2 D (n d)^2``.
        """
        shape, d_model = self.shape, self.shape.d_model
        widths = [shape.n_heads(kind) * shape.d_head for kind in self.kinds]
        forming = d_model**2 * sum(widths) * shape.n_layers
        rotating = 2 * d_model * sum(width**2 for width in widths) * shape.n_layers
        return d_model**2 * self.n_observed_pairs + forming + rotating

    @property
    def samples_per_shard(self) -> int:
        """Null samples of one job, by the operations that they take."""
        return max(1, min(SHARD_SAMPLES, SHARD_OPERATIONS // self.null_sample_operations))


def model_name(source: str) -> str:
    """Name an unlisted source after its folder, file or repository, as one path component."""
    place = source.split("@")[0].rstrip("/").removesuffix(".gguf").removesuffix(".pt")
    stem = Path(place.removeprefix("hub:")).name if ":" not in place else place.rsplit(":", 1)[1].rsplit("/", 1)[-1]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:MAX_NAME]
    if not name and stem.strip("-._ "):
        # A name in another script has no letter left: its own sum tells it from others.
        name = "model-" + hashlib.sha256(stem.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if not name:
        raise InputError(f"model source {source!r} gives no name: end it with the name of a folder, file or repository")
    return name


def local_files(source: str) -> list[str]:
    """Files of a local checkpoint, so that a changed one is read again; nothing for sources elsewhere."""
    try:
        place = Path(source).expanduser()
        if ":" in source or not place.exists():
            return []
    except (OSError, ValueError, RuntimeError):  # no file can have this name: reading the headers says so
        return []
    if place.is_file():
        # A split GGUF file is named by its first part.
        parts = glob.escape(place.name).replace("-00001-of-", "-?????-of-")
        beside = [parts] if place.suffix == ".gguf" else [parts, "config.json"]
        return sorted(str(file) for pattern in beside for file in place.parent.glob(pattern))
    patterns = ("config.json", "*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json")
    return sorted(str(file) for pattern in patterns for file in place.glob(pattern))


def read_models(path: Path) -> dict[str, Model]:
    """Read the table of known models.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing or unknown, a value has the wrong type, or a name occurs twice.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: not a readable table of models ({reason})") from error
    models: dict[str, Model] = {}
    for number, row in enumerate(rows, start=1):
        model = _model_of(row, f"{path}, row {number}")
        if model.name in models:
            raise InputError(f"{path}: the model {model.name!r} has two rows; give each its own name")
        models[model.name] = model
    return models


def select_models(known: Mapping[str, Model], names: Iterable[str], where: str) -> list[Model]:
    """Return the named models in order; a name without a row is an error that lists the known ones."""
    chosen = []
    for name in names:
        if name not in known:
            raise InputError(f"{where}: unknown model {name!r}; known are {', '.join(sorted(known))}")
        chosen.append(known[name])
    return chosen


def _model_of(row: Mapping[str, str | None], where: str) -> Model:
    own = [field.name for field in fields(Model) if field.name != "shape"]
    shape = [field.name for field in fields(Shape)]
    if extra := [str(key) for key in row if key not in own + shape]:
        raise InputError(f"{where}: unknown column {extra[0]!r}; the columns are {', '.join(own + shape)}")
    values = {key: (value or "").strip() for key, value in row.items()}
    missing = [key for key in ["name", "source", "kinds", *shape] if not values.get(key)]
    if missing:
        raise InputError(f"{where}: no value for {missing[0]!r}")
    if not re.fullmatch(MODEL_NAME, values["name"]):
        raise InputError(f"{where}: the name {values['name']!r} must be letters, digits, '.', '_' and '-' only")
    if values.get("activations", "") not in ("", "yes"):
        raise InputError(f"{where}: activations is {values['activations']!r}, expected yes or nothing")
    if values["kinds"] != "".join(kind for kind in KINDS if kind in values["kinds"]):
        raise InputError(f"{where}: kinds {values['kinds']!r} may hold the letters {KINDS} only, each once, in order")
    for key in ("bases_dtype", "nulls_dtype"):
        if values.get(key, "") not in ("", "float64", "float32"):
            raise InputError(f"{where}: {key} is {values[key]!r}, expected float64 or float32")
    numbers = {key: _positive(values[key], key, where) for key in shape}
    given: dict[str, Any] = {key: value for key, value in values.items() if value and key not in shape}
    return Model(**given, shape=Shape(**numbers))


def _positive(text: str, key: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 7 or int(text) == 0:
        raise InputError(f"{where}: {key} is {text!r}, expected a positive whole number below 10 million")
    return int(text)
