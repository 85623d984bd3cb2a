"""Texts: the one that Python has, files, and datasets from a double of the server of their rows."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pydoc_data.topics import topics
from urllib.parse import parse_qs, urlsplit

import pytest

from headspaces.activations import texts
from headspaces.activations.texts import PYTHON_TOPICS, load_text, read_text, write_text
from headspaces.errors import InputError

DATASET = "dataset:owner/name:sample:train"


class Double(BaseHTTPRequestHandler):
    """Serves rows as the Hub's server does; what ``answers`` holds comes first, one a request."""

    documents = ()
    answers = ()
    requests = ()
    revision = ("c0ffee",)

    def do_GET(self):
        place = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(place.query).items()}
        cls = type(self)
        cls.requests.append((place.path, query, self.headers.get("Authorization")))
        if cls.answers:
            self.give(*cls.answers.pop(0))
            return
        start, length = int(query["offset"]), int(query["length"])
        rows = [
            {"row_idx": number, "row": row, "truncated_cells": []}
            for number, row in list(enumerate(cls.documents))[start : start + length]
        ]
        content = {"features": [], "rows": rows, "num_rows_total": len(cls.documents), "num_rows_per_page": 100}
        self.give(200, content, {"X-Revision": cls.revision[min(start // length, len(cls.revision) - 1)]})

    def give(self, status, content, headers=None):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def double(monkeypatch):
    """A server of its own for each test; waiting takes no time and is noted."""
    waits = []
    monkeypatch.setattr(texts.time, "sleep", waits.append)
    monkeypatch.setattr(texts, "get_token", lambda: None)
    handler = type("Own", (Double,), {"requests": [], "answers": [], "waits": waits})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    handler.address = f"http://127.0.0.1:{server.server_port}"
    yield handler
    server.shutdown()
    server.server_close()


def test_pythons_topics_in_their_order():
    text = read_text(PYTHON_TOPICS, 0)
    assert text.text == "\n".join(topics.values())
    assert text.sha256 == hashlib.sha256(text.text.encode()).hexdigest()
    assert text.version.startswith("Python 3.")
    assert text.n_documents == len(topics)


def test_a_file_is_read_as_it_is(tmp_path):
    (tmp_path / "a.txt").write_text("Grüße\n", encoding="utf-8")
    text = read_text(str(tmp_path / "a.txt"), 0)
    assert (text.text, text.n_documents) == ("Grüße\n", 1)
    assert text.sha256 == hashlib.sha256(b"Gr\xc3\xbc\xc3\x9fe\n").hexdigest()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read .* expected a file, python:pydoc_data.topics or dataset:OWNER/NAME:CONFIG:SPLIT"),
        (b"caf\xe9", "is not UTF-8 .* at byte 3"),
        (b" \n", "is empty"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_text(str(tmp_path / "a.txt"), 0)


def test_only_the_documents_needed_are_fetched(double):
    double.documents = [{"id": number, "text": f"{number:04d}" * 25} for number in range(1000)]
    text = read_text(DATASET, 2950, server=double.address)
    assert text.n_documents == 30
    assert text.text == "\n\n".join(f"{number:04d}" * 25 for number in range(30))
    assert text.version == "c0ffee"
    assert [query for _, query, _ in double.requests] == [
        {"dataset": "owner/name", "config": "sample", "split": "train", "offset": str(offset), "length": "20"}
        for offset in (0, 20)
    ]
    assert double.requests[0][0] == "/rows"


def test_a_short_dataset_gives_all_it_has(double):
    double.documents = [{"story": "one"}, {"story": "two"}]
    text = read_text(DATASET + ":story", 10**6, server=double.address)
    assert (text.text, text.n_documents) == ("one\n\ntwo", 2)


def test_a_token_goes_to_the_server(double, monkeypatch):
    monkeypatch.setattr(texts, "get_token", lambda: "secret")
    double.documents = [{"text": "a"}]
    read_text(DATASET, 1, server=double.address)
    assert double.requests[0][2] == "Bearer secret"


def test_a_token_is_not_sent_on(double, monkeypatch):
    monkeypatch.setattr(texts, "get_token", lambda: "secret")
    double.documents = [{"text": "a"}]
    double.answers.append(
        (302, b"", {"Location": double.address.replace("127.0.0.1", "localhost") + "/rows?offset=0&length=20"})
    )
    read_text(DATASET, 1, server=double.address)
    assert [token for *_, token in double.requests] == ["Bearer secret", None]


def test_it_waits_as_long_as_the_server_says(double):
    double.documents = [{"text": "a"}]
    double.answers += [(429, {"error": "slow"}, {"Retry-After": "7"}), (503, {"error": "busy"}), (200, b"{cut")]
    assert read_text(DATASET, 1, server=double.address).text == "a"
    assert double.waits == [7.0, 4.0, 8.0]


def test_attempts_are_bounded(double):
    double.answers += [(500, {"error": "out of order"})] * 9
    with pytest.raises(InputError, match=r"the server refuses \(500: out of order\); try later"):
        read_text(DATASET, 1, server=double.address)
    assert len(double.requests) == 5


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, r"\(404: no such split\); check its name, config and split"),
        (401, r"\(401: no such split\); check its name, or set HF_TOKEN if it is gated"),
    ],
)
def test_refusals_are_told_and_not_repeated(double, status, message):
    double.answers.append((status, {"error": "no such split"}))
    with pytest.raises(InputError, match=message):
        read_text(DATASET, 1, server=double.address)
    assert len(double.requests) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"rows": [{"row_idx": 0, "row": {"body": "a", "id": 1}, "truncated_cells": []}]},
            "no column 'text' of text; .* body, id",
        ),
        ({"rows": [{"row_idx": 0, "row": {"text": "a"}, "truncated_cells": ["text"]}]}, "cut or skipped row 0"),
        ({"rows": [{"row_idx": 3, "row": {"text": "a"}, "truncated_cells": []}]}, "cut or skipped row 0"),
        ({"error": "no"}, "holds no rows"),
        ([], "holds no rows"),
        ({"rows": [["a"]]}, "holds no rows"),
        ({"rows": []}, "is empty"),
    ],
)
def test_answers_that_are_no_text(double, content, message):
    double.answers.append((200, content))
    with pytest.raises(InputError, match=message):
        read_text(DATASET, 1, server=double.address)


def test_a_dataset_that_changes_meanwhile_is_refused(double):
    double.documents = [{"text": "a"}] * 40
    double.revision = ("one", "two")
    with pytest.raises(InputError, match="changed while it was read"):
        read_text(DATASET, 40, server=double.address)


def test_no_server(double):
    double.answers.clear()
    with pytest.raises(InputError, match="cannot be reached"):
        read_text(DATASET, 1, server="http://127.0.0.1:9")


@pytest.mark.parametrize(
    "source", ["dataset:name:config:split", "dataset:a/b:split", "dataset:a/b::split", "dataset:a/b:c:d:e:f"]
)
def test_sources_that_name_no_split(source):
    with pytest.raises(InputError, match="expected dataset:OWNER/NAME:CONFIG:SPLIT"):
        read_text(source, 1)


def test_what_is_written_is_read(tmp_path):
    text = read_text(PYTHON_TOPICS, 0)
    write_text(text, tmp_path / "text.json")
    assert load_text(tmp_path / "text.json") == text


def test_a_changed_text_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one two")
    write_text(read_text(str(tmp_path / "a.txt"), 0), tmp_path / "text.json")
    written = (tmp_path / "text.json").read_text()
    (tmp_path / "text.json").write_text(written.replace("one two", "one too"))
    with pytest.raises(InputError, match="its text was changed; delete it"):
        load_text(tmp_path / "text.json")
    (tmp_path / "text.json").write_text("[]")
    with pytest.raises(InputError, match="not a text file of the workflow"):
        load_text(tmp_path / "text.json")
