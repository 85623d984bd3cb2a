"""Effects to second order, against whole runs of the model with the read set by hand, and a curvature by formula."""

import numpy as np
import pytest
import torch
from support.running_models import CASES, SERVED, running_tiny

from headspaces.attribution.ablation import Edge, ablate, without, writes_of
from headspaces.attribution.first_order import first_order
from headspaces.attribution.prompts import Prompt
from headspaces.attribution.second_order import second_order

KINDS = "QKV"


def by_whole_runs(model, case, edge, write):
    """The change of what the heads give in a whole run without the write, times the gradient there by autograd."""
    output = model.module.get_submodule(model.output_name(1))
    given = []

    def leaf(_module, inputs):
        given.append(inputs[0].detach().requires_grad_(True))
        return (given[-1],)

    hook = output.register_forward_pre_hook(leaf)
    (gradient,) = torch.autograd.grad(case.measure(model.run(case.tokens)), given)
    with torch.no_grad(), without(model.reads(1), edge, write):
        model.run(case.tokens)
    hook.remove()
    return -((given[1] - given[0]) * gradient).sum().item()


@pytest.mark.parametrize("name", SERVED)
def test_without_curvature_it_is_the_heads_change_in_a_whole_run_times_the_gradient(name):
    model, case = running_tiny(name), CASES[0]
    edges = [Edge(kind, 0, writer, 1, 0) for kind in KINDS for writer in (1, 2)]
    found = second_order(model, [case], edges, n_samples=0)[:, 0]
    watched = model.watched()
    with model.watching(watched), torch.no_grad():
        model.run(case.tokens)
    z, own = model.taken(watched)[0].head_outputs, model.heads[0]
    factors = own.factors["O"]
    if own.write_norm is not None and own.write_norm.gain is not None:
        factors = own.write_norm.gain[:, None] * factors
    for edge, effect in zip(edges, found, strict=True):
        write = torch.from_numpy(z[:, edge.writer_head] @ factors[edge.writer_head].T)
        expected = by_whole_runs(model, case, edge, write)
        assert abs(expected) > 0
        assert effect == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_values_without_a_norm_are_linear_so_that_without_curvature_it_is_the_first_order():
    model = running_tiny("olmo2")
    effects, _ = first_order(model, CASES[:1])
    edges = [Edge("V", 0, writer, 1, 0) for writer in range(4)]
    np.testing.assert_allclose(
        second_order(model, CASES[:1], edges, 0)[:, 0], effects["V/effect"][0, 1, :, 0], rtol=1e-5, atol=1e-9
    )


def curvature(model, case, edge, write):
    """Half the Gauss-Newton form: the variances under the predictions of the logits' derivative along the change."""
    output = model.module.get_submodule(model.output_name(1))
    given = []
    hook = output.register_forward_pre_hook(lambda _module, inputs: given.append(inputs[0]))
    with torch.no_grad():
        whole = model.run(case.tokens)[case.first - 1 : -1]
        with without(model.reads(1), edge, write):
            model.run(case.tokens)
    hook.remove()
    step = 1e-4 * (given[1] - given[0])
    ends = []
    for sign in (1, -1):
        hook = output.register_forward_pre_hook(lambda _module, _inputs, sign=sign: (given[0] + sign * step,))
        with torch.no_grad():
            ends.append(model.run(case.tokens)[case.first - 1 : -1])
        hook.remove()
    derivative, p = (ends[0] - ends[1]) / 2e-4, whole.softmax(dim=-1)
    variance = (p * derivative**2).sum(dim=-1) - (p * derivative).sum(dim=-1) ** 2
    return variance.mean().item() / 2


@pytest.mark.parametrize("name", ["gpt2", "falcon-multiquery"])
def test_the_curvature_is_that_of_the_predictions(name, monkeypatch):
    monkeypatch.setattr(torch, "float32", torch.float64)
    model, case, edge = running_tiny(name), CASES[0], Edge("V", 0, 1, 1, 0)
    plain, curved = (second_order(model, [case], [edge], n)[0, 0] for n in (0, 1500))
    watched = model.watched()
    with model.watching(watched), torch.no_grad():
        model.run(case.tokens)
    write = writes_of(model, watched, [edge.writer])[edge.writer]
    # Of 1,500 squares of a nearly normal product the mean is off by 4 %.
    assert plain - curved == pytest.approx(curvature(model, case, edge, write), rel=0.15)


def test_what_is_no_loss_of_predictions_has_no_curvature():
    model, case = running_tiny("gpt2"), Prompt(CASES[0].tokens, 1, 4, 5)
    plain, curved = (second_order(model, [case], [Edge("Q", 0, 1, 1, 0)], n)[0, 0] for n in (0, 3))
    assert plain == curved != 0


def test_it_is_nearer_to_exact_ablation_than_the_first_order():
    """Over edges of models of several kinds. The head alone: the curvature is that of models that were trained."""
    first, heads = [], []
    for name in ("gpt2", "falcon-multiquery", "gpt_neox", "phi3", "cohere2", "bloom"):
        model = running_tiny(name)
        effects, _ = first_order(model, CASES)
        edges = [Edge(kind, 0, writer, 1, 0) for kind in KINDS for writer in range(4)]
        exact = ablate(model, CASES, edges)[0].mean(axis=1)
        plain = np.array([effects[f"{edge.kind}/effect"][edge.indices] for edge in edges])
        first.append(np.linalg.norm(plain + exact) / np.linalg.norm(exact))
        heads.append(np.linalg.norm(second_order(model, CASES, edges, 0).mean(axis=1) + exact) / np.linalg.norm(exact))
    assert np.mean(heads) < 0.5 * np.mean(first)


@pytest.mark.parametrize("name", ["bloom", "gpt_neox", "falcon-multiquery"])
def test_sequences_that_run_at_once_do_not_see_each_other(name, monkeypatch):
    model, edges = running_tiny(name), [Edge(kind, 0, 1, 1, 0) for kind in KINDS]
    together = second_order(model, CASES, edges, 0)
    monkeypatch.setattr("headspaces.attribution.cases.BATCH_TOKENS", 1)
    np.testing.assert_allclose(together, second_order(model, CASES, edges, 0), rtol=1e-6, atol=1e-12)


def test_nothing_is_left_of_it_in_the_model():
    model = running_tiny("llama")
    before = model.run(CASES[0].tokens).detach()
    second_order(model, CASES[:1], [Edge("Q", 0, 0, 1, 0)])
    np.testing.assert_array_equal(before, model.run(CASES[0].tokens).detach())
