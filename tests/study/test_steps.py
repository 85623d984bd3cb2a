import copy
import json

import pytest
import yaml
from support.hub_double import Content, serving
from support.project import ROOT
from support.workflow_runs import save_tiny

from headspaces.errors import InputError
from headspaces.study.configuration import read_study
from headspaces.study.given import overridden
from headspaces.study.names import read_names, write_names
from headspaces.study.series import TOY_STEPS, braces, find_steps, keep_revisions, revisions_file, step_number

PAPER = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())


def study(source, **changes):
    given = {"series": source, **changes}
    return read_study({**copy.deepcopy(PAPER), **given}, ROOT, given)


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "elsewhere" / "my run"
    for number in (5, 100, 20):
        save_tiny(folder / f"checkpoint-{number}", seed=number)
    (folder / "logs").mkdir()
    (folder / "checkpoint-200").mkdir()  # not written yet
    (folder / "trainer_state.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-100", 100), ("step1000", 1000), ("global_step1000", 1000), ("epoch_3", 3), ("iter_0000100", 100),
        ("step1000-tokens4B", 1000), ("stage1-step7-tokens3B", 7), ("epoch=3-step=12", 12), ("000100", 100),
        ("ckpt_7", 7), ("Step-9", 9), ("main", None), ("model-00001-of-00002", None), ("v2", None),
    ],
)  # fmt: skip
def test_steps_as_trainers_write_them(name, step):
    assert step_number(name) == step


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("step{0,1,512}", ["step0", "step1", "step512"]), ("step{0..20..10}", ["step0", "step10", "step20"]),
        ("a{2..4}b", ["a2b", "a3b", "a4b"]), ("step7", ["step7"]), ("{x, y}", ["x", "y"]),
    ],
)  # fmt: skip
def test_lists_in_braces(pattern, names):
    assert braces(pattern) == names


@pytest.mark.parametrize("pattern", ["step{0", "a{0,1}b{2}", "{{1}}"])
def test_other_braces_are_refused(pattern):
    with pytest.raises(InputError, match="braces that hold no one list"):
        braces(pattern)


def test_checkpoints_of_a_folder_in_the_order_of_their_numbers(training):
    assert list(find_steps(str(training))) == [5, 20, 100]
    found = study(str(training))
    assert found.name == "my-run"
    steps = found.series["my-run"].steps
    assert {step: model.name for step, model in steps.items()} == {
        5: "my-run-checkpoint-5", 20: "my-run-checkpoint-20", 100: "my-run-checkpoint-100",
    }  # fmt: skip
    # The shape is the headers', the report that of the last step.
    assert steps[5].shape.d_model == 24
    assert list(found.models) == ["my-run-checkpoint-100"]


def test_files_are_steps_too(training):
    for number in (1, 2):
        (training / f"step{number}.safetensors").write_bytes(
            (training / "checkpoint-5" / "model.safetensors").read_bytes()
        )
    assert list(find_steps(str(training))) == [1, 2, 5, 20, 100]


def test_names_of_steps_never_collide(training, tmp_path):
    """Another run's folder of the same name, and a model of a step's name."""
    first = study(str(training))
    write_names(read_names().with_models(first.steps.values(), PAPER, {"my-run": str(training)}))
    other = tmp_path / "second" / "my run"
    save_tiny(other / "checkpoint-5", seed=9)
    second = study(str(other))
    assert second.name == "second-my-run"
    assert not set(second.steps) & set(first.steps)
    assert list(study(str(training)).steps) == list(first.steps)
    changed = study(str(training), fold=False)
    assert not set(changed.steps) & set(first.steps)
    assert {step.checkpoint for step in changed.steps.values()} == set(first.steps)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nowhere", "expected a folder of checkpoints"),
        (lambda folder: folder / "logs", "no checkpoint whose name tells a step.*there is nothing"),
    ],
)
def test_a_folder_without_checkpoints(training, make, message):
    with pytest.raises(InputError, match=message) as error:
        study(str(make(training)))
    assert "\n" not in str(error.value)


def test_two_checkpoints_of_one_step(training):
    save_tiny(training / "step20")
    with pytest.raises(InputError, match="checkpoint-20 and step20 are both step 20; leave one out"):
        study(str(training))


def test_seeds_of_the_trained_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = study(["toy:0", "toy:7"])
    assert list(found.series) == ["two-layer-attention", "two-layer-attention-seed7"]
    seven = found.series["two-layer-attention-seed7"]
    assert list(seven.steps) == list(TOY_STEPS)
    assert seven.trained.source == "toy:7"
    assert seven.steps[150].source == "toy:7@150"
    with pytest.raises(InputError, match="series 'toy:x': expected toy:SEED"):
        study("toy:x")


def test_the_demo_has_the_series_of_its_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demo = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    demo = overridden(PAPER, demo)
    found = read_study(demo, ROOT)
    assert list(found.series) == ["two-layer-attention"]
    assert "two-layer-attention-step150" not in found.models
    assert found.stages_of("two-layer-attention-step150") == ["overlaps", "nulls"]
    more = read_study({**demo, "series": ["toy:1"]}, ROOT)
    assert list(more.series) == ["two-layer-attention", "two-layer-attention-seed1"]


@pytest.fixture
def hub(tmp_path, monkeypatch, training):
    from huggingface_hub import constants

    files = {path.name: Content.of(path.read_bytes(), True) for path in (training / "checkpoint-5").iterdir()}
    with serving() as double:
        monkeypatch.setattr(constants, "ENDPOINT", double.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", double.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        double.repository("some/model").commit(files, "main", "step0", "step2", "step10")
        yield double


def test_revisions_by_a_pattern_are_asked_for_once(hub):
    found = study("hub:some/model@step*")
    (series,) = found.series.values()
    assert {step: model.source for step, model in series.steps.items()} == {
        step: f"hub:some/model@step{step}" for step in (0, 2, 10)
    }
    keep_revisions(found.series.values())
    assert json.loads(revisions_file(series.source).read_text())["revisions"] == ["step0", "step2", "step10"]
    hub.repository("some/model").revisions["step99"] = hub.repository("some/model").revisions["main"]
    before = len(hub.requests)
    assert list(study("hub:some/model@step*").series[series.name].steps) == [0, 2, 10]
    assert not [path for _, path, _ in hub.requests[before:] if path.endswith("/refs")]
    assert list(study("hub:some/model").series["model"].steps) == [0, 2, 10, 99]


def test_listed_revisions_are_not_asked_for(hub):
    found = study("hub:some/model@step{0,10}")
    assert [model.name for model in found.steps.values()] == ["model-step0", "model-step10"]
    assert not [path for _, path, _ in hub.requests if path.endswith("/refs")]
    # Nothing is run whose whole files would be fetched.
    assert found.stages_of("model-step0") == ["overlaps", "nulls"]


def test_a_pattern_that_fits_nothing(hub):
    with pytest.raises(InputError, match="no revision fits that tells a step; hub:some/model has main, step0"):
        study("hub:some/model@epoch*")
