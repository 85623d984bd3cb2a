"""Checks of a SLURM cluster before the first job: its accounts, and whether finished jobs will be noticed.

The executor plugin asks ``sacct`` for its jobs' states. Where the accounting is off or unreachable it waits for ever,
and it does not ask ``squeue`` instead unless told to, nor where the queue forgets finished jobs early.
"""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from collections.abc import Iterable

from headspaces.errors import InputError

ANSWER_SECONDS = 20
"""Patience with a command of SLURM."""

CHECKS_IN_MEMORY = 3
"""The plugin asks the queue only if finished jobs stay there for so many of its first intervals between checks."""

LONGEST_INTERVAL = 180
"""Seconds between the plugin's checks when nothing has finished for a while; the queue has to remember for longer."""


def check_job_states(status_command: str | None, check_seconds: int) -> None:
    """Make sure that the states of jobs can be asked for.

    ``status_command`` is ``sacct``, ``squeue``, or None for the plugin's choice; ``check_seconds`` its setting
    ``init-seconds-before-status-checks``. Raises :class:`InputError` if they cannot; the message names the setting that
    helps.
    """
    memory = _queue_memory()
    remembers = memory is not None and memory > LONGEST_INTERVAL
    in_time = memory is not None and memory >= CHECKS_IN_MEMORY * check_seconds
    accounting = shutil.which("sacct") is not None
    if remembers and (not accounting or (status_command == "squeue" and in_time)):
        return
    trouble = _accounting_trouble() if accounting else "there is no sacct"
    if trouble is None:
        return
    where = f"SLURM's accounting cannot be asked for the states of jobs ({trouble})"
    if memory is None:
        raise InputError(f"{where}, nor its queue (scontrol gives no MinJobAge): is this a login node of the cluster?")
    if not remembers:
        raise InputError(
            f"{where}, and the queue forgets finished jobs after MinJobAge = {memory} s; accounting or more than "
            f"{LONGEST_INTERVAL} s are needed: ask the administrators, or run in one job with --executor local"
        )
    sooner = f" --slurm-init-seconds-before-status-checks {memory // CHECKS_IN_MEMORY}" if not in_time else ""
    raise InputError(f"{where}: add --slurm-status-command squeue{sooner}, or set it in the profile")


def check_accounts(accounts: Iterable[str]) -> None:
    """Make sure that this user may submit jobs of some accounts, where SLURM answers; downloads come before jobs.

    Raises
    ------
    InputError
        If SLURM knows the user's accounts, and one is not among them.
    """
    user = getpass.getuser()
    try:
        done = _ask("sacctmgr", "-n", "-s", "list", "user", user, "format=account%256")
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return
    known = sorted(set(done.stdout.lower().split())) if done.returncode == 0 else []
    for account in accounts:
        if known and account.lower() not in known:
            raise InputError(
                f"slurm_account is {account!r}, but {user} has the accounts {', '.join(known)}: mend it in the "
                "profile or with --default-resources slurm_account=NAME"
            )


def _accounting_trouble() -> str | None:
    """Why ``sacct`` does not answer; None if it does."""
    try:
        done = _ask("sacct", "-X", "--noheader", "--format=JobIdRaw,State", "--starttime", "now")
    except subprocess.TimeoutExpired:
        return f"no answer from sacct in {ANSWER_SECONDS} s"
    said = (done.stderr or done.stdout).strip().splitlines()
    return None if done.returncode == 0 else said[0] if said else f"sacct ended with status {done.returncode}"


def _queue_memory() -> int | None:
    """For how many seconds the queue remembers finished jobs; None if it is not known."""
    try:
        done = _ask("scontrol", "show", "config")
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return None
    found = re.search(r"^\s*MinJobAge\s*=\s*(\d+)\s*(h?)", done.stdout, re.MULTILINE)
    return int(found[1]) * (3600 if found[2] else 1) if found and done.returncode == 0 else None


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
