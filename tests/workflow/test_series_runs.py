"""Series of checkpoints in one command: of a training on this machine, and of a repository's revisions."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from support.hub_double import Content, serving
from support.project import ROOT
from support.workflow_runs import snakemake
from transformers import LlamaConfig, LlamaForCausalLM

from headspaces.store import read_arrays

FEW = "nulls={samples: 3, swap: {burn_in: 1, sweeps: 1}}"
WIDE = 128


@pytest.fixture
def project(tmp_path):
    """A copy of the project."""
    folder = tmp_path / "project"
    for name in ("workflow", "config", "src", "envs", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    return folder


def train(folder, steps, every, width=32, heads=4):
    """A plain training loop that saves as transformers' Trainer does."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=width, intermediate_size=width, num_hidden_layers=2, num_attention_heads=heads,
            num_key_value_heads=heads,
        )
    )  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        tokens = torch.randint(32, (8, 12))
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if step % every == 0:
            model.save_pretrained(folder / f"checkpoint-{step}")


def files(project, stages=("bases", "overlaps", "nulls")):
    """When each step's files were made."""
    found = {path for stage in stages for path in (project / "results" / stage).rglob("*.h5")}
    return {str(path.relative_to(project)): path.stat().st_mtime_ns for path in found}


def made(done):
    """Files of steps that a run makes."""
    outputs = re.findall(r"^    output: (.*)$", done.stdout + done.stderr, re.MULTILINE)
    return {path for line in outputs for path in line.split(", ") if re.match("results/(bases|overlaps|nulls)/", path)}


@pytest.mark.slow
def test_a_training_of_ones_own_killed_and_gone_on_with(project, tmp_path):
    folder = tmp_path / "runs" / "mine"
    train(folder, 10, 2)
    table = "results/report/mine/tables/series.csv"
    command = [table, "--config", f"series={folder}", FEW]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    started = subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--cores", "2", *command],
        cwd=project, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while len(list((project / "results" / "nulls").glob("*.h5"))) < 2:
        assert started.poll() is None
        time.sleep(0.2)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    before = files(project)
    assert 0 < len([path for path in before if path.startswith("results/nulls/")]) < 5
    snakemake(project, *command)
    after = files(project)
    # What was running on the two cores may have been whole, but nobody had said so.
    assert len([path for path, when in before.items() if after[path] != when]) <= 2
    frame = pd.read_csv(project / table)
    assert frame["step"].unique().tolist() == [2, 4, 6, 8, 10]
    assert len(frame) == 5 * 7
    assert frame["duplicate_of"].isna().all()
    assert "Nothing to be done" in snakemake(project, *command).stderr
    # Another step is computed alone, though it is the last one now.
    shutil.copytree(folder / "checkpoint-8", folder / "checkpoint-12")
    assert made(snakemake(project, *command, "-n")) == {
        f"results/{place}" for place in
        ("bases/mine-checkpoint-12/layers000-001.h5", "overlaps/mine-checkpoint-12.h5", "nulls/mine-checkpoint-12.h5")
    }  # fmt: skip


@pytest.fixture
def hub(tmp_path):
    """A repository of four revisions, of which the third holds the files of the second."""
    train(tmp_path / "trained", 3, 1, WIDE, 8)
    with serving() as double:
        for revision, number in {"step0": 1, "step1": 2, "step2": 2, "step4": 3}.items():
            folder = tmp_path / "trained" / f"checkpoint-{number}"
            data = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
            contents = {name: Content.of(part, name != "config.json") for name, part in data.items()}
            double.repository("some/trained").commit(contents | {"of": Content.of(revision.encode(), False)}, revision)
        yield double


@pytest.mark.slow
def test_revisions_of_a_repository_are_fetched_once(project, tmp_path, hub):
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "cache")}
    table = "results/report/trained/tables/series.csv"
    source = "series=hub:some/trained@step{0,1,2,4}"
    snakemake(project, table, "--config", source, FEW, **environment)
    frame = pd.read_csv(project / table)
    assert frame["step"].unique().tolist() == [0, 1, 2, 4]
    assert set(frame.dropna(subset="duplicate_of")["step"]) == {2}
    assert set(frame["duplicate_of"].dropna()) == {1}
    assert "step 2 holds the weights of step 1" in (project / table).with_suffix(".md").read_text()
    blocks = sorted((project / "results" / "weights").rglob("*.safetensors"))
    sizes = [sum(array.nbytes for array in load_file(block).values()) for block in blocks]
    assert len(blocks) == 4
    # Three contents; what the Hub says of four revisions comes on top.
    assert hub.bodies <= 1.01 * sum(sizes[:3]) + 4 * 20_000
    assert sum(method == "GET" and "/storage/" in path for method, path, _ in hub.requests) < 30


@pytest.mark.slow
def test_weights_that_are_not_kept(project, tmp_path):
    folder = tmp_path / "mine"
    train(folder, 2, 1)
    done = ["results/series/mine.h5", "--config", f"series={folder}", FEW, "keep_weights=false"]
    snakemake(project, *done)
    assert not list((project / "results" / "weights").rglob("*.safetensors"))
    assert len(list((project / "results" / "bases").rglob("*.h5"))) == 2
    assert "Nothing to be done" in snakemake(project, *done).stderr


@pytest.mark.slow
def test_all_samples_in_one_job_are_those_of_the_shards(project, tmp_path):
    """The same model as a step of a series and alone."""
    folder = tmp_path / "mine"
    train(folder, 1, 1)
    nulls = "results/nulls/mine-checkpoint-1.h5"
    snakemake(project, nulls, "--config", f"series={folder}", FEW)
    at_once = read_arrays(project / nulls, "nulls")
    (project / nulls).unlink()
    alone = ["--config", f"model={folder / 'checkpoint-1'}", "name=mine-checkpoint-1", FEW]
    snakemake(project, nulls, *alone)
    in_shards = read_arrays(project / nulls, "nulls")
    assert at_once.keys() == in_shards.keys()
    for name, array in at_once.items():
        np.testing.assert_array_equal(array, in_shards[name], err_msg=name)


def test_the_plan_of_a_series_says_what_each_step_costs(project, tmp_path):
    folder = tmp_path / "mine"
    train(folder, 2, 1)
    snakemake(project, "plan", "--config", f"series={folder}", "plan={cores: 2, gflops: 50}")
    rows = pd.read_csv(project / "results" / "plan" / "mine.tsv", sep="\t")
    steps = rows[rows["model"] == "mine-checkpoint-1"]
    assert steps["stage"].tolist() == ["weights", "bases", "overlaps", "nulls_at_once", "series"]
    assert (steps["disk_bytes"] > 0).all()
    page = (project / "results" / "plan" / "mine.md").read_text()
    assert re.search(r"^\| mine-checkpoint-1 \|", page, re.MULTILINE)
    assert "**all**" in page
