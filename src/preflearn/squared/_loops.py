"""Compiled loops of hold-outs."""

from __future__ import annotations

import threading

import numpy as np

from ..numerics.compiling import njit
from ..numerics.threads import blas_at_rest, in_turns, over_ranges, over_small_ranges

# ---------------------------------------------------------------- holdout
# Hold-out of many small blocks of rows, and of all pairs.

# Alphas that are factorised side by side: they fill the processor's vectors whatever the size of a block.
_LANES = 8


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
    smallest[:] = np.inf
    for j in range(n):
        for i in range(j, n):
            for k in range(j):
                for lane in range(_LANES):
                    M[i, j, lane] -= M[i, k, lane] * M[j, k, lane]
        for lane in range(_LANES):
            pivot = M[j, j, lane]
            if not pivot >= smallest[lane]:  # NaN counts as small
                smallest[lane] = pivot
            M[j, j, lane] = 1.0 / np.sqrt(pivot) if pivot > 0.0 else 1.0
        for i in range(j + 1, n):
            for lane in range(_LANES):
                M[i, j, lane] *= M[j, j, lane]
        for k in range(j):
            for lane in range(_LANES):
                x[j, lane] -= M[j, k, lane] * x[k, lane]
        for lane in range(_LANES):
            x[j, lane] *= M[j, j, lane]
    for j in range(n - 1, -1, -1):
        for k in range(j + 1, n):
            for lane in range(_LANES):
                x[j, lane] -= M[k, j, lane] * x[k, lane]
        for lane in range(_LANES):
            x[j, lane] *= M[j, j, lane]


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


# ---------------------------------------------------------------- tridiagonal
# Systems with one tridiagonal matrix and many right-hand sides.


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


# ---------------------------------------------------------------- pair order
# How all held-out pairs are ordered, from a matrix W with R = Wᵀ W, without R itself.
#
# Most pairs are decided by products in single precision, which take half the time: an entry of the product has an error
# of at most ε √(R_ii R_jj), ε = (n + 3) 2⁻²⁴ for n summands, and its effect on the difference of the two predictions is
# known. The few pairs whose order it might change are computed again in double precision.
#
# Rows are taken in ascending order of y, so that row i is compared with the first ``starts[i]`` of them, which are all
# lower. Blocks of rows are multiplied and counted by one thread each, while they are in its cache.

# Rows of a block of R.
_BLOCK = 128
# A block in which more than this share of the pairs is in doubt is computed in double precision.
_MOST_IN_DOUBT = 1 / 64
# Pairs that are examined one by one when any of them is in doubt.
_CHUNK = 128

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


def half_of_resolvent(pivots, multipliers, Qt, means) -> tuple[np.ndarray, np.ndarray]:
    """W = D^(-1/2) M⁻¹ (Qᵀ - means) for a tridiagonal matrix M D Mᵀ, and the diagonal of Wᵀ W.

    Parameters
    ----------
    pivots, multipliers : float64 arrays of shape (n,) and (n - 1,)
        D, and what M has below its ones, as LAPACK's ``pttrf`` gives them.
    Qt : float64 array of shape (n, m), C-contiguous
    means : float64 array of shape (n,)
        Subtracted from the rows of Qt.
    """
    W, diagonal = np.empty(Qt.shape), np.zeros(Qt.shape[1])
    least = max(64, (1 << 16) // max(1, Qt.shape[0]))
    data = (1.0 / np.sqrt(pivots), multipliers, Qt, means, W, diagonal)
    over_ranges(_half_of_resolvent, Qt.shape[1], *data, least=least, align=8)
    return W, diagonal


@_compiled
def _half_of_resolvent(roots, multipliers, Qt, means, W, diagonal, first, last):
    above = np.zeros(last - first)
    for row in range(Qt.shape[0]):
        multiplier = multipliers[row - 1] if row else 0.0
        q, w, mean, root = Qt[row], W[row], means[row], roots[row]
        for c in range(last - first):
            value = q[first + c] - mean - multiplier * above[c]
            above[c] = value
            value *= root
            w[first + c] = value
            diagonal[first + c] += value * value


def orders_of_pairs(W, diagonal, x, t, y, twins, tolerance) -> np.ndarray:
    """How the held-out pairs of each row are ordered.

    Parameters
    ----------
    W : float64 array of shape (n, m)
    diagonal : float64 array of shape (m,)
        Of R = Wᵀ W.
    x, t : float64 arrays of shape (m,)
        R t and t. Without the rows i and j the predictions are t_H - (R_HH)⁻¹ x_H up to a constant and a factor.
    y : float64 array of shape (m,)
    twins : int64 array of shape (m,)
        Rows with the same number are tied.
    tolerance : float
        Predictions that differ by no more than this are tied.

    Returns
    -------
    counts : int64 array of shape (m, 6)
        Right, tied and all pairs with a lower y, then right, tied and all pairs with a higher y.
    """
    n, m = W.shape
    order = np.argsort(y, kind="stable")
    ascending = y[order]
    starts = np.searchsorted(ascending, ascending)
    unit = 1.0 / float(np.sqrt(diagonal.max()))
    single = np.empty(W.shape, np.float32)
    over_ranges(_to_single, n, W, unit, order, single, least=1 + (1 << 16) // m)
    data = (diagonal[order], np.sqrt(diagonal[order]), x[order], t[order], twins[order], starts, tolerance)
    counts = np.zeros((m, 6), dtype=np.int64)
    counts[:, 2], counts[:, 5] = starts, m - np.searchsorted(ascending, ascending, side="right")
    lock = threading.Lock()

    def count(first: int) -> None:
        last = min(first + _BLOCK, m)
        n_lower = int(starts[last - 1])
        if n_lower == 0:
            return
        doubts = np.empty((int(_MOST_IN_DOUBT * (last - first) * n_lower) + 1, 2), dtype=np.int64)
        mine, theirs = np.zeros((2, last - first), np.int64), np.zeros((2, n_lower), np.int64)
        R = single[:, first:last].T @ single[:, :n_lower]
        n_doubts = _count_block(R, unit**-2, (n + 3) * 2.0**-24, first, *data, mine, theirs, doubts)
        if n_doubts > doubts.shape[0]:
            mine[...], theirs[...] = 0, 0
            R = W[:, order[first:last]].T @ W[:, order[:n_lower]]
            n_doubts = _count_block(R, 1.0, 0.0, first, *data, mine, theirs, doubts)
        _settle(W, order, doubts[:n_doubts], first, *data, mine, theirs)
        with lock:
            counts[first:last, :2] += mine.T
            counts[:n_lower, 3:5] += theirs.T

    with blas_at_rest():
        # The longest blocks first, so that the threads finish together.
        in_turns(count, [(first,) for first in reversed(range(0, m, _BLOCK))])
    out = np.empty_like(counts)
    out[order] = counts
    return out


@_compiled
def _to_single(W, unit, order, out, first, last):
    for row in range(first, last):
        for c in range(order.shape[0]):
            out[row, c] = W[row, order[c]] * unit


@_compiled
def _compare(R_ij, error, R_ii, R_jj, x_i, x_j, t_i, t_j, tolerance):
    """(f_i - f_j) det R_HH, the smallest value of it that counts, and how far an error of R_ij may move the two."""
    apart = t_i - t_j
    determinant = R_ii * R_jj - R_ij * R_ij
    difference = determinant * apart - (R_jj + R_ij) * x_i + (R_ii + R_ij) * x_j
    doubt = error * (
        abs(2.0 * R_ij * apart + x_i - x_j) + error * abs(apart) + tolerance * (2.0 * abs(R_ij) + error)
    )
    return difference, tolerance * determinant, doubt


@_compiled
def _count_block(
    R, scale, epsilon, first, diagonal, roots, x, t, twins, starts, tolerance, mine, theirs, doubts
):
    """Count the pairs that are certain, list the others, and return the number of those.

    R holds the rows first ... in the unit ``scale``, with errors of at most ``epsilon`` √(R_ii R_jj).
    """
    n_doubts = 0
    right_there, tied_there = theirs[0], theirs[1]
    for a in range(R.shape[0]):
        i = first + a
        R_ii, root, x_i, t_i, twin, row = diagonal[i], epsilon * roots[i], x[i], t[i], twins[i], R[a]
        right_here, tied_here = 0, 0
        for begin in range(0, starts[i], _CHUNK):
            end = min(begin + _CHUNK, starts[i])
            in_doubt = 0
            for j in range(begin, end):
                difference, least, doubt = _compare(
                    scale * row[j], root * roots[j], R_ii, diagonal[j], x_i, x[j], t_i, t[j], tolerance
                )
                same = twins[j] == twin
                unknown = (not same) & (doubt > 0.0) & (not (abs(abs(difference) - least) > doubt))
                right = (difference > least) & (not same) & (not unknown)
                tied = same | ((abs(difference) <= least) & (not unknown))
                in_doubt += unknown
                right_here += right
                tied_here += tied
                right_there[j] += right
                tied_there[j] += tied
            if in_doubt == 0:
                continue
            if n_doubts + in_doubt > doubts.shape[0]:
                return doubts.shape[0] + 1
            for j in range(begin, end):
                difference, least, doubt = _compare(
                    scale * row[j], root * roots[j], R_ii, diagonal[j], x_i, x[j], t_i, t[j], tolerance
                )
                if twins[j] != twin and doubt > 0.0 and not abs(abs(difference) - least) > doubt:
                    doubts[n_doubts, 0], doubts[n_doubts, 1] = i, j
                    n_doubts += 1
        mine[0, a], mine[1, a] = right_here, tied_here
    return n_doubts


@_compiled
def _settle(W, order, doubts, first, diagonal, roots, x, t, twins, starts, tolerance, mine, theirs):
    """Count the listed pairs by entries of R in double precision."""
    entries = np.zeros(doubts.shape[0])
    places = order[doubts.ravel()].reshape(doubts.shape)
    for row in range(W.shape[0]):
        w = W[row]
        for k in range(doubts.shape[0]):
            entries[k] += w[places[k, 0]] * w[places[k, 1]]
    for k in range(doubts.shape[0]):
        i, j = doubts[k, 0], doubts[k, 1]
        difference, least, _ = _compare(
            entries[k], 0.0, diagonal[i], diagonal[j], x[i], x[j], t[i], t[j], tolerance
        )
        right, tied = difference > least, abs(difference) <= least
        mine[0, i - first] += right
        mine[1, i - first] += tied
        theirs[0, j] += right
        theirs[1, j] += tied
