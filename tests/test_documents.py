"""What the documents name is there: files of the project, and tests that show a claim."""

import re

import pytest
from support.project import ROOT, TESTS

PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "config" / "README.md",
    ROOT / "results" / "README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page):
    text = page.read_text()
    named = set(re.findall(r"`((?:src|tests|workflow|config|docs|\.ci|\.github)/[\w./-]+\.\w+)`", text))
    linked = {link for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text) if not link.startswith("http")}
    missing = {name for name in named if not (ROOT / name).exists()}
    missing |= {link for link in linked if not (page.parent / link).exists()}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_page_names_exist(page):
    text = page.read_text()
    assert not [name for name in re.findall(r"\b(test_\w+\.py)\b", text) if not list(TESTS.rglob(name))]
    sources = {path.name: path.read_text() for path in TESTS.rglob("test_*.py")}
    for cell in re.findall(r"[^|]*::test_[^|]*", text):
        file = ""
        for name, function in re.findall(r"`(?:(?:[\w/]+/)?(test_\w+\.py))?::(test_\w+)", cell):
            file = name or file
            known = sources[file] if file else "\n".join(sources.values())
            assert f"def {function}(" in known, f"{file or 'any file'}: {function}"
