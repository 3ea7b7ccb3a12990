"""Scores of decision trees that lie in plain arrays, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from .threads import over_ranges

# Rows times trees that are worth a thread of their own, walked and by bits.
_LEAST = 1 << 15
_LEAST_BY_BITS = 1 << 18
# Rows that go down a tree together: with their features they fit in the cache of a processor.
_ROWS = 64
# Up to this many rows, each goes down by itself: preparing the common walk would cost more.
_FEW_ROWS = 16
# Leaves of a tree for which a bit each is kept, and up to which a table says which bit is the lowest.
_MOST_LEAVES = 64
_TABLE_LEAVES = 16
# A number whose multiples by powers of two differ in their first six bits (de Bruijn).
_LOWEST = np.uint64(0x03F79D71B4CB0A89)


@dataclass(frozen=True)
class Nodes:
    """The nodes of all trees.

    A node is a leaf where ``left`` is 0; otherwise x[feature] <= threshold leads to ``left``. Children come after their
    parent, so that every walk ends.

    Attributes
    ----------
    roots : int array of shape (t,)
    feature, threshold, left, right, value : arrays of shape (k,)
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.roots, self.feature, self.threshold, self.left, self.right, self.value


@dataclass(frozen=True)
class LeafMasks:
    """Trees of at most 64 leaves as bits, one for each leaf that a row may still end in.

    Every inner node is compared with every row: a row that goes right cannot end in the leaves on the left. The lowest
    bit that stays is the leaf. There are no jumps, so that a processor compares several rows in one instruction.

    Attributes
    ----------
    starts : int array of shape (t + 1,)
        The first inner node of each tree in the next three arrays.
    feature, threshold, stays : arrays of shape (k,)
        Thresholds in float32, rounded down: comparisons with float32 numbers are the same. ``stays`` are the bits that
        a row which goes right keeps.
    first_leaf : int array of shape (t,)
    value : float array
        Of the leaves, from left to right.
    lowest : uint8 array
        The number of the lowest bit, of every number up to 2**16 where no tree has more leaves, otherwise by the first
        six bits of a product.
    """

    starts: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    stays: np.ndarray
    first_leaf: np.ndarray
    value: np.ndarray
    lowest: np.ndarray

    @classmethod
    def of(cls, nodes: Nodes) -> LeafMasks | None:
        """None where a tree has more leaves. O(k)."""
        n = nodes.left.shape[0]
        with np.errstate(over="ignore"):  # beyond float32 everything is on the left
            threshold = nodes.threshold.astype(np.float32)
        above = threshold > nodes.threshold
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        starts, first_leaf = (
            np.zeros(nodes.roots.shape[0] + 1, np.int64),
            np.zeros(nodes.roots.shape[0] + 1, np.int64),
        )
        feature, limits = np.empty(n, np.int32), np.empty(n, np.float32)
        stays, value = np.empty(n, np.uint64), np.empty(n)
        arrays = (nodes.roots, nodes.feature, threshold, nodes.left, nodes.right, nodes.value)
        if not _to_masks(*arrays, starts, first_leaf, feature, limits, stays, value):
            return None
        inner, leaves = int(starts[-1]), int(first_leaf[-1])
        most = int(np.diff(first_leaf).max(initial=1))
        return cls(
            starts,
            feature[:inner].copy(),
            limits[:inner].copy(),
            stays[:inner].astype(np.uint32 if most <= 32 else np.uint64),
            first_leaf[:-1].copy(),
            value[:leaves].copy(),
            _lowest_bits(most),
        )


def add_up_trees(X: np.ndarray, nodes: Nodes, masks: LeafMasks | None) -> np.ndarray:
    """Σ over trees of the value of the leaf that each row of X ends in.

    Parameters
    ----------
    X : float32 array of shape (m, n)
    nodes : Nodes
    masks : LeafMasks or None
        Of the same trees. With them O(m · nodes / rows compared at once), otherwise O(m · trees · depth): many rows go
        down together, a level at a time, and the next node of a row is read from a table instead of being jumped to.
    """
    out = np.zeros(X.shape[0])
    n_trees = nodes.roots.shape[0]
    if X.shape[0] <= _FEW_ROWS:
        _walk(X, *nodes.arrays, out)
        return out
    least = 1 + (_LEAST if masks is None else _LEAST_BY_BITS) // max(1, n_trees)
    if masks is not None:
        data = (masks.starts, masks.feature, masks.threshold, masks.stays, masks.first_leaf, masks.value)
        over_ranges(_by_bits, X.shape[0], X, *data, masks.lowest, out, least=least)
        return out
    children, depth = _levels(nodes.roots, nodes.left, nodes.right)
    arguments = (X, nodes.roots, nodes.feature, nodes.threshold, children, depth, nodes.value, out)
    over_ranges(_descend, X.shape[0], *arguments, least=least)
    return out


def _lowest_bits(most: int) -> np.ndarray:
    if most <= _TABLE_LEAVES:
        lowest = np.zeros(1 << max(most, 7), np.uint8)
        for bit in range(most - 1, -1, -1):
            lowest[1 << bit :: 1 << (bit + 1)] = bit
        return lowest
    lowest = np.zeros(_MOST_LEAVES, np.uint8)
    powers = np.uint64(1) << np.arange(_MOST_LEAVES, dtype=np.uint64)
    lowest[(powers * _LOWEST) >> np.uint64(58)] = np.arange(_MOST_LEAVES)
    return lowest


@njit(cache=True, nogil=True)
def _walk(X, roots, feature, threshold, left, right, value, out):
    for i in range(X.shape[0]):
        for tree in range(roots.shape[0]):
            node = roots[tree]
            while left[node] > 0:
                node = left[node] if X[i, feature[node]] <= threshold[node] else right[node]
            out[i] += value[node]


@njit(cache=True, nogil=True)
def _to_masks(
    roots, feature, threshold, left, right, value, starts, first_leaf, out_feature, out_threshold, stays, out_value
):  # fmt: skip
    """Fill the arrays of `LeafMasks`; False where a tree has too many leaves."""
    nodes = np.empty(2 * _MOST_LEAVES, np.int64)
    parents = np.empty(2 * _MOST_LEAVES, np.int64)
    firsts = np.zeros(left.shape[0], np.int64)
    inner, leaves = 0, 0
    for tree in range(roots.shape[0]):
        begin = leaves
        nodes[0], parents[0], size = roots[tree], -1, 1
        while size > 0:
            size -= 1
            node, parent = nodes[size], parents[size]
            if parent >= 0:
                # All leaves on the left of the parent have been seen: those from its first to here.
                bits = (np.uint64(1) << np.uint64(leaves - begin)) - (
                    np.uint64(1) << np.uint64(firsts[parent])
                )
                stays[parent] = ~bits
            if left[node] == 0:
                if leaves - begin == _MOST_LEAVES or leaves == out_value.shape[0]:
                    return False
                out_value[leaves] = value[node]
                leaves += 1
                continue
            if size + 2 > nodes.shape[0] or inner == out_feature.shape[0]:
                return False
            out_feature[inner], out_threshold[inner] = feature[node], threshold[node]
            firsts[inner] = leaves - begin
            nodes[size], parents[size] = right[node], inner
            nodes[size + 1], parents[size + 1] = left[node], -1
            size += 2
            inner += 1
        starts[tree + 1], first_leaf[tree + 1] = inner, leaves
    return True


@njit(cache=True, nogil=True)
def _columns(X, start, n, columns):
    """The features of some rows, rows of a feature side by side."""
    for i in range(n):
        for j in range(X.shape[1]):
            columns[j, i] = X[start + i, j]


@njit(cache=True, nogil=True)
def _leave(columns, feature, threshold, stays, first, last, masks):
    """Clear the leaves that rows cannot end in, by the inner nodes of one tree."""
    masks[:] = ~np.uint64(0)
    for node in range(first, last):
        x, limit, kept = columns[feature[node]], threshold[node], stays[node]
        everything = kept | ~kept
        for i in range(_ROWS):
            masks[i] &= everything if x[i] <= limit else kept


@njit(cache=True, nogil=True)
def _by_bits(X, starts, feature, threshold, stays, first_leaf, value, lowest, out, first, last):
    columns, masks = np.zeros((X.shape[1], _ROWS), np.float32), np.empty(_ROWS, stays.dtype)
    by_table, wide = lowest.shape[0] > _MOST_LEAVES, lowest.shape[0] - 1
    for start in range(first, last, _ROWS):
        n = min(start + _ROWS, last) - start
        _columns(X, start, n, columns)
        for tree in range(first_leaf.shape[0]):
            leaf = first_leaf[tree]
            _leave(columns, feature, threshold, stays, starts[tree], starts[tree + 1], masks)
            if by_table:
                for i in range(n):
                    out[start + i] += value[leaf + lowest[masks[i] & wide]]
                continue
            for i in range(n):
                bit = np.uint64(masks[i])
                bit &= ~bit + np.uint64(1)
                out[start + i] += value[leaf + lowest[(bit * _LOWEST) >> np.uint64(58)]]


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
