"""Small checkpoints, written byte by byte, in the layouts that the tests need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16"}
LLAMA = {
    "model_type": "llama", "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


def llama_tensors(rng: np.random.Generator, dtype: str = "float32", prefix: str = "model.") -> dict[str, np.ndarray]:
    """Random tensors of :data:`LLAMA`, in the order of a checkpoint, with an MLP between the attention's tensors."""
    tensors = {f"{prefix}embed_tokens.weight": rng.normal(size=(50, 24))}
    for layer in range(LLAMA["num_hidden_layers"]):
        start = f"{prefix}layers.{layer}."
        shapes = {
            "input_layernorm": (24,), "mlp.up_proj": (96, 24), "self_attn.k_proj": (16, 24),
            "self_attn.o_proj": (24, 32), "self_attn.q_proj": (32, 24), "self_attn.v_proj": (16, 24),
        }  # fmt: skip
        tensors |= {f"{start}{name}.weight": rng.normal(size=shape) for name, shape in shapes.items()}
    return {name: array.astype(dtype) for name, array in tensors.items()}


def safetensors(
    tensors: Mapping[str, np.ndarray | tuple[str, tuple[int, ...], bytes]], metadata: dict[str, str] | None = None
) -> bytes:
    """Bytes of a safetensors file; a tensor may be given as type, shape and bytes."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, tensor in tensors.items():
        dtype, shape, raw = (
            tensor if isinstance(tensor, tuple) else (DTYPES[str(tensor.dtype)], tensor.shape, tensor.tobytes())
        )
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def shards(tensors: Mapping[str, np.ndarray], number: int) -> dict[str, bytes]:
    """Files of a sharded checkpoint, index included, with the tensors dealt in order."""
    names = list(tensors)
    cuts = np.array_split(np.arange(len(names)), number)
    files, placed = {}, {}
    for index, chosen in enumerate(cuts, start=1):
        file = f"model-{index:05d}-of-{number:05d}.safetensors"
        files[file] = safetensors({names[i]: tensors[names[i]] for i in chosen})
        placed |= {names[i]: file for i in chosen}
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": placed}).encode()
    return files


def write_folder(folder: Path, config: Mapping[str, object], files: Mapping[str, bytes]) -> Path:
    """Write a checkpoint folder in Hugging Face layout."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
