"""Names of models in the results: short where they are unambiguous, and never shared by two sources or settings.

``results/names.json`` says whose the names are: in ``weights``, by a checkpoint's name its source; in ``results``, by a
model's name the settings that its numbers depend on. A name is taken by the first run that uses it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.files import whole_file
from headspaces.study.models import Model

MAX_NAME = 100
"""Longest name that is made of a source: file names hold more beside it."""

SETTINGS = ("fold", "rank_rtol", "leave_out_rounding", "seed")
"""Settings that the numbers under a model's name depend on."""

EARLIER = {"leave_out_rounding": False}
"""What held of results that were made before a setting was there."""


def model_name(source: str) -> str:
    """Name an unlisted source after its folder, file or repository and the revision it names, as one path component."""
    stem, _, revision = source.partition("@") if source.startswith("hub:") else (source, "", "")
    if source.startswith("wheel:"):
        stem = source.split("@")[0]
    path = stem.rstrip("/").removesuffix(".gguf").removesuffix(".pt")
    last = Path(path.removeprefix("hub:")).name if ":" not in path else path.rsplit(":", 1)[1].rsplit("/", 1)[-1]
    # A commit's first letters tell it from others.
    if re.fullmatch("[0-9a-f]{40}", revision):
        revision = revision[:8]
    return _component("-".join(filter(None, (last, revision))), source)


def _component(stem: str, source: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:MAX_NAME]
    if not name and stem.strip("-._ "):
        # A name in another script has no letter left: its own sum tells it from others.
        name = "model-" + hashlib.sha256(stem.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if not name:
        raise InputError(f"model source {source!r} gives no name: end it with the name of a folder, file or repository")
    return name


@dataclass(frozen=True)
class Names:
    """Whose the names in a folder of results are.

    Attributes
    ----------
    weights
        By name of a checkpoint, its source.
    results
        By name of a model, the settings that its numbers depend on.
    """

    weights: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settle(
        self, name: str, source: str, settings: Mapping[str, Any], reserved: Mapping[str, str], *, chosen: bool
    ) -> tuple[str, str]:
        """Find names for a model that are its own: in the results, and that of its checkpoint among the weights.

        Parameters
        ----------
        name, source
            The name that it should have, and where it is.
        settings
            Of the study.
        reserved
            By name, whose it is: rows of the models table, studies.
        chosen
            Whether somebody chose the name: then it takes no other.

        Raises
        ------
        InputError
            If a chosen name is another source's.
        """
        candidates = [name] if chosen else _candidates(name, source)
        owners = [self.weights, reserved]
        checkpoint = next((one for one in candidates if all(own.get(one, source) == source for own in owners)), None)
        if checkpoint is None:
            owner = next(own[name] for own in owners if own.get(name, source) != source)
            raise InputError(
                f"the name {name!r} stands for {owner} in these results, not for {source}: choose another, or move "
                "what lies under it away, with its line in results/names.json"
            )
        known = {**EARLIER, **self.results[checkpoint]} if checkpoint in self.results else {}
        changed = {key: settings[key] for key in SETTINGS if known.get(key, settings[key]) != settings[key]}
        return "-".join([checkpoint, *(f"{key}-{value}".lower() for key, value in changed.items())]), checkpoint

    def with_models(
        self, models: Iterable[Model], settings: Mapping[str, Any], others: Mapping[str, str] | None = None
    ) -> Names:
        """Return the names with those of a study's models added; the first who took one keeps it.

        ``others`` are names that no checkpoint has, such as those of series, with their sources.
        """
        models = list(models)
        own = {key: settings[key] for key in SETTINGS}
        return Names(
            dict(others or {}) | {model.checkpoint: model.source for model in models} | dict(self.weights),
            {model.name: own for model in models} | dict(self.results),
        )


def _candidates(name: str, source: str) -> Iterator[str]:
    """Names from short to certain: its own, with the owner's or the folder's before it, with a sum of the source."""
    yield name
    *_, before, _ = ["", "", *source.removeprefix("hub:").partition("@")[0].rstrip("/").split("/")]
    if before and ":" not in before:
        yield _component(f"{before}-{name}", source)
    yield f"{name[: MAX_NAME - 9]}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def read_names(results: str | Path = "results") -> Names:
    """Read whose the names in a folder of results are, the checkpoints' that no run has written down included.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    path = Path(results) / "names.json"
    found = {
        file.parent.name: owner for file in Path(results).glob("weights/*/headers.json") if (owner := _owner(file))
    }
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Names({**found, **content["weights"]}, dict(content["results"]))
    except FileNotFoundError:
        return Names(found)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error}); move it away, and names are taken anew by later runs") from error


def _owner(headers: Path) -> str:
    """Source of a headers file, from its first lines; empty where it cannot be read."""
    with suppress(OSError, ValueError), headers.open(encoding="utf-8") as file:
        if found := re.search(r'^"source": ("(?:[^"\\]|\\.)*")', file.read(10_000), flags=re.MULTILINE):
            return str(json.loads(found[1]))
    return ""


def write_names(names: Names, results: str | Path = "results") -> None:
    """Write whose the names are."""
    path = Path(results) / "names.json"
    with whole_file(path) as beside:
        beside.write_text(json.dumps({"weights": dict(names.weights), "results": dict(names.results)}, indent=1))
