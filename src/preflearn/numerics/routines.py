"""BLAS and LAPACK called in place and without the interpreter lock.

SciPy's wrappers hold the lock until the routine is done and copy every array that is part of a larger one. Here the
routines are called through the C functions that SciPy offers to Cython: on parts of a matrix, with its leading
dimension, and from several threads at once.

Python acts on a signal when the main thread returns to it, so Ctrl-C would wait for a long call. What can be done in
short steps is (see `tiles` and `spectrum`); `interruptible_lapack` calls a routine that takes long in a thread of its
own, while the main thread waits for whichever comes first. After Ctrl-C the routine runs to its end in the background,
on memory that only it still holds, and a process that ends meanwhile waits for it: OpenBLAS never returns from its own
shutdown while one of its threads works.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np

# A wait without a timeout cannot be interrupted everywhere.
_SECONDS_BETWEEN_LOOKS = 0.1
_LETTERS = {"f": "s", "d": "d"}
_REALS = {"f": ctypes.c_float, "d": ctypes.c_double}


def blas(name: str, dtype: np.dtype, *arguments: Any) -> None:
    """Call a BLAS routine, such as "gemm", in this thread.

    Parameters
    ----------
    name : str
        Without the letter of the precision.
    dtype : numpy dtype
        float32 or float64, the type of all arrays.
    *arguments : str, int, float or ndarray
        In the order of BLAS. An array stands for the address of its first entry and is changed in place.
    """
    code = np.dtype(dtype).char
    _routine("blas", _LETTERS[code] + name)(*_pointers(arguments, code))


def lapack_without_info(name: str, dtype: np.dtype, *arguments: Any) -> None:
    """The same for an auxiliary routine of LAPACK that cannot fail, such as "larft"."""
    code = np.dtype(dtype).char
    _routine("lapack", _LETTERS[code] + name)(*_pointers(arguments, code))


def lapack(name: str, dtype: np.dtype, *arguments: Any) -> int:
    """Call a LAPACK routine whose last argument is ``info`` in this thread, and return that."""
    code = np.dtype(dtype).char
    info = ctypes.c_int(0)
    _routine("lapack", _LETTERS[code] + name)(*_pointers(arguments, code), ctypes.byref(info))
    return info.value


def interruptible_lapack(name: str, dtype: np.dtype, *arguments: Any) -> int:
    """`lapack` for a routine that takes long: Ctrl-C raises at once.

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


def _pointers(arguments: tuple[Any, ...], code: str) -> list[Any]:
    return [_pointer(argument, code) for argument in arguments]


def _pointer(argument: Any, code: str) -> Any:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.__array_interface__["data"][0])
    if isinstance(argument, str):
        return ctypes.byref(ctypes.c_char(argument.encode()))
    if isinstance(argument, float):
        return ctypes.byref(_REALS[code](argument))
    return ctypes.byref(ctypes.c_int(int(argument)))


@cache
def _routine(library: str, name: str) -> Any:
    from scipy.linalg import cython_blas, cython_lapack

    capsule = {"blas": cython_blas, "lapack": cython_lapack}[library].__pyx_capi__[name]
    api = ctypes.pythonapi
    name_of, pointer_of = api.PyCapsule_GetName, api.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(pointer_of(capsule, name_of(capsule)))
