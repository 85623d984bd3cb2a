"""Printed rows as data: what is written as Markdown and JSON, and what a page sorts them by."""

import re

import pytest

from headspaces.report.document import Section, TextTable, markdown, read_sections, sort_key, text_table, write_sections
from headspaces.report.tables.writing import Table, write_table
from headspaces.report.tidy_frames import tidy
from headspaces.study.items import TABLES


def test_the_data_of_a_table_are_its_printed_rows(tmp_path):
    names = ["a|b", "\\", "a\\|b", "<i>&", "*_[]`", "|", "qwen2.5-7b"]
    rows = [{"model": name, "layer": layer, "mean_rho": layer / 8} for layer, name in enumerate(names)]
    table = Table(tidy("model layer mean_rho", rows), ("a <note> with | and *",))
    paths = [tmp_path / f"t.{ending}" for ending in ("csv", "md", "tex", "json")]
    write_table("table1", table, *paths)
    (section,) = read_sections(paths[-1])
    assert section.title == TABLES["table1"].title
    assert section.notes == [*TABLES["table1"].notes, "a <note> with | and *"]
    found = section.table
    assert found.header == ["model", "layer", "mean ρ"]
    assert [row[0] for row in found.rows] == names
    assert [row[1] for row in found.rows] == [str(layer) for layer in range(7)]
    assert [row[2] for row in found.rows[:3]] == ["0.000", "0.125", "0.250"]
    assert found.numeric == [False, True, True]
    assert found.cells[1] == [("\\", None), ("1", "1"), ("0.125", "0.125")]
    # The same rows stand in the Markdown, between pipes that are no cell's own.
    lines = [line for line in paths[1].read_text().splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + len(names)
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines} == {4}


@pytest.mark.parametrize(
    ("cells", "keys"),
    [
        (["12", "-0.5", "1.2e-07"], ["12", "-0.5", "1.2e-07"]),
        (["3", "–"], ["3", None]),
        (["–", "–"], None),
        (["3", "7b"], None),
        (["qwen2.5-7b"], None),
        (["1 2"], None),
        ([""], None),
        ([], None),
    ],
)
def test_a_column_of_numbers_sorts_by_them_and_text_by_itself(cells, keys):
    assert text_table(["x"], [[cell] for cell in cells]).keys == [keys]


def test_infinities_sort_as_javascript_reads_them():
    assert text_table(["x"], [["∞"], ["-∞"], ["1"]], [True]).keys == [["Infinity", "-Infinity", "1"]]
    assert [sort_key(value) for value in (float("-inf"), float("nan"), 0.1 + 0.2)] == ["-Infinity", None, "0.3"]


def test_sections_are_read_back_as_they_were_written(tmp_path):
    table = TextTable(["a", "b"], [["1", "x|y"]], [["1"], None])
    sections = [
        Section(table, heading="One", paragraphs=["p_q"], notes=[]),
        Section(table, heading="Two", paragraphs=[], notes=["n"]),
    ]
    write_sections(sections, tmp_path / "x.md", tmp_path / "x.json")
    assert read_sections(tmp_path / "x.json") == sections
    assert (tmp_path / "x.md").read_text() == markdown(sections)
    assert markdown(sections).splitlines() == [
        "# One", "", "p\\_q", "", "| a | b |", "| --: | :-- |", "| 1 | x\\|y |", "",
        "## Two", "", "| a | b |", "| --: | :-- |", "| 1 | x\\|y |", "", "- n",
    ]  # fmt: skip
