"""Exact path ablation: against a model whose weights remove the write, and against the first order."""

import numpy as np
import pytest
import torch
from support.running_models import CASES, running_tiny

from headspaces.attribution.ablation import MEAN, ZERO, Edge, Removal, ablate
from headspaces.attribution.cases import Case
from headspaces.attribution.first_order import first_order

ARCHITECTURES = ["gpt2", "llama", "falcon-multiquery", "gpt_neox", "olmo2", "gemma2", "cohere"]
"""LayerNorm, RMSNorm and GQA, MQA, parallel residual, norm after the attention and none before, both, parallel."""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_ablation_is_minus_the_first_order_up_to_second_order(name, monkeypatch):
    # Norms and softmax of many models compute in float32, whose rounding is larger than the second order.
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    model = running_tiny(name)
    effects, _ = first_order(model, CASES[:1])
    edges = [Edge(kind, 0, writer, 1, 0) for kind in "QKV" for writer in (0, 3)]
    steps = (1 / 1024, 1 / 2048)
    found = ablate(model, CASES[:1], edges, [Removal(share) for share in steps])[:, :, 0]
    for edge, (far, near) in zip(edges, found.T, strict=True):
        a = effects[f"{edge.kind}/effect"][edge.indices]
        assert abs(far + steps[0] * a) > 1e-10
        # Halving the write divides the difference by four.
        assert (far + steps[0] * a) / (near + steps[1] * a) == pytest.approx(4, rel=0.02), edge


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_ablation_is_what_the_model_says_when_the_read_is_set_by_hand(name):
    """The oracle removes the write from the stream of layer 1 and copies this head's read into an untouched run."""
    model, edge, case = running_tiny(name), Edge("K", 0, 2, 1, 1), CASES[0]
    reads = model.reads(1)
    place, rows = reads.places["K"]
    projection, norm, own = reads.modules[place], reads.norm, rows[edge.reader_head]
    output = model.module.get_submodule(model.layer_name(0) + "." + model.layout.o.removesuffix(".weight"))
    z = []
    hook = output.register_forward_hook(lambda _m, inputs, _o: z.append(inputs[0].detach().clone()))
    whole = case.measure(model.run(case.tokens)).item()
    hook.remove()
    only = torch.zeros_like(z[0]).reshape(*z[0].shape[:-1], 4, -1)
    only[..., 2, :] = z[0].reshape(only.shape)[..., 2, :]
    write = output(only.reshape(z[0].shape)) - output(torch.zeros_like(z[0]))
    seen = []
    hooks = [
        norm.register_forward_hook(lambda _m, inputs, _o: seen.append(inputs[0])),
        projection.register_forward_hook(
            lambda _m, _i, out: torch.stack(
                [
                    projection.forward(norm.forward(seen[0] - write))[..., at] if at in own else out[..., at]
                    for at in range(out.shape[-1])
                ],
                dim=-1,
            )
        ),
    ]
    changed = case.measure(model.run(case.tokens)).item()
    for one in hooks:
        one.remove()
    found = ablate(model, [case], [edge])[0, 0, 0]
    assert abs(found) > 1e-8
    assert found == pytest.approx(changed - whole, rel=1e-6)


def test_nothing_is_left_of_a_run_in_the_model():
    model = running_tiny("llama")
    before = model.run(CASES[0].tokens)
    ablate(model, CASES[:1], [Edge("Q", 0, 0, 1, 0)])
    np.testing.assert_array_equal(before.detach(), model.run(CASES[0].tokens).detach())


def test_the_mean_of_a_write_can_stay():
    """Of equal tokens a model without absolute positions writes the same everywhere: nothing but the mean."""
    model = running_tiny("llama")
    zero, mean = ablate(model, [Case(np.full(6, 5))], [Edge("V", 0, 1, 1, 0)], (ZERO, MEAN))[:, 0, 0]
    assert abs(zero) > 1e-5
    assert abs(mean) < 1e-7
