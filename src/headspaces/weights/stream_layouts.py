"""Where each architecture keeps the rest of its residual stream: one table beside that of the heads.

A :class:`~headspaces.weights.stream_row.StreamRow` is one row; the fields' defaults are the names of the Llama family.
Kinds and gains of norms are those of the heads' row (:mod:`headspaces.weights.layouts`) unless the row says otherwise.
Biases, activation functions, scales of embeddings and residuals, and soft caps are in no operator: none of them changes
a score. Only the standard library is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.layouts import NORMALISED_STREAM, value_of
from headspaces.weights.stream_row import StreamRow

MIXTURE = "the MLP is a mixture of experts: it is left out of the stream"
_NO_MLP: dict[str, Any] = {"gate": "", "up": "", "down": "", "mlp_norm": ""}
_GPT: dict[str, Any] = {"embedding": "wte.weight", "final_norm": "ln_f.weight", "up": ""}
_CONV: dict[str, Any] = _GPT | {"gate": "mlp.c_fc.weight", "down": "mlp.c_proj.weight", "mlp_norm": "ln_2.weight"}
_WIDE: dict[str, Any] = {"gate": "mlp.dense_h_to_4h.weight", "up": "", "down": "mlp.dense_4h_to_h.weight"}
_FALCON: dict[str, Any] = _WIDE | {"embedding": "word_embeddings.weight", "final_norm": "ln_f.weight"}
_ONE_INPUT: dict[str, Any] = {"gate": "mlp.up_proj.weight", "up": ""}
_FUSED: dict[str, Any] = {"gate": "", "up": "", "gate_up": "mlp.gate_up_proj.weight"}


def _gguf(*architectures: str, **fields: Any) -> StreamRow:
    """Give a row for GGUF files, with llama.cpp's names of the tensors."""
    names: dict[str, Any] = {
        "embedding": "token_embd.weight", "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight",
        "mlp_norm": "ffn_norm.weight", "final_norm": "output_norm.weight", "unembedding": "output.weight",
    }  # fmt: skip
    return StreamRow(model_types=tuple(f"gguf:{name}" for name in architectures), **names | fields)


_GGUF_ONE_INPUT: dict[str, Any] = {"gate": "ffn_up.weight", "up": ""}
_GGUF_FUSED: dict[str, Any] = {"gate": "", "up": "", "gate_up": "ffn_up.weight"}

ROWS: tuple[StreamRow, ...] = (
    StreamRow(
        model_types=(
            "llama", "mistral", "ministral", "ministral3", "qwen2", "qwen3", "smollm3", "granite", "seed_oss",
            "ernie4_5", "helium", "hunyuan_v1_dense", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text",
            "qwen3_vl_text", "gemma",
        ),
    ),
    StreamRow(
        model_types=(
            "mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "granitemoe", "olmoe", "glm4_moe", "llama4_text",
            "minimax_m2", "phimoe", "qwen3_vl_moe_text", "glm4v_moe_text",
        ),
        note=MIXTURE, **_NO_MLP,
    ),
    StreamRow(model_types=("arcee", "nemotron"), **_ONE_INPUT),
    StreamRow(model_types=("apertus",), mlp_norm="feedforward_layernorm.weight", **_ONE_INPUT),
    StreamRow(model_types=("glm", "phi3"), **_FUSED),
    StreamRow(model_types=("glm4", "glm4v_text"), mlp_write_norm="post_mlp_layernorm.weight", **_FUSED),
    StreamRow(
        model_types=("gemma2", "gemma3_text"), mlp_norm="pre_feedforward_layernorm.weight",
        mlp_write_norm="post_feedforward_layernorm.weight",
    ),
    StreamRow(model_types=("olmo",), mlp_norm="", final_norm=""),
    StreamRow(
        model_types=("olmo2", "olmo3", "exaone4"), mlp_norm="", mlp_write_norm="post_feedforward_layernorm.weight",
        final_norm_kind="rmsnorm",
    ),
    StreamRow(model_types=("cohere", "cohere2"), mlp_norm="input_layernorm.weight", parallel=True),
    StreamRow(model_types=("stablelm",), when={"use_parallel_residual": (False, False)}),
    StreamRow(
        model_types=("stablelm",), mlp_norm="input_layernorm.weight", when={"use_parallel_residual": (True, False)},
        parallel=True,
    ),
    StreamRow(model_types=("starcoder2",), gate="mlp.c_fc.weight", up="", down="mlp.c_proj.weight"),
    StreamRow(
        model_types=("phi",), gate="mlp.fc1.weight", up="", down="mlp.fc2.weight", mlp_norm="input_layernorm.weight",
        final_norm="final_layernorm.weight", parallel=True,
    ),
    StreamRow(
        model_types=("gptj",), gate="mlp.fc_in.weight", down="mlp.fc_out.weight", mlp_norm="ln_1.weight", parallel=True,
        **_GPT,
    ),
    StreamRow(
        model_types=("opt",), when={"do_layer_norm_before": (True, True), "_remove_final_layer_norm": (False, False)},
        positions="embed_positions.weight", positions_skipped=2, gate="fc1.weight", up="", down="fc2.weight",
        mlp_norm="final_layer_norm.weight", final_norm="final_layer_norm.weight",
    ),
    StreamRow(model_types=("gpt2", "nanogpt", "gpt_neo", "gpt_bigcode"), positions="wpe.weight", **_CONV),
    StreamRow(
        model_types=("gpt_neox",), when={"use_parallel_residual": (True, True)}, embedding="embed_in.weight",
        final_norm="final_layer_norm.weight", unembedding="embed_out.weight", parallel=True, **_WIDE,
    ),
    StreamRow(
        model_types=("gpt_neox",), when={"use_parallel_residual": (False, True)}, embedding="embed_in.weight",
        final_norm="final_layer_norm.weight", unembedding="embed_out.weight", **_WIDE,
    ),
    StreamRow(model_types=("persimmon",), final_norm="final_layernorm.weight", **_WIDE),
    StreamRow(
        model_types=("bloom",), when={"apply_residual_connection_post_layernorm": (False, False)},
        embedding_norm="word_embeddings_layernorm.weight", **_FALCON,
    ),
    StreamRow(
        model_types=("falcon",), when={"new_decoder_architecture": (True, False), "num_ln_in_parallel_attn": (2, 2)},
        mlp_norm="ln_mlp.weight", parallel=True, **_FALCON,
    ),
    StreamRow(
        model_types=("falcon",), when={"new_decoder_architecture": (True, False), "num_ln_in_parallel_attn": (1, 2)},
        mlp_norm="input_layernorm.weight", parallel=True, **_FALCON,
    ),
    StreamRow(
        model_types=("falcon",), when={"new_decoder_architecture": (False, False), "parallel_attn": (True, True)},
        mlp_norm="input_layernorm.weight", parallel=True, **_FALCON,
    ),
    StreamRow(
        model_types=("falcon",), when={"new_decoder_architecture": (False, False), "parallel_attn": (False, True)},
        **_FALCON,
    ),
    StreamRow(
        model_types=("mpt",), embedding="wte.weight", final_norm="norm_f.weight", gate="ffn.up_proj.weight", up="",
        down="ffn.down_proj.weight", mlp_norm="norm_2.weight",
    ),
    # GGUF files. Gains of Gemma and Nemotron have their 1 added already.
    _gguf(
        "llama", "qwen2", "qwen2vl", "qwen3", "qwen3vl", "gemma", "granite", "smollm3", "mistral3", "ernie4_5",
        "hunyuan-dense",
    ),
    _gguf(
        "qwen2moe", "qwen3moe", "qwen3vlmoe", "granitemoe", "gpt-oss", "glm4moe", "llama4", "minimax-m2", "olmoe",
        "phimoe", note=MIXTURE, **_NO_MLP,
    ),
    _gguf("seed_oss", mlp_norm="post_attention_norm.weight"),
    _gguf("arcee", "apertus", "starcoder2", "nemotron", "mpt", **_GGUF_ONE_INPUT),
    _gguf("gpt2", "starcoder", positions="position_embd.weight", **_GGUF_ONE_INPUT),
    _gguf("bloom", embedding_norm="token_embd_norm.weight", **_GGUF_ONE_INPUT),
    _gguf("chatglm", "phi3", **_GGUF_FUSED),
    _gguf("glm4", mlp_write_norm="post_ffw_norm.weight", **_GGUF_FUSED),
    _gguf("gemma2", "gemma3", mlp_write_norm="post_ffw_norm.weight"),
    _gguf("olmo", mlp_norm="", final_norm=""),
    _gguf("olmo2", "exaone4", mlp_norm="", mlp_write_norm="post_ffw_norm.weight", final_norm_kind="rmsnorm"),
    _gguf("command-r", "cohere2", mlp_norm="attn_norm.weight", parallel=True),
    _gguf("stablelm", when={"ffn_norm": (True, True)}),
    _gguf("stablelm", mlp_norm="attn_norm.weight", when={"ffn_norm": (False, True)}, parallel=True),
    _gguf("phi2", "falcon", mlp_norm="attn_norm.weight", parallel=True, **_GGUF_ONE_INPUT),
    _gguf("gptneox", when={"use_parallel_residual": (True, True)}, parallel=True, **_GGUF_ONE_INPUT),
    _gguf("gptneox", when={"use_parallel_residual": (False, True)}, **_GGUF_ONE_INPUT),
)  # fmt: skip
"""The table."""


def find_stream_row(layout: str, model_type: str, config: Mapping[str, Any], where: str) -> StreamRow:
    """Choose the row for a configuration.

    Parameters
    ----------
    layout
        Name of the heads' row.
    model_type, config
        The decoder's architecture and configuration.
    where
        The checkpoint, for messages.

    Raises
    ------
    InputError
        If the architecture has no row: where a stream runs is never guessed.
    """
    if layout in NORMALISED_STREAM:
        raise InputError(f"{where}: the stream of {layout} is not served: {NORMALISED_STREAM[layout]}")
    rows = [row for row in ROWS if model_type in row.model_types]
    for row in rows:
        if all(value_of(config, key, default) == value for key, (value, default) in row.when.items()):
            return row
    if rows:
        chosen = {key: config.get(key) for row in rows for key in row.when}
        raise InputError(f"{where}: the stream of {model_type} is not served with {chosen}; leave stream false")
    raise InputError(
        f"{where}: the stream of {model_type!r} is not served: no row of weights/stream_layouts.py names its MLP and "
        "embedding; add one, or leave stream false"
    )
