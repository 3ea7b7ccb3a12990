"""Plain threads for loops that release the GIL.

Numba's own threads may not be started from several Python threads at once, and a process that has started them may not
fork; plain threads have neither limit, and the loops compile several times faster. This module does not import Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

from joblib import effective_n_jobs


@lru_cache(maxsize=1)
def n_threads() -> int:
    """Processors that this process may use (asked once: the answer is read from several files)."""
    return effective_n_jobs(-1)


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Results of the calls, made side by side."""
    if len(calls) == 1 or n_threads() == 1:
        return [call() for call in calls]
    with ThreadPoolExecutor(n_threads()) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def over_ranges(
    loop: Callable[..., Any], size: int, *arguments: Any, least: int = 1, align: int = 1
) -> list[Any]:
    """Run ``loop(*arguments, first, last)`` over 0 ... size, one range per thread.

    Parameters
    ----------
    least : int
        A range shorter than this costs more to start than it saves.
    align : int
        Ranges begin at multiples of this, so that threads do not share cache lines.
    """
    n_parts = max(1, min(n_threads(), size // max(1, least)))
    step = -(-size // n_parts)
    step = -(-step // align) * align
    return in_threads(
        [partial(loop, *arguments, first, min(first + step, size)) for first in range(0, size, max(1, step))]
    )
