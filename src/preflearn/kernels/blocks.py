r"""Blocks of the kernel between changing rows and a fixed set of basis vectors.

The common kernels of dense rows are one matrix product and one function of its entries. What depends on the basis
alone is prepared once; a block is then formed several times faster than by a call of ``pairwise_kernels``, and on any
device that holds the rows. Every other kernel, sparse rows and objects are evaluated by `Kernel.matrix`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..numerics.threads import blas_at_rest, over_small_ranges
from .functions import Kernel
from .rows import n_items

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
