"""Tokenizers of checkpoints, as transformers loads them; no code of a checkpoint's own is ever run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from headspaces.errors import InputError
from headspaces.weights.known_forms import TOKENIZERS

TOKEN_BYTES = 48
"""Longest text of a token that is kept, in bytes of UTF-8."""


def pretrained(checkpoint: str) -> tuple[str, dict[str, Any]]:
    """Give what transformers' ``from_pretrained`` calls a checkpoint: a folder, a ``.gguf`` file or ``hub:…``."""
    if checkpoint.startswith("hub:"):
        name, _, revision = checkpoint.removeprefix("hub:").partition("@")
        return name, {"revision": revision} if revision else {}
    path = Path(checkpoint).expanduser()
    if path.suffix == ".gguf":
        return str(path.parent), {"gguf_file": path.name}
    return str(path), {"local_files_only": True}


def load_tokenizer(checkpoint: str, where: str) -> Any:
    """Load a checkpoint's tokenizer; an :class:`InputError` says why transformers cannot."""
    from transformers import AutoTokenizer

    name, options = pretrained(checkpoint)
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: {why_not_loaded(error, f'the tokenizer of {checkpoint}')}") from error


def why_not_loaded(error: Exception, what: str) -> str:
    """Say in one line why transformers cannot load something."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if "trust_remote_code" in str(error):
        return f"{what} needs code of the checkpoint's own (trust_remote_code), which is never run"
    return f"transformers cannot load {what}: {said}"


def stored_texts(texts: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """Put texts of tokens into an array of UTF-8 bytes, for a file."""
    cut = [text.encode("utf-8", errors="replace")[:TOKEN_BYTES] for text in texts]
    return np.array(cut, dtype=f"S{TOKEN_BYTES}").reshape(shape)


def local_token_texts(checkpoint: str, tokens: Int[np.ndarray, "*tokens"], where: str) -> np.ndarray | None:
    """Texts of tokens of a checkpoint on this machine; None for one that brings no tokenizer along."""
    path = Path(checkpoint).expanduser()
    if path.suffix != ".gguf" and not any((path / name).is_file() for name in TOKENIZERS):
        return None
    try:
        tokenizer = load_tokenizer(checkpoint, where)
    except InputError as error:
        logging.getLogger(__name__).warning("%s: tokens are listed by their numbers", error)
        return None
    known = {int(token): tokenizer.decode([int(token)]) for token in np.unique(tokens) if 0 <= token < len(tokenizer)}
    return stored_texts([known.get(token, "") for token in tokens.ravel().tolist()], tokens.shape)
