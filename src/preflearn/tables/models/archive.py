"""The archive of a model file: a zip whose size is known before anything is read.

Members are stored, never compressed, so that what they hold is no larger than the file. Arrays in NumPy's own format
are read by their header: its shape and type must account for every byte that follows. Sparse arrays lie in compressed
archives of their own; what those unpack to is counted, from their directories, against one limit for the whole file.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from types import TracebackType
from typing import IO, Any

import numpy as np

MAX_MEMBERS = 10_000
# Limits on the unpacked size: a multiple of the size of the file, and a floor in bytes for small files.
UNPACKED_RATIO = 50
UNPACKED_FLOOR = 1 << 26
# Booleans, numbers, texts and times. No objects (they would be pickles) and no records.
_PLAIN_KINDS = "biufcSUmM"
_SPARSE_PARTS = {"format", "shape", "data", "indices", "indptr", "row", "col", "coords", "_is_array"}


class ModelRefusedError(ValueError):
    """A file that is whole, but asks for something that is not allowed."""


class ModelArchive:
    """A model file, opened for reading within limits.

    Parameters
    ----------
    file : seekable binary file
    max_bytes : int, optional
        The most bytes that the file may unpack to; None is 50 times its size, at least 64 MiB.

    Raises
    ------
    ModelRefusedError
        If the archive has too many members, compressed ones, two of one name, or unpacks to too much.
    """

    def __init__(self, file: IO[bytes], max_bytes: int | None = None):
        file.seek(0, os.SEEK_END)
        size = file.tell()
        self._left = max(UNPACKED_FLOOR, UNPACKED_RATIO * size) if max_bytes is None else max_bytes
        self._spend(size, "the file itself")
        self._zip = zipfile.ZipFile(file)
        self._members = self._checked_members(size)
        self._arrays: dict[str, Any] = {}

    def __enter__(self) -> ModelArchive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """The bytes of a member, whose checksum is verified."""
        if name not in self._members:
            raise ValueError(f"member {name!r} is missing")
        return self._zip.read(self._members[name])

    def array(self, name: str) -> np.ndarray:
        """An array of plain values; a member that is asked for twice is read once."""
        if name not in self._arrays:
            self._arrays[name] = read_array(self.read(name))
        return self._arrays[name]

    def sparse_parts(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a sparse array; a member that is asked for twice is read once."""
        if name not in self._arrays:
            with zipfile.ZipFile(io.BytesIO(self.read(name))) as inner:
                members = {one.filename.removesuffix(".npy"): one for one in inner.infolist()}
                strange = sorted(set(members) - _SPARSE_PARTS)
                if strange or len(members) != len(inner.infolist()):
                    raise ModelRefusedError(f"a sparse array with parts of its own ({strange[:3]})")
                _refuse_other_methods(members.values(), (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
                self._spend(sum(one.file_size for one in members.values()), f"sparse array {name}")
                self._arrays[name] = {part: read_array(inner.read(one)) for part, one in members.items()}
        return self._arrays[name]

    def _spend(self, n_bytes: int, what: str) -> None:
        """Count bytes against the limit before they are read."""
        self._left -= n_bytes
        if self._left < 0:
            raise ModelRefusedError(
                f"more memory than its size allows ({what} has {n_bytes:,} bytes, {-self._left:,} over the limit). "
                "If you trust the file, raise max_bytes"
            )

    def _checked_members(self, size: int) -> dict[str, zipfile.ZipInfo]:
        found = self._zip.infolist()
        if len(found) > MAX_MEMBERS:
            raise ModelRefusedError(f"{len(found):,} members, more than {MAX_MEMBERS:,}")
        members = {one.filename: one for one in found}
        if len(members) != len(found):
            raise ModelRefusedError("two members of one name")
        _refuse_other_methods(found, (zipfile.ZIP_STORED,))
        if sum(one.file_size for one in found) > size:
            raise ModelRefusedError("members that are larger than the file, and so overlap")
        return members


def _refuse_other_methods(members: Any, allowed: tuple[int, ...]) -> None:
    for one in members:
        if one.compress_type not in allowed or one.flag_bits & 1:
            raise ModelRefusedError(
                f"member {one.filename!r}, which is compressed or encrypted, unlike any that preflearn writes"
            )


def read_array(content: bytes) -> np.ndarray:
    """An array in NumPy's format, in this machine's byte order, refused unless its header accounts for every byte.

    Examples
    --------
    >>> buffer = io.BytesIO()
    >>> np.save(buffer, np.arange(3))
    >>> read_array(buffer.getvalue())
    array([0, 1, 2])
    """
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    read_header = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read_header(stream)
    if dtype.kind not in _PLAIN_KINDS or dtype.subdtype is not None:
        raise ValueError(f"an array of type {dtype}, expected plain values")
    if any(length < 0 for length in shape):
        raise ValueError(f"an array of shape {shape}")
    start, count = stream.tell(), math.prod(shape)
    if count * dtype.itemsize != len(content) - start or (count and not dtype.itemsize):
        raise ValueError(f"an array of shape {shape} in {len(content) - start} bytes")
    flat = np.frombuffer(content, dtype=dtype, count=count, offset=start).astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")
