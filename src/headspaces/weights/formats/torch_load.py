"""PyTorch files: ``pytorch_model.bin`` and training checkpoints. Only tensors are loaded, never code."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspaces.errors import InputError
from headspaces.weights.headers import Headers, Stream, TensorHeader, unchanged

if TYPE_CHECKING:
    import torch

_NESTS = ("model", "state_dict", "model_state_dict", "module", "weights")
"""Keys under which training code keeps the weights."""
_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8",
    "bool": "BOOL", "complex64": "C64",
}  # fmt: skip


def read_torch(path: Path, file: str) -> tuple[dict[str, TensorHeader], dict[str, Any]]:
    """Read the names, types and shapes of a PyTorch file's tensors; the bytes stay on the disk.

    Returns
    -------
    tensors
        Beginning at 0: where a tensor lies is torch's business.
    beside
        What stands beside the weights in a training checkpoint, such as ``model_args``.

    Raises
    ------
    InputError
        If the file is damaged or holds anything but tensors and plain values.
    """
    weights, beside = _load(path)
    tensors = {}
    for name, tensor in weights.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        size = tensor.numel() * tensor.element_size()
        tensors[name] = TensorHeader(_TYPES.get(dtype, dtype), tuple(tensor.shape), file, 0, size)
    return tensors, beside


def checkpoint_config(beside: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Find what describes a training checkpoint in nanoGPT's naming: its ``model_args``.

    Raises
    ------
    InputError
        If the checkpoint has none.
    """
    arguments = beside.get("model_args")
    if not isinstance(arguments, Mapping) or not {"n_layer", "n_head", "n_embd"} <= set(arguments):
        raise InputError(
            f"{path}: no model_args with n_layer, n_head and n_embd, and no config.json beside the file; "
            "the number of heads cannot be told from the weights"
        )
    return {"model_args": {key: arguments[key] for key in ("n_layer", "n_head", "n_embd")}}


def stream_torch(headers: Headers, names: Iterable[str]) -> Stream:
    """Yield the named tensors' bytes, file by file."""
    import torch

    ordered = sorted(names, key=lambda name: headers.tensors[name].file)
    weights: Mapping[str, torch.Tensor] = {}
    opened = ""
    for name in ordered:
        file = headers.tensors[name].file
        if file != opened:
            weights, opened = _load(unchanged(headers.files[file]))[0], file
        yield name, [weights[name].detach().contiguous().view(torch.uint8).numpy().tobytes()]


def _load(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    content = _load_content(path)
    beside: dict[str, Any] = {}
    while isinstance(content, Mapping):
        nest = next((key for key in _NESTS if isinstance(content.get(key), Mapping)), None)
        if nest is None:
            break
        beside |= {str(key): value for key, value in content.items() if key != nest}
        content = content[nest]
    weights = (
        {str(name): value for name, value in content.items() if _is_tensor(value)}
        if isinstance(content, Mapping)
        else {}
    )
    if not weights:
        raise InputError(f"{path}: holds no tensors by name; save model.state_dict()")
    return weights, beside


def _load_content(path: Path) -> Any:
    import torch

    with path.open("rb") as stream:
        start = stream.read(23)
    if start.startswith(b"version https://git-lfs"):
        raise InputError(f"{path} is a git-LFS pointer, not the weights; run `git lfs pull` in its folder")
    try:
        # Files from before PyTorch 1.6 are no archives and cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=start[:2] == b"PK")
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise InputError(
            f"{path}: holds {found.group(1) if found else 'objects'} beside tensors, which could run code, so it is "
            "not loaded; where you trust it, save the weights alone: torch.save(torch.load(FILE, weights_only=False)"
            "['model'], NEW_FILE)"
        ) from error
    except (RuntimeError, EOFError, ValueError, OSError) as error:
        raise InputError(f"{path}: cannot be read as a PyTorch file ({_first_line(error)})") from error


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
