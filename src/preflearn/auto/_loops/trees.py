"""Scores of decision trees that lie in plain arrays, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...numerics.compiling import njit
from ...numerics.threads import over_ranges
from ...numerics.vectors import in_all_lanes

# Rows times trees that are worth a thread of their own, walked and by bits.
_LEAST = 1 << 15
_LEAST_BY_BITS = 1 << 18
# Rows that go down a tree together: with their features they fit in the cache of a processor.
_ROWS = 64
# Up to this many rows, each goes down by itself: the others of a block would cost more.
_FEW_ROWS = 1
# Leaves of a tree for which a bit each is kept, those of a word, and rows that are compared at once (a processor
# without vectors of this length takes several).
_MOST_LEAVES = 64
_WORD = 32
_LANES = 16


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
    bit that stays is the leaf. There are no jumps, so that a processor compares several rows in one instruction. Bits
    are in one word for each tree, or in two where a tree has more than 32 leaves; most nodes concern one of them.

    Attributes
    ----------
    starts : int array of shape (w t + 1,)
        The first inner node of each word of each tree in the next three arrays.
    feature, threshold, stays : int32, float32 and uint32 arrays of shape (k,)
        Thresholds rounded down: comparisons with float32 numbers are the same. ``stays`` are the bits that
        a row which goes right keeps.
    first_leaf : int array of shape (t,)
    value : float array
        Of the leaves, from left to right.
    """

    starts: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    stays: np.ndarray
    first_leaf: np.ndarray
    value: np.ndarray

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
        n_words = 1 if int(np.diff(first_leaf).max(initial=1)) <= _WORD else 2
        halves = np.stack([stays[:inner] >> np.uint64(_WORD * k) for k in range(n_words)], axis=1)
        words = halves.astype(np.uint32)
        # Of each tree first the nodes that concern the first word, then those that concern the second.
        node, word = np.nonzero(words != np.uint32(0xFFFFFFFF))
        place = np.repeat(np.arange(nodes.roots.shape[0]), np.diff(starts))[node] * n_words + word
        order = np.argsort(place, kind="stable")
        node, word = node[order], word[order]
        counts = np.bincount(place, minlength=n_words * nodes.roots.shape[0])
        return cls(
            np.concatenate([[0], np.cumsum(counts)]),
            feature[node],
            limits[node],
            words[node, word],
            first_leaf[:-1].copy(),
            value[:leaves].copy(),
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
        over_ranges(_by_bits, X.shape[0], X, *data, out, least=least)
        return out
    children, depth = _levels(nodes.roots, nodes.left, nodes.right)
    arguments = (X, nodes.roots, nodes.feature, nodes.threshold, children, depth, nodes.value, out)
    over_ranges(_descend, X.shape[0], *arguments, least=least)
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


@intrinsic
def _clear(typing_context, columns, feature, threshold, stays, first, last, masks):
    """Clear the leaves that rows cannot end in, by some inner nodes: masks_i = ∏ (x_i > limit ? stays : all bits).

    Written down as vectors, which stay in registers from the first node to the last; what Numba makes of the same loops
    stores them after each node.
    """

    def generate(context, builder, signature, arguments):
        arrays = [
            cgutils.create_struct_proxy(kind)(context, builder, value=one).data
            for kind, one in zip(signature.args, arguments, strict=True)
            if isinstance(kind, types.Array)
        ]
        x, features, limits, kept, out = arrays
        bits, numbers = ir.VectorType(ir.IntType(32), _LANES), ir.VectorType(ir.FloatType(), _LANES)
        everything = ir.Constant(bits, [-1] * _LANES)
        n_vectors = _ROWS // _LANES
        found = [cgutils.alloca_once_value(builder, everything) for _ in range(n_vectors)]
        size = builder.sub(arguments[5], arguments[4])
        with cgutils.for_range(builder, size) as loop:
            node = builder.add(arguments[4], loop.index)
            column, limit, word = (builder.load(builder.gep(one, [node])) for one in (features, limits, kept))
            limit, word = (in_all_lanes(builder, one, _LANES) for one in (limit, word))
            first_row = builder.mul(builder.sext(column, node.type), ir.Constant(node.type, _ROWS))
            for k, mask in enumerate(found):
                at = builder.gep(x, [builder.add(first_row, ir.Constant(node.type, k * _LANES))])
                values = builder.load(builder.bitcast(at, numbers.as_pointer()), align=4)
                stays_left = builder.fcmp_ordered("<=", values, limit)
                bits_left = builder.select(stays_left, everything, word)
                builder.store(builder.and_(builder.load(mask), bits_left), mask)
        for k, mask in enumerate(found):
            at = builder.gep(out, [ir.Constant(ir.IntType(64), k * _LANES)])
            builder.store(builder.load(mask), builder.bitcast(at, bits.as_pointer()), align=4)
        return context.get_dummy_value()

    wanted = (types.float32, types.int32, types.float32, types.uint32, None, None, types.uint32)
    given = (columns, feature, threshold, stays, first, last, masks)
    for kind, one in zip(wanted, given, strict=True):
        if kind is not None and not (
            isinstance(one, types.Array) and one.dtype == kind and one.layout == "C"
        ):
            return None
    return types.void(columns, feature, threshold, stays, types.intp, types.intp, masks), generate


@intrinsic
def _lowest_bit(typing_context, word):
    """The number of the lowest bit that is set."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True)
def _by_bits(X, starts, feature, threshold, stays, first_leaf, value, out, first, last):
    columns = np.zeros((X.shape[1], _ROWS), np.float32)
    low, high = np.empty(_ROWS, np.uint32), np.empty(_ROWS, np.uint32)
    n_trees = first_leaf.shape[0]
    wide = starts.shape[0] > n_trees + 1
    for start in range(first, last, _ROWS):
        n = min(start + _ROWS, last) - start
        _columns(X, start, n, columns)
        for tree in range(n_trees):
            leaf = first_leaf[tree]
            if wide:
                _clear(columns, feature, threshold, stays, starts[2 * tree], starts[2 * tree + 1], low)
                _clear(columns, feature, threshold, stays, starts[2 * tree + 1], starts[2 * tree + 2], high)
                for i in range(n):
                    bits = np.uint64(low[i]) | np.uint64(high[i]) << np.uint64(_WORD)
                    out[start + i] += value[leaf + np.int64(_lowest_bit(bits))]
            else:
                _clear(columns, feature, threshold, stays, starts[tree], starts[tree + 1], low)
                for i in range(n):
                    out[start + i] += value[leaf + np.int64(_lowest_bit(np.uint64(low[i])))]


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
