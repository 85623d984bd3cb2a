"""Effects with the reader head exact, against whole runs of the model with the read set by hand."""

import numpy as np
import pytest
import torch
from support.running_models import CASES, SERVED, running_tiny

from headspaces.attribution.ablation import Edge, ablate, without
from headspaces.attribution.exact_head import exact_heads
from headspaces.attribution.first_order import first_order

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
def test_it_is_the_heads_change_in_a_whole_run_times_the_gradient(name):
    model, case = running_tiny(name), CASES[0]
    edges = [Edge(kind, 0, writer, 1, 0) for kind in KINDS for writer in (1, 2)]
    found = exact_heads(model, [case], edges)[:, 0]
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


def test_values_without_a_norm_are_linear_so_that_it_is_the_first_order():
    model = running_tiny("olmo2")
    effects, _ = first_order(model, CASES[:1])
    edges = [Edge("V", 0, writer, 1, 0) for writer in range(4)]
    np.testing.assert_allclose(
        exact_heads(model, CASES[:1], edges)[:, 0], effects["V/effect"][0, 1, :, 0], rtol=1e-5, atol=1e-9
    )


def test_it_is_nearer_to_exact_ablation_than_the_first_order():
    """Over all edges of models of several kinds: the head's own bends are the larger part of what is left out."""
    first, heads = [], []
    for name in ("gpt2", "falcon-multiquery", "gpt_neox", "phi3", "cohere2", "bloom"):
        model = running_tiny(name)
        effects, _ = first_order(model, CASES)
        edges = [Edge(kind, 0, writer, 1, 0) for kind in KINDS for writer in range(4)]
        exact = ablate(model, CASES, edges)[0].mean(axis=1)
        plain = np.array([effects[f"{edge.kind}/effect"][edge.indices] for edge in edges])
        first.append(np.linalg.norm(plain + exact) / np.linalg.norm(exact))
        heads.append(np.linalg.norm(exact_heads(model, CASES, edges).mean(axis=1) + exact) / np.linalg.norm(exact))
    assert np.mean(heads) < 0.5 * np.mean(first)


def test_nothing_is_left_of_it_in_the_model():
    model = running_tiny("llama")
    before = model.run(CASES[0].tokens).detach()
    exact_heads(model, CASES[:1], [Edge("Q", 0, 0, 1, 0)])
    np.testing.assert_array_equal(before, model.run(CASES[0].tokens).detach())
