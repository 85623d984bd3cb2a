"""The command line: ``python -m headspaces inspect | pairs | compare``, tables of text or JSON.

It parses, calls :mod:`headspaces.api` and prints. What the user gets wrong is one line and exit status 2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headspaces import __version__
from headspaces.api import ACROSS, WITHIN, compare_models, inspect_model, strongest_pairs
from headspaces.errors import InputError
from headspaces.jobs.code import SOURCE
from headspaces.named_models import find_model
from headspaces.threads import reuse_memory

MODELS = """\
MODEL is a folder in the Hugging Face layout, a .gguf or .pt file, hub:owner/name[@revision], the name of a row of
config/models.tsv, or a name in results/."""

SPACES = f"""\
Spaces: {", ".join(WITHIN)} for the pairs of one kind within each layer (OO, QQ, KK, VV mean the same);
{", ".join(ACROSS)} for every write space with every read space of a later layer."""

COMPARED = (
    "pairs", "mean ρ 1", "mean ρ 2", "spread 1", "spread 2",
    "largest difference", "median difference", "largest relative",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0, or 2 for something that the user can mend."""
    options = _parser().parse_args(arguments)
    reuse_memory()
    try:
        found = [find_model(text, options.results, _table(options.models_table)) for text in options.models]
        result = options.look(found, options)
        if options.json:
            print(json.dumps(_finite(result), indent=1, ensure_ascii=False, allow_nan=False))
        else:
            print("\n".join(options.show(result)))
        sys.stdout.flush()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough, as `head` does; nothing is left to be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m headspaces",
        description="A quick look at the spaces of a model's attention heads, without the workflow.",
        epilog=MODELS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headspaces {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON, every digit")
    common.add_argument("--results", default="results", metavar="DIR", help="the workflow's results (default: results)")
    common.add_argument("--models-table", metavar="FILE", help="table of models (default: config/models.tsv)")
    unfolded = argparse.ArgumentParser(add_help=False)
    unfolded.add_argument(
        "--unfolded", action="store_true", help="bare weights, as PK has them: without the norm before the attention"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, summary: str, *parents: argparse.ArgumentParser, spaces: bool = True) -> Any:
        return commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            parents=[*parents, common],
            epilog=f"{MODELS}\n\n{SPACES}" if spaces else MODELS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    inspect = command("inspect", "what a model is: layout, spaces, bytes, and which stages it allows", spaces=False)
    inspect.add_argument("models", nargs=1, metavar="MODEL")
    inspect.set_defaults(look=lambda found, _: inspect_model(found[0]), show=_show_model)

    pairs = command("pairs", "the pairs of heads whose spaces overlap most", unfolded)
    pairs.add_argument("models", nargs=1, metavar="MODEL")
    pairs.add_argument("--spaces", type=_spaces, default="OK", help="which spaces (default: OK)")
    pairs.add_argument("--top", type=_positive, default=20, metavar="N", help="how many pairs (default: 20)")
    pairs.set_defaults(look=_look_at_pairs, show=_show_pairs)

    compare = command("compare", "two models of one shape side by side, pair by pair", unfolded)
    compare.add_argument("models", nargs=2, metavar="MODEL")
    compare.add_argument(
        "--spaces", type=_all_spaces, default=(), metavar="SPACES", help="such as O,OK (default: all that both have)"
    )
    compare.set_defaults(look=_look_at_two, show=_show_two)
    return parser


def _spaces(text: str) -> str:
    name = text.upper()
    name = name[0] if len(name) == 2 and name[0] == name[1] else name
    if name not in (*WITHIN, *ACROSS):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join((*WITHIN, *ACROSS))}")
    return name


def _all_spaces(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_spaces(part) for part in text.split(",")))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _table(given: str | None) -> Path | None:
    """Find the table of models: the given one, that of this folder, or that of the clone."""
    if given is not None:
        if not Path(given).is_file():
            raise InputError(f"table of models {given}: no such file")
        return Path(given)
    places = (Path("config/models.tsv"), SOURCE.parent / "config" / "models.tsv")
    return next((place for place in places if place.is_file()), None)


def _look_at_pairs(found: list[Any], options: argparse.Namespace) -> dict[str, Any]:
    return strongest_pairs(found[0], options.spaces, options.top, fold=not options.unfolded)


def _look_at_two(found: list[Any], options: argparse.Namespace) -> dict[str, Any]:
    return compare_models(found[0], found[1], options.spaces, fold=not options.unfolded)


def _show_model(model: dict[str, Any]) -> Iterable[str]:
    shape = model["shape"]
    facts = [
        ("source", model["source"]),
        ("revision", model["revision"]),
        ("architecture", f"{model['architecture']} (layout {model['layout']})"),
        ("norm before the attention", model["norm"]),
        ("layers", shape["n_layers"]),
        ("residual stream", f"{shape['d_model']} dimensions"),
        ("heads", f"{shape['n_query_heads']} query, {shape['n_kv_heads']} key-value, {shape['d_head']} wide"),
        ("isotropic ρ, d/D", f"{model['isotropic']:.4f}"),
        ("attention tensors", f"{model['n_tensors']}, of type {', '.join(model['dtypes'])}"),
        ("files that hold them", model["n_files"]),
        ("their size", _size(model["bytes"])),
        ("to be fetched", _size(model["bytes_to_fetch"]) if model["source"].startswith("hub:") else "nothing"),
    ]
    yield model["model"]
    yield from ("  " + line for line in _aligned([(label, str(value)) for label, value in facts], "ll"))
    yield "\nspaces of a layer"
    rows = [("kind", "", "heads", "summed width", "deficiency forced by it")]
    for kind, room in model["spaces"].items():
        rows.append((kind, *(str(room[key]) for key in ("what", "heads", "width", "forced_deficiency"))))
    yield from ("  " + line for line in _aligned(rows, "llrrr"))
    yield "\nstages of the workflow"
    stages = [(stage, f"no: {reason}" if reason else "yes") for stage, reason in model["stages"].items()]
    yield from ("  " + line for line in _aligned(stages, "ll"))
    yield from ("\n" + note for note in model["notes"])


def _show_pairs(result: dict[str, Any]) -> Iterable[str]:
    spaces, within = result["spaces"], result["spaces"] in WITHIN
    yield from _heading(result)
    yield f"isotropic ρ {result['isotropic']:.4f}; layer.head of each space\n"
    ends = (f"{spaces[0]}", f"{spaces[-1]}")
    rows = [(ends[0], "", ends[1], "ρ", "PK", "smallest angle (°)")]
    for pair in result["pairs"]:
        first, second = (f"{pair[end]['layer']}.{pair[end]['head']}" for end in ("source", "target"))
        numbers = (f"{pair['rho']:.4f}", f"{pair['pk']:.2f}", f"{pair['angle_deg']:.2f}")
        rows.append((first, "–" if within else "→", second, *numbers))
    yield from _aligned(rows, "rlrrrr")


def _show_two(result: dict[str, Any]) -> Iterable[str]:
    for number, facts in enumerate(result["models"], start=1):
        first, second = _heading(facts)
        yield f"{number}  {first}\n {second}"
    for key, title in (("comparisons", "over all pairs"), ("layers", "within each layer")):
        if rows := result[key]:
            names = ["spaces", "layer"] if key == "layers" else ["spaces"]
            lines = [[*names, *COMPARED]]
            lines += [[str(row[name]) for name in names] + _compared(row) for row in rows]
            yield f"\n{title}"
            yield from ("  " + line for line in _aligned(lines, "l" + "r" * (len(lines[0]) - 1)))


def _compared(row: dict[str, Any]) -> list[str]:
    values = [f"{value:.4f}" for key in ("mean_rho", "spread") for value in row[key]]
    differences = ("max_abs_difference", "median_abs_difference", "max_relative_difference")
    return [str(row["n_pairs"]), *values, *(f"{row[key]:.2e}" for key in differences)]


def _heading(facts: dict[str, Any]) -> tuple[str, str]:
    norms = "norms folded into the reads" if facts["fold"] else "bare weights"
    return f"{facts['model']}: {norms}; {facts['from']}", f"  {facts['source']} ({facts['revision']})"


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
    """Replace numbers that JSON does not have by null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
