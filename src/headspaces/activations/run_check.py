"""Check of a checkpoint, from its headers, for running it: what is fetched for the geometry need not suffice.

Only light imports: the Snakefile asks at every start, to leave the activations out where they are not possible.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from headspaces.errors import InputError
from headspaces.spaces import KINDS, READS
from headspaces.weights.folder import read_folder
from headspaces.weights.formats.gguf_parts import gguf_parts, read_gguf_parts
from headspaces.weights.known_forms import TOKENIZERS
from headspaces.weights.layouts import NORMALISED_STREAM, find_layout, find_prefix, of_several_parts

GGUF_OF_TRANSFORMERS = (
    "bloom", "falcon", "gemma2", "gemma3", "gpt2", "gpt-oss", "llama", "minimax-m2", "nemotron", "phi3", "qwen2",
    "qwen2moe", "qwen3", "qwen3moe", "stablelm", "starcoder2",
)  # fmt: skip
"""Served architectures of GGUF files that transformers runs."""

SEES = "the model also sees or hears, and transformers does not run its decoder alone"


def reason_not_to_run(source: str, kinds: str) -> str | None:
    """Say why a model's activations cannot be measured.

    ``source`` is a folder or a ``.gguf`` file: of other sources nothing is known before they are fetched. None where
    nothing speaks against it; else the reason, as it stands in messages.
    """
    if "O" not in kinds or not set(READS) <= set(kinds):
        return f"only the kinds {kinds} are analysed, and the activations go from writes to all reads"
    path = Path(source).expanduser()
    if source.startswith(("hub:", "wheel:")):
        return None
    if path.suffix == ".pt":
        return "a PyTorch file alone does not say how to run the model"
    try:
        if path.is_dir():
            return _folder(path)
        if path.suffix == ".gguf" and path.is_file():
            if len(gguf_parts(path)) > 1:
                return "transformers, which runs the model, reads no split GGUF file"
            _, config, tensors, _ = read_gguf_parts(path)
            return _gguf(str(config["gguf"].get("general.architecture")), tensors)
    except InputError as error:
        return str(error)
    return f"{source} is neither a folder nor a .gguf file"


def _folder(path: Path) -> str | None:
    _, config, tensors, _ = read_folder(path)
    layout, _ = find_layout(config, str(path))
    if of_several_parts(config):
        return SEES
    if layout.name in NORMALISED_STREAM:
        return NORMALISED_STREAM[layout.name]
    prefix = find_prefix(layout, tensors, str(path))
    start = prefix + layout.layer.format(layer=0)
    attention = {start + layout.tensor(kind) for kind in KINDS}
    others = [name for name, header in tensors.items() if len(header.shape) >= 2 and name not in attention]
    if not any(name.startswith(start) for name in others):
        return "the checkpoint holds no MLP tensors"
    layers = prefix + layout.layer.split("{layer}")[0]
    if not any(not name.startswith(layers) for name in others):
        return "the checkpoint holds no embedding tensors"
    if not any((path / name).is_file() for name in TOKENIZERS):
        return f"the folder holds no tokenizer ({', '.join(TOKENIZERS[:3])}, …)"
    return None


def _gguf(architecture: str, tensors: Container[str]) -> str | None:
    if architecture not in GGUF_OF_TRANSFORMERS:
        return f"transformers, which runs the model, reads no GGUF file of the architecture {architecture!r}"
    if "token_embd.weight" not in tensors:
        return "the file holds no embedding tensors (token_embd.weight)"
    if not any(f"blk.0.ffn_{part}.weight" in tensors for part in ("up", "up_exps")):
        return "the file holds no MLP tensors (blk.0.ffn_…)"
    return None
