"""The code of a job is what its script imports at run time."""

import sys
from pathlib import Path

import pytest
from support.project import ROOT

from headspaces.errors import InputError
from headspaces.jobs.code import SOURCE, check_interpreter, script_code


def code(text, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(text)
    return {Path(file).relative_to(SOURCE / "headspaces").as_posix() for file in script_code(script)}


def test_it_is_the_closure_of_the_imports_with_the_packages_on_the_way(tmp_path):
    found = code("from headspaces.geometry.angles import smallest_angles\n", tmp_path)
    assert found == {
        "geometry/__init__.py", "geometry/angles.py", "geometry/kernel.py", "devices.py", "threads.py", "errors.py",
    }  # fmt: skip
    assert code("import headspaces.geometry.angles as angles\n", tmp_path) == found
    assert code("from headspaces.geometry import angles\n", tmp_path) == found
    assert code("def later():\n    from headspaces.geometry import angles\n", tmp_path) == found


def test_what_only_a_type_checker_reads_is_none(tmp_path):
    text = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headspaces.weights.source import read_headers\n"
    )
    assert code(text, tmp_path) == set()
    assert code("import headspaces\nimport numpy\n", tmp_path) == set()


def test_an_interpreter_that_a_shell_would_take_apart_is_refused():
    for path in (
        "/a b/.venv/bin/python",
        "/a[1]/bin/python",
        "/a(b)/python",
        "/a'b/python",
        "/a$b/python",
        "/a;b/python",
    ):
        with pytest.raises(InputError, match="the environment's interpreter .* has a .* in its path"):
            check_interpreter(path)
    for path in (sys.executable, "/home/me@corp/é_1-2.3/bin/python3.11"):
        check_interpreter(path)


def test_no_job_but_the_fetching_ones_reads_checkpoints():
    for script in sorted((ROOT / "workflow" / "scripts").glob("*.py")):
        names = {Path(file).name for file in script_code(script)}
        if script.stem not in ("headers", "weights", "stream_weights", "plan"):
            assert not names & {"repository.py", "transfer.py", "source.py", "gguf_header.py"}, script
