"""Effects in the demo's model: the numbers that are known, and both estimates against exact ablation."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from support.project import ROOT

from headspaces.activations.texts import load_text
from headspaces.attribution.ablation import Edge, ablate
from headspaces.attribution.first_order import first_order
from headspaces.attribution.running import open_running
from headspaces.attribution.second_order import second_order
from headspaces.attribution.stage import losses, strongest
from headspaces.report.effect_results import rank_correlation
from headspaces.store import read_arrays
from headspaces.weights.blocks import read_block

NAME = "smollm2-135m-instruct"
RESULTS = ROOT / "results"
WEIGHTS, TEXT = RESULTS / "weights" / NAME, RESULTS / "texts" / "python-pydoc_data.topics.json"
SHA256 = "2a95af4ac93f5b719944030ce3769070ddf827d847cba42192afa8da989e5dc4"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (WEIGHTS / "layers000-029.safetensors").is_file(), reason="the demo has not been run"),
]

KNOWN = {Edge("Q", 8, 8, 10, 0): 74.7e-3, Edge("K", 16, 0, 17, 1): 27.9e-3, Edge("V", 10, 0, 11, 0): 29.9e-3}
"""Edges, and what ablation raises the loss by."""


@pytest.fixture(scope="module")
def model():
    return open_running(
        str(WEIGHTS / "checkpoint" / "model.gguf"), read_block(WEIGHTS / "layers000-029.safetensors"), NAME
    )


@pytest.fixture(scope="module")
def cases(model):
    text = load_text(TEXT)
    if text.sha256 != SHA256:
        pytest.skip("this Python's topics are other ones")
    return losses(model, text, 8, 256, 0).cases["text"]


@pytest.fixture(scope="module")
def effects(model, cases):
    return first_order(model, cases)


@pytest.fixture(scope="module")
def rho():
    arrays = read_arrays(RESULTS / "overlaps" / f"{NAME}.h5", "overlaps", [f"cross/O{kind}/rho" for kind in "QKV"])
    return {kind: arrays[f"cross/O{kind}/rho"] for kind in "QKV"}


def square(pairs):
    return pairs.transpose(0, 2, 1, 3).reshape(len(pairs) * pairs.shape[2], -1)


def test_the_largest_edges_and_how_overlap_ranks_them(effects, rho):
    arrays, loss = effects
    assert loss == pytest.approx(2.902, abs=5e-4)
    for edge, size in zip(KNOWN, (-18.8e-3, 15.6e-3, -13.6e-3), strict=True):
        assert arrays[f"{edge.kind}/effect"][edge.indices] == pytest.approx(size, rel=0.01)
        assert strongest(edge.kind, np.abs(arrays[f"{edge.kind}/effect"]), 1) == [edge]
    for kind, of_effect, of_absolute in (("Q", 0.417, 0.588), ("K", 0.373, 0.532), ("V", 0.378, 0.554)):
        for name, expected in (("effect", of_effect), ("absolute", of_absolute)):
            sizes = square(np.abs(arrays[f"{kind}/{name}"]))
            assert rank_correlation(square(rho[kind]), sizes)[0] == pytest.approx(expected, abs=0.01)


def test_their_ablation_raises_the_loss(model, cases):
    changes = ablate(model, cases, list(KNOWN))[0].mean(axis=1)
    np.testing.assert_allclose(changes, list(KNOWN.values()), rtol=0.02)
    assert (second_order(model, cases, list(KNOWN)).mean(axis=1) < 0).all()  # to first order one has the wrong sign


def chosen(kind, effect, rho):
    """The ten largest, twelve at random of the largest 2 %, and eight of largest rho."""
    ranked = strongest(kind, np.abs(effect), int(np.isfinite(effect).sum()) // 50)
    drawn = np.random.default_rng(0).choice(len(ranked) - 10, 12, replace=False)
    edges = ranked[:10] + [ranked[10 + at] for at in drawn]
    return edges + [edge for edge in strongest(kind, rho, 30) if edge not in edges][:8]


def test_the_second_order_ranks_the_largest_edges_as_ablation_does(model, cases, effects, rho):
    windows, signs = cases[:4], []
    for kind in "QKV":
        edges = chosen(kind, effects[0][f"{kind}/effect"], rho[kind])
        exact = ablate(model, windows, edges)[0].mean(axis=1)
        second = second_order(model, windows, edges).mean(axis=1)
        assert spearmanr(np.abs(second), np.abs(exact))[0] > 0.8, kind
        signs += (second * exact < 0).tolist()
    assert np.mean(signs) > 0.9
