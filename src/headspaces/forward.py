"""Running a model on a text and keeping what its heads put out and what its attention's norms read.

``transformers`` runs the model. Hooks sit on two modules of every layer, found by the layouts table: the output
projection, whose input is the head outputs, and the norm before the attention, whose input is the residual stream. On
every token they check that the weights that are analysed are those that run: the heads' writes must add up to the
projection's output, and the norm must be the one that is folded.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Float, Int
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from headspaces.activations import LayerActivations, normalise
from headspaces.errors import InputError
from headspaces.heads import LayerHeads, Norm
from headspaces.jobs import worker_count
from headspaces.layouts import Layout, find_layout, find_prefix
from headspaces.runnable import NORMALISED_STREAM
from headspaces.texts import Text

TOLERANCE = 1e-3
"""Relative deviation of a layer's recombined writes, or of its norm, that float32 cannot explain."""


@dataclass(frozen=True)
class Run:
    """A model's run on a text.

    Attributes
    ----------
    layers
        Per layer, what its heads put out and what its norm read.
    loss
        Mean next-token loss in nats per token, within windows.
    deviation
        Largest relative deviation, over the layers, of the heads' recombined writes from what the model itself wrote.
    """

    layers: list[LayerActivations]
    loss: float
    deviation: float


@dataclass(frozen=True)
class Windows:
    """Consecutive pieces of a text, of one length: nothing is padded.

    Attributes
    ----------
    tokens
        Token numbers.
    bos
        Token that stands before every window because the tokenizer puts it before every text; None where it does not.
        It is context only: no statistic counts it.
    """

    tokens: Int[np.ndarray, "window token"]
    bos: int | None


def load_model(place: str, where: str) -> tuple[Any, Any]:
    """Load a model in float32 and its tokenizer; no code of the checkpoint's own is ever run.

    Parameters
    ----------
    place
        A folder, a ``.gguf`` file, or ``hub:owner/name[@revision]``.
    where
        The model's name, for messages.

    Raises
    ------
    InputError
        If transformers cannot load it, it needs its own code, weights are missing, or there is no tokenizer.
    """
    name, options = _pretrained(place)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, trust_remote_code=False, output_loading_info=True, **options
        )
        model, found = loaded
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        raise InputError(f"{where}: {_why(error, 'the model')}") from error
    if missing := sorted(map(str, [*found["missing_keys"], *found["mismatched_keys"]])):
        raise InputError(
            f"{where}: the checkpoint lacks {len(missing)} tensors that the model needs, the first is {missing[0]!r}"
        )
    if other := {str(parameter.dtype) for parameter in model.parameters()} - {"torch.float32"}:
        raise InputError(
            f"{where}: parameters of type {other.pop()}, expected float32; the checkpoint must not be packed"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: {_why(error, 'the tokenizer')}") from error
    return model.eval(), tokenizer


def _pretrained(place: str) -> tuple[str, dict[str, Any]]:
    if place.startswith("hub:"):
        name, _, revision = place.removeprefix("hub:").partition("@")
        return name, {"revision": revision} if revision else {}
    path = Path(place).expanduser()
    if path.suffix == ".gguf":
        return str(path.parent), {"gguf_file": path.name}
    return str(path), {"local_files_only": True}


def _why(error: Exception, what: str) -> str:
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if "trust_remote_code" in str(error):
        return f"{what} needs code of the checkpoint's own (trust_remote_code), which is never run"
    return f"transformers cannot load {what}: {said}"


def cut_windows(tokenizer: Any, text: Text, n_windows: int, n_tokens: int) -> Windows:
    """Tokenise a text without special tokens and take its first windows.

    Raises
    ------
    InputError
        If the text is shorter than the windows.
    """
    tokens = tokenizer(text.text, add_special_tokens=False, verbose=False)["input_ids"]
    if len(tokens) < n_windows * n_tokens:
        raise InputError(
            f"text {text.source!r}: {len(tokens)} tokens, but {n_windows} windows of {n_tokens} need "
            f"{n_windows * n_tokens}; take a longer text or fewer windows"
        )
    array = np.asarray(tokens[: n_windows * n_tokens], dtype=np.int64).reshape(n_windows, n_tokens)
    # What the tokenizer puts before a text is told by comparison: its settings have many names.
    with_special, bare = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (True, False))
    bos = tokenizer.bos_token_id
    added = bos is not None and len(with_special) > len(bare) and with_special[0] == bos
    return Windows(array, bos if added else None)


def run_model(model: Any, windows: Windows, heads: Sequence[LayerHeads], where: str) -> Run:
    """Run a model on the windows, one by one, and keep what its heads put out and what its norms read.

    Parameters
    ----------
    model
        A causal language model of transformers.
    windows
        Of a text.
    heads
        The model's heads, with their writes, in order.
    where
        The model's name, for messages.

    Raises
    ------
    InputError
        If the windows are longer than the model's context, an activation is not finite, or what runs is not what the
        given weights say.
    """
    # How the file was packed is no matter any more: the parameters are numbers now.
    layout, config = find_layout({**model.config.to_dict(), "quantization_config": None}, where)
    if layout.name in NORMALISED_STREAM:
        raise InputError(f"{where}: {NORMALISED_STREAM[layout.name]}")
    before = [] if windows.bos is None else [windows.bos]
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    length = len(before) + windows.tokens.shape[1]
    if longest and length > longest:
        raise InputError(
            f"{where}: windows of {length} tokens, but the model's context has {longest}; take shorter ones"
        )
    prefix = find_prefix(layout, model.state_dict(), where)
    watched = [_WatchedLayer(model, layout, prefix, own, len(before), where) for own in heads]
    torch.set_num_threads(worker_count())
    losses = []
    with ExitStack() as hooks, torch.inference_mode():
        for layer in watched:
            hooks.enter_context(layer.listening())
        for window in tqdm(windows.tokens, desc="windows", unit="window", mininterval=5):
            tokens = torch.from_numpy(np.concatenate([np.asarray(before, np.int64), window]))
            logits = model(tokens[None], use_cache=False).logits[0]
            # A token is predicted from those before it: the first one only where BOS stands before it.
            losses.append(torch.nn.functional.cross_entropy(logits[:-1].float(), tokens[1:]).item())
    loss = float(np.mean(losses))
    if not math.isfinite(loss):
        raise InputError(f"{where}: the next-token loss is not finite; the checkpoint is broken, fetch another")
    scale = float(config.get("residual_multiplier") or 1.0)
    return Run([layer.result(scale) for layer in watched], loss, max(layer.deviation for layer in watched))


def run_facts(model: Any, text: Text, windows: Windows, run: Run) -> dict[str, str | int | float]:
    """Root attributes of the activations file that say what was run on what."""
    return {
        "loss_nats_per_token": run.loss,
        "recombination_deviation": run.deviation,
        "text_source": text.source,
        "text_version": text.version,
        "text_sha256": text.sha256,
        "n_documents": text.n_documents,
        "n_windows": windows.tokens.shape[0],
        "window_tokens": windows.tokens.shape[1],
        "n_tokens": windows.tokens.size,
        "tokens_sha256": hashlib.sha256(windows.tokens.astype("<i8").tobytes()).hexdigest(),
        "bos": "none" if windows.bos is None else f"token {windows.bos} before every window, not counted",
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "attention": str(getattr(model.config, "_attn_implementation", "")),
        "transformers_version": transformers.__version__,
        "torch_version": str(torch.__version__),
    }


def run_numbers(windows: Windows, run: Run) -> dict[str, np.ndarray]:
    """Numbers of the run for the report, as scalar arrays of the activations file under ``run/``."""
    n_windows, window_tokens = windows.tokens.shape
    numbers = {
        "loss_nats_per_token": run.loss,
        "n_tokens": n_windows * window_tokens,
        "n_windows": n_windows,
        "window_tokens": window_tokens,
    }
    return {f"run/{name}": np.array(value) for name, value in numbers.items()}


class _WatchedLayer:
    """Hooks on one layer, and what they have seen."""

    def __init__(
        self, model: torch.nn.Module, layout: Layout, prefix: str, heads: LayerHeads, skipped: int, where: str
    ) -> None:
        start = prefix + layout.layer.format(layer=heads.layer)
        self.where = f"{where}: layer {heads.layer}"
        self.heads, self.skipped = heads, skipped
        self.d_model = heads.factors["O"].shape[1]
        self.projection = model.get_submodule(start + layout.o.removesuffix(".weight"))
        self.read_norm: _WatchedNorm | None = None
        self.write_norm: _WatchedNorm | None = None
        if heads.read_norm.kind != "none":
            # A norm without parameters has no tensor that names it; it stands where the others of its family do.
            name = layout.read_norm.removesuffix(".weight") or "input_layernorm"
            self.read_norm = _WatchedNorm(model.get_submodule(start + name), heads.read_norm, self.where)
        if heads.write_norm is not None:
            module = model.get_submodule(start + layout.write_norm.removesuffix(".weight"))
            self.write_norm = _WatchedNorm(module, heads.write_norm, self.where)
        kind = next(self.projection.parameters()).dtype
        # torch multiplies here: a second library's threads would only wait for each other.
        self.writes = torch.from_numpy(heads.factors["O"].transpose(0, 2, 1).reshape(-1, self.d_model)).to(kind)
        self.outputs: list[np.ndarray] = []
        self.deviation = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what passes through the layer's modules."""
        hooks = [self.projection.register_forward_hook(self._keep_heads)]
        hooks += [norm.module.register_forward_hook(norm.keep) for norm in (self.read_norm, self.write_norm) if norm]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _keep_heads(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        flat = inputs[0].reshape(-1, len(self.writes))
        z = flat.reshape(len(flat), len(self.heads.factors["O"]), -1).numpy()
        _check_finite(z, f"{self.where}: head outputs")
        bias = getattr(module, "bias", None)
        written = output.reshape(-1, self.d_model) - (0.0 if bias is None else bias)
        deviation = _relative((flat @ self.writes).numpy(), written.numpy())
        if not deviation < TOLERANCE:
            raise InputError(
                f"{self.where}: the heads' writes differ from the model's by {deviation:.2g} (relative); the weights "
                "were fetched from another checkpoint than the one that runs"
            )
        self.deviation = max(self.deviation, deviation)
        self.outputs.append(z[self.skipped :].copy())

    def result(self, scale: float) -> LayerActivations:
        """Put all windows together; the model multiplies what its attention writes by ``scale``."""
        z = np.concatenate(self.outputs) * self.outputs[0].dtype.type(scale)
        n_tokens = len(z)
        if self.write_norm is not None:
            # The norm divides the sum of all heads by one sigma, so each head's share is divided by it too.
            z = z / self._counted(self.write_norm.sigmas, n_tokens)[:, None, None].astype(z.dtype)
        if self.read_norm is None:
            return LayerActivations(z, np.zeros((n_tokens, self.d_model), z.dtype), 0.0)
        return LayerActivations(z, self._counted(self.read_norm.inputs, n_tokens), self.read_norm.epsilon)

    def _counted(self, seen: list[np.ndarray], n_tokens: int) -> np.ndarray:
        kept = np.concatenate([window[self.skipped :] for window in seen] or [np.empty(0)])
        if len(kept) != n_tokens:
            raise InputError(f"{self.where}: its norm saw {len(kept)} tokens, its heads {n_tokens}; expected the same")
        return kept


class _WatchedNorm:
    """What one norm module read, checked against the norm that is folded."""

    def __init__(self, module: torch.nn.Module, norm: Norm, where: str) -> None:
        self.module, self.norm, self.where = module, norm, where
        # torch's own default where the module names none.
        names = ("eps", "variance_epsilon", "epsilon")
        self.epsilon = float(next((getattr(module, name) for name in names if hasattr(module, name)), 1e-5))
        self.inputs: list[np.ndarray] = []
        self.sigmas: list[np.ndarray] = []

    def keep(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """Forward hook."""
        x = inputs[0].reshape(-1, inputs[0].shape[-1]).numpy()
        _check_finite(x[:, None], f"{self.where}: the residual stream")
        xhat, sigma = normalise(x, self.norm, self.epsilon)
        expected = xhat if self.norm.gain is None else xhat * self.norm.gain
        seen = output.reshape(x.shape).numpy()
        if (bias := getattr(module, "bias", None)) is not None:
            seen = seen - bias.numpy()
        if not (deviation := _relative(expected, seen)) < TOLERANCE:
            raise InputError(
                f"{self.where}: its norm differs from the folded one by {deviation:.2g} (relative); the weights were "
                "fetched from another checkpoint, or this architecture's norm is not the one of its layout"
            )
        self.inputs.append(x.copy())
        self.sigmas.append(sigma)


def _relative(expected: Float[np.ndarray, "token d_model"], found: Float[np.ndarray, "token d_model"]) -> float:
    size = float(np.linalg.norm(found))
    difference = float(np.linalg.norm(expected - found))
    return difference / size if size else difference


def _check_finite(values: Float[np.ndarray, "token head _"], what: str) -> None:
    if np.isfinite(values).all():
        return
    token, head = (int(place[0]) for place in np.nonzero(~np.isfinite(values).all(axis=2)))
    raise InputError(
        f"{what} are not finite (token {token} of its window, head {head}); the checkpoint is broken, or its numbers "
        "are too large for float32"
    )
