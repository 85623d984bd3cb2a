"""Snakemake's locks, released where the runs that hold them are dead."""

from __future__ import annotations

import platform
from pathlib import Path

from headspaces.files import _runs, writer_name


def release_dead_locks(folder: Path = Path(".snakemake")) -> None:
    """Release Snakemake's locks where every run that may hold them is dead, so that a kill needs no ``--unlock``.

    Each run leaves its host and process in ``drivers``. Locks stay as long as one of these runs, or may run on another
    machine.
    """
    drivers = folder / "drivers"
    drivers.mkdir(parents=True, exist_ok=True)
    own = drivers / writer_name()
    found = [driver for driver in drivers.iterdir() if driver != own]
    dead = []
    for driver in found:
        host, _, process = driver.name.rpartition("-")
        if host == platform.node() and process.isdecimal() and not _runs(int(process)):
            dead.append(driver)
    if dead and dead == found:
        for lock in folder.glob("locks/*.lock"):
            lock.unlink(missing_ok=True)
    for driver in dead:
        driver.unlink(missing_ok=True)
    own.touch()
