"""JSON schemas of the configuration and of the table of models: what may stand there, described key by key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def read_schema(path: Path) -> Mapping[str, Any]:
    """Read a schema, which is written in YAML; once in a process."""
    schema: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return schema


def first_error(schema: Mapping[str, Any], instance: Any) -> Any:
    """Return the first error of an instance, or None: a mistyped key before the missing one that it was to be."""
    import jsonschema

    errors = jsonschema.Draft202012Validator(schema).iter_errors(instance)
    return min(errors, key=lambda error: (error.validator != "additionalProperties", str(error)), default=None)
