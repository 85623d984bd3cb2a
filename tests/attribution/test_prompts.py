"""Files of prompts: their tokens, their measure, and what is said of a wrong line."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.running_models import running_tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from headspaces.activations.texts import Text
from headspaces.attribution.ablation import Edge, ablate
from headspaces.attribution.first_order import first_order
from headspaces.attribution.prompts import Prompt, prompt_cases
from headspaces.attribution.stage import attribution, losses
from headspaces.errors import InputError

WORDS = ["<s>", "<unk>", "Mary", " Mary", " John", " gave", " it", " to", " Ann", "to"]


def tokenizer(*, bos=False):
    """Words with the space before them, as GPT-2 has them."""
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))  # noqa: S106
    made.pre_tokenizer = Split(" ", "merged_with_next")
    if bos:
        made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", unk_token="<unk>")  # noqa: S106


def prompts(folder, *lines):
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


IOI = {"prompt": "Mary gave it to", "correct": " John", "wrong": " Mary"}


@pytest.mark.parametrize("bos", [False, True])
def test_a_prompt_is_its_tokens_and_those_of_its_answers(tmp_path, bos):
    other = {"prompt": "Mary", "correct": " to", "wrong": " it"}
    one, two = prompt_cases(prompts(tmp_path, IOI, "", other), tokenizer(bos=bos))
    before = [0] if bos else []
    assert one.tokens.tolist() == [*before, 2, 5, 6, 7]
    assert (one.correct, one.wrong) == (4, 3)
    assert two.tokens.tolist() == [*before, 2]
    assert (two.correct, two.wrong) == (7, 6)


def test_what_is_measured_is_the_difference_of_logits_after_the_prompt():
    model = running_tiny("llama")
    cases = [Prompt(np.array([5, 9, 3]), correct=4, wrong=8), Prompt(np.array([6, 7, 30, 12]), correct=1, wrong=2)]
    found, value = first_order(model, cases)
    with torch.no_grad():
        logits = [model.run(case.tokens)[-1] for case in cases]
    assert value == pytest.approx(((logits[0][4] - logits[0][8] + logits[1][1] - logits[1][2]) / 2).item(), rel=1e-9)
    # The odds turn round with the answers, and so do all effects.
    other, minus = first_order(model, [Prompt(case.tokens, 1, case.wrong, case.correct) for case in cases])
    assert minus == pytest.approx(-value)
    np.testing.assert_allclose(other["V/effect"][0, 1], -found["V/effect"][0, 1], rtol=1e-6)
    changes = ablate(model, cases, [Edge("V", 0, head, 1, 0) for head in range(4)])[0].mean(axis=1)
    assert np.corrcoef(changes, -found["V/effect"][0, 1, :, 0])[0, 1] > 0.9


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: not JSON .*, expected \{\"prompt\""),
        ("[1]", r"line 2: got \[1\], expected"),
        ({"prompt": "Mary"}, "line 2: got .*expected"),
        ({**IOI, "right": 1}, "line 2: got .*expected"),
        ({**IOI, "wrong": 3}, "line 2: got .*expected"),
        ({**IOI, "correct": " John Ann"}, r"line 2: correct ' John Ann' is 2 tokens \(' John', ' Ann'\), expected one"),
        ({**IOI, "wrong": ""}, r"line 2: wrong '' is 0 tokens \(\), expected one"),
        ({**IOI, "wrong": "Mary"}, "line 2: wrong 'Mary' changes the prompt's own tokens.*begin it with a space"),
        ({**IOI, "wrong": " John"}, "line 2: both answers are the token ' John'"),
        ({**IOI, "prompt": ""}, "line 2: the prompt is empty"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    with pytest.raises(InputError, match=message) as caught:
        prompt_cases(prompts(tmp_path, IOI, line), tokenizer())
    assert "\n" not in str(caught.value)


def test_a_file_without_prompts_is_refused(tmp_path):
    with pytest.raises(InputError, match="no prompts, expected one object a line"):
        prompt_cases(prompts(tmp_path, ""), tokenizer())
    (tmp_path / "latin.jsonl").write_bytes(b"\xe4")
    with pytest.raises(InputError, match="not UTF-8"):
        prompt_cases(tmp_path / "latin.jsonl", tokenizer())
    with pytest.raises(InputError, match=r"none\.jsonl"):
        prompt_cases(tmp_path / "none.jsonl", tokenizer())


def test_the_stage_measures_prompts_beside_the_losses(tmp_path):
    model = replace(running_tiny("llama"), tokenizer=tokenizer())
    text = Text("Mary gave it to Ann" * 5, "none", "", 1, "0" * 64)
    chosen = losses(model, text, 2, 8, seed=0, prompts=str(prompts(tmp_path, IOI, IOI)))
    assert list(chosen.cases) == ["text", "repeats", "prompts"]
    assert chosen.facts["n_prompts"] == 2
    arrays, values = attribution(model, chosen, 1)
    expected, value = first_order(model, chosen.cases["prompts"])
    np.testing.assert_array_equal(arrays["prompts/Q/effect"], expected["Q/effect"])
    assert values["loss_prompts"] == value
    without = replace(model, tokenizer=None)  # as the toy model
    assert list(losses(without, text, 2, 8, seed=0, prompts="none.jsonl").cases) == ["repeats"]
