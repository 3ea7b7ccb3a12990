r"""The answers file: JSON lines that only ever grow, on the disk before they count.

    {"winner": "tea", "loser": "coffee", "judge": "ann", "time": "2026-01-05T10:12:00+00:00", "question": "8d0c", ...}

An entry is one line, written by one ``write`` and forced to the disk (``fsync``) before it is acknowledged. Undoing an
answer is an entry too (``{"undo": question, ...}``), and so is a skipped question (``{"skip": question, ...}``).
Each names the question it belongs to, so that an answer that is sent again after a lost connection counts once.

One process at a time holds the file (an advisory lock that ends with the process, however it ends). A last line that a
crash cut short is moved to ``FILE.damaged``.

The file may disappear all the same: deleted, or replaced by an editor that saves under another name and renames.
What is written then goes to a file that nobody finds again, so every entry is preceded and followed by a look whether
the name still leads to the file that is held; where it does not, the entry is refused.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_START_AGAIN = "Stop `preflearn ask` and start it again: the page keeps the answer and sends it then"


@dataclass(frozen=True)
class Answer:
    """What somebody said about two items.

    Attributes
    ----------
    winner, loser : str
        Names of the items; of two equal ones in the order left, right.
    judge : str
    time : str
        ISO 8601, UTC.
    question : str
        Identifier of the question.
    tie : bool
    left : bool or None
        Whether the left one was preferred; None for a tie or where it is not known.
    note : str
        A comment of the judge.
    """

    winner: str
    loser: str
    judge: str
    time: str
    question: str
    tie: bool = False
    left: bool | None = None
    note: str = ""

    def as_entry(self) -> dict[str, Any]:
        """The line of the file."""
        side = {} if self.left is None else {"side": "left" if self.left else "right"}
        tie = {"tie": True} if self.tie else {}
        note = {"note": self.note} if self.note else {}
        return {
            "winner": self.winner,
            "loser": self.loser,
            "judge": self.judge,
            "time": self.time,
            "question": self.question,
            **tie,
            **side,
            **note,
        }


def answers_table(answers: Sequence[Answer]) -> dict[str, list[Any]]:
    """Answers that were not undone as battles, one column for each thing known; `preflearn.rate` takes them."""
    names = ("winner", "loser", "judge", "time", "tie")
    return {name: [getattr(answer, name) for answer in answers] for name in names}


class Journal:
    """An answers file that this process holds.

    Parameters
    ----------
    path : Path
        Made if it is not there.

    Attributes
    ----------
    entries : list of dict
        What the file held when it was opened.
    notes : list of str
        What its owner should know.

    Raises
    ------
    ValueError
        If another process holds the file, or a line other than the last is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        if not path.parent.is_dir():
            raise FileNotFoundError(f"There is no folder {path.parent} for the answers: create it first.")
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: --answers names a file.")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._writing = threading.Lock()
        try:
            _lock(self._descriptor, path)
            self.entries = self._read()
            self._size = os.fstat(self._descriptor).st_size
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry; when this returns it is on the disk.

        Raises
        ------
        OSError
            If it could not be written whole, or the file was removed, replaced or cut; then nothing of it is in the
            file.
        """
        line = (json.dumps(entry, ensure_ascii=False) + "\n").encode()
        with self._writing:
            self._size = self._require_file(self._size)
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                os.fsync(self._descriptor)
                self._require_file(self._size + len(line))
            except OSError:
                with suppress(OSError):
                    if os.fstat(self._descriptor).st_size > self._size:
                        os.ftruncate(self._descriptor, self._size)
                raise
            self._size += len(line)

    @property
    def is_there(self) -> bool:
        """Whether the answers that were kept are still where they were."""
        try:
            self._require_file(self._size)
        except OSError:
            return False
        return True

    def _require_file(self, least: int) -> int:
        """The size of the file, if its name still leads to it and it has at least this many bytes."""
        held = os.fstat(self._descriptor)
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            raise OSError(f"{self.path.name} was removed while it was in use. {_START_AGAIN}") from None
        if (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino):
            raise OSError(
                f"{self.path.name} was replaced by another file while it was in use, as editors do that save by "
                f"renaming. {_START_AGAIN}"
            )
        if held.st_size < least:
            raise OSError(f"{self.path.name} became shorter while it was in use. {_START_AGAIN}")
        if held.st_size > least:  # somebody else has added to it
            os.lseek(self._descriptor, held.st_size - 1, os.SEEK_SET)
            if os.read(self._descriptor, 1) != b"\n":
                raise OSError(f"{self.path.name} ends with a line that is not whole. {_START_AGAIN}")
        return held.st_size

    def close(self) -> None:
        """Release the file."""
        with self._writing:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self) -> list[dict[str, Any]]:
        data = self.path.read_bytes()
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ValueError(f"{self.path} is UTF-16: save it as UTF-8, or name another file with --answers.")
        whole, newline, rest = data.rpartition(b"\n")
        entries: list[dict[str, Any]] = []
        for number, line in enumerate(whole.split(b"\n") if newline else [], start=1):
            if not line.strip():
                continue
            entry = parse_entry(line)
            if entry is not None:
                entries.append(entry)
            elif number == whole.count(b"\n") + 1 and not rest:
                rest, whole = line + b"\n", whole[: len(whole) - len(line)].rstrip(b"\n")
                newline = b"\n" if whole else b""
            else:
                raise self._foreign(number, line)
        if not rest:
            return entries
        entry = parse_entry(rest)
        if entry is not None:  # whole, but for the line end
            os.write(self._descriptor, b"\n")
            os.fsync(self._descriptor)
            return [*entries, entry]
        if not entries and not rest.startswith(b"{"):  # no answer was ever begun here
            raise self._foreign(1, rest)
        self._set_aside(rest, len(whole) + len(newline))
        return entries

    def _foreign(self, number: int, line: bytes) -> ValueError:
        return ValueError(
            f"{self.path}, line {number}: found {line[:60].decode(errors='replace')!r}, expected an answer as "
            "JSON with winner, loser and judge. Correct or remove it, or name another file with --answers."
        )

    def _set_aside(self, rest: bytes, kept: int) -> None:
        aside = self.path.with_name(self.path.name + ".damaged")
        with open(aside, "ab") as file:
            file.write(rest.rstrip(b"\n") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.ftruncate(self._descriptor, kept)
        os.fsync(self._descriptor)
        self.notes.append(
            f"The last line of {self.path} was cut short ({len(rest)} bytes) and is in {aside.name} now; the answers "
            "before it are used."
        )


def parse_entry(line: bytes) -> dict[str, Any] | None:
    """Parse an entry of the file; None for anything else. Lone surrogates are refused, since no page can show them."""
    try:
        entry = json.loads(line.decode("utf-8-sig"))  # some editors put a mark before the first line
        json.dumps(entry, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("judge"), str):
        return None
    named = all(isinstance(entry.get(key), str) for key in ("winner", "loser"))
    if named and entry["winner"] == entry["loser"]:
        return None
    other = any(isinstance(entry.get(key), str) for key in ("undo", "skip"))
    return entry if named != other else None


def standing_answers(entries: list[dict[str, Any]]) -> list[Answer]:
    """The answers that were not undone, in order; one sent twice counts once.

    Examples
    --------
    >>> said = {"winner": "tea", "loser": "milk", "judge": "ann", "question": "1"}
    >>> standing_answers([said, said, {"undo": "1", "judge": "ann"}, {**said, "question": "2"}])
    [Answer(winner='tea', loser='milk', judge='ann', time='', question='2', tie=False, left=None, note='')]
    """
    standing: dict[str, Answer] = {}
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        if "undo" in entry:
            standing.pop(entry["undo"], None)
        elif "winner" in entry:
            question = str(entry.get("question") or f"line {number + 1}")
            side = entry.get("side")
            if question in seen:
                continue
            seen.add(question)
            standing[question] = Answer(
                entry["winner"],
                entry["loser"],
                entry["judge"],
                str(entry.get("time", "")),
                question,
                bool(entry.get("tie", False)),
                None if side not in ("left", "right") else side == "left",
                str(entry.get("note", "")),
            )
    return list(standing.values())


def now() -> str:
    """The time for an entry."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _lock(descriptor: int, path: Path) -> None:
    """Hold the file until the process ends; refuse where another one does."""
    try:
        try:
            import fcntl
        except ImportError:  # Windows
            import msvcrt

            # A byte far beyond the end of the file: locked bytes cannot be read by others.
            os.lseek(descriptor, 1 << 40, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ValueError(
            f"Another process is asking with {path}: open its page (several judges share one), stop it, or name "
            "another file with --answers."
        ) from None
