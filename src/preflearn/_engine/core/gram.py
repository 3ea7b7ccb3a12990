"""Φᵀ L Φ and Φᵀ V, summed up over blocks of rows with little temporary memory."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...comparisons import Comparisons
from ..loops.threads import blas_at_rest, over_ranges
from ..numerics.linalg import add_gram, mirror_lower
from ..numerics.memory import require_memory

# One block of temporary rows: small enough for the cache when features are narrow; when they are wide, as tall as wide,
# so that the n × n result is not read and written more often than the block, and no larger than that result.
_BLOCK_BYTES = 1 << 23
_LEAST_BLOCK_ROWS = 1024
# Centred rows go straight into a product: they had better still be in the cache of one core.
_CENTRED_BLOCK_BYTES = 1 << 19
# Rows that are read once and multiplied by a vector: in the nearest caches.
_NEAR_BYTES = 1 << 17
# Rows from which the mean of a column is guessed.
_SAMPLE = 64


def block_rows(n_columns: int, itemsize: int = 8, n_bytes: int = _BLOCK_BYTES) -> int:
    """Rows of a temporary block with this many columns."""
    return max(_LEAST_BLOCK_ROWS, n_columns, n_bytes // max(1, n_columns * itemsize))


def feature_gram(features, comparisons: Comparisons) -> np.ndarray:
    """A = Φᵀ L Φ, symmetric and Fortran-ordered, shape (n, n).

    Parameters
    ----------
    features : ndarray or sparse array of shape (m, n)
        Φ.
    comparisons : Comparisons
        L.

    Notes
    -----
    O(m n²) for dense features with one block of temporary memory; sparse features are never filled in.
    """
    width = features.shape[1]
    require_memory(width * width * 8, f"a matrix of {width} × {width} for the primal form")
    if sp.issparse(features):
        return _sparse_gram(features, comparisons)
    A = np.zeros((width, width), dtype=features.dtype, order="F")
    mirrored = True
    for left, right in comparisons.blocks(features, block_rows(width, features.itemsize)):
        mirrored = left is not right
        A = add_gram(A, left, right)
    return A if mirrored else mirror_lower(A)


def _sparse_gram(features, comparisons: Comparisons) -> np.ndarray:
    # In float64: the terms of different sign cancel where a column has a large mean.
    A = np.zeros((features.shape[1], features.shape[1]), order="F")
    for indicator, coefficients in comparisons.indicators():
        folded = sp.csr_array(indicator.T @ features)
        scaled = folded.multiply(coefficients[:, None])
        A += (folded.T @ scaled.tocsr()).toarray()
    return A.astype(features.dtype, copy=False)


def feature_gram_diagonal(features, comparisons: Comparisons) -> np.ndarray:
    """The diagonal of Φᵀ L Φ, shape (n,); O(nnz) for sparse features."""
    if sp.issparse(features):
        total = np.zeros(features.shape[1])
        for indicator, coefficients in comparisons.indicators():
            folded = sp.csr_array(indicator.T @ features)
            total += folded.multiply(folded).T @ coefficients
        return np.maximum(total, 0.0)
    total = np.zeros(features.shape[1])
    for left, right in comparisons.blocks(features, block_rows(features.shape[1], features.itemsize)):
        total += np.einsum("ij,ij->j", left, right)
    return np.maximum(total, 0.0)


def feature_moments(
    features, comparisons: Comparisons, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Φᵀ L Φ and Φᵀ b together; with dense features and a symmetric half in one pass over Φ.

    Parameters
    ----------
    features : ndarray or sparse array of shape (m, n), or of more rows with ``rows``
        Φ.
    comparisons : Comparisons
        L and b.
    rows : ndarray of shape (m,), optional
        The rows of Φ that are compared; all of them by default. No copy of them is made.

    Returns
    -------
    A : ndarray of shape (n, n), Fortran order
    c : ndarray of shape (n, v)
    """
    if sp.issparse(features) or not comparisons.has_half:
        features = features if rows is None else features[rows]
        if comparisons.has_factor and not sp.issparse(features):
            return _factored_moments(features, comparisons)
        return feature_gram(features, comparisons), target_moment(features, comparisons)
    width = features.shape[1]
    total = width + comparisons.n_outputs
    require_memory(total * total * 8, f"a matrix of {width} × {width} for the primal form")
    # One product of [S Φ, t] with itself gives both, and hardly costs more than that of S Φ.
    A = np.zeros((total, total), dtype=features.dtype, order="F")
    n_rows = block_rows(total, features.itemsize, _CENTRED_BLOCK_BYTES)
    for block in comparisons.half_blocks(features, n_rows, rows):
        A = add_gram(A, block, block)
    return mirror_lower(np.asfortranarray(A[:width, :width])), A[width:, :width].T.copy()


def _factored_moments(features: np.ndarray, comparisons: Comparisons) -> tuple[np.ndarray, np.ndarray]:
    """The same by T and t of `Comparisons.least_squares`: both vanish in a direction that is hardly compared."""
    width = features.shape[1]
    require_memory(width * width * 8, f"a matrix of {width} × {width} for the primal form")
    T, t = comparisons.least_squares(features)
    A = np.zeros((width, width), dtype=features.dtype, order="F")
    return mirror_lower(add_gram(A, T, T)), feature_moment(T, t)


def gram_times(features, comparisons: Comparisons, w: np.ndarray) -> np.ndarray:
    """Φᵀ L Φ w without the n × n matrix, shape (n, v), from dense features.

    The blocks are those of `feature_gram`: what the rows of a query have in common is taken off before the product,
    in which it would leave nothing but its rounding. O(m n v).
    """
    total = np.zeros(w.shape, dtype=features.dtype)
    for left, right in comparisons.blocks(features, block_rows(features.shape[1], features.itemsize)):
        total += left.T @ (right @ w)
    return total


def target_moment(features, comparisons: Comparisons) -> np.ndarray:
    """Φᵀ b as a dense array, shape (n, v).

    Where b sums to zero dense rows are taken relative to a typical one, or in queries to the first one of their query,
    so that the size of what they share does not matter.
    """
    b = comparisons.target
    if sp.issparse(features) or not comparisons.ignores_constants:
        return feature_moment(features, b)
    b = b.astype(features.dtype, copy=False)
    queries, first_rows = comparisons.queries, None
    if queries is not None and queries.n_groups > 1:
        first_rows = queries.order[queries.starts[:-1]][queries.codes]
    # Any row that is typical of them will do for the mean.
    typical = features[:: max(1, features.shape[0] // _SAMPLE)].mean(axis=0)
    single = b.shape[1] == 1  # several outputs are worth the threads of BLAS
    step = max(8 * b.shape[1], _NEAR_BYTES // max(1, features.shape[1] * features.itemsize))

    def moment(first: int, last: int) -> np.ndarray:
        total = np.zeros((features.shape[1], b.shape[1]), dtype=features.dtype)
        room = np.empty((min(step, last - first), features.shape[1]), dtype=features.dtype)
        for start in range(first, last, step):
            rows = slice(start, min(start + step, last))
            origin = typical if first_rows is None else features[first_rows[rows]]
            shifted = np.subtract(features[rows], origin, out=room[: rows.stop - rows.start])
            total += np.dot(shifted.T, b[rows])
        return total

    with blas_at_rest(single and features.size > 1 << 16):
        parts = over_ranges(
            moment, features.shape[0], least=2 * step if single else max(1, features.shape[0])
        )
    return np.asarray(np.sum(parts, axis=0))


def feature_moment(features, V: np.ndarray) -> np.ndarray:
    """Φᵀ V as a dense array, shape (n, v)."""
    return np.asarray(features.T @ V.astype(features.dtype, copy=False))
