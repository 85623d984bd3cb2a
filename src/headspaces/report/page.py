"""The report of a study as one page: findings, scorecard, figures and tables with what to look at, models, record.

The page is self-contained but for the files that it links, which lie beside it: every table and figure as PDF, CSV,
LaTeX and so on, and the interactive page of every model.
"""

from __future__ import annotations

import base64
import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from headspaces.report.document import MISSING, TextTable, read_sections, text_table
from headspaces.report.duplicates import read_duplicates
from headspaces.report.findings import Findings, findings
from headspaces.report.html import render_page
from headspaces.report.run_record import RunRecord
from headspaces.report.scorecard import MATCHES, NOT_RUN, VERDICTS, read_tables
from headspaces.report.series_findings import series_findings
from headspaces.study.items import FIGURES, TABLES

_OWN = frozenset({"model", "source", "revision", "format", "format_version", "package_version"})
"""Attributes of every stage's file that the table of models shows, or that say nothing to a reader."""

GROUPS = {
    "RW": "RW: read and write spaces, disjoint but overlapping",
    "PK": "PK: affinity of heads by the projection kernel",
    "": "New here: in neither paper",
}
"""Headings of the parts of the page, by where their figures and tables are from."""

MAIN_FIGURE, OF_SERIES = "figure3", "series"
"""The figure among the findings, of models and of a study of series."""


@dataclass(frozen=True)
class StudyFiles:
    """The files of a study's report; those of the same name with another ending lie beside them.

    ``scorecard.json`` and ``reference.json`` (``.csv``, ``.md``), ``duplicates.csv``; by name each table's JSON
    (``.csv``, ``.md``, ``.tex``) and each figure's PNG (``.pdf``, ``.csv``); by model its interactive page;
    the page that shows two of these.
    """

    scorecard: str | Path
    duplicates: str | Path
    tables: Mapping[str, Path] = field(default_factory=dict)
    figures: Mapping[str, Path] = field(default_factory=dict)
    atlases: Mapping[str, Path] = field(default_factory=dict)
    reference: str | Path | None = None
    side_by_side: str | Path | None = None


class Link(NamedTuple):
    """A file that the page links: its address and what it is."""

    address: str
    label: str


def by_name(paths: Iterable[str | Path]) -> dict[str, Path]:
    """Name files by what they show: their own names without the ending."""
    return {Path(path).stem: Path(path) for path in paths}


def report_page(study: str, files: StudyFiles, record: RunRecord, folder: Path) -> str:
    """Return a study's page, of these files and what they were made from; addresses are relative to ``folder``."""
    main = OF_SERIES if _is_of_series(record) else MAIN_FIGURE
    return render_page(
        "report",
        study=study,
        models=list(record.attributes),
        findings=_findings(files, record),
        main_figure=next((figure for figure in _figures(files, folder) if figure["item"].name == main), None),
        steps="series" in files.tables,
        settings_line=_settings_line(record.settings),
        scorecard=_scorecard(Path(files.scorecard), folder),
        reference=_scorecard(Path(files.reference), folder) if files.reference else None,
        duplicates=read_duplicates(files.duplicates),
        duplicates_link=Link(_address(Path(files.duplicates), folder), "CSV"),
        groups=_groups(files, folder),
        model_table=_model_table(record),
        atlases={model: _address(path, folder) for model, path in files.atlases.items()},
        side_by_side=_address(Path(files.side_by_side), folder) if files.side_by_side else "",
        stage_facts=_stage_facts(record),
        notes_of={model: note.split("; ") for model, note in record.notes.items()},
        left_out=record.left_out,
        settings=list(_flat(_own_settings(record.settings))),
        costs=_cost_table(record),
        software=record.software,
        machine=record.machine,
    )


def _findings(files: StudyFiles, record: RunRecord) -> list[Findings]:
    frames = read_tables({name: path.with_suffix(".csv") for name, path in files.tables.items()})
    models, series = [findings(model, frames) for model in record.attributes], series_findings(frames)
    return series + models if _is_of_series(record) else models + series


def _is_of_series(record: RunRecord) -> bool:
    """Whether the study was asked for as one of series."""
    return bool(record.settings.get("series"))


def _settings_line(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pick what a reader must know of the settings to read the findings; all of them stand below."""
    names = {
        "model": "source", "fold": "norms folded into the reads", "rank_rtol": "tolerance of ranks",
        "nulls.samples": "samples of each null model", "seed": "seed", "head_classes": "head classes",
        "published_as": "compared as", "activations.text": "text",
    }  # fmt: skip
    given = dict(_flat(settings))
    return [(label, given[name]) for name, label in names.items() if name in given]


def _groups(files: StudyFiles, folder: Path) -> list[dict[str, Any]]:
    """Part figures and tables by the paper that they are of."""
    figures, tables = list(_figures(files, folder)), list(_tables(files, folder))

    def of(origin: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [part for part in parts if part["item"].origin == origin]

    groups = [
        {"id": origin.lower() or "new", "title": title, "figures": of(origin, figures), "tables": of(origin, tables)}
        for origin, title in GROUPS.items()
    ]
    return [group for group in groups if group["figures"] or group["tables"]]


def _scorecard(path: Path, folder: Path) -> dict[str, Any]:
    with path.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        counts = Counter(row["verdict"] for row in csv.DictReader(file))
    summary, *verdicts = read_sections(path)
    return {
        "is_answered": any(counts[verdict] for verdict in VERDICTS if verdict != NOT_RUN),
        "n": sum(counts.values()),
        "n_matches": counts[MATCHES],
        "counts": [(verdict, counts[verdict]) for verdict in VERDICTS],
        "said": summary.paragraphs,
        "summary": summary.table,
        "verdicts": verdicts,
        "links": _links(path, ("csv", "md"), folder),
    }


def _figures(files: StudyFiles, folder: Path) -> Iterator[dict[str, Any]]:
    for name, path in files.figures.items():
        picture = base64.b64encode(path.read_bytes()).decode("ascii")
        numbers = path.with_suffix(".csv").read_text(encoding="utf-8").splitlines()
        yield {
            "item": FIGURES[name],
            "anchor": name,
            # Without numbers the picture only says that there is nothing to draw: the page says it in its own words.
            "picture": f"data:image/png;base64,{picture}" if len(numbers) > 1 else "",
            "links": _links(path, ("pdf", "png", "csv"), folder),
        }


def _tables(files: StudyFiles, folder: Path) -> Iterator[dict[str, Any]]:
    for name, path in files.tables.items():
        (section,) = read_sections(path)
        # Some tables and figures share a name.
        anchor = f"{name}_table" if name in files.figures else name
        links = _links(path, ("csv", "md", "tex"), folder)
        yield {"item": TABLES[name], "anchor": anchor, "section": section, "links": links}


def _links(path: Path, endings: tuple[str, ...], folder: Path) -> list[Link]:
    labels = {"csv": "numbers (CSV)", "md": "Markdown", "tex": "LaTeX", "pdf": "PDF", "png": "PNG"}
    return [Link(_address(path.with_suffix(f".{ending}"), folder), labels[ending]) for ending in endings]


def _address(path: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(path, folder)).as_posix())


def _model_table(record: RunRecord) -> TextTable:
    names = {
        "source": "source", "revision": "revision", "n_layers": "layers", "n_query_heads": "query heads",
        "n_kv_heads": "key-value heads", "d_model": "D", "d_head": "d", "kinds": "kinds", "norm": "norm",
        "fold": "norm folded", "dtype": "arithmetic", "package_version": "headspaces",
    }  # fmt: skip
    first = {model: next(iter(stages.values()), {}) for model, stages in record.attributes.items()}
    rows = [[model, *(_shown(of_model.get(key, MISSING)) for key in names)] for model, of_model in first.items()]
    return text_table(["model", *names.values()], rows)


def _stage_facts(record: RunRecord) -> dict[str, dict[str, list[tuple[str, str]]]]:
    """By model and stage, what a file says beyond what the first stage's file says."""
    facts: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for model, stages in record.attributes.items():
        first = next(iter(stages.values()), {})
        for stage, attributes in stages.items():
            own = [(key.replace("_", " "), _shown(value)) for key, value in sorted(attributes.items())
                   if key not in _OWN and first.get(key) != value]  # fmt: skip
            if own:
                facts.setdefault(model, {})[stage] = own
    return facts


def _cost_table(record: RunRecord) -> TextTable:
    header = ["stage", "model, study or text", "jobs", "seconds", "CPU seconds", "largest job (MiB)"]
    rows = []
    for cost in record.costs:
        peak = MISSING if cost.peak_mib is None else f"{cost.peak_mib:.0f}"
        times = f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.1f}"
        rows.append([cost.stage, cost.subject, str(cost.n_jobs), *times, peak])
    return text_table(header, rows)


def _own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the settings that the study of one named source does not use."""
    unused = {"study", "models"} if "model" in settings else set()
    return {key: value for key, value in settings.items() if key not in unused}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list) else _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
