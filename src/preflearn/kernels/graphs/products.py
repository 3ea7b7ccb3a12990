"""Kernel matrices of sparse feature rows: K = X Yᵀ."""

from __future__ import annotations

import numpy as np
from scipy import sparse


def gram(X: sparse.csr_array, Y: sparse.csr_array | None = None) -> np.ndarray:
    """Inner products of sparse rows as a dense array, X Yᵀ; Y defaults to X.

    Parameters
    ----------
    X : sparse array of shape (m, n)
    Y : sparse array of shape (k, n), optional

    Returns
    -------
    ndarray of shape (m, k)
        In the type of X.

    Notes
    -----
    O(Σ_c d_c e_c) multiplications, d_c and e_c being the non-zeros of column c in X and Y; half of them without Y.
    Several threads; the result is the only array of its size, where a product of two sparse matrices would first build
    a sparse matrix without zeros.

    Examples
    --------
    >>> gram(sparse.csr_array([[1.0, 0.0], [2.0, 3.0]]))
    array([[ 1.,  2.],
           [ 2., 13.]])
    """
    from ._loops import sparse_products

    rows = sparse.csr_array(X)
    columns = sparse.csc_array(rows if Y is None else Y)
    if columns.shape[1] != rows.shape[1]:
        raise ValueError(
            f"X has {rows.shape[1]} columns and Y {columns.shape[1]}: they must be the same features."
        )
    columns.sum_duplicates()
    out = np.zeros((rows.shape[0], columns.shape[0]), dtype=rows.dtype)
    sparse_products(
        rows.indptr,
        rows.indices,
        rows.data,
        columns.indptr,
        columns.indices,
        columns.data.astype(rows.dtype, copy=False),
        Y is None,
        out,
    )
    return out
