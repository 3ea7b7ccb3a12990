"""Hold-out of many small blocks of rows, and of all pairs."""

from __future__ import annotations

import numpy as np

from .compiling import njit
from .threads import blas_at_rest, over_ranges, over_small_ranges
from .vectors import multiply, subtract_products

# Alphas that are factorised side by side: they fill the processor's vectors whatever the size of a block.
_LANES = 8
_multiply, _subtract_products = multiply(_LANES), subtract_products(_LANES)


def leave_blocks_out(half, features, rotation, rows, starts, D, w, t, threshold):
    """Held-out predictions for blocks U of rows and every alpha.

    With T and Z the rows of half and features, rotated, e = (I - T_U D T_Uᵀ)⁻¹ (t - T w)_U by Cholesky, and then
    Z_U (w - D T_Uᵀ e).

    Parameters
    ----------
    half, features : arrays of shape (m, r)
        C-contiguous ones are not copied.
    rotation : float64 array of shape (r, r), or (0, 0) for none
    rows : int64 array
        The rows of all blocks, one block after the other.
    starts : int64 array of shape (n_blocks + 1,)
        Where each block begins in ``rows``.
    D, w : float64 arrays of shape (n_alphas, r)
    t : float64 array of shape (m,)
    threshold : float
        Smallest pivot that counts as stable.

    Returns
    -------
    out : (n_alphas, len(rows)), stable : bool (n_alphas, n_blocks)
    """
    n_blocks = starts.shape[0] - 1
    out = np.empty((D.shape[0], rows.shape[0]))
    stable = np.ones((D.shape[0], n_blocks), dtype=np.bool_)
    at_once = max(1, _ROWS_AT_ONCE * n_blocks // rows.shape[0])
    arrays = (np.ascontiguousarray(V) for V in (half, features, rotation))
    data = (*arrays, rows, starts, D, w, t, threshold, out, stable)
    with blas_at_rest():
        over_small_ranges(_leave_blocks_out, n_blocks, at_once, *data)
    return out, stable


# Rows that are rotated together: few enough for the fastest caches.
_ROWS_AT_ONCE = 320


@njit(cache=True, nogil=True)
def _rotated_rows(V, rotation, rows):
    """The rows of V times the rotation, and four rows of zeros, so that products may be taken four at a time."""
    n, r = rows.shape[0], V.shape[1]
    taken = np.empty((n, r))
    for i in range(n):
        for c in range(r):
            taken[i, c] = V[rows[i], c]
    out = np.zeros((n + 4, r))
    if rotation.shape[0] > 0:
        np.dot(taken, rotation, out[:n])
    else:
        out[:n] = taken
    return out


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _leave_blocks_out(
    half, features, rotation, rows, starts, D, w, t, threshold, out, stable, first_block, last_block
):
    n_alphas, r = D.shape
    largest = 0
    for b in range(first_block, last_block):
        largest = max(largest, starts[b + 1] - starts[b])
    these = rows[starts[first_block] : starts[last_block]]
    T, Z = _rotated_rows(half, rotation, these), _rotated_rows(features, rotation, these)
    scaled = np.zeros((largest + 4, r))
    M = np.zeros((largest + 4, largest + 4, _LANES))
    e = np.zeros((largest, _LANES))
    smallest = np.empty(_LANES)
    weights = np.empty(r)
    for b in range(first_block, last_block):
        first, n = starts[b] - starts[first_block], starts[b + 1] - starts[b]
        block = T[first : first + n + 4]
        for first_alpha in range(0, n_alphas, _LANES):
            lanes = min(_LANES, n_alphas - first_alpha)
            for lane in range(lanes):
                k = first_alpha + lane
                for i in range(n):
                    predicted = 0.0
                    for c in range(r):
                        scaled[i, c] = block[i, c] * D[k, c]
                        predicted += block[i, c] * w[k, c]
                    e[i, lane] = t[these[first + i]] - predicted
                _negative_products(scaled, block, n, M, lane)
                for i in range(n):
                    M[i, i, lane] += 1.0
            _cholesky_solve(M, n, e, smallest)
            for lane in range(lanes):
                k = first_alpha + lane
                if not smallest[lane] >= threshold:
                    stable[k, b] = False
                    continue
                weights[:] = 0.0
                for i in range(n):
                    for c in range(r):
                        weights[c] += block[i, c] * e[i, lane]
                for c in range(r):
                    weights[c] = w[k, c] - D[k, c] * weights[c]
                for i in range(n):
                    total = 0.0
                    for c in range(r):
                        total += Z[first + i, c] * weights[c]
                    out[k, starts[b] + i] = total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _negative_products(A, B, n, M, lane):
    """The lower triangle of M[:, :, lane] = -A Bᵀ in tiles of 2 × 4, each row of A and B read once per tile."""
    r = A.shape[1]
    for i in range(0, n, 2):
        for j in range(0, i + 2, 4):
            s00, s01, s02, s03, s10, s11, s12, s13 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for c in range(r):
                a0, a1 = A[i, c], A[i + 1, c]
                b0, b1, b2, b3 = B[j, c], B[j + 1, c], B[j + 2, c], B[j + 3, c]
                s00 += a0 * b0
                s01 += a0 * b1
                s02 += a0 * b2
                s03 += a0 * b3
                s10 += a1 * b0
                s11 += a1 * b1
                s12 += a1 * b2
                s13 += a1 * b3
            M[i, j, lane], M[i, j + 1, lane], M[i, j + 2, lane], M[i, j + 3, lane] = -s00, -s01, -s02, -s03
            M[i + 1, j, lane], M[i + 1, j + 1, lane] = -s10, -s11
            M[i + 1, j + 2, lane], M[i + 1, j + 3, lane] = -s12, -s13


@njit(cache=True, nogil=True)
def _cholesky_solve(M, n, x, smallest):
    """x ← M⁻¹ x in every lane, from the lower triangles of the first n rows, in place.

    ``smallest`` receives the smallest squared pivot of each lane, 0 or less where M is not positive definite.
    """
    row, entries, unknowns = M.shape[1] * _LANES, M.reshape(M.size), x.reshape(x.size)
    smallest[:] = np.inf
    for j in range(n):
        above, at_j = j * row, j * _LANES
        for i in range(j, n):
            _subtract_products(entries, i * row + at_j, entries, i * row, _LANES, entries, above, _LANES, j)
        for lane in range(_LANES):
            pivot = M[j, j, lane]
            if not pivot >= smallest[lane]:  # NaN counts as small
                smallest[lane] = pivot
            M[j, j, lane] = 1.0 / np.sqrt(pivot) if pivot > 0.0 else 1.0
        for i in range(j + 1, n):
            _multiply(entries, i * row + at_j, entries, above + at_j)
        _subtract_products(unknowns, at_j, entries, above, _LANES, unknowns, 0, _LANES, j)
        _multiply(unknowns, at_j, entries, above + at_j)
    for j in range(n - 1, -1, -1):
        below, at_j = (j + 1) * row, j * _LANES
        _subtract_products(
            unknowns, at_j, entries, below + at_j, row, unknowns, at_j + _LANES, _LANES, n - 1 - j
        )
        _multiply(unknowns, at_j, entries, j * row + at_j)


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


def pair_predictions(pairs, R, x, t, mean_response, mean_f, kappa, share):
    """Predictions for both rows of each held-out pair.

    f_H = mean_f + β_H · v + (t_H + v - share Σ v) / κ with v = -(R_HH)⁻¹ x_H; ``share`` is 1/m for a global ranking
    and 0 for plain regression. The last column is the mean of the predictions over all rows, for an intercept.

    Parameters
    ----------
    pairs : int64 array of shape (p, 2)
    R : float64 array of shape (m, m)
    x, t, mean_response : float64 arrays of shape (m,)

    Returns
    -------
    float64 array of shape (p, 3)
    """
    out = np.empty((pairs.shape[0], 3))
    over_ranges(
        _pair_predictions,
        pairs.shape[0],
        pairs,
        R,
        x,
        t,
        mean_response,
        mean_f,
        kappa,
        share,
        out,
        least=1 << 14,
    )
    return out


@njit(cache=True, nogil=True)
def _pair_predictions(pairs, R, x, t, mean_response, mean_f, kappa, share, out, first, last):
    for k in range(first, last):
        i, j = pairs[k, 0], pairs[k, 1]
        determinant = R[i, i] * R[j, j] - R[i, j] * R[i, j]
        v_i = -(R[j, j] * x[i] - R[i, j] * x[j]) / determinant
        v_j = -(R[i, i] * x[j] - R[i, j] * x[i]) / determinant
        level = mean_f + mean_response[i] * v_i + mean_response[j] * v_j
        spread = share * (v_i + v_j)
        out[k, 0] = level + (t[i] + v_i - spread) / kappa
        out[k, 1] = level + (t[j] + v_j - spread) / kappa
        out[k, 2] = level
