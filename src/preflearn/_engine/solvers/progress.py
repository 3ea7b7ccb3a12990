"""What a learner says while it works: one line per stage with its time, and the count of iterations."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds between two lines of an iteration.
_REPORT_EVERY = 2.0


class Stage:
    """One stage in progress; `iteration` reports at most every two seconds."""

    def __init__(self, name: str | None):
        self._name = name
        self._last = time.perf_counter()

    def iteration(self, number: int, residual: float) -> None:
        now = time.perf_counter()
        if self._name is not None and now - self._last >= _REPORT_EVERY:
            self._last = now
            print(f"{self._name}: iteration {number}, residual {residual:.2e}", file=sys.stderr, flush=True)


class Stages:
    """Prints the stages of one training to standard error; silent when ``owner`` is None.

    Examples
    --------
    >>> stages = Stages(None)
    >>> with stages("kernel matrix"):
    ...     pass
    """

    def __init__(self, owner: str | None):
        self._owner = owner

    def note(self, text: str) -> None:
        """A line about what is going to be done."""
        note(self._owner, text)

    @contextmanager
    def __call__(self, name: str) -> Iterator[Stage]:
        if self._owner is None:
            yield Stage(None)
            return
        start = time.perf_counter()
        print(f"[{self._owner}] {name} ...", file=sys.stderr, end="", flush=True)
        yield Stage(f"\n[{self._owner}] {name}")
        print(f" {time.perf_counter() - start:.2f} s", file=sys.stderr, flush=True)


def note(owner: str | None, text: str) -> None:
    """One line on standard error; nothing when ``owner`` is None."""
    if owner is not None:
        print(f"[{owner}] {text}", file=sys.stderr, flush=True)


class Counter:
    """Counts what is done of a known total on standard error, at most twice a second; silent unless ``verbose``.

    Examples
    --------
    >>> count = Counter("cross_val_predict", 10, "folds", verbose=0)
    >>> count(3)
    """

    def __init__(self, owner: str, total: int, what: str, verbose: int):
        self._text = f"[{owner}] {{}} of {total} {what}"
        self._total = total
        self._silent = not verbose
        self._last = 0.0

    def __call__(self, done: int) -> None:
        now = time.perf_counter()
        if self._silent or (done < self._total and now - self._last < 0.5):
            return
        self._last = now
        print(
            "\r" + self._text.format(done),
            file=sys.stderr,
            end="\n" if done >= self._total else "",
            flush=True,
        )
