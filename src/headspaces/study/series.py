"""Series: the checkpoints of one training in the order of their steps, each a model of its own.

The Snakefile reads this module at every start. What a source of a series may be::

    FOLDER                        its sub-folders or files whose names tell a step: checkpoint-100, step1000, epoch_3
    hub:owner/name@step{0,1,512}  revisions by a list in braces, or {1000..143000..1000}
    hub:owner/name@step*          the repository's branches and tags by a pattern; without one, all that tell a step
    toy:SEED                      the two-layer model that the workflow trains, at the steps that it saves
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from headspaces.errors import InputError
from headspaces.files import whole_file
from headspaces.study.models import Model

TOY_STEPS = (0, 30, 100, 150, 175, 200, 250, 300, 700, 1500)
"""Steps at which the two-layer model is saved: logarithmic, and closer where its induction heads form."""

_WORDS = ("step", "iter(?:ation)?", "checkpoint|ckpt", "epoch")
"""What trainers write before the number; of several in a name the first here counts."""

_FILES = (".safetensors", ".gguf", ".pt", ".pth", ".ckpt", ".bin")


@dataclass(frozen=True)
class Series:
    """The steps of one training.

    Attributes
    ----------
    name
        Of its results.
    source
        Where it is.
    steps
        By number of the step, in order, the model.
    trained
        The model at the end of a training that the workflow does itself, whose folder holds the steps; else None.
    """

    name: str
    source: str
    steps: Mapping[int, Model]
    trained: Model | None = None


def step_number(name: str) -> int | None:
    """Return the step that a folder's, file's or revision's name tells; None where it tells none."""
    for word in _WORDS:
        if found := re.search(rf"(?:{word})[-_=. ]?(\d+)(?!\d)", name, re.IGNORECASE):
            return int(found[1])
    return int(name) if name.isdecimal() else None


def find_steps(source: str, results: str | Path = "results") -> dict[int, tuple[str, str]]:
    """Find the steps of a series: by number, in order, a label for its name and its source.

    A repository's revisions are asked for once; from then on they are those in :func:`revisions_file`.

    Raises
    ------
    InputError
        If there is no step, two have one number, or the Hub cannot be asked.
    """
    if source.startswith("toy:"):
        return {step: (f"step{step}", f"{source}@{step}") for step in TOY_STEPS}
    if source.startswith("hub:"):
        repository, _, pattern = source.partition("@")
        names = _revisions(source, repository, pattern, results)
        return _numbered(((name, f"{repository}@{name}") for name in names), source)
    return _numbered(_checkpoints(Path(source)), source)


def _numbered(found: Iterable[tuple[str, str]], source: str) -> dict[int, tuple[str, str]]:
    steps: dict[int, tuple[str, str]] = {}
    for label, place in found:
        step = step_number(label)
        if step is None:
            raise InputError(f"series {source}: {label!r} tells no step; expected a name such as step1000")
        if step in steps:
            raise InputError(f"series {source}: {steps[step][0]} and {label} are both step {step}; leave one out")
        steps[step] = (label, place)
    return dict(sorted(steps.items()))


def _checkpoints(folder: Path) -> list[tuple[str, str]]:
    """Sub-folders and files of a folder that are checkpoints of some step."""
    try:
        inside = sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"series {folder}: expected a folder of checkpoints ({reason})") from error
    named = [path for path in inside if step_number(path.stem if path.suffix in _FILES else path.name) is not None]
    found = [path for path in named if (path / "config.json").is_file() or (path.is_file() and path.suffix in _FILES)]
    if not found:
        there = ", ".join(path.name for path in inside[:5]) or "nothing"
        raise InputError(
            f"series {folder}: no checkpoint whose name tells a step, such as checkpoint-100; there is {there}"
        )
    return [(path.stem if path.is_file() else path.name, str(path)) for path in found]


def braces(pattern: str) -> list[str]:
    """Expand the list in braces of a pattern: ``step{0,1}``, ``step{0..20..10}``; others stay as they are.

    Raises
    ------
    InputError
        If the braces hold neither, or there are two pairs of them.
    """
    found = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", pattern)
    if found is None:
        if {"{", "}"} & set(pattern):
            raise InputError(f"series: {pattern!r} has braces that hold no one list, such as step{{0,1,512}}")
        return [pattern]
    before, inside, after = found.groups()
    if numbers := re.fullmatch(r"(\d+)\.\.(\d+)(?:\.\.([1-9]\d*))?", inside):
        first, last, by = int(numbers[1]), int(numbers[2]), int(numbers[3] or 1)
        return [f"{before}{number}{after}" for number in range(first, last + 1, by)]
    return [f"{before}{part.strip()}{after}" for part in inside.split(",")]


def revisions_file(source: str, results: str | Path = "results") -> Path:
    """Path of the list of a repository's revisions that a pattern stood for when it was first asked."""
    return Path(results) / "series" / f"{_plain(source.removeprefix('hub:'))}.revisions.json"


def _plain(text: str) -> str:
    """Write a text with the letters that a name in the results may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")


def _revisions(source: str, repository: str, pattern: str, results: str | Path) -> list[str]:
    if pattern and not set(pattern) & set("*?["):
        return braces(pattern)
    try:
        kept = json.loads(revisions_file(source, results).read_text(encoding="utf-8"))
        if kept["source"] == source:
            return [str(name) for name in kept["revisions"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    from headspaces.weights.hub.revisions import list_revisions

    every = list_revisions(repository)
    names = [name for name in every if fnmatchcase(name, pattern or "*") and step_number(name) is not None]
    if not names:
        there = ", ".join(every[:5])
        raise InputError(f"series {source}: no revision fits that tells a step; {repository} has {there}, …")
    return names


def keep_revisions(series: Iterable[Series], results: str | Path = "results") -> None:
    """Write down which revisions the patterns stand for, so that later runs and jobs mean the same ones."""
    for one in series:
        _, _, pattern = one.source.partition("@")
        path = revisions_file(one.source, results)
        if one.source.startswith("hub:") and (not pattern or set(pattern) & set("*?[")) and not path.is_file():
            names = [model.source.partition("@")[2] for model in one.steps.values()]
            with whole_file(path) as beside:
                beside.write_text(json.dumps({"source": one.source, "revisions": names}, indent=1), encoding="utf-8")


def make_series(
    name: str, source: str, template: Callable[[str], Model], settled: Callable[[Model], Model],
    trained: Model | None = None, results: str | Path = "results",
) -> Series:  # fmt: skip
    """Make the models of a series' steps.

    Parameters
    ----------
    name, source
        Of the series.
    template
        Makes the row of the last step's source; all steps are of its kinds, shape and arithmetic.
    settled
        Gives a model the name that no other in the results has.
    trained
        As in :class:`Series`.
    results
        The folder of results.
    """
    found = find_steps(source, results)
    row = replace(template(next(reversed(found.values()))[1]), series="")
    steps = {
        step: settled(replace(row, name=f"{name}-{_plain(label)}", source=place, note=f"step {step} of {name}"))
        for step, (label, place) in found.items()
    }
    return Series(name, source, steps, trained)
