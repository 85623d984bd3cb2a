"""The HDF5 files of the pipeline: the only module that knows h5py.

Every file holds named arrays and, as root attributes, what made it. Reading checks the format's name and version, and
the checksum that writing put there, so that a damaged or swapped file is named instead of believed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

# Readers never block a writer and network file systems without locks work: files are never changed in place.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py
import numpy as np

import headspaces
from headspaces.errors import DamagedFileError
from headspaces.jobs import whole_file

FORMAT_VERSION = 1
Attributes: TypeAlias = Mapping[str, str | int | float | bool]


def write_arrays(path: str | Path, kind: str, arrays: Mapping[str, np.ndarray], attributes: Attributes) -> None:
    """Write named arrays as one whole file.

    Parameters
    ----------
    path
        The file; parent folders are made.
    kind
        What the file is (``bases``, ``overlaps``, …): its format is ``headspaces-{kind}``.
    arrays
        Datasets by their path inside the file, such as ``within/O/rho``.
    attributes
        Root attributes beside the format, its version and the package's version.
    """
    with whole_file(path) as beside, h5py.File(beside, "w", libver="latest") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array).attrs["sha256"] = _checksum(array)
        file.attrs.update({
            **attributes,
            "format": f"headspaces-{kind}",
            "format_version": FORMAT_VERSION,
            "package_version": headspaces.__version__,
        })  # fmt: skip


def read_arrays(path: str | Path, kind: str, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Read all or the named arrays of a file, checked.

    Raises
    ------
    DamagedFileError
        If the file cannot be read, is of another kind or version, lacks an array, or an array's checksum differs.
    """
    try:
        with h5py.File(path, "r") as file:
            _check_kind(file, path, kind)
            chosen = list(names) if names is not None else _dataset_names(file)
            return {name: _read_checked(file, name, path) for name in chosen}
    except OSError as error:
        raise DamagedFileError(path, f"not a readable HDF5 file ({error})") from error


def read_attributes(path: str | Path, kind: str) -> dict[str, str | int | float | bool]:
    """Read the root attributes of a file as plain Python values."""
    try:
        with h5py.File(path, "r") as file:
            _check_kind(file, path, kind)
            return {key: value.item() if isinstance(value, np.generic) else value for key, value in file.attrs.items()}
    except OSError as error:
        raise DamagedFileError(path, f"not a readable HDF5 file ({error})") from error


def dataset_names(path: str | Path, kind: str) -> list[str]:
    """Return the paths of all datasets in a file, sorted."""
    with h5py.File(path, "r") as file:
        _check_kind(file, path, kind)
        return _dataset_names(file)


def _dataset_names(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return sorted(names)


def _check_kind(file: h5py.File, path: str | Path, kind: str) -> None:
    found = (file.attrs.get("format"), file.attrs.get("format_version"))
    if found != (f"headspaces-{kind}", FORMAT_VERSION):
        expected = f"headspaces-{kind}, version {FORMAT_VERSION}"
        raise DamagedFileError(path, f"expected the format {expected}, found {found[0]}, version {found[1]}")


def _read_checked(file: h5py.File, name: str, path: str | Path) -> np.ndarray:
    if name not in file:
        raise DamagedFileError(path, f"no dataset {name!r}")
    array = np.asarray(file[name][()])  # a scalar dataset is an array too
    if file[name].attrs.get("sha256") != _checksum(array):
        raise DamagedFileError(path, f"dataset {name!r} is damaged (its checksum differs)")
    return array


def _checksum(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
