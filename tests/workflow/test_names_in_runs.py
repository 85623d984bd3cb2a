"""Runs of several models in one folder: nothing is mixed up, nothing lost, nothing stale (through the workflow)."""

import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.project import ROOT
from support.workflow_runs import D_HEAD, D_MODEL, N_HEADS, N_KV, N_LAYERS, planned, save_tiny, snakemake

from headspaces.affinity.run import affinity
from headspaces.geometry.heads import fold
from headspaces.geometry.rounding import without_rounding
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.spaces import Shape
from headspaces.store import read_arrays, read_attributes
from headspaces.weights.blocks import read_block


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


def test_directions_within_rounding_are_left_out_of_every_stage(project, tmp_path):
    """Heads of exact rank 3 of 6, stored in bfloat16: the files hold what the truncated maps give."""
    rng, start = np.random.default_rng(1), "model.layers.{}.self_attn.{}_proj.weight"
    save_tiny(tmp_path / "m")
    tensors = {f"model.layers.{layer}.input_layernorm.weight": torch.ones(D_MODEL) for layer in range(N_LAYERS)}
    for layer in range(N_LAYERS):
        for kind, n in (("q", N_HEADS), ("k", N_KV), ("v", N_KV), ("o", N_HEADS)):
            heads = rng.standard_normal((n, D_HEAD, 3)) @ rng.standard_normal((n, 3, D_MODEL))
            rows = torch.from_numpy(heads.reshape(-1, D_MODEL))
            tensors[start.format(layer, kind)] = (rows.T if kind == "o" else rows).bfloat16().contiguous()
    save_file(tensors, tmp_path / "m/model.safetensors")
    targets = [f"results/{stage}/m.h5" for stage in ("overlaps", "affinity", "nulls")]
    settings = (f"model={tmp_path}/m", "leave_out_rounding=true", "nulls={samples: 1}")
    snakemake(project, *targets, "--directory", str(tmp_path), "--config", *settings)
    files = {stage: tmp_path / f"results/{stage}/m.h5" for stage in ("overlaps", "affinity", "nulls")}
    assert [read_attributes(path, stage)["leave_out_rounding"] for stage, path in files.items()] == [True] * 3
    found = {stage: read_arrays(path, stage) for stage, path in files.items()}
    for kind in "OQKV":
        assert (found["overlaps"][f"rank/{kind}"] == 3).all()
        assert (found["overlaps"][f"within_rounding/{kind}"] == 3).all()
    (block,) = (tmp_path / "results/weights/m").glob("layers*.safetensors")
    stored = read_block(block)
    layers = [without_rounding(layer) for layer in stored]
    np.testing.assert_allclose(found["affinity"]["pk/OQ"], affinity([lambda: layers], scores=())["pk/OQ"], rtol=1e-9)
    assert np.nanmax(affinity([lambda: stored], scores=())["pk/OQ"] - found["affinity"]["pk/OQ"]) > 1
    shape = Shape(N_LAYERS, D_MODEL, N_HEADS, N_KV, D_HEAD)
    run = NullRun(lambda layer, kind: fold(layers[layer], kind), shape, "OQKV", "m", seed=0, dtype="float32")
    name = "within/Q/reassignment/spread"
    np.testing.assert_allclose(found["nulls"][name], null_shard(run, "reassignment", range(1))[name], rtol=1e-9)


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
