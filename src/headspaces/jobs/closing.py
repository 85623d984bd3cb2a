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
    yield from strongest_connections(report.parent / "tables" / "strongest_pairs.csv")
    stages: dict[tuple[str, str], list[str]] = {}
    for stage, models in left_out.items():
        for model, why in models.items():
            stages.setdefault((model, why), []).append(stage)
    for (model, why), names in stages.items():
        yield f"left out: {', '.join(names)} of {model}: {why}"
    yield f"report: {report}"


def strongest_connections(table: Path) -> Iterator[str]:
    """Name each model's strongest pair of a writing and a later reading head; nothing without the table."""
    for row in _rows(table):
        if row["rank"] == "1":
            classes = " → ".join(filter(None, (row["writer_class"], row["reader_class"])))
            yield (
                f"strongest connection of {row['model']}: head {row['writer_layer']}.{row['writer_head']} writes where "
                f"the {_READS[row['spaces'][1]]} of head {row['reader_layer']}.{row['reader_head']} read: "
                f"ρ {float(row['rho']):.3f}, {float(row['isotropic_ratio']):.1f} times that of random subspaces"
                f"{f' ({classes})' if classes else ''}"
            )


_READS = {"Q": "queries", "K": "keys", "V": "values"}


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
