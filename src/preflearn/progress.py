"""What a learner reports while it works: stages with their times, and the progress of the long ones.

In a terminal and in a notebook a stage is a progress bar that becomes one line when it is done; elsewhere (a pipe, a
log file) it is a line on standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# Seconds between two lines of an iteration.
_REPORT_EVERY = 2.0
_BAR = 20


class Stage:
    """One stage in progress; `iteration` reports at most every two seconds, `count` how much of a total is done."""

    def __init__(self, name: str | None, bar: Any = None, listener: Callable[[float], None] | None = None):
        self._name, self._bar, self._listener = name, bar, listener
        self._begun = self._last = time.perf_counter()

    def iteration(self, number: int, residual: float) -> None:
        self._tell(f"iteration {number}, residual {residual:.2e}")

    def count(self, done: int, total: int, what: str) -> None:
        """``done`` of ``total`` are finished."""
        if self._bar is not None:
            self._bar.update(0, completed=done, total=total)
        if self._listener is not None and done:
            self._listener((time.perf_counter() - self._begun) * (total - done) / done)
        self._tell(f"{done:,} of {total:,} {what}")

    def amount(self, done: int, what: str) -> None:
        """This much is finished, of a total that is not known."""
        self._tell(f"{done:,} {what}")

    def _tell(self, text: str) -> None:
        now = time.perf_counter()
        if self._name is None or now - self._last < _REPORT_EVERY:
            return
        self._last = now
        if self._bar is not None:
            self._bar.update(0, description=f"{self._name}: {text}")
        else:
            print(f"\n{self._name}: {text}", file=sys.stderr, end="", flush=True)


class Stages:
    """Shows the stages of one training; silent when ``owner`` is None.

    Examples
    --------
    >>> stages = Stages(None)
    >>> with stages("kernel matrix"):
    ...     pass
    """

    # One bar at a time: a stage inside another one is part of it.
    _bar_shown = False
    # Who else wants to know: called with the name of each stage that begins, and about how long it all will take.
    _listener: Callable[[str], None] | None = None

    def __init__(self, owner: str | None):
        self._owner = owner

    def note(self, text: str) -> None:
        """A line about what is about to be done."""
        note(self._owner, text)

    @classmethod
    @contextmanager
    def told_to(cls, listener: Callable[[str], None]) -> Iterator[None]:
        """Tell a function, too, which stages begin and about how many seconds are left.

        Examples
        --------
        >>> with Stages.told_to(print), Stages(None)("boosted trees", left=lambda: 90.0):
        ...     pass
        boosted trees, about 90 s left
        """
        before, cls._listener = cls._listener, listener
        try:
            yield
        finally:
            cls._listener = before

    @contextmanager
    def __call__(self, name: str, *, left: Callable[[], float] | None = None) -> Iterator[Stage]:
        if Stages._listener is not None and left is not None:
            listener, text = Stages._listener, f"{name}, about {{:.0f}} s left"
            listener(text.format(max(1.0, left())))
            with Stages.told_to(lambda nothing: None):  # a stage inside this one is part of it
                yield Stage(None, listener=lambda seconds: listener(text.format(seconds)))
            return
        if self._owner is None or Stages._bar_shown:
            yield Stage(None)
            return
        console = _console()
        if console is not None:
            with self._bar(f"[{self._owner}] {name}", console) as stage:
                yield stage
            return
        start = time.perf_counter()
        print(f"[{self._owner}] {name} ...", file=sys.stderr, end="", flush=True)
        yield Stage(f"[{self._owner}] {name}")
        print(f" {time.perf_counter() - start:.2f} s", file=sys.stderr, flush=True)

    @contextmanager
    def _bar(self, name: str, console: Any) -> Iterator[Stage]:
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(_BAR), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
        start, Stages._bar_shown = time.perf_counter(), True
        try:
            with Progress(*columns, console=console, transient=True) as bar:
                bar.add_task(name, total=None)
                yield Stage(name, bar)
        finally:
            Stages._bar_shown = False
        console.print(f"{escape(name)}: {time.perf_counter() - start:.2f} s", highlight=False)


def note(owner: str | None, text: str) -> None:
    """One line on standard error; nothing when ``owner`` is None."""
    if owner is not None:
        print(f"[{owner}] {text}", file=_stream(), flush=True)


class Counter:
    """Counts what is done of a known total, at most twice a second; silent unless ``verbose``.

    Examples
    --------
    >>> count = Counter("cross_val_predict", 10, "folds", verbose=0)
    >>> count(3)
    """

    def __init__(self, owner: str, total: int, what: str, verbose: int):
        self._text = f"[{owner}] {{}}{{}} of {total} {what}"
        self._total = total
        self._silent = not verbose
        self._last = 0.0

    def __call__(self, done: int) -> None:
        now = time.perf_counter()
        if self._silent or (done < self._total and now - self._last < 0.5):
            return
        self._last = now
        stream = _stream()
        full = _BAR * done // max(1, self._total)
        bar = f"{'━' * full}{'┄' * (_BAR - full)} " if stream is not sys.stderr or stream.isatty() else ""
        end = "\n" if done >= self._total else ""
        print("\r" + self._text.format(bar, done), file=stream, end=end, flush=True)


def in_notebook() -> bool:
    """Whether a notebook shows what is printed."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def _stream() -> TextIO:
    """Standard error, which a notebook would show in red; there, standard output."""
    return sys.stdout if in_notebook() else sys.stderr


def _console() -> Any:
    """What shows a progress bar; None in a pipe or a log file."""
    notebook = in_notebook()
    if not notebook and not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(force_jupyter=True) if notebook else Console(stderr=True)
