"""What is known and not served, with the reason: architectures without per-head residual spaces, packed weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspaces.errors import InputError

_REFUSALS: dict[str, tuple[str, ...]] = {
    "multi-head latent attention: keys and values come from a compressed stream, not from the residual stream": (
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "kimi_k2", "kimi_k25", "minicpm3",
        "glm4_moe_lite", "glm_moe_dsa", "longcat_flash", "sarvam_mla", "youtu", "mistral4", "mistral_large4_text",
        "axk1", "axk2", "dots3_note_text", "hy_v4", "gguf:deepseek2", "gguf:minicpm3",
    ),
    "state-space, convolution or linear-attention layers in place of all or some attention layers": (
        "mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "jamba", "bamba", "zamba", "zamba2", "falcon_h1",
        "nemotron_h", "granitemoehybrid", "recurrent_gemma", "lfm2", "lfm2_moe", "lfm3", "qwen3_next", "qwen3_5",
        "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp_text", "kimi_linear", "minimax", "olmo_hybrid",
        "bailing_hybrid", "glm5_next", "inkling_text", "gguf:mamba", "gguf:mamba2", "gguf:jamba", "gguf:rwkv6",
        "gguf:rwkv7", "gguf:lfm2", "gguf:falcon-h1", "gguf:qwen3next",
    ),
    "cross-attention layers read another stream than the residual stream": ("mllama", "mllama_text_model", "blt"),
    "an encoder and a decoder with cross-attention, not one decoder": (
        "t5", "mt5", "umt5", "longt5", "switch_transformers", "t5gemma", "t5gemma2", "bart", "mbart", "pegasus",
        "marian", "m2m_100", "blenderbot", "led", "prophetnet", "whisper", "encoder-decoder", "fsmt", "nllb-moe",
    ),
    "an encoder, not a decoder": (
        "bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert", "deberta", "deberta-v2", "modernbert",
        "mpnet", "esm", "vit", "clip",
    ),
    "layers that share keys and values, and heads of more than one width": (
        "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gguf:gemma3n", "gguf:gemma4", "openelm",
    ),
    "its fused projection is interleaved across model-parallel partitions": ("codegen",),
    "post-norm without a norm before the attention, and relative-position streams of its own": ("xlnet", "transfo-xl"),
}  # fmt: skip
REFUSED: dict[str, str] = {model_type: reason for reason, types in _REFUSALS.items() for model_type in types}
"""Model types that are known and not served, with the reason."""

_QUANTISED: dict[str, str] = {
    "gptq": "GPTQ", "awq": "AWQ", "bitsandbytes": "bitsandbytes", "compressed-tensors": "compressed-tensors",
    "fbgemm_fp8": "FBGEMM FP8", "hqq": "HQQ", "quanto": "Quanto", "aqlm": "AQLM", "eetq": "EETQ", "torchao": "torchao",
    "bitnet": "BitNet", "vptq": "VPTQ", "higgs": "HIGGS", "spqr": "SpQR", "auto-round": "AutoRound", "quark": "Quark",
}  # fmt: skip
_KEPT_OR_SCALED = ("mxfp4", "fp8")
"""Schemes that are served: MXFP4 (GPT-OSS) packs the experts and leaves the attention alone; FP8 has block scales."""


def check_quantisation(config: Mapping[str, Any], where: str) -> None:
    """Refuse a configuration that says its weights are packed.

    Raises
    ------
    InputError
        Naming the scheme.
    """
    quantisation = config.get("quantization_config") or {}
    method = str(quantisation.get("quant_method", "")).lower() if isinstance(quantisation, Mapping) else "unnamed"
    if isinstance(quantisation, Mapping) and not method:
        packed = [key for key in ("load_in_4bit", "load_in_8bit") if quantisation.get(key)]
        method = "bitsandbytes" if packed else "unnamed" if quantisation else ""
    if method and method not in _KEPT_OR_SCALED:
        raise InputError(
            f"{where}: the weights are quantised ({_QUANTISED.get(method, method)}): the file holds codes, not the "
            "weights; use the original checkpoint or a GGUF file"
        )
