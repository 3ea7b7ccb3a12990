"""Tridiagonal form and eigenvalues of large symmetric matrices, in short steps.

A = Q T Qᵀ with T tridiagonal: LAPACK reduces some columns at a time (``latrd``), and the resulting update of the rest
of the matrix, half of the work, is done by tiles in the threads of `threads` (see `tiles`), as is the product of
the reflectors H₁ H₂ … = Q with other matrices. The first half multiplies the whole matrix by a vector for every column;
up to a few thousand rows the threads of BLAS would spend more time waiting for each other.

Ctrl-C is noticed between the steps. Only the eigenvalues of T are computed in one call.

Matrices are Fortran-ordered, of float32 or float64, and changed in place; only their lower triangle is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .routines import blas, interruptible_lapack, lapack, lapack_without_info
from .threads import blas_at_rest, blas_with_at_most, in_turns
from .tiles import column_tiles, lower_tiles

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
