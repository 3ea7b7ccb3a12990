"""Scores of a model, with the queries where it asks for them."""

from __future__ import annotations

from typing import Any

from sklearn import config_context


def predict_scores(model: Any, X: Any, qid: Any = None) -> Any:
    """``model.predict(X)``, with ``qid`` where the model, or a step of a pipeline, wants it there.

    Parameters
    ----------
    model : fitted estimator
    X : its data
    qid : array-like of shape (m,), optional

    Returns
    -------
    ndarray
        As ``predict`` gives it.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> predict_scores(RankRLS().fit([[0.0], [1.0]], [0, 1]), [[0.0], [2.0]], qid=[0, 0]).shape
    (2,)
    """
    if qid is None or not wants_qid(model):
        return model.predict(X)
    with config_context(enable_metadata_routing=True):
        return model.predict(X, qid=qid)


def wants_qid(model: Any) -> bool:
    """Whether predictions depend on the queries, as those from features relative to their query do."""
    routing = getattr(model, "get_metadata_routing", None)
    return routing is not None and bool(routing().consumes("predict", ["qid"]))
