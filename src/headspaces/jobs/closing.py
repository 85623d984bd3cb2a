"""The last lines of a run: the strongest connection found, what was left out and why, and where the report is."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path


def closing_lines(report: Path, left_out: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Say what a finished run has made.

    Parameters
    ----------
    report
        The page of the study, with the tables beside it.
    left_out
        By stage, the models that it is left out for, each with the reason.
    """
    yield from strongest_connections(report.parent / "tables")
    stages: dict[tuple[str, str], list[str]] = {}
    for stage, models in left_out.items():
        for model, why in models.items():
            stages.setdefault((model, why), []).append(stage)
    for (model, why), names in stages.items():
        yield f"left out: {' and '.join(names)} of {model}: {why}"
    yield f"report: {report}"


def strongest_connections(tables: Path) -> Iterator[str]:
    """Name each model's strongest pair of a writing and a later reading head, by PK; nothing without that table."""
    edges, shapes = _rows(tables / "pk_edges.csv"), {row["model"]: row for row in _rows(tables / "table3.csv")}
    best: dict[str, dict[str, str]] = {}
    for row in edges:
        if row["model"] not in best or float(row["pk"]) > float(best[row["model"]]["pk"]):
            best[row["model"]] = row
    for model, row in best.items():
        yield (
            f"strongest connection of {model}: head {row['source_layer']}.{row['source_head']} writes where "
            f"the {_READS[row['type'][1]]} of head {row['target_layer']}.{row['target_head']} read: "
            f"PK {float(row['pk']):.1f}{_of_chance(float(row['pk']), shapes.get(model))}"
        )


_READS = {"Q": "queries", "K": "keys", "V": "values"}


def _of_chance(pk: float, shape: Mapping[str, str] | None) -> str:
    if shape is None:
        return ""
    d_head, isotropic = float(shape["d_head"]), float(shape["isotropic"])
    return f" of at most {d_head:.0f}, {pk / (d_head * isotropic):.1f} times that of random subspaces"


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
