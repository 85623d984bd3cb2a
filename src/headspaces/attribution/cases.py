"""Cases: sequences of tokens, each with the loss that edges matter to.

Two kinds: windows of a text; and random tokens that repeat, whose second copies only a head that looks back can
predict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from headspaces.activations.forward_pass import Windows

BATCH_TOKENS = 512
"""Tokens of sequences that are run at once, unless one has more."""


@dataclass(frozen=True)
class Case:
    """One sequence, and the position from which on its tokens are to be predicted."""

    tokens: Int[np.ndarray, " token"]
    first: int = 1

    @property
    def n_predicted(self) -> int:
        """Number of predictions that the measure is the mean loss of."""
        return len(self.tokens) - self.first

    def measure(self, logits: Float[Tensor, "token vocabulary"]) -> Float[Tensor, ""]:
        """Give the mean loss in nats of predicting the tokens from the model's logits."""
        return functional.cross_entropy(self._predicting(logits), torch.from_numpy(self.tokens[self.first :]))

    def sampled(self, logits: Float[Tensor, "token vocabulary"], draw: torch.Generator) -> Float[Tensor, ""]:
        """Give the mean loss of predicting tokens that are drawn from the model's own predictions."""
        predicting = self._predicting(logits)
        drawn = torch.multinomial(predicting.detach().softmax(dim=-1), 1, generator=draw)[:, 0]
        return functional.cross_entropy(predicting, drawn)

    def _predicting(self, logits: Tensor) -> Float[Tensor, "predicted vocabulary"]:
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return logits[self.first - 1 : -1]


def batches(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    """Put neighbours of one length together, to be run at once: small products leave threads waiting for each other."""
    for (n_tokens, _), same in groupby(cases, key=lambda case: (len(case.tokens), case.n_predicted)):
        of_length = list(same)
        step = max(1, BATCH_TOKENS // n_tokens)
        yield from (of_length[start : start + step] for start in range(0, len(of_length), step))


def text_cases(windows: Windows) -> list[Case]:
    """Make a case of every window of a text; what stands before every window is read and not predicted."""
    first = max(1, len(windows.before))
    return [Case(np.concatenate([windows.before, window]), first) for window in windows.tokens]


def repeated_cases(
    known: Int[np.ndarray, " known"],
    before: Int[np.ndarray, " before"],
    *,
    n_sequences: int,
    n_repeated: int,
    seed: int,
) -> list[Case]:
    """Make sequences of random tokens that stand twice; the tokens of the second copies but its first count.

    ``known`` are the tokens to draw from, different ones where they suffice; ``before`` stands before every sequence.
    """
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(n_sequences):
        copy = rng.choice(known, size=n_repeated, replace=len(known) < n_repeated)
        cases.append(Case(np.concatenate([before, copy, copy]), len(before) + n_repeated + 1))
    return cases
