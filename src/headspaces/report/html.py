"""Self-contained HTML pages: a template with its style and script inside, nothing from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

import headspaces

TEMPLATES = Path(__file__).with_name("templates")

SCRIPTS = {
    "report": ("page", "report"),
    "atlas": (
        "page", "atlas_data", "atlas_parts", "atlas_heat", "atlas_curves", "atlas_views", "atlas_pair", "atlas_depth",
        "atlas_graph", "atlas_table", "atlas_stream", "atlas",
    ),
    "side_by_side": ("page", "side_by_side"),
}  # fmt: skip
"""The files of each page's script in their order: each names only what is above it, except inside functions."""


def render_page(page: str, /, **values: Any) -> str:
    """Fill ``templates/{page}.html``, with ``{page}.css`` after that of all pages, and the scripts of the page.

    Text in ``values`` is escaped: it never becomes markup. Only :class:`markupsafe.Markup` goes in as it is.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def inside(kind: str, parts: tuple[str, ...]) -> Markup:
        texts = [(TEMPLATES / f"{part}.{kind}").read_text(encoding="utf-8") for part in parts]
        return Markup("\n".join(texts))  # noqa: S704 (our own files)

    template = environment.get_template(f"{page}.html")
    return template.render(
        version=headspaces.__version__,
        style=inside("css", ("page", page)),
        script=inside("js", SCRIPTS[page]),
        **values,
    )


def script_json(data: Any) -> str:
    """Write data as JSON for a script element: no text in it can end the element or open a comment."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
