"""A study: the configuration, checked, and the models that it names.

The Snakefile reads this module at every start, so only the standard library and the schema validator are imported, and
a checkpoint's headers only when a source is named on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headspaces.errors import InputError, did_you_mean
from headspaces.spaces import KINDS
from headspaces.study.given import overridden, placed, typed
from headspaces.study.models import Model, read_models, select_models
from headspaces.study.names import model_name, read_names
from headspaces.study.own_models import Namer, absolute_source, by_name, own_model
from headspaces.study.schemas import first_error, read_schema
from headspaces.study.series import Series

NO_TEXT = "the setting text is none: no model is run"
NO_EDGES = "the setting ablated is 0: no edge is taken out; ablated=2 measures the strongest exactly, in minutes"
PYTHON_TOPICS, FINEWEB = "python:pydoc_data.topics", "dataset:HuggingFaceFW/fineweb-edu:sample-10BT:train"


@dataclass(frozen=True)
class Study:
    """Models that are reported together, and how.

    Attributes
    ----------
    name
        Folder of its report.
    models
        By name, in the report's order.
    settings
        The checked configuration.
    series
        By name, the series of checkpoints that are reported beside the models.
    """

    name: str
    models: Mapping[str, Model]
    settings: Mapping[str, Any]
    series: Mapping[str, Series] = field(default_factory=dict)

    @cached_property
    def steps(self) -> dict[str, Model]:
        """By name, the models of all steps of all series."""
        return {model.name: model for series in self.series.values() for model in series.steps.values()}

    @cached_property
    def stages(self) -> dict[str, dict[str, str]]:
        """By stage, the models that it is left out for, each with the reason; the others have it."""
        reads = {name: model for name, model in self.models.items() if set(model.kinds) != set(KINDS)}
        partial = {name: f"only the kinds {model.kinds} are analysed" for name, model in reads.items()}
        not_run = {name: why for name, model in self.models.items() if (why := self._why_not_run(model))}
        # The toy model is run without a text, but waits for it.
        not_the_toy = {
            name: why
            for name, why in not_run.items()
            if why == NO_TEXT or not self.models[name].source.startswith("toy:")
        }
        # A model that is merely described has no settings.
        ablated = self.settings.get("attribution", {}).get("ablated", 0)
        return {
            "overlaps": {},
            "nulls": {},
            "orthonormal": {},
            "self_heads": partial,
            "affinity": partial,
            "activations": not_run,
            "attention": not_the_toy,
            "attribution": not_the_toy,
            "ablation": not_the_toy if ablated else dict.fromkeys(self.models, NO_EDGES),
            # Not left out where nobody asked for it.
            **({"stream": {}} if self.settings.get("stream") else {}),
        }

    @property
    def published_as(self) -> dict[str, str]:
        """By model, which published one it is compared as, where the settings say so."""
        return dict.fromkeys(self.models, self.settings["published_as"]) if "published_as" in self.settings else {}

    def _why_not_run(self, model: Model) -> str | None:
        from headspaces.activations.run_check import reason_not_to_run

        # A model that is merely described has no settings.
        if self.settings.get("activations", {}).get("text") == "none":
            return NO_TEXT
        if not model.activations:
            return "its row does not ask for them"
        return reason_not_to_run(model.source, model.kinds)

    def stages_of(self, model: str) -> list[str]:
        """Return the stages that a model has; a step that is none of the models has those that its series reads."""
        if model in self.models:
            return [stage for stage, left_out in self.stages.items() if model not in left_out]
        return self.stages_of_step(self.steps[model])

    def stages_of_step(self, step: Model) -> list[str]:
        """Return the stages whose files a series reads of a step; the model is run where that can be done."""
        return ["overlaps", "nulls", *([] if self._why_not_run(step) else ["activations", "attention", "attribution"])]


def read_study(settings: Mapping[str, Any], root: str | Path, command_line: Mapping[str, Any] | None = None) -> Study:
    """Check a configuration and look its models up.

    Parameters
    ----------
    settings
        Snakemake's merged configuration; ``model=SOURCE`` makes the study of that one source.
    root
        The project's folder, which holds the schema and the table of models.
    command_line
        The part of the settings that was given as ``--config key=value``: it arrives as text.

    Raises
    ------
    InputError
        If a key is unknown, a value has the wrong type, a model has no row or is no published one, or a source cannot
        be read.
    """
    root, alone = Path(root), "series" in (command_line or {})
    schema = read_schema(root / "workflow" / "schemas" / "config.schema.yaml")
    given = command_line or {}
    changes = placed(given, schema)
    settings = {key: value for key, value in settings.items() if key in changes or key not in given}
    settings = overridden(settings, typed(changes, schema))
    _check(settings, schema)
    table = Path(settings["models_table"])
    known = read_models(table if _exists(table) else root / table)
    study = _with_text(_study(settings, known, series_alone=alone))
    for model in [*study.models.values(), *study.steps.values()]:
        if {"{", "}"} & set(model.source):
            raise InputError(f"source {model.source!r}: Snakemake takes braces in paths for its own; rename the folder")
    if study.published_as:
        _check_published(study, root / "config" / "published.tsv")
    for classes in filter(None, [settings.get("head_classes"), *(one.head_classes for one in study.models.values())]):
        head_classes_file(classes, root)
    prompts = settings["attribution"].get("prompts")
    if prompts and not (_exists(Path(prompts)) and Path(prompts).is_file()):
        raise InputError(f"config: prompts is {prompts!r}: no such file; docs/effects.md describes it")
    return study


def _with_text(study: Study) -> Study:
    """Name the text: ``auto`` is a dataset, or Python's own prose where no model needs the Hub either."""
    activations = dict(study.settings["activations"])
    if activations["text"] == "auto":
        from_hub = any(model.source.startswith("hub:") for model in study.models.values())
        activations["text"] = FINEWEB if from_hub else PYTHON_TOPICS
    return replace(study, settings={**study.settings, "activations": activations})


def head_classes_file(name: str, root: str | Path) -> Path:
    """Return the file of a set of head classes: one of ``config/head_classes`` by its name, or any by its path.

    Raises
    ------
    InputError
        If there is no such set or file.
    """
    known = {path.stem: path for path in sorted((Path(root) / "config" / "head_classes").glob("*.tsv"))}
    if name in known:
        return known[name]
    if _exists(Path(name)) and Path(name).is_file():
        return Path(name).absolute()
    raise InputError(
        f"config: head_classes is {name!r}: no such file, and no set of config/head_classes"
        f"{did_you_mean(name, known)}; the sets are {', '.join(known)}; config/README.md describes the file"
    )


def _check_published(study: Study, table: Path) -> None:
    from headspaces.study.published import published_models, read_published

    name, known = study.settings["published_as"], published_models(read_published(table))
    if name not in known:
        raise InputError(f"config: published_as is {name!r}, but must be one of {', '.join(known)}")
    if len(study.models) > 1:
        raise InputError(
            f"config: published_as is {name!r} in a study of {len(study.models)} models, but only one can be it; "
            "name that one by model=SOURCE"
        )


def _study(settings: Mapping[str, Any], known: Mapping[str, Model], *, series_alone: bool) -> Study:
    namer = Namer(read_names(), {name: model.source for name, model in known.items()}, known, settings)
    sources = settings.get("series") or []
    sources = [sources] if isinstance(sources, str) else sources
    if (source := settings.get("model")) is None and series_alone and sources:
        found = [namer.series(one, settings.get("name")) for one in sources]
        last = [list(series.steps.values())[-1] for series in found]
        return Study(found[0].name, by_name(last), settings, by_name(found))
    if source is None:
        if "name" in settings:
            raise InputError("config: name is that of one model or series; give model=SOURCE or series=SOURCE too")
        chosen = select_models(known, settings["models"], f"config: models of the study {settings['study']!r}")
        models = [namer.settled(model) for model in chosen]
        found = [namer.series_of(model) for model in models if model.series] + [namer.series(one) for one in sources]
        return Study(settings["study"], by_name(models), settings, by_name(found))
    if source not in known and re.fullmatch(r"[\w.-]+", str(source)) and not _exists(Path(str(source))):
        raise InputError(
            f"config: model is {source!r}: no such file or folder, and no row of the models table"
            f"{did_you_mean(str(source), known)}; a repository of the Hub is hub:owner/name"
        )
    if source in known and "name" not in settings:
        model = namer.settled(known[source])
    else:
        place = known[source].source if source in known else absolute_source(str(source))
        wanted, reserved = settings.get("name"), {**namer.rows, settings["study"]: "a study"}
        name, checkpoint = namer.names.settle(
            wanted or model_name(place), place, settings, reserved, chosen=bool(wanted)
        )
        model = replace(own_model(place, checkpoint=checkpoint), name=name, checkpoint=checkpoint)
    return Study(model.name, {model.name: model}, settings, by_name([namer.series_of(model)] if model.series else []))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no file can have this name
        return False


def _check(settings: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    if (error := first_error(schema, settings)) is None:
        return
    place = ".".join(str(part) for part in error.absolute_path)
    inside = f" in {place!r}" if place else ""
    if error.validator == "additionalProperties":
        unknown = sorted(map(str, set(error.instance) - set(error.schema["properties"])))
        raise InputError(
            f"config: unknown key {unknown[0]!r}{inside}{did_you_mean(unknown[0], _all_keys(schema))}; the keys are "
            f"{', '.join(sorted(error.schema['properties']))}"
        )
    if error.validator == "required":
        raise InputError(f"config: {error.message}{inside}")
    raise InputError(f"config: {place or 'value'} is {error.instance!r}, but {_expectation(error)}")


def _all_keys(schema: Mapping[str, Any]) -> list[str]:
    parts = schema.get("properties", {})
    return [*parts, *(key for part in parts.values() for key in _all_keys(part))]


def _expectation(error: Any) -> str:
    if error.validator == "type":
        hint = "; write 1.0e-6, since YAML reads 1e-6 as text" if error.validator_value == "number" else ""
        return f"must be of type {error.validator_value}{hint}"
    if error.validator == "enum":
        return f"must be one of {', '.join(map(str, error.validator_value))}"
    return f"must have {error.validator} {error.validator_value}"
