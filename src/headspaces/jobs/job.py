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
from headspaces.threads import reuse_memory


@contextmanager
def job(log_path: str, threads: int) -> Iterator[logging.Logger]:
    """Run a script's body with its log open and its threads set.

    Messages go to the log file and to the console. An :class:`InputError` ends the job with its one line, anything
    else with a traceback in both places; the exit status is 1. A damaged file of the workflow is removed, so that the
    next run makes it anew.
    """
    import headspaces

    os.environ["OMP_NUM_THREADS"] = str(threads)
    reuse_memory()
    Path(log_path).parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        logging.FileHandler(log_path, mode="w", encoding="utf-8"),
        logging.StreamHandler(sys.stderr),
    ]
    handlers[0].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handlers[1].setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    # A log file on a full disk must not hide the message on the console under tracebacks of its own.
    logging.raiseExceptions = False
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logger = logging.getLogger("headspaces")
    origin = f"headspaces {headspaces.__version__} from {Path(headspaces.__file__).parents[1]}, {threads} threads"
    # Only to the file: the console shows what the user asked for.
    handlers[0].handle(logger.makeRecord("headspaces", logging.INFO, "", 0, origin, (), None))
    try:
        yield logger
    except InputError as error:
        logger.error("error: %s", error)
        if isinstance(error, DamagedFileError):
            error.path.unlink(missing_ok=True)
        raise SystemExit(1) from None
    except Exception:
        logger.error("%s", traceback.format_exc().rstrip())
        raise SystemExit(1) from None
