"""Bytes of a file on a Hub, by HTTP range request, with patience.

Requests go through ``huggingface_hub``'s own session, so its endpoint, token, proxies and offline mode hold. A broken
connection, a busy server and a short answer are tried again from the byte where they broke; a server that ignores
ranges is left at once, because it would send a whole file where a slice was asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headspaces import __version__
from headspaces.errors import InputError
from headspaces.weights.hub.refusals import (
    certificate_fault,
    explained,
    gigabytes,
    not_trusted,
    raise_explained,
    reason,
    server_text,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Mapping

Result = TypeVar("Result")
logger = logging.getLogger(__name__)

ATTEMPTS = 6
"""Attempts without any progress before giving up."""
FIRST_WAIT = 1.0
"""Seconds before the second attempt; each further wait is twice as long."""
LONGEST_WAIT = 60.0
"""Most seconds between two attempts, also where the server asks for more."""
BUSY = (408, 425, 429, 500, 502, 503, 504)
"""Status codes that say: later."""


class _TryAgain(Exception):  # noqa: N818 - an answer, not an error
    """An answer that another attempt may better; the seconds that the server asked to wait; how often to try."""

    def __init__(self, reason: str, wait: float | None = None, attempts: int = ATTEMPTS) -> None:
        super().__init__(reason)
        self.wait, self.attempts = wait, attempts


@dataclass(frozen=True)
class RemoteFile:
    """One file of a Hub repository at a commit.

    Attributes
    ----------
    repository, commit, name
        What it is called.
    size
        Bytes of the whole file; None if not known.
    etag
        The server's mark of the content; empty if not known.
    """

    repository: str
    commit: str
    name: str
    size: int | None = None
    etag: str = ""

    @property
    def url(self) -> str:
        """Address at the configured endpoint."""
        from huggingface_hub import constants, hf_hub_url

        return hf_hub_url(self.repository, self.name, revision=self.commit, endpoint=constants.ENDPOINT)

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``begin`` to before ``end``, in order and exactly once, resuming where it broke.

        Raises
        ------
        InputError
            If the server ignores ranges, the file has changed, access is refused, or patience runs out.
        """
        position, attempt = begin, 0
        while position < end:
            try:
                for chunk in self._request(position, end):
                    position, attempt = position + len(chunk), 0
                    yield chunk
                if position < end:
                    raise _TryAgain(f"the answer ended {end - position} bytes early")
            except _faults() as error:
                attempt += 1
                wait_or_give_up(error, attempt, self._name)

    def read_whole(self) -> bytes:
        """Return a small file whole."""
        return patiently(lambda: b"".join(self._request(0, None)), self._name)

    def _request(self, begin: int, end: int | None) -> Iterator[bytes]:
        from huggingface_hub import constants, get_session, is_offline_mode
        from huggingface_hub.errors import OfflineModeIsEnabled

        if is_offline_mode():
            raise explained(OfflineModeIsEnabled(), self.repository, self.commit, self.name, self.size)
        wanted = {} if end is None else {"Range": f"bytes={begin}-{end - 1}"}
        with get_session().stream(
            "GET", self.url, headers={**_headers(), **wanted}, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
        ) as response:
            self._check(response, begin, end)
            left = -1 if end is None else end - begin
            for chunk in response.iter_raw():
                if left >= 0 and len(chunk) > left:
                    raise _TryAgain("the answer is longer than asked for", attempts=3)
                left -= len(chunk) if left >= 0 else 0
                yield chunk

    def _check(self, response: Any, begin: int, end: int | None) -> None:
        if response.status_code >= 400:
            self._refused(response)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise _TryAgain("the answer is compressed")
        self._check_etag(response)
        if end is None:
            return
        if response.status_code != 206:
            if begin == 0 and self.size == end:
                return
            raise InputError(
                f"{self.repository}: the server ignores range requests (status {response.status_code}), so it would "
                f"send all of {self.name}{gigabytes(self.size)} for {end - begin} bytes of it; download it with "
                f"`hf download {self.repository} {self.name} --revision {self.commit}`, whose cache is used, or set "
                "HF_ENDPOINT to another server"
            )
        sent, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if self.size is not None and total.isdecimal() and int(total) != self.size:
            raise InputError(f"{self._name}: has {total} bytes, {self.size} when its header was read; {_CHANGED}")
        if sent != f"{begin}-{end - 1}":
            raise _TryAgain(f"the server sent the range {sent or 'without a name'} for {begin}-{end - 1}", attempts=3)

    def _check_etag(self, response: Any) -> None:
        from huggingface_hub import constants

        linked = constants.HUGGINGFACE_HEADER_X_LINKED_ETAG
        marks = [part.headers.get(linked) for part in (*response.history, response)]
        # Only the Hub's own mark is comparable: a storage server behind a redirect has another one.
        found = next((mark for mark in marks if mark), None) or (
            None if response.history else response.headers.get("ETag")
        )
        if self.etag and found and normal_etag(found) != self.etag:
            raise InputError(f"{self._name}: its content is not the one whose header was read; {_CHANGED}")

    def _refused(self, response: Any) -> None:
        response.read()
        if response.status_code in BUSY:
            raise _TryAgain(f"status {response.status_code}", _asked_wait(response.headers))
        if response.status_code == 403 and response.history:
            # Behind a redirect a signed address may have run out: the next attempt gets a new one.
            raise _TryAgain(f"status 403: {server_text(response)}", attempts=2)
        if response.status_code == 416:
            raise InputError(f"{self._name}: is shorter than when its header was read; {_CHANGED}")
        raise_explained(response, self.repository, self.commit, self.name)

    @property
    def _name(self) -> str:
        return f"{self.repository}@{self.commit[:12]}: {self.name}"


_CHANGED = "the file has changed, delete the model's headers and run again"


def patiently(call: Callable[[], Result], what: str) -> Result:
    """Call until it succeeds, waiting longer each time, for faults that pass.

    Raises
    ------
    InputError
        If patience runs out.
    """
    attempt = 0
    while True:
        try:
            return call()
        except _faults() as error:
            attempt += 1
            wait_or_give_up(error, attempt, what)


def wait_or_give_up(error: Exception, attempt: int, what: str) -> None:
    """Wait before another attempt, or raise when there were enough.

    Raises
    ------
    InputError
        After :data:`ATTEMPTS` attempts in a row; at once for a certificate that is not trusted.
    """
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status is not None and status not in BUSY:
        raise error
    if fault := certificate_fault(error):
        raise InputError(not_trusted(fault, what)) from error
    if attempt >= getattr(error, "attempts", ATTEMPTS):
        raise InputError(_last_word(error, what, attempt)) from error
    asked = getattr(error, "wait", None) if response is None else _asked_wait(response.headers)
    wait = min(LONGEST_WAIT, max(FIRST_WAIT * 2 ** (attempt - 1), asked or 0.0))
    logger.warning("%s: %s; attempt %d of %d in %.0f s", what, reason(error), attempt + 1, ATTEMPTS, wait)
    time.sleep(wait)


def normal_etag(etag: str) -> str:
    """Return an etag without its weak mark and quotes."""
    return etag.removeprefix("W/").strip('"')


def _headers() -> dict[str, str]:
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    return {**build_hf_headers(library_name="headspaces", library_version=__version__), "Accept-Encoding": "identity"}


def _faults() -> tuple[type[Exception], ...]:
    # The client's own library (httpx2; httpx before version 2) changes, this name of its base error does not.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    return (_TryAgain, HTTPError)


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    asked = headers.get("Retry-After", "").strip()
    return float(asked) if asked.isdecimal() else None


def _last_word(error: Exception, what: str, attempts: int) -> str:
    from huggingface_hub import constants

    why = reason(error)
    response = getattr(error, "response", None)
    if isinstance(error, _TryAgain) or response is not None:
        return f"{what}: the server still fails after {attempts} attempts ({why}); run again later"
    return (
        f"{what}: cannot reach {constants.ENDPOINT} ({why}); check the network, a proxy (HTTPS_PROXY) or the mirror "
        "(HF_ENDPOINT), or set HF_HUB_OFFLINE=1 to use the cache"
    )
