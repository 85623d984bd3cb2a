"""A model of one's own, from its folder to the report in one command, with no network."""

import os
import re
import subprocess
import sys

import pytest
from support.project import ROOT
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

NO_NETWORK = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")} | {
    "HF_ENDPOINT": "http://127.0.0.1:9"
}


@pytest.fixture
def folder(tmp_path):
    """A tiny Llama that knows some words, as somebody trained and saved it."""
    words = ["<unk>", *["the", "of", "to", "and", "a", "in", "is", "value", "name", "object", "function"]]
    config = LlamaConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        vocab_size=len(words), intermediate_size=16, max_position_embeddings=256,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "mine")
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    plain.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=plain, unk_token=words[0]).save_pretrained(tmp_path / "mine")
    return tmp_path


def run(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "headspaces", "run", "mine", "--cores", "2", *words], cwd=folder, capture_output=True,
        text=True, check=False, env=os.environ | NO_NETWORK | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


@pytest.mark.slow
def test_one_command_from_folder_to_report_and_the_second_runs_nothing(folder):
    done = run(folder, "samples=3", "windows=2")
    assert done.returncode == 0, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    assert len(lines) < 60
    assert lines[-1] == "report: results/report/mine/report.html"
    assert (folder / "results/report/mine/report.html").is_file()
    # Nothing was left out: the text came from Python, the model ran.
    assert not [line for line in lines if line.startswith(("left out", "error", "warning"))]
    assert re.match(
        r"strongest connection of mine: head \d\.\d writes where the \w+ of head \d\.\d read: ρ ", lines[-2]
    )
    stages = {found[1] for line in lines if (found := re.match(r"\d:\d\d:\d\d +\d+ %  (\w+): ", line))}
    assert {
        "weights",
        "bases",
        "overlaps",
        "nulls",
        "activations",
        "attention",
        "affinity",
        "tables",
        "report",
    } <= stages
    times = {path: path.stat().st_mtime_ns for path in (folder / "results").rglob("*") if path.is_file()}
    again = run(folder, "samples=3", "windows=2")
    assert again.returncode == 0, again.stderr
    assert "Nothing to be done" in again.stderr
    assert again.stderr.splitlines()[-1] == lines[-1]
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.slow
def test_the_whole_stream_is_fetched_and_shown_where_it_is_asked_for(folder):
    """A run without it fetches no MLP; one with it keeps all that was made, and lists tokens by their words."""
    done = run(folder, "samples=2", "text=none")
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("results/weights/mine/stream/*")), "not asked for"
    kept = [
        *folder.glob("results/weights/mine/*.*"),
        *folder.glob("results/bases/mine/*"),
        *folder.glob("results/*/mine.h5"),
    ]
    times = {path: path.stat().st_mtime_ns for path in kept}
    done = run(folder, "samples=2", "text=none", "stream=true")
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == times
    tables = folder / "results/report/mine/tables"
    assert "embedding,Q," in (tables / "stream_scores.csv").read_text()
    assert "'function'" in (tables / "stream_tokens.csv").read_text()
    assert "MLP gate" in (tables / "stream_neurons.csv").read_text()
    page = (folder / "results/report/mine/report.html").read_text(encoding="utf-8")
    assert "Scores of every writer of the residual stream" in page


@pytest.mark.slow
def test_what_cannot_be_had_is_left_out_and_said(folder):
    (folder / "mine" / "tokenizer.json").unlink()
    done = run(folder, "samples=2")
    assert done.returncode == 0, done.stderr
    left_out, report = done.stderr.splitlines()[-2:]
    assert left_out.startswith(
        "left out: activations, attention, attribution, ablation of mine: the folder holds no tokenizer ("
    )
    assert report == "report: results/report/mine/report.html"
    page = (folder / "results/report/mine/report.html").read_text(encoding="utf-8")
    assert "the folder holds no tokenizer" in page
