"""KeyboardInterrupts at chosen moments, for tests of runs that are resumed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from preflearn.auto import resuming


def interrupting_at(moment: int) -> Callable[[Callable], Callable]:
    """A decorator; of all moments before and after a call of what it decorates, the one with this number interrupts."""
    steps = iter(range(10_000))

    def interrupting(function: Callable) -> Callable:
        def wrapped(*arguments, **options):
            if next(steps) == moment:
                raise KeyboardInterrupt
            result = function(*arguments, **options)
            if next(steps) == moment:
                raise KeyboardInterrupt
            return result

        return wrapped

    return interrupting


def interrupt_after_three_candidates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Interrupt an AutoRanker once, after its third candidate is kept; the names of the candidates that are tried."""
    keep, tried = resuming.ResumableRun.keep_attempt, []

    def interrupting(run, attempt):
        keep(run, attempt)
        tried.append(attempt.candidate.name)
        if len(tried) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(resuming.ResumableRun, "keep_attempt", interrupting)
    return tried
