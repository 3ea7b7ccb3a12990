"""Hold-out of many small blocks of rows, and of all pairs."""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import over_ranges


def leave_blocks_out(T, Z, starts, D, residual, f, threshold):
    """Held-out predictions for adjacent blocks U of rows and every alpha.

    e = (I - T_U D T_Uᵀ)⁻¹ residual_U by Cholesky, then f_U - Z_U D T_Uᵀ e.

    Parameters
    ----------
    T, Z : float64 arrays of shape (m, r)
        S Z and Z, rows in the order of the blocks.
    starts : int64 array of shape (n_blocks + 1,)
    D : float64 array of shape (n_alphas, r)
    residual, f : float64 arrays of shape (n_alphas, m)
        t - T w and Z w.
    threshold : float
        Smallest pivot that counts as stable.

    Returns
    -------
    out : (n_alphas, m), stable : bool (n_alphas, n_blocks)
    """
    out = np.empty_like(f)
    stable = np.ones((D.shape[0], starts.shape[0] - 1), dtype=np.bool_)
    over_ranges(_leave_blocks_out, starts.shape[0] - 1, T, Z, starts, D, residual, f, threshold, out, stable)
    return out, stable


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _leave_blocks_out(T, Z, starts, D, residual, f, threshold, out, stable, first_block, last_block):
    n_alphas, r = D.shape
    for b in range(first_block, last_block):
        first, last = starts[b], starts[b + 1]
        n = last - first
        M = np.empty((n, n))
        scaled = np.empty((n, r))
        e = np.empty(n)
        g = np.empty(r)
        for k in range(n_alphas):
            for i in range(n):
                for c in range(r):
                    scaled[i, c] = T[first + i, c] * D[k, c]
            for i in range(n):
                for j in range(i + 1):
                    total = 0.0
                    for c in range(r):
                        total += scaled[i, c] * T[first + j, c]
                    M[i, j] = -total
                M[i, i] += 1.0
            smallest = _cholesky_solve(M, residual[k, first:last], e)
            if smallest < threshold:
                stable[k, b] = False
                continue
            g[:] = 0.0
            for i in range(n):
                for c in range(r):
                    g[c] += scaled[i, c] * e[i]
            for i in range(n):
                total = 0.0
                for c in range(r):
                    total += Z[first + i, c] * g[c]
                out[k, first + i] = f[k, first + i] - total


@njit(cache=True, nogil=True)
def _cholesky_solve(M, rhs, x):
    """x = M⁻¹ rhs from the lower triangle, in place; the smallest squared pivot (negative when M is not positive)."""
    n = M.shape[0]
    smallest = np.inf
    for j in range(n):
        pivot = M[j, j]
        for c in range(j):
            pivot -= M[j, c] * M[j, c]
        smallest = min(smallest, pivot)
        if not pivot > 0.0:
            return -1.0
        root = np.sqrt(pivot)
        M[j, j] = root
        for i in range(j + 1, n):
            total = M[i, j]
            for c in range(j):
                total -= M[i, c] * M[j, c]
            M[i, j] = total / root
    for i in range(n):
        total = rhs[i]
        for c in range(i):
            total -= M[i, c] * x[c]
        x[i] = total / M[i, i]
    for i in range(n - 1, -1, -1):
        total = x[i]
        for c in range(i + 1, n):
            total -= M[c, i] * x[c]
        x[i] = total / M[i, i]
    return smallest


def pair_order(R, first_row, diagonal, x, t, y, tolerance):
    """How the held-out pairs of each row of a block are ordered.

    R holds the rows first_row ... of (G + λ I)⁻¹ (centred for a global ranking) and x = R t. Without the rows i and j
    the predictions are t_H - (R_HH)⁻¹ x_H up to a constant and a positive factor; two that differ by no more than
    ``tolerance`` on that scale are tied.

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
        tolerance,
        counts,
        least=1 + (1 << 14) // R.shape[1],
    )
    return counts


@njit(cache=True, nogil=True)
def _pair_order(R, first_row, diagonal, x, t, y, tolerance, counts, first, last):
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


def pair_predictions(pairs, R, x, t, pull, mean_f, kappa, share):
    """Predictions for both rows of each held-out pair.

    f_H = mean_f + pull_H · v + (t_H + v - share Σ v) / κ with v = -(R_HH)⁻¹ x_H; ``share`` is 1/m for a global ranking
    and 0 for plain regression. The last column is the mean of the predictions over all rows, for an intercept.

    Parameters
    ----------
    pairs : int64 array of shape (p, 2)
    R : float64 array of shape (m, m)
    x, t, pull : float64 arrays of shape (m,)

    Returns
    -------
    float64 array of shape (p, 3)
    """
    out = np.empty((pairs.shape[0], 3))
    over_ranges(
        _pair_predictions, pairs.shape[0], pairs, R, x, t, pull, mean_f, kappa, share, out, least=1 << 14
    )
    return out


@njit(cache=True, nogil=True)
def _pair_predictions(pairs, R, x, t, pull, mean_f, kappa, share, out, first, last):
    for k in range(first, last):
        i, j = pairs[k, 0], pairs[k, 1]
        determinant = R[i, i] * R[j, j] - R[i, j] * R[i, j]
        v_i = -(R[j, j] * x[i] - R[i, j] * x[j]) / determinant
        v_j = -(R[i, i] * x[j] - R[i, j] * x[i]) / determinant
        level = mean_f + pull[i] * v_i + pull[j] * v_j
        spread = share * (v_i + v_j)
        out[k, 0] = level + (t[i] + v_i - spread) / kappa
        out[k, 1] = level + (t[j] + v_j - spread) / kappa
        out[k, 2] = level
