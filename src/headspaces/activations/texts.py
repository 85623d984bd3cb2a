"""Texts that models are run on: a file, a dataset of the Hub, or prose that comes with Python.

A text is fetched once and kept as one JSON file, so that the jobs that run a model need no network for it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import get_token

from headspaces.errors import InputError
from headspaces.files import read_bytes, whole_file

FORMAT = "headspaces-text"
FORMAT_VERSION = 1
PYTHON_TOPICS = "python:pydoc_data.topics"
"""The language reference's topics, English prose that every Python has."""

ROWS_SERVER = "https://datasets-server.huggingface.co"
"""Serves rows of the Hub's datasets as JSON, so that a few documents cost a few documents."""

_PAGE = 20
_LONGEST_PAGE = 64 * 2**20
_ATTEMPTS = 5
_MAY_PASS = (429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Text:
    """A text and where it is from.

    ``source`` is as the user named it; ``version`` the commit of a dataset, or the version of the Python whose topics
    these are, and empty for a file; ``n_documents`` were joined; ``sha256`` is of the text in UTF-8.
    """

    text: str
    source: str
    version: str
    n_documents: int
    sha256: str


def read_text(source: str, n_characters: int, *, server: str = ROWS_SERVER) -> Text:
    """Get a text.

    The source is ``python:pydoc_data.topics``; ``dataset:OWNER/NAME:CONFIG:SPLIT`` or ``…:SPLIT:COLUMN`` (column
    ``text``), whose documents are read in order until there are ``n_characters``; or the path of a text file in UTF-8.
    Raises :class:`InputError` if the source does not exist or cannot be read, or the dataset holds no such text.
    """
    if source == PYTHON_TOPICS:
        return _python_topics()
    if source.startswith("dataset:"):
        return _dataset(source, n_characters, server)
    try:
        return _text(Path(source).expanduser().read_text(encoding="utf-8"), source, "", 1)
    except OSError as error:
        raise InputError(
            f"text {source!r}: cannot be read ({error.strerror or error}); expected a file, {PYTHON_TOPICS} or "
            "dataset:OWNER/NAME:CONFIG:SPLIT"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"text {source!r}: is not UTF-8 ({error.reason} at byte {error.start}); convert it") from error


def write_text(text: Text, path: str | Path) -> None:
    """Write a text with where it is from as JSON."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(text)}
    with whole_file(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load_text(path: str | Path) -> Text:
    """Read what :func:`write_text` wrote.

    Raises :class:`InputError` if the system cannot read it, or it is no such JSON, of another version, or changed.
    """
    data = read_bytes(path)
    try:
        content = json.loads(data)
        found = content.pop("format"), content.pop("format_version")
        text = Text(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a text file of the workflow ({error}); delete it and run again") from error
    if found != (FORMAT, FORMAT_VERSION) or _sha256(text.text) != text.sha256:
        raise InputError(f"{path}: of another version, or its text was changed; delete it and run again")
    return text


def _python_topics() -> Text:
    from pydoc_data.topics import topics

    # The prose changes with Python, down to the patch release: the hash says which it was.
    return _text("\n".join(topics.values()), PYTHON_TOPICS, f"Python {platform.python_version()}", len(topics))


def _dataset(source: str, n_characters: int, server: str) -> Text:
    parts = source.split(":")[1:]
    if len(parts) not in (3, 4) or not all(parts) or parts[0].count("/") != 1:
        raise InputError(f"text {source!r}: expected dataset:OWNER/NAME:CONFIG:SPLIT, or with :COLUMN at its end")
    name, config, split, column = [*parts, "text"][:4]
    documents: list[str] = []
    versions: set[str] = set()
    for row, version in _rows(source, server, {"dataset": name, "config": config, "split": split}):
        if not isinstance(row.get(column), str):
            raise InputError(f"text {source!r}: no column {column!r} of text; the columns are {', '.join(sorted(row))}")
        documents.append(row[column])
        versions.add(version)
        if sum(map(len, documents)) >= n_characters:
            break
    if len(versions) > 1:
        raise InputError(f"text {source!r}: the dataset changed while it was read; run again")
    return _text("\n\n".join(documents), source, "".join(versions), len(documents))


def _rows(source: str, server: str, split: dict[str, str]) -> Iterator[tuple[dict[str, Any], str]]:
    """Rows of a dataset's split in order, each with the dataset's commit."""
    offset = 0
    while True:
        query = urllib.parse.urlencode({**split, "offset": offset, "length": _PAGE})
        page, version = _get_json(source, f"{server}/rows?{query}")
        rows = page.get("rows") if isinstance(page, dict) else None
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and isinstance(row.get("row"), dict) for row in rows
        ):
            raise InputError(f"text {source!r}: the server's answer holds no rows; try later or name a file")
        for row in rows:
            if row.get("row_idx") != offset or row.get("truncated_cells"):
                raise InputError(f"text {source!r}: the server cut or skipped row {offset}; try later or name a file")
            offset += 1
            yield row["row"], version
        if not rows:
            return


def _get_json(source: str, url: str) -> tuple[Any, str]:
    """GET with bounded retries; the answer and the dataset's commit."""
    request = urllib.request.Request(url)  # noqa: S310
    if token := get_token():
        # Not sent on to where the server may redirect.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.loads(answer.read(_LONGEST_PAGE)), answer.headers.get("X-Revision", "")
        except urllib.error.HTTPError as error:
            if error.code not in _MAY_PASS or attempt == _ATTEMPTS:
                raise InputError(f"text {source!r}: {_refusal(error)}") from error
            wait = error.headers.get("Retry-After", "")
            time.sleep(min(60.0, float(wait)) if wait.isdecimal() else 2.0**attempt)
        except (OSError, ValueError) as error:
            if attempt == _ATTEMPTS:
                raise InputError(
                    f"text {source!r}: the server cannot be reached ({error}); try later or name a file"
                ) from error
            time.sleep(2.0**attempt)
    raise AssertionError


def _refusal(error: urllib.error.HTTPError) -> str:
    try:
        said = str(json.loads(error.read(10_000))["error"])
    except (ValueError, KeyError, TypeError):
        said = error.reason
    advice = {401: "check its name, or set HF_TOKEN if it is gated", 404: "check its name, config and split"}
    return f"the server refuses ({error.code}: {said}); {advice.get(error.code, 'try later or name a file')}"


def _text(text: str, source: str, version: str, n_documents: int) -> Text:
    if not text.strip():
        raise InputError(f"text {source!r}: is empty")
    return Text(text, source, version, n_documents, _sha256(text))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
