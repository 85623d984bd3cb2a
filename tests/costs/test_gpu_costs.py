"""Reckoned GPU memory beside what torch takes for the same work, and beside the cards there are."""

import numpy as np
import pytest
import torch
from support.project import ROOT
from torch.profiler import ProfilerActivity, profile

from headspaces import devices
from headspaces.affinity.run import SCORES, affinity
from headspaces.costs.requests import gpu_mb, memory_mb, stage_cost
from headspaces.geometry import angles, closest_pair, kernel
from headspaces.geometry.bases import block_bases
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.geometry.overlaps import composition_scores, observed_overlaps
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.nulls.swap_run import SwapRun, burnt_in
from headspaces.spaces import Shape
from headspaces.study.models import Model, read_models

MODELS = read_models(ROOT / "config" / "models.tsv")
GIB = 1024
GPU_STAGES = ("overlaps", "null_shard", "affinity")


def place(array):
    """A copy, as on a GPU: torch's own memory is what counts."""
    return torch.asarray(array, copy=True)


def peak_bytes(work):
    """Most bytes that torch held at a time while it did some work."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]))


def work_of(rule, model, layers):
    dtype = model.nulls_dtype
    if rule == "overlaps":
        block = block_bases(layers, fold_norms=True, dtype=dtype)
        yield lambda: observed_overlaps(iter([dict(block)]), place)
        if model.kinds != "O":
            yield lambda: composition_scores(lambda: layers, dtype, place)
    elif rule == "null_shard":
        run = NullRun(lambda layer, kind: layers[layer].factors[kind], model.shape, model.kinds, "m", 0, dtype=dtype,
                      to_device=place)  # fmt: skip
        for null in ("rotation", "reassignment"):
            yield lambda null=null: null_shard(run, null, range(1))
        start = burnt_in(block_bases(layers, fold_norms=False), 0, seed=0, model="m", burn_in=1, dtype=dtype)
        swap = SwapRun(lambda layer, kind: start[f"{layer}/{kind}"], model.shape, model.kinds, "m", 0, dtype=dtype,
                       to_device=place)  # fmt: skip
        yield lambda: null_shard(swap, "swap", range(1))
    else:
        yield lambda: affinity([lambda: layers], scores=KERNEL, same_kind=True, dtype=dtype, to_device=place)


# The others need singular values of every pair, which are computed on the CPU.
KERNEL = [score for score in SCORES if not score.startswith("procrustes")]
SHAPES = [
    ("OQKV", "float32", Shape(4, 512, 8, 2, 64)),
    ("OQKV", "float64", Shape(2, 256, 6, 6, 32)),
    ("OQKV", "float64", Shape(4, 512, 4, 4, 8)),
    ("O", "float32", Shape(3, 320, 12, 12, 32)),
]


@pytest.mark.parametrize(
    ("rule", "kinds", "dtype", "shape"),
    [(rule, *model) for rule in GPU_STAGES for model in SHAPES if rule != "affinity" or model[0] == "OQKV"],
)
def test_reckoned_memory_bounds_what_torch_takes(rule, kinds, dtype, shape, monkeypatch):
    """The fixed sizes are made small beside the model's, as they are beside a large model's."""
    for module in (devices, closest_pair):
        monkeypatch.setattr(module, "PAIR_BYTES", 2**17)
    for module in (devices, kernel, angles):
        monkeypatch.setattr(module, "GRAM_BYTES", 2**17)
    for module in (devices, kernel):
        monkeypatch.setattr(module, "BATCH_BYTES", 2**17)
    monkeypatch.setattr("headspaces.devices.WORK_BYTES", 2**24)
    model, rng = Model("x", "", kinds, shape, dtype, dtype), np.random.default_rng(0)
    layers = [
        LayerHeads(i, {kind: rng.standard_normal((shape.n_heads(kind), shape.d_model, shape.d_head)) for kind in kinds},
                   Norm("none"))
        for i in range(shape.n_layers)
    ]  # fmt: skip
    peak = max(peak_bytes(work) for work in work_of(rule, model, layers))
    assert peak <= stage_cost(rule, model).gpu <= 2.5 * peak


def test_a_card_of_24_gib_serves_the_large_models():
    """With room for the driver: one sample of Qwen2.5-7B in float32, and Qwen3-235B's writes, layer by layer."""
    assert gpu_mb("null_shard", MODELS["qwen2.5-7b"]) < 8 * GIB
    assert all(gpu_mb(rule, MODELS["qwen3-235b-a22b"]) < 8 * GIB for rule in ("overlaps", "null_shard"))
    assert all(gpu_mb(rule, model) < 16 * GIB for rule in GPU_STAGES for model in MODELS.values())


def test_writes_alone_take_no_more_for_more_layers():
    few, many = (Model("x", "", "O", Shape(n_layers, 4096, 64, 4, 128), "float32", "float32") for n_layers in (40, 94))
    assert gpu_mb("overlaps", few) == gpu_mb("overlaps", many)
    assert gpu_mb("null_shard", few) == gpu_mb("null_shard", many)


def test_by_hand():
    """All bases of Qwen2.5-7B; beside them a byte for every number, or what a layer is drawn with, and batches."""
    numbers, of_a_layer = 28 * (2 * 28 + 2 * 4) * 3584 * 128 / 2**20, 28 * 3584 * 128 / 2**20
    overlaps_mb, null_mb = (8 + 1) * numbers + 5 * 32 + 512 + 128, 4 * (numbers + 5 * of_a_layer) + 5 * 64 + 128
    assert gpu_mb("overlaps", MODELS["qwen2.5-7b"]) == pytest.approx(overlaps_mb, abs=1)
    assert gpu_mb("null_shard", MODELS["qwen2.5-7b"]) == pytest.approx(null_mb, abs=1)
    # BLOOM's tiles are more: 256 x 256 of all heads.
    heads, pairs = 24 * 4 * 16, 24 * 23 // 2 * 16 * 48
    tiles_mb = (8 * heads * (1024 * 64 + 256**2) + 32 * pairs) / 2**20 + 128
    assert gpu_mb("null_shard", MODELS["bloom-560m"]) == pytest.approx(tiles_mb, abs=1)


def test_a_gpu_job_asks_for_the_memory_of_torch_too():
    model = MODELS["gpt2"]
    more = memory_mb("overlaps", model, 2, device="cuda") - memory_mb("overlaps", model, 2)
    assert more == pytest.approx(1.3 * 3 * GIB, abs=1)
