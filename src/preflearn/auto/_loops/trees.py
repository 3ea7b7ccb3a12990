"""Scores of decision trees that lie in plain arrays, one after the other."""

from __future__ import annotations

import numpy as np

from ...numerics.compiling import njit
from ...numerics.threads import over_ranges

# Rows times trees that are worth a thread of their own.
_LEAST = 1 << 15
# Rows that go down a tree together: with their features they fit in the cache of a processor.
_ROWS = 64
# Nodes of a tree up to which every node looks at every row, in instructions that take several rows at once.
_FEW_NODES = 128


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
    least = 1 + _LEAST // max(1, roots.shape[0])
    over_ranges(
        _add_up, X.shape[0], X, roots, feature, threshold, left, right, value, out, least=least, align=_ROWS
    )
    return out


@njit(cache=True, nogil=True)
def _add_up(X, roots, feature, threshold, left, right, value, out, first, last):
    columns, nodes = np.zeros((X.shape[1], _ROWS), np.float32), np.empty(_ROWS, np.int32)
    for start in range(first, last, _ROWS):
        n = min(start + _ROWS, last) - start
        for i in range(n):
            for j in range(X.shape[1]):
                columns[j, i] = X[start + i, j]
        for tree in range(roots.shape[0]):
            root = roots[tree]
            end = roots[tree + 1] if tree + 1 < roots.shape[0] else left.shape[0]
            nodes[:] = root
            if end - root <= _FEW_NODES:
                for node in range(root, end):
                    if left[node] > 0:
                        limit = np.float32(threshold[node])
                        _pass_on(
                            nodes, np.int32(node), columns[feature[node]], limit, left[node], right[node]
                        )
            else:
                _descend(nodes[:n], columns, feature, threshold, left, right)
            for i in range(n):
                out[start + i] += value[nodes[i]]


@njit(cache=True, nogil=True)
def _pass_on(nodes, node, x, limit, left, right):
    """Rows that are at a node go to one of its children."""
    left, right = np.int32(left), np.int32(right)
    for i in range(_ROWS):
        child = left if x[i] <= limit else right
        nodes[i] = child if nodes[i] == node else nodes[i]


@njit(cache=True, nogil=True)
def _descend(nodes, columns, feature, threshold, left, right):
    """All rows go to a leaf, a level at a time."""
    moves = True
    while moves:
        moves = False
        for i in range(nodes.shape[0]):
            node = nodes[i]
            goes_left = columns[feature[node], i] <= np.float32(threshold[node])
            child = np.int32(left[node] if goes_left else right[node])
            moves |= child > node
            nodes[i] = max(node, child)
