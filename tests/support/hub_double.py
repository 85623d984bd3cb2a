"""A double of the Hugging Face Hub: a real HTTP server on 127.0.0.1 with the Hub's endpoints, and faults on request.

Large files are behind a redirect to another host name, as on the Hub: the double answers there, too, without etags of
its own and refusing the Hub's token.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ZEROS = bytes(2**20)


@dataclass(frozen=True)
class Content:
    """One file: some bytes, then zeros up to the size; zeros take no memory."""

    start: bytes
    size: int
    large: bool

    @classmethod
    def of(cls, data: bytes, large: bool) -> Content:
        return cls(data, len(data), large)

    @property
    def etag(self) -> str:
        return hashlib.sha256(self.start + self.size.to_bytes(8, "little")).hexdigest()

    def slices(self, begin: int, end: int) -> Iterator[bytes]:
        if begin < len(self.start):
            yield self.start[begin : min(end, len(self.start))]
        left = end - max(begin, len(self.start))
        while left > 0:
            yield ZEROS[: min(left, len(ZEROS))]
            left -= len(ZEROS)


@dataclass
class Repository:
    """A repository: its revisions by name, and the files of every commit."""

    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, Content]] = field(default_factory=dict)
    gated: bool = False
    token: str = ""

    def commit(self, files: dict[str, Content], *names: str) -> str:
        """Add a commit and let the named revisions stand for it."""
        text = json.dumps([len(self.commits), *((name, file.etag) for name, file in sorted(files.items()))])
        sha = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - as git does
        self.commits[sha] = dict(files)
        self.revisions.update(dict.fromkeys(names or ("main",), sha))
        return sha


@dataclass(frozen=True)
class Answer:
    """What a fault makes of an answer: another status, a body cut, shifted or late, or no range."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    cut_after: int = -1
    short_by: int = 0
    shift: int = 0
    whole: bool = False
    stall: float = 0.0


class HubDouble:
    """The server. ``faults`` are asked in turn for every request; the first that answers is used."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Callable[[str, str], Answer | None]] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.body_bytes = 0
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"double": self})
        self.server = _Server(("127.0.0.1", 0), handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def repository(self, name: str) -> Repository:
        return self.repositories.setdefault(name, Repository())

    def fail(self, answer: Answer, times: int, where: str) -> None:
        """Give this answer to the next ``times`` requests whose path contains ``where``."""
        left = [times]

        def fault(_method: str, path: str) -> Answer | None:
            if where not in path or not left[0]:
                return None
            left[0] -= 1
            return answer

        self.faults.append(fault)

    @property
    def bodies(self) -> int:
        """Bytes of all bodies sent so far."""
        with self.lock:
            return self.body_bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address) -> None:
        """Clients that hang up are part of the tests; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving() -> Iterator[HubDouble]:
    double = HubDouble()
    thread = threading.Thread(target=double.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield double
    finally:
        double.server.shutdown()
        double.server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: HubDouble

    def log_message(self, *args) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        path = urllib.parse.unquote(self.path.partition("?")[0])
        with self.double.lock:
            self.double.requests.append(
                (self.command, path, {key.lower(): value for key, value in self.headers.items()})
            )
            answer = next((given for fault in self.double.faults if (given := fault(self.command, path))), Answer())
        if answer.status:
            return self._text(answer.status, answer.text, answer.headers)
        parts = path.strip("/").split("/")
        if parts[0] == "storage":
            return self._storage(parts, answer)
        if parts[:2] == ["api", "models"]:
            return self._api("/".join(parts[2:]))
        name, _, rest = path.strip("/").partition("/resolve/")
        return self._resolve(name, rest, answer)

    def _api(self, rest: str) -> None:
        if rest.endswith("/refs"):
            return self._refs(rest.removesuffix("/refs"))
        name, _, revision = rest.partition("/revision/")
        repository = self.double.repositories.get(name)
        if repository is None or (repository.token and not repository.gated and not self._has_token(repository)):
            return self._text(401, "Repository not found", {"X-Error-Code": "RepoNotFound"})
        sha = repository.revisions.get(revision or "main", revision)
        if sha not in repository.commits:
            return self._text(404, "Invalid rev id", {"X-Error-Code": "RevisionNotFound"})
        siblings = [
            {"rfilename": file, "size": content.size, "blobId": content.etag[:40]}
            | ({"lfs": {"size": content.size, "sha256": content.etag, "pointerSize": 130}} if content.large else {})
            for file, content in repository.commits[sha].items()
        ]
        return self._text(200, json.dumps({"id": name, "modelId": name, "sha": sha, "siblings": siblings}), {})

    def _refs(self, name: str) -> None:
        branches = [
            {"name": revision, "ref": f"refs/heads/{revision}", "targetCommit": sha}
            for revision, sha in self.double.repositories[name].revisions.items()
        ]
        self._text(200, json.dumps({"branches": branches, "tags": [], "converts": []}), {})

    def _resolve(self, name: str, rest: str, answer: Answer) -> None:
        repository = self.double.repositories.get(name)
        if repository is None:
            return self._text(401, "Repository not found", {"X-Error-Code": "RepoNotFound"})
        if (repository.gated or repository.token) and not self._has_token(repository):
            return self._text(401, "Access is restricted", {"X-Error-Code": "GatedRepo"})
        # Names of revisions may hold slashes (refs/pr/1).
        known = {**repository.revisions, **{sha: sha for sha in repository.commits}}
        revision = next((known_name for known_name in known if rest.startswith(known_name + "/")), None)
        if revision is None:
            return self._text(404, "Invalid rev id", {"X-Error-Code": "RevisionNotFound"})
        sha, file = known[revision], rest.removeprefix(revision + "/")
        content = repository.commits[sha].get(file)
        if content is None:
            return self._text(404, "Entry not found", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        marks = {"X-Repo-Commit": sha}
        if content.large:
            marks |= {"X-Linked-Etag": f'"{content.etag}"', "X-Linked-Size": str(content.size)}
            # Another name of the same machine: another host for the client, which must not send it the token.
            address = f"http://localhost:{self.double.port}/storage/{sha}/{name}/{file}"
            return self._text(302, "", {**marks, "Location": address})
        return self._body(content, {**marks, "ETag": f'"{content.etag[:40]}"'}, answer)

    def _storage(self, parts: list[str], answer: Answer) -> None:
        _, sha, owner, name, *file = parts
        if self.headers.get("Authorization"):
            return self._text(400, "Only one auth mechanism allowed", {})
        return self._body(
            self.double.repositories[f"{owner}/{name}"].commits[sha]["/".join(file)], {"ETag": '"part-2"'}, answer
        )

    def _body(self, content: Content, headers: dict[str, str], answer: Answer) -> None:
        begin, end = self._range(content.size)
        if begin >= content.size:
            return self._text(416, "", {"Content-Range": f"bytes */{content.size}"})
        partial = "Range" in self.headers and not answer.whole
        if not partial:
            begin, end = 0, content.size
        if answer.shift:
            begin, end = begin + answer.shift, end + answer.shift
        end -= answer.short_by
        self.send_response(206 if partial else 200)
        if partial:
            headers = {**headers, "Content-Range": f"bytes {begin}-{end - 1 + answer.short_by}/{content.size}"}
        for key, value in {**headers, "Content-Length": str(end - begin), "Accept-Ranges": "bytes"}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return None
        if answer.stall:
            time.sleep(answer.stall)
        return self._send(content, begin, end, answer.cut_after)

    def _send(self, content: Content, begin: int, end: int, cut_after: int) -> None:
        if cut_after >= 0:
            end = min(end, begin + cut_after)
        try:
            for part in content.slices(begin, end):
                self.wfile.write(part)
                with self.double.lock:
                    self.double.body_bytes += len(part)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        if cut_after >= 0:
            self.wfile.flush()
            self.close_connection = True

    def _range(self, size: int) -> tuple[int, int]:
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        return int(first), min(size, int(last) + 1) if last else size

    def _text(self, status: int, text: str, headers: dict[str, str]) -> None:
        body = text.encode()
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            with self.double.lock:
                self.double.body_bytes += len(body)

    def _has_token(self, repository: Repository) -> bool:
        return self.headers.get("Authorization") == f"Bearer {repository.token}"
