"""Scores of decision trees that lie in plain arrays, one after the other."""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import over_ranges

# Rows times trees that are worth a thread of their own.
_LEAST = 1 << 14


def add_up_trees(X: np.ndarray, roots, feature, threshold, left, right, value) -> np.ndarray:
    """Σ over trees of the value of the leaf that each row of X ends in; O(m · trees · depth).

    A node is a leaf where ``left`` is 0; otherwise x[feature] <= threshold leads to ``left``. Children come after their
    parent, so that every walk ends.
    """
    out = np.zeros(X.shape[0])
    arguments = (X, roots, feature, threshold, left, right, value, out)
    over_ranges(_add_up_trees, X.shape[0], *arguments, least=1 + _LEAST // max(1, roots.shape[0]))
    return out


@njit(cache=True, nogil=True)
def _add_up_trees(X, roots, feature, threshold, left, right, value, out, first, last):
    for tree in range(roots.shape[0]):
        for i in range(first, last):
            node = roots[tree]
            while left[node] > 0:
                node = left[node] if X[i, feature[node]] <= threshold[node] else right[node]
            out[i] += value[node]
