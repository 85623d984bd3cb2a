"""Which bytes to ask for, taking tensors out of the answers, and showing how it goes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

from headspaces.weights.headers import Bytes, Headers

logger = logging.getLogger(__name__)

WASTE = 0.005
"""Share of unneeded bytes that a merged range may hold: fewer requests at half a per cent more bytes."""


def merged_ranges(headers: Headers, names: Iterable[str]) -> list[tuple[str, int, int, list[str]]]:
    """Plan the requests for some tensors: file, first byte, end, and the tensors inside.

    Neighbours are merged over gaps as long as the whole range holds at most :data:`WASTE` of unneeded bytes.
    """
    ordered = sorted(names, key=lambda name: (headers.tensors[name].file, headers.tensors[name].begin))
    ranges: list[tuple[str, int, int, list[str]]] = []
    needed = 0
    for name in ordered:
        tensor = headers.tensors[name]
        if ranges:
            file, begin, end, inside = ranges[-1]
            waste = tensor.end - begin - needed - tensor.size
            if file == tensor.file and tensor.begin >= end and waste <= WASTE * (needed + tensor.size):
                ranges[-1] = (file, begin, tensor.end, [*inside, name])
                needed += tensor.size
                continue
        ranges.append((tensor.file, tensor.begin, tensor.end, [name]))
        needed = tensor.size
    return ranges


class Window:
    """Takes tensors out of one running answer, in order."""

    def __init__(self, chunks: Iterator[bytes], position: int) -> None:
        self.chunks, self.position, self.rest = chunks, position, memoryview(b"")

    def take(self, length: int) -> Iterator[Bytes]:
        """Yield the next bytes in parts, without copying them."""
        while length:
            if not self.rest:
                self.rest = memoryview(next(self.chunks, b""))
                if not self.rest:
                    return
            part, self.rest = self.rest[:length], self.rest[length:]
            self.position += len(part)
            length -= len(part)
            yield part

    def skip_to(self, position: int) -> None:
        """Drop the bytes before a position of the file."""
        for _ in self.take(position - self.position):
            pass


class Progress:
    """A progress bar with bytes and rate on a terminal, and one line in the log at the end."""

    def __init__(self, total: int, what: str) -> None:
        from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

        self.total, self.what, self.start = total, what, time.monotonic()
        self.bar: Any = tqdm(  # type: ignore[no-untyped-call]
            total=total, unit="B", unit_scale=True, desc=what, disable=None, leave=False
        )

    def __enter__(self) -> Any:
        return self._count

    def _count(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.bar.update(len(chunk))
            yield chunk

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.close()
        if kind is None:
            seconds = max(time.monotonic() - self.start, 1e-9)
            logger.info(
                "%s: %.1f MB in %.1f s (%.1f MB/s)", self.what, self.total / 1e6, seconds, self.total / 1e6 / seconds
            )
