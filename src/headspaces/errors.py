"""The one error that a user can cause, and the check that a file of the workflow is what its path says."""

import difflib
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """Something that came from outside (file, network, configuration) is not as it must be.

    The message is one line: what is wrong, where (model, file, tensor, head), what was expected and found, and what to
    do about it. Scripts print it without a traceback. A :class:`ValueError`.

    Examples
    --------
    >>> import headspaces as hs
    >>> try:
    ...     hs.load("no/such/folder")
    ... except hs.InputError as error:
    ...     print(error)
    model 'no/such/folder': neither a folder or file, hub:owner/name, wheel:…
    """


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest what a misspelt word was to be, as a part of a message; nothing where none is near."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


class DamagedFileError(InputError):
    """A file that the workflow itself made is damaged, of another version or not what its name says.

    That is known from its content alone, after a clean read: an error of the system is never damage. Whoever merely
    reads says so and leaves the file where it is; a job sets it aside (:func:`headspaces.files.set_aside`).
    """

    def __init__(self, path: str | PathLike[str], what: str) -> None:
        self.path, self.what = Path(path), what
        made = f", made by the rule {rule!r}," if (rule := made_by(self.path)) else ""
        super().__init__(
            f"{path}: {what}; the file{made} stays where it is: move it away and run the workflow to make it anew"
        )


_STAGES = (
    "overlaps", "nulls", "orthonormal", "self_heads", "affinity", "activations", "attention", "attribution", "ablation",
)  # fmt: skip
_BLOCKS = {"bases": "bases", "nulls": "null_shard"}


def made_by(path: Path) -> str:
    """Rule of the workflow that makes a file of the results, by its place there; empty for a file elsewhere."""
    if path.name == "headers.json":
        return "headers"
    if path.suffix == ".safetensors":
        return "weights"
    return _BLOCKS.get(path.parent.parent.name, path.parent.name if path.parent.name in _STAGES else "")


def check_own(path: str | PathLike[str], found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Check what a file says of itself against what its path says.

    Raises
    ------
    DamagedFileError
        If a value differs: a file was swapped.
    """
    for name, value in expected.items():
        if found.get(name) != value:
            raise DamagedFileError(
                path, f"{name} is {found.get(name)!r}, expected {value!r}; another file lies in its place"
            )
