"""Products of sparse rows with a few columns at once, and with each other, in threads.

With a few columns a stored value is read once for all of them, and the columns of one row of the dense factor lie
together: they cost hardly more than one. With each other: a row of A Aᵀ is summed in place, in the cache, from the
columns of A in which it has values.
"""

from __future__ import annotations

import numpy as np

from ..numerics.compiling import njit
from ..numerics.threads import over_ranges, over_small_ranges

# Rows that are worth a thread of their own.
_LEAST = 2048
# Rows of a product that a thread takes at a time: the first ones are the longest.
_STEP = 64


def times_columns(A, V: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """A V for a CSR matrix A and a C-contiguous V of shape (n, k). O(nnz k)."""
    out = np.empty((A.shape[0], V.shape[1])) if out is None else out
    over_ranges(_rows, A.shape[0], A.indptr, A.indices, A.data, V, out, least=_LEAST)
    return out


def products_of_rows(A) -> np.ndarray:
    """A Aᵀ of a CSR matrix as a dense C-contiguous array. O(Σ over columns of the square of their values)."""
    columns = A.T.tocsr()
    columns.sort_indices()
    out = np.zeros((A.shape[0], A.shape[0]), dtype=A.dtype)
    over_small_ranges(_products, A.shape[0], _STEP, *_parts(A), *_parts(columns), out)
    over_small_ranges(_mirror, A.shape[0], _STEP, out)
    return out


def _parts(A) -> tuple:
    return A.indptr, A.indices, A.data


@njit(cache=True, nogil=True)
def _products(indptr, indices, data, starts, rows, values, out, first, last):
    for i in range(first, last):
        mine = out[i]
        for place in range(indptr[i], indptr[i + 1]):
            value, column = data[place], indices[place]
            # From the end: rows are ascending, and those before i are mirrored.
            for other in range(starts[column + 1] - 1, starts[column] - 1, -1):
                row = rows[other]
                if row < i:
                    break
                mine[row] += value * values[other]


@njit(cache=True, nogil=True)
def _mirror(out, first, last):
    for i in range(first, last):
        for j in range(i):
            out[i, j] = out[j, i]


@njit(cache=True, nogil=True)
def _rows(indptr, indices, data, V, out, first, last):
    k = V.shape[1]
    total = np.zeros(k)
    for i in range(first, last):
        total[:] = 0.0
        for place in range(indptr[i], indptr[i + 1]):
            value, row = data[place], indices[place]
            for j in range(k):
                total[j] += value * V[row, j]
        for j in range(k):
            out[i, j] = total[j]
