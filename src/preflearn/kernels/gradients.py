r"""Gradients of kernel expansions: ∇f(x) for f(x) = Σ_j β_j k(x, z_j), without an array of m × r × n.

Every gradient is one or two products of the kernel's own shape, O(m r n): with W the m × r matrix of derivatives it is
Σ_j W_ij z_j for kernels of inner products and Σ_j W_ij (x_i - z_j) for kernels of distances. Each is a method of the
kernel's entry (`preflearn.kernels.registry`).

With a metric S (`Kernel.metric`) the kernel sees x S, and the chain rule multiplies the gradient by Sᵀ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..numerics.memory import require_memory
from .functions import Kernel
from .registry import kernel_names
from .rows import n_items

# Rows are taken in blocks such that a block of kernel values has at most this size.
_BLOCK_BYTES = 1 << 26


def expansion_gradient(kernel: Kernel, X: Any, basis: Any, coef: np.ndarray) -> np.ndarray:
    """The gradient of Σ_j coef_j k(x, basis_j) at every row of X.

    Parameters
    ----------
    kernel : Kernel
        One whose entry has a gradient.
    X : ndarray or CSR matrix of shape (m, n)
    basis : ndarray or CSR matrix of shape (r, n)
    coef : ndarray of shape (r,) or (r, v)

    Returns
    -------
    ndarray of shape (m, n) or (m, n, v)

    Notes
    -----
    O(m r n v) operations, in blocks of rows: the result is the largest array.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.kernels.functions import Kernel
    >>> expansion_gradient(Kernel("rbf", gamma=0.5), np.array([[0.0], [1.0]]), np.array([[0.0]]), np.array([1.0]))
    array([[-0.        ],
           [-0.60653066]])
    """
    refuse_without_gradient(kernel)
    columns = coef[:, None] if coef.ndim == 1 else coef
    m, n, v = n_items(X), X.shape[1], columns.shape[1]
    require_memory(8 * m * n * v, f"the gradients of {m} rows with {n} features and {v} outputs")
    out = np.empty((m, n, v), dtype=np.result_type(X.dtype, np.float32))
    one_block: Any = kernel.function.gradient  # type: ignore[union-attr]
    step = max(1, _BLOCK_BYTES // (8 * n_items(basis)))
    S = kernel.metric
    origin = None if sp.issparse(X) else kernel.origin(basis)
    seen_basis = kernel.seen(basis, origin)
    for start in range(0, m, step):
        rows = kernel.seen(X[start : start + step], origin)
        K = kernel.matrix_of_seen(rows, seen_basis)
        for k in range(v):
            gradient = one_block(kernel, rows, seen_basis, K, columns[:, k])
            out[start : start + step, :, k] = gradient if S is None else _through_metric(gradient, S)
    return out[:, :, 0] if coef.ndim == 1 else out


def refuse_without_gradient(kernel: Kernel) -> None:
    """Refuse a kernel whose gradient is not available, and name those that have one."""
    if kernel.function is not None and kernel.function.gradient is not None:
        return
    names = ", ".join(map(repr, kernel_names(lambda entry: entry.gradient)))
    raise ValueError(f"kernel={kernel.kernel!r} has no gradient here: use one of {names}.")


def _through_metric(gradient: np.ndarray, S: np.ndarray) -> np.ndarray:
    return gradient * S if S.ndim == 1 else gradient @ S.T
