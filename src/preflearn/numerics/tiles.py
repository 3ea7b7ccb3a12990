"""Factorisations of large symmetric matrices, by tiles.

A matrix is split in halves until its parts are small enough for one call of LAPACK; all other work is products and
triangular solves of tiles. A tile is one call of BLAS in one thread, without the interpreter lock, and the tiles of a
step are taken in turn by the threads of `threads`:

- a thread that loses its processor to another program delays one tile, not every step of every routine;
- the threads of BLAS itself are not used, and so neither is OpenBLAS's threaded ``potrf``, which crashes on matrices of
  about 17,000 rows and more;
- Ctrl-C is noticed between two tiles, and nothing is left running.

With the halves of A = C Cᵀ, where C is lower triangular,

    A₁₁ = C₁₁ C₁₁ᵀ,   C₂₁ = A₂₁ C₁₁⁻ᵀ,   A₂₂ - C₂₁ C₂₁ᵀ = C₂₂ C₂₂ᵀ,

    (C⁻¹)₂₁ = -C₂₂⁻¹ C₂₁ C₁₁⁻¹,   (Cᵀ C)₁₁ = C₁₁ᵀ C₁₁ + C₂₁ᵀ C₂₁,   (Cᵀ C)₂₁ = C₂₂ᵀ C₂₁.

Matrices are Fortran-ordered, of float32 or float64, and changed in place; only their lower triangle is used.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np

from .threads import blas_at_rest, blas_with_at_most, in_turns, over_ranges, threads_at_hand

# Rows and columns of a part that LAPACK factors in one thread, and of a tile at most and at least.
_LEAF = 256
_TILE = 512
_LEAST_TILE = 64
# From this many rows or columns on, a product has enough tiles; otherwise, multiplications that are worth a thread.
_WIDE = 512
_LEAST_WORK = 1 << 20
# Multiplications of a tile that take much longer than handing it to a thread.
_LEAST_TILE_WORK = 1 << 22
# Every thread should have a few tiles to take, so that none waits long for the last one.
_TILES_EACH = 3


def cholesky(A: np.ndarray) -> int:
    """The lower factor of A in its lower triangle; 0, or the first leading minor (from 1) that is not positive.

    n³ / 3 operations. The upper triangle is left as it is.
    """
    with blas_at_rest():
        return _factor(A, 0, A.shape[0])


def invert_triangle(C: np.ndarray) -> int:
    """The inverse of the lower triangular C in its place; 0, or the first diagonal entry (from 1) that is zero.

    n³ / 3 operations.
    """
    zeros = np.flatnonzero(np.diagonal(C) == 0)
    if zeros.size:
        return int(zeros[0]) + 1
    with blas_at_rest():
        _invert(C, 0, C.shape[0])
    return 0


def inverse_from_factor(C: np.ndarray) -> int:
    """(C Cᵀ)⁻¹ in the lower triangle of C, from the lower factor C; the answer is that of `invert_triangle`.

    2 n³ / 3 operations.
    """
    info = invert_triangle(C)
    if info == 0:
        with blas_at_rest():
            _square(C, 0, C.shape[0])
    return info


def solve_with_factor(C: np.ndarray, B: np.ndarray) -> None:
    """B ← (C Cᵀ)⁻¹ B for the lower factor C, some columns of B per thread. 2 n² operations a column."""
    n = C.shape[0]

    def solve(first: int, last: int) -> None:
        lapack("potrs", C.dtype, "L", n, last - first, C, n, B[:, first:], n)

    with blas_at_rest():
        in_turns(solve, column_tiles(0, B.shape[1], 2.0 * n * n))


def add_product(C: np.ndarray, A: np.ndarray, B: np.ndarray, factor: float = 1.0) -> None:
    """C ← C + factor Aᵀ B for C-contiguous A and B; where they are one array, in the lower triangle only.

    Tiles of C side by side, or, where C is small, rows of A and B.
    """
    symmetric = A is B
    with blas_at_rest():
        if max(C.shape) >= _WIDE:
            shape = (
                lower_tiles(0, C.shape[0], C.shape[0], A.shape[0])
                if symmetric
                else _all_tiles(C.shape[0], C.shape[1], A.shape[0])
            )
            in_turns(lambda *tile: _add_tile(C, A, B, factor, symmetric, *tile), shape)
            return

        whole, least = (0, C.shape[0], 0, C.shape[1]), 1 + _LEAST_WORK // C.size
        if threads_at_hand() == 1 or A.shape[0] < 2 * least:
            _add_tile(C, A, B, factor, symmetric, *whole)
            return

        def some_rows(first: int, last: int) -> np.ndarray:
            part = np.zeros_like(C)
            _add_tile(part, A[first:last], B[first:last], factor, symmetric, *whole)
            return part

        for part in over_ranges(some_rows, A.shape[0], least=least):
            C += part


def _add_tile(C, A, B, factor: float, symmetric: bool, i: int, i_end: int, j: int, j_end: int) -> None:
    n, depth, part = C.shape[0], A.shape[0], C[i:, j:]
    # Row-major A is Aᵀ for BLAS.
    if symmetric and i == j:
        blas("syrk", C.dtype, "L", "N", i_end - i, depth, factor, A[:, i:], n, 1.0, part, n)
    else:
        blas(
            "gemm", C.dtype, "N", "T", i_end - i, j_end - j, depth, factor, A[:, i:], n, B[:, j:], B.shape[1], 1.0,
            part, n,
        )  # fmt: skip


def divide_rows(B: np.ndarray, C: np.ndarray) -> None:
    """B ← B C⁻ᵀ for the C-contiguous B and the lower triangular C, some rows of B per thread. n² operations a row."""
    n = C.shape[0]

    def divide(first: int, last: int) -> None:
        # Row-major B is Bᵀ for BLAS: C⁻¹ Bᵀ = (B C⁻ᵀ)ᵀ.
        blas("trsm", B.dtype, "L", "L", "N", "N", n, last - first, 1.0, C, n, B[first:], n)

    with blas_at_rest():
        in_turns(divide, column_tiles(0, B.shape[0], n * n))


def _halves(start: int, stop: int) -> int:
    """The middle of a range, at a multiple of the leaves."""
    return start + _LEAF * max(1, -(-(stop - start) // (2 * _LEAF)))


def _factor(A: np.ndarray, start: int, stop: int) -> int:
    """Factor the columns from start to stop, rows below included, once all earlier columns have been subtracted."""
    n = A.shape[0]
    if stop - start <= _LEAF:
        info = lapack("potrf", A.dtype, "L", stop - start, A[start:, start:], n)
        if info == 0 and stop < n:
            C = A[start:, start:]

            def divide(first: int, last: int) -> None:
                blas(
                    "trsm", A.dtype, "R", "L", "T", "N", last - first, stop - start, 1.0, C, n, A[first:, start:], n
                )  # fmt: skip

            in_turns(divide, column_tiles(stop, n, (stop - start) ** 2))
        return info + start if info else 0
    middle = _halves(start, stop)
    info = _factor(A, start, middle)
    if info:
        return info
    _subtract_product(A, start, middle, stop)
    return _factor(A, middle, stop)


def _subtract_product(A: np.ndarray, start: int, middle: int, stop: int) -> None:
    """A₂₂ ← A₂₂ - C₂₁ C₂₁ᵀ in the columns from middle to stop, C₂₁ standing in those from start to middle."""
    n, depth = A.shape[0], middle - start

    def subtract(i: int, i_end: int, j: int, j_end: int) -> None:
        if i == j:
            blas("syrk", A.dtype, "L", "N", i_end - i, depth, -1.0, A[i:, start:], n, 1.0, A[i:, i:], n)
        else:
            blas(
                "gemm", A.dtype, "N", "T", i_end - i, j_end - j, depth, -1.0, A[i:, start:], n, A[j:, start:], n, 1.0,
                A[i:, j:], n,
            )  # fmt: skip

    in_turns(subtract, lower_tiles(middle, stop, n, depth))


def lower_tiles(start: int, stop: int, n: int, depth: int) -> list[tuple[int, int, int, int]]:
    """First and last row and column of the tiles on and below the diagonal, in the columns from start to stop.

    For a product over ``depth`` columns: a tile must be worth the time that it takes to hand it to a thread.
    """
    area = (stop - start) * (n - (start + stop) // 2)
    tile = _square_tile(area, depth)
    return [
        (i, i_end, j, j_end)
        for j, j_end in _ranges(start, stop, tile)
        for i, i_end in [(j, j_end), *_ranges(j_end, n, tile)]
    ]


def _invert(C: np.ndarray, start: int, stop: int) -> None:
    n = C.shape[0]
    if stop - start <= _LEAF:
        lapack("trtri", C.dtype, "L", "N", stop - start, C[start:, start:], n)
        return
    middle = _halves(start, stop)
    upper, lower = C[start:, start:], C[middle:, middle:]

    def from_right(first: int, last: int) -> None:
        blas(
            "trsm", C.dtype, "R", "L", "N", "N", last - first, middle - start, -1.0, upper, n, C[first:, start:], n
        )  # fmt: skip

    def from_left(first: int, last: int) -> None:
        blas(
            "trsm", C.dtype, "L", "L", "N", "N", stop - middle, last - first, 1.0, lower, n, C[middle:, first:], n
        )  # fmt: skip

    in_turns(from_right, column_tiles(middle, stop, (middle - start) ** 2))
    in_turns(from_left, column_tiles(start, middle, (stop - middle) ** 2))
    _invert(C, start, middle)
    _invert(C, middle, stop)


def _square(C: np.ndarray, start: int, stop: int) -> None:
    """The lower triangle of Cᵀ C in the place of the part of C from start to stop."""
    n = C.shape[0]
    if stop - start <= _LEAF:
        lapack("lauum", C.dtype, "L", stop - start, C[start:, start:], n)
        return
    middle = _halves(start, stop)
    depth = stop - middle
    _square(C, start, middle)

    def add(i: int, i_end: int, j: int, j_end: int) -> None:
        if i == j:
            blas("syrk", C.dtype, "L", "T", i_end - i, depth, 1.0, C[middle:, i:], n, 1.0, C[i:, i:], n)
        else:
            blas(
                "gemm", C.dtype, "T", "N", i_end - i, j_end - j, depth, 1.0, C[middle:, i:], n, C[middle:, j:], n, 1.0,
                C[i:, j:], n,
            )  # fmt: skip

    def multiply(first: int, last: int) -> None:
        blas(
            "trmm", C.dtype, "L", "L", "T", "N", depth, last - first, 1.0, C[middle:, middle:], n, C[middle:, first:], n
        )  # fmt: skip

    in_turns(add, lower_tiles(start, middle, middle, depth))
    in_turns(multiply, column_tiles(start, middle, depth**2))
    _square(C, middle, stop)


def _all_tiles(n_rows: int, n_columns: int, depth: int) -> list[tuple[int, int, int, int]]:
    """The tiles of a whole matrix, as those of `lower_tiles`."""
    tile = _square_tile(n_rows * n_columns, depth)
    return [(*rows, *columns) for columns in _ranges(0, n_columns, tile) for rows in _ranges(0, n_rows, tile)]


def column_tiles(start: int, stop: int, work: float) -> list[tuple[int, int]]:
    """Ranges of columns (or rows), each of about this many multiplications, to be worked on in parallel."""
    share = (stop - start) // (_TILES_EACH * threads_at_hand())
    return _ranges(start, stop, _tile(max(share, int(_LEAST_TILE_WORK / max(1.0, work)))))


def _square_tile(area: float, depth: int) -> int:
    share = np.sqrt(area / (_TILES_EACH * threads_at_hand()))
    return _tile(int(max(share, np.sqrt(_LEAST_TILE_WORK / max(1, depth)))))


def _tile(size: int) -> int:
    return min(max(-(-size // 8) * 8, _LEAST_TILE), _TILE)


def _ranges(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    return [(first, min(first + step, stop)) for first in range(start, stop, step)]


# ----------------------------------------------------------------
# BLAS and LAPACK called in place and without the interpreter lock.
#
# SciPy's wrappers hold the lock until the routine is done and copy every array that is part of a larger one. Here the
# routines are called through the C functions that SciPy offers to Cython: on parts of a matrix, with its leading
# dimension, and from several threads at once.
#
# Python acts on a signal when the main thread returns to it, so Ctrl-C would wait for a long call. What can be done in
# short steps is (see `tiles` and `spectrum`); `interruptible_lapack` calls a routine that takes long in a thread of its
# own, while the main thread waits for whichever comes first. After Ctrl-C the routine runs to its end in the
# background, on memory that only it still holds, and a process that ends meanwhile waits for it: OpenBLAS never returns
# from its own shutdown while one of its threads works.


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


# ----------------------------------------------------------------
# Tridiagonal form and eigenvalues of large symmetric matrices, in short steps.
#
# A = Q T Qᵀ with T tridiagonal: LAPACK reduces some columns at a time (``latrd``), and the resulting update of the rest
# of the matrix, half of the work, is done by tiles in the threads of `threads` (see `tiles`), as is the product of
# the reflectors H₁ H₂ … = Q with other matrices. The first half multiplies the whole matrix by a vector for every
# column; up to a few thousand rows the threads of BLAS would spend more time waiting for each other.
#
# Ctrl-C is noticed between the steps. Only the eigenvalues of T are computed in one call.
#
# Matrices are Fortran-ordered, of float32 or float64, and changed in place; only their lower triangle is used.


NOT_CONVERGED = "the eigendecomposition did not converge; check X and y for extreme values"

# Columns that are reduced together, and the number below which LAPACK takes them one by one.
_PANEL = 32
_LAST_COLUMNS = 64
# Reflectors that are applied together.
_REFLECTORS = 64
# From this many rows on, a product with a vector is worth the threads of BLAS even where another program delays one;
# and the number of rows there must be for each of them: such products are bound by memory.
_MATRIX_WORTH_THREADS = 3000
_ROWS_OF_THREAD = 750


def eigh(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (ascending) and vectors of A, which is overwritten; divide and conquer. O(n³), two more n × n arrays.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the eigenvalues of T do not converge.
    """
    # One context for all steps of a smaller matrix: putting the threads of BLAS to rest and waking them takes a while.
    with _threads_for(A.shape[0]):
        return _eigh(A)


def _threads_for(n: int) -> Any:
    return blas_with_at_most(1 if n < _MATRIX_WORTH_THREADS else n // _ROWS_OF_THREAD)


def _eigh(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = A.shape[0]
    values, off_diagonal, scales = _reduce(A)
    Z = np.empty((n, n), dtype=A.dtype, order="F")
    lwork, liwork = 1 + 4 * n + n * n, 3 + 5 * n
    work, integers = np.empty(lwork, dtype=A.dtype), np.empty(liwork, dtype=np.intc)
    info = interruptible_lapack(
        "stedc", A.dtype, "I", n, values, off_diagonal, Z, n, work, lwork, integers, liwork
    )
    if info != 0:
        raise np.linalg.LinAlgError(NOT_CONVERGED)
    del work, integers
    with blas_at_rest():
        for first in reversed(range(0, n - 1, _REFLECTORS)):
            _reflect(A[1:], Z[1:], scales, first, min(first + _REFLECTORS, n - 1), 0)
    return values, Z


def tridiagonalise(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q in the memory of A, the diagonal and the off-diagonal of T. 8 n³ / 3 operations."""
    with _threads_for(A.shape[0]):
        diagonal, off_diagonal, scales = _reduce(A)
        with blas_at_rest():
            _form(A, scales)
    return A, diagonal, off_diagonal


def _reduce(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The diagonal and off-diagonal of T and factors of the reflectors, whose vectors replace A below its diagonal."""
    n, dtype = A.shape[0], A.dtype
    diagonal, off_diagonal, scales = np.empty(n, dtype), np.empty(n, dtype), np.empty(n, dtype)
    W = np.empty((n, _PANEL), dtype=dtype, order="F")
    done = 0
    while n - done > _LAST_COLUMNS:
        lapack_without_info(
            "latrd", dtype, "L", n - done, _PANEL, A[done:, done:], n, off_diagonal[done:], scales[done:], W, n
        )  # fmt: skip
        _subtract_panel(A, W, done)
        panel = np.arange(done, done + _PANEL)
        A[panel + 1, panel] = off_diagonal[panel]
        diagonal[panel] = A[panel, panel]
        done += _PANEL
    lapack(
        "sytd2", dtype, "L", n - done, A[done:, done:], n, diagonal[done:], off_diagonal[done:], scales[done:]
    )  # fmt: skip
    return diagonal, off_diagonal[: n - 1], scales[: n - 1]


def _subtract_panel(A: np.ndarray, W: np.ndarray, done: int) -> None:
    """A ← A - V Wᵀ - W Vᵀ in the rows and columns after a panel whose reflectors V start in column ``done``."""
    n, start, dtype = A.shape[0], done + _PANEL, A.dtype

    def subtract(i: int, i_end: int, j: int, j_end: int) -> None:
        rows, columns = i_end - i, j_end - j
        V_i, V_j, W_i, W_j = A[i:, done:], A[j:, done:], W[i - done :], W[j - done :]
        if i == j:
            blas("syr2k", dtype, "L", "N", rows, _PANEL, -1.0, V_i, n, W_i, n, 1.0, A[i:, i:], n)
            return
        for left, right in ((V_i, W_j), (W_i, V_j)):
            blas(
                "gemm", dtype, "N", "T", rows, columns, _PANEL, -1.0, left, n, right, n, 1.0, A[i:, j:], n
            )  # fmt: skip

    with blas_at_rest():
        in_turns(subtract, lower_tiles(start, n, n, 2 * _PANEL))


def _form(A: np.ndarray, scales: np.ndarray) -> None:
    """Q in place of the reflectors."""
    n = A.shape[0]
    # Q leaves the first row and column unchanged: the reflectors move one column to the right.
    for j in range(n - 1, 0, -1):
        A[j:, j] = A[j:, j - 1]
        A[:j, j] = 0
    A[:, 0] = 0
    A[0, 0] = 1
    Q = A[1:, 1:]
    work = np.empty(_REFLECTORS, dtype=A.dtype)
    for first in reversed(range(0, n - 1, _REFLECTORS)):
        last = min(first + _REFLECTORS, n - 1)
        _reflect(Q, Q, scales, first, last, last)
        size = last - first
        lapack(
            "org2r", A.dtype, n - 1 - first, size, size, Q[first:, first:], n, scales[first:], work
        )  # fmt: skip
        Q[:first, first:last] = 0


def _reflect(V: np.ndarray, C: np.ndarray, scales: np.ndarray, first: int, last: int, column: int) -> None:
    """C ← H_first … H_(last-1) C in the columns from ``column`` on; the reflectors are columns of V."""
    size, n_rows, n_columns = last - first, V.shape[0] - first, C.shape[1]
    if n_columns <= column:
        return
    vectors, n_V, n_C = V[first:, first:], V.strides[1] // V.itemsize, C.strides[1] // C.itemsize
    T = np.empty((size, size), dtype=V.dtype, order="F")
    lapack_without_info("larft", V.dtype, "F", "C", n_rows, size, vectors, n_V, scales[first:], T, size)

    def reflect(start: int, stop: int) -> None:
        work = np.empty((stop - start, size), dtype=V.dtype, order="F")
        lapack_without_info(
            "larfb", V.dtype, "L", "N", "F", "C", n_rows, stop - start, size, vectors, n_V, T, size,
            C[first:, start:], n_C, work, stop - start,
        )  # fmt: skip

    in_turns(reflect, column_tiles(column, n_columns, 2.0 * n_rows * size))
