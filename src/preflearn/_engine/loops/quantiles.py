"""Shares of training values below new ones, column by column."""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import over_ranges

# Values that are worth a thread of their own.
_LEAST = 1 << 14
# Rows that are looked up together: the knots of a column stay in the cache.
_ROWS = 256


def shares_below(X: np.ndarray, knots: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Piecewise linear through the knots of each column, the middle of the jump where several knots are equal.

    The result of scikit-learn's QuantileTransformer with uniform output, without its overhead for every column, which
    dominates for a few rows, and at any scale: in scikit-learn values within 1e-7 of the ends count as outside them.

    Parameters
    ----------
    X : ndarray of shape (m, n)
    knots : ndarray of shape (k, n)
        Ascending in each column; in Fortran's order they are not copied.
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
    x, place = np.empty(_ROWS), np.empty(_ROWS, np.int64)
    for start in range(first, last, _ROWS):
        n = min(start + _ROWS, last) - start
        for j in range(X.shape[1]):
            for i in range(n):
                x[i] = X[start + i, j]
            _search(knots[j], x, place, n)
            for i in range(n):
                out[start + i, j] = _share_below(x[i], place[i], knots[j], shares)


@njit(cache=True, nogil=True)
def _search(at, x, place, n):
    """The number of knots up to x, by halves.

    All rows go the same way, one step after the other, without jumps: several times as fast as row by row.
    """
    place[:n] = 0
    size = at.shape[0]
    while size > 1:
        half = size // 2
        for i in range(n):
            place[i] += half * np.int64(at[place[i] + half - 1] <= x[i])
        size -= half
    for i in range(n):
        place[i] += np.int64(at[place[i]] <= x[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _share_below(x, right, at, shares):
    """With ``right`` the first knot above x."""
    if x <= at[0]:
        return 0.0
    if x >= at[at.shape[0] - 1]:
        return 1.0
    before = right - 1
    if at[before] < x:
        width = at[right] - at[before]
        return shares[before] + (x - at[before]) / width * (shares[right] - shares[before])
    same = before
    while same > 0 and at[same - 1] == x:
        same -= 1
    return 0.5 * (shares[same] + shares[before])
