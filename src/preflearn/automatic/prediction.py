"""Scores by a model whose features may be relative to their query."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import config_context

from ..preprocessing import QueryRelative, TableEncoder
from .ranker import AutoRanker


def predict_in_queries(model: Any, X: Any, qid: Any = None) -> np.ndarray:
    """``model.predict(X)``, with the queries where a step of the model looks at them.

    Parameters
    ----------
    model : fitted estimator or pipeline
    X : as the model takes it
    qid : array-like of shape (m,), optional
        The query of each row; without it all rows are one query to a model that looks at queries.
    """
    if not needs_queries(model):
        return model.predict(X)
    if qid is None:
        qid = np.zeros(_n_rows(X), dtype=np.int64)
    with config_context(enable_metadata_routing=True):
        return model.predict(X, qid=qid)


def needs_queries(model: Any) -> bool:
    """Whether the score of a row depends on the other rows of its query."""
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    return any(isinstance(step, (AutoRanker, QueryRelative)) for step in steps)


def table_encoder(model: Any) -> TableEncoder | None:
    """What makes numbers of the tables that a model takes, if it takes tables."""
    first = model[0] if hasattr(model, "steps") else model
    found = first if isinstance(first, TableEncoder) else getattr(first, "encoder_", None)
    return found if isinstance(found, TableEncoder) else None


def _n_rows(X: Any) -> int:
    if hasattr(X, "shape"):
        return X.shape[0]
    return len(next(iter(X.values()))) if hasattr(X, "values") else len(X)
