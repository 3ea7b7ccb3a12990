"""Compilation with a cache on disk, and without one where nothing can be written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba


def njit(*, cache: bool = False, **options: Any) -> Callable[[Callable], Any]:
    """`numba.njit`, except that a loop is compiled in every process where no folder for the cache can be written.

    Numba refuses to compile such a loop at all: an installation on a read-only disk, used without a home that can be
    written to, would be of no use.
    """

    def compiled(function: Callable) -> Any:
        loop = numba.njit(**options)(function)
        if cache:
            try:
                loop.enable_caching()
            except RuntimeError:  # "no locator available"
                _say_that_nothing_is_cached()
        return loop

    return compiled


@lru_cache(maxsize=1)
def _say_that_nothing_is_cached() -> None:
    warnings.warn(
        "Compiled loops cannot be cached, and every process compiles them again: neither the installation nor the "
        "user's cache folder can be written to. Set NUMBA_CACHE_DIR to a folder that can.",
        RuntimeWarning,
        stacklevel=2,
    )
