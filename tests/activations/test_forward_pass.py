"""What is kept of a model's run against the model's own modules, for tiny random models of every architecture."""

import json

import numpy as np
import pytest
import torch
from support.project import ROOT
from support.tiny_models import D_MODEL, N_LAYERS, TINY, build
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headspaces.activations.forward_pass import Windows, cut_windows, load_model, run_facts, run_model, run_numbers
from headspaces.activations.response import responses
from headspaces.activations.texts import Text
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, fold
from headspaces.store import read_arrays
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers

WINDOWS = Windows(np.random.default_rng(3).integers(3, 40, size=(2, 12)), None)
POST_NORM = "opt-post-norm"
REAL = ROOT / "results" / "activations" / "smollm2-135m-instruct.h5"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Give one tiny model in float64 and its heads as the pipeline reads them, made once."""
    made = {}

    def make(name) -> tuple[torch.nn.Module, list[LayerHeads]]:
        if name not in made:
            model = build(name)
            folder = tmp_path_factory.mktemp(name)
            model.save_pretrained(folder)
            made[name] = (model, read_heads(folder))
        return made[name]

    return make


def read_heads(folder) -> list[LayerHeads]:
    fetch_block(read_headers(str(folder)), range(N_LAYERS), folder / "block.safetensors")
    return read_block(folder / "block.safetensors")


def listen(module):
    """Collect what a module gets first and gives."""
    seen = []

    def keep(_, args, output):
        seen.append(
            (args[0].detach() if args else None, output[0].detach() if isinstance(output, tuple) else output.detach())
        )

    return module.register_forward_hook(keep), seen


def layer_of(model, name, layer):
    return model.get_submodule(f"{TINY[name].layers}.{layer}")


def flat(seen, which):
    return torch.cat([pair[which].reshape(-1, pair[which].shape[-1]) for pair in seen]).numpy()


@pytest.mark.parametrize("name", sorted(set(TINY) - {POST_NORM}))
def test_recombined_heads_are_what_the_attention_writes(cases, name):
    model, heads = cases(name)
    tiny, layer = TINY[name], 1
    block = layer_of(model, name, layer)
    written_by = block.get_submodule(tiny.write_norm or f"{tiny.attention}.{tiny.output}")
    hook, seen = listen(written_by)
    run = run_model(model, WINDOWS, heads, name)
    hook.remove()
    written = flat(seen, 1)
    bias = getattr(written_by, "bias", None)
    if bias is not None:
        written = written - bias.detach().numpy()
    if "granite" in name:
        written = written * 0.3  # residual_multiplier
    recombined = np.einsum("thj,hij->ti", run.layers[layer].head_outputs, fold(heads[layer], "O"))
    # Norms compute in float32 in most of the models.
    np.testing.assert_allclose(
        recombined, written, rtol=0, atol=(1e-5 if tiny.write_norm else 1e-10) * np.abs(written).max()
    )
    assert run.deviation < 1e-12


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "qwen2", "bloom"])
def test_the_residual_is_what_enters_the_layer(cases, name):
    model, heads = cases(name)
    run = run_model(model, WINDOWS, heads, name)
    with torch.no_grad():
        states = model(torch.from_numpy(WINDOWS.tokens), output_hidden_states=True).hidden_states
    np.testing.assert_allclose(run.layers[1].residual, states[1].reshape(-1, D_MODEL).numpy(), rtol=1e-12, atol=1e-10)


def fused(modules, x, shape, order):
    return torch.unbind(modules(x).reshape(len(x), *shape), dim=order)


READS = {
    "gpt2": lambda block, x: fused(block.attn.c_attn, x, (3, 4, 12), 1),
    "gpt_neox": lambda block, x: fused(block.attention.query_key_value, x, (4, 3, 12), 2),
    "bloom": lambda block, x: fused(block.self_attention.query_key_value, x, (4, 3, 12), 2),
}
NORMS = {"gpt2": "ln_1"}
RESPONDING = [
    "gpt2",
    "gpt_neox",
    "bloom",
    "llama",
    "qwen2",
    "gemma2",
    "cohere",
    "olmo",
    "olmo2",
    "granite",
    "qwen3",
    "nemotron",
]


def reads(block, name, x):
    """Queries, keys and values that a layer's own norm and projections make of residuals: (token, head, d_head)."""
    norm = getattr(block, NORMS.get(name, "input_layernorm"), None)
    x = x if norm is None else norm(x)
    if name in READS:
        return READS[name](block, x)
    attention = block.self_attn
    return [getattr(attention, f"{letter}_proj")(x).reshape(len(x), -1, attention.head_dim) for letter in "qkv"]


@pytest.mark.parametrize("name", RESPONDING)
def test_total_is_the_jacobian_of_the_models_own_norm_and_projections(cases, name):
    model, heads = cases(name)
    tiny, writer, reader = TINY[name], layer_of(model, name, 0), layer_of(model, name, 1)
    projection = writer.get_submodule(f"{tiny.attention}.{tiny.output}")
    (hook, seen), (other_hook, written) = (
        listen(projection),
        listen(writer.get_submodule(tiny.write_norm or tiny.attention)),
    )
    run = run_model(model, WINDOWS, heads, name)
    hook.remove()
    other_hook.remove()
    z = torch.from_numpy(flat(seen, 0))
    x = torch.from_numpy(run.layers[1].residual)
    if name == "olmo2":  # no norm before the attention, so no residual is kept: any will do
        x = torch.randn(len(z), D_MODEL, dtype=torch.float64)
    # A norm after the attention scales every entry by what it made of the sum of all heads.
    scale = torch.from_numpy(flat(written, 1) / flat(seen, 1)) if tiny.write_norm else 0.3 if name == "granite" else 1.0
    found = responses(heads, run.layers)
    n_heads = len(heads[0].factors["O"])
    with torch.no_grad():
        for head in range(n_heads):
            alone = torch.zeros_like(z).reshape(len(z), n_heads, -1)
            alone[:, head] = z.reshape(alone.shape)[:, head]
            u = (projection(alone.reshape(z.shape)) - projection(torch.zeros_like(z))) * scale
            _, response = torch.func.jvp(lambda x: tuple(reads(reader, name, x)), (x,), (u,))
            for kind, change in zip("QKV", response, strict=True):
                expected = change.square().sum(dim=2).mean(dim=0).numpy()
                np.testing.assert_allclose(found[f"{kind}/total"][0, 1, head], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_total_is_a_finite_difference_of_the_models_own_modules(cases, name):
    model, heads = cases(name)
    run = run_model(model, WINDOWS, heads, name)
    found, step = responses(heads, run.layers), 1e-4
    x = torch.from_numpy(run.layers[1].residual)
    u = torch.from_numpy(run.layers[0].head_outputs[:, 2] @ heads[0].factors["O"][2].T)
    with torch.no_grad():
        ahead, behind = (reads(layer_of(model, name, 1), name, x + sign * step * u) for sign in (1, -1))
    for kind, plus, minus in zip("QKV", ahead, behind, strict=True):
        expected = ((plus - minus) / (2 * step)).square().sum(dim=2).mean(dim=0).numpy()
        np.testing.assert_allclose(found[f"{kind}/total"][0, 1, 2], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_loss_is_the_models_own(cases, name):
    model, heads = cases(name)
    tokens = torch.from_numpy(WINDOWS.tokens)
    with torch.no_grad():
        expected = model(tokens, labels=tokens).loss.item()
    assert run_model(model, WINDOWS, heads, name).loss == pytest.approx(expected, rel=1e-6)


def test_bos_is_context_and_not_counted(cases):
    model, heads = cases("llama")
    with_bos = run_model(model, Windows(WINDOWS.tokens, 1), heads, "llama")
    by_hand = Windows(np.insert(WINDOWS.tokens, 0, 1, axis=1), None)
    longer = run_model(model, by_hand, heads, "llama")
    for kept, whole in zip(with_bos.layers, longer.layers, strict=True):
        for field in ("head_outputs", "residual"):
            windows = getattr(whole, field).reshape(2, 13, -1)[:, 1:]
            np.testing.assert_array_equal(getattr(kept, field).reshape(windows.shape), windows)
    # All text tokens are predicted, the first one from BOS.
    assert with_bos.loss == pytest.approx(longer.loss, rel=1e-12)


def test_windows_do_not_see_each_other(cases):
    model, heads = cases("gpt2")
    both = run_model(model, WINDOWS, heads, "gpt2")
    second = run_model(model, Windows(WINDOWS.tokens[1:], None), heads, "gpt2")
    np.testing.assert_array_equal(both.layers[1].head_outputs[12:], second.layers[1].head_outputs)


def test_other_weights_than_those_that_run_are_refused(cases):
    model, heads = cases("llama")
    swapped = [LayerHeads(0, heads[1].factors, heads[0].read_norm), heads[1]]
    with pytest.raises(
        InputError, match=r"tiny: layer 0: the heads' writes differ from the model's by .* another checkpoint"
    ):
        run_model(model, WINDOWS, swapped, "tiny")
    swapped = [heads[0], LayerHeads(1, heads[1].factors, heads[0].read_norm)]
    with pytest.raises(InputError, match=r"tiny: layer 1: its norm differs from the folded one"):
        run_model(model, WINDOWS, swapped, "tiny")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_activations_that_are_not_finite_are_refused(cases, value):
    model, heads = build("llama"), cases("llama")[1]
    with torch.no_grad():
        model.model.layers[1].self_attn.v_proj.weight[0, 0] = value
    with pytest.raises(
        InputError, match=r"tiny: layer 1: the outputs of head 0 are not finite \(token 0 of a window\)"
    ):
        run_model(model, WINDOWS, heads, "tiny")


def test_a_projection_that_is_not_called_as_a_module_is_refused(cases):
    model, heads = build("bloom"), cases("bloom")[1]
    for layer in model.transformer.h:
        # BLOOM can apply slices of the projection one after the other instead of calling it.
        layer.self_attention.pretraining_tp, layer.self_attention.slow_but_exact = 2, True
    with pytest.raises(InputError, match="tiny: layer 0: its output projection was never called as a module"):
        run_model(model, WINDOWS, heads, "tiny")


def test_windows_longer_than_the_context_are_refused(cases):
    model, heads = cases("gpt2")
    long = Windows(np.full((1, 17), 5), None)
    with pytest.raises(
        InputError, match="tiny: windows of 17 tokens, but the model's context has 16; take shorter ones"
    ):
        run_model(model, long, heads, "tiny")


def test_a_stream_that_is_itself_normalised_is_refused(cases):
    model, heads = cases(POST_NORM)
    with pytest.raises(InputError, match="normalised after every sublayer"):
        run_model(model, WINDOWS, heads, "tiny")


WORDS = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(37))]
TEXT = Text(" ".join(WORDS[3:]), "words.txt", "", 1, "0" * 64)


def tokenizer(bos=False):
    unknown, begin, end = WORDS[:3]
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token=unknown))
    plain.pre_tokenizer = WhitespaceSplit()
    if bos:
        plain.post_processor = TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, 1)])
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token=begin, eos_token=end, unk_token=unknown)


def test_windows_are_consecutive_and_nothing_is_added():
    windows = cut_windows(tokenizer(), TEXT, 3, 10)
    np.testing.assert_array_equal(windows.tokens, np.arange(3, 33).reshape(3, 10))
    assert windows.bos is None


def test_a_tokenizer_that_begins_texts_with_bos_begins_every_window_with_one():
    windows = cut_windows(tokenizer(bos=True), TEXT, 3, 10)
    np.testing.assert_array_equal(windows.tokens, np.arange(3, 33).reshape(3, 10))
    assert windows.bos == 1


def test_a_text_shorter_than_the_windows_is_refused():
    with pytest.raises(
        InputError, match=r"text 'words.txt': 37 tokens, but 4 windows of 10 need 40; take a longer text"
    ):
        cut_windows(tokenizer(), TEXT, 4, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Llama with a tokenizer, saved in bfloat16."""
    place = tmp_path_factory.mktemp("saved") / "tiny"
    config = LlamaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=len(WORDS),
        intermediate_size=8, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


def test_models_run_in_float32_whatever_they_are_stored_in(folder):
    model, words = load_model(str(folder), "tiny")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert not model.training
    windows = cut_windows(words, TEXT, 2, 8)
    run = run_model(model, windows, read_heads(folder), "tiny")
    assert run.layers[0].head_outputs.dtype == np.float32
    assert run.deviation < 1e-5
    facts = run_facts(model, TEXT, windows, run)
    assert {key: facts[key] for key in ("dtype", "n_tokens", "bos", "text_sha256", "attention")} == {
        "dtype": "float32", "n_tokens": 16, "bos": "none", "text_sha256": "0" * 64, "attention": "sdpa",
    }  # fmt: skip
    assert facts["transformers_version"].startswith("5.")
    assert run_numbers(windows, run)["run/loss_nats_per_token"] == run.loss == facts["loss_nats_per_token"]


def copy(folder, to, without=()):
    to.mkdir()
    for file in folder.iterdir():
        if file.name not in without:
            (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_missing_tokenizer_is_named(folder, tmp_path):
    place = copy(folder, tmp_path / "bare", without=("tokenizer.json", "tokenizer_config.json"))
    with pytest.raises(InputError, match="tiny: transformers cannot load the tokenizer"):
        load_model(str(place), "tiny")


def test_missing_tensors_are_not_made_up(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    place = copy(folder, tmp_path / "attention")
    tensors = load_file(place / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if ".mlp." not in name}
    save_file(kept, place / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        InputError, match=r"tiny: the checkpoint lacks 6 tensors .* 'model.layers.0.mlp.down_proj.weight'"
    ):
        load_model(str(place), "tiny")


def test_a_checkpoints_own_code_is_never_run(folder, tmp_path):
    place, canary = copy(folder, tmp_path / "remote"), tmp_path / "canary"
    config = json.loads((place / "config.json").read_text()) | {
        "model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"},
    }  # fmt: skip
    (place / "config.json").write_text(json.dumps(config))
    (place / "own.py").write_text(f"open({str(canary)!r}, 'w').close()\n")
    with pytest.raises(
        InputError, match=r"tiny: the model of .* needs code of the checkpoint's own \(trust_remote_code\)"
    ):
        load_model(str(place), "tiny")
    assert not canary.exists()


def test_a_place_without_a_model_is_named(tmp_path):
    with pytest.raises(InputError, match="tiny: transformers cannot load the model"):
        load_model(str(tmp_path), "tiny")


def test_a_repository_that_cannot_be_reached_is_named():
    with pytest.raises(InputError, match=r"tiny: transformers cannot load the model of hub:owner/name@abc: "):
        load_model("hub:owner/name@abc", "tiny")


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="the demo has not been run")
def test_the_demo_has_the_numbers_that_are_known():
    from headspaces.report.results import read_results
    from headspaces.report.tables.registry import TABLES
    from headspaces.store import read_attributes

    facts = read_attributes(REAL, "activations")
    if facts["tokens_sha256"] != "83dc9e5836f25867f7a5983b37a0dac6dfe593f620b68075bdd6d2572b0b14e9":
        pytest.skip("this Python's topics are other ones")
    assert facts["loss_nats_per_token"] == pytest.approx(2.902, abs=5e-4)
    assert facts["recombination_deviation"] < 1e-5
    assert np.isfinite(read_arrays(REAL, "activations", ["O/second_moment"])["O/second_moment"]).all()
    files = {"overlaps": REAL.parents[1] / "overlaps" / REAL.name, "activations": REAL}
    frame = TABLES["activations"]([read_results("smollm2-135m-instruct", files)]).frame.set_index("spaces")
    expected = {
        "energy_spearman": [0.745, 0.777, 0.846],
        "energy_pearson": [0.753, 0.745, 0.840],
        "energy_over_rho_median": [1.069, 1.073, 0.943],
        "linear_over_total_median": [1.020, 1.023, 1.001],
    }
    for column, values in expected.items():
        np.testing.assert_allclose(frame.loc[["OQ", "OK", "OV"], column], values, atol=6e-4)
