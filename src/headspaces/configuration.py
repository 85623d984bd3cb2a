"""A study: the configuration, checked, and the models that it names.

The Snakefile reads this module at every start, so only the standard library and the schema validator are imported, and
a checkpoint's headers only when a source is named on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headspaces.errors import InputError
from headspaces.models import KINDS, Model, model_name, read_models, select_models

OWN_STUDY = "own"
"""Study of one source that is named on the command line."""


@dataclass(frozen=True)
class Study:
    """Models that are reported together, and how.

    Attributes
    ----------
    name
        Folder of its report.
    models
        By name, in the report's order.
    settings
        The checked configuration.
    """

    name: str
    models: Mapping[str, Model]
    settings: Mapping[str, Any]


def read_study(settings: Mapping[str, Any], root: str | Path, command_line: Mapping[str, Any] | None = None) -> Study:
    """Check a configuration and look its models up.

    Parameters
    ----------
    settings
        Snakemake's merged configuration; ``model=SOURCE`` makes the study of that one source.
    root
        The project's folder, which holds the schema and the table of models.
    command_line
        The part of the settings that was given as ``--config key=value``: it arrives as text.

    Raises
    ------
    InputError
        If a key is unknown, a value has the wrong type, a model has no row, or a source cannot be read.
    """
    root = Path(root)
    schema = yaml.safe_load((root / "workflow" / "schemas" / "config.schema.yaml").read_text(encoding="utf-8"))
    settings = _overridden(settings, _typed(command_line or {}, schema))
    _check(settings, schema)
    table = Path(settings["models_table"])
    known = read_models(table if table.is_file() else root / table)
    if source := settings.get("model"):
        models = [known[source]] if source in known else [_own_model(str(source))]
        return Study(OWN_STUDY, {model.name: model for model in models}, settings)
    models = select_models(known, settings["models"], f"config: models of the study {settings['study']!r}")
    return Study(settings["study"], {model.name: model for model in models}, settings)


def _own_model(source: str) -> Model:
    from headspaces.weights import load_headers, read_headers

    # A repository's headers are asked for once: jobs on nodes without a network start from the file.
    known = Path("results/weights") / model_name(source) / "headers.json"
    if source.startswith("hub:") and known.is_file() and load_headers(known).source == source:
        headers = load_headers(known)
    else:
        headers = read_headers(source)
    # Bases of 2 GiB and more are kept in float32: the numbers are good to six digits, and the disk holds them.
    shape = headers.shape
    size = 8 * shape.n_layers * sum(shape.n_heads(kind) for kind in headers.kinds) * shape.d_model * shape.d_head
    return Model(
        name=model_name(source),
        source=source if source.startswith("hub:") else str(Path(source).expanduser().resolve()),
        kinds=headers.kinds,
        shape=shape,
        nulls_dtype="float32" if size > 2**31 else "float64",
        bases_dtype="float32" if size > 2**34 else "float64",
        note="; ".join(headers.notes),
    )


def _typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """Give text from the command line the type that the schema asks for, where it reads as one."""
    if isinstance(value, Mapping):
        return {key: _typed(inner, schema.get("properties", {}).get(key, {})) for key, inner in value.items()}
    if isinstance(value, str) and schema.get("type") in ("boolean", "integer", "number"):
        return yaml.safe_load(value.lower())
    return value


def _overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _overridden(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return merged


def _check(settings: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    import jsonschema

    error = next(iter(sorted(jsonschema.Draft202012Validator(schema).iter_errors(settings), key=str)), None)
    if error is None:
        return
    place = ".".join(str(part) for part in error.absolute_path)
    inside = f" in {place!r}" if place else ""
    if error.validator == "additionalProperties":
        unknown = sorted(set(error.instance) - set(error.schema["properties"]))
        raise InputError(
            f"config: unknown key {unknown[0]!r}{inside}; the keys are {', '.join(sorted(error.schema['properties']))}"
        )
    if error.validator == "required":
        raise InputError(f"config: {error.message}{inside}")
    raise InputError(f"config: {place or 'value'} is {error.instance!r}, but {_expectation(error)}")


def _expectation(error: Any) -> str:
    if error.validator == "type":
        hint = "; write 1.0e-6, since YAML reads 1e-6 as text" if error.validator_value == "number" else ""
        return f"must be of type {error.validator_value}{hint}"
    return f"must have {error.validator} {error.validator_value}"


__all__ = ["KINDS", "OWN_STUDY", "Study", "read_study"]
