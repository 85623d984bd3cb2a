"""Weights that are silently others than the user means: each is served rightly and said, or refused by name."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.checkpoints import LLAMA, llama_tensors, safetensors, shards, write_folder
from support.project import ROOT, TESTS
from support.tiny_models import TINY, tiny_config
from transformers import AutoModelForCausalLM

from headspaces.errors import InputError
from headspaces.geometry.heads import fold
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.guards import ADAPTERS
from headspaces.weights.headers import Checkpoint, FileHeader, TensorHeader
from headspaces.weights.headers_file import load_headers
from headspaces.weights.interpretation import interpret
from headspaces.weights.source import read_headers

START = "model.layers.0.self_attn."


def understood(config, shapes, kinds="OQKV", dtypes=None):
    """Interpret a checkpoint of the given names and shapes."""
    tensors = {
        name: TensorHeader((dtypes or {}).get(name, "F32"), tuple(shape), "m", 0, 4 * int(np.prod(shape)))
        for name, shape in shapes.items()
    }
    return interpret(Checkpoint("x", "r", config, tensors, {"m": FileHeader("m", 1, "")}), kinds)


def llama_shapes():
    return {name: array.shape for name, array in llama_tensors(np.random.default_rng(0)).items()}


def folder_with(path, tensors, config=LLAMA, **files):
    return write_folder(path, config, {"model.safetensors": safetensors(tensors)} | files)


def heads_of(folder, n_layers=3):
    fetch_block(read_headers(str(folder)), range(n_layers), folder / "block")
    return read_block(folder / "block")


# Adapters


@pytest.mark.parametrize(("part", "family"), [
    ("lora_A.weight", "LoRA"), ("lora_A.default.weight", "LoRA"), ("lora_embedding_B", "LoRA"), ("lora_a", "LoRA"),
    ("lora_magnitude_vector.default.weight", "DoRA"), ("lora_E.default", "AdaLoRA"), ("ia3_l.default", "IA3"),
    ("hada_w1_a.default", "LoHa"), ("lokr_w1.default", "LoKr"), ("lokr_w2_a", "LoKr"), ("oft_r.default", "OFT"),
    ("oft_R.default.weight", "OFT"), ("oft_blocks.default", "OFT"), ("boft_R.default", "BOFT"),
    ("vera_lambda_b.default", "VeRA"), ("vblora_logits_A.default", "VB-LoRA"), ("hra_u.default", "HRA"),
    ("fourierft_spectrum.default", "FourierFT"), ("randlora_lambda.default", "RandLoRA"),
    ("miss_block.default", "Bone or MiSS"),
    ("base_layer.weight", "PEFT"), ("modules_to_save.default.weight", "PEFT"), ("original_module.weight", "PEFT"),
])  # fmt: skip
def test_an_adapter_that_is_not_merged_is_refused_by_family_and_tensor(part, family):
    name = f"{START}q_proj.{part}"
    with pytest.raises(InputError, match=rf"x: tensor {name!r} belongs to an adapter \({family}\).*merge_and_unload"):
        understood(LLAMA, {**llama_shapes(), name: (4, 24)})


def test_dora_is_named_though_it_has_the_tensors_of_lora():
    names = {f"{START}q_proj.{part}.default.weight": (4, 24) for part in ("lora_A", "lora_B", "lora_magnitude_vector")}
    with pytest.raises(InputError, match=r"'model.layers.0.self_attn.q_proj.lora_magnitude_vector\S*' .*\(DoRA\)"):
        understood(LLAMA, {**llama_shapes(), **names})


def test_only_the_base_layer_of_two_projections_is_no_missing_kind():
    shapes = {re.sub(r"([qv]_proj)\.weight", r"\1.base_layer.weight", name): s for name, s in llama_shapes().items()}
    with pytest.raises(InputError, match=r"q_proj.base_layer.weight' belongs to an adapter"):
        understood(LLAMA, shapes)


def test_the_prefix_of_peft_is_no_missing_tensor():
    shapes = {f"base_model.model.{name}": shape for name, shape in llama_shapes().items()}
    with pytest.raises(InputError, match=r"'base_model.model.model\S*' belongs to an adapter \(PEFT\)"):
        understood(LLAMA, shapes)


def test_no_served_model_has_a_tensor_of_an_adapter():
    parts = {part for shapes in map(_tiny_shapes, TINY) for name in shapes for part in name.split(".")}
    starts = tuple(start for family in ADAPTERS.values() for start in family)
    assert not [part for part in parts if part.startswith(starts)]


def test_an_adapter_beside_a_whole_model_is_said(rng, tmp_path):
    tensors = llama_tensors(rng)
    folder = folder_with(tmp_path, tensors)
    before = read_headers(str(folder))
    (folder / "adapter_model.safetensors").write_bytes(safetensors({"lora_A": np.ones((2, 2), "float32")}))
    headers = read_headers(str(folder))
    (note,) = headers.notes
    assert note.startswith("the adapter adapter_model.safetensors lies beside the weights and is no part of them")
    assert (before.notes, before.revision) == ((), headers.revision)


# Scales


@pytest.mark.parametrize(("scale", "shape"), [
    ("weight_scale_inv", (1, 1)), ("scales", (1,)), ("scale", ()), ("weight_scale_2", ()), ("scale_weight", ()),
])  # fmt: skip
def test_a_scale_beside_plain_weights_is_never_dropped(scale, shape):
    name = f"{START}q_proj.{scale}"
    shapes = {**llama_shapes(), name: shape}
    message = rf"x: tensor {name!r} scales '{START}q_proj.weight' \(BF16\), and whether it is applied already"
    with pytest.raises(InputError, match=message):
        understood(LLAMA, shapes, dtypes={f"{START}q_proj.weight": "BF16"})


def test_scales_of_activations_and_caches_are_harmless():
    names = ("q_proj.input_scale", "k_proj.output_scale", "k_proj.k_scale", "attn.v_scale", "q_proj.input_global_scale")
    assert understood(LLAMA, {**llama_shapes(), **{START + name: () for name in names}}).notes == ()


# Prediction layers


def _glm(n_layers=3, **config):
    shapes = {
        f"model.layers.{layer}.{name}.weight": shape
        for layer in range(n_layers)
        for name, shape in {
            "self_attn.q_proj": (32, 24), "self_attn.k_proj": (16, 24), "self_attn.v_proj": (16, 24),
            "self_attn.o_proj": (24, 32), "input_layernorm": (24,),
        }.items()
    }  # fmt: skip
    return {"model_type": "glm4_moe", "num_attention_heads": 4, "num_key_value_heads": 2, **config}, shapes


MARKS = ("eh_proj", "enorm", "hnorm", "shared_head.head", "shared_head.norm", "embed_tokens")


@pytest.mark.parametrize("config", [
    {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}, {"num_hidden_layers": 2}, {},
    {"num_hidden_layers": 3, "num_nextn_predict_layers": 1},  # GGUF counts it among its blocks
])  # fmt: skip
@pytest.mark.parametrize("mark", MARKS)
def test_a_layer_that_predicts_later_tokens_is_left_out_and_said(config, mark):
    config, shapes = _glm(**config)
    headers = understood(config, {**shapes, f"model.layers.2.{mark}.weight": (24, 48)})
    assert headers.shape.n_layers == 2
    assert not [name for name in headers.tensors if ".2." in name]
    assert headers.notes == (
        "layer 2 predicts later tokens (num_nextn_predict_layers) and is no layer of the stack: left out",
    )


def test_the_configuration_alone_tells_a_prediction_layer():
    headers = understood(*_glm(num_hidden_layers=2, num_nextn_predict_layers=1))
    assert (headers.shape.n_layers, len(headers.notes)) == (2, 1)
    assert understood(*_glm(num_hidden_layers=3, num_nextn_predict_layers=0)).notes == ()


def test_without_marks_and_without_a_word_an_extra_layer_is_refused():
    with pytest.raises(InputError, match="the configuration has 2 layers, the tensors 3"):
        understood(*_glm(num_hidden_layers=2))


# Layers that vanish


@pytest.mark.parametrize("wrapper", ["_checkpoint_wrapped_module.", "_fsdp_wrapped_module._checkpoint_wrapped_module."])
def test_one_wrapped_layer_does_not_vanish(wrapper):
    config = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    shapes = {name.replace("layers.1.", f"layers.1.{wrapper}"): shape for name, shape in llama_shapes().items()}
    shapes = {name: shape for name, shape in shapes.items() if "layers.2." not in name}
    with pytest.raises(InputError, match=rf"layer 1 is stored as 'model.layers.1.{wrapper}self_attn\S*', a training"):
        understood(config, shapes)


@pytest.mark.parametrize(("inside", "wrapped"), [
    ("", "_checkpoint_wrapped_module."), ("", "_orig_mod."), ("", "_fsdp_wrapped_module._orig_mod."), ("", "module."),
    ("self_attn.", "self_attn._fsdp_wrapped_module."),
])  # fmt: skip
def test_wrappers_inside_all_layers_change_no_number(inside, wrapped, rng, tmp_path):
    plain = llama_tensors(rng)
    renamed = {re.sub(rf"(layers\.\d+\.){inside}", rf"\1{wrapped}", name): array for name, array in plain.items()}
    if inside:
        renamed |= {name: array for name, array in plain.items() if "self_attn" not in name}
    for one, other in zip(
        heads_of(folder_with(tmp_path / "a", plain)), heads_of(folder_with(tmp_path / "b", renamed)), strict=True
    ):
        for kind in "OQKV":
            np.testing.assert_array_equal(fold(one, kind), fold(other, kind))


def test_a_layer_without_tensors_is_named():
    config = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    with pytest.raises(InputError, match="layer 1 of 3 has no tensors"):
        understood(config, {name: shape for name, shape in llama_shapes().items() if "layers.1." not in name})


def test_a_layer_without_attention_is_named():
    with pytest.raises(InputError, match=r"layer 7 has no attention \(tensor 'model.layers.7.mlp.up_proj.weight'\)"):
        understood(LLAMA, {**llama_shapes(), "model.layers.7.mlp.up_proj.weight": (96, 24)})


# Widths that the file contradicts


def _gemma3(**config):
    """Gemma 3 4B's sizes."""
    shapes = {
        f"model.layers.0.{name}.weight": shape
        for name, shape in {
            "self_attn.q_proj": (2048, 2560), "self_attn.k_proj": (1024, 2560), "self_attn.v_proj": (1024, 2560),
            "self_attn.o_proj": (2560, 2048), "self_attn.q_norm": (256,), "self_attn.k_norm": (256,),
            "input_layernorm": (2560,), "post_attention_layernorm": (2560,),
        }.items()
    }  # fmt: skip
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 1, **config}
    return {"model_type": "gemma3", "text_config": text}, shapes


def test_gemma3s_head_counts_are_read_off_its_norms():
    headers = understood(*_gemma3())
    assert (headers.shape.n_query_heads, headers.shape.n_kv_heads, headers.shape.d_head) == (8, 4, 256)
    assert headers.notes == ("the configuration gives no number of heads: 8 by the sizes of the tensors",)


def test_a_count_that_the_norms_contradict_is_refused():
    message = (
        "16 heads of width 128 by the configuration, but tensor 'model.layers.0.self_attn.q_norm.weight' has 256 "
        "entries, one for every dimension of a head: 8 heads of width 256; correct num_attention_heads"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        understood(*_gemma3(num_attention_heads=16))
    assert understood(*_gemma3(num_attention_heads=8)).shape.d_head == 256


def test_without_counts_and_norms_the_place_to_add_them_is_said():
    config, shapes = _gemma3()
    with pytest.raises(InputError, match=r"gives no number of heads .*add it to config.json.*text_config"):
        understood(config, {name: shape for name, shape in shapes.items() if not name.endswith("_norm.weight")})


@pytest.mark.parametrize(("tensor", "shape", "says"), [
    ("rotary_emb.inv_freq", (8,), "turns 16 dimensions, heads of 16: 2 heads of width 16"),
    ("sinks", (8,), "has 8 entries, one for every head: 8 heads of width 4"),
    ("q_norm.weight", (16,), "has 16 entries.*2 heads of width 16"),
    ("q_norm.weight", (8, 4), "has 4 entries.*8 heads of width 4"),
    ("q_layernorm.norms.0.weight", (16,), "has 16 entries.*2 heads of width 16"),
])  # fmt: skip
def test_every_mark_contradicts_a_wrong_count(tensor, shape, says):
    with pytest.raises(InputError, match=rf"4 heads of width 8 by the configuration, .*{says}"):
        understood(LLAMA, {**llama_shapes(), START + tensor: shape})


@pytest.mark.parametrize(("tensor", "shape"), [
    ("rotary_emb.inv_freq", (4,)), ("sinks", (4,)), ("q_norm.weight", (8,)), ("q_norm.weight", (32,)),
    ("k_norm.weight", (16,)), ("q_norm.weight", (4, 8)), ("q_layernorm.norms.0.weight", (8,)),
])  # fmt: skip
def test_marks_that_agree_change_nothing(tensor, shape):
    assert understood(LLAMA, {**llama_shapes(), START + tensor: shape}).shape.d_head == 8


# Pruned heads


GPT2 = {"model_type": "gpt2", "n_layer": 1, "n_head": 4, "n_embd": 16}
PRUNED = {
    "gpt2": (GPT2, {"h.0.attn.c_attn.weight": (16, 24), "h.0.attn.c_proj.weight": (8, 16), "h.0.ln_1.weight": (16,)}),
    "gpt_neox": (
        {"model_type": "gpt_neox", "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 16},
        {"gpt_neox.layers.0.attention.query_key_value.weight": (24, 16),
         "gpt_neox.layers.0.attention.dense.weight": (16, 8), "gpt_neox.layers.0.input_layernorm.weight": (16,)},
    ),
    "bloom": (
        {"model_type": "bloom", "n_layer": 1, "n_head": 4, "hidden_size": 16},
        {"h.0.self_attention.query_key_value.weight": (24, 16), "h.0.self_attention.dense.weight": (16, 8),
         "h.0.input_layernorm.weight": (16,)},
    ),
    "opt": (
        {"model_type": "opt", "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 16},
        {f"decoder.layers.0.self_attn.{name}.weight": shape for name, shape in {
            "q_proj": (8, 16), "k_proj": (8, 16), "v_proj": (8, 16), "out_proj": (16, 8)}.items()}
        | {"decoder.layers.0.self_attn_layer_norm.weight": (16,)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRUNED)
def test_pruned_heads_are_no_narrow_heads(name):
    config, shapes = PRUNED[name]
    with pytest.raises(
        InputError, match=rf"4 heads .* has 8 dimensions for them where {name} has 16: heads are pruned"
    ):
        understood(config, shapes)


def test_pruned_heads_of_the_configuration_are_named():
    config, shapes = PRUNED["gpt2"]
    with pytest.raises(InputError, match="pruned_heads names heads of the layers 0: "):
        understood({**config, "pruned_heads": {"0": [0, 1], "1": []}}, shapes)
    whole = {"h.0.attn.c_attn.weight": (16, 48), "h.0.attn.c_proj.weight": (16, 16), "h.0.ln_1.weight": (16,)}
    assert understood({**config, "pruned_heads": {}}, whole).shape.d_head == 4


# Two weight files


def two_files(rng, tmp_path, change):
    tensors = llama_tensors(rng)
    return tensors, write_folder(
        tmp_path, LLAMA, shards(tensors, 2) | {"model.safetensors": safetensors(change(tensors))}
    )


def test_a_stray_file_beside_an_index_is_not_analysed_and_said(rng, tmp_path):
    first = "model.layers.0."
    tensors, folder = two_files(
        rng, tmp_path, lambda all_: {name: array * 2 for name, array in all_.items() if name.startswith(first)}
    )
    headers = read_headers(str(folder))
    assert headers.notes == ("model.safetensors lies beside the weights and is not read: the files of the index are",)
    found = heads_of(folder)[0].factors["Q"].transpose(0, 2, 1).reshape(32, 24)
    np.testing.assert_array_equal(found, tensors[f"{first}self_attn.q_proj.weight"])


def test_two_whole_and_different_checkpoints_are_refused(rng, tmp_path):
    changed = f"{START}q_proj.weight"
    _, folder = two_files(rng, tmp_path, lambda all_: {**all_, changed: all_[changed] * 2})
    with pytest.raises(InputError, match=rf"holds all tensors that model.safetensors.index.json names.*{changed!r}"):
        read_headers(str(folder))


def test_the_same_checkpoint_twice_is_served(rng, tmp_path):
    _, folder = two_files(rng, tmp_path, dict)
    assert len(read_headers(str(folder)).notes) == 1


def test_an_index_without_its_files_gives_way_to_the_whole_file(rng, tmp_path):
    tensors, folder = two_files(rng, tmp_path, lambda all_: {name: array * 2 for name, array in all_.items()})
    (folder / "model-00001-of-00002.safetensors").unlink()
    found = heads_of(folder)[0].factors["Q"].transpose(0, 2, 1).reshape(32, 24)
    np.testing.assert_array_equal(found, 2 * tensors[f"{START}q_proj.weight"])


# Every tensor of the attention is accounted for


@pytest.mark.parametrize("name", [
    "self_attn.g_proj.weight", "self_attn.gate_proj.weight", "self_attn.q_a_proj.weight", "self_attn.qkv_proj.weight",
    "cross_attention.k_proj.weight", "encoder_attn.q_proj.weight", "self_attn.attn_sub_norm.weight",
    "post_self_attn_layernorm.weight", "self_attn.k_up_proj.weight", "self_attn.relative_attention_bias.weight",
])  # fmt: skip
def test_an_unknown_tensor_of_the_attention_stops_the_run(name):
    with pytest.raises(InputError, match=rf"tensor 'model.layers.1.{name}' belongs to the attention, and the layout"):
        understood(LLAMA, {**llama_shapes(), f"model.layers.1.{name}": (24, 24)})


def test_kinds_that_are_not_asked_for_are_known():
    assert set(understood(LLAMA, llama_shapes(), "O").tensors) == {
        f"model.layers.{i}.self_attn.o_proj.weight" for i in range(3)
    }


def _tiny_shapes(name):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config(name))
    return {key: tensor.shape for key, tensor in model.state_dict().items() if ".experts." not in key}


@pytest.mark.parametrize("name", sorted(TINY))
def test_every_served_architecture_is_accounted_for(name):
    config = json.loads(tiny_config(name).to_json_string())
    headers = understood(config, _tiny_shapes(name))
    assert headers.notes == tuple(filter(None, [headers.row.note]))


def test_the_models_of_the_study_are_accounted_for():
    paths = sorted((TESTS / "fixtures" / "headers").glob("*.json"))
    assert len(paths) >= 7
    for path in paths:
        headers = load_headers(path)
        pinned = replace(headers.checkpoint, source="x")
        assert interpret(pinned, headers.kinds).notes == (), path.name


def test_gpt2s_real_folder_is_accounted_for():
    folder = ROOT.parent / "shared" / "gpt2-small-attention"
    if not Path(folder).is_dir():
        pytest.skip("needs GPT-2's weights")
    assert read_headers(str(folder)).notes == ()


def test_a_block_says_how_its_weights_are_stored(rng, tmp_path):
    tensors = llama_tensors(rng)
    name = f"{START}q_proj.weight"
    tensors[name] = tensors[name].astype("float16")
    first, second, _ = heads_of(folder_with(tmp_path, tensors))
    assert first.dtypes == {"O": "F32", "Q": "F16", "K": "F32", "V": "F32"}
    assert second.dtypes == dict.fromkeys("OQKV", "F32")
