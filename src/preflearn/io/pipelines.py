"""A loaded pipeline that can rank: scikit-learn's own has no method for it."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..comparisons import encode_queries
from ..comparisons.grouping import positions_in_groups
from ..metrics.by_query import predict_scores, wants_qid


class RankingPipeline(Pipeline):
    """A scikit-learn pipeline with `rank`; `preflearn.io.load_model` returns pipelines as this.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = RankingPipeline([("scale", StandardScaler()), ("learn", RankRLS())])
    >>> model.fit([[0.0], [1.0], [2.0]], [0, 1, 2]).rank([[0.5], [3.0]])
    array([2, 1])
    """

    def rank(self, X: Any, *, qid: Any = None) -> np.ndarray:
        """Positions inside the query: 1 is the best, ties share the best position.

        Parameters
        ----------
        X : as in predict
        qid : array-like of shape (m,), optional
            Query labels; one query without.

        Returns
        -------
        ndarray of int of shape (m,)
        """
        scores = None if qid is not None or wants_qid(self) else np.asarray(self.predict(X))
        if scores is None:
            n_rows = (
                X.shape[0]
                if hasattr(X, "shape")
                else len(next(iter(X.values())) if isinstance(X, dict) else X)
            )
            labels = np.zeros(n_rows, dtype=np.int64) if qid is None else qid
            scores = np.asarray(predict_scores(self, X, labels))
        return positions_in_groups(scores, encode_queries(qid, scores.shape[0]))


def able_to_rank(model: Any) -> Any:
    """A plain pipeline as one that can rank; anything else as it is."""
    return _as(RankingPipeline, model) if type(model) is Pipeline else model


def as_plain(model: Any) -> Any:
    """The same the other way round: what is saved is scikit-learn's."""
    return _as(Pipeline, model) if type(model) is RankingPipeline else model


def _as(kind: type[Pipeline], model: Pipeline) -> Pipeline:
    found = copy(model)
    found.__class__ = kind
    return found
