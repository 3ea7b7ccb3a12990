"""Shares of training values below new ones, column by column."""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import over_ranges

# Values that are worth a thread of their own.
_LEAST = 1 << 14


def shares_below(X: np.ndarray, knots: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Piecewise linear through the knots of each column, the middle of the jump where several knots are equal.

    The result of scikit-learn's QuantileTransformer with uniform output, without its overhead for every column, which
    dominates for a few rows, and at any scale: in scikit-learn values within 1e-7 of the ends count as outside them.

    Parameters
    ----------
    X : ndarray of shape (m, n)
    knots : ndarray of shape (k, n)
        Ascending in each column.
    shares : ndarray of shape (k,)
        What the knots are mapped to.

    Examples
    --------
    >>> import numpy as np
    >>> knots = np.array([[0.0], [1.0], [1.0], [3.0]])
    >>> shares_below(np.array([[-1.0], [0.5], [1.0], [2.0], [9.0]]), knots, np.array([0.0, 0.2, 0.6, 1.0])).ravel()
    array([0. , 0.1, 0.4, 0.8, 1. ])
    """
    out = np.empty(X.shape)
    by_column = np.ascontiguousarray(knots.T)
    least = 1 + _LEAST // max(1, X.shape[1])
    over_ranges(_shares_below, X.shape[0], np.ascontiguousarray(X), by_column, shares, out, least=least)
    return out


@njit(cache=True, nogil=True)
def _shares_below(X, knots, shares, out, first, last):
    n_knots = shares.shape[0]
    for i in range(first, last):
        for j in range(X.shape[1]):
            x, at = X[i, j], knots[j]
            if x <= at[0]:
                out[i, j] = 0.0
            elif x >= at[n_knots - 1]:
                out[i, j] = 1.0
            else:
                right = np.searchsorted(at, x, side="right")  # the first knot above x
                before = right - 1
                if at[before] < x:
                    width = at[right] - at[before]
                    out[i, j] = shares[before] + (x - at[before]) / width * (shares[right] - shares[before])
                else:
                    same = before
                    while same > 0 and at[same - 1] == x:
                        same -= 1
                    out[i, j] = 0.5 * (shares[same] + shares[before])
