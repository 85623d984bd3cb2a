"""A SLURM cluster of one node, this machine: a folder and ports of its own, and nothing left when its context ends."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "sinfo")
START_SECONDS = 30

# Jobs do not inherit SLURM_CONF: the executor plugin takes all such variables away, so the usual place it is.
CONFIGURATION_FILE = Path("/etc/slurm/slurm.conf")

# No database of accounts and no control groups: what a container allows.
MARK = "# Written by headspaces' tests for the time that they run, process "
CONFIGURATION = """\
{mark}
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
MpiDefault=none
ReturnToService=2
MinJobAge=300
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class NoClusterError(Exception):
    """Why there can be no cluster here."""


def install_slurm() -> None:
    """Install Debian's packages where they are missing and this is root on a Debian machine."""
    if all(_find(program) for program in PROGRAMS):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NoClusterError("SLURM is not installed: apt-get install slurm-wlm munge")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "slurm-wlm", "munge"]):
        done = subprocess.run(["apt-get", *command], capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise NoClusterError(f"SLURM cannot be installed: {done.stderr.strip().splitlines()[-1:]}")


@contextmanager
def one_node_cluster(folder: Path, cpus: int) -> Iterator[None]:
    """Run a cluster."""
    host = socket.gethostname().split(".")[0]
    ports = dict(zip(("controller_port", "node_port"), _free_ports(2), strict=True))
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 9 // 10 // 2**20
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "seed", "log")]
    text = CONFIGURATION.format(
        mark=f"{MARK}{os.getpid()}", host=host, folder=folder, user=user, cpus=cpus, memory=memory, **ports
    )
    with ExitStack() as running:
        running.enter_context(_configured(text))
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            running.enter_context(_daemon(command, folder))
        _wait_until_idle(folder)
        yield


@contextmanager
def _configured(text: str) -> Iterator[None]:
    """The configuration in its place, if that is free."""
    if CONFIGURATION_FILE.exists():
        first = CONFIGURATION_FILE.read_text().partition("\n")[0]
        if not first.startswith(MARK):
            raise NoClusterError(f"this machine has a SLURM of its own: {CONFIGURATION_FILE}")
        # What a killed test left behind is overwritten.
        if Path("/proc", first.removeprefix(MARK)).exists():
            raise NoClusterError("another test has a cluster on this machine")
    try:
        CONFIGURATION_FILE.parent.mkdir(exist_ok=True)
        CONFIGURATION_FILE.write_text(text)
    except OSError as error:
        raise NoClusterError(f"{CONFIGURATION_FILE} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        CONFIGURATION_FILE.unlink()


@contextmanager
def _daemon(command: list[str], folder: Path) -> Iterator[None]:
    """A program in the foreground of a process of ours, which is ended with the context."""
    with (folder / f"{command[0]}.output").open("w") as output:
        process = subprocess.Popen(
            [_find(command[0]), *command[1:]], stdout=output, stderr=output, start_new_session=True
        )
        try:
            time.sleep(1)
            if process.poll() is not None:
                raise NoClusterError(
                    f"{command[0]} ended at once: {(folder / f'{command[0]}.output').read_text()[-500:]}"
                )
            yield
        finally:
            process.terminate()
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_idle(folder: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        found = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False)
        if found.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    logs = "".join((folder / f"{name}.log").read_text()[-1000:] for name in ("slurmctld", "slurmd"))
    raise NoClusterError(f"the node is not idle after {START_SECONDS} s: {found.stdout}{found.stderr}{logs}")


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _free_ports(n: int) -> list[int]:
    with ExitStack() as sockets:
        opened = [sockets.enter_context(socket.socket()) for _ in range(n)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]
