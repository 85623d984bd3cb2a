"""Headers of a PyTorch archive that is far away: its directory and its pickle, read by range, without torch.

Since version 1.6 ``torch.save`` writes an uncompressed zip archive: one small pickle that says which tensor is which
part of which storage, and one member for every storage. So a tensor of ``pytorch_model.bin`` on the Hub can be fetched
by range like one of a safetensors file. The pickle is read by an unpickler that knows tensors and nothing else.
"""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.formats.dtypes import n_bytes
from headspaces.weights.headers import TensorHeader

ReadRange = Callable[[int, int], Iterator[bytes]]

_STORAGES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}  # fmt: skip
_LOCAL_HEADER = 30
"""Bytes of a member's own header before its name."""


@dataclass(frozen=True)
class _Storage:
    dtype: str
    key: str


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_archive(read: ReadRange, file: str, size: int, where: str) -> dict[str, TensorHeader]:
    """Read the tensors of a PyTorch archive.

    Parameters
    ----------
    read
        Yields the bytes of a range of the file.
    file
        Key of the file, put into every tensor's header.
    size
        Bytes of the whole file.
    where
        The file, for messages.

    Raises
    ------
    InputError
        If the file is no such archive, is damaged, or holds anything but tensors.
    """
    ranges = _Ranges(read, size)
    try:
        with zipfile.ZipFile(ranges) as archive:
            members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
            if "byteorder" in members and archive.read(members["byteorder"]) != b"little":
                raise InputError(f"{where}: was written on a big-endian machine; save it again with safetensors")
            content = _Unpickler(io.BytesIO(archive.read(members["data.pkl"]))).load()
            places = _Places(ranges, members, where)
    except zipfile.BadZipFile as error:
        raise InputError(
            f"{where}: no PyTorch archive ({error}); if it is from before PyTorch 1.6, download it and name the folder"
        ) from error
    except (KeyError, pickle.UnpicklingError, EOFError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{where}: its pickle cannot be read as tensors by name ({error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{where}: holds no tensors by name; save model.state_dict()")
    return {str(name): places.header(name, part, file) for name, part in content.items() if isinstance(part, _Tensor)}


class _Places:
    """Where the storages lie: after each member's own header, whose length the directory does not tell."""

    def __init__(self, ranges: _Ranges, members: Mapping[str, zipfile.ZipInfo], where: str) -> None:
        self.members, self.where = members, where
        self.begins: dict[str, int] = {}
        for name, info in members.items():
            if name.startswith("data/"):
                if info.compress_type != zipfile.ZIP_STORED:
                    raise InputError(f"{where}: its tensors are compressed; save it again with torch.save")
                # PyTorch pads the header so that every storage begins at a multiple of 64 bytes. The header holds at
                # least the padding's own 4 bytes, and 20 more where sizes or places need 64 bits.
                large = info.file_size >= 0xFFFFFFFF or info.header_offset >= 0xFFFFFFFF
                start = info.header_offset + _LOCAL_HEADER + len(info.filename.encode()) + 4
                if large:
                    start += 4 + 8 * ((2 if info.file_size >= 0xFFFFFFFF else 0) + (info.header_offset >= 0xFFFFFFFF))
                self.begins[name] = -(-start // 64) * 64
        self._check_padding(ranges)

    def _check_padding(self, ranges: _Ranges) -> None:
        """Compare the first and the last storage's place with the member's own header."""
        ordered = sorted(self.begins, key=self.begins.__getitem__)
        for name in {*ordered[:1], *ordered[-1:]}:
            info = self.members[name]
            ranges.seek(info.header_offset)
            header = ranges.read(_LOCAL_HEADER)
            lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            if info.header_offset + _LOCAL_HEADER + lengths != self.begins[name]:
                raise InputError(f"{self.where}: its tensors are not where PyTorch puts them; download it first")

    def header(self, name: str, tensor: _Tensor, file: str) -> TensorHeader:
        """Return one tensor's header, its bytes counted from the start of the file."""
        member = f"data/{tensor.storage.key}"
        if member not in self.begins:
            raise InputError(f"{self.where}: tensor {name!r} has no storage in the archive; the file is damaged")
        item = n_bytes(tensor.storage.dtype, (1,), name)
        begin = self.begins[member] + item * tensor.offset
        end = begin + n_bytes(tensor.storage.dtype, tensor.shape, name)
        if end > self.begins[member] + self.members[member].file_size:
            raise InputError(f"{self.where}: tensor {name!r} is longer than its storage; the file is damaged")
        if not _contiguous(tensor):
            raise InputError(
                f"{self.where}: tensor {name!r} is a view of another order; download it and name the folder"
            )
        return TensorHeader(tensor.storage.dtype, tensor.shape, file, begin, end)


class _Ranges(io.RawIOBase):
    """A file that can be read and sought, every read of which is a range request."""

    def __init__(self, read: ReadRange, size: int) -> None:
        self.read_range, self.size, self.position = read, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError("before the start of the file")
        self.position = base + offset
        return self.position

    def read(self, size: int | None = -1) -> bytes:
        """Read by range."""
        end = self.size if size is None or size < 0 else min(self.size, self.position + size)
        data = b"".join(self.read_range(self.position, end)) if end > self.position else b""
        self.position += len(data)
        return data


class _Unpickler(pickle.Unpickler):
    """Knows how tensors are put together, and refuses every other name: nothing of the file is ever run."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name that tensors need."""
        known: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        }
        if (module, name) in known:
            return known[module, name]
        if module == "torch" and name in _STORAGES:
            return name
        raise pickle.UnpicklingError(f"holds {module}.{name} beside tensors, which could run code, so it is not read")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the stand-in for a storage."""
        kind, storage, key, *_ = pid
        if kind != "storage":
            raise pickle.UnpicklingError(f"holds a {kind!r}")
        return _Storage(_STORAGES[storage], str(key))


def _rebuild_tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _rebuild_parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


def _contiguous(tensor: _Tensor) -> bool:
    expected = 1
    for length, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if length != 1 and stride != expected:
            return 0 in tensor.shape
        expected *= length
    return True
