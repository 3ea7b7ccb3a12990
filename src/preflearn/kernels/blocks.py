r"""Blocks of the kernel between changing rows and a fixed set of basis vectors.

The common kernels of dense rows are one matrix product and one function of its entries. What depends on the basis
alone is prepared once; a block is then formed several times faster than by a call of ``pairwise_kernels``, and on any
device that holds the rows. Every other kernel, sparse rows and objects are evaluated by `Kernel.matrix`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..numerics.memory import require_memory
from ..numerics.threads import blas_at_rest, over_small_ranges
from .functions import Kernel, n_items
from .registry import kernel_names

# Kernel values that one thread evaluates at a time: they stay in its cache from the product to the exponential.
_ONE_BLOCK = 1 << 16
# Multiplications up to which BLAS wakes no threads.
_WITHOUT_THREADS = 1 << 13


class KernelBlocks:
    """K[i, j] = k(x_i, z_j) for changing rows x and fixed basis vectors z.

    Parameters
    ----------
    kernel : Kernel
    basis : array, sparse matrix or list of r items
        z; for a precomputed kernel the columns of the kernel matrix that belong to the basis vectors.
    xp : module
        NumPy, or the array API namespace of `basis`.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.kernels.functions import Kernel
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> blocks = KernelBlocks(Kernel("rbf", gamma=0.1), X[:2])
    >>> np.allclose(blocks(X), Kernel("rbf", gamma=0.1).matrix(X, X[:2]))
    True
    """

    def __init__(self, kernel: Kernel, basis: Any, xp: Any = np) -> None:
        self._origin = kernel.origin(basis)
        basis = kernel.seen(basis, self._origin)
        n_seen = basis.shape[1] if getattr(basis, "ndim", 1) > 1 else 0  # objects have no columns
        self._used = _used_columns(kernel, basis, xp)
        basis = basis if self._used is None else basis[:, self._used]
        self._kernel, self._basis, self._xp = kernel, basis, xp
        dense = hasattr(basis, "shape") and not sp.issparse(basis)
        entry: Any = kernel.function
        self._block = entry.block(kernel, basis, n_seen, xp) if dense and kernel.has_blocks else None

    @property
    def width(self) -> int:
        """r."""
        return n_items(self._basis)

    def __call__(self, rows: Any, out: np.ndarray | None = None) -> Any:
        """The block of some rows, a new array of shape (b, r), or in the memory of ``out`` (NumPy)."""
        if out is None or not self._fills(rows):
            found = self._formed(rows)
            if out is None:
                return found
            out[...] = found
            return out
        return self._in_ranges(self._seen(rows), out)

    def _fills(self, rows: Any) -> bool:
        """Whether these rows take no memory but that of their block."""
        return (
            self._block is not None
            and self._kernel.is_of_distance
            and self._xp is np
            and not sp.issparse(rows)
        )

    def _seen(self, rows: Any) -> Any:
        rows = self._kernel.seen(rows, self._origin)
        return rows if self._used is None else rows[:, self._used]

    def _formed(self, rows: Any) -> Any:
        if self._kernel.is_precomputed:
            return np.ascontiguousarray(rows[:, self._basis])
        if self._kernel.takes_objects:
            return self._kernel.matrix(rows, self._basis)
        if self._block is None or sp.issparse(rows):
            return self._kernel.matrix_of_seen(self._kernel.seen(rows, self._origin), self._basis)
        rows = self._seen(rows)
        return self._in_ranges(rows) if self._fills(rows) else self._block(rows)

    def _in_ranges(self, rows: Any, out: np.ndarray | None = None) -> Any:
        """Values of a function of products: formed some rows at a time, so that they stay in the cache in between."""
        block: Any = self._block
        size = rows.shape[0] * self.width
        if size <= _ONE_BLOCK:
            # For few products the threads of BLAS cost more than they save, far more on a busy machine; below that none
            # wakes.
            with blas_at_rest(size * rows.shape[1] > _WITHOUT_THREADS):
                return block(rows, out=out)
        K = out
        if K is None:
            K = np.empty((rows.shape[0], self.width), np.result_type(rows, self._basis.dtype))

        def fill(start: int, stop: int) -> None:
            block(rows[start:stop], out=K[start:stop])

        with blas_at_rest():
            over_small_ranges(fill, rows.shape[0], max(16, _ONE_BLOCK // K.shape[1]))
        return K


def _used_columns(kernel: Kernel, basis: Any, xp: Any) -> np.ndarray | None:
    """The columns that a diagonal metric uses, for a kernel of blocks; None where it uses most."""
    S = kernel.metric if kernel.has_blocks else None
    if S is None or S.ndim != 1 or xp is not np or sp.issparse(basis):
        return None
    used = np.flatnonzero(S)
    return used if 0 < used.size <= 0.75 * S.size else None


# ----------------------------------------------------------------
# Gradients of kernel expansions: ∇f(x) for f(x) = Σ_j β_j k(x, z_j), without an array of m × r × n.
#
# Every gradient is one or two products of the kernel's own shape, O(m r n): with W the m × r matrix of derivatives it
# is Σ_j W_ij z_j for kernels of inner products and Σ_j W_ij (x_i - z_j) for kernels of distances. Each is a method of
# the kernel's entry (`preflearn.kernels.registry`).
#
# With a metric S (`Kernel.metric`) the kernel sees x S, and the chain rule multiplies the gradient by Sᵀ.


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
