"""The coefficients of a complete relation, divided by what regularisation leaves of each pair of modes."""

from __future__ import annotations

import numpy as np

from .compiling import njit
from .threads import over_ranges


def shrink(T, rows, columns, product, cartesian, alpha) -> np.ndarray:
    """T_kl / (product σ_k γ_l + cartesian (σ_k + γ_l) + alpha), shape (k, l).

    Parameters
    ----------
    T : float64 array of shape (k, l)
    rows, columns : float64 arrays of shape (k,) and (l,)
        σ and γ.
    product, cartesian, alpha : float
    """
    out = np.empty_like(T)
    weights = (float(product), float(cartesian), float(alpha))
    over_ranges(
        _shrink, T.shape[0], T, rows, columns, *weights, out, least=1 + (1 << 15) // max(1, T.shape[1])
    )
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _shrink(T, rows, columns, product, cartesian, alpha, out, first, last):
    for k in range(first, last):
        slope, base = product * rows[k] + cartesian, cartesian * rows[k] + alpha
        for j in range(T.shape[1]):
            out[k, j] = T[k, j] / (slope * columns[j] + base)
