"""The one error that a user can cause."""

from os import PathLike
from pathlib import Path


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
