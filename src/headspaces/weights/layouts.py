"""Where each architecture keeps its heads: one table, and the look-ups in it.

A :class:`~headspaces.weights.layout.Layout` is one row: the names of a layer's tensors, how a fused tensor is cut, and
which norms stand between the attention and the residual stream. To add an architecture, add a row
(``docs/architectures.md``).

Norms on queries and keys (``q_norm``, ``k_norm``) act inside a head, after the projection: they change which
queries match which keys and no read space, so no row names them. The same holds for rotary embeddings, attention
scales, clipping, residual multipliers and every bias.

Only the standard library is imported: layouts are looked up before any array is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS
from headspaces.weights.layout import Layout
from headspaces.weights.refused import REFUSED, check_quantisation

NO_PRE_NORM = "no norm before the attention: nothing is folded into the reads"

ROWS: tuple[Layout, ...] = (
    # Separate projections. The fields' defaults are the names of the Llama family.
    Layout(
        name="llama",
        model_types=(
            "llama", "mistral", "mixtral", "ministral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
            "smollm3", "gpt_oss", "granite", "granitemoe", "olmoe", "glm", "glm4_moe", "seed_oss", "arcee", "ernie4_5",
            "helium", "llama4_text", "hunyuan_v1_dense", "minimax_m2",
        ),
    ),
    Layout(name="apertus", model_types=("apertus",), read_norm="attention_layernorm.weight"),
    Layout(name="gemma", model_types=("gemma",), gain_offset=1.0),
    Layout(
        name="gemma2", model_types=("gemma2", "gemma3_text"), gain_offset=1.0,
        write_norm="post_attention_layernorm.weight",
    ),
    Layout(name="glm4", model_types=("glm4",), write_norm="post_self_attn_layernorm.weight"),
    Layout(name="olmo", model_types=("olmo",), norm="layernorm", read_norm=""),
    Layout(
        name="olmo2", model_types=("olmo2", "olmo3", "exaone4"), norm="none", read_norm="",
        write_norm="post_attention_layernorm.weight", note=NO_PRE_NORM,
    ),
    Layout(
        name="cohere", model_types=("cohere", "cohere2", "stablelm", "starcoder2", "phimoe"), norm="layernorm",
    ),
    Layout(name="nemotron", model_types=("nemotron",), norm="layernorm", gain_offset=1.0),
    Layout(name="phi", model_types=("phi",), o="self_attn.dense.weight", norm="layernorm"),
    Layout(
        name="gptj", model_types=("gptj",), layer="h.{layer}.", o="attn.out_proj.weight", q="attn.q_proj.weight",
        k="attn.k_proj.weight", v="attn.v_proj.weight", norm="layernorm", read_norm="ln_1.weight",
    ),
    Layout(
        name="gpt_neo", model_types=("gpt_neo",), layer="h.{layer}.", o="attn.attention.out_proj.weight",
        q="attn.attention.q_proj.weight", k="attn.attention.k_proj.weight", v="attn.attention.v_proj.weight",
        norm="layernorm", read_norm="ln_1.weight",
    ),
    Layout(
        name="opt", model_types=("opt",), o="self_attn.out_proj.weight", norm="layernorm",
        read_norm="self_attn_layer_norm.weight",
        when={"do_layer_norm_before": (True, True), "layer_norm_elementwise_affine": (True, True)},
    ),
    Layout(
        name="opt-post-norm", model_types=("opt",), o="self_attn.out_proj.weight", norm="none", read_norm="",
        when={"do_layer_norm_before": (False, True)},
        note=NO_PRE_NORM + " (the residual stream itself is normalised after every sublayer)",
    ),
    # Fused queries, keys and values.
    Layout(
        name="gpt2", model_types=("gpt2",), layer="h.{layer}.", o="attn.c_proj.weight", qkv="attn.c_attn.weight",
        split="flat", transposed=True, norm="layernorm", read_norm="ln_1.weight",
    ),
    Layout(
        name="nanogpt", model_types=("nanogpt",), layer="h.{layer}.", o="attn.c_proj.weight", qkv="attn.c_attn.weight",
        split="flat", norm="layernorm", read_norm="ln_1.weight",
    ),
    Layout(
        name="gpt_bigcode-multiquery", model_types=("gpt_bigcode",), layer="h.{layer}.", o="attn.c_proj.weight",
        qkv="attn.c_attn.weight", split="flat", norm="layernorm", read_norm="ln_1.weight",
        when={"multi_query": (True, True)}, kv_heads=(),
    ),
    Layout(
        name="gpt_bigcode-heads", model_types=("gpt_bigcode",), layer="h.{layer}.", o="attn.c_proj.weight",
        qkv="attn.c_attn.weight", split="heads", norm="layernorm", read_norm="ln_1.weight",
        when={"multi_query": (False, True)},
    ),
    Layout(
        name="gpt_neox", model_types=("gpt_neox",), o="attention.dense.weight", qkv="attention.query_key_value.weight",
        split="heads", norm="layernorm",
    ),
    Layout(
        name="persimmon", model_types=("persimmon",), o="self_attn.dense.weight",
        qkv="self_attn.query_key_value.weight", split="heads", norm="layernorm",
    ),
    Layout(
        name="bloom", model_types=("bloom",), layer="h.{layer}.", o="self_attention.dense.weight",
        qkv="self_attention.query_key_value.weight", split="heads", norm="layernorm",
    ),
    Layout(
        name="falcon-groups", model_types=("falcon",), layer="h.{layer}.", o="self_attention.dense.weight",
        qkv="self_attention.query_key_value.weight", split="groups", norm="layernorm", read_norm="ln_attn.weight",
        when={"new_decoder_architecture": (True, False), "num_ln_in_parallel_attn": (2, 2)}, kv_heads=("num_kv_heads",),
    ),
    Layout(
        name="falcon-groups-one-norm", model_types=("falcon",), layer="h.{layer}.", o="self_attention.dense.weight",
        qkv="self_attention.query_key_value.weight", split="groups", norm="layernorm",
        when={"new_decoder_architecture": (True, False), "num_ln_in_parallel_attn": (1, 2)}, kv_heads=("num_kv_heads",),
    ),
    Layout(
        name="falcon-multiquery", model_types=("falcon",), layer="h.{layer}.", o="self_attention.dense.weight",
        qkv="self_attention.query_key_value.weight", split="flat", norm="layernorm",
        when={"new_decoder_architecture": (False, False), "multi_query": (True, True)}, kv_heads=(),
    ),
    Layout(
        name="falcon-heads", model_types=("falcon",), layer="h.{layer}.", o="self_attention.dense.weight",
        qkv="self_attention.query_key_value.weight", split="heads", norm="layernorm",
        when={"new_decoder_architecture": (False, False), "multi_query": (False, True)},
    ),
    Layout(name="phi3", model_types=("phi3",), qkv="self_attn.qkv_proj.weight", split="flat"),
    Layout(
        name="mpt", model_types=("mpt",), layer="blocks.{layer}.", o="attn.out_proj.weight", qkv="attn.Wqkv.weight",
        split="flat", norm="layernorm", read_norm="norm_1.weight", kv_heads=(),
    ),
    # GGUF files. llama.cpp permutes the rows of Q and K inside a head, which leaves the head's space alone, and stores
    # Gemma's norms with the 1 already added.
    Layout(
        name="gguf-llama",
        model_types=tuple(
            f"gguf:{name}"
            for name in ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "granite", "smollm3", "mistral3")
        ),
        layer="blk.{layer}.", o="attn_output.weight", q="attn_q.weight", k="attn_k.weight", v="attn_v.weight",
        read_norm="attn_norm.weight",
    ),
    Layout(
        name="gguf-gemma2", model_types=("gguf:gemma2", "gguf:gemma3"), layer="blk.{layer}.", o="attn_output.weight",
        q="attn_q.weight", k="attn_k.weight", v="attn_v.weight", read_norm="attn_norm.weight",
        write_norm="post_attention_norm.weight",
    ),
    Layout(
        name="gguf-gpt2", model_types=("gguf:gpt2",), layer="blk.{layer}.", o="attn_output.weight",
        qkv="attn_qkv.weight", split="flat", norm="layernorm", read_norm="attn_norm.weight",
    ),
    Layout(
        name="gguf-phi3", model_types=("gguf:phi3",), layer="blk.{layer}.", o="attn_output.weight",
        qkv="attn_qkv.weight", split="flat", read_norm="attn_norm.weight",
    ),
)  # fmt: skip
"""The table."""

LAYOUTS: dict[str, Layout] = {row.name: row for row in ROWS}
"""The rows by name."""

NORMALISED_STREAM = {
    "opt-post-norm": "the residual stream is normalised after every sublayer: no write reaches a later head directly",
}
"""Layouts without the direct path that the activations measure."""

_WRAPPERS = ("", "_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", "model.")
_ROOTS = (
    "", "transformer.", "model.", "gpt_neox.", "decoder.", "model.decoder.", "model.language_model.",
    "language_model.model.", "language_model.",
)  # fmt: skip
PREFIXES = tuple(dict.fromkeys(wrapper + root for wrapper in _WRAPPERS for root in _ROOTS))
"""What may stand before a layer's names: the model's own root, and what compiling or parallel wrappers add."""


def find_layout(config: Mapping[str, Any], where: str) -> tuple[Layout, Mapping[str, Any]]:
    """Choose the row for a configuration.

    Parameters
    ----------
    config
        Content of ``config.json``, or a GGUF file's metadata under the same names.
    where
        The checkpoint, for messages.

    Returns
    -------
    The row, and the part of the configuration that describes the decoder (``text_config`` of a multimodal model).

    Raises
    ------
    InputError
        If the model type is missing, refused or unknown (a layout is never guessed), or the weights are quantised.
    """
    model_type = config.get("model_type")
    served = ", ".join(known_model_types())
    if not model_type:
        raise InputError(f"{where}: the configuration names no model_type; known are {served}")
    if not isinstance(model_type, str):
        raise InputError(
            f"{where}: the configuration's model_type is {model_type!r}, expected text; known are {served}"
        )
    check_quantisation(config, where)
    if model_type in REFUSED:
        raise InputError(f"{where}: {model_type} is not supported: {REFUSED[model_type]}")
    if config.get("is_encoder_decoder") or config.get("add_cross_attention"):
        raise InputError(f"{where}: {model_type} is not supported: cross-attention layers read another stream")
    rows = [row for row in ROWS if model_type in row.model_types]
    for row in rows:
        if all(_value(config, key, default) == value for key, (value, default) in row.when.items()):
            return row, config
    if rows:
        chosen = {key: config.get(key) for row in rows for key in row.when}
        raise InputError(f"{where}: no layout of {model_type} fits {chosen}; see docs/architectures.md to add it")
    if isinstance(config.get("text_config"), Mapping):
        return find_layout(config["text_config"], where)
    if config.get("auto_map"):
        raise InputError(
            f"{where}: {model_type!r} is defined by code in its own repository (auto_map), which is never run; "
            "to add its layout, see docs/architectures.md"
        )
    raise InputError(
        f"{where}: unknown model_type {model_type!r}; known are {served}. To add one, see docs/architectures.md"
    )


def known_model_types() -> list[str]:
    """All model types that the table serves, sorted."""
    return sorted({model_type for row in ROWS for model_type in row.model_types})


def find_prefix(layout: Layout, names: Iterable[str], where: str) -> str:
    """Find what stands before the layer names in a checkpoint.

    Raises
    ------
    InputError
        If no prefix fits, or more than one does.
    """
    found = set(names)
    first = layout.layer.format(layer=0)
    wanted = [first + layout.tensor(kind) for kind in KINDS]
    fitting = [prefix for prefix in PREFIXES if any(prefix + name in found for name in wanted)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError(
            f"{where}: layer 0 exists under the prefixes {', '.join(map(repr, fitting))}; expected one decoder"
        )
    raise InputError(
        f"{where}: missing tensor {wanted[0]!r} (nor under a prefix such as 'model.' or 'transformer.'), needed by the "
        f"layout {layout.name}; the first tensor there is {min(found, default='none at all')!r}"
    )


def n_layers_present(layout: Layout, prefix: str, names: Iterable[str]) -> int:
    """Return one more than the highest layer of which any attention tensor is there."""
    before, after = (prefix + layout.layer).split("{layer}")
    tensors = {layout.tensor(kind) for kind in KINDS}
    numbers = [-1]
    for name in names:
        number, dot, rest = name[len(before) :].partition(after) if name.startswith(before) else ("", "", "")
        # Seven digits are more layers than any decoder has; a longer number is no layer.
        if dot and number.isdecimal() and len(number) < 8 and rest in tensors:
            numbers.append(int(number))
    return max(numbers) + 1


def available_kinds(layout: Layout, prefix: str, names: Iterable[str], kinds: str) -> str:
    """Return those of the given kinds that the checkpoint holds in at least one layer."""
    found = set(names)
    starts = [prefix + layout.layer.format(layer=layer) for layer in range(n_layers_present(layout, prefix, found))]
    return "".join(kind for kind in kinds if any(start + layout.tensor(kind) in found for start in starts))


def _value(config: Mapping[str, Any], key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value
