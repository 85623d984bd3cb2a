"""What every job of the workflow does around its one call: log, threads, whole files, code fingerprints."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headspaces.errors import DamagedFileError, InputError
from headspaces.files import set_aside, system_reason
from headspaces.threads import reuse_memory

LOG_ONLY = "HEADSPACES_LOG_ONLY"
"""Set in the environment of jobs whose logs the workflow's console reads."""


@contextmanager
def job(log_path: str, threads: int) -> Iterator[logging.Logger]:
    """Run a script's body with its log open and its threads set.

    Messages go to the log file and to the console; to the file alone where the workflow's console reads it. An
    :class:`InputError` and an error of the system end the job with one line, anything else with a traceback in both
    places; the exit status is 1. A damaged file of the workflow is set aside, so that the next run makes it anew.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    reuse_memory()
    logger = _open_log(log_path, threads)
    try:
        yield logger
    except DamagedFileError as error:
        logger.error("error: %s", set_aside(error))
        raise SystemExit(1) from None
    except InputError as error:
        logger.error("error: %s", error)
        raise SystemExit(1) from None
    except (OSError, MemoryError) as error:
        logger.debug("%s", traceback.format_exc().rstrip())
        logger.error("error: %s; mend that and run again", _in_one_line(error))
        raise SystemExit(1) from None
    except Exception:
        logger.error("%s", traceback.format_exc().rstrip())
        raise SystemExit(1) from None


def _open_log(path: str, threads: int) -> logging.Logger:
    """Send messages to the console and, from the most detailed on, to a file; to the console alone where that fails.

    Under a console that reads the logs (:data:`LOG_ONLY`) all that a job says is in its file.
    """
    import headspaces

    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(logging.Formatter("%(message)s"))
    console.setLevel(logging.INFO)
    logging.basicConfig(level=logging.INFO, handlers=[console], force=True)
    # A log file on a full disk must not hide the message on the console under tracebacks of its own.
    logging.raiseExceptions = False
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logger = logging.getLogger("headspaces")
    logger.setLevel(logging.DEBUG)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(path, mode="w", encoding="utf-8")
    except OSError as error:
        logger.warning("no log is kept: %s", _in_one_line(error))
        return logger
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(file)
    if os.environ.get(LOG_ONLY):
        logging.getLogger().removeHandler(console)
        sys.stderr = file.stream
    origin = f"headspaces {headspaces.__version__} from {Path(headspaces.__file__).parents[1]}, {threads} threads"
    logger.debug("%s", origin)  # only to the file: the console shows what the user asked for
    return logger


def _in_one_line(error: OSError | MemoryError) -> str:
    """Say in the system's words what failed, and where."""
    if isinstance(error, MemoryError):
        return "the memory does not suffice"
    return f"{error.filename}: {system_reason(error)}" if error.filename else str(system_reason(error))
