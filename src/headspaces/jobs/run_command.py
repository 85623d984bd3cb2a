"""The workflow as one command: ``headspaces run SOURCE [setting=value] [target]``, for those who know no Snakemake."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from headspaces.errors import InputError
from headspaces.jobs.code import SOURCE

SETTING = re.compile(r"([A-Za-z_]\w*)((?:\.\w+)*)=(.*)", re.DOTALL)


def snakemake_arguments(source: str, words: Iterable[str], cores: str = "all", *, dry: bool = False) -> list[str]:
    """Arguments of the ``snakemake`` that analyses a source.

    Parameters
    ----------
    source
        A model, or a ``.yaml`` file of a study.
    words
        Settings, ``samples=5`` or ``nulls.samples=5``, and targets, in any order: Snakemake wants targets first.
    cores
        How many cores, or ``all``.
    dry
        Whether it is only said what would run.

    Raises
    ------
    InputError
        If Snakemake is not installed, the package lies without its workflow, or there is no such file of a study.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise InputError("the workflow needs Snakemake, which is not installed here: `make` in a clone installs it")
    snakefile = SOURCE.parent / "Snakefile"
    if not snakefile.is_file():
        raise InputError(f"the package in {SOURCE} lies without its workflow: run it from a clone of the repository")
    if (is_study := Path(source).suffix in (".yaml", ".yml")) and not Path(source).is_file():
        raise InputError(f"study {source!r}: no such file")
    settings: list[str] = []
    targets: list[str] = []
    for word in words:
        found = SETTING.fullmatch(word)
        (settings if found else targets).append(_nested(*found.groups()) if found else word)
    arguments = ["--cores", cores]
    if Path("Snakefile").resolve() != snakefile.resolve():
        arguments += ["--snakefile", str(snakefile)]
    arguments += ["--dry-run"] if dry else []
    arguments += [*targets, *(["--configfile", source] if is_study else [])]
    settings = settings if is_study else [f"model={source}", *settings]
    return [*arguments, "--config", *settings] if settings else arguments


def snakemake_program() -> list[str]:
    """Return the ``snakemake`` of this environment, as a command."""
    return [sys.executable, "-m", "snakemake"]


def _nested(key: str, inner: str, value: str) -> str:
    """Write ``nulls.samples=5`` as Snakemake reads it, ``nulls={samples: 5}``."""
    for name in reversed(inner.split(".")[1:]):
        value = f"{{{name}: {value}}}"
    return f"{key}={value}"
