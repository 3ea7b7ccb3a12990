r"""Features relative to their query.

A price of 90 says little; being the cheapest of a search result says a lot. Inside query q with n_q rows, mean μ_q and
standard deviation σ_q, a value x becomes

    (x - μ_q) / σ_q              method="standardise"
    2 (r - 1) / (n_q - 1) - 1    method="rank", r the position of x in ascending order, ties averaged

and 0 where the query says nothing about the feature: one row, or all rows alike.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from ...comparisons.grouping import Groups, encode_queries
from ...numerics.namespace import refuse_repeated_columns
from ...numerics.onnx_graph import Graph, Value

# Differences within a query below this many rounding errors of its largest value count as zero.
_ROUNDING = 10
_SUFFIX = {"standardise": "in_query", "rank": "rank_in_query"}


class QueryRelative(TransformerMixin, BaseEstimator):
    """Features standardised, or replaced by their ranks, inside their query.

    Nothing is learned from the rows of ``fit``: every query is its own reference, so new queries need no statistics of
    old ones, and all items of a query have to be transformed together.

    Parameters
    ----------
    method : {"standardise", "rank"}, default="standardise"
        Mean 0 and standard deviation 1 inside each query; or ranks inside each query, scaled to [-1, 1], ties averaged.
    keep : bool, default=True
        Keep the original columns, before the relative ones.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X had names.
    needs_qid_ : bool
        Whether ``fit`` was given query labels; ``transform`` then needs them too.

    Notes
    -----
    A query of one row, and a feature that is constant inside a query (up to rounding), give 0.

    ``qid`` reaches the transformer inside a pipeline by scikit-learn's metadata routing, also in ``predict``:
    ``sklearn.set_config(enable_metadata_routing=True)``, then ``pipeline.predict(X, qid=qid)``.

    O(m n) for ``"standardise"``, O(n m log m) for ``"rank"``.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.preprocessing import QueryRelative
    >>> price = np.array([[10.0], [30.0], [20.0], [500.0], [700.0]])
    >>> qid = ["pens", "pens", "pens", "desks", "desks"]
    >>> QueryRelative("rank", keep=False).fit_transform(price, qid=qid).ravel()
    array([-1.,  1.,  0., -1.,  1.])
    """

    # qid reaches fit and transform through pipelines and searches without a request by the user.
    __metadata_request__fit = {"qid": True}
    __metadata_request__transform = {"qid": True}

    def __init__(self, method="standardise", keep=True) -> None:
        self.method = method
        self.keep = keep

    def fit(self, X, y=None, *, qid=None) -> Self:
        """Check the input; there is nothing to learn.

        Parameters
        ----------
        X : array-like of shape (m, n)
        y : ignored
        qid : array-like of shape (m,)
            Query labels. Without them all rows are one query, in ``transform`` as well.

        Returns
        -------
        self
        """
        self._check_parameters()
        X = self._read(X, reset=True)
        encode_queries(qid, X.shape[0])
        self.needs_qid_ = qid is not None
        return self

    def transform(self, X, *, qid=None) -> np.ndarray:
        """The features relative to their query, beside the original ones where ``keep`` is set.

        Parameters
        ----------
        X : array-like of shape (m, n)
            All items of each query.
        qid : array-like of shape (m,)
            Query labels, any order.

        Returns
        -------
        ndarray of shape (m, 2 n), or (m, n) with ``keep=False``
            float32 where X is, else float64.
        """
        check_is_fitted(self)
        self._check_parameters()
        self._check_qid(qid)
        X = self._read(X, reset=False)
        queries = encode_queries(qid, X.shape[0])
        width = X.shape[1]
        out = np.empty((X.shape[0], 2 * width if self.keep else width), dtype=X.dtype)
        if self.keep:
            out[:, :width] = X
        relative = standardised_in_queries if self.method == "standardise" else _ranked
        out[:, out.shape[1] - width :] = relative(X, queries)
        return out

    def fit_transform(self, X, y=None, *, qid=None) -> np.ndarray:
        """Fit and transform the same rows.

        Parameters
        ----------
        X : array-like of shape (m, n)
        y : ignored
        qid : array-like of shape (m,)

        Returns
        -------
        ndarray, as of ``transform``
        """
        return self.fit(X, qid=qid).transform(X, qid=qid)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the columns of the output.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input, where ``fit`` saw none.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        relative = [f"{name}_{_SUFFIX[self.method]}" for name in names]
        return np.asarray([*(names if self.keep else ()), *relative], dtype=object)

    _looks_at_query = True

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `transform` computes when all rows are one query, recorded (`numerics.onnx_graph`)."""
        if self.method == "rank":
            relative = _ranked_nodes(graph, X)
        else:
            relative = _standardised_nodes(graph, X, _ROUNDING * float(np.finfo(np.float64).eps))
        return graph.concatenate([X, relative]) if self.keep else relative

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded transformer is checked for (`preflearn.tables.models.fitted`)."""
        return {"n_features_in_": "= n", "needs_qid_": "truth"} if "needs_qid_" in vars(self) else {}

    def _check_parameters(self) -> None:
        if self.method not in _SUFFIX:
            raise ValueError(f"method must be 'standardise' or 'rank': found {self.method!r}.")

    def _check_qid(self, qid: Any) -> None:
        if self.needs_qid_ and qid is None:
            raise ValueError(
                "QueryRelative was fitted with qid and needs qid here too: its features are relative to the other "
                "items of the query. Pass transform(X, qid=qid); in a pipeline "
                "sklearn.set_config(enable_metadata_routing=True) and pipeline.predict(X, qid=qid). "
                "For rows that form one query pass np.zeros(len(X))."
            )
        if not self.needs_qid_ and qid is not None:
            raise ValueError(
                "QueryRelative was fitted without qid, with all rows as one query, and is given qid now: pass qid to "
                "fit as well."
            )

    def _read(self, X: Any, *, reset: bool) -> np.ndarray:
        if sp.issparse(X):
            raise TypeError(
                "QueryRelative does not take sparse input: features centred inside their query are dense. Select the "
                "columns that matter and pass X.toarray()."
            )
        refuse_repeated_columns(X)
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def standardised_in_queries(X: np.ndarray, queries: Groups) -> np.ndarray:
    """(x - μ_q) / σ_q; in units of the query's range first, so that squares neither overflow nor vanish. O(m n)."""
    from ...comparisons._loops import standardise_queries

    out = np.empty(X.shape)
    rounding = _ROUNDING * float(np.finfo(X.dtype).eps)
    standardise_queries(np.ascontiguousarray(X), queries.order, queries.starts, rounding, out)
    return out


def _ranked(X: np.ndarray, queries: Groups) -> np.ndarray:
    """Positions inside the query from -1 (smallest) to 1 (largest), ties averaged. O(n m log m)."""
    out = np.empty(X.shape)
    steps = np.maximum(queries.counts - 1, 1)
    # A stable sort of short integers is a radix sort: three times as fast as `numpy.lexsort`.
    short = queries.codes.astype(np.uint16) if queries.n_groups <= 1 << 16 else queries.codes
    for j in range(X.shape[1]):
        values = np.ascontiguousarray(X[:, j])
        order = np.argsort(values)
        order = order[np.argsort(short[order], kind="stable")]
        codes = queries.codes[order]
        new = np.ones(order.shape[0], dtype=bool)
        new[1:] = (values[order][1:] != values[order][:-1]) | (codes[1:] != codes[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], order.shape[0]) - 1
        query = codes[first]
        # first + last is twice the averaged place; n_q - 1 steps lead from the first place to the last.
        place = first + last - 2 * queries.starts[query]
        position = (place - (queries.counts[query] - 1)) / steps[query]
        out[order, j] = np.repeat(position, last - first + 1)
    return out


def _standardised_nodes(graph: Graph, X: Value, rounding: float) -> Value:
    """(x - μ) / σ over the rows of the call, as `QueryRelative` does it; 0 where a column is constant."""
    low, high = X.reduce("Min", 0), X.reduce("Max", 0)
    spread = high - low
    largest = low.abs().at_least(high.abs())
    alike = graph.apply("LessOrEqual", spread, largest * rounding)
    unit = graph.where(alike, 1.0, spread)
    V = (X - low) / unit
    V = V - V.reduce("Mean", 0)
    deviation = (V * V).reduce("Mean", 0).sqrt()
    return graph.where(alike, 0.0, V / graph.where(alike, 1.0, deviation))


def _ranked_nodes(graph: Graph, X: Value) -> Value:
    """Ranks over the rows of the call from -1 to 1, ties averaged: (Σ [x_j < x_i] - [x_j > x_i]) / (m - 1).

    Forms an array of m × m × n truth values.
    """
    rows, others = X.with_axis(1), X.with_axis(0)
    above = others.less(rows).as_numbers() - rows.less(others).as_numbers()
    n_rows = graph.apply("Shape", X, start=0, end=1).as_numbers()
    return above.reduce("Sum", 1, keep=False) / (n_rows - 1.0).at_least(1.0)
