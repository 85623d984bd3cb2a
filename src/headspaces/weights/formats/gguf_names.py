"""A GGUF file's metadata under the names of Hugging Face configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_NAMES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "nextn_predict_layers": "num_nextn_predict_layers",
}
_TELLING = ("attn_qkv", "attn_norm_2")
"""Tensors of layer 0 whose presence chooses between two layouts of an architecture, as in llama.cpp itself."""


def gguf_config(values: Mapping[str, Any], tensors: Iterable[str]) -> dict[str, Any]:
    """Rename the metadata of a GGUF file.

    Parameters
    ----------
    values
        The metadata under the file's own names.
    tensors
        Names of the file's tensors.

    Returns
    -------
    A configuration: ``model_type`` is ``gguf:ARCHITECTURE``; ``num_hidden_layers`` is without the prediction layers
    that ``block_count`` includes; ``attn_qkv`` and ``attn_norm_2`` say whether layer 0 has a tensor of that name.
    """
    architecture, present = str(values.get("general.architecture", "")), set(tensors)
    named = {name: values.get(f"{architecture}.{key}") for key, name in _NAMES.items()}
    layers, predicted = named["num_hidden_layers"], named["num_nextn_predict_layers"]
    if type(layers) is int and type(predicted) is int and 0 < predicted < layers:
        named["num_hidden_layers"] = layers - predicted
    telling = {name: f"blk.0.{name}.weight" in present for name in _TELLING}
    return {
        "model_type": f"gguf:{architecture}", **telling,
        **{name: value for name, value in named.items() if value is not None},
    }  # fmt: skip
