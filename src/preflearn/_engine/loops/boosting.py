r"""Boosted histogram trees for rankings: the squared error of all pairs inside queries, in compiled loops.

With every query weighted by 1 / n_q, the negative gradient of Σ (t_i - t_j - f_i + f_j)² at row i is

    g_i = (t_i - f_i) minus its mean in the query.

A tree is fitted to g by least squares, best leaf first, on features that are small whole numbers (bins); of two
children the histogram of the smaller one is summed up, that of the other is the difference to their parent. A leaf
adds rate · Σ g / (rows + λ).
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Gains are compared after division by that of the root; smaller ones are rounding.
_LEAST_GAIN = 1e-10


@njit(cache=True, nogil=True)
def grow_trees(
    codes,
    targets,
    starts,
    scores,
    test_codes,
    test_scores,
    n_trees,
    n_bins,
    leaves,
    rate,
    least,
    ridge,
    share,
    seed,
):
    """Grow more trees on scores so far; ``scores`` and ``test_scores`` are brought up to date.

    Parameters
    ----------
    codes : uint8 array of shape (m, n)
        Rows of a query side by side.
    targets : ndarray of shape (m,)
    starts : int array of shape (q + 1,)
        The first row of each query.
    scores : ndarray of shape (m,)
    test_codes, test_scores
        Rows that are predicted on the way.
    n_trees, n_bins, leaves, least : int
        ``least`` rows in a leaf.
    rate, ridge, share : float
        ``share`` of the features that a node looks at.
    seed : int

    Returns
    -------
    feature, code, left, right : int arrays of shape (n_trees, 2 leaves - 1)
        A row with codes[feature] <= code goes left; left is 0 for a leaf. Children are counted from the root of the
        tree.
    value, gain : arrays of the same shape
    sizes : int array of shape (n_trees,)
        Nodes of each tree.
    """
    m, n = codes.shape
    most = 2 * leaves - 1
    feature = np.zeros((n_trees, most), np.int32)
    code = np.zeros((n_trees, most), np.int32)
    left = np.zeros((n_trees, most), np.int32)
    right = np.zeros((n_trees, most), np.int32)
    value = np.zeros((n_trees, most))
    gain = np.zeros((n_trees, most))
    sizes = np.ones(n_trees, np.int64)
    gradient = np.empty(m)
    hist = np.empty((leaves, n, n_bins, 2))
    rows, scratch = np.empty(m, np.int32), np.empty(m, np.int32)
    np.random.seed(seed)  # noqa: NPY002 - Numba's own generator, one for each thread
    for tree in range(n_trees):
        _centred_residuals(scores, targets, starts, gradient)
        for i in range(m):
            rows[i] = i
        sizes[tree] = _grow_tree(
            codes,
            gradient,
            rows,
            scratch,
            hist,
            leaves,
            least,
            ridge,
            share,
            rate,
            feature[tree],
            code[tree],
            left[tree],
            right[tree],
            value[tree],
            gain[tree],
            scores,
        )
        for i in range(test_codes.shape[0]):
            node = 0
            while left[tree, node] > 0:
                goes_left = test_codes[i, feature[tree, node]] <= code[tree, node]
                node = left[tree, node] if goes_left else right[tree, node]
            test_scores[i] += value[tree, node]
    return feature, code, left, right, value, gain, sizes


@njit(cache=True, nogil=True)
def _centred_residuals(scores, targets, starts, out):
    for q in range(starts.shape[0] - 1):
        total = 0.0
        for i in range(starts[q], starts[q + 1]):
            out[i] = targets[i] - scores[i]
            total += out[i]
        mean = total / max(1, starts[q + 1] - starts[q])
        for i in range(starts[q], starts[q + 1]):
            out[i] -= mean


# Long: one compiled pass whose running values a function would have to take and return.
@njit(cache=True, nogil=True)
def _grow_tree(
    codes,
    gradient,
    rows,
    scratch,
    hist,
    leaves,
    least,
    ridge,
    share,
    rate,
    feature,
    code,
    left,
    right,
    value,
    gain,
    scores,
):
    """One tree, best leaf first; returns the number of its nodes."""
    m, n = codes.shape
    first, last = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64)
    node_of = np.zeros(leaves, np.int64)
    split_feature, split_code = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64)
    split_gain = np.zeros(leaves)
    last[0] = m
    _sum_up(codes, gradient, rows, 0, m, hist[0])
    split_gain[0], split_feature[0], split_code[0] = _best_split(hist[0], least, ridge, share)
    smallest = _LEAST_GAIN * split_gain[0]
    n_leaves, n_nodes = 1, 1
    while n_leaves < leaves:
        best = 0
        for k in range(1, n_leaves):
            if split_gain[k] > split_gain[best]:
                best = k
        if not split_gain[best] > smallest:
            break
        middle = _divide(codes, rows, scratch, first[best], last[best], split_feature[best], split_code[best])
        node = node_of[best]
        feature[node], code[node], gain[node] = split_feature[best], split_code[best], split_gain[best]
        left[node], right[node] = n_nodes, n_nodes + 1
        other = n_leaves
        first[other], last[other], node_of[other] = middle, last[best], n_nodes + 1
        last[best], node_of[best] = middle, n_nodes
        n_nodes += 2
        n_leaves += 1
        small, large = (best, other) if middle - first[best] <= last[other] - middle else (other, best)
        # hist[best] is still that of the parent: the larger child's is what the smaller one leaves of it.
        if large == other:
            hist[other] = hist[best]
        _sum_up(codes, gradient, rows, first[small], last[small], hist[small])
        hist[large] -= hist[small]
        for k in (best, other):
            if n_leaves < leaves:
                split_gain[k], split_feature[k], split_code[k] = _best_split(hist[k], least, ridge, share)
    for k in range(n_leaves):
        total = 0.0
        for at in range(first[k], last[k]):
            total += gradient[rows[at]]
        step = rate * total / (last[k] - first[k] + ridge)
        value[node_of[k]] = step
        for at in range(first[k], last[k]):
            scores[rows[at]] += step
    return n_nodes


@njit(cache=True, nogil=True)
def _sum_up(codes, gradient, rows, first, last, out):
    """Σ g and the number of rows for every bin of every feature."""
    out[:] = 0.0
    n = codes.shape[1]
    for at in range(first, last):
        i = rows[at]
        g = gradient[i]
        for j in range(n):
            b = codes[i, j]
            out[j, b, 0] += g
            out[j, b, 1] += 1.0


@njit(cache=True, nogil=True)
def _divide(codes, rows, scratch, first, last, feature, code):
    """Rows that go left before those that go right, each in their order; where the latter begin."""
    at, n_right = first, 0
    for k in range(first, last):
        i = rows[k]
        if codes[i, feature] <= code:
            rows[at] = i
            at += 1
        else:
            scratch[n_right] = i
            n_right += 1
    rows[at : at + n_right] = scratch[:n_right]
    return at


@njit(cache=True, nogil=True)
def _best_split(hist, least, ridge, share):
    """The largest drop of the squared error, and where; a gain of 0 where no split is allowed."""
    n, n_bins = hist.shape[0], hist.shape[1]
    total, count = 0.0, 0.0
    for b in range(n_bins):
        total += hist[0, b, 0]
        count += hist[0, b, 1]
    base = total * total / (count + ridge)
    best, best_feature, best_code = 0.0, 0, 0
    if count < 2 * least:
        return best, best_feature, best_code
    for j in range(n):
        if share < 1.0 and np.random.random() >= share:  # noqa: NPY002
            continue
        g, c = 0.0, 0.0
        for b in range(n_bins - 1):
            if hist[j, b, 1] == 0.0:
                continue
            g += hist[j, b, 0]
            c += hist[j, b, 1]
            if c < least:
                continue
            if count - c < least:
                break
            found = g * g / (c + ridge) + (total - g) * (total - g) / (count - c + ridge) - base
            if found > best:
                best, best_feature, best_code = found, j, b
    return best, best_feature, best_code
