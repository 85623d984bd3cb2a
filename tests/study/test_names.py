"""Names of models: short where they are unambiguous, never those of another source or other settings."""

import itertools

import pytest

from headspaces.errors import InputError
from headspaces.spaces import Shape
from headspaces.study.models import Model
from headspaces.study.names import MAX_NAME, Names, model_name, read_names, write_names

PLAIN = {"fold": True, "rank_rtol": 1e-6, "leave_out_rounding": False, "seed": 0}
SHAPE = Shape(1, 4, 1, 1, 2)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("hub:EleutherAI/pythia-70m", "pythia-70m"),
        ("hub:EleutherAI/pythia-70m@step1000", "pythia-70m-step1000"),
        ("hub:EleutherAI/pythia-70m@refs/pr/1", "pythia-70m-refs-pr-1"),
        ("hub:EleutherAI/pythia-70m@" + "0123456789abcdef" * 2 + "01234567", "pythia-70m-01234567"),
        ("../folder/gpt2 small/", "gpt2-small"),
        ("/home/me@corp/x", "x"),
        ("model.Q4.gguf", "model.Q4"),
        ("/a/b/ckpt.pt", "ckpt"),
        ("/a/<script>", "script"),
    ],
)
def test_a_source_gives_a_name_of_one_component(source, name):
    assert model_name(source) == name


def run_in_turn(sources, settings=PLAIN, reserved=None):
    """Names of sources that are run one after the other."""
    names, found = Names(), []
    for source in sources:
        name, checkpoint = names.settle(model_name(source), source, settings, reserved or {}, chosen=False)
        names = names.with_models([Model(name, source, "O", SHAPE, checkpoint=checkpoint)], settings)
        found.append(name)
    return found


@pytest.mark.parametrize(
    "sources",
    [
        ("hub:E/p@step1000", "hub:E/p@step2000", "hub:E/p"),
        ("hub:a/llama", "hub:b/llama"),
        ("/runs/a/final", "/runs/b/final", "/other/b/final"),
        ("/m.gguf", "/m.pt"),
        ("/home/me@corp/x", "/home/me@corp/y"),
        ("hub:a/x", "hub:a/x@y", "hub:a/x-y", "/x-y", "/a/x-y", "/a-x-y"),
        (f"/a/{'n' * 300}", f"/b/{'n' * 300}"),
    ],
)
def test_no_two_sources_ever_share_a_name(sources):
    for order in itertools.permutations(sources):
        names = run_in_turn(order)
        assert len(set(names)) == len(order), names
        # Whoever comes first has the short name, and keeps it.
        assert names[0] == model_name(order[0])
        assert run_in_turn([*order, *order])[len(order) :] == names
        assert max(map(len, names)) <= MAX_NAME


def test_the_second_name_says_whose_it_is():
    assert run_in_turn(["hub:a/llama", "hub:b/llama"]) == ["llama", "b-llama"]
    assert run_in_turn(["/runs/a/final", "/runs/b/final"]) == ["final", "b-final"]


def test_a_row_of_the_table_keeps_its_name():
    row = {"gpt2": "hub:openai-community/gpt2"}
    assert run_in_turn(["hub:a/gpt2", "hub:openai-community/gpt2"], reserved=row) == ["a-gpt2", "gpt2"]


def test_other_settings_have_other_names_and_the_same_weights():
    first = Names().with_models([Model("m", "/m", "O", SHAPE, checkpoint="m")], PLAIN)
    assert first.settle("m", "/m", PLAIN, {}, chosen=False) == ("m", "m")
    unfolded = PLAIN | {"fold": False}
    assert first.settle("m", "/m", unfolded, {}, chosen=False) == ("m-fold-false", "m")
    other = first.settle("m", "/m", PLAIN | {"rank_rtol": 1e-4, "seed": 3}, {}, chosen=True)
    assert other == ("m-rank_rtol-0.0001-seed-3", "m")
    without = PLAIN | {"leave_out_rounding": True}
    assert first.settle("m", "/m", without, {}, chosen=False) == ("m-leave_out_rounding-true", "m")
    # Results of before that setting was there had every direction.
    earlier = Names(first.weights, {"m": {key: PLAIN[key] for key in ("fold", "rank_rtol", "seed")}})
    assert earlier.settle("m", "/m", without, {}, chosen=False) == ("m-leave_out_rounding-true", "m")
    assert earlier.settle("m", "/m", PLAIN, {}, chosen=False) == ("m", "m")
    # Whose settings came first has the plain name.
    turned = Names().with_models([Model("m", "/m", "O", SHAPE, checkpoint="m")], unfolded)
    assert turned.settle("m", "/m", PLAIN, {}, chosen=False) == ("m-fold-true", "m")


def test_a_chosen_name_is_not_replaced():
    names = Names().with_models([Model("mine", "/a", "O", SHAPE, checkpoint="mine")], PLAIN)
    assert names.settle("mine", "/a", PLAIN, {}, chosen=True) == ("mine", "mine")
    with pytest.raises(InputError, match="^the name 'mine' stands for /a in these results, not for /b: choose another"):
        names.settle("mine", "/b", PLAIN, {}, chosen=True)
    with pytest.raises(InputError, match="'demo' stands for a study in these results"):
        names.settle("demo", "/b", PLAIN, {"demo": "a study"}, chosen=True)


def test_a_checkpoint_without_an_entry_keeps_its_name_too(tmp_path):
    """Results of a run inside another workflow, or of before names were kept."""
    (tmp_path / "weights" / "m").mkdir(parents=True)
    (tmp_path / "weights" / "m" / "headers.json").write_text('{\n"sha256": "0",\n"source": "/a \\"b/m",\n"kinds": "O"}')
    (tmp_path / "weights" / "n").mkdir()
    (tmp_path / "weights" / "n" / "headers.json").write_bytes(b"\xff")
    assert read_names(tmp_path) == Names({"m": '/a "b/m'})


def test_names_are_kept_from_run_to_run(tmp_path):
    assert read_names(tmp_path) == Names()
    names = Names({"m": "/m"}, {"m": PLAIN})
    write_names(names, tmp_path)
    assert read_names(tmp_path) == names
    (tmp_path / "names.json").write_text("{}")
    with pytest.raises(InputError, match=r"names.json: damaged .*; move it away"):
        read_names(tmp_path)
