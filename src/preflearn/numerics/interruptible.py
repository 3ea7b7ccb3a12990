"""Long LAPACK calls that Ctrl-C can leave.

Python acts on a signal when the main thread returns to it, and SciPy's wrappers hold the interpreter lock until LAPACK
is done: half a minute for the eigenvalues of some thousand rows. Here the routine is called through the C functions
that SciPy offers to Cython, without the lock and in a thread of its own, while the main thread waits for whichever
comes first. After Ctrl-C the routine runs to its end in the background, on memory that only it still holds.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np

# Below so many rows a call takes a fraction of a second.
LONG = 1000
# A wait without an end cannot be interrupted everywhere.
_SECONDS_BETWEEN_LOOKS = 0.1
_LETTERS = {"f": "s", "d": "d"}


def call_lapack(name: str, dtype: np.dtype, *arguments: Any) -> int:
    """Call a LAPACK routine whose last argument is ``info``, and return that; Ctrl-C raises at once.

    Parameters
    ----------
    name : str
        Without the letter of the precision, such as "potrf".
    dtype : numpy dtype
        float32 or float64.
    *arguments : str, int or contiguous ndarray
        In the order of LAPACK, without ``info``. Arrays are used in place.
    """
    routine = _routine(_LETTERS[np.dtype(dtype).char] + name)
    info = ctypes.c_int(0)
    values = [_value(argument) for argument in arguments]
    pointers = [
        v.ctypes.data_as(ctypes.c_void_p) if isinstance(v, np.ndarray) else ctypes.byref(v) for v in values
    ]

    def work() -> None:
        routine(*pointers, ctypes.byref(info))

    if threading.current_thread() is threading.main_thread():
        _wait_for(work)
    else:
        work()
    return info.value


def _wait_for(work: Any) -> None:
    done = threading.Event()

    def work_and_tell() -> None:
        try:
            work()
        finally:
            done.set()

    threading.Thread(target=work_and_tell, name="LAPACK", daemon=True).start()
    while not done.wait(_SECONDS_BETWEEN_LOOKS):
        pass


def _value(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument
    return ctypes.c_char(argument.encode()) if isinstance(argument, str) else ctypes.c_int(int(argument))


@cache
def _routine(name: str) -> Any:
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    name_of, pointer_of = api.PyCapsule_GetName, api.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(pointer_of(capsule, name_of(capsule)))
