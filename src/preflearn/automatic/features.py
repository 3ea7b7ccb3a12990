r"""The features that candidates see: one fitted preparation, several views of it.

====  ==================================================================================================
part  columns
====  ==================================================================================================
x     the features as they are
s     standardised over all rows
q     normal quantiles over all rows, clipped to ±3: an order of values, whatever their distribution
r     standardised inside their query
p     q, standardised inside their query
====  ==================================================================================================

A view is a word of these letters, "qr" for instance: q beside r. None of them looks at y, so one preparation serves all
folds. Constant features are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from ..comparisons import Groups
from ..loops.quantiles import shares_below
from ..numerics.graph import Graph, Value
from ..preprocessing.query_relative import QueryRelative
from .onnx_nodes import quantile_nodes

_QUANTILES = 500
_QUANTILE_ROWS = 20_000
_MOST = 3.0


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
        self.kept_ = np.flatnonzero(np.ptp(X, axis=0) > 0)
        if self.kept_.size == 0:
            raise ValueError("Every feature is constant: there is nothing to order the rows by.")
        rows = X[:, self.kept_]
        self.scaler_ = StandardScaler().fit(rows)
        self.quantiles_ = QuantileTransformer(
            n_quantiles=min(_QUANTILES, rows.shape[0]),
            subsample=_QUANTILE_ROWS,
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

    def record(self, graph: Graph, X: Value, words: Sequence[str]) -> dict[str, Value]:
        """The views of all rows of a call as one query, recorded (`preflearn.numerics.graph`)."""
        rows = graph.columns(X, self.kept_)
        letters, parts = set("".join(words)), {"x": rows}
        if "s" in letters:
            parts["s"] = (rows - self.scaler_.mean_) / self.scaler_.scale_
        if letters & {"q", "p"}:
            parts["q"] = quantile_nodes(graph, rows, self.quantiles_, _MOST)
        for letter, source in (("r", "x"), ("p", "q")):
            if letter in letters:
                parts[letter] = QueryRelative(keep=False)._onnx_nodes(graph, parts[source])
        return {word: graph.concatenate([parts[letter] for letter in word]) for word in words}

    def _fitted_arrays(self) -> dict[str, str]:
        if "kept_" not in vars(self):
            return {}
        # The loop over the knots reads without looking at the ends of the arrays.
        return {"kept_": "k < n", "quantiles_.quantiles_": "q k", "quantiles_.references_": "q"}


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
        self._parts = {"x": X}

    def __getitem__(self, word: str) -> np.ndarray:
        return np.hstack([self._part(letter) for letter in word])

    def _part(self, letter: str) -> np.ndarray:
        if letter not in self._parts:
            self._parts[letter] = self._compute(letter)
        return self._parts[letter]

    def _compute(self, letter: str) -> np.ndarray:
        X = self._parts["x"]
        if letter == "s":
            return self._features.scaler_.transform(X)
        if letter == "q":
            fitted = self._features.quantiles_
            return np.clip(ndtri(shares_below(X, fitted.quantiles_, fitted.references_)), -_MOST, _MOST)
        relative: Any = QueryRelative(keep=False)
        rows = X if letter == "r" else self._part("q")
        return relative.fit_transform(rows, qid=self._queries.codes)
