"""GGUF files: written by the gguf package, read here, and by transformers as the oracle."""

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from support.tiny_models import D_MODEL, TINY, build, record
from transformers import AutoModelForCausalLM

from headspaces.errors import InputError
from headspaces.geometry.heads import fold
from headspaces.spaces import KINDS
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.formats.gguf_header import read_gguf
from headspaces.weights.layouts import ROWS
from headspaces.weights.source import read_headers

ARCHITECTURES = {
    "llama": "llama", "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "smollm3": "smollm3", "granite": "granite", "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3",
    "gpt2": "gpt2", "phi3": "phi3", "ministral3": "mistral3",
}  # fmt: skip
"""Tiny models, with llama.cpp's name of the architecture."""
PERMUTED = ("llama", "granite", "smollm3", "ministral3")
"""Those of which llama.cpp's conversion permutes the rows of queries and keys inside a head."""


def permuted(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of Q or K as llama.cpp stores them: inside a head, the two halves of the rotation interleaved."""
    rows, columns = weight.shape
    return weight.reshape(n_heads, 2, rows // n_heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def converted(name: str, state: dict[str, np.ndarray], config) -> dict[str, np.ndarray]:
    """Names and values of llama.cpp's conversion (convert_hf_to_gguf.py), as far as attention is concerned."""
    result = {}
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, ARCHITECTURES[name].upper()), config.num_hidden_layers)
    for key, array in state.items():
        new = names.get_name(key, (".weight", ".bias"))
        if new is None:
            assert "attn" not in key, key
            continue
        if name in PERMUTED and key.endswith("q_proj.weight"):
            array = permuted(array, config.num_attention_heads)
        if name in PERMUTED and key.endswith("k_proj.weight"):
            array = permuted(array, config.num_key_value_heads)
        if name.startswith("gemma") and key.endswith("norm.weight"):
            array = array + 1
        if name == "gpt2" and key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            array = array.T
        result[new] = np.ascontiguousarray(array, "float32")
    return result


def write_gguf(path: Path, architecture: str, config, tensors: dict[str, np.ndarray], quantise=None) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_context_length(16)
    if architecture != "gpt2":
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(10000.0)
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(width)
        writer.add_key_length(width)
        writer.add_value_length(width)
    else:
        writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(config.vocab_size)
    writer.add_array("tokenizer.ggml.tokens", [f"word{number}" for number in range(3000)])
    for name, array in tensors.items():
        if quantise is not None and array.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(array, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_the_heads_are_those_of_the_model(name, tmp_path):
    """Against the model's own modules: the permutation inside heads changes no space, Gemma's 1 is not added twice."""
    model = build(name)
    state = {key: value.numpy() for key, value in model.state_dict().items() if ".masked_bias" not in key}
    config = model.config
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
    expected = record(model, TINY[name], 1)
    x = expected.residual
    sigma = np.std(x) if ours.read_norm.centred else np.sqrt(np.mean(x**2))
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
