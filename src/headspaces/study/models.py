"""The models of a study: one row of ``config/models.tsv`` each, or one source named on the command line.

The Snakefile reads this module at every start: no import in it takes long.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headspaces.errors import InputError, did_you_mean
from headspaces.spaces import Shape
from headspaces.study.schemas import first_error, read_schema

MODEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""A model's name is one path component and one wildcard."""

SHARD_OPERATIONS = 10**13
"""Floating-point operations of one job of null samples: some minutes of two cores."""

AT_ONCE_OPERATIONS = 10**9
"""Floating-point operations of a null sample of a model whose samples take less time than the starts of their jobs."""

SHARD_SAMPLES = 15
"""Most null samples of one job, so that an interrupted run of a small model keeps what it has."""

BLOCK_BYTES = 2**30
"""Size of the float64 bases in one block of layers: a job's memory and a cache file's size follow from it."""

SMALL_BYTES = 2**31
"""A model whose float64 bases are smaller is treated as small: run whole, in double precision, with every score."""


@dataclass(frozen=True)
class Model:
    """One model of a study: a row of the table, whose columns ``workflow/schemas/models.schema.yaml`` describes.

    ``checkpoint`` is the name of its weights in the results, which models of other settings may share.
    """

    name: str
    source: str
    kinds: str
    shape: Shape
    bases_dtype: str = "float64"
    nulls_dtype: str = "float64"
    activations: str = ""
    head_classes: str = ""
    series: str = ""
    note: str = ""
    checkpoint: str = ""

    @property
    def packed(self) -> bool:
        """Whether the checkpoint is a GGUF file, which transformers takes long to open."""
        return self.source.startswith("wheel:") or self.source.endswith(".gguf")

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
    def layers_kept(self) -> int:
        """Layers that stay in memory between null samples: a large model's are read again."""
        return self.shape.n_layers if self.bases_bytes < BLOCK_BYTES else 2

    @property
    def invariant_procrustes(self) -> bool:
        """Whether maps are compared by Procrustes too: for a large model it costs as much as all other scores."""
        return self.bases_bytes < SMALL_BYTES

    @property
    def scores_dtype(self) -> str:
        """Arithmetic of the scores of pairs, and of swaps, which are not continuous: float32 for a large model."""
        return "float64" if self.bases_bytes < SMALL_BYTES else "float32"

    @property
    def readers(self) -> int:
        """Heads in a layer that are compared with earlier layers' writes."""
        return sum(self.shape.n_heads(kind) for kind in self.kinds if kind != "O") if "O" in self.kinds else 0

    @property
    def n_within_pairs(self) -> int:
        """Number of unordered head pairs of one kind within a layer, in all layers."""
        counts = [self.shape.n_heads(kind) for kind in self.kinds]
        return self.shape.n_layers * sum(n * (n - 1) // 2 for n in counts)

    @property
    def n_across_pairs(self) -> int:
        """Number of pairs of a writer and a later layer's reader."""
        return self.shape.n_layers * (self.shape.n_layers - 1) // 2 * self.shape.n_query_heads * self.readers

    @property
    def n_observed_pairs(self) -> int:
        """Number of observed head pairs."""
        return self.n_within_pairs + self.n_across_pairs

    @property
    def pair_operations(self) -> int:
        """Floating-point operations of the operator algorithm over all pairs.

        ``D^2`` a pair and ``D^2 d`` a head (see :mod:`headspaces.geometry.kernel`).
        """
        shape = self.shape
        columns = sum(shape.n_heads(kind) for kind in self.kinds) * shape.d_head * shape.n_layers
        return shape.d_model**2 * (self.n_observed_pairs + columns)

    @property
    def null_sample_operations(self) -> int:
        """Floating-point operations of one sample of RW's null models: all pairs, and the rotations.

        A rotation of ``n d`` columns applies ``n d`` reflectors to D rows, ``2 D (n d)^2``.
        """
        shape = self.shape
        widths = [shape.n_heads(kind) * shape.d_head for kind in self.kinds]
        return self.pair_operations + 2 * shape.d_model * sum(width**2 for width in widths) * shape.n_layers

    @property
    def sweep_operations(self) -> int:
        """Floating-point operations of one sweep of the swap null model, at the rate of products.

        Three products of ``D x d`` and ``d x d`` a pair, and a singular value decomposition that takes the time of
        products of ``100 d^3``.
        """
        d_model, d_head = self.shape.d_model, self.shape.d_head
        return self.n_within_pairs * (6 * d_model * d_head**2 + 100 * d_head**3)

    @property
    def nulls_at_once(self) -> bool:
        """Whether all null samples are little enough work for one job."""
        return self.null_sample_operations < AT_ONCE_OPERATIONS

    @property
    def samples_per_shard(self) -> int:
        """Samples of one job of RW's null models, by the operations that they take."""
        return max(1, min(SHARD_SAMPLES, SHARD_OPERATIONS // self.null_sample_operations))

    def swap_samples_per_shard(self, sweeps: int) -> int:
        """Count the samples of one job of the swap null model, by the operations that they take."""
        operations = self.pair_operations + sweeps * self.sweep_operations
        return max(1, min(SHARD_SAMPLES, SHARD_OPERATIONS // operations))


def read_models(path: Path) -> dict[str, Model]:
    """Read the table of known models, each row checked against ``workflow/schemas/models.schema.yaml``.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing or unknown, a value has the wrong type, or a name occurs twice.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = (line for line in file if not line.startswith("#"))
            rows = list(csv.DictReader(lines, delimiter="\t", restkey="beyond the last"))
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: not a readable table of models ({reason})") from error
    schema = read_schema(Path(__file__).with_name("models.schema.yaml"))
    models: dict[str, Model] = {}
    for number, row in enumerate(rows, start=1):
        model = _model_of(row, f"{path}, row {number}", schema)
        if model.name in models:
            raise InputError(f"{path}: the model {model.name!r} has two rows; give each its own name")
        models[model.name] = model
    return models


def select_models(known: Mapping[str, Model], names: Iterable[str], where: str) -> list[Model]:
    """Return the named models in order; a name without a row is an error that lists the known ones."""
    chosen = []
    for name in names:
        if name not in known:
            raise InputError(
                f"{where}: unknown model {name!r}{did_you_mean(name, known)}; known are {', '.join(sorted(known))}"
            )
        chosen.append(known[name])
    return chosen


def _model_of(row: Mapping[str, Any], where: str, schema: Mapping[str, Any]) -> Model:
    """Make a model of a row of text; an empty cell says nothing, which the schema allows or not."""
    cells = {column: cell.strip() if isinstance(cell, str) else cell for column, cell in row.items()}
    given = {column: cell for column, cell in cells.items() if cell or column not in schema["properties"]}
    if error := first_error(schema, given):
        raise InputError(f"{where}: {_trouble(error)}")
    counts = {field.name: int(given.pop(field.name)) for field in fields(Shape)}
    return Model(**given, shape=Shape(**counts))


def _trouble(error: Any) -> str:
    columns = error.schema.get("properties", {})
    if error.validator == "additionalProperties":
        unknown = next(column for column in error.instance if column not in columns)
        return f"unknown column {unknown!r}; the columns are {', '.join(columns)}"
    if error.validator == "required":
        return f"no value for {next(column for column in columns if column not in error.instance)!r}"
    return f"{error.absolute_path[0]} is {error.instance!r}, expected {error.schema['description']}"
