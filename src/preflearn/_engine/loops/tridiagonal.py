"""Systems with one tridiagonal matrix and many right-hand sides."""

from __future__ import annotations

import numpy as np

from .compiling import njit
from .threads import over_ranges


def solve_tridiagonal(pivots, multipliers, B):
    """(M diag(pivots) Mᵀ)⁻¹ B, where M has ones on the diagonal and ``multipliers`` below it.

    Parameters
    ----------
    pivots, multipliers : float64 arrays of shape (n,) and (n - 1,)
        As LAPACK's ``pttrf`` gives them.
    B : float64 array of shape (n, k), C-contiguous

    Returns
    -------
    float64 array of shape (n, k)
    """
    out = np.empty_like(B)
    least = max(64, (1 << 16) // max(1, B.shape[0]))
    over_ranges(_solve_tridiagonal, B.shape[1], pivots, multipliers, B, out, least=least, align=8)
    return out


@njit(cache=True, nogil=True)
def _solve_tridiagonal(pivots, multipliers, B, out, first, last):
    n = B.shape[0]
    for c in range(first, last):
        out[0, c] = B[0, c]
    for i in range(1, n):
        factor = multipliers[i - 1]
        for c in range(first, last):
            out[i, c] = B[i, c] - factor * out[i - 1, c]
    for c in range(first, last):
        out[n - 1, c] /= pivots[n - 1]
    for i in range(n - 2, -1, -1):
        factor, inverse = multipliers[i], 1.0 / pivots[i]
        for c in range(first, last):
            out[i, c] = out[i, c] * inverse - factor * out[i + 1, c]


def blocks_of_inverses(pivots, multipliers, V):
    """Vᵀ (M diag(pivots) Mᵀ)⁻¹ V for several tridiagonal matrices in one call, without the interpreter lock.

    With Y = diag(pivots)^(-1/2) M⁻¹ V it is Yᵀ Y: one substitution, and symmetric to the last bit.

    Parameters
    ----------
    pivots, multipliers : float64 arrays of shape (a, n) and (a, n - 1)
        Of each matrix, as in `solve_tridiagonal`.
    V : float64 array of shape (n, k), C-contiguous

    Returns
    -------
    float64 array of shape (a, k, k)
    """
    out = np.empty((pivots.shape[0], V.shape[1], V.shape[1]))
    _blocks_of_inverses(1.0 / np.sqrt(pivots), multipliers, V, out)
    return out


@njit(cache=True, nogil=True)
def _blocks_of_inverses(roots, multipliers, V, out):
    n, k = V.shape
    Y, above = np.empty((n, k)), np.empty(k)
    for a in range(roots.shape[0]):
        above[:] = 0.0
        for i in range(n):
            factor = multipliers[a, i - 1] if i > 0 else 0.0
            root = roots[a, i]
            for c in range(k):
                value = V[i, c] - factor * above[c]
                above[c] = value
                Y[i, c] = value * root
        out[a] = np.dot(Y.T, Y)
