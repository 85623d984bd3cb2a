"""The site: built with warnings as errors, its notebooks run, and every link inside it leads somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support.project import ROOT

pytestmark = pytest.mark.slow
NOTEBOOKS = ("tour", "induction_circuit")


class Links(HTMLParser):
    """Addresses and anchors of a page, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if tag == "a":
            self.addresses.append(given.get("href") or "")
        if tag in ("img", "script", "link"):
            self.loaded.append(given.get("src") or given.get("href") or "")


def pages_of(html: Path) -> list[Path]:
    """All pages, without the theme's templates."""
    return [path for path in html.rglob("*.html") if "_static" not in path.parts]


def build(folder: Path) -> tuple[Path, str]:
    if importlib.util.find_spec("myst_nb") is None:
        pytest.skip("the extra docs is not installed: pip install '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(folder / "trees")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder / "html")], cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "html", done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return build(tmp_path_factory.mktemp("site"))


def test_the_site_is_built_and_its_notebooks_run(site: tuple[Path, str]) -> None:
    html, said = site
    for name in NOTEBOOKS:
        text = (html / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        if "shown without their output" in said:
            pytest.skip(said.strip())
        n_cells = (ROOT / "docs" / "notebooks" / f"{name}.md").read_text(encoding="utf-8").count("```{code-cell}")
        assert text.count("cell_input") == n_cells
        assert "cell_output" in text
        assert "ModelSpaces" in text or "16.0" in text
    assert list((html / "_images").glob("*.png"))


def test_every_link_inside_the_site_leads_somewhere(site: tuple[Path, str]) -> None:
    html, _ = site
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in pages_of(html)}
    assert len(pages) > 25
    for path, links in pages.items():
        for address in [*links.addresses, *links.loaded]:
            parts = urlsplit(address)
            if parts.scheme in ("http", "https", "data"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name}: {address}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {address}"


def test_the_site_loads_nothing_from_elsewhere(site: tuple[Path, str]) -> None:
    html, _ = site
    for path in pages_of(html):
        loaded = Links(path.read_text(encoding="utf-8")).loaded
        assert not [address for address in loaded if re.match("(https?:)?//", address)], path.name


def test_without_model_and_network_the_notebooks_are_shown_as_they_are(tmp_path: Path) -> None:
    """In a copy without results, with an index that does not answer."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in files.split("\0"):
        if name.startswith(("docs/", "src/", "config/", "results/")) or name == "CHANGELOG.md":
            (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "copy" / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", "html"]
    if importlib.util.find_spec("myst_nb") is None:
        pytest.skip("the extra docs is not installed: pip install '.[docs]'")
    done = subprocess.run(
        command, cwd=tmp_path / "copy", capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": "", "PIP_NO_INDEX": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "notebooks are shown without their output: " in done.stdout
    assert "top_pairs" in (tmp_path / "copy" / "html" / "notebooks" / "tour.html").read_text(encoding="utf-8")
