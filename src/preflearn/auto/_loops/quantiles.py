"""Shares of training values below new ones, column by column, and the normal quantiles of these shares."""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from ...numerics.compiling import njit
from ...numerics.threads import over_ranges

# Values that are worth a thread of their own.
_LEAST = 1 << 14
# Rows that are looked up together: the knots of a column stay in the cache.
_ROWS = 128
# Φ⁻¹ of S. Moshier's Cephes, which SciPy's `ndtri` is: quotients of polynomials, highest powers first, in the middle
# (shares from exp(-2) to 1 - exp(-2)), and of the tail in 1 / x, x = √(-2 log share), up to and beyond x = 8.
_TAIL = 0.13533528323661269189
_P0 = (-59.9633501014107895267, 98.0010754185999661536, -56.6762857469070293439,
       13.9312609387279679503, -1.23916583867381258016)  # fmt: skip
_Q0 = (1.0, 1.95448858338141759834, 4.67627912898881538453, 86.3602421390890590575, -225.462687854119370527,
       200.260212380060660359, -82.0372256168333339912, 15.9056225126211695515, -1.18331621121330003142)  # fmt: skip
_P1 = (4.05544892305962419923, 31.5251094599893866154, 57.1628192246421288162, 44.0805073893200834700,
       14.6849561928858024014, 2.18663306850790267539, -0.140256079171354495875, -0.0350424626827848203418,
       -0.000857456785154685413611)  # fmt: skip
_Q1 = (1.0, 15.7799883256466749731, 45.3907635128879210584, 41.3172038254672030440, 15.0425385692907503408,
       2.50464946208309415979, -0.142182922854787788574, -0.0380806407691578277194,
       -0.000933259480895457427372)  # fmt: skip
_P2 = (3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415, 1.33303460815807542389,
       0.201485389549179081538, 0.0123716634817820021358, 0.000301581553508235416007, 2.65806974686737550832e-06,
       6.23974539184983293730e-09)  # fmt: skip
_Q2 = (1.0, 6.02427039364742014255, 3.67983563856160859403, 1.37702099489081330271, 0.216236993594496635890,
       0.0134204006088543189037, 0.000328014464682127739104, 2.89247864745380683936e-06,
       6.79019408009981274425e-09)  # fmt: skip
_ROOT = 2.50662827463100050242  # √2π


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
    return _over_rows(X, knots, shares, 0.0)


def normal_quantiles(X: np.ndarray, knots: np.ndarray, shares: np.ndarray, most: float) -> np.ndarray:
    """Φ⁻¹ of `shares_below`, clipped to ±most. O(m n log k).

    Parameters
    ----------
    X, knots, shares : as in `shares_below`
    most : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> knots = np.array([[0.0], [2.0], [4.0]])
    >>> x = np.array([[-1.0], [1.0], [2.0], [3.0], [4.0]])
    >>> normal_quantiles(x, knots, np.array([0.0, 0.5, 1.0]), 3.0).ravel().round(3)
    array([-3.   , -0.674,  0.   ,  0.674,  3.   ])
    """
    return _over_rows(X, knots, shares, most)


def _over_rows(X: np.ndarray, knots: np.ndarray, shares: np.ndarray, most: float) -> np.ndarray:
    out = np.empty(X.shape)
    by_column = np.ascontiguousarray(knots.T)
    least = 1 + _LEAST // max(1, X.shape[1])
    over_ranges(_look_up, X.shape[0], np.ascontiguousarray(X), by_column, shares, most, out, least=least)
    return out


@njit(cache=True, nogil=True)
def _look_up(X, knots, shares, most, out, first, last):
    """Shares, or where ``most`` is positive their normal quantiles."""
    x, share, place = np.empty(_ROWS), np.empty(_ROWS), np.empty(_ROWS, np.uint32)
    for start in range(first, last, _ROWS):
        n = min(start + _ROWS, last) - start
        for j in range(X.shape[1]):
            for i in range(n):
                x[i] = X[start + i, j]
            _search(knots[j], x, place, n)
            _interpolate(knots[j], shares, x, place, share, n)
            if most > 0.0:
                _to_normal(share, x, n, most)
            for i in range(n):
                out[start + i, j] = share[i]


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
            further = np.uint32(place[i] + half)
            place[i] = further if at[further - 1] <= x[i] else place[i]
        size -= half
    for i in range(n):
        place[i] += np.uint32(at[place[i]] <= x[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _interpolate(at, shares, x, place, share, n):
    """With ``place`` the first knot above x."""
    last = at.shape[0] - 1
    for i in range(n):
        if x[i] <= at[0]:
            share[i] = 0.0
        elif x[i] >= at[last]:
            share[i] = 1.0
        else:
            right = np.int64(place[i])
            before = right - 1
            low = at[before]
            if low < x[i]:
                step = (x[i] - low) / (at[right] - low)
                share[i] = shares[before] + step * (shares[right] - shares[before])
            else:
                share[i] = _middle_of_jump(x[i], before, at, shares)


@njit(cache=True, nogil=True)
def _middle_of_jump(x, before, at, shares):
    same = before
    while same > 0 and at[same - 1] == x:
        same -= 1
    return 0.5 * (shares[same] + shares[before])


@njit(cache=True, nogil=True)
def _polynomial(x, coefficients):
    value = 0.0
    for one in coefficients:
        value = value * x + one
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _to_normal(share, found, n, most):
    """Φ⁻¹ of the shares, clipped: first all as if they were in the middle, several in one instruction, then tails."""
    for i in range(n):
        y = share[i] - 0.5
        y2 = y * y
        found[i] = (y + y * (y2 * _polynomial(y2, _P0) / _polynomial(y2, _Q0))) * _ROOT
    for i in range(n):
        if not _TAIL <= share[i] <= 1.0 - _TAIL:
            found[i] = _in_tail(share[i])
    for i in range(n):
        share[i] = max(-most, min(most, found[i]))


@njit(cache=True, nogil=True, error_model="numpy")
def _in_tail(share):
    if share <= 0.0:
        return -np.inf
    if share >= 1.0:
        return np.inf
    x = sqrt(-2.0 * log(min(share, 1.0 - share)))
    z = 1.0 / x
    if x < 8.0:
        tail = z * _polynomial(z, _P1) / _polynomial(z, _Q1)
    else:
        tail = z * _polynomial(z, _P2) / _polynomial(z, _Q2)
    found = x - log(x) / x - tail
    return -found if share < 0.5 else found
