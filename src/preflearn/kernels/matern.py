r"""The Matérn kernels: functions of the Euclidean distance that are rougher than the RBF kernel.

With d = γ ‖x - z‖,

====  =================================================  ==========================================
ν     k(x, z)                                            ∇_x k(x, z) = -w (x - z), w as follows
====  =================================================  ==========================================
1/2   exp(-d)                                            γ² exp(-d) / d
3/2   (1 + √3 d) exp(-√3 d)                              3 γ² exp(-√3 d)
5/2   (1 + √5 d + 5 d² / 3) exp(-√5 d)                   5/3 γ² (1 + √5 d) exp(-√5 d)
====  =================================================  ==========================================

ν = 1/2 has a kink at x = z, where its gradient is taken as 0. Unlike the Laplacian kernel, whose distance is L1, they
do not depend on the axes, so that a learned metric may rotate them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.extmath import row_norms

SMOOTHNESS = (0.5, 1.5, 2.5)
_ROUNDING = 8 * np.finfo(np.float64).eps


def matern_kernel(X: Any, Y: Any = None, *, gamma: float, nu: float = 0.5) -> np.ndarray:
    """The kernel matrix of the rows of X with those of Y.

    Parameters
    ----------
    X, Y : ndarray or CSR matrix of shape (m, n) and (r, n)
        Y defaults to X.
    gamma : float
        γ, one over a length.
    nu : {0.5, 1.5, 2.5}, default=0.5

    Returns
    -------
    ndarray of shape (m, r)

    Examples
    --------
    >>> matern_kernel(np.array([[0.0], [2.0]]), gamma=0.5).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """
    d = _distances(X, Y, gamma, nu)
    exponential = np.exp(-d)
    if nu == 0.5:
        return exponential
    polynomial = 1.0 + d if nu == 1.5 else 1.0 + d + d * d / 3.0
    return polynomial * exponential


def matern_slopes(X: Any, Y: Any, *, gamma: float, nu: float = 0.5) -> np.ndarray:
    """w of the table above for every pair of rows: the gradient of k(x, z) in x is -w (x - z); shape (m, r)."""
    d = _distances(X, Y, gamma, nu)
    exponential = np.exp(-d)
    if nu == 0.5:
        return gamma**2 * np.divide(exponential, d, out=np.zeros_like(d), where=d > 0)
    if nu == 1.5:
        return 3.0 * gamma**2 * exponential
    return 5.0 / 3.0 * gamma**2 * (1.0 + d) * exponential


def check_smoothness(nu: Any) -> None:
    """Refuse a ν without a closed form here."""
    if nu not in SMOOTHNESS:
        raise ValueError(
            f"nu of kernel='matern' must be one of {', '.join(map(str, SMOOTHNESS))}: found {nu!r}."
        )


def _distances(X: Any, Y: Any, gamma: float, nu: float) -> np.ndarray:
    """√(2ν) γ ‖x - z‖, the argument of all exponentials.

    Squared distances are differences of squares: one that does not exceed their rounding belongs to equal rows, and its
    square root would have lost half of its precision.
    """
    d = euclidean_distances(X, Y, squared=True)
    squares = row_norms(X, squared=True)
    others = squares if Y is None else row_norms(Y, squared=True)
    d[d <= _ROUNDING * (squares[:, None] + others[None, :])] = 0.0
    np.sqrt(d, out=d)
    d *= gamma * np.sqrt(2.0 * nu)
    return d
