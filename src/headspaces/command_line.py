"""The command line: ``headspaces inspect | pairs | compare | export``, tables of text, CSV or JSON.

It parses, calls the library and prints (:mod:`headspaces.printing`). What the user gets wrong is one line and exit
status 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headspaces import __version__, printing
from headspaces.errors import InputError
from headspaces.jobs.code import SOURCE
from headspaces.library.comparisons import PAIRS_OF_KINDS
from headspaces.library.description import describe
from headspaces.library.loading import load
from headspaces.library.model import ModelSpaces
from headspaces.spaces import ACROSS, WITHIN
from headspaces.threads import reuse_memory

MODELS = """\
MODEL is a folder in the Hugging Face layout, a .gguf or .pt file, hub:owner/name[@revision], the name of a row of
config/models.tsv, or a name in results/."""

SPACES = f"""\
Spaces: {", ".join(WITHIN)} for the pairs of one kind within each layer; two letters for the heads of every layer with
those of all later ones: {", ".join(ACROSS)} from writes to reads, or any other two."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0, or 2 for something that the user can mend."""
    options = _parser().parse_args(arguments)
    reuse_memory()
    try:
        table = _table(options.models_table)
        models = [_open(text, options, table) for text in options.models]
        print("\n".join(options.run(models, options)))
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
        prog="headspaces",
        description="A quick look at the spaces of a model's attention heads, without the workflow.",
        epilog=MODELS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headspaces {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--results", default="results", metavar="DIR", help="the workflow's results (default: results)")
    common.add_argument("--models-table", metavar="FILE", help="table of models (default: config/models.tsv)")
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
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.set_defaults(run=_inspect, unfolded=False, rank_rtol=None)

    pairs = command("pairs", "the pairs of heads whose spaces overlap most", _settings(), _formats())
    pairs.add_argument("models", nargs=1, metavar="MODEL")
    pairs.add_argument("--spaces", type=_spaces, default="OK", help="which spaces (default: OK)")
    count = pairs.add_mutually_exclusive_group()
    count.add_argument("--top", type=_positive, default=20, metavar="N", help="how many pairs (default: 20)")
    count.add_argument("--all", action="store_true", help="all pairs")
    pairs.set_defaults(run=_pairs)

    compare = command("compare", "two models of one shape side by side, pair by pair", _settings(), _formats())
    compare.add_argument("models", nargs=2, metavar="MODEL")
    compare.add_argument(
        "--spaces", type=_all_spaces, default=(), metavar="SPACES", help="such as O,OK (default: all that both have)"
    )
    compare.add_argument(
        "--match", action="store_true", help="match heads by the overlap of their O and V spaces, not by their numbers"
    )
    compare.set_defaults(run=_compare)

    export = command("export", "overlaps and angles of all pairs as a file", _settings())
    export.add_argument("models", nargs=1, metavar="MODEL")
    export.add_argument(
        "file", type=_exported, metavar="FILE", help=".h5, labelled arrays; or .csv, a row for each pair"
    )
    export.add_argument(
        "--spaces", type=_all_spaces, default=(), metavar="SPACES", help="such as O,OK (default: all of the papers')"
    )
    export.set_defaults(run=_export)
    return parser


def _settings() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--unfolded", action="store_true", help="bare weights, as PK has them: without the norm before the attention"
    )
    parser.add_argument(
        "--rank-rtol", type=_share, metavar="R", help="part of the largest singular value that counts (default: 1e-6)"
    )
    return parser


def _formats() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--json", action="store_true", help="print JSON, every digit")
    either.add_argument("--csv", action="store_true", help="print CSV, 12 digits")
    return parser


def _spaces(text: str) -> str:
    name = text.upper()
    if name not in (*WITHIN, *PAIRS_OF_KINDS):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(WITHIN)}, or two of these letters")
    return name


def _all_spaces(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_spaces(part) for part in text.split(",")))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to below 1")
    return value


def _exported(text: str) -> Path:
    if Path(text).suffix not in (".h5", ".csv"):
        raise argparse.ArgumentTypeError(f"{text!r} does not end with .h5 or .csv")
    return Path(text)


def _table(given: str | None) -> Path | None:
    """Find the table of models: the given one, that of this folder, or that of the clone."""
    if given is not None:
        if not Path(given).is_file():
            raise InputError(f"table of models {given}: no such file")
        return Path(given)
    places = (Path("config/models.tsv"), SOURCE.parent / "config" / "models.tsv")
    return next((place for place in places if place.is_file()), None)


def _open(text: str, options: argparse.Namespace, table: Path | None) -> ModelSpaces:
    settings = {"fold": not options.unfolded, "rank_rtol": options.rank_rtol}
    return load(text, results=options.results, models_table=table, **settings)


def _inspect(models: Sequence[ModelSpaces], options: argparse.Namespace) -> list[str]:
    facts = describe(models[0])
    return [printing.as_json(facts)] if options.json else list(printing.show_model(facts))


def _pairs(models: Sequence[ModelSpaces], options: argparse.Namespace) -> list[str]:
    (model,) = models
    frame = model.top_pairs(options.spaces, None if options.all else options.top)
    if options.csv:
        return [printing.as_csv(frame)]
    facts = printing.facts(model, options.spaces) | {"spaces": options.spaces, "isotropic": printing.isotropic(model)}
    if options.json:
        return [printing.as_json(facts | {"pairs": printing.pairs_json(frame)})]
    return list(printing.show_pairs(facts, frame))


def _compare(models: Sequence[ModelSpaces], options: argparse.Namespace) -> list[str]:
    from headspaces.library.comparison import compare

    one, other = models
    frame = compare(one, other, options.spaces, match=options.match)
    if options.csv:
        return [printing.as_csv(frame)]
    both = [printing.facts(model, frame["spaces"].iloc[0]) for model in models]
    if options.json:
        return [printing.as_json({"models": both, **frame.attrs, **printing.compared_json(frame)})]
    return list(printing.show_two(both, frame, printing.isotropic(one)))


def _export(models: Sequence[ModelSpaces], options: argparse.Namespace) -> list[str]:
    from headspaces.library.exporting import export

    (model,) = models
    names = export(model, options.file, options.spaces)
    return [f"{options.file}: {', '.join(names)} of {model.name}"]
