"""What is known and not served, with the reason: architectures without per-head residual spaces, packed weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_REFUSALS: dict[str, tuple[str, ...]] = {
    "multi-head latent attention: keys and values come from a compressed stream, not from the residual stream": (
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "kimi_k2", "kimi_k25", "minicpm3",
        "glm4_moe_lite", "glm_moe_dsa", "longcat_flash", "sarvam_mla", "youtu", "mistral4", "mistral_large4_text",
        "axk1", "axk2", "dots3_note_text", "hy_v4", "gguf:deepseek2", "gguf:deepseek2-ocr", "gguf:minicpm3",
        "gguf:glm-dsa", "gguf:mistral4", "gguf:plm",
    ),
    "state-space, convolution or linear-attention layers in place of all or some attention layers": (
        "mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "jamba", "bamba", "zamba", "zamba2", "falcon_h1",
        "nemotron_h", "granitemoehybrid", "recurrent_gemma", "lfm2", "lfm2_moe", "lfm3", "qwen3_next", "qwen3_5",
        "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp_text", "kimi_linear", "minimax", "olmo_hybrid",
        "bailing_hybrid", "glm5_next", "inkling_text", "gguf:mamba", "gguf:mamba2", "gguf:jamba", "gguf:rwkv6",
        "gguf:rwkv7", "gguf:rwkv6qwen2", "gguf:arwkv7", "gguf:lfm2", "gguf:lfm2moe", "gguf:falcon-h1", "gguf:qwen3next",
        "gguf:qwen35", "gguf:qwen35moe", "gguf:kimi-linear", "gguf:granitehybrid", "gguf:nemotron_h",
        "gguf:nemotron_h_moe", "gguf:plamo2",
    ),
    "cross-attention layers read another stream than the residual stream": ("mllama", "mllama_text_model", "blt"),
    "an encoder and a decoder with cross-attention, not one decoder": (
        "t5", "mt5", "umt5", "longt5", "switch_transformers", "t5gemma", "t5gemma2", "bart", "mbart", "pegasus",
        "marian", "m2m_100", "blenderbot", "led", "prophetnet", "whisper", "encoder-decoder", "fsmt", "nllb-moe",
        "gguf:t5",
    ),
    "an encoder, not a decoder": (
        "bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert", "deberta", "deberta-v2", "modernbert",
        "mpnet", "esm", "vit", "clip", "gguf:bert", "gguf:modern-bert", "gguf:nomic-bert", "gguf:nomic-bert-moe",
        "gguf:neo-bert", "gguf:jina-bert-v2", "gguf:jina-bert-v3", "gguf:eurobert", "gguf:t5encoder", "gguf:clip",
    ),
    "layers that share keys and values, and heads of more than one width": (
        "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gguf:gemma3n", "gguf:gemma4", "openelm",
        "gguf:openelm",
    ),
    "its fused projection is interleaved across model-parallel partitions": ("codegen",),
    "post-norm without a norm before the attention, and relative-position streams of its own": ("xlnet", "transfo-xl"),
}  # fmt: skip
REFUSED: dict[str, str] = {model_type: reason for reason, types in _REFUSALS.items() for model_type in types}
"""Model types that are known and not served, with the reason."""

_QUANTISED: dict[str, str] = {
    "gptq": "GPTQ", "awq": "AWQ", "bitsandbytes": "bitsandbytes", "compressed-tensors": "compressed-tensors",
    "fbgemm_fp8": "FBGEMM FP8",
    "modelopt": "ModelOpt", "fp8": "FP8", "mxfp4": "MXFP4",
    "hqq": "HQQ", "quanto": "Quanto", "aqlm": "AQLM", "eetq": "EETQ", "torchao": "torchao",
    "bitnet": "BitNet", "vptq": "VPTQ", "higgs": "HIGGS", "spqr": "SpQR", "auto-round": "AutoRound", "quark": "Quark",
}  # fmt: skip
MADE_WHEN_USED = "bitnet"
"""A method whose files may hold plain weights that are not those that the model uses: they are made ternary first."""


def quantisation_of(*configs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first ``quantization_config`` among the parts of a configuration, empty where there is none."""
    keys = ("quantization_config", "compression_config")
    found = (config.get(key) for config in configs for key in keys)
    return next((one for one in found if isinstance(one, Mapping) and one), {})


def quantisation_method(quantisation: Mapping[str, Any]) -> str:
    """Name the scheme of a ``quantization_config``; empty where there is none.

    What a file holds is decided by its tensors, not by this name: many schemes leave the attention as it is.
    """
    method = str(quantisation.get("quant_method") or quantisation.get("quant_algo") or "").lower()
    if not method and any(quantisation.get(key) for key in ("load_in_4bit", "load_in_8bit")):
        method = "bitsandbytes"
    return _QUANTISED.get(method, method or ("of an unnamed method" if quantisation else ""))
