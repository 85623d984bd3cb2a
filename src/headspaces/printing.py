"""How the command line prints what the library gives: aligned tables, JSON with every digit, CSV."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headspaces.library.model import ModelSpaces
from headspaces.spaces import WITHIN

if TYPE_CHECKING:
    import pandas as pd

COMPARED = {
    "mean_rho_one": "mean ρ 1", "mean_rho_other": "mean ρ 2", "spread_one": "spread 1", "spread_other": "spread 2",
    "max_abs_difference": "largest difference", "median_abs_difference": "median difference",
    "max_relative_difference": "largest relative",
}  # fmt: skip
"""Columns of a comparison, and their headings."""


def facts(model: ModelSpaces, spaces: str) -> dict[str, Any]:
    """Say which weights, settings and file the numbers of a comparison come from."""
    fold, rank_rtol = model.answers.settings(None, None)
    heads = model.heads
    return {
        "model": heads.name, "source": heads.origin, "revision": heads.revision, "fold": fold, "rank_rtol": rank_rtol,
        "leave_out_rounding": heads.leave_out_rounding, "from": model.answers.origin_of(spaces),
    }  # fmt: skip


def isotropic(model: ModelSpaces) -> float:
    """Return the expected rho of two random spaces, d / D."""
    return model.shape.d_head / model.shape.d_model


def as_json(value: Any) -> str:
    """Write JSON; numbers that it does not have are null."""
    return json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False)


def as_csv(frame: pd.DataFrame) -> str:
    """Write CSV with 12 significant digits; nothing where a value is missing."""
    return frame.to_csv(index=False, float_format="%.12g", lineterminator="\n").rstrip("\n")


def pairs_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """List pairs with layers and heads as numbers."""
    one, other = frame.columns[:2]
    return [
        {
            "source": _place(row[one]), "target": _place(row[other]), "rho": row["rho"], "pk": row["pk"],
            "angle_deg": row["angle_deg"], **({"effect": row["effect"]} if "effect" in row else {}),
        }
        for row in frame.to_dict("records")
    ]  # fmt: skip


def edges_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """List edges with layers and heads as numbers."""
    return [{**row, "writer": _place(row["writer"]), "reader": _place(row["reader"])} for row in _rows(frame)]


def compared_json(frame: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Divide a comparison into what is over all pairs and what is by layer."""
    rows = []
    for row in _rows(frame):
        both = {key: [row[f"{key}_one"], row[f"{key}_other"]] for key in ("mean_rho", "spread")}
        rest = {key: value for key, value in row.items() if not key.startswith(("mean_rho_", "spread_", "layer"))}
        rows.append({**rest, **both})
    layers = frame["layer"].tolist()
    overall = frame["layer"].isna().tolist()
    return {
        "comparisons": [row for row, whole in zip(rows, overall, strict=True) if whole],
        "layers": [
            {"layer": int(layer), **row} for row, layer, whole in zip(rows, layers, overall, strict=True) if not whole
        ],
    }


def show_model(model: Mapping[str, Any]) -> Iterator[str]:
    """Print what a model is."""
    shape = model["shape"]
    rows = [
        ("source", model["source"]),
        ("revision", model["revision"]),
        ("architecture", f"{model['architecture']} (layout {model['layout']})"),
        ("norm before the attention", model["norm"]),
        ("layers", shape["n_layers"]),
        ("residual stream", f"{shape['d_model']} dimensions"),
        ("heads", f"{shape['n_query_heads']} query, {shape['n_kv_heads']} key-value, {shape['d_head']} wide"),
        ("isotropic ρ, d/D", f"{model['isotropic']:.4f}"),
    ]
    if "n_tensors" in model:
        rows += [
            ("attention tensors", f"{model['n_tensors']}, of type {', '.join(model['dtypes'])}"),
            ("files that hold them", model["n_files"]),
            ("their size", _size(model["bytes"])),
            ("to be fetched", _size(model["bytes_to_fetch"]) if model["source"].startswith("hub:") else "nothing"),
        ]
    yield model["model"]
    yield from ("  " + line for line in _aligned([(label, str(value)) for label, value in rows], "ll"))
    yield "\nspaces of a layer"
    spaces = [("kind", "", "heads", "summed width", "deficiency forced by it")]
    for kind, room in model["spaces"].items():
        spaces.append((kind, *(str(room[key]) for key in ("what", "heads", "width", "forced_deficiency"))))
    yield from ("  " + line for line in _aligned(spaces, "llrrr"))
    yield from _rounding(model["within_rounding"])
    if "stages" in model:
        yield "\nstages of the workflow"
        stages = [(stage, f"no: {reason}" if reason else "yes") for stage, reason in model["stages"].items()]
        yield from ("  " + line for line in _aligned(stages, "ll"))
    yield from ("\n" + note for note in model["notes"])


def show_pairs(about: Mapping[str, Any], frame: pd.DataFrame) -> Iterator[str]:
    """Print the strongest pairs."""
    spaces, within = about["spaces"], about["spaces"] in WITHIN
    yield from _heading(about)
    yield f"isotropic ρ {about['isotropic']:.4f}; layer.head of each space\n"
    if frame.empty:
        yield f"no pairs: {_no_pairs(spaces)}"
        return
    one, other = frame.columns[:2]
    effects = "effect" in frame
    rows = [(spaces[0], "", spaces[-1], "ρ", "PK", "smallest angle (°)", *(["effect (1e-3 nats)"] if effects else []))]
    for row in _rows(frame):
        numbers = [f"{row['rho']:.4f}", f"{row['pk']:.2f}", f"{row['angle_deg']:.2f}"]
        numbers += [f"{1e3 * row['effect']:.3f}"] if effects else []
        rows.append((row[one], "–" if within else "→", row[other], *numbers))
    yield from _aligned(rows, "rlr" + "r" * (len(rows[0]) - 3))


def show_effects(about: Mapping[str, Any], frame: pd.DataFrame) -> Iterator[str]:
    """Print the edges that matter most."""
    yield from _heading(about)
    yield f"{about['measure']} {about['value']:.4f} nats, mean of {about['n_cases']} sequences"
    yield "in 1e-3 nats; without the write at this read it changes by about -A; layer.head of each\n"
    if frame.empty:
        yield "no edges: there is no later layer"
        return
    rows = [("writer", "", "reader", "", "A", "A to 2nd order", "absolute", "ρ")]
    for row in _rows(frame):
        effects = (f"{1e3 * row[name]:.3f}" for name in ("effect", "effect_second_order", "absolute"))
        rows.append((row["writer"], "→", row["reader"], row["kind"], *effects, f"{row['rho']:.4f}"))
    yield from _aligned(rows, "rlrlrrrr")


def show_two(both: Sequence[Mapping[str, Any]], frame: pd.DataFrame, random: float) -> Iterator[str]:
    """Print two models side by side; ``random`` is the rho of heads that have nothing to do with one another."""
    for number, about in enumerate(both, start=1):
        first, second = _heading(about)
        yield f"{number}  {first}\n {second}"
    if matching := frame.attrs.get("matching"):
        rho = ", ".join(f"{kind} {value:.4f}" for kind, value in matching["mean_rho"].items())
        moved = f"{matching['n_moved']} of {matching['n_heads']} in another place"
        yield f"heads are matched by the overlap of their O and V spaces: {moved}; mean ρ {rho} (random {random:.4f})"
    whole = frame["layer"].isna()
    for title, part in (("over all pairs", frame[whole]), ("within each layer", frame[~whole])):
        part = part[part["n_pairs"] > 0]
        if part.empty:
            continue
        names = ["spaces"] if title == "over all pairs" else ["spaces", "layer"]
        lines = [[*names, "pairs", *COMPARED.values()]]
        lines += [[str(row[name]) for name in names] + _compared(row) for row in _rows(part)]
        yield f"\n{title}"
        yield from ("  " + line for line in _aligned(lines, "l" + "r" * (len(lines[0]) - 1)))
    for spaces in frame["spaces"][whole & (frame["n_pairs"] == 0)]:
        yield f"\n{spaces}: no pairs, {_no_pairs(spaces)}"


def _no_pairs(spaces: str) -> str:
    return "a layer has one such head" if spaces in WITHIN else "there is no later layer"


def _compared(row: Mapping[str, Any]) -> list[str]:
    digits = {key: ".2e" if key.endswith("difference") else ".4f" for key in COMPARED}
    return [str(row["n_pairs"]), *(f"{row[key]:{digits[key]}}" for key in COMPARED)]


def _heading(about: Mapping[str, Any]) -> tuple[str, str]:
    norms = "norms folded into the reads" if about["fold"] else "bare weights"
    rounding = "; directions within rounding left out" if about["leave_out_rounding"] else ""
    return f"{about['model']}: {norms}{rounding}; {about['from']}", f"  {about['source']} ({about['revision']})"


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def _rounding(counts: Mapping[str, Mapping[str, int] | None]) -> Iterator[str]:
    what = "\ndirections that the storage's rounding may have made"
    if not counts:
        yield f"{what}: not counted (--rounding)"
        return
    yield what
    rows = [
        (kind, "unknown for this type" if own is None else f"{own['directions']} of {own['heads']} heads")
        for kind, own in counts.items()
    ]
    yield from ("  " + line for line in _aligned(rows, "ll"))


def _place(text: str) -> dict[str, int]:
    layer, head = text.split(".")
    return {"layer": int(layer), "head": int(head)}


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(sides))]
    for row in rows:
        cells = [
            cell.ljust(width) if side == "l" else cell.rjust(width) for cell, width, side in zip(row, widths, sides)
        ]
        yield "  ".join(cells).rstrip()


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:,.2f} GB"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
