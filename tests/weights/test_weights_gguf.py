"""GGUF files: written by the gguf package, read here, and by transformers as the oracle."""

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from support.gguf_files import ARCHITECTURES, converted, write_gguf
from support.tiny_models import D_MODEL, MODELS, build, record
from transformers import AutoModelForCausalLM

from headspaces.errors import InputError
from headspaces.geometry.heads import fold
from headspaces.spaces import KINDS
from headspaces.weights.blocks import read_block
from headspaces.weights.content import local_files
from headspaces.weights.fetch import fetch_block
from headspaces.weights.formats.gguf_header import read_gguf
from headspaces.weights.formats.gguf_names import gguf_config
from headspaces.weights.layouts import ROWS
from headspaces.weights.source import read_headers


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_the_heads_are_those_of_the_model(name, tmp_path):
    """Against the model's own modules: the permutation inside heads changes no space, Gemma's 1 is not added twice."""
    model = build(name)
    state = {key: value.numpy() for key, value in model.state_dict().items() if ".masked_bias" not in key}
    config = model.config.get_text_config()
    path = tmp_path / "model.gguf"
    write_gguf(path, ARCHITECTURES[name], config, converted(name, state, config))
    fetch_block(read_headers(str(path)), range(2), tmp_path / "block.safetensors")
    ours = read_block(tmp_path / "block.safetensors")[1]
    model.save_pretrained(tmp_path / "folder")
    fetch_block(read_headers(str(tmp_path / "folder")), range(2), tmp_path / "original.safetensors")
    original = read_block(tmp_path / "original.safetensors")[1]
    for kind in KINDS:
        left, right = (np.linalg.qr(fold(heads, kind))[0] for heads in (ours, original))
        overlap = np.linalg.norm(left.transpose(0, 2, 1) @ right, axis=(1, 2)) ** 2
        np.testing.assert_allclose(overlap, left.shape[2], atol=1e-5)
    expected = record(model, MODELS[name], 1)
    x = expected.residual
    sigma = np.std(x) if ours.read_norm.centred else np.sqrt(np.mean(x**2))
    sigma = 1.0 if ours.read_norm.kind == "none" else sigma
    values = np.einsum("hij,i->hj", fold(ours, "V"), x) / sigma
    np.testing.assert_allclose(values, expected.reads["V"], rtol=1e-4, atol=1e-4)
    queries = np.sort(np.einsum("hij,i->hj", fold(ours, "Q"), x) / sigma, axis=1)
    np.testing.assert_allclose(queries, np.sort(expected.reads["Q"], axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen2"])
def test_transformers_reads_the_same_file_as_the_same_heads(name, tmp_path):
    """What transformers makes of the file, so that the file of the test above is what llama.cpp would write."""
    model = build(name)
    path = tmp_path / "model.gguf"
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    write_gguf(path, ARCHITECTURES[name], model.config, converted(name, state, model.config))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    attention = "model.layers.1.self_attn."
    for key in ("q_proj", "k_proj", "v_proj", "o_proj"):
        own = loaded.state_dict()[f"{attention}{key}.weight"].numpy()
        np.testing.assert_allclose(own, state[f"{attention}{key}.weight"], atol=1e-6)
    norm = "model.layers.1.input_layernorm.weight"
    np.testing.assert_allclose(loaded.state_dict()[norm].numpy(), state[norm], atol=1e-6)


TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


@pytest.mark.parametrize("kind", TYPES)
def test_quantised_types_are_dequantised(kind, tmp_path, rng):
    """Weights on the grid of the coarsest type are exact; others are as near as the type is fine."""
    quantise = getattr(gguf.GGMLQuantizationType, kind)
    config = type("Config", (), {
        "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
        "intermediate_size": 64, "rms_norm_eps": 1e-5, "head_dim": 32, "vocab_size": 10,
    })  # fmt: skip
    shapes = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64)}
    weights = {f"blk.0.{name}.weight": rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    weights["blk.0.attn_norm.weight"] = np.ones(64, "float32")
    write_gguf(tmp_path / "m.gguf", "llama", config, weights, quantise)
    headers = read_headers(str(tmp_path / "m.gguf"))
    assert headers.tensors["blk.0.attn_k.weight"].dtype == f"ggml:{kind}"
    assert headers.tensors["blk.0.attn_k.weight"].shape == (32, 64)
    fetch_block(headers, range(1), tmp_path / "block.safetensors")
    (heads,) = read_block(tmp_path / "block.safetensors")
    reader = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    expected = gguf.dequantize(reader["blk.0.attn_k.weight"].data, quantise)
    np.testing.assert_array_equal(heads.factors["K"][0].T, expected.reshape(32, 64).astype(float))
    step = {"F32": 0, "F16": 1e-3, "BF16": 1e-2, "Q8_0": 0.02, "Q5_0": 0.3, "Q5_1": 0.2, "Q4_0": 0.6, "Q4_1": 0.4}[kind]
    assert np.abs(heads.factors["K"][0].T - weights["blk.0.attn_k.weight"]).max() <= step


def test_every_row_for_gguf_is_proved():
    served = {kind for row in ROWS for kind in row.model_types if kind.startswith("gguf:")}
    assert served == {f"gguf:{name}" for name in ARCHITECTURES.values()}


def test_the_header_agrees_with_the_gguf_package(tmp_path):
    model = build("llama")
    path = tmp_path / "model.gguf"
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    write_gguf(path, "llama", model.config, converted("llama", state, model.config))
    _, config, tensors, files = read_gguf(path)
    reader = gguf.GGUFReader(path)
    assert {name: (tensor.begin, tensor.size) for name, tensor in tensors.items()} == {
        tensor.name: (tensor.data_offset, tensor.n_bytes) for tensor in reader.tensors
    }
    assert config["gguf"].items() >= {
        "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": D_MODEL,
        "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.attention.key_length": 12,
    }.items()  # fmt: skip
    assert files["model.gguf"].size == path.stat().st_size


@pytest.mark.parametrize(("change", "message"), [
    (lambda data: b"GGML" + data[4:], "does not begin with GGUF"),
    (lambda _: b"version https://git-lfs.github.com/spec/v1\n", "git-LFS pointer"),
    (lambda _: b"", "cannot be read as a GGUF file"),
    (lambda data: data[:4] + (1).to_bytes(4, "little") + data[8:], "of GGUF version 1, expected 2 or 3"),
    (lambda data: data[:4] + data[7:3:-1] + data[8:], "GGUF version 50331648"),
    (lambda data: data[:60], "ends inside its header"),
    (lambda data: data[:-40], "tensor .* ends at byte .*; it is cut off"),
    (lambda data: data[:16] + (2**62).to_bytes(8, "little") + data[24:], "damaged|ends inside its header"),
])  # fmt: skip
def test_damaged_files(tmp_path, change, message):
    model = build("llama")
    path = tmp_path / "model.gguf"
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    write_gguf(path, "llama", model.config, converted("llama", state, model.config))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=message) as caught:
        read_headers(str(path))
    assert "\n" not in str(caught.value)


def test_a_type_that_cannot_be_dequantised_is_named(tmp_path):
    model = build("llama")
    path = tmp_path / "model.gguf"
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    write_gguf(path, "llama", model.config, converted("llama", state, model.config))
    headers = read_headers(str(path))
    name = "blk.0.attn_norm.weight"
    odd = replace(headers, tensors={**headers.tensors, name: replace(headers.tensors[name], dtype="ggml:I32")})
    fetch_block(odd, range(2), tmp_path / "block.safetensors")
    with pytest.raises(InputError, match=r"blk.0.attn_norm.weight': the ggml type I32 cannot be dequantised"):
        read_block(tmp_path / "block.safetensors")


def test_an_architecture_that_is_not_served(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "deepseek2")
    writer.add_tensor("blk.0.attn_output.weight", np.zeros((4, 4), "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match="gguf:deepseek2 is not supported: multi-head latent attention"):
        read_headers(str(tmp_path / "m.gguf"))


def split(path: Path, number: int) -> list[Path]:
    """Cut a GGUF file into parts by tensors, as llama.cpp's gguf-split does: the first may hold none."""
    reader = gguf.GGUFReader(path)
    parts = []
    dealt = [[], *np.array_split(np.arange(len(reader.tensors)), number - 1)]
    for index, chosen in enumerate(dealt):
        parts.append(path.with_name(f"m-{index + 1:05d}-of-{number:05d}.gguf"))
        writer = gguf.GGUFWriter(parts[-1], "llama")
        if index == 0:
            for key in ("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv"):
                writer.add_uint32(f"llama.{key}", int(reader.fields[f"llama.{key}"].contents()))
        writer.add_uint16("split.no", index)
        writer.add_uint16("split.count", number)
        for at in chosen:
            tensor = reader.tensors[at]
            writer.add_tensor(tensor.name, np.array(tensor.data).reshape(tuple(map(int, tensor.shape[::-1]))))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return parts


def test_a_split_file_is_the_whole_one(tmp_path):
    """Named by its first part; a missing, renamed or other part is said."""
    model = build("llama")
    whole = tmp_path / "whole.gguf"
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    write_gguf(whole, "llama", model.config, converted("llama", state, model.config))
    parts = split(whole, 3)
    blocks = []
    for path in (whole, parts[0]):
        headers = read_headers(str(path))
        fetch_block(headers, range(2), tmp_path / "block.safetensors")
        blocks.append(read_block(tmp_path / "block.safetensors"))
    assert set(headers.files) == {part.name for part in parts[1:]}
    for one, other in zip(*blocks, strict=True):
        for kind in KINDS:
            np.testing.assert_array_equal(fold(one, kind), fold(other, kind))
    assert local_files(str(parts[0])) == parts
    with pytest.raises(InputError, match=r"m-00002-of-00003.gguf: is part 2 of 3 of a split GGUF file; name the first"):
        read_headers(str(parts[1]))
    swapped = parts[1].read_bytes()
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(InputError, match=r"says that it is part 3 of 3 of a split GGUF file, its name says 2 of 3"):
        read_headers(str(parts[0]))
    parts[1].unlink()
    with pytest.raises(InputError, match=r"first of 3 parts .*; not beside it: m-00002-of-00003.gguf; download all"):
        read_headers(str(parts[0]))
    (tmp_path / "renamed.gguf").write_bytes(swapped)
    with pytest.raises(InputError, match="renamed.gguf: says that it is part 2 of 3 of a split GGUF file"):
        read_headers(str(tmp_path / "renamed.gguf"))


def test_prediction_layers_are_not_counted_as_layers():
    values = {"general.architecture": "glm4moe", "glm4moe.block_count": 47, "glm4moe.nextn_predict_layers": 1}
    config = gguf_config(values, [])
    assert (config["num_hidden_layers"], config["num_nextn_predict_layers"]) == (46, 1)


@pytest.mark.parametrize("architecture", ["phi2", "chatglm"])
def test_the_older_fused_form_of_an_architecture_is_refused(architecture, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", architecture)
    writer.add_tensor("blk.0.attn_qkv.weight", np.zeros((12, 4), "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match=f"no layout of gguf:{architecture} fits .*'attn_qkv': True"):
        read_headers(str(tmp_path / "m.gguf"))
