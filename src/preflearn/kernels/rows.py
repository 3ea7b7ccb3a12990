"""Items of any container, and what kernels share that work on rows of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..numerics.namespace import Home, is_device_array

# Rows from which the middle is taken.
_SAMPLE = 65
# Differences stay precise enough where squares of rows are at most this many times those of the differences.
_HARMLESS = 16.0


def n_items(X: Any) -> int:
    """Number of items of an array, a sparse matrix or any sequence."""
    shape = getattr(X, "shape", None)
    if shape is None and not hasattr(X, "__len__") and hasattr(X, "__array__"):
        shape = np.asarray(X).shape
    return int(shape[0]) if shape else len(X)


def items(X: Any):
    """The items one by one; rows of a sparse matrix stay sparse."""
    if sp.issparse(X):
        return (X[[i]] for i in range(X.shape[0]))
    return iter(X)


def take_items(X: Any, rows: np.ndarray) -> Any:
    """Some of the items, in the container that came in (a list for other sequences)."""
    if is_device_array(X):
        return Home.of(X).rows(X, rows)
    if hasattr(X, "shape"):
        return X[rows]
    return [X[i] for i in rows]


def middle_row(rows: np.ndarray) -> np.ndarray:
    """The median of each column over some of the rows: close to most rows, regardless of outliers. Shape (n,)."""
    sample = rows[:: -(-rows.shape[0] // _SAMPLE)]
    return np.median(sample, axis=0).astype(rows.dtype, copy=False)


def large_offset(basis: Any) -> np.ndarray | None:
    """The middle of dense rows where it is so far from 0 that squares of rows lose precision to it, or None. O(n).

    Examples
    --------
    >>> import numpy as np
    >>> large_offset(np.array([[1e6, 1.0], [1e6 + 1.0, 2.0], [1e6 - 1.0, 3.0]]))
    array([1.e+06, 2.e+00])
    >>> large_offset(np.array([[0.0, 1.0], [1.0, 2.0]])) is None
    True
    """
    if not hasattr(basis, "shape") or sp.issparse(basis) or is_device_array(basis) or not basis.shape[0]:
        return None
    middle = middle_row(basis)
    sample = basis[:: -(-basis.shape[0] // _SAMPLE)]
    unit = float(np.abs(middle).max(initial=0.0))
    if not unit > 0 or not np.isfinite(unit):
        return None
    spread = float(np.median(np.square((sample - middle) / unit).sum(axis=1)))
    return middle if float(np.square(middle / unit).sum()) > _HARMLESS * spread else None


def dense(A: Any) -> np.ndarray:
    """The array that a matrix stands for."""
    return A.toarray() if sp.issparse(A) else np.asarray(A)


def weighted_rows(W: np.ndarray, Z: Any) -> np.ndarray:
    """W Z as a dense array."""
    return np.asarray(W @ Z) if not sp.issparse(Z) else np.asarray((Z.T @ W.T).T)


def weighted_differences(X: Any, Z: Any, W: np.ndarray) -> np.ndarray:
    """Σ_j W_ij (x_i - z_j), shape (m, n)."""
    return dense(X) * W.sum(axis=1)[:, None] - weighted_rows(W, Z)


# ----------------------------------------------------------------
# The linear kernel of sparse rows, as a dense matrix.


# Numbers of a block of rows of a product of sparse matrices, before it is made dense.
_SPARSE_BLOCK = 1 << 22
# From this many rows on, a compiled loop is worth its compilation.
_COMPILED_ROWS = 1000


def sparse_products(A: Any, B: Any = None) -> np.ndarray:
    """A Bᵀ of a sparse A as a dense C-contiguous array; B defaults to A.

    Some rows at a time: the sparse form of a product that is nearly dense takes more memory than the dense one.
    """
    if B is None and A.shape[0] < _COMPILED_ROWS:
        B = A
    if B is None:
        from ._loops import products_of_rows

        return products_of_rows(sp.csr_array(A))
    transposed = sp.csr_array(B.T) if sp.issparse(B) else np.ascontiguousarray(np.asarray(B).T)
    out = np.empty((A.shape[0], B.shape[0]), dtype=np.result_type(A.dtype, B.dtype))
    step = max(1, _SPARSE_BLOCK // max(1, B.shape[0]))
    for start in range(0, A.shape[0], step):
        block = A[start : start + step] @ transposed
        if sp.issparse(block):
            block.toarray(out=out[start : start + step])
        else:
            out[start : start + step] = block
    return out
