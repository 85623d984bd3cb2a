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

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS
from headspaces.weights.known_forms import known_form
from headspaces.weights.layout import Layout
from headspaces.weights.refused import REFUSED

NO_PRE_NORM = "no norm before the attention: nothing is folded into the reads"


def _gguf(name: str, *architectures: str, read_norm: str = "attn_norm.weight", **fields: Any) -> Layout:
    """Give a row for GGUF files, with llama.cpp's names of the tensors."""
    return Layout(
        name=name, model_types=tuple(f"gguf:{architecture}" for architecture in architectures), layer="blk.{layer}.",
        o="attn_output.weight", q="attn_q.weight", k="attn_k.weight", v="attn_v.weight", read_norm=read_norm, **fields,
    )  # fmt: skip


ROWS: tuple[Layout, ...] = (
    # Separate projections. The fields' defaults are the names of the Llama family.
    Layout(
        name="llama",
        model_types=(
            "llama", "mistral", "mixtral", "ministral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
            "smollm3", "gpt_oss", "granite", "granitemoe", "olmoe", "glm", "glm4_moe", "seed_oss", "arcee", "ernie4_5",
            "helium", "llama4_text", "hunyuan_v1_dense", "minimax_m2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl",
            "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text", "glm4v_moe_text",
        ),
    ),
    Layout(name="apertus", model_types=("apertus",), read_norm="attention_layernorm.weight"),
    Layout(name="gemma", model_types=("gemma",), gain_offset=1.0),
    Layout(
        name="gemma2", model_types=("gemma2", "gemma3_text"), gain_offset=1.0,
        write_norm="post_attention_layernorm.weight",
    ),
    Layout(name="glm4", model_types=("glm4", "glm4v_text"), write_norm="post_self_attn_layernorm.weight"),
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
    # GGUF files. llama.cpp permutes the rows of Q and K inside a head, which leaves the head's space alone, stores
    # fused tensors as all queries, all keys, all values, and Gemma's and Nemotron's norms with the 1 added. In some
    # families `post_attention_norm` is the norm before the MLP: it is a row's `write_norm` only where it is not.
    _gguf(
        "gguf-llama", "llama", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "gemma",
        "granite", "granitemoe", "smollm3", "mistral3", "gpt-oss", "glm4moe", "seed_oss", "arcee", "ernie4_5", "llama4",
        "hunyuan-dense", "minimax-m2", "olmoe", "apertus", "chatglm", when={"attn_qkv": (False, False)},
    ),
    _gguf("gguf-gemma2", "gemma2", "gemma3", "glm4", write_norm="post_attention_norm.weight"),
    _gguf("gguf-olmo", "olmo", norm="layernorm", read_norm=""),
    _gguf(
        "gguf-olmo2", "olmo2", "exaone4", norm="none", read_norm="", write_norm="post_attention_norm.weight",
        note=NO_PRE_NORM,
    ),
    _gguf(
        "gguf-cohere", "command-r", "cohere2", "stablelm", "starcoder2", "phimoe", "nemotron", "phi2",
        norm="layernorm", when={"attn_qkv": (False, False)},
    ),
    _gguf(
        "gguf-gpt2", "gpt2", "gptneox", "bloom", "mpt", "starcoder", "falcon", qkv="attn_qkv.weight", split="flat",
        norm="layernorm", when={"attn_norm_2": (False, False)},
    ),
    _gguf(
        "gguf-falcon-two-norms", "falcon", qkv="attn_qkv.weight", split="flat", norm="layernorm",
        read_norm="attn_norm_2.weight", when={"attn_norm_2": (True, False)},
    ),
    _gguf("gguf-phi3", "phi3", qkv="attn_qkv.weight", split="flat"),
)  # fmt: skip
"""The table."""

LAYOUTS: dict[str, Layout] = {row.name: row for row in ROWS}
"""The rows by name."""

NORMALISED_STREAM = {
    "opt-post-norm": "the residual stream is normalised after every sublayer: no write reaches a later head directly",
}
"""Layouts without the direct path that the activations measure."""

_PREFIX_WORDS = frozenset({
    # The model's own root, and the decoder's place in a model that also sees or hears.
    "model", "transformer", "gpt_neox", "decoder", "language_model", "language", "text_model", "llm", "thinker",
    # What compiling, parallel training and checkpointing add.
    "module", "_orig_mod", "_fsdp_wrapped_module", "_forward_module", "_checkpoint_wrapped_module",
})  # fmt: skip
"""The words of which everything that stands before a layer's names may be made; a vision tower's are not among them."""

_DECODERS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where the configuration of a model that also sees or hears keeps its decoder's."""


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
    The row, and the part of the configuration that describes the decoder (``text_config``, ``llm_config`` or
    ``language_config`` of a model that also sees or hears).

    Raises
    ------
    InputError
        If the model type is missing, refused or unknown (a layout is never guessed).
    """
    model_type = config.get("model_type")
    served = ", ".join(known_model_types())
    if not model_type:
        raise InputError(f"{where}: the configuration names no model_type; known are {served}")
    if not isinstance(model_type, str):
        raise InputError(
            f"{where}: the configuration's model_type is {model_type!r}, expected text; known are {served}"
        )
    if model_type in REFUSED:
        raise InputError(f"{where}: {model_type} is not supported: {REFUSED[model_type]}")
    if config.get("is_encoder_decoder") or config.get("add_cross_attention"):
        raise InputError(f"{where}: {model_type} is not supported: cross-attention layers read another stream")
    if shared := next((key for key in ("num_kv_shared_layers", "use_cla") if config.get(key)), None):
        raise InputError(f"{where}: {model_type} is not supported: layers share keys and values ({shared})")
    for key in _DECODERS:
        # A decoder's own configuration goes before the model type of what is built around it.
        if isinstance(config.get(key), Mapping) and config[key].get("model_type"):
            return find_layout(config[key], f"{where} ({key})")
    rows = [row for row in ROWS if model_type in row.model_types]
    for row in rows:
        if all(value_of(config, key, default) == value for key, (value, default) in row.when.items()):
            return row, config
    if rows:
        chosen = {key: config.get(key) for row in rows for key in row.when}
        raise InputError(f"{where}: no layout of {model_type} fits {chosen}; see docs/architectures.md to add it")
    if config.get("auto_map"):
        raise InputError(
            f"{where}: {model_type!r} is defined by code in its own repository (auto_map), which is never run; "
            "to add its layout, see docs/architectures.md"
        )
    if model_type.startswith("gguf:"):
        known = ", ".join(name.removeprefix("gguf:") for name in known_model_types() if name.startswith("gguf:"))
        raise InputError(
            f"{where}: the GGUF architecture {model_type.removeprefix('gguf:')!r} is not served; served are {known}. "
            "The original folder may be; to add the architecture, see docs/architectures.md"
        )
    raise InputError(
        f"{where}: unknown model_type {model_type!r}; known are {served}. To add one, see docs/architectures.md"
    )


def of_several_parts(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration is of a model that also sees or hears, with a decoder inside."""
    parts = (*_DECODERS, "vision_config", "audio_config")
    return any(isinstance(config.get(key), Mapping) for key in parts)


def known_model_types() -> list[str]:
    """All model types that the table serves, sorted."""
    return sorted({model_type for row in ROWS for model_type in row.model_types})


def find_prefix(layout: Layout, names: Collection[str], where: str) -> str:
    """Find what stands before the layer names in a checkpoint.

    Raises
    ------
    InputError
        If no prefix fits, or more than one does.
    """
    first = layout.layer.format(layer=0)
    wanted = [first + layout.tensor(kind) for kind in KINDS]
    # Packed weights keep the module's name and not the tensor's.
    modules = tuple("." + name.removesuffix("weight") for name in wanted)
    found: dict[str, str] = {}
    for name in names:
        place = next((at for at in map(("." + name).find, modules) if at >= 0), -1)
        if place >= 0:
            found.setdefault(name[:place], name)
    fitting = [
        prefix for prefix in found if _PREFIX_WORDS.issuperset(prefix.split(".")[:-1]) and prefix[-1:] in ("", ".")
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError(
            f"{where}: layer 0 exists under the prefixes {', '.join(map(repr, sorted(fitting)))}; expected one decoder"
        )
    raise InputError(f"{where}: {_why_no_layer(wanted[0], found, names, layout.name)}")


def _why_no_layer(wanted: str, found: Mapping[str, str], names: Collection[str], layout: str) -> str:
    if form := known_form(names):
        return form
    if found:
        return (
            f"no decoder's attention: such tensors stand only as {', '.join(map(repr, sorted(found.values())[:3]))}, "
            f"which is no known place of a decoder; expected {wanted!r}, as it is or under 'model.' or the like"
        )
    return (
        f"missing tensor {wanted!r} (nor under a prefix such as 'model.' or 'transformer.'), needed by the "
        f"layout {layout}; the first tensor there is {min(names, default='none at all')!r}"
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


def value_of(config: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return the value of a configuration's key; the default where it is not there, or null."""
    value = config.get(key)
    return default if value is None else value
