"""The command line: ``headspaces inspect | pairs | compare | effects | export``, tables; and ``run``, the workflow.

It parses, calls the library and prints (:mod:`headspaces.printing`). What the user gets wrong is one line and exit
status 2.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headspaces import __version__, printing
from headspaces.errors import InputError
from headspaces.jobs.code import SOURCE
from headspaces.jobs.run_command import snakemake_arguments, snakemake_program
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

RUN = f"""\
{MODELS}

Settings are those of config/config.yaml, by their names: fold=false, samples=100 or nulls.samples=100,
text=FILE, published_as=gpt2, head_classes=FILE. Targets are files in results/, or plan: what it will cost.
The line of snakemake that is run is printed first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0, or 2 for something that the user can mend."""
    options = _parse(arguments)
    reuse_memory()
    try:
        if options.run is None:
            return _run(options)
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


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse; the words of ``run`` may stand on both sides of its options, which argparse does not do by itself."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and (options.run is not None or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.words += rest
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headspaces",
        description="The whole study of a model (run), or a quick look at the spaces of its attention heads.",
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

    study = commands.add_parser(
        "run",
        help="the whole study of a model: every table and figure, and a report",
        description="The whole study of a model or of several: every table and figure, and a report in results/report.",
        epilog=RUN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    study.add_argument("source", metavar="SOURCE", help="a model, or a .yaml file of a study")
    study.add_argument("words", nargs="*", metavar="SETTING=VALUE | TARGET", help="such as samples=100 or plan")
    study.add_argument("--cores", default="all", metavar="N", help="cores to use (default: all)")
    study.add_argument("-n", "--dry-run", action="store_true", help="only say what would run")
    study.set_defaults(run=None)

    inspect = command("inspect", "what a model is: layout, spaces, bytes, and which stages it allows", spaces=False)
    inspect.add_argument("models", nargs=1, metavar="MODEL")
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.add_argument(
        "--rounding",
        action="store_true",
        help="read the weights; count directions that their rounding may have made",
    )
    inspect.set_defaults(run=_inspect, unfolded=False, rank_rtol=None, leave_out_rounding=False)

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

    effects = command(
        "effects", "the edges from writes to later reads that matter most to the loss", _formats(), spaces=False
    )
    effects.add_argument("models", nargs=1, metavar="MODEL")
    effects.add_argument("text", nargs="?", metavar="TEXT", help="a text file, dataset:… or python:pydoc_data.topics")
    effects.add_argument("--prompts", metavar="FILE", help="instead of TEXT, prompts with two answers each, JSON lines")
    effects.add_argument("--top", type=_positive, default=20, metavar="N", help="how many edges (default: 20)")
    effects.add_argument("--windows", type=_positive, default=8, metavar="N", help="pieces of the text (default: 8)")
    effects.add_argument(
        "--window-tokens", type=_positive, default=256, metavar="N", help="their length (default: 256)"
    )
    effects.set_defaults(run=_effects, unfolded=False, rank_rtol=None, leave_out_rounding=False)

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
    parser.add_argument(
        "--leave-out-rounding", action="store_true", help="without directions that the storage's rounding may have made"
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
    settings |= {"leave_out_rounding": options.leave_out_rounding}
    return load(text, results=options.results, models_table=table, **settings)


def _run(options: argparse.Namespace) -> int:
    """Become the snakemake that does it: signals, cores and the exit status are its own."""
    arguments = snakemake_arguments(options.source, options.words, options.cores, dry=options.dry_run)
    print(shlex.join(["snakemake", *arguments]), flush=True)
    program = snakemake_program()
    os.execv(program[0], [*program, *arguments])  # noqa: S606


def _inspect(models: Sequence[ModelSpaces], options: argparse.Namespace) -> list[str]:
    facts = describe(models[0], count_rounding=options.rounding)
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


def _effects(models: Sequence[ModelSpaces], options: argparse.Namespace) -> list[str]:
    (model,) = models
    frame = model.effects(
        options.text, options.top, prompts=options.prompts, windows=options.windows, window_tokens=options.window_tokens
    )
    if options.csv:
        return [printing.as_csv(frame)]
    facts = printing.facts(model, "OK") | frame.attrs
    if options.json:
        return [printing.as_json(facts | {"edges": printing.edges_json(frame)})]
    return list(printing.show_effects(facts, frame))


def _export(models: Sequence[ModelSpaces], options: argparse.Namespace) -> list[str]:
    from headspaces.library.exporting import export

    (model,) = models
    names = export(model, options.file, options.spaces)
    return [f"{options.file}: {', '.join(names)} of {model.name}"]
