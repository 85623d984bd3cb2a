"""The stages attribution and ablation: losses, the choice of edges, and the trained model's induction circuit."""

import runpy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.project import ROOT
from support.running_models import CASES, running_tiny

from headspaces.activations.texts import Text
from headspaces.activations.toy_model import ToyConfig, ToyModel, save_toy, train
from headspaces.attribution.ablation import Edge
from headspaces.attribution.cases import repeated_cases
from headspaces.attribution.first_order import first_order
from headspaces.attribution.running import open_running, running_toy
from headspaces.attribution.second_order import second_order
from headspaces.attribution.stage import ChosenEdge, Losses, ablation, attribution, choose_edges, losses
from headspaces.store import read_arrays, read_attributes
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers

NO_TEXT = Text("", "none", "", 1, "0" * 64)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The toy model of the demo, ready to run."""
    folder = tmp_path_factory.mktemp("toy")
    model, _ = train(ToyConfig(), 0)
    save_toy(model, folder, 0)
    fetch_block(read_headers(str(folder)), range(2), folder / "block.safetensors")
    return open_running(str(folder), read_block(folder / "block.safetensors"), "toy"), model


@pytest.mark.slow
def test_the_strongest_key_edges_on_repeats_run_from_previous_token_to_induction_heads(trained):
    running, model = trained
    chosen = losses(running, NO_TEXT, 8, 256, seed=0)
    assert list(chosen.cases) == ["repeats"]
    arrays, values = attribution(running, chosen, 3)
    copy = torch.from_numpy(chosen.cases["repeats"][0].tokens)
    with torch.no_grad():
        attentions = model(copy[None])[1]
    half = len(copy) // 2
    rows = torch.arange(1, len(copy))
    previous = attentions[0][0][:, rows, rows - 1].mean(dim=1)
    rows = torch.arange(half, len(copy))
    induction = attentions[1][0][:, rows, rows - half + 1].mean(dim=1)
    assert previous.max() > 0.5
    assert induction.max() > 0.5
    effects = arrays["repeats/K/effect"][0, 1]
    order = np.argsort(-np.abs(effects), axis=None)[:3]
    for writer, reader in np.array(np.unravel_index(order, effects.shape)).T:
        assert previous[writer] > 0.5
        assert induction[reader] > 0.3
    assert values["loss_repeats"] < 0.1
    assert np.isfinite(arrays["repeats/K/effect_second_order"][0, 1].ravel()[order]).all()
    assert np.isfinite(arrays["repeats/K/effect_second_order"]).sum() == 3


def test_effects_of_all_steps_of_a_training_are_those_of_each_step_alone(tmp_path):
    """The job's files against direct calls, on the sequences that all steps share."""
    steps, configs = [tmp_path / f"step{number}" for number in (0, 40)], []
    train(
        ToyConfig(steps=40), 0, lambda at, model: save_toy(model, tmp_path / f"step{at}", 0) if at in (0, 40) else None
    )
    for folder in steps:
        fetch_block(read_headers(str(folder)), range(2), folder / "block.safetensors")
        configs += [str(folder / "config.json"), str(folder / "model.safetensors")]
    outputs = [str(folder / "attribution.h5") for folder in steps]
    inputs = SimpleNamespace(checkpoint=configs, weights=[str(one / "block.safetensors") for one in steps], code=[])
    job = SimpleNamespace(
        input=inputs, output=outputs, log=[str(tmp_path / "log")], threads=1,
        params=SimpleNamespace(models=["run-step0", "run-step40"], seed=3),
    )  # fmt: skip
    runpy.run_path(str(ROOT / "workflow/scripts/attribution_of_steps.py"), init_globals={"snakemake": job})
    cases = repeated_cases(np.arange(64), np.array([], int), n_sequences=8, n_repeated=16, seed=3)
    values = []
    for folder, path, name in zip(steps, outputs, job.params.models, strict=True):
        found, says = read_arrays(path, "attribution"), read_attributes(path, "attribution")
        running = open_running(str(folder), read_block(folder / "block.safetensors"), "alone")
        expected, value = first_order(running, cases)
        for kind in "QKV":
            np.testing.assert_array_equal(found[f"repeats/{kind}/effect"], expected[f"{kind}/effect"])
        assert (says["model"], says["loss_repeats"]) == (name, value)
        values.append(np.nansum(abs(found["repeats/V/effect"])))
    assert values[0] != values[1]


def test_the_toy_models_read_is_what_autograd_says():
    """Its map is called twice, with and without positions: of both calls the gradients count."""
    torch.manual_seed(0)
    toy = ToyModel(ToyConfig(n_head=2, n_embd=16, vocab_size=11, n_positions=8)).eval()
    heads = heads_of(toy)
    case = repeated_cases(np.arange(11), np.array([], dtype=np.int64), n_sequences=1, n_repeated=4, seed=1)[0]
    found, _ = first_order(running_toy(toy, heads, "toy"), [case])
    block = toy.h[1]
    seen = []
    hook = block.ln_1.register_forward_hook(lambda _m, inputs, out: seen.append((inputs[0].detach(), out.detach())))
    z = []
    other = toy.h[0].attn.c_proj.register_forward_hook(lambda _m, inputs, _o: z.append(inputs[0].detach()))
    toy(torch.from_numpy(case.tokens)[None])
    hook.remove()
    other.remove()
    x = seen[0][0].requires_grad_(True)
    for kind, at in (("Q", 0), ("K", 1), ("V", 2)):
        own = torch.arange(at * 16 + 8, at * 16 + 16)  # the second head
        plain = seen[0][1]

        def replaced(module, inputs, output, own=own, plain=plain):
            again = module.forward(inputs[0].detach() - plain + block.ln_1.forward(x))
            return output.detach().index_copy(-1, own, again[..., own])

        hook = block.attn.c_attn.register_forward_hook(replaced)
        value = case.measure(toy(torch.from_numpy(case.tokens)[None])[0][0])
        hook.remove()
        (gradient,) = torch.autograd.grad(value, x)
        for head in range(2):
            columns = slice(8 * head, 8 * head + 8)
            write = z[0][..., columns] @ toy.h[0].attn.c_proj.weight[columns]
            expected = (write * gradient).sum().item()
            assert found[f"{kind}/effect"][0, 1, head, 1] == pytest.approx(expected, rel=1e-4, abs=1e-8)


def heads_of(toy):
    from headspaces.geometry.heads import LayerHeads, Norm

    layers = []
    for number, block in enumerate(toy.h):
        weight = block.attn.c_attn.weight.detach().numpy().astype(np.float64)
        q, k, v = (part.reshape(16, 2, 8).transpose(1, 0, 2) for part in np.split(weight, 3, axis=1))
        o = block.attn.c_proj.weight.detach().numpy().astype(np.float64).reshape(2, 8, 16).transpose(0, 2, 1)
        gain = block.ln_1.weight.detach().numpy().astype(np.float64)
        layers.append(LayerHeads(number, {"O": o, "Q": q, "K": k, "V": v}, Norm("layernorm", gain)))
    return layers


def test_the_heads_of_the_strongest_edges_are_computed_exactly():
    model = running_tiny("llama")
    arrays, _ = attribution(model, Losses({"text": CASES, "repeats": CASES[:1]}, {}), 2)
    for start, cases in (("", CASES), ("repeats/", CASES[:1])):
        for kind in "QKV":
            sizes, exact = np.abs(arrays[f"{start}{kind}/effect"]), arrays[f"{start}{kind}/effect_second_order"]
            places = np.argwhere(np.isfinite(exact))
            assert sizes[np.isfinite(exact)].min() == np.sort(sizes[np.isfinite(sizes)])[-2]
            edges = [Edge(kind, i, h, j, g) for i, j, h, g in places.tolist()]
            expected = second_order(model, cases, edges).mean(axis=1)
            np.testing.assert_allclose(exact[np.isfinite(exact)], expected, rtol=1e-9)


def test_the_strongest_edges_of_each_score_are_chosen_and_matched():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((3, 3, 4, 2))
    values[~np.triu(np.ones((3, 3), bool), 1)] = np.nan
    chosen = choose_edges({"a": {"K": values}, "b": {"K": -values}}, 3, seed=0)
    assert [one.chosen_by for one in chosen] == ["a"] * 3 + ["b"] * 3
    sizes = np.sort(np.abs(values[np.isfinite(values)]))[::-1][:3]
    for one, size in zip(chosen, sizes, strict=False):
        edge = one.edge
        assert abs(values[edge.writer_layer, edge.reader_layer, edge.writer_head, edge.reader_head]) == size
        assert one.matched != edge
        assert (one.matched.kind, one.matched.writer_layer, one.matched.reader_layer) == (
            "K", edge.writer_layer, edge.reader_layer,
        )  # fmt: skip
    # Both scores have the same sizes, so the same edges and the same matches.
    assert [one.matched for one in chosen[:3]] == [one.matched for one in chosen[3:]]


def test_a_single_edge_of_a_layer_pair_is_its_own_match():
    values = np.full((2, 2, 1, 1), np.nan)
    values[0, 1] = 1.0
    (one,) = choose_edges({"a": {"V": values}}, 5, seed=0)
    assert one.matched == one.edge == Edge("V", 0, 0, 1, 0)


def test_the_ablation_file_has_the_changes_of_its_edges():
    model = running_tiny("llama")
    effects, _ = first_order(model, CASES)
    edges = [
        ChosenEdge(Edge("K", 0, 1, 1, 0), "first_order", Edge("K", 0, 2, 1, 1)),
        ChosenEdge(Edge("Q", 0, 3, 1, 2), "rho", Edge("K", 0, 1, 1, 0)._replace(kind="Q")),
    ]
    arrays = ablation(model, Losses({"text": CASES}, {}), effects, edges)
    assert arrays["zero"].shape == arrays["mean"].shape == arrays["random_zero"].shape == (2, len(CASES))
    assert arrays["kind"].tolist() == [b"K", b"Q"]
    assert arrays["first_order"][0] == effects["K/effect"][0, 1, 1, 0]
    heads = second_order(model, CASES, [one.edge for one in edges]).mean(axis=1)
    np.testing.assert_array_equal(arrays["second_order"], heads)
    assert (arrays["random_writer_head"].tolist(), arrays["random_reader_head"].tolist()) == ([2, 1], [1, 0])
    own = ablation(model, Losses({"text": CASES}, {}), effects, [ChosenEdge(edges[0].matched, "x", edges[0].edge)])
    np.testing.assert_allclose(own["zero"][0], arrays["random_zero"][0], rtol=1e-9)
    np.testing.assert_allclose(own["random_zero"][0], arrays["zero"][0], rtol=1e-9)
