"""The console of a run: a line for each stage that is done, how far the run is, and what failed in one line.

Snakemake's own messages stay whole in its log, ``.snakemake/log``. Jobs write into their own logs alone: what matters
there is read and shown here, so that a run on a cluster says the same as one on this machine.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headspaces.jobs.job import LOG_ONLY

_LONGEST_SILENCE = 60.0  # Seconds without a line, where lines stay; in long runs a tenth of the time.
_ANNOUNCED = ("Building DAG of jobs", "Using shell", "Exiting because a job execution failed")
_NOTHING = "Nothing to be done"
_SAID_ALREADY = re.compile(r"CalledProcessError|At least one job did not complete successfully")
_NO_MESSAGE = "it ended without a message in its log: killed, or out of memory"
_MOST_WARNINGS = 10  # Of one job: more are in its log.
_TAIL = 100_000
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
_ENTRY = re.compile(rf"(?={_TIME.pattern} [A-Z]+ )")


@dataclass(frozen=True)
class Task:
    """A job of the run: its stage, what it is called in messages, the seconds that are expected, and its log."""

    stage: str
    name: str
    seconds: float
    log: str


class Console(logging.Handler):
    """Handler of Snakemake's messages that shows what a reader of the terminal wants to know.

    Before :meth:`begin` it passes on what Snakemake says; then it shows the stages, and warnings and errors.
    ``closing`` gives the lines after which a run ends well, also where nothing was to be done.
    """

    def __init__(self, stream: Any = None) -> None:
        super().__init__()
        self.closing: Callable[[], Iterable[str]] = tuple
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.tasks: Mapping[int, Task] = {}
        self.running: dict[int, float] = {}
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self.untold = ""
        self.start = self.last_line = time.monotonic()
        self._over = threading.Event()
        self._guard = threading.RLock()

    def begin(self, tasks: Mapping[int, Task], opening: Iterable[str]) -> None:
        """Start with the jobs of the run, by number."""
        self.tasks = tasks
        self.start = time.monotonic()
        for line in opening:
            self._write(line)
        threading.Thread(target=self._tick, daemon=True).start()

    def end(self, closing: Iterable[str]) -> None:
        """End with some lines."""
        self._over.set()
        with self._guard:
            for line in closing:
                self._write(line)

    def remains(self) -> list[str]:
        """Say what a run that failed leaves."""
        counts = f"{len(self.failed)} failed, {len(self.done)} of {len(self.tasks)} jobs are done and stay"
        # Snakemake itself came to grief before it could name the job.
        unnamed = [self.untold] if self.untold and not self.failed else []
        return [*unnamed, f"{counts}: mend what the error says, and the same command goes on from there"]

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message of Snakemake's, or what follows from it."""
        with self._guard:
            self._show(record)

    def _show(self, record: logging.LogRecord) -> None:
        event = getattr(getattr(record, "event", None), "name", "")
        if event == "JOB_INFO":
            self.running[record.__dict__["jobid"]] = time.monotonic()
        elif event == "JOB_FINISHED":
            self._finish(record.__dict__["job_id"])
        elif event == "JOB_ERROR":
            self._fail(record.__dict__)
        elif event == "GROUP_ERROR":
            for job in record.__dict__["job_error_info"]:
                self._fail(job)
        elif event == "ERROR":
            if not _SAID_ALREADY.search(text := record.getMessage()):
                self._write(_in_short(text))
            elif "CalledProcessError" in text:
                self.untold = _in_short(text)
        elif not event and self._concerns(record.levelno, text := record.getMessage()):
            self._write(text)
            if text.startswith(_NOTHING):
                # Snakemake ends without its hooks: who asks again still learns where the report is.
                self.end(self.closing())

    def _concerns(self, level: int, text: str) -> bool:
        """Whether a message that tells of no job concerns the reader."""
        if text.startswith(_ANNOUNCED):
            return False
        return level > logging.INFO or not self.tasks or text.startswith("Trying to restart")

    def _finish(self, number: int) -> None:
        if (task := self.tasks.get(number)) is None:
            return
        started = self.running.pop(number, self.start)
        self.done.add(number)
        self.failed.discard(number)
        for warning in _logged(task.log, "WARNING", started)[:_MOST_WARNINGS]:
            self._write(f"warning: {task.name}: {warning}")
        of_stage = [number for number, other in self.tasks.items() if other.stage == task.stage]
        if self.done.issuperset(of_stage):
            jobs = f"{len(of_stage)} job{'s' if len(of_stage) > 1 else ''}"
            self._write(f"{self._how_far()}  {task.stage}: {jobs} done{self._time_left()}")

    def _fail(self, job: Mapping[str, Any]) -> None:
        number, said = job["jobid"], job.get("rule_msg")
        started = self.running.pop(number, self.start)
        self.failed.add(number)
        task = self.tasks.get(number) or Task("", job["rule_name"], 0, next(iter(job["log"]), ""))
        errors = _logged(task.log, "ERROR", started) or [said or _NO_MESSAGE]
        self._write(f"error: {errors[-1].removeprefix('error: ')}")
        self._write(f"  {task.name} failed; its log: {task.log or 'none'}")

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            with self._guard:
                silence = time.monotonic() - self.last_line
                if self.live:
                    width = shutil.get_terminal_size().columns - 1
                    self._put(f"\r\x1b[K{self._status()[:width]}")
                elif silence > max(_LONGEST_SILENCE, (time.monotonic() - self.start) / 10):
                    self._write(self._status())

    def _status(self) -> str:
        """Say how far the run is, and what runs now."""
        parts = []
        for stage in dict.fromkeys(self.tasks[number].stage for number in self.running if number in self.tasks):
            own = [number for number, task in self.tasks.items() if task.stage == stage]
            counted = f" {sum(number in self.done for number in own)} of {len(own)}" if len(own) > 1 else ""
            inside = next(filter(None, (_inside(self.tasks[i].log) for i in own if i in self.running)), "")
            parts.append(f"{stage}{counted}{inside}")
        return f"{self._how_far()}  running {', '.join(parts) or 'nothing'}{self._time_left()}"

    def _how_far(self) -> str:
        return f"{_clock(time.monotonic() - self.start)} {100 * self._fraction():3.0f} %"

    def _fraction(self) -> float:
        """Part of the expected seconds that is over; a running job's counts as far as it can be believed."""
        now = time.monotonic()
        over = sum(self.tasks[number].seconds for number in self.done)
        for number, started in self.running.items():
            if number in self.tasks:
                over += min(0.9 * self.tasks[number].seconds, now - started)
        return over / (sum(task.seconds for task in self.tasks.values()) or 1.0)

    def _time_left(self) -> str:
        over, part = time.monotonic() - self.start, self._fraction()
        if over < 10 or not 0.1 < part < 0.995:
            return ""
        minutes = over * (1 - part) / part / 60
        if minutes < 1:
            return "; less than a minute left"
        return f"; about {minutes:.0f} min left" if minutes < 90 else f"; about {minutes / 60:.0f} h left"

    def _write(self, line: str) -> None:
        self._put(("\r\x1b[K" if self.live else "") + line + "\n")
        self.last_line = time.monotonic()

    def _put(self, text: str) -> None:
        # A terminal that is gone, or takes no Greek, ends no run.
        with suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


def quiet_console(manager: Any) -> Console | None:
    """Replace Snakemake's console by the quiet one, unless another was asked for (``-p``, ``--verbose``, ``-n``, …).

    ``manager`` is the workflow's ``logger_manager``. Nothing is replaced where there is no default console.
    """
    settings = manager.settings
    asked = ("dryrun", "verbose", "quiet", "printshellcmds", "debug_dag")
    default = [handler for handler in manager.logger.handlers if handler.name == "DefaultStreamHandler"]
    if not default or any(getattr(settings, name, False) for name in asked):
        return None
    console = Console(default[0].stream)
    manager.logger.removeHandler(default[0])
    manager.logger.addHandler(console)
    os.environ[LOG_ONLY] = "1"
    return console


def _in_short(text: str) -> str:
    """Take an exception's message out of what Snakemake says about where it was raised."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith('  File "')]
    if len(lines) > 1 and re.match(r"\w+ in (rule|file) ", lines[0]):
        lines = lines[1:]
    return "error: " + "\n".join(lines).removeprefix("Error: ")


def _read_end(path: str) -> str:
    with suppress(OSError), Path(path).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode("utf-8", "replace")
    return ""


def _logged(path: str, level: str, started: float) -> list[str]:
    """Messages of a level in a job's log, each in one line; none from before the job started."""
    with suppress(OSError):
        age = time.time() - Path(path).stat().st_mtime
        if age > time.monotonic() - started + 60:
            return []
    found = []
    for entry in _ENTRY.split(_read_end(path)):
        head, _, message = entry.partition(f" {level} ")
        if _TIME.fullmatch(head) and (lines := message.strip().splitlines()):
            found.append(lines[-1] if lines[0].startswith("Traceback") else lines[0])
    return found


def _inside(path: str) -> str:
    """How far a running job says it is, from the last progress bar in its log."""
    bars = re.findall(r"([^\r\n]*?):\s+(\d+)%\|[^\r\n]*", _read_end(path)[-500:])
    return f" ({bars[-1][0]} {bars[-1][1]} %)" if bars else ""


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
