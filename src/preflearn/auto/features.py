r"""The features that candidates see: one fitted preparation, several views of it.

==================  ==============================================================================================
part                columns
==================  ==============================================================================================
plain               the features as they are
standardised        over all rows
quantiles           normal quantiles over all rows, clipped to ±3: an order of values, whatever their distribution
relative            standardised inside their query
relative quantiles  quantiles, standardised inside their query
==================  ==============================================================================================

A view is a tuple of these names, ("quantiles", "relative") for instance: one beside the other. None of them looks at y,
so one preparation serves all folds. Constant features are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from ..comparisons import Groups
from ..numerics.onnx_graph import Graph, Value
from ..numerics.threads import blas_at_rest, in_turns, threads_at_hand
from ..tables.encoding.query_relative import QueryRelative, standardised_in_queries
from ._loops import normal_quantiles
from .onnx_nodes import quantile_nodes

# Normal quantiles are clipped to this.
_MOST = 3.0
# Trees compare features in float32, and variances are sums of squares.
_LARGEST = 1e37
_SMALLEST_SPREAD = 1e-37
PARTS = ("plain", "standardised", "quantiles", "relative", "relative quantiles")
# The parts that depend on the other items of the query, and what they are made from.
OF_QUERY = {"relative": "plain", "relative quantiles": "quantiles"}


class Features(BaseEstimator):
    """The fitted preparation.

    Attributes
    ----------
    kept_ : ndarray of int of shape (k,)
        The features that are not constant.
    scaler_ : StandardScaler
    quantiles_ : QuantileTransformer
        To uniform shares; only its knots are used, by a loop that does not mind few rows.
    n_features_in_ : int
    """

    def fit(self, X: np.ndarray) -> Features:
        """Learn means, deviations and quantiles of the features that vary."""
        self.n_features_in_ = X.shape[1]
        low, high = X.min(axis=0), X.max(axis=0)
        _refuse_extremes(low, high)
        self.kept_ = np.flatnonzero(high > low)
        if self.kept_.size == 0:
            raise ValueError("Every feature is constant: there is nothing to order the rows by.")
        rows = X[:, self.kept_]
        self.scaler_ = StandardScaler().fit(rows)
        self.quantiles_ = QuantileTransformer(
            n_quantiles=min(500, rows.shape[0]),
            subsample=20_000,
            random_state=0,
        ).fit(rows)
        return self

    def views(self, X: np.ndarray, queries: Groups) -> Views:
        """The views of some rows."""
        return Views(self, X[:, self.kept_], queries)

    def to_inputs(self, importances: np.ndarray) -> np.ndarray:
        """Importances of the columns of a view, shape (parts · k,), added up for each input feature, shape (n,)."""
        out = np.zeros(self.n_features_in_)
        out[self.kept_] = importances.reshape(-1, self.kept_.size).sum(axis=0)
        return out

    def record(
        self, graph: Graph, X: Value, views: Sequence[tuple[str, ...]]
    ) -> dict[tuple[str, ...], Value]:
        """The views of all rows of a call as one query, recorded (`numerics.graph`)."""
        rows = graph.columns(X, self.kept_)
        names, parts = {name for view in views for name in view}, {"plain": rows}
        if "standardised" in names:
            parts["standardised"] = (rows - self.scaler_.mean_) / self.scaler_.scale_
        if names & {"quantiles", "relative quantiles"}:
            parts["quantiles"] = quantile_nodes(graph, rows, self.quantiles_, _MOST)
        for name, source in OF_QUERY.items():
            if name in names:
                parts[name] = QueryRelative(keep=False)._onnx_nodes(graph, parts[source])
        return {view: graph.concatenate([parts[name] for name in view]) for view in views}

    def _fitted_arrays(self) -> dict[str, str]:
        if "kept_" not in vars(self):
            return {}
        kept, scales = np.asarray(self.kept_), np.asarray(self.scaler_.scale_)
        knots, shares = np.asarray(self.quantiles_.quantiles_), np.asarray(self.quantiles_.references_)
        if kept.size == 0 or (kept[1:] <= kept[:-1]).any():
            raise ValueError("kept_ does not number at least one feature in ascending order")
        if not (scales > 0).all():
            raise ValueError("scaler_.scale_ has values that are not positive")
        # The loop over the knots reads without looking at the ends of the arrays, and finds its place by halves.
        if knots.shape[:1] == (0,):
            raise ValueError("quantiles_.quantiles_ has no knots, expected at least one for each feature")
        if (knots[1:] < knots[:-1]).any():
            raise ValueError("quantiles_.quantiles_ has knots that are not in ascending order")
        if (shares[1:] < shares[:-1]).any() or (shares < 0).any() or (shares > 1).any():
            raise ValueError("quantiles_.references_ are not ascending shares between 0 and 1")
        return {
            "kept_": "k < n",
            "scaler_.mean_": "k",
            "scaler_.scale_": "k",
            "quantiles_.quantiles_": "q k",
            "quantiles_.references_": "q",
        }


class Views:
    """Views of some rows; each part is computed when it is first asked for.

    Parameters
    ----------
    features : Features
    X : ndarray of shape (m, k)
        The features that are not constant.
    queries : Groups
    """

    def __init__(self, features: Features, X: np.ndarray, queries: Groups) -> None:
        self._features, self._queries = features, queries
        self._parts = {"plain": X}

    def __getitem__(self, view: Sequence[str]) -> np.ndarray:
        return np.hstack([self._part(name) for name in view])

    def _part(self, name: str) -> np.ndarray:
        if name not in self._parts:
            self._parts[name] = self._compute(name)
        return self._parts[name]

    def _compute(self, name: str) -> np.ndarray:
        X = self._parts["plain"]
        if name == "standardised":
            # Without the checks of `transform`: the rows have been validated.
            return (X - self._features.scaler_.mean_) / self._features.scaler_.scale_
        if name == "quantiles":
            fitted = self._features.quantiles_
            return normal_quantiles(X, fitted.quantiles_, fitted.references_, _MOST)
        return standardised_in_queries(self._part(OF_QUERY[name]), self._queries)


def _refuse_extremes(low: np.ndarray, high: np.ndarray) -> None:
    """Features whose squares overflow, or whose values are all the same to the trees."""
    size, spread = np.maximum(np.abs(low), np.abs(high)), high / 2 - low / 2
    wrong = np.flatnonzero((size > _LARGEST) | ((spread > 0) & (spread < _SMALLEST_SPREAD)))
    if wrong.size:
        k = int(wrong[0])
        raise ValueError(
            f"Feature {k} goes from {low[k]:g} to {high[k]:g}: AutoRanker takes values up to {_LARGEST:g} that differ "
            f"by {_SMALLEST_SPREAD:g} at least. Multiply the column by a suitable power of ten."
        )


# What members make of the views ------------------------------------------------------------------------------------

# Rows of whole queries that a thread prepares and scores at a time: they stay in its cache.
_ROWS_OF_QUERIES = 512


def scores_by_query(
    scores: Callable[[np.ndarray, Groups], np.ndarray], rows: np.ndarray, queries: Groups
) -> np.ndarray:
    """``scores(rows, queries)``, for some whole queries at a time where there are many rows, others in other threads.

    Parameters
    ----------
    scores : function
        From rows and their queries to an array of shape (m,), queries independent of each other.
    rows : ndarray of shape (m, n)
    queries : Groups
    """
    m = rows.shape[0]
    # A query that is most of the work is better divided among the threads.
    if m <= _ROWS_OF_QUERIES or queries.counts.max() > m // threads_at_hand():
        with blas_at_rest(m <= _ROWS_OF_QUERIES):
            return scores(rows, queries)
    # A part begins with the query in which a multiple of the number of rows lies.
    begin = np.unique(np.searchsorted(queries.starts[1:], np.arange(0, m, _ROWS_OF_QUERIES), side="right"))
    ends = np.append(begin[1:], queries.n_groups)
    out = np.empty(m)
    is_sorted = bool((queries.codes[1:] >= queries.codes[:-1]).all())

    def fill(first: int, last: int) -> None:
        span = slice(queries.starts[first], queries.starts[last])
        place = span if is_sorted else queries.order[span]
        out[place] = scores(rows[place], Groups(queries.codes[place] - first, last - first))

    with blas_at_rest():
        in_turns(fill, list(zip(begin.tolist(), ends.tolist(), strict=True)))
    return out


def weighted_scores(
    features: Features,
    members: Sequence[Any],
    views: Sequence[tuple[str, ...]],
    weights: np.ndarray,
    rows: np.ndarray,
    queries: Groups,
) -> np.ndarray:
    """Σ_k weights_k · (scores of member k, which sees view k of the features), shape (m,)."""

    def scores(X: np.ndarray, within: Groups) -> np.ndarray:
        seen = features.views(X, within)
        return combined_scores(members, [seen[view] for view in views], weights)

    return scores_by_query(scores, rows, queries)


def combined_scores(members: Sequence[Any], views: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Σ_k weights_k · (scores of member k), shape (m,).

    Parameters
    ----------
    members : sequence of fitted models
    views : sequence of float64 arrays of shape (m, n_k)
        What each member sees, validated.
    weights : ndarray of shape (k,)
    """
    out = np.zeros(views[0].shape[0])
    for member, view, weight in zip(members, views, weights, strict=True):
        out += float(weight) * getattr(member, "predict_items", member.predict)(view)
    return out
