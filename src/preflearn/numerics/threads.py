"""Plain threads for loops that release the GIL.

Numba's own threads may not be started from several Python threads at once, and a process that has started them may not
fork; plain threads have neither limit, and the loops compile several times faster. This module does not import Numba.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController, threadpool_limits


@lru_cache(maxsize=1)
def n_threads() -> int:
    """Processors that this process may use (determined once: the answer is read from several files)."""
    with warnings.catch_warnings():
        # Inside a worker of Dask or of multiprocessing the answer is one, as it should be.
        warnings.simplefilter("ignore", UserWarning)
        return effective_n_jobs(-1)


# Starting threads costs more than many loops take: they are started once. A loop that runs inside one of them must not
# wait for the others, which may be waiting for it.
_inside = threading.local()


def threads_at_hand() -> int:
    """Threads that a loop started here would have: one inside another loop, which already has them all."""
    return 1 if getattr(_inside, "pool", False) else n_threads()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        n_threads() - 1, thread_name_prefix="preflearn", initializer=lambda: setattr(_inside, "pool", True)
    )


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def limit_blas(n_threads: int) -> Callable[[], None]:
    """Limit the threads of BLAS in this process; the returned function removes the limit, from any thread.

    threadpoolctl obeys only the thread that set the first limit, until that thread is forgotten.
    """

    def forget_thread() -> None:
        for library in _libraries().lib_controllers:
            getattr(library, "clear_controlling_thread", lambda: None)()

    def restore() -> None:
        limit.restore_original_limits()
        forget_thread()

    limit = _libraries().limit(limits=n_threads)
    forget_thread()
    return restore


class _SharedLimit:
    """One limit on the threads of BLAS for the whole process: the first user sets it, the last one removes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limit = limit_blas(1)
            self._users += 1
        _inside.limits = getattr(_inside, "limits", 0) + 1

    def __exit__(self, *exception: object) -> None:
        _inside.limits -= 1
        with self._lock:
            self._users -= 1
            self._restore_if_unused()

    @property
    def in_use(self) -> bool:
        return self._users > 0

    def restart(self) -> None:
        """In a forked process: of all threads only this one exists."""
        self._lock = threading.Lock()
        self._users = getattr(_inside, "limits", 0)
        self._restore_if_unused()

    def _restore_if_unused(self) -> None:
        if self._users == 0 and self._limit is not None:
            restore, self._limit = self._limit, None
            restore()


_shared_limit = _SharedLimit()

if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork.
    for forget in (_pool.cache_clear, n_threads.cache_clear, _shared_limit.restart):
        os.register_at_fork(after_in_child=forget)


def threads_limited(n: int, library: str | None = None) -> Any:
    """A context in which libraries have at most this many threads: "openmp" (scikit-learn's trees), "blas", or all."""
    return threadpool_limits(n, user_api=library)


def blas_at_rest(when: bool = True) -> Any:
    """A context in which BLAS works in the thread that calls it, and nowhere else.

    Its own threads keep spinning for a while after a product, on processors that ours want.
    """
    return _shared_limit if when else nullcontext()


def blas_with_at_most(n: int) -> Any:
    """A context in which BLAS has at most n threads; where it is at rest already, it stays so."""
    if n <= 1:
        return blas_at_rest()
    return nullcontext() if n >= n_threads() or _shared_limit.in_use else threads_limited(n, "blas")


def with_small_matrices(work: Callable[[int], Any], size: int, most: int | None = None) -> list[Any]:
    """``work(0) ... work(size - 1)``, each on matrices too small for the threads of BLAS, which stay idle meanwhile.

    On at most ``most`` threads of our own.
    """
    with blas_at_rest():
        n = n_threads() if most is None else min(most, n_threads())
        return in_turns(work, [(number,) for number in range(size)], n)


def in_threads(calls: Sequence[Callable[[], Any]], give_up: Callable[[], None] = lambda: None) -> list[Any]:
    """Results of the calls, made side by side; the caller's own thread takes the first.

    After an error, Ctrl-C included, ``give_up`` is called to tell the other calls that their results are not needed.
    """
    if len(calls) <= 1 or threads_at_hand() == 1:
        return [call() for call in calls]
    others = [_pool().submit(call) for call in calls[1:]]
    try:
        # A loop inside the first call would queue behind the others.
        _inside.pool = True
        try:
            first = calls[0]()
        finally:
            _inside.pool = False
        return [first, *(future.result() for future in others)]
    except BaseException:
        give_up()
        # The others write to arrays of the caller: they must not be left running.
        for future in others:
            future.cancel()
        wait(others)
        raise


def in_turns(function: Callable[..., Any], calls: Sequence[tuple], n: int | None = None) -> list[Any]:
    """Results of the function for each tuple of arguments, each taken by the first of ``n`` threads that is free."""
    results: list[Any] = [None] * len(calls)
    turns = iter(range(len(calls)))

    def nobody_takes_another_turn() -> None:
        for _ in turns:
            pass

    def work() -> None:
        try:
            for turn in turns:
                results[turn] = function(*calls[turn])
        except BaseException:
            nobody_takes_another_turn()
            raise

    n_workers = min(n if n and n > 0 else n_threads(), len(calls))
    in_threads([work] * n_workers, nobody_takes_another_turn)
    return results


def over_small_ranges(loop: Callable[..., Any], size: int, step: int, *arguments: Any) -> None:
    """The same for ``loop(*arguments, first, last)`` over ranges of ``step``."""
    in_turns(
        lambda first: loop(*arguments, first, min(first + step, size)),
        [(first,) for first in range(0, size, step)],
    )


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
    n_parts = max(1, min(threads_at_hand(), size // max(1, least)))
    step = -(-size // n_parts)
    step = -(-step // align) * align
    return in_threads(
        [partial(loop, *arguments, first, min(first + step, size)) for first in range(0, size, max(1, step))]
    )


# Multiplications that are worth a thread of our own, and up to which BLAS wakes none of its threads.
_LEAST_WORK = 1 << 18
_WORK_OF_ONE = 1 << 13


def product_in_threads(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A B, some rows of A per thread; B may be a vector.

    The threads of BLAS wait for each other several times in a product of about a thousand rows and columns, and keep
    the processors busy after it.
    """
    out = np.empty((A.shape[0], *B.shape[1:]), np.result_type(A, B))

    def some(first: int, last: int) -> None:
        np.matmul(A[first:last], B, out=out[first:last])

    _over_rows(some, A.shape[0], B.size)
    return out


def transposed_product_in_threads(A: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Aᵀ u for a C-contiguous A with rows and a vector u, some rows per thread."""
    # Not `@`, which holds the interpreter lock here.
    parts = _over_rows(lambda first, last: np.dot(u[first:last], A[first:last]), *A.shape)
    return np.asarray(np.sum(parts, axis=0, dtype=np.float64))


def _over_rows(product: Callable[[int, int], Any], n_rows: int, work_each: int) -> list[Any]:
    with blas_at_rest(n_rows * work_each > _WORK_OF_ONE):
        return over_ranges(product, n_rows, least=1 + _LEAST_WORK // max(1, work_each))
