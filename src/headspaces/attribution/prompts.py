"""Prompts with two answers each: cases whose measure is how much more the model gives the correct one than the wrong.

A file of prompts is JSON lines, one object each:

    {"prompt": "When Mary and John went to the store, John gave a drink to", "correct": " Mary", "wrong": " John"}

Either answer is one token after its prompt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from headspaces.activations.forward_pass import token_before
from headspaces.attribution.cases import Case
from headspaces.errors import InputError
from headspaces.files import read_bytes

KEYS = ("prompt", "correct", "wrong")
EXPECTED = '{"prompt": "…", "correct": " token", "wrong": " token"}'


@dataclass(frozen=True)
class Prompt(Case):
    """A prompt and the tokens of its two answers."""

    correct: int = 0
    wrong: int = 0

    @property
    def n_predicted(self) -> int:
        """None: a difference of logits is no loss of predictions."""
        return 0

    def measure(self, logits: Float[Tensor, "token vocabulary"]) -> Float[Tensor, ""]:
        """Give the difference of the answers' logits after the prompt: the logarithm of the odds, in nats."""
        return logits[-1, self.correct] - logits[-1, self.wrong]


def prompt_cases(path: str | Path, tokenizer: Any) -> list[Prompt]:
    """Read a file of prompts as a model's tokens, with the token before them that the tokenizer puts before a text.

    Raises
    ------
    InputError
        If the file cannot be read, a line is no such object, or an answer is not one token; the line is named.
    """
    before = token_before(tokenizer)
    start = np.array([] if before is None else [before], dtype=np.int64)
    cases = []
    for where, line in _lines(path):
        prompt = _tokens(tokenizer, line["prompt"])
        if not prompt:
            raise InputError(f"{where}: the prompt is empty, expected text before the answers")
        answers = [_answer(tokenizer, line, name, prompt, where) for name in ("correct", "wrong")]
        if answers[0] == answers[1]:
            raise InputError(f"{where}: both answers are the token {line['correct']!r}, expected two that differ")
        cases.append(Prompt(np.concatenate([start, prompt]), 1, *answers))
    return cases


def _lines(path: str | Path) -> list[tuple[str, dict[str, str]]]:
    """Give every line's place and object; empty lines are none."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"prompts {path}: not UTF-8 ({error.reason} at byte {error.start}); convert it") from error
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"prompts {path}, line {number}"
        try:
            content = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error}), expected {EXPECTED}") from error
        keys = content.keys() if isinstance(content, dict) else set()
        if set(keys) != set(KEYS) or not all(isinstance(value, str) for value in content.values()):
            raise InputError(f"{where}: got {line.strip()[:80]}, expected {EXPECTED}")
        found.append((where, content))
    if not found:
        raise InputError(f"prompts {path}: no prompts, expected one object a line: {EXPECTED}")
    return found


def _tokens(tokenizer: Any, text: str) -> list[int]:
    tokens: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return tokens


def _answer(tokenizer: Any, line: dict[str, str], name: str, prompt: list[int], where: str) -> int:
    """Find the one token that an answer adds to its prompt: what a word is, can depend on what stands before it."""
    whole = _tokens(tokenizer, line["prompt"] + line[name])
    added = whole[len(prompt) :]
    if whole[: len(prompt)] != prompt:
        raise InputError(
            f"{where}: {name} {line[name]!r} changes the prompt's own tokens, expected a new one; begin it with a space"
        )
    if len(added) != 1:
        parts = ", ".join(repr(tokenizer.decode([token])) for token in added)
        raise InputError(f"{where}: {name} {line[name]!r} is {len(added)} tokens ({parts}), expected one")
    return added[0]
