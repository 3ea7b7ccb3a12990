"""Text that is not UTF-8: found by its first bytes, read as what it is, and said.

Spreadsheets on Windows write tables as Windows-1252 or as UTF-16. UTF-8 is tried first: text of another encoding is
hardly ever valid UTF-8 by accident.
"""

from __future__ import annotations

import codecs
from typing import IO

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
