"""The checkpoints of the paper study as their headers describe them: every tensor's name, type and shape, no numbers.

Configurations, names, types and shapes are those of the published checkpoints; which tensor lies in which shard and at
which byte is made up here (in order, shards of at most 4 GB), and so are the commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from support.hub_double import Content

Tensor = tuple[str, str, tuple[int, ...]]
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}
SHARD = 4 * 10**9

_QWEN25 = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
}  # fmt: skip
CONFIGS: dict[str, dict[str, object]] = {
    "openai-community/gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257},
    "Qwen/Qwen2.5-7B": _QWEN25,
    "Qwen/Qwen2.5-7B-Instruct": _QWEN25,
    "Qwen/Qwen3-235B-A22B": {
        "model_type": "qwen3_moe", "hidden_size": 4096, "head_dim": 128, "num_hidden_layers": 94,
        "num_attention_heads": 64, "num_key_value_heads": 4, "num_experts": 128,
        "moe_intermediate_size": 1536, "vocab_size": 151936,
    },
    "EleutherAI/pythia-70m": {
        "model_type": "gpt_neox", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6,
        "num_attention_heads": 8, "vocab_size": 50304,
    },
    "bigscience/bloom-560m": {
        "model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880,
    },
    "Qwen/Qwen2-0.5B-Instruct": {
        "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    },
}  # fmt: skip


def tensors_of(repository: str) -> Iterator[Tensor]:
    """Every tensor of a checkpoint, in the order of its files."""
    config = CONFIGS[repository]
    yield from {"gpt2": _gpt2, "gpt_neox": _neox, "bloom": _bloom}.get(str(config["model_type"]), _qwen)(config)


def repository_files(repository: str) -> dict[str, Content]:
    """Files of a repository for the Hub double: headers, then zeros."""
    tensors = list(tensors_of(repository))
    files: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if filled and filled + _bytes(tensor) > SHARD:
            files.append([])
            filled = 0
        files[-1].append(tensor)
        filled += _bytes(tensor)
    contents = {"config.json": Content.of(json.dumps(CONFIGS[repository]).encode(), large=False)}
    if len(files) == 1:
        return contents | {"model.safetensors": header_file(files[0])}
    names = [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    placed = {tensor[0]: name for name, inside in zip(names, files, strict=True) for tensor in inside}
    index = json.dumps({"metadata": {}, "weight_map": placed}).encode()
    contents["model.safetensors.index.json"] = Content.of(index, large=False)
    return contents | {name: header_file(inside) for name, inside in zip(names, files, strict=True)}


def _bytes(tensor: Tensor, sizes: Mapping[str, int] = BYTES) -> int:
    size = sizes[tensor[1]]
    for length in tensor[2]:
        size *= length
    return size


def header_file(tensors: list[Tensor], sizes: Mapping[str, int] = BYTES) -> Content:
    """Give a safetensors file of such tensors: its header, then zeros."""
    header, position = {}, 0
    for tensor in tensors:
        name, dtype, shape = tensor
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [position, position + (own := _bytes(tensor, sizes))],
        }
        position += own
    text = json.dumps(header).encode()
    return Content(len(text).to_bytes(8, "little") + text, 8 + len(text) + position, large=True)


def _gpt2(config) -> Iterator[Tensor]:
    d = config["n_embd"]
    for layer in range(config["n_layer"]):
        start = f"h.{layer}."
        yield f"{start}attn.bias", "F32", (1, 1, 1024, 1024)
        yield f"{start}attn.c_attn.bias", "F32", (3 * d,)
        yield f"{start}attn.c_attn.weight", "F32", (d, 3 * d)
        yield f"{start}attn.c_proj.bias", "F32", (d,)
        yield f"{start}attn.c_proj.weight", "F32", (d, d)
        yield from (
            (f"{start}{name}", "F32", (d,)) for name in ("ln_1.bias", "ln_1.weight", "ln_2.bias", "ln_2.weight")
        )
        yield f"{start}mlp.c_fc.weight", "F32", (d, 4 * d)
        yield f"{start}mlp.c_proj.weight", "F32", (4 * d, d)
    yield "wte.weight", "F32", (config["vocab_size"], d)


def _neox(config) -> Iterator[Tensor]:
    d = config["hidden_size"]
    for layer in range(config["num_hidden_layers"]):
        start = f"gpt_neox.layers.{layer}."
        yield f"{start}attention.bias", "U8", (1, 1, 2048, 2048)
        yield f"{start}attention.dense.bias", "F16", (d,)
        yield f"{start}attention.dense.weight", "F16", (d, d)
        yield f"{start}attention.query_key_value.bias", "F16", (3 * d,)
        yield f"{start}attention.query_key_value.weight", "F16", (3 * d, d)
        yield f"{start}input_layernorm.bias", "F16", (d,)
        yield f"{start}input_layernorm.weight", "F16", (d,)
        yield f"{start}mlp.dense_4h_to_h.weight", "F16", (d, config["intermediate_size"])
        yield f"{start}mlp.dense_h_to_4h.weight", "F16", (config["intermediate_size"], d)
    yield "gpt_neox.embed_in.weight", "F16", (config["vocab_size"], d)


def _bloom(config) -> Iterator[Tensor]:
    d = config["n_embed"]
    for layer in range(config["n_layer"]):
        start = f"h.{layer}."
        yield f"{start}input_layernorm.bias", "F16", (d,)
        yield f"{start}input_layernorm.weight", "F16", (d,)
        yield f"{start}mlp.dense_4h_to_h.weight", "F16", (d, 4 * d)
        yield f"{start}mlp.dense_h_to_4h.weight", "F16", (4 * d, d)
        yield f"{start}self_attention.dense.bias", "F16", (d,)
        yield f"{start}self_attention.dense.weight", "F16", (d, d)
        yield f"{start}self_attention.query_key_value.bias", "F16", (3 * d,)
        yield f"{start}self_attention.query_key_value.weight", "F16", (3 * d, d)
    yield "word_embeddings.weight", "F16", (config["vocab_size"], d)


def _qwen(config) -> Iterator[Tensor]:
    d, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim") or d // heads
    keys = config["num_key_value_heads"] * width
    yield "model.embed_tokens.weight", "BF16", (config["vocab_size"], d)
    for layer in range(config["num_hidden_layers"]):
        start = f"model.layers.{layer}."
        yield f"{start}input_layernorm.weight", "BF16", (d,)
        yield from _mlp(config, start)
        yield f"{start}post_attention_layernorm.weight", "BF16", (d,)
        for name, shape in (
            ("k_proj", (keys, d)),
            ("o_proj", (d, heads * width)),
            ("q_proj", (heads * width, d)),
            ("v_proj", (keys, d)),
        ):
            if config["model_type"] == "qwen2" and name != "o_proj":
                yield f"{start}self_attn.{name}.bias", "BF16", shape[:1]
            if config["model_type"] == "qwen3_moe" and name in ("k_proj", "q_proj"):
                yield f"{start}self_attn.{name[0]}_norm.weight", "BF16", (width,)
            yield f"{start}self_attn.{name}.weight", "BF16", shape


def _mlp(config, start: str) -> Iterator[Tensor]:
    d = config["hidden_size"]
    experts = [f"mlp.experts.{expert}." for expert in range(config.get("num_experts", 0))]
    inner = config["moe_intermediate_size"] if experts else config["intermediate_size"]
    for expert in experts or ["mlp."]:
        yield f"{start}{expert}down_proj.weight", "BF16", (d, inner)
        yield f"{start}{expert}gate_proj.weight", "BF16", (inner, d)
        yield f"{start}{expert}up_proj.weight", "BF16", (inner, d)
