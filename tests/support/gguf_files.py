"""GGUF files of tiny models, as llama.cpp's conversion writes them, by the gguf package."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np

ARCHITECTURES = {
    "llama": "llama", "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "smollm3": "smollm3", "granite": "granite", "granitemoe": "granitemoe", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3_text": "gemma3", "gpt2": "gpt2", "phi3": "phi3", "ministral3": "mistral3", "gpt_oss": "gpt-oss",
    "glm": "chatglm", "glm4": "glm4", "glm4_moe": "glm4moe", "seed_oss": "seed_oss", "arcee": "arcee",
    "ernie4_5": "ernie4_5", "llama4_text": "llama4", "hunyuan_v1_dense": "hunyuan-dense", "minimax_m2": "minimax-m2",
    "olmoe": "olmoe", "apertus": "apertus", "olmo": "olmo", "olmo2": "olmo2", "olmo3": "olmo2", "exaone4": "exaone4",
    "cohere": "command-r", "cohere2": "cohere2", "stablelm": "stablelm", "starcoder2": "starcoder2",
    "phimoe": "phimoe", "nemotron": "nemotron", "phi": "phi2", "gpt_neox": "gptneox", "bloom": "bloom", "mpt": "mpt",
    "gpt_bigcode-multiquery": "starcoder", "falcon-groups": "falcon", "falcon-groups-one-norm": "falcon",
    "falcon-multiquery": "falcon", "qwen2_vl": "qwen2vl", "qwen3_vl": "qwen3vl", "qwen3_vl_moe": "qwen3vlmoe",
}  # fmt: skip
"""Tiny models, with llama.cpp's name of the architecture."""
PERMUTED = ("llama", "granite", "granitemoe", "smollm3", "ministral3", "arcee", "llama4_text", "olmo", "ernie4_5")
"""Those of which llama.cpp's conversion permutes the rows of queries and keys inside a head."""
_NUMBERS = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}


def permuted(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of Q or K as llama.cpp stores them: inside a head, the two halves of the rotation interleaved."""
    rows, columns = weight.shape
    return weight.reshape(n_heads, 2, rows // n_heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def flat(weight: np.ndarray, name: str, config) -> np.ndarray:
    """Rows of a fused tensor as llama.cpp stores them: all queries, all keys, all values."""
    n_heads, d_model = config.num_attention_heads, weight.shape[1]
    if name in ("gpt_neox", "bloom"):
        return weight.reshape(n_heads, 3, -1, d_model).swapaxes(0, 1).reshape(-1, d_model)
    n_kv = 1 if name == "falcon-multiquery" else config.num_kv_heads
    groups = weight.reshape(n_kv, n_heads // n_kv + 2, -1, d_model)
    parts = (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])
    return np.concatenate([part.reshape(-1, d_model) for part in parts])


def converted(name: str, state: dict[str, np.ndarray], config) -> dict[str, np.ndarray]:
    """Names and values of llama.cpp's conversion (convert_hf_to_gguf.py), as far as attention is concerned."""
    result = {}
    names = gguf.get_tensor_name_map(_NUMBERS[ARCHITECTURES[name]], config.num_hidden_layers)
    for key, array in state.items():
        # The conversion leaves the vision tower to a file of its own, and drops the name of the language model.
        known = key.replace("model.language_model.", "model.") if name != "bloom" else key.removeprefix("transformer.")
        new = names.get_name(known, (".weight", ".bias"))
        if new is None:
            assert not re.search(r"\.\d+\..*(attn|attention|norm)", key) or "visual" in key or "experts" in key, key
            continue
        if name in PERMUTED and key.endswith("q_proj.weight"):
            array = permuted(array, config.num_attention_heads)
        if name in PERMUTED and key.endswith("k_proj.weight"):
            array = permuted(array, config.num_key_value_heads)
        if name.startswith(("gemma", "nemotron")) and key.endswith("norm.weight"):
            array = array + 1
        if name == "gpt2" and key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            array = array.T
        if key.endswith("query_key_value.weight"):
            array = flat(array, name, config)
        new += ".weight" if new.endswith("attn_sinks") else ""
        result[new] = np.ascontiguousarray(array, "float32")
    return result


def can_quantise(array: np.ndarray, number: gguf.GGMLQuantizationType) -> bool:
    """Tell whether the blocks of a type divide a matrix's rows; others are written in float32."""
    return array.ndim == 2 and array.shape[1] % gguf.GGML_QUANT_SIZES[number][0] == 0


def write_gguf(path: Path, architecture: str, config, tensors: dict[str, np.ndarray], quantise=None) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_context_length(16)
    n_kv = getattr(config, "num_key_value_heads", None)
    if n_kv is not None:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(n_kv)
        writer.add_layer_norm_rms_eps(getattr(config, "rms_norm_eps", 1e-5))
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
        if quantise is not None and can_quantise(array, quantise):
            writer.add_tensor(name, gguf.quants.quantize(array, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
