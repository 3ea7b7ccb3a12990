"""Scores of decision trees that lie in plain arrays, one after the other."""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import over_ranges

# Rows times trees that are worth a thread of their own.
_LEAST = 1 << 14
# Rows that go down a tree together: with their features they fit into the cache of a processor.
_ROWS = 64
# Up to this many rows each takes its own way: preparing the common one would cost more.
_FEW_ROWS = 16


def add_up_trees(X: np.ndarray, roots, feature, threshold, left, right, value) -> np.ndarray:
    """Σ over trees of the value of the leaf that each row of X ends in; O(m · trees · depth).

    A node is a leaf where ``left`` is 0; otherwise x[feature] <= threshold leads to ``left``. Children come after their
    parent, so that every walk ends.

    Many rows go down together, a level at a time. The next node of a row is read from a table instead of being jumped
    to, so that the processor waits neither for a comparison nor for the node of another row.
    """
    out = np.zeros(X.shape[0])
    if X.shape[0] <= _FEW_ROWS:
        _walk(X, roots, feature, threshold, left, right, value, out)
        return out
    children, depth = _levels(roots, left, right)
    arguments = (X, roots, feature, threshold, children, depth, value, out)
    over_ranges(_descend, X.shape[0], *arguments, least=1 + _LEAST // max(1, roots.shape[0]))
    return out


@njit(cache=True, nogil=True)
def _walk(X, roots, feature, threshold, left, right, value, out):
    for i in range(X.shape[0]):
        for tree in range(roots.shape[0]):
            node = roots[tree]
            while left[node] > 0:
                node = left[node] if X[i, feature[node]] <= threshold[node] else right[node]
            out[i] += value[node]


@njit(cache=True, nogil=True)
def _levels(roots, left, right):
    """The children of each node, a leaf its own child, shape (k, 2), and the depth of each tree."""
    n_nodes, n_trees = left.shape[0], roots.shape[0]
    children = np.empty((n_nodes, 2), np.int32)
    level = np.zeros(n_nodes, np.int32)
    depth = np.zeros(n_trees, np.int32)
    for tree in range(n_trees):
        last = roots[tree + 1] if tree + 1 < n_trees else n_nodes
        for node in range(roots[tree], last):
            depth[tree] = max(depth[tree], level[node])
            if left[node] > 0:
                children[node, 0], children[node, 1] = left[node], right[node]
                level[left[node]] = level[right[node]] = level[node] + 1
            else:
                children[node, 0] = children[node, 1] = node
    return children, depth


@njit(cache=True, nogil=True)
def _descend(X, roots, feature, threshold, children, depth, value, out, first, last):
    nodes = np.empty(_ROWS, np.int32)
    for start in range(first, last, _ROWS):
        n = min(start + _ROWS, last) - start
        for tree in range(roots.shape[0]):
            nodes[:n] = roots[tree]
            for _ in range(depth[tree]):
                for i in range(n):
                    node = nodes[i]
                    goes_right = not X[start + i, feature[node]] <= threshold[node]
                    nodes[i] = children[node, np.int32(goes_right)]
            for i in range(n):
                out[start + i] += value[nodes[i]]
