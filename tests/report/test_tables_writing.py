"""What is written of a table: CSV, Markdown and LaTeX, and how columns and cells are shown."""

import dataclasses
import io
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from headspaces.report.tables.headings import column_heading, shown
from headspaces.report.tables.latex import LONG, TURNED, escape_latex
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import Table, write_table
from headspaces.report.tidy_frames import exact, extremes, row_means, tidy
from headspaces.study.items import TABLES as ITEMS
from headspaces.text_tables import escape_markdown


def written(table, tmp_path, name="table5"):
    paths = [tmp_path / f"x.{ending}" for ending in ("csv", "md", "tex", "json")]
    write_table(name, table, *paths)
    return [path.read_text(encoding="utf-8") for path in paths[:3]]


def test_the_three_files_hold_the_same_numbers(tmp_path):
    frame = tidy(
        "model spaces n_pairs min_angle_deg some_rho p lambda_min_low",
        [
            {"model": "a_b&c", "spaces": "O", "n_pairs": 3, "min_angle_deg": 0.1 + 0.2, "some_rho": 1 / 3, "p": 1e-4},
            {"model": "x|y*z", "some_rho": 1e-5, "p": 1 / 31, "lambda_min_low": 1.84e-11},
        ],
    )
    text, markdown, latex = written(Table(frame, ("a note: 5 % of x_y",)), tmp_path)
    assert text.splitlines() == [
        "model,spaces,n_pairs,min_angle_deg,some_rho,p,lambda_min_low",
        "a_b&c,O,3,0.3,0.333333333333,0.0001,",
        "x|y*z,,,,1e-05,0.0322580645161,1.84e-11",
    ]
    assert "| a\\_b&c | O | 3 | 0.30 | 0.333 | 1.0e-04 | – |" in markdown
    assert "| x\\|y\\*z | – | – | – | 1.0e-05 | 0.032 | 1.8e-11 |" in markdown
    assert "| model | spaces | pairs | smallest angle (°) | some ρ | p | λ min, low |" in markdown
    assert "a\\_b\\&c & O & 3 & 0.30 & 0.333 & $1.0 \\times 10^{-4}$ & -- \\\\" in latex
    assert "x\\textbar{}y*z & -- & -- & -- & $1.0 \\times 10^{-5}$ & 0.032 & $1.8 \\times 10^{-11}$ \\\\" in latex
    assert "\\begin{tabular}{llrrrrr}" in latex
    assert latex.count("\\toprule") == latex.count("\\midrule") == latex.count("\\bottomrule") == 1
    assert "- a note: 5 % of x\\_y" in markdown
    assert "a note: 5 \\% of x\\_y" in latex
    for page in (markdown, latex):
        assert "ddof = 0" in page


def test_the_csv_is_read_back_as_it_was(model, tmp_path):
    for name in ("table1", "table4", "right_tail"):
        table = TABLES[name]([model])
        read = pd.read_csv(io.StringIO(written(table, tmp_path, name)[0]), keep_default_na=True)
        for column in table.frame:
            if column in ("model", "scope", "spaces"):
                assert list(read[column]) == list(table.frame[column])
            else:
                numbers = table.frame[column].astype("float64")
                assert list(read[column]) == pytest.approx(list(numbers), rel=1e-11, nan_ok=True)


def test_shown_rows_go_to_markdown_and_all_rows_to_the_csv(model, tmp_path):
    text, markdown, latex = written(TABLES["right_tail"]([model]), tmp_path, "right_tail")
    assert text.count("a_b & c,within,O") == 2
    assert markdown.count("| within | O |") == latex.count("within & O &") == 1
    note = "Shown: the condition of largest spread in each comparison, of 11 rows in the CSV."
    assert note in markdown
    assert note in latex


def test_long_and_wide_latex_tables_stay_on_the_page(tmp_path):
    columns = ["model", *(f"n_{place}" for place in range(TURNED))]
    many = tidy(" ".join(columns), [{"model": "m"} for _ in range(LONG + 1)])
    few = many[columns[:-1]]
    for frame, rows, environment in (
        (few, LONG, "table"), (many, LONG, "sidewaystable"), (few, LONG + 1, "longtable"),
        (many, LONG + 1, "landscape"),
    ):  # fmt: skip
        latex = written(Table(frame.head(rows)), tmp_path)[2]
        inner = "longtable" if rows > LONG else "tabular"
        begun = re.findall(r"\\begin\{(\w+)\}", latex)
        assert begun == list(dict.fromkeys([environment, inner]))
        assert sorted(re.findall(r"\\end\{(\w+)\}", latex)) == sorted(begun)
        assert latex.count("\\begingroup") == latex.count("\\endgroup") == latex.count("\\endhead") == (rows > LONG)
        assert latex.count("m & ") == rows
        package = {"sidewaystable": "rotating", "longtable": "longtable", "landscape": "pdflscape"}.get(environment)
        assert package is None or package in latex.splitlines()[0]


def test_every_row_of_a_latex_table_has_its_columns(model, tmp_path):
    for name in TABLES:
        given = model if "nulls" in ITEMS[name].needs else dataclasses.replace(model, nulls=None)
        table = TABLES[name]([given])
        latex = written(table, tmp_path, name)[2]
        columns = re.search(r"\\begin\{(?:tabular|longtable)\}\{([lr]+)\}", latex)[1]
        assert len(columns) == (table.frame if table.printed is None else table.printed).shape[1]
        rows = [line for line in latex.splitlines() if line.endswith(" \\\\") and not line.startswith("\\caption")]
        assert len(rows) >= 1
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(columns) - 1}
        # All that LaTeX takes for its own is escaped or ours, and nothing is left that its fonts do not have.
        assert latex.isascii()
        assert latex.count("{") == latex.count("}")


PAGE = """\\documentclass{article}
\\usepackage[T1]{fontenc}\\usepackage{booktabs,graphicx,longtable,pdflscape,rotating}
\\begin{document}
%s
\\end{document}
"""


def test_all_latex_tables_compile_and_stay_on_the_page(model, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here (Debian: apt-get install texlive-latex-recommended)")
    long_name = dataclasses.replace(model, name="some-organisation_some-model-8x7b-instruct-v0.1")
    rows = {"source": "Q", "target": "K", "kl": [np.inf, 1e-7] * 30, "published": 1.0}
    pages = [written(TABLES[name]([model, long_name]), tmp_path, name)[2] for name in TABLES]
    pages.append(
        written(Table(pd.DataFrame({"model": "m_%$#&~^\\\\ρ", **rows})), tmp_path, "pk_kl")[2].replace("tab:", "b:")
    )
    (tmp_path / "all.tex").write_text(PAGE % "\\clearpage\n".join(pages))
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "undefined" not in done.stdout


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (0.0, "p", "0.000"), (1 / 31, "p", "0.032"), (1 / 10001, "p", "1.0e-04"), (0.9996, "p", "1.000"),
        (-0.0, "spread", "0.0000"), (-0.0004, "skewness", "-4.0e-04"), (0.0003, "random_sd", "0.0003"),
        (7.0, "r_median", "7.0"), (float("inf"), "r_median", "∞"), (float("nan"), "r_median", "–"),
        (46.9819, "sample_low", "46.98"), (0.05217, "sample_low", "0.0522"), (0, "sample_low", "0"),
        (123456.7, "sample_low", "123457"), ("min_angle_deg", "quantity", "smallest angle (°)"),
        (0.0, "lambda_min_low", "0"), ("", "head_class", "–"), ("simple_cs", "method", "Simple-CS"),
        (66, "n_pairs", "66"), (np.int64(3), "layer", "3"), (pd.NA, "n_pairs", "–"), (None, "model", "–"),
    ],
)  # fmt: skip
def test_no_number_but_zero_is_shown_as_zero(value, column, text):
    assert shown(value, column) == text


def test_exact_has_twelve_digits_and_no_noise():
    assert [exact(value) for value in (0.1 + 0.2, 2 / 3, 1.0, -0.0, 7, np.nan, pd.NA)] == [
        "0.3", "0.666666666667", "1", "0", "7", "", "",
    ]  # fmt: skip


def test_escapes():
    assert escape_latex("head_id a&b 5% #1 {x} ~^\\ ρ 3° <") == (
        "head\\_id a\\&b 5\\% \\#1 \\{x\\} \\textasciitilde{}\\textasciicircum{}\\textbackslash{} $\\rho$ 3$^\\circ$ "
        "\\textless{}"
    )
    assert escape_markdown("<script> a|b [x](y) `c`") == "&lt;script&gt; a\\|b \\[x\\](y) \\`c\\`"


def test_headings_name_the_unit():
    assert column_heading("min_angle_deg") == "smallest angle (°)"
    assert column_heading("anything_low_deg") == "anything, low (°)"


def test_tidy_types_and_unknown_columns():
    frame = tidy("model layer n_x y", [{"model": "a", "layer": 1.0, "n_x": None, "y": None}])
    assert [str(dtype) for dtype in frame.dtypes] == ["object", "Int64", "Int64", "float64"]
    with pytest.raises(ValueError, match=r"\['z'\]"):
        tidy("model y", [{"z": 1}])


def test_extremes_and_means_pass_over_what_is_undefined():
    assert extremes(np.array([np.nan, 3.0, 1.0, 2.0, 8.0])) == (1.0, 2.5, 8.0)
    assert np.isnan(extremes(np.array([np.nan]))).all()
    assert row_means(np.array([[1.0, np.nan, 5.0], [np.nan] * 3])) == pytest.approx([3.0, np.nan], nan_ok=True)
