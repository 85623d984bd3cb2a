"""The project as a package: its version, its command, and the checks of the forge and of commits."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint

import pytest
import yaml
from support.project import ROOT

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


def test_commits_are_checked_as_make_lint_does():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["entry"] for hook in repository["hooks"]}
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", "lint", "READY="], cwd=ROOT, capture_output=True, text=True, check=True
    )
    linted = {line for line in done.stdout.splitlines() if shlex.split(line)[0].startswith(".venv/bin/")}
    assert hooks == linted
