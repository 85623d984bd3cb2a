"""Effects by the library and the command line: those of the stage, the strongest first; what is said to mistakes."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from support.tiny_models import build
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

import headspaces as hs
from headspaces.attribution.ablation import Edge
from headspaces.attribution.first_order import first_order
from headspaces.attribution.prompts import prompt_cases
from headspaces.attribution.running import open_running
from headspaces.attribution.second_order import second_order
from headspaces.command_line import main
from headspaces.errors import InputError
from headspaces.library.effects import _cases
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers

WORDS = ["<unk>", "Mary", " Mary", " John", " gave", " it", " to"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model in float32 with a tokenizer, a text and prompts."""
    path = tmp_path_factory.mktemp("tiny")
    build("llama").float().save_pretrained(path)
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))  # noqa: S106
    made.pre_tokenizer = Split(" ", "merged_with_next")
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>").save_pretrained(path)  # noqa: S106
    (path / "text.txt").write_text("Mary gave it to John to it John gave Mary Mary to gave it John it to")
    line = {"prompt": "Mary gave it to", "correct": " John", "wrong": " Mary"}
    (path / "prompts.jsonl").write_text(json.dumps(line) + "\n")
    return path


@pytest.fixture(scope="module")
def running(folder, tmp_path_factory):
    block = tmp_path_factory.mktemp("block") / "block.safetensors"
    fetch_block(read_headers(str(folder)), range(2), block)
    return open_running(str(folder), read_block(block), "tiny")


def test_the_edges_are_all_of_the_stage_the_largest_first(folder, running):
    model = hs.load(str(folder))
    frame = model.effects(folder / "text.txt", None, windows=2, window_tokens=8)
    cases = _cases(running, folder / "text.txt", None, 2, 8)
    arrays, value = first_order(running, cases)
    assert frame.attrs == {"value": pytest.approx(value), "n_cases": 2, "measure": "mean next-token loss"}
    assert len(frame) == sum(np.isfinite(arrays[f"{kind}/effect"]).sum() for kind in "QKV")
    assert (frame["effect"].abs().diff()[1:] <= 0).all()
    rho = {kind: model.overlaps(f"O{kind}").values for kind in "QKV"}
    for row in frame.to_dict("records"):
        (i, h), (j, g) = (map(int, row[end].split(".")) for end in ("writer", "reader"))
        for name in ("effect", "absolute"):
            assert row[name] == pytest.approx(arrays[f"{row['kind']}/{name}"][i, j, h, g], rel=1e-4, abs=1e-9)
        assert row["rho"] == pytest.approx(rho[row["kind"]][i, j, h, g])


def test_the_first_edges_have_their_heads_computed_exactly(folder, running):
    frame = hs.load(str(folder)).effects(prompts=folder / "prompts.jsonl", k=3)
    assert len(frame) == 3
    cases = prompt_cases(folder / "prompts.jsonl", running.tokenizer)
    edges = [
        Edge(row["kind"], *map(int, row["writer"].split(".")), *map(int, row["reader"].split(".")))
        for row in frame.to_dict("records")
    ]
    np.testing.assert_allclose(frame["effect_second_order"], second_order(running, cases, edges)[:, 0], rtol=1e-4)
    assert frame.attrs["measure"] == "mean difference of the answers' logits"


def test_the_command_prints_them(folder, capsys, tmp_path):
    arguments = ["effects", str(folder), str(folder / "text.txt"), "--windows", "2", "--window-tokens", "8"]
    expected = hs.load(str(folder)).effects(folder / "text.txt", 4, windows=2, window_tokens=8)
    assert main([*arguments, "--top", "4", "--csv"]) == 0
    (tmp_path / "effects.csv").write_text(capsys.readouterr().out)
    found = pd.read_csv(tmp_path / "effects.csv", dtype={"writer": str, "reader": str})
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6)
    assert main([*arguments, "--top", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [edge["effect"] for edge in printed["edges"]] == pytest.approx(expected["effect"][:2].tolist(), rel=1e-6)
    layer, head = map(int, expected["writer"][0].split("."))
    assert printed["edges"][0]["writer"] == {"layer": layer, "head": head}
    assert main([*arguments, "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{1e3 * expected['effect'][0]:.3f}" in lines[-1]
    assert f"{expected['rho'][0]:.4f}" in lines[-1]
    assert "mean next-token loss" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "effects are of a text or of prompts, got neither"),
        (["a.txt", "--prompts", "b.jsonl"], "got both"),
        (["nothing.txt"], "text 'nothing.txt': cannot be read"),
        (["TEXT"], "17 tokens, but 8 windows of 256"),
        (["--prompts", "nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_mistakes_are_one_line(folder, capsys, arguments, message):
    given = [str(folder / "text.txt") if word == "TEXT" else word for word in arguments]
    assert main(["effects", str(folder), *given]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("error: ")
    assert message in said


def test_without_torch_the_extra_is_named(folder, monkeypatch):
    model = hs.load(str(folder))
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [
        name for name in sys.modules if name.startswith(("headspaces.attribution", "headspaces.activations."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InputError, match=r"running it needs torch: pip install 'headspaces\[run\]'"):
        model.effects(folder / "text.txt")


def test_only_a_whole_checkpoint_runs(folder):
    rng = np.random.default_rng(0)
    arrays = hs.load({kind: rng.normal(size=(3, 4, 16, 2)) for kind in "OQKV"})
    with pytest.raises(InputError, match="arrays is no checkpoint to run; load a folder or hub:owner/name"):
        arrays.effects("text.txt")
    with pytest.raises(InputError, match="cannot be run: only the kinds OK are analysed"):
        hs.load(str(folder), kinds="OK").effects("text.txt")
    with pytest.raises(InputError, match="effects are of the whole model"):
        hs.load(str(folder), leave_out_rounding=True).effects("text.txt")
