"""Effects of what writes and reads beside the heads, against autograd with every read its own leaf."""

from types import MappingProxyType

import numpy as np
import pytest
import torch
from support.running_models import CASES, SERVED, layer_of, running_tiny
from support.tiny_models import N_LAYERS, TINY

from headspaces.activations.toy_model import ToyConfig, ToyModel
from headspaces.attribution.first_order import first_order
from headspaces.attribution.running import running_toy
from headspaces.geometry.heads import LayerHeads, Norm

CASE = CASES[0]
READ_BY_NORM = MappingProxyType(
    {
        "gpt2": "ln_2", "bloom": "post_attention_layernorm", "llama": "post_attention_layernorm",
        "qwen2": "post_attention_layernorm", "olmo": "post_attention_layernorm", "phi3": "post_attention_layernorm",
        "gemma2": "pre_feedforward_layernorm", "gpt_neox": "post_attention_layernorm", "cohere": "input_layernorm",
        "granite": "post_attention_layernorm", "olmo2": None,
    }
)  # fmt: skip
"""The norm before the MLP of models of every build: biases, positions, scales, fused gates, parallel, no norm."""
SHARED, PARALLEL = {"cohere"}, {"cohere", "gpt_neox"}
FINAL = MappingProxyType(
    {"gpt2": "transformer.ln_f", "bloom": "transformer.ln_f", "gpt_neox": "gpt_neox.final_layer_norm"}
)


def rows(values):
    return values.detach().reshape(-1, values.shape[-1]).numpy()


def read_of(model, module, forward):
    """Run with a leaf as what one read sees of the stream, and give its gradient and what it held.

    ``module`` is where the read begins, and ``forward`` what it gives for the leaf.
    """
    leaves, stream = [], []

    def instead(_module, args, output):
        leaf = (stream[-1] if stream else args[0]).detach().requires_grad_(True)
        leaves.append(leaf)
        return forward(leaf)

    hook = module.register_forward_hook(instead)
    value = CASE.measure(model.run(CASE.tokens))
    hook.remove()
    (gradient,) = torch.autograd.grad(value, leaves)
    return rows(gradient), rows(leaves[0])


def mlp_read(model, name, layer):
    block, norm = layer_of(model, name, layer), READ_BY_NORM[name]
    if norm is None:
        return read_of(model, block.mlp, block.mlp.forward)
    norm = block.get_submodule(norm)
    if name not in SHARED:
        return read_of(model, norm, norm.forward)
    residual = []
    hook = norm.register_forward_pre_hook(lambda _, args: residual.append(args[0].detach()))
    model.run(CASE.tokens)
    hook.remove()
    leaf = residual[0].requires_grad_(True)
    hook = block.mlp.register_forward_hook(lambda *_: block.mlp.forward(norm.forward(leaf)))
    (gradient,) = torch.autograd.grad(CASE.measure(model.run(CASE.tokens)), [leaf])
    hook.remove()
    return rows(gradient), rows(leaf)


def unembedding_read(model, name):
    norm = model.module.get_submodule(FINAL.get(name, "model.norm"))
    return read_of(model, norm, norm.forward)


def written(model, name):
    """What stands before layer 0, and what every MLP and every bias of an attention adds, by the model's modules."""
    before, mlps, biases, hooks = [], [], [], []
    scale = getattr(model.module.config, "residual_multiplier", 1.0)
    for layer in range(N_LAYERS):
        block = layer_of(model, name, layer)
        behind = getattr(block, "post_feedforward_layernorm", block.mlp)
        hooks.append(behind.register_forward_hook(lambda _m, _a, output: mlps.append(scale * rows(output))))
        bias = getattr(block.get_submodule(f"{TINY[name].attention}.{TINY[name].output}"), "bias", None)
        biases.append(np.zeros(()) if bias is None else scale * bias.detach().numpy())
    hooks.append(
        layer_of(model, name, 0).register_forward_pre_hook(
            lambda _m, args, named: before.append(rows((*args, *named.values())[0])), with_kwargs=True
        )
    )
    with torch.no_grad():
        model.run(CASE.tokens)
    for hook in hooks:
        hook.remove()
    if name == "bloom":  # its MLP adds the residual itself
        mlps = [own - residual for own, residual in zip(mlps, bloom_residuals(model), strict=True)]
    return before[0], mlps, biases


def bloom_residuals(model):
    found, hooks = [], []
    for layer in range(N_LAYERS):
        norm = layer_of(model, "bloom", layer).post_attention_layernorm
        hooks.append(norm.register_forward_pre_hook(lambda _, args: found.append(rows(args[0]))))
    with torch.no_grad():
        model.run(CASE.tokens)
    for hook in hooks:
        hook.remove()
    return found


def effect(found, letters, writer_layer, reader_layer, reader_head=0):
    """Effect of all writers of one kind in a layer."""
    name = f"{letters[1]}/effect" if letters[0] == "O" and letters[1] in "QKV" else f"stream/{letters}/effect"
    return found[name][writer_layer, reader_layer, :, reader_head].sum()


@pytest.mark.parametrize("name", sorted(READ_BY_NORM))
def test_effects_beside_the_heads_are_those_of_autograd_and_add_up(name):
    model = running_tiny(name)
    found, _ = first_order(model, [CASE])
    before, mlps, biases = written(model, name)
    reads = {("M", layer): mlp_read(model, name, layer) for layer in range(N_LAYERS)}
    reads["U", 0] = unembedding_read(model, name)
    for (letter, layer), (g, x) in reads.items():
        size = np.abs(g * x).sum()
        assert size > 0
        # Attentions and MLPs that have written before the read.
        n_attentions = N_LAYERS if letter == "U" else layer + (name not in PARALLEL)
        n_mlps = N_LAYERS if letter == "U" else layer
        of_mlps = [effect(found, f"M{letter}", own, layer) for own in range(n_mlps)]
        expected = [np.sum(mlps[own] * g) for own in range(n_mlps)]
        np.testing.assert_allclose(of_mlps, expected, rtol=1e-5, atol=1e-7 * size)
        ends = sum(effect(found, f"{end}{letter}", 0, layer) for end in "EX" if f"stream/{end}M/effect" in found)
        assert ends == pytest.approx(np.sum(before * g), rel=1e-5, abs=1e-7 * size)
        of_heads = sum(effect(found, f"O{letter}", own, layer) for own in range(n_attentions))
        of_biases = sum(np.sum(biases[own] * g) for own in range(n_attentions))
        assert of_heads + of_biases + ends + sum(of_mlps) == pytest.approx(np.sum(g * x), abs=1e-6 * size)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "gpt_neox"])
def test_only_what_reads_later_has_an_effect(name):
    found, _ = first_order(running_tiny(name), [CASE])
    parallel = name in PARALLEL
    earlier_or_own = np.tril(np.ones((N_LAYERS, N_LAYERS), dtype=bool), k=-1 if not parallel else 0)
    layers = {letters: np.isfinite(found[f"stream/{letters}/effect"]).all(axis=(2, 3)) for letters in ("OM", "MM")}
    np.testing.assert_array_equal(layers["OM"], ~earlier_or_own)
    np.testing.assert_array_equal(layers["MM"], np.triu(np.ones((N_LAYERS, N_LAYERS), dtype=bool), k=1))
    for letters in ("EQ", "EK", "EV", "EM", "EU", "OU", "MU"):
        assert np.isfinite(found[f"stream/{letters}/effect"]).all()
    assert found["stream/MQ/effect"].shape == (2, 2, 1, 4)
    assert ("stream/XQ/effect" in found) == (name == "gpt2")


def test_positions_and_tokens_are_told_apart():
    model = running_tiny("gpt2")
    found, _ = first_order(model, [CASE])
    g, _ = unembedding_read(model, "gpt2")
    inner = model.module.transformer
    for letter, rows_of in (("E", inner.wte.weight[CASE.tokens]), ("X", inner.wpe.weight[: len(CASE.tokens)])):
        expected = np.sum(g * rows_of.detach().numpy())
        assert found[f"stream/{letter}U/effect"].item() == pytest.approx(expected, rel=1e-6)


def test_absolute_and_deviation_are_over_tokens_and_cases():
    model = running_tiny("llama")
    found, _ = first_order(model, CASES)
    own = [first_order(model, [case])[0]["stream/MU/effect"] for case in CASES]
    np.testing.assert_allclose(found["stream/MU/effect"], np.mean(own, axis=0), rtol=1e-9)
    np.testing.assert_allclose(found["stream/MU/window_effect_sd"], np.std(own, axis=0, ddof=1), rtol=1e-6)
    assert (found["stream/MU/absolute"] > np.abs(found["stream/MU/effect"])).all()


def test_the_toy_model_has_tokens_and_logits_beside_its_heads():
    torch.manual_seed(1)
    toy = ToyModel(ToyConfig())
    heads = []
    for layer, block in enumerate(toy.h):
        q, k, v = block.attn.c_attn.weight.detach().reshape(128, 3, 8, 16).permute(1, 2, 0, 3).numpy()
        o = block.attn.c_proj.weight.detach().reshape(8, 16, 128).permute(0, 2, 1).numpy()
        norm = Norm("layernorm", block.ln_1.weight.detach().numpy())
        heads.append(LayerHeads(layer, {"O": o, "Q": q, "K": k, "V": v}, norm))
    found, _ = first_order(running_toy(toy, heads, "toy"), [CASE])
    stream = {name.split("/")[1] for name in found if name.startswith("stream/")}
    assert stream == {"EQ", "EK", "EV", "EU", "OU"}


@pytest.mark.parametrize("name", SERVED)
def test_every_family_has_its_stream_or_only_its_ends(name):
    """Mixtures of experts have no MLP here; what the table of the stream does not serve has heads alone."""
    found, _ = first_order(running_tiny(name), [CASE])
    stream = {key.split("/")[1] for key in found if key.startswith("stream/")}
    if stream:
        assert {"EQ", "EK", "EV", "EU", "OU"} <= stream
        assert ("MM" in stream) == ("OM" in stream)
    else:
        assert running_tiny(name).stream is None
