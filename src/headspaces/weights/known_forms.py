"""Forms of checkpoints that are known by the names of their tensors or files, and are not read."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from headspaces.weights.layout import Layout

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""Files of a folder that hold a tokenizer."""

_TENSORS = {
    r"(^|\.)layers\.\d+\.attention\.w[qkvo]\.": (
        "these are the names of Meta's and Mistral's own format (consolidated files, params.json); use the Hugging "
        "Face format of the same model (config.json with model.safetensors), or convert it with transformers' "
        "convert_llama_weights_to_hf or convert_mistral_weights_to_hf"
    ),
    r"(^|\.)encoder\.layers\.\d+\.(self_attention|attention)\.(query_key_value|dense|linear_qkv|linear_proj)\.": (
        "these are Megatron's names; convert the checkpoint to the Hugging Face format"
    ),
    r"(^|\.)decoder\.layers\.\d+\.self_attention\.(linear_qkv|linear_proj)\.": (
        "these are Megatron's (or NeMo's) names; convert the checkpoint to the Hugging Face format"
    ),
    r"^(optimizer|exp_avg|param_groups)\b": (
        "this is the state of an optimizer, not a model; name the file or folder that holds the weights"
    ),
    r"^h_\d+/|^params/": "these are Flax's names; save the model in PyTorch's format",
    r"^blk\.\d+\.": "these are llama.cpp's names; name the .gguf file",
}  # fmt: skip

_FILES = {
    "consolidated*.safetensors": "Mistral's own format, with names that no layout has (layers.0.attention.wq.weight)",
    "consolidated*.pth": "Meta's own format, with names that no layout has (layers.0.attention.wq.weight)",
    "*.gguf": "GGUF: name the file itself",
    "*zero_pp_rank_*": "DeepSpeed's parts: join them with the zero_to_fp32.py beside them",
    "*.distcp": "PyTorch's distributed checkpoint: save it as one with torch.distributed.checkpoint.format_utils",
    "adapter_model.*": "an adapter alone: merge it into its base model first",
    "tf_model.h5": "TensorFlow: save it with transformers in PyTorch's format",
    "flax_model*.msgpack": "Flax: save it with transformers in PyTorch's format",
    "*.onnx": "ONNX: use the original checkpoint",
    "*.nemo": "NeMo: convert it to the Hugging Face format",
    "weights*.npz": "MLX: use the original checkpoint",
}  # fmt: skip
"""Weight files that are known and not read, with what they are and what to do."""


def known_form(tensors: Iterable[str]) -> str | None:
    """Say which known form a checkpoint has, by an example among its tensors' names; None where none is known."""
    patterns = {re.compile(pattern): meaning for pattern, meaning in _TENSORS.items()}
    for name in sorted(tensors):
        for pattern, meaning in patterns.items():
            if pattern.search(name):
                return f"tensor {name!r}: {meaning}"
    return None


def describe_files(names: Iterable[str]) -> str:
    """List files of a folder without the weights that are read: the known ones with what they are, at most ten."""
    from fnmatch import fnmatch

    listed = sorted(names)
    told = []
    for name in sorted(listed, key=lambda name: not _is_weights(name))[:10]:
        meaning = next((meaning for pattern, meaning in _FILES.items() if fnmatch(name, pattern)), "")
        told.append(f"{name} ({meaning})" if meaning else name)
    more = f" and {len(listed) - 10} more" if len(listed) > 10 else ""
    return (", ".join(told) or "nothing at all") + more


def why_missing(layout: Layout, start: str, name: str, tensors: Container[str]) -> str:
    """Say what the absence of one needed tensor means, by those of its layer that are there."""
    kinds = [kind for kind in "KV" if start + layout.tensor(kind) == name and not layout.qkv]
    if kinds and start + layout.q in tensors:
        lacking = [kind for kind in "KV" if start + layout.tensor(kind) not in tensors]
        what = {"KV": "keys and values", "K": "keys", "V": "values"}["".join(lacking)]
        return (
            f"missing tensor {name!r}: the layer {start!r} has queries and no {what} of its own. A model whose layers "
            "share them is not supported (the heads read another layer's stream, or one space twice); if it is none, "
            "the checkpoint is incomplete, fetch it again"
        )
    return f"missing tensor {name!r}; the checkpoint is incomplete, fetch it again"


def _is_weights(name: str) -> bool:
    ends = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".nemo", ".npz")
    return name.endswith((*ends, ".distcp"))
