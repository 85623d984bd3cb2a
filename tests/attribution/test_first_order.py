"""First-order effects against autograd with every read as its own leaf, for tiny random models of each architecture."""

import numpy as np
import pytest
import torch
from support.running_models import CASES, SERVED, layer_of, running_tiny
from support.tiny_models import TINY

from headspaces.activations import replicas
from headspaces.attribution.cases import Case
from headspaces.attribution.first_order import first_order
from headspaces.errors import InputError
from headspaces.geometry.heads import fold


def stream_as_read(model, name, case):
    """Gradient of a measure with respect to the stream as every read of layer 1 sees it, and the stream, by autograd.

    The model runs once for each kind and head: the residual that enters the reader's norm is a leaf that only this
    head's rows of this projection depend on. Nothing of the package is used but which rows are whose.
    """
    found = {}
    for kind, (_, rows) in model.reads(1).places.items():
        for head, own in enumerate(rows):
            found[kind, head] = gradient_of_one(model, name, case, kind, torch.from_numpy(own))
    return found


def gradient_of_one(model, name, case, kind, own):
    norm, reads = norm_of(model, name), model.reads(1)
    module = reads.modules[reads.places[kind][0]]
    stream, leaves = [], []

    def replaced(_module, _inputs, output):
        x = stream[-1].detach().requires_grad_(True)
        leaves.append(x)
        read = module.forward(x if norm is None else norm.forward(x))
        return output.detach().index_copy(-1, own, read[..., own])

    hooks = [
        (norm or module).register_forward_pre_hook(lambda _, inputs: stream.append(inputs[0])),
        module.register_forward_hook(replaced),
    ]
    value = case.measure(model.run(case.tokens))
    for hook in hooks:
        hook.remove()
    (gradient,) = torch.autograd.grad(value, leaves)
    return gradient[0].numpy(), stream[0][0].detach().numpy()


def norm_of(model, name):
    if model.layout.norm == "none":
        return None
    block = layer_of(model, name, 1)
    path = model.layout.read_norm.removesuffix(".weight") or "input_layernorm"
    return block.get_submodule(path)


def writes_of(model, case):
    """What every head of layer 0 adds to the stream."""
    watched = model.watched()
    with model.watching(watched), torch.no_grad():
        model.run(case.tokens)
    z = model.taken(watched)[0].head_outputs
    return np.einsum("thj,hij->hti", z, fold(model.heads[0], "O"))


@pytest.mark.parametrize("name", SERVED)
def test_effects_are_those_of_autograd_with_every_read_its_own_leaf(name):
    model = running_tiny(name)
    found, value = first_order(model, CASES)
    effects = {key: [] for key in ("effect", "absolute")}
    for case in CASES:
        u, gradients = writes_of(model, case), stream_as_read(model, name, case)
        products = {key: np.einsum("hti,ti->ht", u, g) for key, (g, _) in gradients.items()}
        effects["effect"].append({key: one.sum(axis=1) for key, one in products.items()})
        effects["absolute"].append({key: np.abs(one).sum(axis=1) for key, one in products.items()})
    assert value == pytest.approx(np.mean([case.measure(model.run(case.tokens)).item() for case in CASES]), rel=1e-9)
    for kind, head in effects["effect"][0]:
        mean = {key: np.mean([one[kind, head] for one in effects[key]], axis=0) for key in ("effect", "absolute")}
        size = np.abs(found[f"{kind}/absolute"][0, 1, :, head]).max()
        assert size > 0
        np.testing.assert_allclose(found[f"{kind}/effect"][0, 1, :, head], mean["effect"], rtol=1e-5, atol=1e-5 * size)
        np.testing.assert_allclose(found[f"{kind}/absolute"][0, 1, :, head], mean["absolute"], rtol=1e-5)
        deviation = np.std([one[kind, head] for one in effects["effect"]], axis=0, ddof=1)
        np.testing.assert_allclose(
            found[f"{kind}/window_effect_sd"][0, 1, :, head], deviation, rtol=1e-4, atol=1e-6 * size
        )


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    model = running_tiny("qwen2")
    found = []
    for n_threads in (1, 2, 4):
        monkeypatch.setattr(replicas, "worker_count", lambda n=n_threads: n)
        arrays, value = first_order(model, [*CASES, *CASES])
        found.append(({name: values.tobytes() for name, values in arrays.items()}, value))
    assert found[0] == found[1] == found[2]


COMPLETE = ("gpt2", "llama", "falcon-multiquery", "gpt_neox", "qwen2", "cohere", "olmo2", "gemma2")
"""LayerNorm, RMSNorm and GQA, MQA, parallel sublayers, norms behind the sublayers with none before and with both."""


@pytest.mark.parametrize("name", COMPLETE)
def test_the_effects_of_all_that_is_written_add_up_to_what_is_read(name):
    """Heads, embedding, MLP and the attention's bias make up the stream, and their effects <x, gradient>."""
    model, case = running_tiny(name), CASES[0]
    block, parts = layer_of(model, name, 0), []
    output = block.get_submodule(f"{TINY[name].attention}.{TINY[name].output}")
    hooks = [
        # Where a norm stands behind the MLP, what it gives is what is added.
        getattr(block, "post_feedforward_layernorm", block.mlp).register_forward_hook(
            lambda _m, _i, out: parts.append(out[0].numpy().copy())
        ),
        block.register_forward_pre_hook(
            lambda _m, args, kwargs: parts.append((*args, *kwargs.values())[0][0].numpy().copy()), with_kwargs=True
        ),
    ]
    with torch.no_grad():
        model.run(case.tokens)
    for hook in hooks:
        hook.remove()
    if getattr(output, "bias", None) is not None:
        parts.append(np.broadcast_to(output.bias.detach().numpy(), parts[0].shape))
    found, _ = first_order(model, [case])
    for (kind, head), (g, x) in stream_as_read(model, name, case).items():
        others = sum(float(np.sum(part * g)) for part in parts)
        size = np.abs(g * x).sum()
        assert others + found[f"{kind}/effect"][0, 1, :, head].sum() == pytest.approx(np.sum(g * x), abs=1e-7 * size)
        assert abs(others) > 1e-4 * size


def test_only_the_tokens_that_count_are_predicted():
    model = running_tiny("llama")
    tokens = CASES[0].tokens
    found, value = first_order(model, [Case(tokens, first=7)])
    logits = model.run(tokens).detach()
    own = [torch.logsumexp(logits[at - 1], 0) - logits[at - 1, tokens[at]] for at in range(7, len(tokens))]
    assert value == pytest.approx(np.mean(own), rel=1e-9)
    assert np.isnan(found["Q/window_effect_sd"]).all()  # of a single case


def test_sequences_that_run_at_once_do_not_see_each_other(monkeypatch):
    """One after the other and together, with one of another length between: the same numbers."""
    model, other = running_tiny("bloom"), Case(CASES[1].tokens[:7])
    together, value = first_order(model, [*CASES, other, CASES[0]])
    monkeypatch.setattr("headspaces.attribution.cases.BATCH_TOKENS", 1)
    apart, single = first_order(model, [*CASES, other, CASES[0]])
    assert value == pytest.approx(single, rel=1e-12)
    for name, values in apart.items():
        np.testing.assert_allclose(together[name], values, rtol=1e-6, atol=1e-12)


def test_only_later_reads_have_effects():
    found, _ = first_order(running_tiny("qwen2"), CASES[:1])
    for kind in "QKV":
        defined = np.isfinite(found[f"{kind}/effect"])
        assert defined[0, 1].all()
        assert defined.sum() == defined[0, 1].size
    assert found["K/effect"].shape == (2, 2, 4, 2)


def test_a_sequence_beyond_the_context_is_refused():
    with pytest.raises(InputError, match="qwen2: sequences of 17 tokens, but the model's context has 16"):
        first_order(running_tiny("qwen2"), [Case(np.full(17, 5))])
