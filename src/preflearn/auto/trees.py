r"""Trees as plain arrays: f(x) = Σ over trees of the value of the leaf that x ends in.

Boosted trees are grown by `_loops.boosting` on pairs inside queries, random ones by scikit-learn on targets that are
centred inside queries,

    t_i = y_i - mean of y over the query of i,

so that they spend no leaf on what only tells queries apart. Once grown, they are arrays of numbers: features,
thresholds, children, values. These can be checked when a model is loaded, which scikit-learn's own trees cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..numerics.onnx_graph import Graph, Value
from ..numerics.threads import in_turns
from ._loops.trees import add_up_trees
from .onnx_nodes import tree_nodes

# Minimum number of rows whose quantiles are the edges of bins, or all rows.
_ROWS_FOR_EDGES = 20_000
# Values whose relative difference is no more than this may be one value in float32, whose rounding is a quarter of it;
# and the same for differences that cancelled, relative to the largest value.
_ROUNDED, _CANCELLED = 2.0**-22, 2.0**-46
# Files may hold shorter numbers; the loop is compiled for one kind.
_NODE_ARRAYS = {
    "roots_": np.int64,
    "feature_": np.int64,
    "threshold_": np.float64,
    "left_": np.int64,
    "right_": np.int64,
    "value_": np.float64,
}


class Bins:
    """Features as small whole numbers, the same for every fold.

    The code of x is the number of edges below it: x <= edge k means code <= k.

    Parameters
    ----------
    X : ndarray of shape (m, n)
    n_bins : int
        Number of distinct values that a feature is reduced to; at most 256.

    Attributes
    ----------
    edges : ndarray of shape (n, n_bins - 1)

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [2.0], [8.0], [9.0]])
    >>> Bins(X, 2).codes_of(X).ravel()
    array([0, 0, 1, 1], dtype=uint8)
    """

    def __init__(self, X: np.ndarray, n_bins: int) -> None:
        shares = np.arange(1, n_bins) / n_bins
        rows = X[:: max(1, X.shape[0] // _ROWS_FOR_EDGES)].astype(np.float64)
        rows.sort(axis=0)
        self.edges = np.ascontiguousarray(_quantiles(rows, shares).T)
        for k in range(X.shape[1]):
            if (np.diff(self.edges[k]) == 0).any():  # values that many rows share
                values = np.unique(X[:, k]).astype(np.float64)
                if 1 < values.shape[0] <= n_bins:
                    self.edges[k] = values[np.minimum(np.arange(n_bins - 1), values.shape[0] - 2)]
                    self.edges[k] = _between(self.edges[k], values)
                    continue
            self.edges[k] = _between(self.edges[k], rows[:, k])

    def codes_of(self, X: np.ndarray) -> np.ndarray:
        """The codes of rows, uint8 of shape (m, n)."""
        codes = np.empty(X.shape, dtype=np.uint8)

        def fill(k: int) -> None:
            codes[:, k] = np.searchsorted(self.edges[k], X[:, k])

        in_turns(fill, [(k,) for k in range(X.shape[1])])
        return codes

    def code_of_edges(self, feature: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """The codes k that edges of some features have: x <= edge means code <= k."""
        codes = np.zeros(feature.shape[0], dtype=np.int64)
        for k in np.unique(feature):
            codes[feature == k] = np.searchsorted(self.edges[k], edges[feature == k])
        return codes


def _quantiles(ordered: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """``np.quantile(..., method="midpoint")`` of columns that are in order already, shape (shares, n)."""
    place = shares * (ordered.shape[0] - 1)
    return (ordered[np.floor(place).astype(np.int64)] + ordered[np.ceil(place).astype(np.int64)]) / 2


def _between(edges: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """The edges moved between the values: half-way from the last value below to the first above that differs from it.

    An edge on a value, or between two that differ by rounding, would tell rows apart by their last digit, which another
    program, float32 numbers or another order of summation do not share.

    Parameters
    ----------
    edges : ndarray of shape (k,)
        None below the smallest value.
    ordered : ndarray of shape (m,)
        Values of the feature, ascending.
    """
    low, high = ordered[0], ordered[-1]
    # Values near 0 of a feature with both signs are what is left of larger ones.
    floor = _CANCELLED * max(-low, high) if low < 0 < high else 0.0
    below = ordered[np.searchsorted(ordered, edges, side="right") - 1]
    last = np.searchsorted(ordered, below + np.maximum(_ROUNDED * np.abs(below), floor), side="right") - 1
    following = ordered[np.minimum(last + 1, ordered.shape[0] - 1)]
    edges = np.maximum(ordered[last] / 2 + following / 2, ordered[last])
    # No value follows the largest one: an edge there stands clear of its rounding.
    beyond = high + max(_ROUNDED * abs(high), floor)
    return np.where(last == ordered.shape[0] - 1, beyond, edges)


def _below_each_other(parts: Sequence[tuple]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The arrays of all parts, and the number of nodes of each."""
    sizes = np.array([part[0].shape[0] for part in parts])
    return tuple(np.concatenate(one) for one in zip(*parts, strict=True)), sizes


class TreeSum(BaseEstimator):
    """A sum of regression trees in plain arrays.

    Attributes
    ----------
    roots_ : ndarray of int of shape (t,)
        The first node of each tree.
    feature_, threshold_ : ndarray of shape (k,)
        Of each node: rows with x[feature] <= threshold go left. Compared in float32.
    left_, right_ : ndarray of int of shape (k,)
        The children; 0 for a leaf.
    value_ : ndarray of shape (k,)
        What a leaf adds to the score.
    feature_importances_ : ndarray of shape (n,)
        Share of the gain of all splits; they sum to 1.
    n_features_in_ : int
    """

    @classmethod
    def of_boosting(cls, grown: Sequence[tuple], bins: Bins) -> TreeSum:
        """Trees of `_loops.boosting.grow_trees`, which were grown on codes of bins; for the features themselves.

        Parameters
        ----------
        grown : sequence of tuples
            What one call after the other has returned.
        bins : Bins
        """
        feature, code, left, right, value, gain, sizes = (
            np.concatenate(one) for one in zip(*grown, strict=True)
        )
        kept = np.arange(feature.shape[1]) < sizes[:, None]
        inner = kept & (left > 0)
        gains = np.bincount(feature[inner], weights=gain[inner], minlength=bins.edges.shape[0])
        nodes = tuple(one[kept] for one in (feature, bins.edges[feature, code], left, right, value))
        return cls()._join(nodes, nodes[2] == 0, sizes, bins.edges.shape[0], gains)

    @classmethod
    def of_mean(cls, models: Sequence[Any]) -> TreeSum:
        """The mean of fitted regression trees."""
        trees = [one.tree_ for one in models]
        parts = [
            (
                one.feature,
                one.threshold,
                one.children_left,
                one.children_right,
                one.value[:, 0, 0] / len(trees),
            )
            for one in trees
        ]
        nodes, sizes = _below_each_other(parts)
        gains = np.sum([one.compute_feature_importances(normalize=True) for one in trees], axis=0)
        return cls()._join(nodes, nodes[2] < 0, sizes, models[0].n_features_in_, gains)

    @classmethod
    def mean(cls, sums: Sequence[TreeSum]) -> TreeSum:
        """The mean of several sums of trees."""
        parts = [
            (one.feature_, one.threshold_, one.left_, one.right_, one.value_ / len(sums)) for one in sums
        ]
        nodes, sizes = _below_each_other(parts)
        gains = np.sum([one.feature_importances_ for one in sums], axis=0)
        found = cls()._join(nodes, nodes[2] == 0, sizes, sums[0].n_features_in_, gains)
        # Every part is a sum of trees itself, which begin where its own roots are.
        starts = zip(found.roots_, sums, strict=True)
        found.roots_ = np.concatenate([start + one.roots_ for start, one in starts])
        return found

    def _join(
        self,
        nodes: tuple[np.ndarray, ...],
        is_leaf: np.ndarray,
        sizes: np.ndarray,
        n_features: int,
        gains: np.ndarray,
    ) -> TreeSum:
        """Nodes of one part after the other, whose children are counted from the beginning of their part."""
        self.roots_ = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        offset = np.repeat(self.roots_, sizes)
        feature, threshold, left, right, value = nodes
        self.feature_ = np.where(is_leaf, 0, feature).astype(np.int64)
        self.threshold_ = _down_to_float32(np.where(is_leaf, 0.0, threshold))
        self.left_ = np.where(is_leaf, 0, left.astype(np.int64) + offset)
        self.right_ = np.where(is_leaf, 0, right.astype(np.int64) + offset)
        self.value_ = value.astype(np.float64)
        self.n_features_in_ = int(n_features)
        total = float(gains.sum())
        self.feature_importances_ = gains / total if total > 0 else np.full(n_features, 1.0 / n_features)
        return self

    def with_values(self, values: np.ndarray) -> TreeSum:
        """The same trees with other values, shape (k,)."""
        found = copy(self)
        found.value_ = values
        return found

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Scores of the rows of X, shape (m,)."""
        X = np.ascontiguousarray(X, dtype=np.float32)
        arrays = (getattr(self, name).astype(kind, copy=False) for name, kind in _NODE_ARRAYS.items())
        return add_up_trees(X, *arrays)

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `predict` computes, recorded (`numerics.graph`)."""
        return tree_nodes(graph, X, self)

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that loaded trees are checked for, and whether each walk stays inside and ends."""
        if "roots_" not in vars(self):
            return {}
        _refuse_tangles(*(np.asarray(getattr(self, name)) for name in ("roots_", "left_", "right_")))
        return {
            "roots_": "t < k",
            "feature_": "k < n",
            "threshold_": "k",
            "left_": "k <",
            "right_": "k <",
            "value_": "k",
            "feature_importances_": "n",
        }


def _down_to_float32(thresholds: np.ndarray) -> np.ndarray:
    """The largest float32 numbers up to these: features are compared in float32, so comparisons stay what they are."""
    found = thresholds.astype(np.float32)
    above = found > thresholds
    found[above] = np.nextafter(found[above], np.float32(-np.inf))
    return found.astype(np.float64)


def _refuse_tangles(roots: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Refuse nodes that are not trees one after the other: walks would leave the arrays, not end, or end elsewhere.

    Raises
    ------
    ValueError
    """
    n_nodes = left.shape[0]
    if roots.size == 0 or roots[0] != 0 or (roots[1:] <= roots[:-1]).any() or roots[-1] >= n_nodes:
        raise ValueError("roots_ does not name the first node of each tree, in ascending order from 0")
    inner = np.flatnonzero(left != 0)
    last = np.append(roots[1:], n_nodes)[np.searchsorted(roots, inner, side="right") - 1]
    n_parents = np.bincount(roots.astype(np.int64), minlength=n_nodes)
    for name, children in (("left_", left), ("right_", right)):
        if children.shape != (n_nodes,):
            raise ValueError(f"{name} has shape {children.shape}, expected ({n_nodes},)")
        if (children[inner] <= inner).any():
            raise ValueError(f"{name} names a child that does not come after its parent")
        if (children[inner] >= last).any():
            raise ValueError(f"{name} names a child outside of its tree")
        n_parents += np.bincount(children[inner].astype(np.int64), minlength=n_nodes)
    if (n_parents != 1).any() or right[left == 0].any():
        raise ValueError("left_ and right_ do not name every node but the roots exactly once")
