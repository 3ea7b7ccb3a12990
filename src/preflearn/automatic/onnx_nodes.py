"""The parts of an `AutoRanker` as recorded operators, for `preflearn.io.to_onnx`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.special import ndtr, ndtri

from .._engine.numerics.graph import Graph, Value

# Terms of the series for normal quantiles; the error is below 1e-12.
_TERMS = 28


def quantile_nodes(graph: Graph, X: Value, transformer: Any, most: float) -> Value:
    """Normal quantiles of the columns of X, clipped to ±most."""
    X, every = graph.to_recognise(X, transformer.quantiles_)
    p = graph.concatenate(
        [
            _share_below(graph, graph.columns(X, [k]), knots, transformer.references_)
            for k, knots in enumerate(every.T)
        ]
    )
    return _normal_quantile(graph, p, most)


def _share_below(graph: Graph, x: Value, knots: np.ndarray, heights: np.ndarray) -> Value:
    """Piecewise linear through the knots, half of the jump where several knots are equal; 0 and 1 at the ends.

    A sum over pieces of slope · (part of the piece below x): no search, and no loop in the graph.
    """
    widths, rises = np.diff(knots), np.diff(heights)
    rising, jumping = widths > 0, (widths == 0) & (rises > 0)
    parts = []
    if rising.any():
        covered = (x - knots[:-1][rising]).at_least(0.0).at_most(widths[rising])
        parts.append((covered * (rises[rising] / widths[rising])).reduce("Sum", 1))
    if jumping.any():
        places, back = np.unique(knots[:-1][jumping], return_inverse=True)
        jumps = np.bincount(back, weights=rises[jumping])
        passed = graph.apply("GreaterOrEqual", x, places).as_numbers()
        beyond = graph.apply("Greater", x, places).as_numbers()
        parts.append(((passed + beyond) * (jumps / 2.0)).reduce("Sum", 1))
    p = sum(parts[1:], parts[0])
    p = graph.where(graph.apply("GreaterOrEqual", x, knots[-1]), 1.0, p)
    return graph.where(graph.apply("LessOrEqual", x, knots[0]), 0.0, p)


def _normal_quantile(graph: Graph, p: Value, most: float) -> Value:
    """Φ⁻¹(p), clipped to ±most: a Chebyshev series in t = √(-2 log p) for the lower half, mirrored for the upper."""
    lower = p.less(0.5)
    tail = graph.where(lower, p, 1.0 - p).at_least(ndtr(-most)).at_most(0.5)
    t = (tail.log() * -2.0).sqrt()
    ends = np.sqrt(-2.0 * np.log([0.5, ndtr(-most)]))
    series = Chebyshev.interpolate(lambda at: -ndtri(np.exp(-(at**2) / 2.0)), _TERMS, domain=ends)
    size = _evaluate(graph, series, t).at_least(0.0).at_most(most)
    return size * graph.where(lower, -1.0, 1.0)


def _evaluate(graph: Graph, series: Chebyshev, t: Value) -> Value:
    """Clenshaw's recurrence."""
    offset, scale = series.mapparms()
    u = t * scale + offset
    doubled = u * 2.0
    after, current = graph.constant(0.0), graph.constant(float(series.coef[-1]))
    for coefficient in series.coef[-2:0:-1]:
        after, current = current, doubled * current - after + float(coefficient)
    return u * current - after + float(series.coef[0])


def tree_nodes(graph: Graph, X: Value, trees: Any) -> Value:
    """Σ over trees of the value of the leaf that a row ends in, shape (m,). Rows are compared in float32."""
    rows = graph.apply("Cast", graph.apply("Cast", X, to="float32"), to="float64")
    sizes = np.diff(np.append(trees.roots_, trees.left_.shape[0]))
    number = np.repeat(np.arange(sizes.shape[0]), sizes)
    node = np.arange(trees.left_.shape[0]) - np.repeat(trees.roots_, sizes)
    inner = trees.left_ > 0
    first = np.repeat(trees.roots_, sizes)
    found = graph.apply(
        "TreeEnsembleRegressor",
        rows,
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=number.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=np.where(inner, trees.feature_, 0).tolist(),
        nodes_modes=np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        nodes_values_as_tensor=trees.threshold_,
        nodes_truenodeids=np.where(inner, trees.left_ - first, 0).tolist(),
        nodes_falsenodeids=np.where(inner, trees.right_ - first, 0).tolist(),
        target_treeids=number[~inner].tolist(),
        target_nodeids=node[~inner].tolist(),
        target_ids=[0] * int((~inner).sum()),
        target_weights_as_tensor=trees.value_[~inner],
    )
    # The operator adds up in float64 and returns float32.
    return found.without_axis(1).as_numbers()
