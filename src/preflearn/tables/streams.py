"""Files as plain bytes of UTF-8, whatever they are compressed with or encoded as.

Compression is recognised by the first bytes of a file, never by its name alone: gzip, bzip2, xz and zstd all start
with bytes that no text or Parquet file starts with. When writing, the name decides. Text that is not UTF-8 is
recognised by its first bytes too: spreadsheets on Windows write tables as Windows-1252 or as UTF-16. UTF-8 is tried
first, because text of another encoding is hardly ever valid UTF-8 by accident.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import IO, Any, cast

from ..errors import missing_extra

_FIRST_BYTES = {
    "gzip": b"\x1f\x8b",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}

# What the decompressors raise on data that are cut short or damaged.
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


def split_name(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """The suffix that determines the format, and the compression that the name implies.

    Examples
    --------
    >>> split_name("fold1/train.txt.xz")
    ('.txt', 'xz')
    """
    name = PurePath(path)
    compression = _SUFFIXES.get(name.suffix.lower())
    if compression is not None:
        name = name.with_suffix("")
    return name.suffix.lower(), compression


def compression_of(path: str | os.PathLike[str]) -> str | None:
    """The compression of a file by its first bytes; a name that promises another one is refused."""
    with open(path, "rb") as file:
        start = file.read(10)
    found = next((kind for kind, magic in _FIRST_BYTES.items() if start.startswith(magic)), None)
    if found == "bzip2" and start[4:10] != b"1AY&SY" and start[4:10] != b"\x17\x72\x45\x38\x50\x90":
        found = None  # text that happens to start with the three letters
    _, promised = split_name(path)
    if promised is not None and found != promised:
        what = f"is {found} data" if found else "is empty" if not start else "is not compressed"
        raise ValueError(
            f"{os.fspath(path)} is named as {promised} data but {what}: rename it or make it again."
        )
    return found


@contextmanager
def open_plain(
    path: str | os.PathLike[str], compression: str | None
) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file for reading; yields the file as it lies on the disk and its decompressed bytes."""
    with open(path, "rb") as raw:
        if compression is None:
            yield raw, raw
        else:
            with _decompressing(raw, compression, path) as stream:
                yield raw, stream


def _decompressing(raw: IO[bytes], compression: str, path: str | os.PathLike[str]) -> IO[bytes]:
    if compression == "gzip":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if compression == "bzip2":
        return io.BufferedReader(_Streams(raw, bz2.BZ2Decompressor))
    if compression == "xz":
        return io.BufferedReader(_Streams(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=4))
    zstd = _standard_zstd()
    if zstd is not None:
        return cast(IO[bytes], zstd.ZstdFile(raw))
    arrow = require_arrow(f"{os.fspath(path)}: reading zstd data before Python 3.14")
    return cast(IO[bytes], arrow.CompressedInputStream(arrow.PythonFile(raw, "r"), "zstd"))


class _Streams(io.RawIOBase):
    """Compressed streams one after another, as bzip2 and xz files may hold them, decompressed.

    Every byte of the file belongs to a stream: the readers of the standard library mistake a stream that cannot be
    read for the end of the file, if another one was read before it, and lose its rows.

    Parameters
    ----------
    raw : binary file
    make : callable
        Makes a decompressor for one stream.
    padding : int
        Streams may be followed by zero bytes, a multiple of this number of them; 0 allows none.
    """

    def __init__(self, raw: IO[bytes], make: Callable[[], Any], padding: int = 0):
        self._raw = raw
        self._make = make
        self._padding = padding
        self._stream = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            piece = b""
            if self._stream.eof:
                piece = self._start_of_next()
                if not piece:
                    return 0
                self._stream = self._make()
            elif self._stream.needs_input:
                piece = self._raw.read(io.DEFAULT_BUFFER_SIZE)
                if not piece:
                    raise EOFError("the last stream has no end")
            data = self._stream.decompress(piece, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)

    def _start_of_next(self) -> bytes:
        """The bytes after a stream, or none at the end of the file."""
        n_zeros = 0
        piece = self._stream.unused_data or self._raw.read(io.DEFAULT_BUFFER_SIZE)
        while piece and self._padding:
            start = piece.lstrip(b"\0")
            n_zeros += len(piece) - len(start)
            if start:
                piece = start
                break
            piece = self._raw.read(io.DEFAULT_BUFFER_SIZE)
        if n_zeros and n_zeros % self._padding:
            raise EOFError(f"{n_zeros} zero bytes after a stream")
        return piece


@contextmanager
def open_compressing(raw: IO[bytes], compression: str | None) -> Iterator[IO[bytes]]:
    """A file whose bytes go to ``raw`` compressed."""
    stream: Any
    if compression is None:
        yield raw
        return
    if compression == "gzip":
        # No name and no time: the same content gives the same bytes.
        stream = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
    elif compression == "bzip2":
        stream = bz2.BZ2File(raw, "wb")
    elif compression == "xz":
        stream = lzma.LZMAFile(raw, "wb")
    else:
        zstd = _standard_zstd()
        if zstd is not None:
            stream = zstd.ZstdFile(raw, "wb")
        else:
            arrow = require_arrow("Writing zstd data before Python 3.14")
            stream = arrow.CompressedOutputStream(arrow.PythonFile(_LeftOpen(raw), "w"), "zstd")
    with stream:
        yield stream


class _LeftOpen(io.RawIOBase):
    """A file that stays open when the stream that writes to it is closed."""

    def __init__(self, raw: IO[bytes]):
        self._raw = raw

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._raw.write(data)


def _standard_zstd() -> Any:
    """The module of Python 3.14 and later, or None."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return zstd


def require_arrow(what: str) -> Any:
    """Import pyarrow, or say what needs it and how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise missing_extra(what, "pyarrow", "arrow") from None
    return pyarrow


# ---------------------------------------------------------------------------------------------------- encodings

UTF8 = "utf-8"
_NAMES = {"cp1252": "Windows-1252"}
# What stands for a byte that cannot be decoded.
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"


def read_encoding(name: str) -> str:
    """The name that Python gives an encoding.

    Raises
    ------
    ValueError
        For a name that it does not know.
    """
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ValueError(
            f"encoding {name!r} is not known: expected utf-8, utf-16, cp1252 or another name that Python knows."
        ) from None


def detect_encoding(start: bytes) -> str:
    """The encoding of a text by what it starts with: whole lines, if it is UTF-8.

    Examples
    --------
    >>> [detect_encoding("größe,1\\n".encode(name)) for name in ("utf-8", "cp1252", "utf-16", "utf-16-le")]
    ['utf-8', 'cp1252', 'utf-16', 'utf-16-le']
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start[:1000]:
        # Latin letters leave every second byte empty.
        for name, empty in (("utf-16-le", start[1:1000:2]), ("utf-16-be", start[:1000:2])):
            if empty.count(0) > 0.7 * len(empty):
                return name
        return UTF8  # not a text; what reads it says so
    text = start.decode(UTF8, "replace")
    n_bad = text.count(_UNREADABLE)
    n_good = sum(not one.isascii() for one in text) - n_bad if n_bad else 0
    if n_good >= n_bad:
        return UTF8  # damaged, perhaps, but nothing else
    try:
        start.decode("cp1252")
    except UnicodeDecodeError:
        return UTF8  # neither; what reads it says so
    return "cp1252"


def spoken(encoding: str) -> str:
    """The name of an encoding as people know it."""
    return _NAMES.get(encoding, encoding.upper())


class Recoded:
    """A stream of text in any encoding, read as UTF-8 bytes."""

    def __init__(self, stream: IO[bytes], encoding: str):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int = -1) -> bytes:
        while True:
            piece = self._stream.read(size)
            text = self._decoder.decode(piece, final=not piece)
            if text or not piece:
                return text.encode(UTF8)
