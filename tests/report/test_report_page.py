"""The page of a study: what it holds, what it links, and what it does in a real browser opened from disk."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from support.browser import cut_texts, is_dark, settle, show
from support.project import ROOT
from support.tiny_results import random_model
from support.workflow_runs import save_tiny

from headspaces.report.duplicates import Duplicate, write_duplicates
from headspaces.report.figures.drawing import draw_figure
from headspaces.report.findings import findings
from headspaces.report.page import StudyFiles, by_name, report_page
from headspaces.report.run_record import RunRecord, describe_machine, installed_software, read_costs
from headspaces.report.scorecard import scorecard
from headspaces.report.scorecard_pages import write_scorecard
from headspaces.report.tables.registry import TABLES as MAKERS
from headspaces.report.tables.writing import write_table
from headspaces.study.items import FIGURES, TABLES
from headspaces.study.published import read_published
from headspaces.text_tables import write_text

NASTY = "<script>window.hacked=1</script>"
PUBLISHED = """\
id	paper	place	model	quantity	relation	low	high	unit	tolerance	status	why	settings
one	RW	table 5	small	table5:n_layers?model=small	equal	5		layers	0	stated	a count	-
two	RW	table 5	small	table5:d_model?model=small	equal	17		1	0	stated	a | pipe	-
three	PK	table 1	gpt2	pk_table1:pr_auc	equal	0.4		1	0.05	stated	half a unit	-
four	RW	table 5	124m-baseline	table5:d_head?model=small	equal	4		1	0	stated	a count	-
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyFiles, RunRecord]:
    """Files of a small study as the workflow lays them out, and its page."""
    folder = tmp_path_factory.mktemp("study")
    models = [random_model("small"), random_model(NASTY, n_layers=3, seed=1)]
    for name in ("table1", "table3", "table4", "table5", "strongest_pairs", "right_tail", "model_pairs"):
        places = [folder / "tables" / f"{name}.{ending}" for ending in ("csv", "md", "tex", "json")]
        write_table(name, MAKERS[name](models), *places)
    for name in ("figure1", "figure3", "pk_figure4"):
        places = [folder / "figures" / f"{name}.{ending}" for ending in ("pdf", "png", "csv")]
        draw_figure(name, models, ROOT / "config" / "paper.mplstyle", *places)
    (folder / "published.tsv").write_text(PUBLISHED)
    frames = {"table5": pd.read_csv(folder / "tables" / "table5.csv")}
    write_scorecard(
        scorecard(read_published(folder / "published.tsv"), frames),
        folder / "scorecard.csv",
        folder / "scorecard.md",
        folder / "scorecard.json",
        {NASTY: "small"},
    )
    reference = [row for row in read_published(folder / "published.tsv") if row.id in ("one", "two")]
    write_scorecard(
        scorecard(reference, frames),
        folder / "reference.csv",
        folder / "reference.md",
        folder / "reference.json",
        heading="As on other machines",
    )
    atlas = folder / "atlas" / f"{NASTY.replace('/', '-')}.html"
    atlas.parent.mkdir()
    atlas.write_text("<!doctype html>")
    benchmarks = {"overlaps/small.tsv": (10, 100.5), "nulls/small/a.tsv": (3, 50), "nulls/small.tsv": (1, 70)}
    for place, (seconds, peak) in benchmarks.items():
        path = folder / "benchmarks" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"s\th:m:s\tmax_rss\tcpu_time\n{seconds}\t0:00:10\t{peak}\t2.5\n")
    facts = {"model": "small", "source": "hub:someone/small@" + "a" * 80, "revision": "sha256:" + "0" * 64, "d_head": 4}
    record = RunRecord(
        {
            "small": {"overlaps": facts, "activations": facts | {"text_sha256": "f" * 64, "loss_nats_per_token": 2.5}},
            NASTY: {"overlaps": facts | {"model": NASTY, "source": "<b>bold</b>"}},
        },
        {"small": "its revision is not pinned; a later layer is read first"},
        {NASTY: {"activations": "the checkpoint holds no MLP tensors"}},
        {"seed": 7, "nulls": {"samples": 30}, "fold": True, "models": ["small", NASTY]},
        read_costs(folder / "benchmarks", ["small", NASTY]),
        installed_software(),
        describe_machine(),
    )
    write_duplicates([Duplicate("small", NASTY, 12, 12, 0.0)], folder / "duplicates.csv")
    files = StudyFiles(
        folder / "scorecard.json",
        folder / "duplicates.csv",
        by_name(sorted((folder / "tables").glob("*.json"))),
        by_name(sorted((folder / "figures").glob("*.png"))),
        {NASTY: atlas},
        folder / "reference.json",
    )
    write_text(report_page("demo & more", files, record, folder), folder / "report.html")
    return folder / "report.html", files, record


class Page(HTMLParser):
    """The text and the list items of a page's elements by their id, its links and its pictures."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.texts: dict[str, str] = {}
        self.links: list[str] = []
        self.elements: list[str] = []
        self.items: dict[str, list[str]] = {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append(tag)
        if tag == "a":
            self.links.append(found["href"] or "")
        if tag not in ("meta", "img"):
            self.open.append((tag, found.get("id") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, name in self.open:
            if name:
                self.texts[name] = self.texts.get(name, "") + data
                if self.open[-1][0] == "li":
                    self.items.setdefault(name, []).append(data)


@pytest.fixture(scope="module")
def page(report: tuple[Path, StudyFiles, RunRecord]) -> Page:
    return Page(report[0])


def test_models_that_are_one_are_said_at_the_top(
    report: tuple[Path, StudyFiles, RunRecord], page: Page, tmp_path: Path
) -> None:
    said = f"small and {NASTY}: 12 of 12 attention matrices are byte for byte the same"
    assert said in " ".join(page.texts["duplicates"].split())
    assert "duplicates.csv" in page.links
    _, files, record = report
    write_duplicates([], tmp_path / "duplicates.csv")
    page = report_page("x", replace(files, duplicates=tmp_path / "duplicates.csv"), record, tmp_path)
    write_text(page, tmp_path / "report.html")
    assert "duplicates" not in Page(tmp_path / "report.html").texts


# --- provenance


def test_benchmarks_are_added_up_by_stage(report: tuple[Path, StudyFiles, RunRecord]) -> None:
    overlaps, nulls = report[2].costs
    assert (overlaps.stage, overlaps.subject, overlaps.n_jobs) == ("overlaps", "small", 1)
    assert (nulls.n_jobs, nulls.seconds, nulls.cpu_seconds, nulls.peak_mib) == (2, 4, 5, 70)


def test_other_studies_and_unseen_jobs_do_not_count(tmp_path: Path) -> None:
    for place, peak in {"tables/mine/table1.tsv": "NA", "tables/other/table1.tsv": "9", "text/t.tsv": "3"}.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(f"s\tmax_rss\tcpu_time\n0.5\t{peak}\t-\n")
    (cost,) = read_costs(tmp_path, ["mine"])
    assert (cost.stage, cost.seconds, cost.cpu_seconds, cost.peak_mib) == ("tables", 0.5, 0, None)
    assert read_costs(tmp_path / "absent", ["mine"]) == []


def test_software_and_machine_are_told_but_not_who(page: Page) -> None:
    text = page.texts["provenance"]
    assert f"numpy{np.__version__}" in text
    assert f"Python{platform.python_version()}" in text
    assert "CPUs of the job" in text
    assert platform.node() not in [value for _, value in describe_machine()]


def test_sources_revisions_settings_and_reasons_are_told(page: Page) -> None:
    for told in ("a" * 80, "sha256:" + "0" * 64, "<b>bold</b>", "text sha256" + "f" * 64, "its revision is not pinned"):
        assert told in page.texts["models"]
    assert page.items["models"] == ["its revision is not pinned", "a later layer is read first"]
    assert "No activations: the checkpoint holds no MLP tensors." in page.texts["models"]
    assert "nulls.samples30" in page.texts["provenance"]
    assert "foldyes" in page.texts["provenance"]
    rows = re.sub(r"\s+", " ", page.texts["provenance"])
    assert "overlapssmall110.02.5" in re.sub(r"\s", "", rows)


# --- the page


def test_the_findings_come_first_and_then_the_scorecard(page: Page) -> None:
    order = ["findings", "scorecard", "rw", "pk", "new", "models", "provenance"]
    assert [name for name in page.texts if name in order] == order
    told = re.sub(r"\s+", " ", page.texts["scorecard"])
    assert "1 differs 1 matches 0 other settings 1 other weights 1 not run" in told
    assert f"{NASTY} was compared as small" in told
    assert "a | pipe" in page.texts["differs"]
    assert "no table pk_table1 in this report: it needs the stage affinity" in page.texts["not-run"]
    assert "three" in page.texts["not-run"]


def test_every_table_and_figure_says_what_to_look_at_and_links_its_numbers(
    page: Page, report: tuple[Path, StudyFiles, RunRecord]
) -> None:
    path, files, _ = report
    for items in (files.tables, files.figures):
        for name in items:
            described = (TABLES | FIGURES)[name]
            assert described.heading in page.texts[name]
            assert described.title in page.texts[name]
            assert described.look in page.texts[name]
            assert all(note in page.texts[name] for note in described.notes)
    local = {unquote(link.split("#")[0]) for link in page.links if not link.startswith("#")}
    assert all((path.parent / link).is_file() for link in local)
    numbers = {
        f"{kind}s/{name}.csv" for kind, items in (("table", files.tables), ("figure", files.figures)) for name in items
    }
    assert numbers <= local
    assert {"scorecard.csv", "figures/figure3.pdf", "tables/table1.tex"} <= local
    assert any(link.startswith("atlas/") for link in local)
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors <= set(page.texts)
    assert {*files.tables, *files.figures} <= anchors


def test_a_figure_without_numbers_is_said_and_not_shown(page: Page) -> None:
    # Figure 1, and figure 3 here and among the findings.
    assert page.elements.count("img") == 3
    assert "No model of this study has what this figure shows." in page.texts["pk_figure4"]
    assert "No model of this study" not in page.texts["figure3"]


def test_all_rows_for_the_reader_are_there(page: Page, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    frame = pd.read_csv(report[0].parent / "tables" / "table1.csv")
    for value in frame["min_angle_deg"]:
        assert f"{value:.2f}" in page.texts["table1"]
    assert NASTY in page.texts["table1"]


def test_names_cannot_become_markup(page: Page, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    text = report[0].read_text(encoding="utf-8")
    assert page.elements.count("script") == 1
    assert "b" not in page.elements
    assert "<title>demo &amp; more" in text
    assert NASTY in page.texts["models"]


def test_the_page_asks_for_nothing_and_repeats(report: tuple[Path, StudyFiles, RunRecord]) -> None:
    path, files, record = report
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!data:image/png)\w+:""", text)
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert report_page("demo & more", files, record, path.parent) == text
    assert not list(path.parent.glob("*.part"))


def test_headings() -> None:
    assert [(TABLES | FIGURES)[name].heading for name in ("table4", "figure9", "right_tail", "pk_table1")] == [
        "Table 4", "Figure 9", "Right tail", "PK table 1",
    ]  # fmt: skip


def test_numbers_of_other_machines_are_counted_in_one_line(
    page: Page, report: tuple[Path, StudyFiles, RunRecord], tmp_path: Path
) -> None:
    told = re.sub(r"\s+", " ", page.texts["reference"])
    assert "As on other machines: 1 of 2" in told
    assert "a | pipe" in told
    assert "reference.csv" in page.links
    write_text(report_page("x", replace(report[1], reference=None), report[2], tmp_path), tmp_path / "report.html")
    assert "reference" not in Page(tmp_path / "report.html").texts


def test_where_no_paper_has_a_number_the_scorecard_is_one_line(
    report: tuple[Path, StudyFiles, RunRecord], tmp_path: Path
) -> None:
    _, files, record = report
    card = scorecard(read_published(ROOT / "config" / "published.tsv"), {})
    write_scorecard(card, *(tmp_path / f"scorecard.{ending}" for ending in ("csv", "md", "json")))
    text = report_page("x", replace(files, scorecard=tmp_path / "scorecard.json"), record, tmp_path)
    write_text(text, tmp_path / "report.html")
    told = " ".join(Page(tmp_path / "report.html").texts["scorecard"].split())
    assert told == (
        "Scorecard: published beside measured The papers print no number of the models of this report. "
        "All that they print."
    )


# --- findings


def test_findings_are_the_numbers_of_the_tables(page: Page, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    folder = report[0].parent / "tables"
    angles, spread, pairs = (
        frame[frame["model"] == "small"]
        for frame in (pd.read_csv(folder / f"{name}.csv") for name in ("table1", "table4", "strongest_pairs"))
    )
    told = " ".join(page.texts["findings"].split())
    assert "5 layers of 4 query and 2 key-value heads, each d = 4 of D = 16 dimensions" in told
    across = angles[angles["scope"] == "across"]
    assert f"{angles['n_pairs'].sum()} pairs of head spaces, {across['n_pairs'].sum()} of them from a writer" in told
    for part in (across, angles[angles["scope"] == "within"]):
        assert f"{part['min_angle_deg'].min():.2f}° between" in told
    n = spread["n_conditions"].sum()
    assert f"in {spread['n_above_all'].sum()} of {n} layers and layer pairs beyond all 6 + 6 samples" in told
    assert f"(by chance: {n / 13:.1f})" in told
    first = pairs.iloc[0]
    heads = [first[f"{end}_{part}"] for end in ("writer", "reader") for part in ("layer", "head")]
    assert "The strongest connection is {}.{} → {}.{} through".format(*heads) in told
    assert f"ρ {first['rho']:.3f}" in told


def test_what_was_left_out_and_the_settings_stand_among_the_findings(page: Page) -> None:
    told = " ".join(page.texts["findings"].split())
    assert "Left out: activations, because the checkpoint holds no MLP tensors." in told
    assert "norms folded into the reads: yes" in told
    assert "samples of each null model: 30" in told


def test_stages_that_are_left_out_for_one_reason_are_one_line(
    report: tuple[Path, StudyFiles, RunRecord], tmp_path: Path
) -> None:
    _, files, record = report
    reasons = {"activations": "no MLP", "stream": "no tokens", "attention": "no MLP"}
    left_out = dict.fromkeys(record.attributes, reasons)
    write_text(report_page("mine", files, replace(record, left_out=left_out), tmp_path), tmp_path / "report.html")
    told = " ".join(Page(tmp_path / "report.html").texts["findings"].split())
    assert "Left out: activations, attention, because no MLP. Left out: stream, because no tokens." in told


def test_an_own_models_page_shows_its_own_settings(report: tuple[Path, StudyFiles, RunRecord], tmp_path: Path) -> None:
    _, files, record = report
    settings = {"study": "paper", "models": ["gpt2", "pythia-70m"], "model": "/home/me/mine", "seed": 3}
    write_text(report_page("mine", files, replace(record, settings=settings), tmp_path), tmp_path / "report.html")
    own = Page(tmp_path / "report.html")
    assert "source: /home/me/mine" in own.texts["findings"]
    assert "pythia-70m" not in own.texts["provenance"]


def test_the_ten_strongest_pairs_lead_into_the_atlas(page: Page, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    pairs = pd.read_csv(report[0].parent / "tables" / "strongest_pairs.csv")
    columns = ["spaces", "writer_layer", "writer_head", "reader_layer", "reader_head"]
    expected = [".".join(map(str, row)) for row in pairs.loc[pairs["model"] == NASTY, columns].to_numpy()[:10]]
    found = [link.split("#")[1] for link in page.links if link.startswith("atlas/") and "#" in link]
    assert found == expected
    assert len(found) == 10


def test_a_model_without_reads_has_findings_of_what_it_has() -> None:
    tables = {
        "table1": pd.DataFrame({
            "model": ["m"], "scope": ["within"], "spaces": ["O"], "n_pairs": [6], "min_angle_deg": [0.0],
            "median_min_angle_deg": [40.0],
        })
    }  # fmt: skip
    (said,) = findings("m", tables).sentences
    assert said.startswith("Some spaces share a direction: the smallest angles are 0.00° between writes of one layer, ")
    assert said.endswith("where the median pair's is 40.0°.")
    assert findings("m", tables).pairs == []
    assert findings("other", tables).sentences == []


def test_a_model_like_chance_is_not_said_to_spread_more() -> None:
    row = {"model": ["m"], "n_conditions": [122], "n_samples": [30], "n_above_all": [3], "r_median": [0.8]}
    (said,) = findings("m", {"table4": pd.DataFrame(row)}).sentences
    assert "about as far as chance lets expect" in said
    assert "in 3 of 122 layers and layer pairs beyond all 30 + 30 samples" in said
    assert "(by chance: 2.0)" in said
    (said,) = findings("m", {"table4": pd.DataFrame(row | {"n_above_all": [100]})}).sentences
    assert "more than chance lets expect" in said


# --- in a browser


def test_it_opens_from_disk_without_a_console_message(browser: Any, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    show(browser, report[0])
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked") is None
    sizes = browser.execute_script("return [...document.images].map((image) => image.naturalWidth)")
    assert len(sizes) == 3
    assert min(sizes) > 500


COLUMN = """
  const table = document.querySelector(arguments[0] + " table");
  const place = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === arguments[1]);
  return [...table.tBodies[0].rows].map((row) => row.cells[place].textContent);
"""
FOCUS = """
  const heads = [...document.querySelectorAll(arguments[0] + " thead button")];
  heads.find((button) => button.textContent === arguments[1]).focus();
"""


def sort(browser: Any, table: str, column: str, key: str = "Enter") -> list[str]:
    """Sort with the keyboard; return the column."""
    browser.execute_script(FOCUS, table, column)
    code = {"Enter": "\r", " ": " "}[key]
    for step in ("keyDown", "keyUp"):
        browser.execute_cdp_cmd(
            "Input.dispatchKeyEvent", {"type": step, "key": key, "text": code if step == "keyDown" else ""}
        )
    cells: list[str] = browser.execute_script(COLUMN, table, column)
    return cells


def test_the_first_screen_holds_the_findings(browser: Any, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    show(browser, report[0])
    ends = """
      const end = (query) => document.querySelector(query).getBoundingClientRect().bottom;
      return [".said", ".connections tbody tr:last-child", ".finding .button", ".finding + .picture"].map(end);
    """
    assert max(browser.execute_script(ends.replace(".connections", "#findings .connections"))) < 900


def test_sections_fold_and_an_address_unfolds_what_it_names(
    browser: Any, report: tuple[Path, StudyFiles, RunRecord]
) -> None:
    is_open = "return document.getElementById(arguments[0]).open"
    show(browser, report[0])
    folded = browser.execute_script("return document.documentElement.scrollHeight")
    assert not browser.execute_script(is_open, "right_tail")
    browser.execute_script("document.querySelector('nav a[href=\"#right_tail\"]').click()")
    settle(browser)
    assert browser.execute_script(is_open, "right_tail")
    show(browser, report[0], place="#table5")
    assert browser.execute_script(is_open, "table5")
    browser.execute_script("document.getElementById('unfold').click()")
    assert browser.execute_script(is_open, "figure1")
    assert browser.execute_script("return document.documentElement.scrollHeight") > 1.5 * folded
    browser.execute_script("document.getElementById('unfold').click()")
    assert not browser.execute_script(is_open, "figure1")


def test_tables_sort_by_key_and_click(browser: Any, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    show(browser, report[0])
    browser.execute_script("document.getElementById('unfold').click()")
    shown = browser.execute_script(COLUMN, "#table1", "smallest angle (°)")
    numbers = sorted(float(cell) for cell in shown)
    assert [float(cell) for cell in sort(browser, "#table1", "smallest angle (°)")] == numbers
    assert [float(cell) for cell in sort(browser, "#table1", "smallest angle (°)", " ")] == numbers[::-1]
    arrows = "[...document.querySelectorAll('#table1 th[aria-sort]')].map((cell) => [cell.textContent, cell.ariaSort])"
    assert browser.execute_script(f"return {arrows}") == [["smallest angle (°)", "descending"]]
    spaces = browser.execute_script(COLUMN, "#table1", "spaces")
    browser.execute_script(FOCUS.replace(".focus()", ".click()"), "#table1", "spaces")
    assert browser.execute_script(COLUMN, "#table1", "spaces") == sorted(spaces)
    # 9 comes before 10 in numbers, and what is missing last both ways.
    later = browser.execute_script(COLUMN, "#right_tail", "later layer")
    assert "–" in later
    expected = sorted((cell for cell in later if cell != "–"), key=float)
    missing = ["–"] * later.count("–")
    assert sort(browser, "#right_tail", "later layer") == expected + missing
    assert sort(browser, "#right_tail", "later layer") == expected[::-1] + missing
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_text_is_cut(browser: Any, report: tuple[Path, StudyFiles, RunRecord], width: int, scheme: str) -> None:
    show(browser, report[0], width, scheme=scheme)
    assert cut_texts(browser, width, scrolling="scroll") == []
    assert is_dark(browser) == (scheme == "dark")
    assert browser.get_log("browser") == []


def test_all_that_reacts_can_be_reached_by_key(browser: Any, report: tuple[Path, StudyFiles, RunRecord]) -> None:
    show(browser, report[0])
    browser.execute_script("document.getElementById('unfold').click()")
    unreachable = """
      const boxes = [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1);
      const all = [...boxes, ...document.querySelectorAll("button, a, summary")];
      const count = (test) => all.filter(test).length;
      return [boxes.length, count((node) => node.tabIndex < 0), count((node) => node.tagName === "BUTTON")];
    """
    boxes, hidden, buttons = browser.execute_script(unreachable)
    assert boxes > 0
    assert hidden == 0
    assert buttons > 40


# --- in the workflow


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("workflow", "config", "src", "envs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    save_tiny(folder / "tiny")
    return folder


def snakemake(project: Path, target: str, *arguments: str, settings: tuple[str, ...] = ()) -> str:
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--nocolor", *arguments, "--config", "model=tiny"]
    done = subprocess.run([*command, *settings, "--", target], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_page_is_made_of_the_whole_study(project: Path) -> None:
    planned = snakemake(project, "results/report/tiny/report.html", "-n")
    for rule in ("scorecard", "tables_overlaps", "figures_overlaps", "atlas", "report_page"):
        assert re.search(rf"^(local)?rule {rule}:", planned, re.MULTILINE)


@pytest.mark.slow
def test_an_own_model_is_compared_as_the_published_one_that_it_is(project: Path) -> None:
    target, samples = "results/report/tiny/scorecard.md", "nulls={samples: 1}"
    snakemake(project, target, settings=("published_as=gpt2", samples))
    assert "tiny was compared as gpt2" in (project / target).read_text(encoding="utf-8")
    card = pd.read_csv((project / target).with_suffix(".csv")).set_index("id")
    # Wrong for this model, and so the published counts are not its own.
    assert card.loc["pk-n_pairs", ["verdict", "published", "measured_model"]].tolist() == ["differs", "9504", "tiny"]
    assert card.loc["rw-t3-124m-n_layers", "verdict"] == "other weights"
    # Another name reruns the scorecard and nothing that it is made of.
    planned = snakemake(project, target, "-n", settings=(samples,))
    assert re.findall(r"^(?:local)?rule (\w+):", planned, re.MULTILINE) == ["scorecard"]


def test_snakemakes_own_report_is_made_offline(project: Path) -> None:
    target = "results/report/tiny/tables/table3.csv"
    snakemake(project, target)
    snakemake(project, target, "--report", "own-report.html")
    text = (project / "own-report.html").read_text(encoding="utf-8")
    assert "The shapes, and the isotropic value d/D" in text
    assert TABLES["table3"].title in text
    assert not re.search(r"""<(script|link|img)[^>]*(src|href)=["']https?:""", text)
