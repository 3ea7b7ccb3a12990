r"""What rows have in common, for kernels that see differences of rows only.

A squared distance is |x|² - 2 x · z + |z|²: where rows differ by 1 and lie near 1e7, it has the digits of the squares.
The RBF, Laplacian and Matérn kernels do not see a shift, so a row near the others is taken off first, before a metric
rounds anything. Which row does not matter but for rounding; it is worked out from the basis vectors, which a model
holds anyway, so that a saved model predicts the same. Sparse rows are not shifted, which would fill them in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .._engine.numerics.namespace import is_device_array

# Rows from which the middle is taken.
_SAMPLE = 65
# Squares that are no more than so many times those of the differences leave them enough digits.
_HARMLESS = 16.0


def middle_row(rows: np.ndarray) -> np.ndarray:
    """The median of each column over some of the rows: near most rows wherever a few others lie. Shape (n,)."""
    sample = rows[:: -(-rows.shape[0] // _SAMPLE)]
    return np.median(sample, axis=0).astype(rows.dtype, copy=False)


def large_offset(basis: Any) -> np.ndarray | None:
    """The middle of dense rows where it is so far from 0 that squares of rows lose digits to it, or None. O(n).

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
