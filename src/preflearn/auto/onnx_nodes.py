"""The parts of an `AutoRanker` as recorded operators, for `preflearn.io.to_onnx`.

Normal quantiles of a feature are a polynomial on each of several hundred pieces of its range. A tree finds the piece:
there is no other search among the operators, and comparing every value with every knot takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import ndtr, ndtri

from ..numerics.onnx_graph import Graph, Value

# Of the polynomials of normal quantiles.
_DEGREE = 5


def quantile_nodes(graph: Graph, X: Value, transformer: Any, most: float) -> Value:
    """Normal quantiles of the columns of X, clipped to ±most."""
    X, every = graph.to_recognise(X, transformer.quantiles_)
    columns = [_pieces(knots, transformer.references_, most) for knots in every.T]
    starts = np.concatenate([[0], np.cumsum([table.shape[0] for _, table in columns])])
    nodes = [_search_tree(limits) for limits, _ in columns]
    sizes = np.array([one.shape[0] for one in nodes])
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    low, high, middle, left, right = np.concatenate(nodes).T
    column = np.repeat(np.arange(len(columns)), sizes)
    inner = low < high
    limit = np.concatenate([limits for limits, _ in columns] or [np.empty(0)])
    first_limit = np.repeat(
        starts[:-1] - np.arange(len(columns)), sizes
    )  # a column has one limit less than pieces
    place = _ensemble_nodes(
        graph,
        X,
        number=column,
        node=np.arange(low.shape[0]) - roots[column],
        feature=column,
        threshold=np.where(inner, limit[np.where(inner, first_limit + middle, 0)], 0.0),
        inner=inner,
        left=left,
        right=right,
        target=column,
        value=(starts[column] + low).astype(np.float64),
        n_targets=len(columns),
    )
    table = np.concatenate([table for _, table in columns])
    found = graph.apply("Gather", table, graph.apply("Cast", place, to="int64"), axis=0)
    width = table.shape[1]
    start, per_width, before, *coefficients = graph.apply(
        "Split", found, axis=2, n_outputs=width, num_outputs=width
    )
    v = (X.with_axis(2) - start) * per_width + before
    z = coefficients[-1]
    for one in coefficients[-2::-1]:
        z = z * v + one
    return z.without_axis(2)


def _pieces(knots: np.ndarray, heights: np.ndarray, most: float) -> tuple[np.ndarray, np.ndarray]:
    """Φ⁻¹ of what `_loops.quantiles.shares_below` computes, clipped, as polynomials in
    v = (x - start) · per_width + before.

    A start is a knot, which is exact: where knots differ by their last digits alone, as interpolated ones of repeated
    values do, the beginning of a part of the piece between them would be rounded to its end.

    Returns
    -------
    limits : ndarray of shape (k - 1,)
        Piece i holds the values that are above limit i - 1 and not above limit i.
    table : ndarray of shape (k, 3 + degree + 1)
        Start, 1 / width, v of the start and the coefficients of each piece.
    """
    values, first, counts = np.unique(knots, return_index=True, return_counts=True)
    last, n = first + counts - 1, values.shape[0]
    limits, rows = [values[0]], [_constant(-most)]
    for i in range(n - 1):
        low, high = float(heights[last[i]]), float(heights[first[i + 1]])
        width = values[i + 1] - values[i]
        parts = list(_smooth_parts(low, high, most))
        for begin, end, coefficients in parts:
            length, near = (end - begin) * width, i + (begin >= 0.5)
            if length > 1e-290:  # otherwise its inverse is infinite, or nearly so
                before = (near - i - begin) / (end - begin)
                rows.append(np.array([values[near], 1.0 / length, before, *coefficients]))
            else:
                rows.append(_constant(float(np.sum(coefficients))))
            limits.append(min(values[i] + end * width, np.nextafter(values[i + 1], -np.inf)))
        # A value that many rows share lies in the middle of its jump; at the ends there is nothing beyond.
        is_last, jumps = i + 1 == n - 1, counts[i + 1] > 1
        limits[-1] = np.nextafter(values[i + 1], -np.inf) if is_last or jumps else values[i + 1]
        if jumps and not is_last:
            share = 0.5 * (heights[first[i + 1]] + heights[last[i + 1]])
            rows.append(_constant(float(np.clip(ndtri(share), -most, most))))
            limits.append(values[i + 1])
    rows.append(_constant(most))
    return np.array(limits), np.array(rows)


def _constant(value: float) -> np.ndarray:
    return np.array([0.0, 0.0, 0.0, value, *([0.0] * _DEGREE)])


@lru_cache(maxsize=1 << 14)
def _smooth_parts(low: float, high: float, most: float) -> tuple[tuple[float, float, tuple[float, ...]], ...]:
    """Clipped Φ⁻¹ between two shares: (begin, end, coefficients) of its parts, in units of high - low."""
    ends = np.clip([ndtr(-most), ndtr(most)], low, high)
    parts: list[tuple[float, float, tuple[float, ...]]] = []
    for begin, end in ((low, ends[0]), (ends[0], ends[1]), (ends[1], high)):
        if begin == end:
            continue
        if end <= ends[0] or begin >= ends[1]:
            level = -most if end <= ends[0] else most
            found: Iterator = iter([(begin, end, (level, *([0.0] * _DEGREE)))])
        else:
            found = _fitted(begin, end)
        parts += [((a - low) / (high - low), (b - low) / (high - low), c) for a, b, c in found]
    return tuple(parts)


def _fitted(begin: float, end: float, depth: int = 0) -> Iterator[tuple[float, float, tuple[float, ...]]]:
    """Polynomials on parts of the interval, which is halved until their error is at most 1e-12, or it is rounding."""
    series = Chebyshev.interpolate(lambda v: ndtri(begin + v * (end - begin)), _DEGREE, domain=[0.0, 1.0])
    polynomial = series.convert(kind=Polynomial)
    v = np.linspace(0.0, 1.0, 33)
    if depth == 40 or np.abs(polynomial(v) - ndtri(begin + v * (end - begin))).max() <= 1e-12:
        coefficients = np.zeros(_DEGREE + 1)
        coefficients[: polynomial.coef.shape[0]] = polynomial.coef
        yield begin, end, tuple(coefficients.tolist())
        return
    middle = 0.5 * (begin + end)
    yield from _fitted(begin, middle, depth + 1)
    yield from _fitted(middle, end, depth + 1)


def _search_tree(limits: np.ndarray) -> np.ndarray:
    """The nodes of a balanced tree whose leaves are the pieces: first piece, last piece, limit, children; shape (k, 5).

    A leaf has one piece. Rows up to the limit go to the first child.
    """
    nodes = [[0, limits.shape[0], 0, 0, 0]]
    for node in nodes:  # which grows meanwhile
        low, high = node[:2]
        if low < high:
            middle = (low + high) // 2
            node[2:] = [middle, len(nodes), len(nodes) + 1]
            nodes += [[low, middle, 0, 0, 0], [middle + 1, high, 0, 0, 0]]
    return np.array(nodes)


def tree_nodes(graph: Graph, X: Value, trees: Any) -> Value:
    """Σ over trees of the value of the leaf that a row ends in, shape (m,). Rows are compared in float32."""
    rows = graph.apply("Cast", graph.apply("Cast", X, to="float32"), to="float64")
    sizes = np.diff(np.append(trees.roots_, trees.left_.shape[0]))
    first = np.repeat(trees.roots_, sizes)
    found = _ensemble_nodes(
        graph,
        rows,
        number=np.repeat(np.arange(sizes.shape[0]), sizes),
        node=np.arange(first.shape[0]) - first,
        feature=trees.feature_,
        threshold=trees.threshold_,
        inner=trees.left_ > 0,
        left=trees.left_ - first,
        right=trees.right_ - first,
        target=np.zeros(first.shape[0], np.int64),
        value=trees.value_,
        n_targets=1,
    )
    # The operator adds up in float64 and returns float32.
    return found.without_axis(1).as_numbers()


def _ensemble_nodes(
    graph: Graph,
    X: Value,
    *,
    number: np.ndarray,
    node: np.ndarray,
    feature: np.ndarray,
    threshold: np.ndarray,
    inner: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    target: np.ndarray,
    value: np.ndarray,
    n_targets: int,
) -> Value:
    """Sums of the values of leaves, by target, float32 of shape (m, n_targets).

    All arrays have an entry for each node; of leaves those of children do not matter, of inner nodes target and value.
    Numbers of nodes are counted from the root of their tree.
    """
    return graph.apply(
        "TreeEnsembleRegressor",
        X,
        domain="ai.onnx.ml",
        n_targets=n_targets,
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=number.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=np.where(inner, feature, 0).tolist(),
        nodes_modes=np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        nodes_values_as_tensor=np.asarray(threshold, dtype=np.float64),
        nodes_truenodeids=np.where(inner, left, 0).tolist(),
        nodes_falsenodeids=np.where(inner, right, 0).tolist(),
        target_treeids=number[~inner].tolist(),
        target_nodeids=node[~inner].tolist(),
        target_ids=target[~inner].tolist(),
        target_weights_as_tensor=np.asarray(value[~inner], dtype=np.float64),
    )
