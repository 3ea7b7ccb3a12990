"""Files that appear whole or not at all.

A file is written under a temporary name in the folder of its destination, forced to the disk, and only then renamed.
Whoever opens the destination sees the old content or the new one; a crash, a full disk or an interrupt leaves the
old one.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def write_whole(path: str | os.PathLike[str], content: str | bytes | memoryview) -> None:
    """Write a file that appears whole or not at all; texts as UTF-8."""
    with atomic_write(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file that replaces ``path`` when the block ends without an error.

    An existing file keeps its permissions, and a symbolic link keeps pointing to its target, whose content is
    replaced. A device or pipe (``/dev/stdout``) is written directly: there is nothing to rename.

    Parameters
    ----------
    path : path-like
        The destination.

    Yields
    ------
    file : binary file
        Where to write.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "a.txt") as file:
    ...     size = file.write(b"whole")
    >>> (folder / "a.txt").read_bytes()
    b'whole'
    """
    target = Path(os.path.realpath(path))
    mode = _mode_of(target)
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"{os.fspath(path)} is a folder: give the name of a file to write.")
        with open(target, "wb") as file:
            yield file
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {target.parent} to write {target.name} to: create it first."
        )
    descriptor, temporary = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name[:80]}.", suffix=".part"
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _mode_of(path: Path) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can (not on Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
