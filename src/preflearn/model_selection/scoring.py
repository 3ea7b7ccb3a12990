"""Scores of held-out predictions: which predictions may be compared, and by which measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from .. import metrics
from ..comparisons import Groups
from .folds import Folds

# Measures of ours by name; a smaller error is better, so it is turned round.
_RANKING = (
    "concordance",
    "kendall_tau",
    "ndcg",
    "average_precision",
    "reciprocal_rank",
    "err",
    "precision_at",
)
_REGRESSION: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "r2": r2_score,
    "neg_mean_squared_error": lambda y, f: -float(np.mean((y - f) ** 2)),
    "neg_mean_absolute_error": lambda y, f: -float(np.mean(np.abs(y - f))),
}


def read_scoring(scoring: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], float]:
    """A function (y, predictions, qid) -> float, greater is better, for arrays of shape (m, v).

    Parameters
    ----------
    scoring : str or callable
        A ranking metric's name, ``"auc"``, ``"disagreement_error"`` (negated), ``"r2"``, ``"neg_mean_squared_error"``,
        ``"neg_mean_absolute_error"``, or a function of (y, scores, qid) where greater is better.
    """
    if callable(scoring):
        return lambda y, f, qid: float(scoring(_one_column(y), _one_column(f), qid))
    if scoring in _REGRESSION:
        return lambda y, f, qid: float(_REGRESSION[scoring](y, f))
    if scoring == "disagreement_error":
        return lambda y, f, qid: -_mean_over_outputs(metrics.disagreement_error, y, f, qid)
    if scoring == "auc":
        return lambda y, f, qid: _mean_over_outputs(
            lambda a, b, q: metrics.concordance(_binary(a), b, q), y, f, qid
        )
    if scoring in _RANKING:
        return lambda y, f, qid: _mean_over_outputs(getattr(metrics, scoring), y, f, qid)
    known = ", ".join(repr(name) for name in (*_RANKING, "auc", "disagreement_error", *_REGRESSION))
    raise ValueError(f"scoring must be one of {known}, or a callable of (y, scores, qid): found {scoring!r}.")


def is_ranking_measure(scoring: Any) -> bool:
    """Whether a named measure compares rows with each other."""
    return isinstance(scoring, str) and scoring not in _REGRESSION


def compared_within(folds: Folds, queries: Groups) -> np.ndarray:
    """Labels of rows whose held-out predictions come from one model: the query, and the fold inside it.

    Predictions of different models are not on one scale; pooling them is what biases pooled cross-validation.
    """
    n_rows = queries.n_rows
    fold_of = np.full(n_rows, -1)
    for number, test in enumerate(folds.tests):
        if (fold_of[test] >= 0).any():
            raise ValueError("The folds overlap: to choose alpha each row must be predicted once.")
        fold_of[test] = number
    return queries.codes * (len(folds.tests) + 1) + fold_of + 1


def _mean_over_outputs(metric, y: np.ndarray, f: np.ndarray, qid: np.ndarray) -> float:
    return float(np.mean([metric(y[:, k], f[:, k], qid) for k in range(y.shape[1])]))


def _binary(y: np.ndarray) -> np.ndarray:
    if np.unique(y).shape[0] != 2:
        raise ValueError("scoring='auc' needs y with two values: use scoring='concordance'.")
    return y


def _one_column(values: np.ndarray) -> np.ndarray:
    return values[:, 0] if values.shape[1] == 1 else values
