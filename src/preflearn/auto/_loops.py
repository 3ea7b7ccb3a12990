"""Compiled loops of `AutoRanker`: shares of training values and their quantiles, growing trees, scores of trees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from ..numerics.compiling import njit
from ..numerics.threads import in_turns, over_ranges

# ---------------------------------------------------------------- quantiles
# Shares of training values below new ones, column by column, and the normal quantiles of these shares.


def shares_below(X: np.ndarray, knots: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Piecewise linear through the knots of each column, the middle of the jump where several knots are equal.

    The result of scikit-learn's QuantileTransformer with uniform output, without its overhead for every column, which
    dominates for a few rows, and at any scale: in scikit-learn values within 1e-7 of the ends count as outside them.

    Parameters
    ----------
    X : ndarray of shape (m, n)
    knots : ndarray of shape (k, n)
        Ascending in each column.
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
    by_column = np.ascontiguousarray(knots.T)  # the knots of a column side by side
    least = 1 + (1 << 14) // max(1, X.shape[1])  # as many values are worth a thread
    over_ranges(_look_up, X.shape[0], np.ascontiguousarray(X), by_column, shares, out, least=least)
    return out


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
    found = ndtri(shares_below(X, knots, shares))
    return np.clip(found, -most, most, out=found)


@njit(cache=True, nogil=True)
def _look_up(X, knots, shares, out, first, last):
    for j in range(X.shape[1]):
        at = knots[j]
        for i in range(first, last):
            x = X[i, j]
            if x <= at[0]:
                out[i, j] = 0.0
            elif x >= at[-1]:
                out[i, j] = 1.0
            else:
                right = np.searchsorted(at, x, side="right")
                before = right - 1
                if at[before] < x:
                    step = (x - at[before]) / (at[right] - at[before])
                    out[i, j] = shares[before] + step * (shares[right] - shares[before])
                else:
                    out[i, j] = 0.5 * (shares[np.searchsorted(at, x)] + shares[before])


# ---------------------------------------------------------------- growing trees
# Boosted histogram trees for rankings: the squared error of all pairs inside queries, in compiled loops.
#
# With every query weighted by 1 / n_q, the negative gradient of Σ (t_i - t_j - f_i + f_j)² at row i is
#
#     g_i = (t_i - f_i) minus its mean in the query.
#
# A tree is fitted to g by least squares, best leaf first, on features that are small whole numbers (bins). Of two
# children the histogram of the smaller one is summed, and that of the other is its difference from their parent's. A
# leaf adds rate · Σ g / (rows + λ).
#
# Histograms are sums of whole numbers: with 2^c > m, row i adds
#
#     round(g_i / u) · 2^c + 1,        u = max |g| · m / 2^(61 - c),
#
# so that one addition counts the row and adds up its gradient, and the sum does not depend on its order: threads share
# the features of a node, and the trees are the same with any number of them. Rounding moves gains by 1e-6 of the
# largest at a million rows, and less with fewer; the values of leaves are sums of g itself.

# Codes of this many features lie side by side, so that their histograms fit in the fastest cache.
BLOCK = 16
# A node's histogram is worth starting threads for from this many additions on.
_WORTH_THREADS = 400_000


class Trees(NamedTuple):
    """Trees of the same number of leaves.

    Attributes
    ----------
    feature, code, left, right : int arrays of shape (n_trees, 2 leaves - 1)
        A row with codes[feature] <= code goes left; left is 0 for a leaf. Children are counted from the root of the
        tree.
    value, gain : arrays of the same shape
    sizes : int array of shape (n_trees,)
        Nodes of each tree.
    """

    feature: Any
    code: Any
    left: Any
    right: Any
    value: Any
    gain: Any
    sizes: Any


class TreeOptions(NamedTuple):
    """How trees are grown.

    Attributes
    ----------
    n_bins, leaves : int
    least : int
        Rows of a leaf, at least.
    rate : float
    ridge : float
        λ: rows without a gradient that every leaf counts with, so that leaves of few rows are drawn to zero.
    share : float
        Of the features, those that a node looks at.
    n_blocks : int
        Blocks of 16 features that a tree looks at, drawn at random; all of them where there are no more.
    """

    n_bins: int
    leaves: int
    least: int
    rate: float = 0.1
    ridge: float = 20.0
    share: float = 1.0
    n_blocks: int = 1 << 30


class _Growth(NamedTuple):
    """What growing a tree works with, reused from tree to tree.

    Attributes
    ----------
    gradient : ndarray of shape (m,)
    packed : int array of shape (m,)
        Gradient and count of a row in one number.
    rows, scratch : int arrays of shape (m,)
        Those of a leaf side by side.
    hist : int array of shape (leaves, n, n_bins)
        Sums of ``packed``.
    bits : int
        Those of ``packed`` that hold the count.
    first, last, node_of, split_feature, split_code : int arrays of shape (leaves,)
        Of each leaf: its rows, its node, and its best split.
    split_gain : ndarray of shape (leaves,)
    generator : uint64 array of shape (1,)
        State of the random numbers.
    active : bool array of shape (blocks,)
        The blocks of features that the tree looks at.
    """

    gradient: Any
    packed: Any
    rows: Any
    scratch: Any
    hist: Any
    bits: int
    first: Any
    last: Any
    node_of: Any
    split_feature: Any
    split_code: Any
    split_gain: Any
    generator: Any
    active: Any


def in_blocks(codes: np.ndarray) -> np.ndarray:
    """Codes (m, n) with 16 features side by side, as `grow_trees` takes them: uint8 of shape (n / 16, m, 16)."""
    m, n = codes.shape
    out = np.zeros((-(-n // BLOCK), m, BLOCK), np.uint8)
    for k in range(out.shape[0]):
        part = codes[:, k * BLOCK : (k + 1) * BLOCK]
        out[k, :, : part.shape[1]] = part
    return out


def grow_trees(
    codes,
    n_features,
    targets,
    starts,
    scores,
    test_codes,
    test_scores,
    n_trees,
    options,
    seed,
    n_threads=1,
):
    """Grow more trees on the scores so far; ``scores`` and ``test_scores`` are updated.

    Parameters
    ----------
    codes : uint8 array of shape (blocks, m, 16)
        As `in_blocks` returns it. Rows of a query side by side.
    n_features : int
    targets : ndarray of shape (m,)
    starts : int array of shape (q + 1,)
        The first row of each query.
    scores : ndarray of shape (m,)
    test_codes : uint8 array of shape (blocks, k, 16)
    test_scores : ndarray of shape (k,)
        Rows that are predicted along the way.
    n_trees : int
    options : TreeOptions
    seed : int
    n_threads : int, default=1
        That share the blocks of features of a large node; the trees do not depend on it.

    Returns
    -------
    Trees
    """
    trees = _no_trees(n_trees, options.leaves)
    growth = _start(targets.shape[0], n_features, options, seed)

    if n_threads == 1:
        _grow_on_one_thread(codes, growth, trees, scores, targets, starts, test_codes, test_scores, options)
        return trees

    def sum_up(leaf: int) -> None:
        n_rows = growth.last[leaf] - growth.first[leaf]
        firsts = (BLOCK * np.flatnonzero(growth.active)).tolist()
        blocks = [(codes, growth, leaf, one, min(one + BLOCK, n_features)) for one in firsts]
        in_turns(_sum_up, blocks, n_threads if n_rows * BLOCK * len(firsts) > _WORTH_THREADS else 1)

    for tree in range(n_trees):
        unit = _begin(growth, scores, targets, starts, options)
        sum_up(0)
        _find_split(growth, 0, options)
        small, large = _divide_best(codes, growth, trees, tree, options.leaves)
        while small != large:
            sum_up(small)
            _settle(growth, small, large, options)
            small, large = _divide_best(codes, growth, trees, tree, options.leaves)
        _finish(growth, trees, tree, unit, options, scores)
        _predict(trees, tree, test_codes, test_scores)
    return trees


@njit(cache=True, nogil=True)
def _grow_on_one_thread(codes, growth, trees, scores, targets, starts, test_codes, test_scores, options):
    n_features = growth.hist.shape[1]
    for tree in range(trees.sizes.shape[0]):
        unit = _begin(growth, scores, targets, starts, options)
        _sum_up(codes, growth, 0, 0, n_features)
        _find_split(growth, 0, options)
        small, large = _divide_best(codes, growth, trees, tree, options.leaves)
        while small != large:
            _sum_up(codes, growth, small, 0, n_features)
            _settle(growth, small, large, options)
            small, large = _divide_best(codes, growth, trees, tree, options.leaves)
        _finish(growth, trees, tree, unit, options, scores)
        _predict(trees, tree, test_codes, test_scores)


def _no_trees(n_trees: int, leaves: int) -> Trees:
    shape = (n_trees, 2 * leaves - 1)
    feature, code, left, right = np.zeros((4, *shape), np.int32)
    return Trees(
        feature, code, left, right, np.zeros(shape), np.zeros(shape), sizes=np.ones(n_trees, np.int64)
    )


def _start(m: int, n: int, options: TreeOptions, seed: int) -> _Growth:
    leaves = options.leaves
    first, last, node_of, split_feature, split_code = np.zeros((5, leaves), np.int64)
    return _Growth(
        gradient=np.empty(m),
        packed=np.empty(m, np.int64),
        rows=np.empty(m, np.int32),
        scratch=np.empty(m, np.int32),
        hist=np.empty((leaves, n, options.n_bins), np.int64),
        bits=m.bit_length(),
        first=first,
        last=last,
        node_of=node_of,
        split_feature=split_feature,
        split_code=split_code,
        split_gain=np.zeros(leaves),
        generator=np.array([(seed * 0x9E3779B97F4A7C15 + 1) % 2**64], np.uint64),
        active=np.ones(-(-n // BLOCK), np.bool_),
    )


@njit(cache=True, nogil=True)
def _begin(growth, scores, targets, starts, options):
    """Gradients, all rows in one leaf, and the blocks to look at; returns the unit that gradients are rounded to."""
    gradient, m = growth.gradient, targets.shape[0]
    largest = _gradients(scores, targets, starts, gradient)
    unit = largest * m / 2.0 ** (61 - growth.bits)
    for i in range(m):
        growth.rows[i] = i
        rounded = np.int64(np.rint(gradient[i] / unit)) if largest > 0.0 else np.int64(0)
        growth.packed[i] = (rounded << growth.bits) + 1
    growth.first[0], growth.last[0], growth.node_of[0] = 0, m, 0
    _draw_blocks(growth, options.n_blocks)
    return unit


@njit(cache=True, nogil=True)
def _gradients(scores, targets, starts, gradient):
    """g of every row; returns the largest absolute value."""
    largest = 0.0
    for q in range(starts.shape[0] - 1):
        total = 0.0
        for i in range(starts[q], starts[q + 1]):
            gradient[i] = targets[i] - scores[i]
            total += gradient[i]
        mean = total / max(1, starts[q + 1] - starts[q])
        for i in range(starts[q], starts[q + 1]):
            gradient[i] -= mean
            largest = max(largest, abs(gradient[i]))
    return largest


@njit(cache=True, nogil=True)
def _draw_blocks(growth, n_blocks):
    active = growth.active
    if n_blocks >= active.shape[0]:
        return
    active[:] = False
    n_drawn = 0
    while n_drawn < n_blocks:
        block = int(_uniform(growth.generator) * active.shape[0])
        if not active[block]:
            active[block] = True
            n_drawn += 1


@njit(cache=True, nogil=True)
def _sum_up(codes, growth, leaf, first_feature, last_feature):
    """The histograms of those of some features that the tree looks at, from the first one of a block on."""
    rows, packed = growth.rows, growth.packed
    for low in range(first_feature, last_feature, BLOCK):
        if not growth.active[low // BLOCK]:
            continue
        width = min(BLOCK, last_feature - low)
        block, out = codes[low // BLOCK], growth.hist[leaf, low : low + width]
        out[:] = 0
        for at in range(growth.first[leaf], growth.last[leaf]):
            i = np.uint64(rows[at])
            value = packed[i]
            for j in range(width):
                out[j, block[i, j]] += value


@njit(cache=True, nogil=True)
def _divide_best(codes, growth, trees, tree, leaves):
    """Divide the rows of the leaf that gains most; the smaller and the larger part, twice the same to end the tree."""
    first, last, node_of, gains = growth.first, growth.last, growth.node_of, growth.split_gain
    n_nodes = trees.sizes[tree]
    other = (n_nodes + 1) // 2
    best = np.argmax(gains[:other])
    node = node_of[best]
    rounding = 1e-10 * trees.gain[tree, 0] if node > 0 else 0.0
    if not gains[best] > rounding:
        return best, best
    feature, code = growth.split_feature[best], growth.split_code[best]
    middle = _divide(codes, growth.rows, growth.scratch, first[best], last[best], feature, code)
    trees.feature[tree, node], trees.code[tree, node] = feature, code
    trees.gain[tree, node] = gains[best]
    trees.left[tree, node], trees.right[tree, node] = n_nodes, n_nodes + 1
    first[other], last[other], node_of[other] = middle, last[best], n_nodes + 1
    last[best], node_of[best] = middle, n_nodes
    trees.sizes[tree] = n_nodes + 2
    if other + 1 == leaves:
        return best, best
    if middle - first[best] <= last[other] - middle:
        # hist[best] is still that of the parent; subtracting the smaller child's gives that of the larger.
        growth.hist[other] = growth.hist[best]
        return best, other
    return other, best


@njit(cache=True, nogil=True)
def _settle(growth, small, large, options):
    """The best splits of the two new leaves, once the smaller one is summed up."""
    growth.hist[large] -= growth.hist[small]
    _find_split(growth, min(small, large), options)
    _find_split(growth, max(small, large), options)


@njit(cache=True, nogil=True)
def _finish(growth, trees, tree, unit, options, scores):
    """The values of the leaves, and the scores with them."""
    trees.gain[tree] *= unit**2
    for k in range((trees.sizes[tree] + 1) // 2):
        rows = growth.rows[growth.first[k] : growth.last[k]]
        total = 0.0
        for i in rows:
            total += growth.gradient[i]
        step = options.rate * total / (rows.shape[0] + options.ridge)
        trees.value[tree, growth.node_of[k]] = step
        for i in rows:
            scores[i] += step


@njit(cache=True, nogil=True)
def _predict(trees, tree, test_codes, test_scores):
    feature, code, left, right = trees.feature[tree], trees.code[tree], trees.left[tree], trees.right[tree]
    for i in range(test_scores.shape[0]):
        node = 0
        while left[node] > 0:
            j = feature[node]
            node = left[node] if test_codes[j // BLOCK, i, j % BLOCK] <= code[node] else right[node]
        test_scores[i] += trees.value[tree, node]


@njit(cache=True, nogil=True)
def _divide(codes, rows, scratch, first, last, feature, code):
    """Rows that go left before those that go right, each in their order; where the latter begin."""
    block, place = codes[feature // BLOCK], feature % BLOCK
    at, n_right = first, 0
    for k in range(first, last):
        i = rows[k]
        if block[i, place] <= code:
            rows[at] = i
            at += 1
        else:
            scratch[n_right] = i
            n_right += 1
    rows[at : at + n_right] = scratch[:n_right]
    return at


@njit(cache=True, nogil=True)
def _find_split(growth, leaf, options):
    """The largest decrease of the squared error in a leaf, and where; a gain of 0 where no split is allowed."""
    hist, active = growth.hist[leaf], growth.active
    least, ridge, share = options.least, options.ridge, options.share
    n, n_bins = hist.shape
    first = 0
    while not active[first // BLOCK]:
        first += BLOCK
    bits, ones = growth.bits, (1 << growth.bits) - 1
    packed = hist[first].sum()
    total, count = float(packed >> bits), float(packed & ones)
    best, best_feature, best_code = total * total / (count + ridge), -1, 0
    if count >= 2 * least:
        for j in range(n):
            if not active[j // BLOCK]:
                continue
            if share < 1.0 and _uniform(growth.generator) >= share:
                continue
            packed = np.int64(0)
            for b in range(n_bins - 1):
                if hist[j, b] == 0:
                    continue
                packed += hist[j, b]
                c = float(packed & ones)
                if c < least:
                    continue
                if count - c < least:
                    break
                g = float(packed >> bits)
                # g² / (c + λ) + (total - g)² / (count - c + λ), with one division
                here, there = c + ridge, count - c + ridge
                found = (g * g * there + (total - g) * (total - g) * here) / (here * there)
                if found > best:
                    best, best_feature, best_code = found, j, b
    best = best - total * total / (count + ridge) if best_feature >= 0 else 0.0
    growth.split_gain[leaf] = best
    growth.split_feature[leaf], growth.split_code[leaf] = best_feature, best_code


@njit(cache=True, nogil=True)
def _uniform(state):
    """A number between 0 and 1 (xorshift64*); Numba's own generator is one for each thread."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) * 2.0**-53


# ---------------------------------------------------------------- scores of trees
# Scores of decision trees that lie in plain arrays, one after the other.

# Rows that go down a tree together: with their features they fit in the cache of a processor.
_ROWS_OF_TREE = 64


def add_up_trees(
    X: np.ndarray,
    roots: np.ndarray,
    feature: np.ndarray,
    threshold: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    value: np.ndarray,
) -> np.ndarray:
    """Σ over trees of the value of the leaf that each row of X ends in.

    Parameters
    ----------
    X : float32 array of shape (m, n)
    roots : int array of shape (t,)
    feature, threshold, left, right, value : arrays of shape (k,)
        A node is a leaf where ``left`` is 0, and then ``right`` is; otherwise x[feature] <= threshold leads to
        ``left``. Children come after their parent, so that every walk ends. Thresholds are compared in float32.
    """
    out = np.zeros(X.shape[0])
    least = 1 + (1 << 15) // max(1, roots.shape[0])  # as many rows times trees are worth a thread
    arrays = (X, roots, feature, threshold, left, right, value, out)
    over_ranges(_add_up, X.shape[0], *arrays, least=least)
    return out


@njit(cache=True, nogil=True)
def _add_up(X, roots, feature, threshold, left, right, value, out, first, last):
    columns, nodes = np.zeros((X.shape[1], _ROWS_OF_TREE), np.float32), np.empty(_ROWS_OF_TREE, np.int32)
    for start in range(first, last, _ROWS_OF_TREE):
        n = min(start + _ROWS_OF_TREE, last) - start
        for i in range(n):
            for j in range(X.shape[1]):
                columns[j, i] = X[start + i, j]
        for tree in range(roots.shape[0]):
            nodes[:] = roots[tree]
            end = roots[tree + 1] if tree + 1 < roots.shape[0] else left.shape[0]
            for node in range(roots[tree], end):  # children come after their parent
                if left[node] > 0:
                    limit, children = (
                        np.float32(threshold[node]),
                        (np.int32(left[node]), np.int32(right[node])),
                    )
                    _pass_on(nodes, np.int32(node), columns[feature[node]], limit, children)
            for i in range(n):
                out[start + i] += value[nodes[i]]


@njit(cache=True, nogil=True)
def _pass_on(nodes, node, x, limit, children):
    """Rows that are at a node go to one of its children: without jumps, in instructions that take several rows."""
    left, right = children
    for i in range(_ROWS_OF_TREE):
        child = left if x[i] <= limit else right
        nodes[i] = child if nodes[i] == node else nodes[i]
