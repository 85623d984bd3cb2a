"""Attention patterns on the model's own forward pass: identity, previous-token and induction heads.

The attention is that of the model: ``transformers`` runs it in float32 with its plain implementation (``eager``), the
only one that gives attention weights back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from tqdm import tqdm

from headspaces.activations.forward_pass import Windows, cut_windows, load_model
from headspaces.activations.pretrained import stored_texts
from headspaces.activations.replicas import map_with_replicas
from headspaces.activations.texts import Text
from headspaces.activations.toy_model import ToyModel, is_toy, load_toy
from headspaces.errors import InputError
from headspaces.geometry.bases import RANK_RTOL, orthonormal_bases
from headspaces.geometry.heads import LayerHeads

Attend: TypeAlias = Callable[[Any, Int[np.ndarray, " _token"]], list[Float[np.ndarray, "_head _token _token"]]]
"""Runs a model on one sequence and returns every layer's attention: rows attend, columns are attended to."""

ROW_SUM = 1e-3
"""How far the sum of a token's attention may be from 1."""

N_TOP_TOKENS = 10
"""Tokens listed for a head (PK, figure 6)."""


@dataclass(frozen=True)
class Runner:
    """A model that can be run, and the tokens that it can be run on.

    ``attend`` runs the ``module``, or a replica of it; ``windows`` are pieces of a text, or random tokens for a model
    without a tokenizer; ``non_special`` the tokens that
    random sequences are made of; ``texts`` gives the text of every token, None without a tokenizer; ``n_positions`` is
    the longest sequence, None where there is no limit.
    """

    module: torch.nn.Module
    attend: Attend
    windows: Windows
    non_special: Int[np.ndarray, " non_special"]
    unembedding: Float[np.ndarray, "token d_model"]
    texts: Callable[[Sequence[int]], list[str]] | None
    n_positions: int | None

    def on_each(
        self, function: Callable[[Sequence[np.ndarray]], Any], sequences: Sequence[np.ndarray]
    ) -> Iterator[Any]:
        """Apply a function to every layer's attention on some sequences, which are run side by side."""

        def of_sequence(replica: torch.nn.Module, sequence: np.ndarray) -> Any:
            return function(self.attend(replica, sequence))

        found = map_with_replicas(self.module, lambda replica: replica, of_sequence, sequences)
        yield from tqdm(found, total=len(sequences), desc="sequences", unit="sequence", mininterval=5)

    def shortened(self, n_repeated: int) -> int:
        """Return the number of tokens that can be repeated within the model's context, at most ``n_repeated``."""
        free = 2 * n_repeated if self.n_positions is None else self.n_positions - len(self.windows.before)
        return min(n_repeated, free // 2)


def open_runner(checkpoint: str, where: str, text: Text, n_windows: int, n_tokens: int, seed: int) -> Runner:
    """Make a model ready to run.

    ``checkpoint`` is a folder, one of :mod:`headspaces.activations.toy_model` too, a ``.gguf`` file, or
    ``hub:owner/name[@revision]``; ``where`` the model's name, for messages. The model is run on the text's first
    windows; one that was trained on random tokens gets random tokens. Raises :class:`InputError` if the model cannot be
    loaded or the text is shorter than the windows.
    """
    if is_toy(checkpoint):
        return _toy_runner(load_toy(checkpoint), n_windows, seed)
    model, tokenizer = load_model(checkpoint, where)
    model.set_attn_implementation("eager")
    unembedding = model.get_output_embeddings().weight.detach().numpy()
    special = set(tokenizer.all_special_ids)
    n_known = min(len(tokenizer), len(unembedding))
    return Runner(
        model,
        attend_with(where),
        cut_windows(tokenizer, text, n_windows, n_tokens),
        np.array([token for token in range(n_known) if token not in special]),
        unembedding[:n_known],
        lambda tokens: [tokenizer.decode([token]) for token in tokens],
        getattr(model.config.get_text_config(), "max_position_embeddings", None),
    )


def _toy_runner(model: ToyModel, n_windows: int, seed: int) -> Runner:
    config = model.config
    tokens = np.random.default_rng(seed).integers(config.vocab_size, size=(n_windows, config.n_positions))

    def attend(module: ToyModel, sequence: np.ndarray) -> list[np.ndarray]:
        with torch.inference_mode():
            return [one[0].numpy() for one in module(torch.from_numpy(sequence)[None])[1]]

    unembedding = model.lm_head.weight.detach().numpy()
    known = np.arange(config.vocab_size)
    return Runner(model, attend, Windows(tokens, None), known, unembedding, None, config.n_positions)


def attend_with(where: str) -> Attend:
    """Make the function that runs a causal language model of transformers, named ``where`` in messages.

    It raises InputError where a layer gives no attention weights, or what it gives is no attention.
    """

    def attend(model: Any, sequence: np.ndarray) -> list[np.ndarray]:
        with torch.inference_mode():
            found = model(torch.from_numpy(sequence)[None], output_attentions=True, use_cache=False).attentions
        n_layers = model.config.get_text_config().num_hidden_layers
        if not found or len(found) != n_layers or any(one is None for one in found):
            used = getattr(model.config, "_attn_implementation", "unknown")
            raise InputError(
                f"{where}: no attention weights for {n_layers} layers came back (attention {used!r}); load the model "
                "with attn_implementation='eager'"
            )
        attentions = [one[0].float().numpy() for one in found]
        for layer, attention in enumerate(attentions):
            if attention.shape[1:] != (len(sequence), len(sequence)):
                raise InputError(
                    f"{where}: layer {layer} attends {list(attention.shape[1:])}, expected {[len(sequence)] * 2}"
                )
            if not np.abs(attention.sum(axis=2) - 1).max() < ROW_SUM:
                raise InputError(
                    f"{where}: layer {layer}: the attention of a token does not add up to 1; it cannot be used"
                )
        return attentions

    return attend


def attention_patterns(runner: Runner, *, n_sequences: int, n_repeated: int, seed: int) -> dict[str, np.ndarray]:
    """Mean attention of every head to the token itself, to the one before, and to the one after its earlier copy.

    Each random sequence repeats ``n_repeated`` random tokens; fewer where the model's context is short.

    Returns
    -------
    dict
        ==============  =============  ========================================================================
        name            dimensions     meaning
        ==============  =============  ========================================================================
        identity        layer head     attention to itself, mean over the windows' tokens
        previous_token  layer head     attention to the token before, mean over the windows' tokens
        induction       layer head     on random tokens that repeat: attention of the second copy's tokens to the
                                       one after the same token in the first copy
        ==============  =============  ========================================================================

        The first token of a sequence has nothing else to attend to, and is not counted; nor is a token that the
        tokenizer puts before every text. Random sequences start with that token too.
    """
    before = runner.windows.before
    windows = [np.concatenate([before, window]) for window in runner.windows.tokens]
    on_text = list(runner.on_each(partial(_text_scores, n_before=len(before)), windows))
    n_repeated = runner.shortened(n_repeated)
    rng = np.random.default_rng(seed)
    # Different tokens have one earlier copy each.
    draw = partial(rng.choice, runner.non_special, size=n_repeated, replace=len(runner.non_special) < n_repeated)
    repeats = [np.concatenate([before, *2 * [draw()]]) for _ in range(n_sequences)]
    induction = list(runner.on_each(lambda found: [induction_scores(one, n_repeated) for one in found], repeats))
    identity, previous = np.mean(on_text, axis=0)
    return {"identity": identity, "previous_token": previous, "induction": np.mean(induction, axis=0)}


def _text_scores(attentions: Sequence[np.ndarray], n_before: int) -> Float[np.ndarray, "two layer head"]:
    start = max(1, n_before)
    scores = [(diagonal_mean(one, 0, start), diagonal_mean(one, 1, start)) for one in attentions]
    return np.array(scores).swapaxes(0, 1)


def diagonal_mean(
    attention: Float[np.ndarray, "head token token"], back: int, start: int
) -> Float[np.ndarray, " head"]:
    """Mean attention to the token ``back`` positions before, over the tokens from ``start`` on."""
    rows = np.arange(max(start, back), attention.shape[1])
    mean: np.ndarray = attention[:, rows, rows - back].mean(axis=1)
    return mean


def induction_scores(attention: Float[np.ndarray, "head token token"], n_repeated: int) -> Float[np.ndarray, " head"]:
    """Mean attention of the last ``n_repeated`` tokens, a second copy, to the token after their first copy."""
    return diagonal_mean(attention, n_repeated - 1, attention.shape[1] - n_repeated)


def top_tokens(
    layers: Sequence[LayerHeads],
    unembedding: Float[np.ndarray, "token d_model"],
    n_top: int = N_TOP_TOKENS,
    rtol: float = RANK_RTOL,
) -> Int[np.ndarray, "layer head top"]:
    """Tokens whose unembedding vectors lie closest to each head's write space, the closest first (PK, figure 6).

    Ranked by the norm of the projection on the space of the vector, from which the mean over all tokens is subtracted
    and which is then normalised. (PK does not say which mean; over the tokens is our reading.)
    """
    vectors = unembedding - unembedding.mean(axis=0)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    n_top = min(n_top, len(vectors))
    found = []
    for one in layers:
        bases = orthonormal_bases(one.factors["O"], rtol).basis.astype(vectors.dtype)
        n_heads, d_model, d_head = bases.shape
        projected = vectors @ bases.transpose(1, 0, 2).reshape(d_model, n_heads * d_head)
        norms = np.sum(projected.reshape(-1, n_heads, d_head) ** 2, axis=2)
        found.append(np.argsort(-norms, axis=0, kind="stable")[:n_top].T)
    return np.stack(found)


def token_texts(tokens: Int[np.ndarray, "layer head top"], runner: Runner) -> np.ndarray | None:
    """Text of each token as UTF-8 bytes, for the file; None for a model without a tokenizer."""
    if runner.texts is None:
        return None
    return stored_texts(runner.texts(tokens.ravel().tolist()), tokens.shape)


def pattern_facts(runner: Runner, *, n_sequences: int, n_repeated: int, seed: int) -> dict[str, str | int]:
    """Root attributes of the file that say on what the patterns were measured."""
    return {
        **runner.windows.facts("sequence"),
        "tokens": "random" if runner.texts is None else "text",
        "n_sequences": n_sequences,
        "n_repeated": runner.shortened(n_repeated),
        "seed": seed,
        "attention": "eager",
        "dtype": "float32",
    }
