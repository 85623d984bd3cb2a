"""What a layout says is what the model computes (RW 2.1, 2.2), for a tiny model of every architecture."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support.project import ROOT
from support.tiny_models import D_MODEL, MODELS, N_LAYERS, Recorded, build, record, tiny_config

from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.spaces import KINDS, Shape
from headspaces.weights.blocks import read_block
from headspaces.weights.cutting import cut_layer
from headspaces.weights.fetch import fetch_block
from headspaces.weights.layout import layer_tensors
from headspaces.weights.layouts import LAYOUTS, REFUSED, ROWS, find_layout, find_prefix
from headspaces.weights.source import read_headers

LAYER = 1
FUSED = [
    "bloom", "falcon-groups", "falcon-groups-one-norm", "falcon-heads", "gpt2", "gpt_bigcode-heads", "gpt_neox", "mpt",
    "persimmon", "phi3",
]  # fmt: skip
"""Models whose fused tensor could be cut in another order (with one key-value head two orders are the same)."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Give one model's checkpoint folder, headers and what its layer 1 computes, made once."""
    made = {}

    def make(name):
        if name not in made:
            model = build(name)
            folder = tmp_path_factory.mktemp(name)
            model.save_pretrained(folder)
            made[name] = (folder, read_headers(str(folder)), record(model, MODELS[name], LAYER))
        return made[name]

    return make


def read_layer(headers, folder) -> LayerHeads:
    fetch_block(headers, range(LAYER, LAYER + 1), folder / "block.safetensors")
    (layer,) = read_block(folder / "block.safetensors")
    return layer


def errors(heads: LayerHeads, recorded: Recorded) -> dict[str, float]:
    """Relative disagreement of the folded maps with the model, by kind."""
    x = recorded.residual - (recorded.residual.mean() if heads.read_norm.centred else 0)
    sigma = 1.0 if heads.read_norm.kind == "none" else np.sqrt(np.mean(x**2))
    found = {kind: np.einsum("hij,i->hj", fold(heads, kind), recorded.residual) / sigma for kind in "QKV"}
    expected = dict(recorded.reads)
    found["O"] = np.einsum("hij,hj->i", fold(heads, "O"), recorded.head_outputs)
    if heads.write_norm is not None:
        plain = np.einsum("hij,hj->i", heads.factors["O"], recorded.head_outputs)
        found["O"] = found["O"] / np.sqrt(np.mean(plain**2))
    expected["O"] = recorded.write
    return {
        kind: np.abs(found[kind] - expected[kind]).max() / np.abs(expected[kind]).max()
        if found[kind].shape == expected[kind].shape else np.inf
        for kind in KINDS
    }  # fmt: skip


# Norms compute in float32 in most of the models.
AGREES, DIFFERS = 2e-5, 0.05


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_folded_maps_are_what_the_model_computes(cases, name):
    folder, headers, recorded = cases(name)
    assert (headers.shape.n_layers, headers.shape.d_model, headers.kinds) == (N_LAYERS, D_MODEL, KINDS)
    assert {kind: len(recorded.reads[kind]) for kind in "QKV"} == {kind: headers.shape.n_heads(kind) for kind in "QKV"}
    found = errors(read_layer(headers, folder), recorded)
    assert max(found.values()) < AGREES, found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_heads_cut_across_instead_of_along_fail_the_same_check(cases, name):
    folder, headers, recorded = cases(name)
    right = read_layer(headers, folder)
    wrong = replace(right, factors={kind: cut_across(right.factors[kind]) for kind in KINDS})
    found = errors(wrong, recorded)
    assert min(found[kind] for kind in KINDS if headers.shape.n_heads(kind) > 1) > DIFFERS, found


def cut_across(factors: np.ndarray) -> np.ndarray:
    n_heads, d_model, d_head = factors.shape
    columns = factors.transpose(1, 0, 2).reshape(d_model, d_head, n_heads)
    return columns.transpose(2, 0, 1)


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_tensor_cut_in_another_order_fails_the_same_check(cases, name):
    folder, headers, recorded = cases(name)
    row = headers.row
    others = {"flat": "heads" if headers.shape.n_kv_heads == headers.shape.n_query_heads else "groups"}
    wrong = replace(headers, row=replace(row, split=others.get(row.split, "flat")))
    found = errors(read_layer(wrong, folder), recorded)
    assert min(found[kind] for kind in "QKV") > DIFFERS, found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_norm_matters_in_every_part(cases, name):
    folder, headers, recorded = cases(name)
    right = read_layer(headers, folder)
    wrong = []
    if right.read_norm.gain is not None:
        wrong.append(replace(right, read_norm=replace(right.read_norm, gain=None)))
        wrong.append(replace(right, read_norm=replace(right.read_norm, gain=right.read_norm.gain + 1)))
    if right.read_norm.kind != "none":
        other = "rmsnorm" if right.read_norm.centred else "layernorm"
        wrong.append(replace(right, read_norm=replace(right.read_norm, kind=other)))
    for heads in wrong:
        found = errors(heads, recorded)
        assert min(found[kind] for kind in "QKV") > 1e-3, found
    if right.write_norm is not None:
        assert errors(replace(right, write_norm=None), recorded)["O"] > DIFFERS
        assert errors(replace(right, write_norm=Norm("rmsnorm")), recorded)["O"] > DIFFERS


def test_every_row_is_proved():
    """A row, and a model type, that is not checked against transformers does not stay in the table unseen."""
    rows, types = set(), set()
    for name in MODELS:
        config = tiny_config(name).to_dict()
        row, decoder = find_layout(config, name)
        rows.add(row.name)
        types.add(decoder["model_type"])
    files = {row.name for row in ROWS if row.name == "nanogpt" or row.name.startswith("gguf-")}
    assert rows | files == set(LAYOUTS)
    # Before transformers 4.52 these two had no decoder's configuration inside: test_common_files.py has the older form.
    assert types | {"qwen2_vl", "qwen2_5_vl"} == {
        kind for row in ROWS for kind in row.model_types if row.name not in files
    }


LABELLED = {  # hidden 4, 2 heads of width 2: the rows of the fused weight that each head gets
    "gpt_neox": {"Q": [[0, 1], [6, 7]], "K": [[2, 3], [8, 9]], "V": [[4, 5], [10, 11]]},
    "bloom": {"Q": [[0, 1], [6, 7]], "K": [[2, 3], [8, 9]], "V": [[4, 5], [10, 11]]},
    "gpt2": {"Q": [[0, 1], [2, 3]], "K": [[4, 5], [6, 7]], "V": [[8, 9], [10, 11]]},
}


@pytest.mark.parametrize("name", LABELLED)
def test_labelled_rows_of_fused_tensors(name):
    layout, shape = LAYOUTS[name], Shape(1, 4, 2, 2, 2)
    fused = 10.0 * np.arange(12)[:, None] + np.arange(4)
    heads = cut(layout, shape, {layout.qkv: fused.T if layout.transposed else fused, layout.o: np.zeros((4, 4))})
    for kind, rows in LABELLED[name].items():
        for head, own in enumerate(rows):
            np.testing.assert_array_equal(heads.factors[kind][head].T, fused[own])


def cut(layout, shape, arrays, kinds="OQKV"):
    start = layout.layer.format(layer=0)
    norms = {name: np.ones(shape.d_model) for name in (layout.read_norm, layout.write_norm) if name}
    return cut_layer(layout, shape, "", 0, kinds, {start + name: array for name, array in {**norms, **arrays}.items()})


@pytest.mark.parametrize(("n_rows", "shape"), [(11, Shape(1, 4, 2, 2, 2)), (13, Shape(1, 4, 2, 2, 2))])
def test_a_fused_tensor_with_too_few_or_many_rows_is_refused(n_rows, shape):
    layout = LAYOUTS["gpt_neox"]
    with pytest.raises(InputError, match="6 heads of width 2 need 12 rows"):
        cut(layout, shape, {layout.qkv: np.zeros((n_rows, 4)), layout.o: np.zeros((4, 4))})


def test_grouped_queries_of_phi3_are_not_three_equal_parts():
    layout, shape = LAYOUTS["phi3"], Shape(1, 8, 4, 2, 2)
    fused = np.repeat(np.arange(16.0)[:, None], 8, axis=1)
    heads = cut(layout, shape, {layout.qkv: fused, layout.o: np.zeros((8, 8))})
    rows = {kind: heads.factors[kind][:, 0].tolist() for kind in "QKV"}
    assert rows == {"Q": [[0, 1], [2, 3], [4, 5], [6, 7]], "K": [[8, 9], [10, 11]], "V": [[12, 13], [14, 15]]}


def test_grouped_queries_have_one_key_head_per_group():
    layout, shape = LAYOUTS["llama"], Shape(1, 16, 8, 2, 2)
    arrays = {
        layout.o: np.zeros((16, 16)),
        layout.q: np.zeros((16, 16)),
        layout.k: np.zeros((4, 16)),
        layout.v: np.zeros((4, 16)),
    }
    heads = cut(layout, shape, arrays)
    assert {kind: len(factors) for kind, factors in heads.factors.items()} == {"O": 8, "Q": 8, "K": 2, "V": 2}


def test_prefixes_of_all_loaders():
    layout = LAYOUTS["llama"]
    for prefix in (
        "", "transformer.", "model.", "model.language_model.", "language_model.model.", "_orig_mod.model.",
        "model.text_model.", "language.model.", "llm.model.", "thinker.model.", "language_model.model.decoder.",
        "_fsdp_wrapped_module.model.", "_forward_module.model.", "module._fsdp_wrapped_module._orig_mod.model.",
    ):  # fmt: skip
        names = [*layer_tensors(layout, prefix, 0, "OQKV"), "vision_tower.encoder.layers.0.self_attn.q_proj.weight"]
        assert find_prefix(layout, names, "x") == prefix
    with pytest.raises(InputError, match="under the prefixes"):
        find_prefix(layout, [*layer_tensors(layout, "model.", 0, "O"), *layer_tensors(layout, "", 0, "O")], "x")
    with pytest.raises(InputError, match="no decoder's attention: such tensors stand only as 'vision_tower"):
        find_prefix(layout, ["vision_tower.encoder.layers.0.self_attn.q_proj.weight"], "x")
    with pytest.raises(InputError, match=r"missing tensor 'layers.0.self_attn.o_proj.weight'.*'lm_head.weight'"):
        find_prefix(layout, ["lm_head.weight"], "x")


def test_the_norm_is_the_one_before_the_attention():
    gemma2, qwen3, olmo2, olmo = (LAYOUTS[find_layout({"model_type": name}, name)[0].name] for name in (
        "gemma2", "qwen3", "olmo2", "olmo",
    ))  # fmt: skip
    assert "layers.0.input_layernorm.weight" in layer_tensors(gemma2, "", 0, "Q")
    assert "layers.0.post_attention_layernorm.weight" not in layer_tensors(gemma2, "", 0, "QKV")
    assert not [name for row in (qwen3, olmo2) for name in layer_tensors(row, "", 0, "OQKV") if "q_norm" in name]
    assert (olmo2.norm, olmo2.write_norm) == ("none", "post_attention_layernorm.weight")
    assert (olmo.norm, olmo.read_norm) == ("layernorm", "")
    assert "nothing is folded" in olmo2.note


@pytest.mark.parametrize(("model_type", "reason"), [
    ("deepseek_v3", "latent attention"), ("jamba", "state-space"), ("qwen3_next", "linear-attention"),
    ("mllama", "cross-attention"), ("t5", "an encoder and a decoder"), ("bert", "an encoder, not a decoder"),
    ("gemma3n", "share keys and values"), ("codegen", "interleaved across"), ("gguf:deepseek2", "latent attention"),
])  # fmt: skip
def test_what_is_not_served_is_refused_by_name(model_type, reason):
    with pytest.raises(InputError, match=f"x: {model_type} is not supported: .*{reason}"):
        find_layout({"model_type": model_type}, "x")


def test_nothing_is_both_served_and_refused():
    assert not set(REFUSED) & {kind for row in ROWS for kind in row.model_types}


@pytest.mark.parametrize(("config", "message"), [
    ({}, "names no model_type; known are .*llama"),
    ({"model_type": "brand-new"}, "unknown model_type 'brand-new'; known are .*docs/architectures.md"),
    ({"model_type": "brand-new", "auto_map": {"AutoModel": "m.M"}}, "code in its own repository"),
    ({"model_type": "gpt2", "add_cross_attention": True}, "cross-attention"),
    ({"model_type": "brand-new", "is_encoder_decoder": True}, "cross-attention"),
    ({"model_type": "opt", "layer_norm_elementwise_affine": False}, "no layout of opt fits"),
    ({"model_type": "llama", "num_kv_shared_layers": 2}, "layers share keys and values"),
    ({"model_type": "hunyuan_v1_dense", "use_cla": True}, r"layers share keys and values \(use_cla\)"),
    ({"model_type": "gguf:orion"}, "the GGUF architecture 'orion' is not served; served are apertus, arcee, "),
])  # fmt: skip
def test_configurations_that_cannot_be_read(config, message):
    with pytest.raises(InputError, match=message):
        find_layout(config, "x")


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_a_multimodal_configuration_is_read_by_its_decoder(key):
    text = {"model_type": "gemma3_text", "num_attention_heads": 4}
    outer = {"model_type": "brand-new", "auto_map": {}, key: text, "vision_config": {"model_type": "llama"}}
    layout, config = find_layout(outer, "x")
    assert (layout.name, config) == ("gemma2", text)
    layout, config = find_layout({"model_type": "omni", "thinker_config": outer}, "x")
    assert (layout.name, config) == ("gemma2", text)
    with pytest.raises(InputError, match=f"x \\({key}\\): deepseek_v3 is not supported"):
        find_layout({"model_type": "brand-new", key: {"model_type": "deepseek_v3"}}, "x")


def test_packed_experts_leave_the_attention_readable():
    config = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    assert find_layout(config, "x")[0].name == "llama"


def test_the_documentation_lists_every_row_and_model_type():
    text = (ROOT / "docs" / "architectures.md").read_text()
    listed = {
        name.strip().strip("`"): types for name, types in re.findall(r"^\|([^|]+)\|([^|]+)\|", text, flags=re.MULTILINE)
    }
    assert [row.name for row in ROWS if row.name not in listed] == []
    for row in ROWS:
        named = set(re.findall(r"[\w:-]+", listed[row.name])) | ({"falcon"} if row.name.startswith("falcon") else set())
        assert set(row.model_types) <= named, row.name
