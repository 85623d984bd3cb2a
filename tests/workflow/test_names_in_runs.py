"""Runs of several models in one folder: nothing is mixed up, nothing lost, nothing stale (through the workflow)."""

import os
import shutil

import pytest
from support.project import ROOT
from support.workflow_runs import planned, save_tiny, snakemake

from headspaces.store import read_arrays, read_attributes


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    for name in ("workflow", "config", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    return folder


def overlaps(folder, name):
    path = folder / f"results/overlaps/{name}.h5"
    return read_arrays(path, "overlaps")["within/O/rho"], read_attributes(path, "overlaps")


def test_two_folders_of_one_name_and_two_settings_keep_their_results(project, tmp_path):
    for seed, name in enumerate("ab"):
        save_tiny(tmp_path / "runs" / name / "final", seed)
    runs = [
        ("final", f"model={tmp_path}/runs/a/final"),
        ("b-final", f"model={tmp_path}/runs/b/final"),
        ("final-fold-false", f"model={tmp_path}/runs/a/final", "fold=false"),
        ("mine", f"model={tmp_path}/runs/a/final", "name=mine"),
    ]
    target = "results/report/{}/tables/table1.csv"
    for name, *settings in runs:
        snakemake(project, target.format(name), "--directory", str(tmp_path / "all"), "--config", *settings)
    found = {name: overlaps(tmp_path / "all", name) for name, *_ in runs}
    assert (found["final"][0] != found["b-final"][0]).any()
    assert found["b-final"][1]["source"] == f"{tmp_path}/runs/b/final"
    assert [found[name][1]["fold"] for name in ("final", "final-fold-false")] == [True, False]
    # Weights do not depend on settings.
    assert not (tmp_path / "all/results/weights/final-fold-false").exists()
    # Going back to any of them runs nothing.
    for name, *settings in runs:
        done = snakemake(
            project, target.format(name), "-n", "--directory", str(tmp_path / "all"), "--config", *settings
        )
        assert planned(done) == set()


def test_a_name_of_another_source_is_refused_before_anything_runs(project, tmp_path):
    for name in "ab":
        save_tiny(tmp_path / name)
    command = ("results/overlaps/mine.h5", "--directory", str(tmp_path), "--config", "name=mine")
    snakemake(project, *command, f"model={tmp_path}/a")
    done = snakemake(project, *command, f"model={tmp_path}/b", check=False)
    assert done.returncode == 1
    assert f"the name 'mine' stands for {tmp_path}/a in these results, not for {tmp_path}/b" in done.stderr
    assert overlaps(tmp_path, "mine")[1]["source"] == f"{tmp_path}/a"


def test_a_checkpoint_replaced_in_place_with_an_older_date_is_read_again(project, tmp_path):
    save_tiny(tmp_path / "tiny", 0)
    target = ("results/overlaps/tiny.h5", "--directory", str(tmp_path), "--config", f"model={tmp_path}/tiny")
    snakemake(project, *target)
    before = overlaps(tmp_path, "tiny")
    weights = tmp_path / "tiny" / "model.safetensors"
    state = weights.stat()
    save_tiny(tmp_path / "other", 1)
    other = tmp_path / "other" / "model.safetensors"
    assert other.stat().st_size == state.st_size
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns - 10**12))
    other.replace(weights)
    assert {"headers", "weights", "bases", "overlaps"} <= planned(snakemake(project, *target, "-n"))
    snakemake(project, *target)
    after = overlaps(tmp_path, "tiny")
    assert (before[0] != after[0]).any()
    assert before[1]["revision"] != after[1]["revision"]
    weights.touch()
    assert planned(snakemake(project, *target, "-n")) == set()
