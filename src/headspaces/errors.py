"""The one error that a user can cause, and the check that a file of the workflow is what its path says."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """Something that came from outside (file, network, configuration) is not as it must be.

    The message is one line: what is wrong, where (model, file, tensor, head), what was expected and found, and what to
    do about it. Scripts print it without a traceback.
    """


class DamagedFileError(InputError):
    """A file that the workflow itself made is damaged, of another version or not what its name says.

    A job that meets one removes it, so that the next run makes it anew.
    """

    def __init__(self, path: str | PathLike[str], what: str) -> None:
        super().__init__(f"{path}: {what}; it is removed when a job meets it, run again to make it anew")
        self.path = Path(path)


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
