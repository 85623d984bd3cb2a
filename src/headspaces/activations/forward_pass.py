"""Forward pass of a model on a text with ``transformers``: loading, windows of the text, kept activations."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Int
from safetensors.torch import save_model
from tqdm import tqdm
from transformers import AutoModelForCausalLM

from headspaces.activations.hooks import WatchedLayer
from headspaces.activations.pretrained import load_tokenizer, pretrained, why_not_loaded
from headspaces.activations.replicas import map_with_replicas
from headspaces.activations.response import LayerActivations, joined
from headspaces.activations.texts import Text
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads
from headspaces.weights.layout import Layout
from headspaces.weights.layouts import NORMALISED_STREAM, find_layout, find_prefix


@dataclass(frozen=True)
class Run:
    """A model's run on a text.

    ``layers`` hold what the heads put out and what the norm read; ``loss`` is the mean next-token loss in nats per
    token, within windows; ``deviation`` the largest relative one, over the layers, of the heads' recombined writes from
    what the model itself wrote.
    """

    layers: list[LayerActivations]
    loss: float
    deviation: float


@dataclass(frozen=True)
class Windows:
    """Consecutive pieces of a text, of one length: nothing is padded.

    ``bos`` stands before every window because the tokenizer puts it before every text; None where it does not. It is
    context only: no statistic counts it.
    """

    tokens: Int[np.ndarray, "window token"]
    bos: int | None

    @property
    def before(self) -> Int[np.ndarray, " token"]:
        """What stands before every window: one token or none."""
        return np.array([] if self.bos is None else [self.bos], dtype=np.int64)

    def facts(self, what: str = "window") -> dict[str, str | int]:
        """Root attributes of a file that say what a model was run on; ``what`` is a name of one sequence."""
        bos = "none" if self.bos is None else f"token {self.bos} before every {what}, not counted"
        return {"n_windows": self.tokens.shape[0], "window_tokens": self.tokens.shape[1], "bos": bos}


def load_model(checkpoint: str, where: str) -> tuple[Any, Any]:
    """Load a model in float32 and its tokenizer; no code of the checkpoint's own is ever run.

    ``checkpoint`` is a folder, a ``.gguf`` file, or ``hub:owner/name[@revision]``; ``where`` the model's name, for
    messages. Raises :class:`InputError` if transformers cannot load it, it needs its own code, weights are missing, or
    there is no tokenizer.
    """
    name, options = pretrained(checkpoint)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, trust_remote_code=False, output_loading_info=True, **options
        )
        model, loading = loaded
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        raise InputError(f"{where}: {why_not_loaded(error, f'the model of {checkpoint}')}") from error
    if missing := sorted(map(str, [*loading["missing_keys"], *loading["mismatched_keys"]])):
        raise InputError(
            f"{where}: the checkpoint lacks {len(missing)} tensors that the model needs, the first is {missing[0]!r}"
        )
    if other := {str(parameter.dtype) for parameter in model.parameters()} - {"torch.float32"}:
        raise InputError(
            f"{where}: parameters of type {other.pop()}, expected float32; the checkpoint must not be packed"
        )
    return model.eval(), load_tokenizer(checkpoint, where)


def unpack(checkpoint: str, folder: str, where: str) -> None:
    """Write a model and its tokenizer in float32, as a folder that opens in a moment.

    ``checkpoint`` and ``where`` are those of :func:`load_model`, which loads the folder as it loads the checkpoint.
    """
    model, tokenizer = load_model(checkpoint, where)
    Path(folder).mkdir(parents=True, exist_ok=True)
    # Its numbers are float32 by now; said to be packed still, it would neither be written nor loaded.
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    type(model.config).from_dict(config).save_pretrained(folder)
    save_model(model, str(Path(folder) / "model.safetensors"), {"format": "pt"})
    tokenizer.save_pretrained(folder)


def cut_windows(tokenizer: Any, text: Text, n_windows: int, n_tokens: int) -> Windows:
    """Tokenise a text without special tokens and take its first windows.

    Raises :class:`InputError` if the text is shorter than the windows.
    """
    tokens = tokenizer(text.text, add_special_tokens=False, verbose=False)["input_ids"]
    if len(tokens) < n_windows * n_tokens:
        raise InputError(
            f"text {text.source!r}: {len(tokens)} tokens, but {n_windows} windows of {n_tokens} need "
            f"{n_windows * n_tokens}; take a longer text or fewer windows"
        )
    array = np.asarray(tokens[: n_windows * n_tokens], dtype=np.int64).reshape(n_windows, n_tokens)
    return Windows(array, token_before(tokenizer))


def token_before(tokenizer: Any) -> int | None:
    """Find the token that a tokenizer puts before every text; None where there is none."""
    # Inferred by comparison: its settings have many names.
    with_special, bare = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (True, False))
    bos: int | None = tokenizer.bos_token_id
    return bos if bos is not None and len(with_special) > len(bare) and with_special[0] == bos else None


def find_modules(model: Any, where: str) -> tuple[Layout, str, float]:
    """Find a loaded model's layout, what stands before its layers' names, and what its writes are multiplied by.

    Raises :class:`InputError` if no layout serves the model, or no write of it reaches a later head directly.
    """
    # How the file was packed is no matter any more: the parameters are numbers now.
    layout, config = find_layout({**model.config.to_dict(), "quantization_config": None}, where)
    if layout.name in NORMALISED_STREAM:
        raise InputError(f"{where}: {NORMALISED_STREAM[layout.name]}")
    return layout, find_prefix(layout, model.state_dict(), where), float(config.get("residual_multiplier") or 1.0)


def check_length(model: Any, n_tokens: int, where: str) -> None:
    """Refuse windows that are longer than the model's context."""
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if longest and n_tokens > longest:
        raise InputError(
            f"{where}: windows of {n_tokens} tokens, but the model's context has {longest}; take shorter ones"
        )


def run_model(model: Any, windows: Windows, heads: Sequence[LayerHeads], where: str) -> Run:
    """Run a model on the windows, each on a thread, and keep what its heads put out and what its norms read.

    ``heads`` are those of all layers in order, with their writes; ``where`` is the model's name, for messages. Raises
    :class:`InputError` if the windows are longer than the model's context, an activation is not finite, or what runs is
    not what the given weights say.
    """
    layout, prefix, scale = find_modules(model, where)
    check_length(model, len(windows.before) + windows.tokens.shape[1], where)

    def watch(replica: Any) -> tuple[Any, list[WatchedLayer]]:
        return replica, [WatchedLayer(replica, layout, prefix, layer, len(windows.before), where) for layer in heads]

    def run_window(
        state: tuple[Any, list[WatchedLayer]], window: np.ndarray
    ) -> tuple[float, list[LayerActivations], float]:
        replica, watched = state
        tokens = torch.from_numpy(np.concatenate([windows.before, window]))
        with ExitStack() as hooks, torch.inference_mode():
            for layer in watched:
                hooks.enter_context(layer.listening())
            logits = replica(tokens[None], use_cache=False).logits[0]
            # A token is predicted from those before it: the first one only where BOS stands before it.
            loss = torch.nn.functional.cross_entropy(logits[:-1].float(), tokens[1:]).item()
        return loss, [layer.take(scale) for layer in watched], max(layer.deviation for layer in watched)

    found = map_with_replicas(model, watch, run_window, list(windows.tokens))
    progress = tqdm(found, total=len(windows.tokens), desc="windows", unit="window", mininterval=5)
    losses, activations, deviations = zip(*progress, strict=True)
    loss = float(np.mean(losses))
    if not math.isfinite(loss):
        raise InputError(f"{where}: the next-token loss is not finite; the checkpoint is broken, fetch another")
    return Run([joined(windows) for windows in zip(*activations, strict=True)], loss, max(deviations))


def run_facts(model: Any, text: Text, windows: Windows, run: Run) -> dict[str, str | int | float]:
    """Root attributes of the activations file that say what was run on what."""
    return {
        "loss_nats_per_token": run.loss,
        "recombination_deviation": run.deviation,
        "text_source": text.source,
        "text_version": text.version,
        "text_sha256": text.sha256,
        "n_documents": text.n_documents,
        **windows.facts(),
        "n_tokens": windows.tokens.size,
        "tokens_sha256": hashlib.sha256(windows.tokens.astype("<i8").tobytes()).hexdigest(),
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "attention": str(getattr(model.config, "_attn_implementation", "")),
        "transformers_version": transformers.__version__,
        "torch_version": str(torch.__version__),
    }


def run_numbers(windows: Windows, run: Run) -> dict[str, np.ndarray]:
    """Numbers of the run for the report, as scalar arrays of the activations file under ``run/``."""
    numbers = {"loss_nats_per_token": run.loss, "n_tokens": windows.tokens.size}
    numbers |= dict(zip(("n_windows", "window_tokens"), windows.tokens.shape))
    return {f"run/{name}": np.array(value) for name, value in numbers.items()}
