"""``headspaces run``: the line of snakemake that it stands for."""

import os
import subprocess
import sys

import pytest
from support.project import ROOT
from support.workflow_runs import save_tiny

from headspaces.errors import InputError
from headspaces.jobs import run_command
from headspaces.jobs.run_command import snakemake_arguments


@pytest.mark.parametrize(
    ("source", "words", "expected"),
    [
        ("tiny", [], ["--config", "model=tiny"]),
        ("tiny", ["samples=5", "plan", "fold=false"], ["plan", "--config", "model=tiny", "samples=5", "fold=false"]),
        ("tiny", ["nulls.swap.burn_in=5"], ["--config", "model=tiny", "nulls={swap: {burn_in: 5}}"]),
        ("hub:a/b@c", ["text=a=b.txt"], ["--config", "model=hub:a/b@c", "text=a=b.txt"]),
        ("config/demo.yaml", [], ["--configfile", "config/demo.yaml"]),
        (
            "config/demo.yaml", ["samples=5", "x.csv"],
            ["x.csv", "--configfile", "config/demo.yaml", "--config", "samples=5"],
        ),
    ],
)  # fmt: skip
def test_settings_and_targets_may_stand_in_any_order(source, words, expected, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert snakemake_arguments(source, words, "2") == ["--cores", "2", *expected]


def test_elsewhere_the_workflow_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = snakemake_arguments("tiny", [], dry=True)
    assert found == ["--cores", "all", "--snakefile", str(ROOT / "Snakefile"), "--dry-run", "--config", "model=tiny"]
    with pytest.raises(InputError, match="study 'mine.yaml': no such file"):
        snakemake_arguments("mine.yaml", [])
    monkeypatch.setattr(run_command, "SOURCE", tmp_path / "site-packages")
    with pytest.raises(InputError, match="lies without its workflow: run it from a clone"):
        snakemake_arguments("tiny", [])


def test_it_says_what_it_runs_and_runs_it(tmp_path):
    save_tiny(tmp_path / "tiny")
    command = [
        sys.executable,
        "-m",
        "headspaces",
        "run",
        "tiny",
        "results/report/tiny/tables/table1.csv",
        "samples=5",
        "-n",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    first, *rest = done.stdout.splitlines()
    assert first == (
        f"snakemake --cores all --snakefile {ROOT / 'Snakefile'} --dry-run results/report/tiny/tables/table1.csv "
        "--config model=tiny samples=5"
    )
    assert "rule overlaps:" in rest
    assert not (tmp_path / "results/overlaps").exists()
