"""The plan of the package: which part imports which, and how long a module is, as CONTRIBUTING shows it."""

import ast
import re

import pytest
from support.project import ROOT

PACKAGE = ROOT / "src" / "headspaces"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py"
}
BOXES = {name.split(".")[0] for name in MODULES} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

LONGEST = 300
DATA = {"weights.layouts": 400, "weights.headers": 320, "study.items": 400, "fields": 460, "costs.stages": 320}
"""Modules that may be longer, and how long: a row for each architecture, each table and figure, each dataset."""

LIBRARIES = {
    "h5py": r"store",
    "matplotlib": r"report\.figures\.",
    "huggingface_hub|httpx|urllib.request": r"weights\.hub\.|activations\.texts",
    "transformers": r"activations\.",
}
"""Libraries, and the only modules that know them."""


def plan():
    """Rows of the table in CONTRIBUTING from the bottom up: the parts of a row, and what they may import."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| part |")[1].split("\n\n")[0]
    cells = [row.split("|") for row in table.splitlines()[2:]]
    return [(re.findall(r"`(\w+)`", row[1]), re.findall(r"`(\w+)`", row[3])) for row in cells]


def imports(path):
    """Dotted names that a module imports wherever it does, but for what only the type checker sees."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in (node for node in ast.walk(tree) if id(node) not in hidden):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they go"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows():
    """By part, the other parts that it imports, and the modules that do."""
    found = {}
    for name, path in MODULES.items():
        for other in imports(path):
            words = other.split(".")
            if words[0] == "headspaces" and words[1:] and words[1] in BOXES - {name.split(".")[0]}:
                found.setdefault((name.split(".")[0], words[1]), []).append(name)
    return found


def test_every_part_of_the_package_has_a_row_and_every_row_is_one():
    named = [part for parts, _ in plan() for part in parts]
    assert sorted(named) == sorted(BOXES)


def test_the_table_goes_one_way():
    below = set()
    for parts, may in plan():
        assert set(may) <= below, parts
        below |= set(parts)


def test_imports_are_those_of_the_table():
    (bottom, _), *rows = plan()
    allowed = {part: {*bottom, *may} for parts, may in rows for part in parts} | {part: {"errors"} for part in bottom}
    wrong = {arrow: modules for arrow, modules in arrows().items() if arrow[1] not in allowed[arrow[0]]}
    assert not wrong


def test_the_plan_can_be_held_in_the_head():
    assert len(BOXES) <= 25
    assert len(arrows()) <= 100


@pytest.mark.parametrize("libraries", LIBRARIES)
def test_a_library_is_known_to_one_part(libraries):
    users = {name for name, path in MODULES.items() for other in imports(path) if re.match(rf"({libraries})\b", other)}
    assert users
    assert all(re.match(LIBRARIES[libraries], name) for name in users), users


def test_modules_are_short():
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert not {name: count for name, count in lines.items() if count > DATA.get(name, LONGEST)}


def test_the_walk_sees_imports_inside_functions_and_leaves_out_those_for_types(tmp_path):
    (tmp_path / "module.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a.b\nelse:\n    import c\n"
        "def f():\n    from d import e, g\n"
    )
    assert sorted(imports(tmp_path / "module.py")) == ["c", "d.e", "d.g", "typing.TYPE_CHECKING"]
