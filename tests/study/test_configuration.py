import copy
from pathlib import Path

import pytest
import yaml
from support.project import ROOT
from support.workflow_runs import save_tiny

from headspaces.errors import InputError
from headspaces.study.configuration import head_classes_file, read_study
from headspaces.study.given import overridden

PAPER = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
REST = {name: value for name, value in PAPER["nulls"].items() if name != "samples"}


def study(**changes):
    settings = copy.deepcopy(PAPER)
    settings.update(changes)
    return read_study(settings, ROOT)


def given(**options):
    """As Snakemake hands on ``--config``: merged into the settings, and apart, as text."""
    return read_study(overridden(copy.deepcopy(PAPER), options), ROOT, options).settings


def test_the_paper_study():
    found = study()
    assert found.name == "paper"
    assert list(found.models) == PAPER["models"]
    assert found.models["qwen3-235b-a22b"].kinds == "O"
    # RW section 4.3.
    assert found.models["qwen2.5-7b"].shape.n_layers * (found.models["qwen2.5-7b"].shape.n_layers - 1) // 2 == 378


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modles": []}, "config: unknown key 'modles' .did you mean 'models'.*; the keys are .*models"),
        (
            {"nulls": {"samples": 3, "smaples": 4}},
            "config: unknown key 'smaples' in 'nulls' .did you mean 'samples'.*; the keys are .*samples",
        ),
        ({"nulls": REST}, "config: 'samples' is a required property in 'nulls'"),
        ({"seed": "7"}, "config: seed is '7', but must be of type integer"),
        ({"rank_rtol": "1e-6"}, "config: rank_rtol is '1e-6', but must be of type number; write 1.0e-6"),
        (
            {"nulls": {"samples": None, **REST}},
            "config: nulls.samples is None, but must be of type integer",
        ),
        (
            {"nulls": {"samples": 0, **REST}},
            "config: nulls.samples is 0, but must have minimum 1",
        ),
        ({"fold": "no"}, "config: fold is 'no', but must be of type boolean"),
        ({"study": "a/b"}, "config: study is 'a/b'"),
        ({"device": "gpu"}, "config: device is 'gpu', but must be one of auto, cpu, cuda"),
        ({"device": {"nulls": "gpu"}}, "config: device.nulls is 'gpu', but must be one of auto, cpu, cuda"),
        (
            {"device": {"bases": "cuda"}},
            "config: unknown key 'bases' in 'device'; the keys are affinity, nulls, overlaps",
        ),
        (
            {"models": ["gpt5"]},
            "config: models of the study 'paper': unknown model 'gpt5' .did you mean 'gpt2'.*; known are .*gpt2",
        ),
        ({"models": []}, "config: models is"),
    ],
)
def test_a_wrong_setting_is_one_line(changes, message):
    with pytest.raises(InputError, match=message) as error:
        study(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("False", False), (True, True)])
def test_switches_of_the_command_line(value, expected):
    assert given(fold=value)["fold"] is expected


def test_numbers_of_the_command_line():
    assert given(nulls={"samples": "40", **REST})["nulls"] == {**PAPER["nulls"], "samples": 40}
    assert given(rank_rtol="1.0e-5")["rank_rtol"] == 1e-5
    with pytest.raises(InputError, match="config: seed is 'seven', but must be of type integer"):
        given(seed="seven")


def test_a_setting_of_a_section_needs_no_section_on_the_command_line():
    for options in ({"samples": "40"}, {"nulls": {"samples": "40"}}):
        assert given(**options)["nulls"] == {**PAPER["nulls"], "samples": 40}
    found = given(samples=40, burn_in=3, text="none", window_tokens="16", edges=5)
    assert found["nulls"] == {**REST, "samples": 40, "swap": {**REST["swap"], "burn_in": 3}}
    assert found["activations"] == {**PAPER["activations"], "text": "none", "window_tokens": 16}
    assert found["affinity"] == {**PAPER["affinity"], "edges": 5}
    assert "samples" not in found
    with pytest.raises(InputError, match=r"unknown key 'smples' \(did you mean 'samples'\?\)"):
        given(smples=5)
    # In a file it belongs into its section.
    with pytest.raises(InputError, match=r"unknown key 'samples' \(did you mean 'samples'\?\)"):
        study(samples=5)


def test_a_model_on_this_machine_needs_no_network_for_its_text(tmp_path):
    def text(**changes):
        return study(**changes).settings["activations"]["text"]

    assert text(model=str(save_tiny(tmp_path / "own"))) == "python:pydoc_data.topics"
    assert text(models=["smollm2-135m-instruct", "two-layer-attention"]) == "python:pydoc_data.topics"
    assert text() == "dataset:HuggingFaceFW/fineweb-edu:sample-10BT:train"
    named = {**PAPER["activations"], "text": "mine.txt"}
    assert text(model="two-layer-attention", activations=named) == "mine.txt"


def test_without_a_text_no_model_is_run():
    found = study(models=["gpt2", "two-layer-attention"], activations={**PAPER["activations"], "text": "none"})
    assert set(found.stages["activations"]) == set(found.stages["attention"]) == {"gpt2", "two-layer-attention"}
    assert found.stages["attention"]["gpt2"] == "the setting text is none: no model is run"
    assert "affinity" in found.stages_of("gpt2")


@pytest.mark.parametrize(("ablated", "made"), [(0, False), (2, True)])
def test_edges_are_taken_out_where_the_setting_says_so(ablated, made):
    found = study(models=["two-layer-attention"], attribution={"second_order": 1, "ablated": ablated})
    assert ("ablation" in found.stages_of("two-layer-attention")) == made
    assert "attribution" in found.stages_of("two-layer-attention")
    assert made or found.stages["ablation"]["two-layer-attention"].startswith("the setting ablated is 0")


def test_prompts_are_a_file(tmp_path):
    (tmp_path / "ioi.jsonl").write_text("")
    prompts = str(tmp_path / "ioi.jsonl")
    assert given(prompts=prompts)["attribution"]["prompts"] == prompts
    with pytest.raises(InputError, match=r"prompts is 'oio.jsonl': no such file"):
        given(prompts="oio.jsonl")


@pytest.mark.parametrize("asked", [False, True])
def test_the_stream_is_a_stage_where_it_is_asked_for(asked):
    found = study(models=["gpt2", "pythia-70m"], stream=asked)
    assert {"stream" in found.stages_of(model) for model in found.models} == {asked}
    assert "stream" not in study().stages
    with pytest.raises(InputError, match="config: stream is 'often', but must be of type boolean"):
        study(stream="often")


def test_head_classes_are_a_set_or_a_file(tmp_path):
    own = tmp_path / "mine.tsv"
    own.write_text("class\tlayer\thead\tevaluated\torigin\n")
    assert head_classes_file("gpt2-ioi", ROOT) == ROOT / "config/head_classes/gpt2-ioi.tsv"
    assert head_classes_file(str(own), ROOT) == own
    study(model="gpt2", head_classes=str(own))
    with pytest.raises(InputError, match=r"head_classes is 'gpt2-oio': no such file.* \(did you mean 'gpt2-ioi'\?\)"):
        study(model="gpt2", head_classes="gpt2-oio")


def test_a_source_that_is_none_suggests_what_was_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"gpt2 does not exist \(did you mean hub:openai-community/gpt2\?\)"):
        study(model="openai-community/gpt2")
    with pytest.raises(InputError, match=r"model is 'gpt-2': no such file or folder.*\(did you mean 'gpt2'\?\)"):
        study(model="gpt-2")


@pytest.mark.parametrize("device", ["cuda", {"nulls": "cuda"}])
def test_a_device_for_all_stages_or_for_some(device):
    assert given(device=device)["device"] == device
    assert PAPER["device"] == "cpu"


def test_a_known_model_by_name_is_a_study_of_its_own():
    found = study(model="pythia-70m")
    assert found.name == "pythia-70m"
    assert list(found.models) == ["pythia-70m"]


def test_a_model_is_compared_as_a_published_one():
    assert study(model="pythia-70m", published_as="gpt2").published_as == {"pythia-70m": "gpt2"}
    assert study().published_as == {}
    names = "gpt2, pythia-70m, qwen2.5-7b, qwen2.5-7b-instruct, qwen3-235b-a22b"
    with pytest.raises(InputError, match=f"^config: published_as is 'gpt5', but must be one of {names}$"):
        study(model="pythia-70m", published_as="gpt5")
    with pytest.raises(InputError, match="published_as is 'gpt2' in a study of 7 models, .*name that one by model="):
        study(published_as="gpt2")


def test_a_folder_is_a_study_of_its_own(gpt2_folder):
    found = study(model=str(gpt2_folder))
    model = found.models["gpt2-small-attention"]
    assert (model.kinds, model.shape.n_layers, model.shape.d_model) == ("OQKV", 12, 768)
    assert Path(model.source).is_absolute()


def test_a_missing_folder_is_one_line(tmp_path):
    with pytest.raises(InputError, match="nowhere") as error:
        study(model=str(tmp_path / "nowhere"))
    assert "\n" not in str(error.value)
