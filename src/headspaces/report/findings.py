"""The findings of a report: what was analysed and what came out, in sentences whose numbers are those of the tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headspaces.report.tables.headings import shown

Tables = Mapping[str, pd.DataFrame]

READ_NAMES = {"OQ": "queries", "OK": "keys", "OV": "values"}
SPACES = {
    "O": "writes of one layer", "Q": "query reads of one layer", "K": "key reads of one layer",
    "V": "value reads of one layer", **{spaces: f"writes and later {name}" for spaces, name in READ_NAMES.items()},
}  # fmt: skip
N_PAIRS = 10
ZERO_DEG = 1e-4
"""Angles below this are zero to rounding."""
_NULLS = {
    "table4": "{0} + {0} samples of RW's two null models",
    "swap": "{0} samples of the swap null, which keeps all of a layer's directions",
}
"""Tables of the spread against null models, and how their samples are called."""


@dataclass(frozen=True)
class Connection:
    """One of a model's strongest pairs, as it is printed.

    ``place`` is its address in the atlas, ``heads`` names writer and reader, ``known`` says what they are known or
    measured to be, empty where nothing is.
    """

    place: str
    heads: str
    through: str
    rho: str
    angle: str
    known: str


@dataclass(frozen=True)
class Findings:
    """What the report says of a model first: sentences, and its strongest pairs."""

    model: str
    sentences: Sequence[str]
    pairs: Sequence[Connection]


def findings(model: str, tables: Tables) -> Findings:
    """Sum the tables of a report up for one model; a sentence whose tables are not there is left out."""
    own = {
        name: frame[frame["model"] == model]
        for name, frame in tables.items()
        if "model" in frame and (frame["model"] == model).any()
    }
    parts = (_analysed, _disjoint, _spread, _strongest, _on_text)
    sentences = [sentence for part in parts for sentence in part(own)]
    return Findings(model, sentences, [_connection(row) for row in _rows(own, "strongest_pairs")[:N_PAIRS]])


def _rows(tables: Tables, name: str) -> list[dict[str, Any]]:
    frame = tables.get(name, pd.DataFrame())
    return [{str(key): cell for key, cell in row.items()} for row in frame.to_dict("records")]


def _analysed(tables: Tables) -> Iterator[str]:
    for row in _rows(tables, "table3"):
        heads = f"{row['n_query_heads']} heads"
        if row["n_query_heads"] != row["n_kv_heads"]:
            heads = f"{row['n_query_heads']} query and {row['n_kv_heads']} key-value heads"
        said = f"{row['n_layers']} layers of {heads}, each d = {row['d_head']} of D = {row['d_model']} dimensions"
        if "table1" in tables:
            pairs = tables["table1"].groupby("scope")["n_pairs"].sum()
            across = f", {pairs['across']:,} of them from a writer to a later reader" if "across" in pairs else ""
            said += f": {pairs.sum():,} pairs of head spaces{across}"
        yield said + "."


def _disjoint(tables: Tables) -> Iterator[str]:
    rows = [row for row in _rows(tables, "table1") if not math.isnan(row["min_angle_deg"])]
    if not rows:
        return
    nearest: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["min_angle_deg"]):
        nearest.setdefault(row["scope"], row)
    angles = " and ".join(
        f"{shown(nearest[scope]['min_angle_deg'], 'min_angle_deg')}° between {SPACES[nearest[scope]['spaces']]}"
        for scope in ("within", "across")
        if scope in nearest
    )
    typical = _range([row["median_min_angle_deg"] for row in rows], "median_min_angle_deg")
    shared = min(row["min_angle_deg"] for row in rows) < ZERO_DEG
    claim = "Some spaces share a direction" if shared else "No two spaces share a direction"
    yield f"{claim}: the smallest angles are {angles}, where the median pair's is {typical}°."


def _spread(tables: Tables) -> Iterator[str]:
    counts = [count for name, samples in _NULLS.items() for count in _above_all(tables.get(name), samples)]
    if not counts:
        return
    times = next(_range(tables[name]["r_median"], "r_median") for name in _NULLS if name in tables)
    claim = "more than" if all(above > 2 * chance for above, chance, _ in counts) else "about as far as"
    yield (
        f"Overlaps spread {claim} chance lets expect, {times} times as far as the widest null sample (medians): "
        f"{'; '.join(said for *_, said in counts)}."
    )


def _above_all(frame: pd.DataFrame | None, samples: str) -> Iterator[tuple[int, float, str]]:
    """Count the conditions above all samples of a table's null models, and those that would be by chance alone."""
    if frame is None or not (n := int(frame["n_conditions"].sum())):
        return
    # Of n samples and the observed value the observed one is the largest once in n + 1 times.
    one_in = 2 * frame["n_samples"] + 1
    chance = frame["expected_above_all"] if "expected_above_all" in frame else frame["n_conditions"] / one_in
    above, expected = int(frame["n_above_all"].sum()), float(chance.sum())
    named = samples.format(frame["n_samples"].iloc[0])
    yield (
        above,
        expected,
        f"in {above:,} of {n:,} layers and layer pairs beyond all {named} (by chance: {expected:.1f})",
    )


def _strongest(tables: Tables) -> Iterator[str]:
    rows = _rows(tables, "strongest_pairs")[:N_PAIRS]
    if not rows:
        return
    first, known = _connection(rows[0]), [found for row in rows if (found := _connection(row)).known]
    said = (
        f"The strongest connection is {first.heads} through {first.through} (ρ {first.rho}, "
        f"{shown(rows[0]['isotropic_ratio'], 'isotropic_ratio')} times what two random spaces have)"
    )
    if known:
        # One that is known at both ends says most; the first is said already.
        example = max(known, key=lambda found: ("→" in found.known, found != first))
        said += (
            f"; of the {len(rows)} strongest {len(known)} join heads of known or measured kind, "
            f"such as {example.heads} through {example.through} ({example.known})"
        )
    yield said + "."


def _on_text(tables: Tables) -> Iterator[str]:
    rows = [row for row in _rows(tables, "activations") if isinstance(row["energy_spearman"], float)]
    if rows:
        values = ", ".join(
            f"{shown(row['energy_spearman'], 'energy_spearman')} for {READ_NAMES[str(row['spaces'])]}" for row in rows
        )
        yield f"On text, ρ ranks the pairs as the share of real writes that reaches the reader does: Spearman {values}."


def _connection(row: Mapping[str, Any]) -> Connection:
    place = ("spaces", "writer_layer", "writer_head", "reader_layer", "reader_head")
    return Connection(
        ".".join(str(row[name]) for name in place),
        f"{row['writer_layer']}.{row['writer_head']} → {row['reader_layer']}.{row['reader_head']}",
        READ_NAMES[str(row["spaces"])],
        shown(row["rho"], "rho"),
        shown(row["min_angle_deg"], "min_angle_deg"),
        _known(row),
    )


def _known(row: Mapping[str, Any]) -> str:
    """Say what writer and reader are known as; nothing where nothing is known of both."""
    writer, reader = ("" if _absent(row[name]) else str(row[name]) for name in ("writer_class", "reader_class"))
    if writer and reader:
        return f"{writer} → {reader}"
    return f"from {writer}" if writer else f"to {reader}" if reader else ""


def _absent(cell: Any) -> bool:
    return cell == "" or (isinstance(cell, float) and math.isnan(cell))


def _range(values: Iterable[float], column: str) -> str:
    known = [float(value) for value in values if not math.isnan(value)] or [math.nan]
    low, high = (shown(end, column) for end in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"
