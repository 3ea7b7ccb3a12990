"""KeyboardInterrupts at chosen moments, for tests of runs that are resumed."""

from __future__ import annotations

from collections.abc import Callable


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
