"""What a Hub source names: ``hub:owner/name[@revision]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headspaces.errors import InputError

_GRAMMAR = re.compile(
    r"hub:(?P<repository>[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?)(?:@(?P<revision>[^\s@]+))?"
)
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubSource:
    """A repository and a revision: a branch, tag, commit or ``refs/pr/N``."""

    repository: str
    revision: str = "main"

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return COMMIT.fullmatch(self.revision) is not None


def parse_hub(source: str) -> HubSource:
    """Take a Hub source apart.

    Raises
    ------
    InputError
        If it does not follow the grammar.
    """
    match = _GRAMMAR.fullmatch(source)
    if match is None:
        raise InputError(f"source {source!r}: expected hub:owner/name or hub:owner/name@revision")
    return HubSource(match["repository"], match["revision"] or "main")
