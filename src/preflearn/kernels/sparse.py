"""The linear kernel of sparse rows, as a dense matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

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
