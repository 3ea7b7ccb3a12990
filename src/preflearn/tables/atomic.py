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
    target, mode = _destination(path)
    if _is_device(mode):
        with open(target, "wb") as file:
            yield file
        return
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


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a destination that `atomic_write` could not write to, before the work whose result it is for.

    Permissions alone do not tell: whether a disk is read-only is known when something is written.

    Raises
    ------
    OSError
    """
    target, mode = _destination(path)
    if _is_device(mode):  # opening a pipe and closing it again would end its reader
        return
    _write_something(target.parent, path)


def require_writable_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder in which nothing can be written; one that does not exist yet must be possible to create."""
    there = next(one for one in (Path(folder).absolute(), *Path(folder).absolute().parents) if one.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{os.fspath(folder)} is to be a folder, and {there} is a file.")
    _write_something(there, folder)


def _write_something(folder: Path, wanted: str | os.PathLike[str]) -> None:
    try:
        tempfile.NamedTemporaryFile(dir=folder, prefix=".preflearn.", suffix=".part").close()
    except OSError as error:
        raise type(error)(
            f"{os.fspath(wanted)} cannot be written ({error.strerror}): nothing can be written to {folder}. Give "
            "another place."
        ) from None


def _destination(path: str | os.PathLike[str]) -> tuple[Path, int | None]:
    """The file that is replaced and its mode, None where there is none yet."""
    target = Path(os.path.realpath(path))
    mode = _mode_of(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{os.fspath(path)} is a folder: give the name of a file to write.")
    if not target.parent.is_dir():
        typed = Path(path).parent
        folder = target.parent if typed.is_dir() else typed  # a link may lead to a folder that is gone
        raise FileNotFoundError(f"There is no folder {folder} to write {target.name} to: create it first.")
    return target, mode


def _is_device(mode: int | None) -> bool:
    return mode is not None and not stat.S_ISREG(mode)


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
