"""Compiled loops of hold-outs."""

from __future__ import annotations

import numpy as np

from ..numerics.compiling import njit
from ..numerics.threads import over_ranges


def pair_order(R, first_row, diagonal, x, t, y, twins, tolerance):
    """How the held-out pairs of each row of a block are ordered.

    R holds the rows first_row ... of (G + λ I)⁻¹ (centred for a global ranking) and x = R t. Without the rows i and j
    the predictions are t_H - (R_HH)⁻¹ x_H up to a constant and a positive factor; two that differ by no more than
    ``tolerance`` on that scale are tied, and so are those of rows with the same number in ``twins``.

    Returns
    -------
    counts : int64 array of shape (block, 6)
        Right, tied and all pairs with a lower y, then right, tied and all pairs with a higher y.
    """
    counts = np.zeros((R.shape[0], 6), dtype=np.int64)
    over_ranges(
        _pair_order,
        R.shape[0],
        R,
        first_row,
        diagonal,
        x,
        t,
        y,
        twins,
        tolerance,
        counts,
        least=1 + (1 << 14) // R.shape[1],
    )
    return counts


@njit(cache=True, nogil=True)
def _pair_order(R, first_row, diagonal, x, t, y, twins, tolerance, counts, first, last):
    m = R.shape[1]
    for a in range(first, last):
        i = first_row + a
        R_ii, x_i, t_i, y_i = diagonal[i], x[i], t[i], y[i]
        right_lower, tied_lower, lower, right_higher, tied_higher, higher = 0, 0, 0, 0, 0, 0
        for j in range(m):
            if y[j] == y_i:
                continue
            # f_i - f_j times the determinant of R_HH, which is positive.
            R_jj, R_ij = diagonal[j], R[a, j]
            determinant = R_ii * R_jj - R_ij * R_ij
            difference = determinant * (t_i - t[j]) - (R_jj + R_ij) * x_i + (R_ii + R_ij) * x[j]
            if twins[j] == twins[i]:
                difference = 0.0
            least = tolerance * determinant
            if y[j] < y_i:
                lower += 1
                right_lower += difference > least
                tied_lower += abs(difference) <= least
            else:
                higher += 1
                right_higher += difference < -least
                tied_higher += abs(difference) <= least
        counts[a, 0], counts[a, 1], counts[a, 2] = right_lower, tied_lower, lower
        counts[a, 3], counts[a, 4], counts[a, 5] = right_higher, tied_higher, higher


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


def half_of_inverse(pivots, multipliers, Qt) -> np.ndarray:
    """W = D^(-1/2) M⁻¹ Qᵀ for a tridiagonal matrix M D Mᵀ.

    Parameters
    ----------
    pivots, multipliers : float64 arrays of shape (n,) and (n - 1,)
        D, and what M has below its ones, as LAPACK's ``pttrf`` gives them.
    Qt : float64 array of shape (n, m), C-contiguous
    """
    W = np.empty(Qt.shape)
    least = max(64, (1 << 16) // max(1, Qt.shape[0]))
    over_ranges(
        _half_of_inverse, Qt.shape[1], 1.0 / np.sqrt(pivots), multipliers, Qt, W, least=least, align=8
    )
    return W


@njit(cache=True, nogil=True)
def _half_of_inverse(roots, multipliers, Qt, W, first, last):
    above = np.zeros(last - first)
    for row in range(Qt.shape[0]):
        multiplier = multipliers[row - 1] if row else 0.0
        for c in range(last - first):
            value = Qt[row, first + c] - multiplier * above[c]
            above[c] = value
            W[row, first + c] = value * roots[row]
