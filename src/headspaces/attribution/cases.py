"""Cases: sequences of tokens, each with the number that edges matter to: a mean next-token loss or a logit difference.

Three kinds: windows of a text; random tokens that repeat, whose second copies only a head that looks back can predict;
and prompts with two answers, given as JSONL, whose logits' difference counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspaces.activations.forward_pass import Windows
from headspaces.errors import InputError


@dataclass(frozen=True)
class Case:
    """One sequence and its measure.

    Without ``answers`` the measure is the mean loss in nats of predicting the tokens from position ``first`` on; with
    them, the logit of the first answer less that of the second after the last token.
    """

    tokens: Int[np.ndarray, " token"]
    first: int = 1
    answers: tuple[int, int] | None = None

    def measure(self, logits: Float[Tensor, "token vocabulary"]) -> Float[Tensor, ""]:
        """Give the number from the model's logits."""
        if self.answers is not None:
            right, wrong = self.answers
            return logits[-1, right] - logits[-1, wrong]
        targets = torch.from_numpy(self.tokens[self.first :]).to(logits.device)
        if logits.dtype != torch.float64:
            logits = logits.float()
        return torch.nn.functional.cross_entropy(logits[self.first - 1 : -1], targets)


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


def prompt_cases(path: str | Path, tokenizer: Any) -> list[Case]:
    """Read prompts from a JSONL file: one object a line with ``prompt``, ``right`` and ``wrong``.

    The answers are single tokens, with the space before them that a text would have. Raises :class:`InputError` if the
    file cannot be read, a line is no such object, or an answer is not one token.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"prompts {path}: cannot be read ({error}); expected a JSONL file in UTF-8") from error
    cases = [_prompt(line, f"prompts {path}: line {n}", tokenizer) for n, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise InputError(f"prompts {path}: no lines; expected one JSON object a line")
    return cases


def _prompt(line: str, where: str, tokenizer: Any) -> Case:
    keys = ("prompt", "right", "wrong")
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is no JSON ({error}); expected an object with {', '.join(keys)}") from error
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in keys):
        raise InputError(f"{where}: expected an object with the texts {', '.join(keys)}; got {line[:80]!r}")
    answers = []
    for key in keys[1:]:
        tokens: Sequence[int] = tokenizer(entry[key], add_special_tokens=False)["input_ids"]
        if len(tokens) != 1:
            raise InputError(
                f"{where}: {key} {entry[key]!r} is {len(tokens)} tokens, expected one; begin it with a space, or take "
                "another word"
            )
        answers.append(int(tokens[0]))
    prompt = np.array(tokenizer(entry["prompt"])["input_ids"], dtype=np.int64)
    if len(prompt) == 0:
        raise InputError(f"{where}: the prompt is empty")
    return Case(prompt, answers=(answers[0], answers[1]))
