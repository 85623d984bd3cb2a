"""Settings that were given on the command line: their sections and types, and how they override the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """Give text from the command line the type that the schema asks for, where it reads as one."""
    if isinstance(value, Mapping):
        return {key: typed(inner, schema.get("properties", {}).get(key, {})) for key, inner in value.items()}
    if isinstance(value, str) and schema.get("type") in ("boolean", "integer", "number"):
        try:
            return yaml.safe_load(value.lower())
        except yaml.YAMLError:
            return value  # the schema refuses it with its key's name
    return value


def placed(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Put settings of the command line in their sections, ``samples=5`` being ``nulls={samples: 5}``."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        sections = [] if key in schema["properties"] else _sections(key, schema)
        for section in reversed(sections[0] if len(sections) == 1 else []):
            key, value = section, {key: value}
        found = overridden(found, {key: value})
    return found


def _sections(key: str, schema: Mapping[str, Any]) -> list[list[str]]:
    """Sections that a key stands in, from outside in."""
    inner = {name: part for name, part in schema.get("properties", {}).items() if "properties" in part}
    found = [[name] for name, part in inner.items() if key in part["properties"]]
    return found + [[name, *path] for name, part in inner.items() for path in _sections(key, part)]


def overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with changes in them, section by section."""
    merged = dict(settings)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = overridden(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return merged
