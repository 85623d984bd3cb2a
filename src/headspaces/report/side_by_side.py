"""The page that shows two atlases side by side: two models, or two steps of a training."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from headspaces.report.html import render_page, script_json


def side_by_side_page(study: str, choices: Mapping[str, Mapping[str, str]], report: str = "") -> str:
    """Return the page of a study.

    ``choices`` are the atlases that either side can show: by the name of a model or a series the addresses of its
    pages, each by what is said of it, such as a step; the last is shown first. ``report`` is the address of the
    study's report.
    """
    models = [{"name": name, "pages": [list(page) for page in pages.items()]} for name, pages in choices.items()]
    return render_page("side_by_side", study=study, report=report, data=Markup(script_json(models)))  # noqa: S704 (escaped)
