"""The project as a package: its version, its command, and the checks of the forge and of commits."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint

import pytest
import yaml
from support.project import ROOT, TESTS

import headspaces

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_said_by_module_and_by_command(capsys):
    done = subprocess.run([sys.executable, "-m", "headspaces", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"headspaces {headspaces.__version__}\n"
    command = EntryPoint("headspaces", PROJECT["scripts"]["headspaces"], "console_scripts").load()
    with pytest.raises(SystemExit) as end:
        command(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == done.stdout


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == headspaces.__version__
    assert set(PROJECT["urls"].values()) <= {reference["url"] for reference in citation["references"]}


def test_the_forge_runs_what_ci_runs():
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
    version = re.fullmatch(r"python:(\d+\.\d+)-bookworm", job["container"])[1]
    assert PROJECT["requires-python"] == f">={version}"


SKIPPING = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_page(number, request):
    pytest.skip("no browser")

def test_table():
    pytest.skip("no LaTeX")

def test_sum():
    assert 1 + 1 == 2
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_tests_end_with_how_many_were_skipped_and_why(processes, tmp_path):
    (tmp_path / "test_some.py").write_text(SKIPPING)
    shutil.copy(TESTS / "conftest.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", TESTS)))},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("skipped")]
    assert lines == ["skipped: 3 tests: no browser", "skipped: 1 test: no LaTeX"]


def test_what_browser_and_latex_tests_need_is_installed_by_ci_or_its_want_is_said(tmp_path):
    """With programs that only write down how they were called."""
    run = (ROOT / ".ci/run").read_text()
    needs = run[run.index("missing=()") : run.index("timed make test")]
    for user, tools, expected in (
        ("0", ["apt-get"], "install -yqq --no-install-recommends chromium chromium-driver texlive-latex-recommended"),
        (
            "0",
            ["apt-get", "chromium", "chromedriver"],
            "install -yqq --no-install-recommends texlive-latex-recommended",
        ),
        ("1000", ["apt-get", "pdflatex"], "== chromium chromium-driver: missing, and only root on Debian can"),
        ("0", ["pdflatex"], "== chromium chromium-driver: missing, and only root on Debian can install them"),
    ):
        (programs := tmp_path / f"{user}-{len(tools)}-{tools[-1]}").mkdir()
        for name, line in [(tool, 'echo "$@"') for tool in tools] + [("id", f"echo {user}")]:
            (programs / name).write_text(f"#!/bin/bash\n{line}\n")
            (programs / name).chmod(0o755)
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", needs], capture_output=True, text=True, check=True,
            env={"PATH": str(programs)},
        )  # fmt: skip
        assert expected in done.stdout


def test_commits_are_checked_as_make_lint_does():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["entry"] for hook in repository["hooks"]}
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", "lint", "READY="], cwd=ROOT, capture_output=True, text=True, check=True
    )
    linted = {line for line in done.stdout.splitlines() if shlex.split(line)[0].startswith(".venv/bin/")}
    assert hooks == linted
