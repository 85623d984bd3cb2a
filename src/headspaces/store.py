"""HDF5 files of the pipeline: the only module that knows h5py.

Every file holds named arrays and, as root attributes, what made it. Reading checks the format's name and version, and
the checksum of the whole file that writing put behind its end, so that a damaged file is named instead of believed.
That comes before HDF5 sees the file: the library may run forever on one flipped bit. What HDF5 cannot read after that
is the system's fault, not the file's. Other readers of HDF5 do not look behind the end.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

# Readers never block a writer and network file systems without locks work: files are never changed in place.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py
import numpy as np

import headspaces
from headspaces.errors import DamagedFileError
from headspaces.fields import LABELS, describe_dimension, dimension_fault, find_field
from headspaces.files import SteadyFile, read_patiently, whole_file

FORMAT_VERSION = 1
T = TypeVar("T")
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
        Datasets by their path inside the file, such as ``within/O/rho``. Those of :mod:`headspaces.fields` get their
        dimensions as HDF5 dimension scales, and ``units`` and ``long_name`` as attributes.
    attributes
        Root attributes beside the format, its version and the package's version.
    """
    with whole_file(path) as beside, SteadyFile(beside, "w+") as stream:
        with h5py.File(stream, "w", libver="latest") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
            _label(file, kind, arrays)
            file.attrs.update({
                **attributes,
                "format": f"headspaces-{kind}",
                "format_version": FORMAT_VERSION,
                "package_version": headspaces.__version__,
            })  # fmt: skip
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").digest()
        stream.seek(0, io.SEEK_END)
        stream.write(_SUM_MARK + digest)
        if stream.failed:
            raise stream.failed


def read_arrays(path: str | Path, kind: str, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Read all or the named arrays of a file.

    Raises
    ------
    DamagedFileError
        If the file has changed since it was written, is of another kind or version, lacks an array, or has one of
        other dimensions than its attributes say.
    InputError
        If the system cannot read it.
    """

    def read(file: h5py.File, says: Mapping[str, object]) -> dict[str, np.ndarray]:
        chosen = wanted if wanted is not None else _dataset_names(file)
        return {name: _read_named(file, name, path, kind, says) for name in chosen}

    wanted = list(names) if names is not None else None
    return _read(path, kind, read)


def read_attributes(path: str | Path, kind: str) -> dict[str, str | int | float | bool]:
    """Read the root attributes of a file as plain Python values; errors as in :func:`read_arrays`."""

    def read(_: h5py.File, says: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
        return {key: value.item() if isinstance(value, np.generic) else value for key, value in says.items()}

    return _read(path, kind, read)


def dataset_names(path: str | Path, kind: str) -> list[str]:
    """Return the paths of all datasets in a file but its dimension scales, sorted; errors as in :func:`read_arrays`."""
    return _read(path, kind, lambda file, _: _dataset_names(file))


def file_kind(path: str | Path) -> str:
    """Return what an undamaged file says it is: ``overlaps``, ``nulls``, …; errors as in :func:`read_arrays`."""
    return _read(path, None, lambda _, says: _kind(says))


_SUM_MARK = b"SHA256 of all before: "
"""Stands behind the end of an HDF5 file, before the 32 bytes of its checksum."""


def _read(path: str | Path, kind: str | None, read: Callable[[h5py.File, Mapping[str, Any]], T]) -> T:
    """Give ``read`` the open file and its root attributes."""

    def attempt() -> T:
        state = Path(path).stat()
        says = _attributes(os.fspath(path), state.st_ino, state.st_size, state.st_mtime_ns)
        _check_kind(says, path, kind or _kind(says))
        with _opened(path) as file:
            return read(file, says)

    return read_patiently(path, attempt)


@contextmanager
def _opened(path: str | Path) -> Iterator[h5py.File]:
    # HDF5 gets its bytes from our file: its own driver buries what the system said, or dies of it.
    with SteadyFile(path) as stream, h5py.File(stream, "r") as file:
        yield file


def _kind(says: Mapping[str, object]) -> str:
    return str(says.get("format")).removeprefix("headspaces-")


@lru_cache(maxsize=1024)
def _attributes(path: str, *_: int) -> Mapping[str, Any]:
    """Compare a file with its checksum and read its root attributes, once for each state that this process meets."""
    _check_sum(path)
    with _opened(path) as file:
        return dict(file.attrs)  # reading all raises what ``attrs.get`` would hide


def _check_sum(path: str) -> None:
    length = len(_SUM_MARK) + hashlib.sha256().digest_size
    buffer, digest = memoryview(bytearray(2**22)), hashlib.sha256()
    with SteadyFile(path) as file:
        left = max(file.seek(0, io.SEEK_END) - length, 0)
        file.seek(0)
        while left and (n := file.readinto(buffer[:left])):
            digest.update(buffer[:n])
            left -= n
        expected = bytes(buffer[: file.readinto(buffer[: length + 1])])
    if expected != _SUM_MARK + digest.digest():
        raise DamagedFileError(path, "not a readable HDF5 file (cut off or changed: its checksum differs)")


def _dataset_names(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(
        lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) and not item.is_scale else None
    )
    return sorted(names)


def _label(file: h5py.File, kind: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Give the datasets of the data dictionary their dimensions, units and meanings.

    A scale lies in the innermost group that holds all datasets of its dimension, where netCDF's readers look for it,
    and does not stand in the way of a dataset of its name elsewhere (``pairs/O/layer``).
    """
    users: dict[str, list[tuple[str, int]]] = {}
    for name in arrays:
        if (found := find_field(kind, name)) is None:
            continue
        field, dimensions = found
        if len(dimensions) != file[name].ndim:
            raise ValueError(f"{name} has the shape {file[name].shape}, its dimensions are {dimensions}")
        file[name].attrs.update({"long_name": field.meaning, **({"units": field.unit} if field.unit else {})})
        for axis, dimension in enumerate(dimensions):
            users.setdefault(dimension, []).append((name, axis))
    scales = {dimension: _scale(file, dimension, places) for dimension, places in users.items()}
    axes: dict[str, list[str]] = {}
    for dimension, places in users.items():
        # What h5py's attach_scale writes holds bytes of memory that nobody set: no two files would be the same.
        listed = np.array([(file[name].ref, axis) for name, axis in places], dtype=_REFERENCES)
        scales[dimension].attrs.create("REFERENCE_LIST", listed)
        for name, axis in places:
            axes.setdefault(name, [""] * file[name].ndim)[axis] = dimension
    for name, of_axes in axes.items():
        references = np.empty(len(of_axes), dtype=object)
        for axis, dimension in enumerate(of_axes):
            references[axis] = np.array([scales[dimension].ref], dtype=h5py.ref_dtype)
        file[name].attrs.create("DIMENSION_LIST", references, dtype=h5py.vlen_dtype(h5py.ref_dtype))


_REFERENCES = [("dataset", h5py.ref_dtype), ("dimension", np.int32)]


def _scale(file: h5py.File, dimension: str, places: Sequence[tuple[str, int]]) -> h5py.Dataset:
    """Make the scale of a dimension: its coordinates, 0, 1, … where nothing else is said."""
    sizes = {name: file[name].shape[axis] for name, axis in places}
    size = next(iter(sizes.values()))
    if set(sizes.values()) != {size}:
        raise ValueError(f"the dimension {dimension} has several lengths: {sizes}")
    labels = LABELS.get(dimension)
    group = posixpath.commonpath([f"/{posixpath.dirname(name)}" for name in sizes])
    values = np.arange(size) if labels is None else np.array(labels, dtype=h5py.string_dtype())
    scale = file.create_dataset(posixpath.join(group, dimension), data=values)
    scale.make_scale(dimension)
    scale.attrs["long_name"] = describe_dimension(dimension)
    return scale


def _check_kind(says: Mapping[str, object], path: str | Path, kind: str) -> None:
    found = (says.get("format"), says.get("format_version"))
    if found != (f"headspaces-{kind}", FORMAT_VERSION):
        expected = f"headspaces-{kind}, version {FORMAT_VERSION}"
        raise DamagedFileError(path, f"expected the format {expected}, found {found[0]}, version {found[1]}")


def _read_named(file: h5py.File, name: str, path: str | Path, kind: str, says: Mapping[str, object]) -> np.ndarray:
    if name not in file:
        raise DamagedFileError(path, f"no dataset {name!r}")
    if fault := dimension_fault(kind, name, file[name].shape, says):
        raise DamagedFileError(path, fault)
    return np.asarray(file[name][()])  # a scalar dataset is an array too
