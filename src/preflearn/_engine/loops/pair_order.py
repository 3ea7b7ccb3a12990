r"""How all held-out pairs are ordered, from a matrix W with R = Wᵀ W, without R itself.

Most pairs are decided by products in single precision, which take half the time: an entry of the product has an error
of at most ε √(R_ii R_jj), ε = (n + 3) 2⁻²⁴ for n summands, and its effect on the difference of the two predictions is
known. The few pairs whose order it might change are computed again in double precision.

Rows are taken in ascending order of y, so that row i is compared with the first ``starts[i]`` of them, which are all
lower. Blocks of rows are multiplied and counted by one thread each, while they are in its cache.
"""

from __future__ import annotations

import threading

import numpy as np

from .compiling import njit
from .threads import blas_at_rest, in_turns, over_ranges

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
