"""Self-contained HTML pages: a template with its style and script inside, nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

import headspaces

TEMPLATES = Path(__file__).with_name("templates")


def render_page(page: str, /, **values: Any) -> str:
    """Fill ``templates/{page}.html``, with ``{page}.css`` and ``{page}.js`` after those of all pages.

    Text in ``values`` is escaped: it never becomes markup. Only :class:`markupsafe.Markup` goes in as it is.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def inside(kind: str) -> Markup:
        parts = [(TEMPLATES / f"{part}.{kind}").read_text(encoding="utf-8") for part in ("page", page)]
        return Markup("".join(parts))  # noqa: S704 (our own files)

    template = environment.get_template(f"{page}.html")
    return template.render(version=headspaces.__version__, style=inside("css"), script=inside("js"), **values)
