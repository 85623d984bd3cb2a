"""Every block of code on every page is run here or by the test that this file names."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from support.project import ROOT, TESTS
from support.workflow_runs import save_tiny, snakemake

from headspaces.affinity.classes import read_head_classes
from headspaces.command_line import main
from headspaces.jobs.run_command import snakemake_arguments

PAGES = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "README.ja", "CONTRIBUTING", "CHANGELOG")),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "notebooks").glob("*.md"),
        ROOT / "config" / "README.md",
        ROOT / "results" / "README.md",
    ]
)

FENCED = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^|(?<=\n\n))((?:    .*\n|\n(?=    ))+)")

BY_LANGUAGE = {
    "{code-cell}": "test_site.py::test_the_site_is_built_and_its_notebooks_run",
    "{toctree}": "test_site.py::test_the_site_is_built_and_its_notebooks_run",
    "{eval-rst}": "test_site.py::test_the_site_is_built_and_its_notebooks_run",
    "tsv": "test_config_readme.py::test_the_example_study_runs_dry",
    "yaml": "test_config_readme.py::test_the_example_study_runs_dry",
    "sh": "test_config_readme.py::test_the_example_study_runs_dry",
    "snakemake": "test_config_readme.py::test_the_module_s_statement_is_the_tested_one",
}
"""Fenced blocks that another test runs as they stand."""

BY_START = {
    "import headspaces as hs\nfrom transformer_lens": "test_peer.py::test_its_models_have_its_kernel",
    "pip install .": "test_packaging.py::test_the_library_works_in_an_empty_environment",
    "pip install '.[run": "test_packaging.py::test_the_library_needs_nothing_heavy",
    "SLURM's accounting cannot": "test_profiles.py::test_a_run_without_accounting_ends_when_the_queue_is_asked",
    "A = Σ_t <u(t), g(t)>": "test_first_order.py::test_effects_are_those_of_autograd_with_every_read_its_own_leaf",
    "−A₂ = Σ_t <Δ(t), g(t)>": "test_second_order.py::test_the_curvature_is_that_of_the_predictions",
    '{"prompt": ': "test_prompts.py::test_a_prompt_is_its_tokens_and_those_of_its_answers",
    "headspaces effects ": "test_effects.py::test_the_command_prints_them",
    ".venv/bin/headspaces effects ": "test_effects.py::test_the_command_prints_them",
    "score = D <F F^T, G G^T>": "test_stream_scores.py::test_every_score_is_that_of_explicit_products",
    "2 D² (a − 1/D)": "test_stream_scores.py::test_the_deviation_in_closed_form_is_that_of_rotated_operators",
    "snakemake --cores N --config 'series=\"": "test_series_runs.py::test_revisions_of_a_repository_are_fetched_once",
    "headspaces run FOLDER head_classes=gpt2-ioi published_as=gpt2": "test_pk_report.py::test_under_another_name_every",
    "headspaces run training/study.yaml": "test_config_readme.py::test_the_example_study_runs_dry",
}
"""Blocks and lines that cannot be run here, by how they begin, and the test of what they say."""


def fenced(page: Path) -> list[tuple[str, str]]:
    return FENCED.findall(page.read_text(encoding="utf-8"))


def indented(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return [
        re.sub(r"^ +(?=\S)", "", block, count=0, flags=re.MULTILINE).strip("\n") for block in INDENTED.findall(text)
    ]


def covered(text: str) -> str | None:
    return next((test for start, test in BY_START.items() if text.startswith(start)), None)


def commands() -> list[str]:
    """Lines of all pages that a shell runs, each once."""
    lines = [line.removeprefix("$ ") for page in PAGES for block in indented(page) for line in block.splitlines()]
    known = ("headspaces ", ".venv/bin/headspaces ", "snakemake ", "make ")
    return list(dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for line in lines if line.startswith(known)))


def test_the_tests_that_cover_blocks_are_there() -> None:
    for test in {*BY_LANGUAGE.values(), *BY_START.values()}:
        name, function = test.split("::")
        (path,) = TESTS.rglob(name)
        assert f"def {function}" in path.read_text(encoding="utf-8"), test


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_is_left_out(page: Path) -> None:
    examples = (TESTS / "library" / "test_examples.py").read_text(encoding="utf-8")
    for language, text in fenced(page):
        if language == "python" and page != ROOT / "README.md" and not covered(text):
            assert doctest.DocTestParser().get_examples(text), text
            assert f'"{page.stem}"' in examples
        else:
            assert language == "python" or language in BY_LANGUAGE, text
    for block in indented(page):
        first = block.splitlines()[0].removeprefix("$ ")
        table = block.startswith("class\t")
        assert table or covered(first) or shlex.join(shlex.split(first, comments=True)) in commands(), block


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny models in one working folder, and the two as a series."""
    place = tmp_path_factory.mktemp("pages")
    for seed, name in enumerate(("one", "other", "series/checkpoint-1", "series/checkpoint-2")):
        save_tiny(place / name, seed)
    return place


def words_of(line: str, folder: Path) -> list[str]:
    given = {"SOURCE": "one", "FOLDER": "one", "A": "one", "B": "other", "BASE": "one", "TUNED": "other"}
    words = [str(folder / given[word]) if word in given else word for word in shlex.split(line)]
    return [
        word.replace("series=FOLDER", f"series={folder / 'series'}").replace("=SOURCE", f"={folder / 'one'}")
        for word in words
    ]


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("make ")])
def test_what_is_made_is_there(line: str) -> None:
    assert re.search(rf"^{line.split()[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


LOOKS = [line for line in commands() if re.match(r"\S*headspaces (?!run)", line) and not covered(line)]
RUNS = [line for line in commands() if re.match(r"snakemake|headspaces run", line) and not covered(line)]


@pytest.mark.parametrize("line", LOOKS)
def test_a_look_at_a_model_gives_something(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(words_of(line, folder)[1:]) == 0
    assert capsys.readouterr().out.count("\n") >= 1


@pytest.mark.slow
@pytest.mark.parametrize("line", RUNS)
def test_a_run_can_be_planned(line: str, folder: Path) -> None:
    words = ["1" if word == "N" else word for word in words_of(line, folder)]
    if words[0] == "headspaces":
        words = ["snakemake", *snakemake_arguments(words[2], words[3:])]
        words = [word for at, word in enumerate(words) if "--snakefile" not in words[max(at - 1, 0) : at + 1]]
    words = [str(ROOT / word) if word.startswith(("config/", "workflow/")) else word for word in words]
    cut = words.index("--config") if "--config" in words else len(words)
    done = snakemake(ROOT, *words[1:cut], "--dry-run", "--directory", str(folder), *words[cut:], directory=folder)
    assert "rule " in done.stdout


def test_the_readme_s_library_runs(folder: Path) -> None:
    (text,) = [block for language, block in fenced(ROOT / "README.md") if language == "python"]
    names: dict[str, object] = {}
    exec(text.replace('"FOLDER"', repr(str(folder / "one"))), names)  # noqa: S102 - the README's own lines
    assert names["model"].name == "one"


def test_the_example_of_head_classes_is_read(tmp_path: Path) -> None:
    (table,) = [block for block in indented(ROOT / "config" / "README.md") if block.startswith("class\t")]
    (tmp_path / "classes.tsv").write_text(table + "\n", encoding="utf-8")
    assert read_head_classes(tmp_path / "classes.tsv").names[4, 11] == "Previous Token"


def test_the_pairs_that_pages_print_are_gpt2s(gpt2_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", str(gpt2_folder), "--unfolded", "--spaces", "OK", "--top", "5"]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if "→" in line]
    assert len(rows) == 5
    for page in ("README.md", "README.ja.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [line.split() for line in text.splitlines() if re.match(r" +\d+\.\d+ +→ .*\d$", line)] == rows, page
