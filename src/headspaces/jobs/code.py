"""The code that a job is made of: what its script imports at run time."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from headspaces.errors import InputError

SOURCE = Path(__file__).resolve().parents[2]
"""The folder that holds the package."""


TABLES = ("headspaces.weights.layouts", "headspaces.weights.refused")
"""Tables of which a job needs one row, and gets it by value in the blocks of weights: other rows are other models'."""


def script_code(script: str | Path) -> list[str]:
    """Files of the package that a script is made of: what it imports, transitively, wherever the imports stand.

    A rule that names them as input is rerun by an edit of exactly this code, and by nothing else. Imports are absolute
    (``from headspaces.x import y``). What only a type checker reads (``if TYPE_CHECKING``) is no code of the job, and
    neither is the package's own ``__init__``, which holds the version and the names of the library.
    """
    found: set[Path] = set()
    waiting = [Path(script)]
    while waiting:
        for file in _imported(waiting.pop()):
            if file not in found:
                found.add(file)
                waiting.append(file)
    return sorted(str(file) for file in found)


@cache
def _imported(file: Path) -> tuple[Path, ...]:
    """Files that a file's run-time imports run, those of the packages on the way included."""
    names: set[str] = set()
    for node in _run_time_nodes(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names if name.startswith("headspaces.")]
    modules = {".".join(part[:length]) for part in parts for length in range(2, len(part) + 1)}
    return tuple(path for module in sorted(modules - set(TABLES)) if (path := _module_file(module)) is not None)


def _run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _run_time_nodes(node)


def _module_file(module: str) -> Path | None:
    path = SOURCE.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def check_interpreter(path: str) -> None:
    """Refuse an interpreter whose path a shell would take apart: Snakemake writes it into commands as it is.

    Raises
    ------
    InputError
        Naming the path.
    """
    if found := re.search(r"[^\w@%+=:,./~-]", path):
        raise InputError(
            f"the environment's interpreter {path!r} has a {found[0]!r} in its path, at which every job would end in "
            "the shell: make the environment in another folder (a clone may lie anywhere)"
        )


def hand_on_environment() -> None:
    """Let the jobs that this process starts use this copy of the package, and HDF5 files without locks.

    Files are never changed in place, so locks protect nothing, and some network file systems have none.
    """
    paths = [str(SOURCE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")
