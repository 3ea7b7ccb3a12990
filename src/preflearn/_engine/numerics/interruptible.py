"""Long LAPACK calls that Ctrl-C can leave.

Python acts on a signal when the main thread returns to it. What can be done in short steps is (see `tiles` and
`spectrum`); here a routine that takes long is called in a thread of its own, while the main thread waits for whichever
comes first. After Ctrl-C the routine runs to its end in the background, on memory that only it still holds, and a
process that ends meanwhile waits for it: OpenBLAS never returns from its own shutdown while one of its threads works.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from .routines import lapack

# A wait without an end cannot be interrupted everywhere.
_SECONDS_BETWEEN_LOOKS = 0.1


def call_lapack(name: str, dtype: np.dtype, *arguments: Any) -> int:
    """Call a LAPACK routine whose last argument is ``info``, and return that; Ctrl-C raises at once.

    Parameters
    ----------
    name : str
        Without the letter of the precision, such as "stedc".
    dtype : numpy dtype
        float32 or float64.
    *arguments : str, int, float or contiguous ndarray
        In the order of LAPACK, without ``info``. Arrays are used in place.
    """
    if threading.current_thread() is not threading.main_thread():
        return lapack(name, dtype, *arguments)
    done = threading.Event()
    found: list[int] = []

    def work() -> None:
        try:
            found.append(lapack(name, dtype, *arguments))
        finally:
            done.set()

    # Not a daemon: the interpreter waits for it before it shuts down.
    threading.Thread(target=work, name="LAPACK").start()
    while not done.wait(_SECONDS_BETWEEN_LOOKS):
        pass
    return found[0]
