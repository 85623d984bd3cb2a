"""Tiny random models of every architecture, built with transformers, and what their own modules compute.

A recorded layer is an oracle for the layouts: residuals are pushed through the model's own norm, projections, cut into
heads and output projection; nothing of the package is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from scipy.linalg import hadamard
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

D_MODEL, N_LAYERS = 48, 2
_SIZES = {
    "hidden_size": D_MODEL, "num_hidden_layers": N_LAYERS, "num_attention_heads": 4, "vocab_size": 40,
    "intermediate_size": 32, "max_position_embeddings": 16, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_GQA = {"num_key_value_heads": 2}
_WIDE = {"num_key_value_heads": 2, "head_dim": 16}  # 4 x 16 is not 48
_MOE = {"num_experts": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
_GPT = {"n_embd": D_MODEL, "n_layer": N_LAYERS, "n_head": 4, "n_positions": 16, "n_inner": 32}


@dataclass(frozen=True)
class Tiny:
    """How to build one model, and the paths of one layer's modules (beneath the layer)."""

    config_class: str
    config: dict[str, Any] = field(default_factory=dict)
    attention: str = "self_attn"
    layers: str = "model.layers"
    output: str = "o_proj"  # beneath the attention
    write_norm: str = ""
    vision: dict[str, Any] = field(default_factory=dict)  # of a model that also sees: `config` is its decoder's


TINY: dict[str, Tiny] = {
    "gpt2": Tiny("GPT2Config", _GPT, "attn", "transformer.h", "c_proj"),
    "gpt_neo": Tiny(
        "GPTNeoConfig", {"num_layers": N_LAYERS, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        "attn.attention", "transformer.h", "out_proj",
    ),
    "gptj": Tiny("GPTJConfig", {**_GPT, "rotary_dim": 4}, "attn", "transformer.h", "out_proj"),
    "gpt_neox": Tiny("GPTNeoXConfig", {}, "attention", "gpt_neox.layers", "dense"),
    "gpt_bigcode-multiquery": Tiny(
        "GPTBigCodeConfig", {**_GPT, "multi_query": True}, "attn", "transformer.h", "c_proj",
    ),
    "gpt_bigcode-heads": Tiny(
        "GPTBigCodeConfig", {**_GPT, "multi_query": False}, "attn", "transformer.h", "c_proj",
    ),
    "bloom": Tiny("BloomConfig", {"n_layer": N_LAYERS, "n_head": 4}, "self_attention", "transformer.h", "dense"),
    "opt": Tiny(
        "OPTConfig", {"ffn_dim": 32, "word_embed_proj_dim": 24}, layers="model.decoder.layers", output="out_proj",
    ),
    "opt-post-norm": Tiny(
        "OPTConfig", {"ffn_dim": 32, "do_layer_norm_before": False}, layers="model.decoder.layers", output="out_proj",
    ),
    "falcon-groups": Tiny(
        "FalconConfig", {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
        "self_attention", "transformer.h", "dense",
    ),
    "falcon-groups-one-norm": Tiny(
        "FalconConfig",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False, "num_ln_in_parallel_attn": 1},
        "self_attention", "transformer.h", "dense",
    ),
    "falcon-multiquery": Tiny(
        "FalconConfig", {"multi_query": True, "alibi": False}, "self_attention", "transformer.h", "dense",
    ),
    "falcon-heads": Tiny(
        "FalconConfig", {"multi_query": False, "alibi": False, "parallel_attn": False},
        "self_attention", "transformer.h", "dense",
    ),
    "mpt": Tiny(
        "MptConfig", {"d_model": D_MODEL, "n_layers": N_LAYERS, "n_heads": 4}, "attn", "transformer.blocks", "out_proj",
    ),
    "llama": Tiny("LlamaConfig", _GQA),
    "mistral": Tiny("MistralConfig", _WIDE),
    "mixtral": Tiny("MixtralConfig", {**_GQA, **_MOE}),
    "ministral": Tiny("MinistralConfig", _WIDE),
    "ministral3": Tiny("Ministral3Config", _WIDE),
    "qwen2": Tiny("Qwen2Config", _GQA),
    "qwen2_moe": Tiny("Qwen2MoeConfig", {**_GQA, **_MOE}),
    "qwen3": Tiny("Qwen3Config", _WIDE),
    "qwen3_moe": Tiny("Qwen3MoeConfig", {**_WIDE, **_MOE}),
    "smollm3": Tiny("SmolLM3Config", {**_GQA, "no_rope_layers": [1, 0]}),
    "gpt_oss": Tiny("GptOssConfig", {**_WIDE, **_MOE}),
    "granite": Tiny("GraniteConfig", {**_GQA, "residual_multiplier": 0.3, "attention_multiplier": 0.2}),
    "granitemoe": Tiny("GraniteMoeConfig", {**_GQA, **_MOE, "residual_multiplier": 0.3}),
    "olmoe": Tiny("OlmoeConfig", {**_GQA, **_MOE}),
    "glm": Tiny("GlmConfig", _WIDE),
    "glm4": Tiny("Glm4Config", _WIDE, write_norm="post_self_attn_layernorm"),
    "glm4_moe": Tiny("Glm4MoeConfig", {**_WIDE, **_MOE, "n_routed_experts": 2, "n_group": 1, "topk_group": 1}),
    "seed_oss": Tiny("SeedOssConfig", _WIDE),
    "arcee": Tiny("ArceeConfig", _GQA),
    "ernie4_5": Tiny("Ernie4_5Config", _WIDE),
    "helium": Tiny("HeliumConfig", {"num_key_value_heads": 2, "head_dim": 12}),
    "llama4_text": Tiny("Llama4TextConfig", {**_WIDE, **_MOE, "intermediate_size_mlp": 16, "attention_chunk_size": 8}),
    "hunyuan_v1_dense": Tiny("HunYuanDenseV1Config", _WIDE),
    "minimax_m2": Tiny("MiniMaxM2Config", {**_WIDE, **_MOE}),
    "apertus": Tiny("ApertusConfig", _GQA),
    "gemma": Tiny("GemmaConfig", _WIDE),
    "gemma2": Tiny("Gemma2Config", _WIDE, write_norm="post_attention_layernorm"),
    "gemma3_text": Tiny("Gemma3TextConfig", _WIDE, write_norm="post_attention_layernorm"),
    "olmo": Tiny("OlmoConfig", _GQA),
    "olmo2": Tiny("Olmo2Config", _GQA, write_norm="post_attention_layernorm"),
    "olmo3": Tiny("Olmo3Config", _GQA, write_norm="post_attention_layernorm"),
    "exaone4": Tiny("Exaone4Config", {**_WIDE, "sliding_window_pattern": 2}, write_norm="post_attention_layernorm"),
    "cohere": Tiny("CohereConfig", _GQA),
    "cohere2": Tiny("Cohere2Config", _WIDE),
    "stablelm": Tiny("StableLmConfig", {**_GQA, "partial_rotary_factor": 0.5}),
    "starcoder2": Tiny("Starcoder2Config", _GQA),
    "phimoe": Tiny("PhimoeConfig", {**_GQA, **_MOE}),
    "nemotron": Tiny("NemotronConfig", _WIDE),
    "phi": Tiny("PhiConfig", _GQA, output="dense"),
    "phi3": Tiny("Phi3Config", _GQA),
    "persimmon": Tiny("PersimmonConfig", {}, output="dense"),
}  # fmt: skip
"""One model per row of the layouts table, and per model type whose modules differ."""

_SEES = {"depth": 1, "embed_dim": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": D_MODEL}
_TOWER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def _rope(*sections: int) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections)}}


_IN = {"layers": "model.language_model.layers"}
WRAPPED: dict[str, Tiny] = {
    "qwen2_vl": Tiny("Qwen2VLConfig", {**_GQA, **_rope(2, 2, 2)}, **_IN, vision={**_SEES, "hidden_size": D_MODEL}),
    "qwen2_5_vl": Tiny("Qwen2_5_VLConfig", {**_GQA, **_rope(2, 2, 2)}, **_IN, vision={**_SEES, "hidden_size": 16}),
    "qwen3_vl": Tiny(
        "Qwen3VLConfig", {**_WIDE, **_rope(4, 2, 2)}, **_IN,
        vision={**_SEES, "hidden_size": 16, "deepstack_visual_indexes": [0]},
    ),
    "qwen3_vl_moe": Tiny(
        "Qwen3VLMoeConfig", {**_WIDE, **_MOE, **_rope(4, 2, 2)}, **_IN,
        vision={**_SEES, "hidden_size": 16, "deepstack_visual_indexes": [0]},
    ),
    "glm4v": Tiny(
        "Glm4vConfig", {**_GQA, **_rope(2, 2, 2)}, **_IN, vision={**_SEES, "hidden_size": 16},
        write_norm="post_self_attn_layernorm",
    ),
    "glm4v_moe": Tiny(
        "Glm4vMoeConfig", {**_GQA, **_MOE, **_rope(1, 1, 1), "n_routed_experts": 2, "n_group": 1, "topk_group": 1},
        **_IN, vision={**_SEES, "hidden_size": 16},
    ),
    "smolvlm": Tiny("SmolVLMConfig", {**_GQA, "model_type": "llama"}, layers="model.text_model.layers", vision=_TOWER),
    "llava": Tiny(
        "LlavaConfig", {**_GQA, "model_type": "llama"}, **_IN, vision={**_TOWER, "model_type": "clip_vision_model"},
    ),
}  # fmt: skip
"""Models that also see, with a decoder inside and a vision tower with attention of its own."""
MODELS = TINY | WRAPPED


def tiny_config(name: str, changes: Mapping[str, Any] | None = None):
    """The transformers configuration of one model, with other sizes where they are given."""
    tiny = MODELS[name]
    kind = getattr(transformers, tiny.config_class)
    sizes = {**_SIZES, **tiny.config, **(changes or {})}
    return kind(text_config=sizes, vision_config=dict(tiny.vision)) if tiny.vision else kind(**sizes)


def build(name: str, changes: Mapping[str, Any] | None = None, seed: int = 0) -> torch.nn.Module:
    """Build one model in float64 with every parameter random: norm gains too, so that no scale error can hide."""
    config = tiny_config(name, changes)
    torch.manual_seed(seed)
    config._experts_implementation = "eager"  # the grouped product knows no float64
    auto = AutoModelForImageTextToText if MODELS[name].vision else AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager", dtype=torch.float64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5 + (parameter.ndim == 1))
    return model


@dataclass(frozen=True)
class Recorded:
    """What one layer computed: reads by kind, (head, d_head), of a residual; and the write of given head outputs."""

    residual: np.ndarray
    reads: dict[str, np.ndarray]
    head_outputs: np.ndarray
    write: np.ndarray


def record(model: torch.nn.Module, tiny: Tiny, layer: int, seed: int = 0) -> Recorded:
    """Push a residual through one layer's own modules.

    Reads are half the difference of what x and -x give: both have the same sigma, and every bias cancels. The write is
    what the model's output projection (and its norm) makes of random head outputs, without its bias.
    """
    generator = torch.Generator().manual_seed(seed)
    block = model.get_submodule(f"{tiny.layers}.{layer}")
    x = 30 * torch.randn(1, 1, D_MODEL, generator=generator, dtype=torch.float64)
    reads = {kind: values[0].numpy() for kind, values in _odd_reads(model, tiny, layer, x).items()}
    y = torch.randn(reads["Q"].shape, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        write = _write(block, tiny, y.reshape(1, 1, -1))
        if tiny.write_norm:
            write = block.get_submodule(tiny.write_norm)(write)
    return Recorded(x.numpy().ravel(), reads, y.numpy(), write.numpy().ravel())


def record_maps(model: torch.nn.Module, tiny: Tiny, layer: int, d_model: int) -> dict[str, np.ndarray]:
    """Folded maps of one layer by kind, (head, d_model, d_head), each up to one factor: what its modules make of axes.

    Where `d_model` is a power of two, the axes are a Hadamard matrix's rows: means and deviations that norms compute in
    float32 are exact, and so are gains of few bits. Others are the coordinates', for norms that multiply by their gain
    in the model's own arithmetic.
    """
    block = model.get_submodule(f"{tiny.layers}.{layer}")
    power = d_model & (d_model - 1) == 0
    axes = torch.from_numpy(hadamard(d_model, float) if power else np.eye(d_model))
    back = (axes / d_model if power else axes).T
    reads = _odd_reads(model, tiny, layer, 1024 * axes[:, None])
    maps = {kind: torch.einsum("ij,jhk->hik", back, values).numpy() for kind, values in reads.items()}
    n_heads, _, d_head = maps["Q"].shape
    with torch.no_grad():
        write = _write(block, tiny, torch.eye(n_heads * d_head, dtype=torch.float64)[:, None])[:, 0]
        if tiny.write_norm:
            write = write @ back @ block.get_submodule(tiny.write_norm)(1024 * axes)
    return maps | {"O": write.reshape(n_heads, d_head, d_model).swapaxes(1, 2).numpy()}


def _write(block: torch.nn.Module, tiny: Tiny, y: torch.Tensor) -> torch.Tensor:
    projection = block.get_submodule(tiny.attention).get_submodule(tiny.output)
    return projection(y) - projection(torch.zeros_like(y))


def _odd_reads(model: torch.nn.Module, tiny: Tiny, layer: int, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Part of the reads that is odd in the residual, by kind (batch, head, d_head): no bias is left."""
    block = model.get_submodule(f"{tiny.layers}.{layer}")
    model.recorded_layer = layer
    plus, minus = (_reads(model, tiny, block, sign * x) for sign in (1, -1))
    return {kind: (plus[kind] - minus[kind]) / 2 for kind in "QKV"}


def _reads(model: torch.nn.Module, tiny: Tiny, block: torch.nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Queries, keys and values of tokens with the residuals x, (batch, head, d_head), cut by the model's own code."""
    attention = block.get_submodule(tiny.attention)
    with _residual(block, x), torch.no_grad():
        token = torch.ones(len(x), 1, dtype=torch.long)
        if hasattr(attention, "q_proj"):
            found = _projections(model, attention, token)
        elif hasattr(attention, "_reshape"):  # BLOOM: (batch, head, token, d_head)
            found = [part[:, :, 0] for part in _returned(model, attention, "_reshape", token)]
        elif hasattr(attention, "_split_heads"):  # Falcon: (batch, token, head, d_head)
            found = [part[:, 0] for part in _returned(model, attention, "_split_heads", token)]
        else:
            found = _products(model, token)
    return dict(zip("QKV", map(_once_per_group, found), strict=True))


@contextmanager
def _residual(block: torch.nn.Module, x: torch.Tensor):
    def replace(module, args, kwargs):
        return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

    handle = block.register_forward_pre_hook(replace, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _projections(model, attention, token) -> list[torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    d_head = attention.head_dim
    with ExitStack() as stack:
        for name in ("q_proj", "k_proj", "v_proj"):
            hook = attention.get_submodule(name).register_forward_hook(
                lambda _module, _args, output, name=name: found.update({name: output.reshape(len(token), -1, d_head)})
            )
            stack.callback(hook.remove)
        model(token, use_cache=False)
    return [found[name] for name in ("q_proj", "k_proj", "v_proj")]


def _returned(model, attention, method: str, token) -> tuple[torch.Tensor, ...]:
    original, found = getattr(attention, method), []
    setattr(attention, method, lambda *args: found.append(original(*args)) or found[-1])
    try:
        model(token, use_cache=False)
    finally:
        delattr(attention, method)
    return found[0]


class _Products(TorchFunctionMode):
    """Collects attention's batched products: queries with keys, weights with values; position 0 is not rotated."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.matmul, torch.Tensor.matmul) and args[0].ndim == args[1].ndim == 4:
            self.found.append((args[0], args[1]))
        return function(*args, **(kwargs or {}))


def _products(model, token) -> list[torch.Tensor]:
    layer = model.recorded_layer
    with _Products() as products:
        model(token, use_cache=False)
    (query, key), (_, value) = products.found[2 * layer : 2 * layer + 2]
    return [query[:, :, 0], key[:, :, :, 0], value[:, :, 0]]


def _once_per_group(heads: torch.Tensor) -> torch.Tensor:
    """One row per key-value head where the model repeats them: consecutive query heads share one."""
    same = (heads[:, 1:] - heads[:, :-1]).abs().amax((0, -1)) == 0
    return heads[:, torch.cat([torch.tensor([True]), ~same])]
