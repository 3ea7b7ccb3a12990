"""What every class and function that takes cv, scoring or alphas must understand alike.

A case is a function ``case(cv=..., scoring=..., alphas=...)`` that selects on small data and gives the scores of the
alphas. The suite holds out by the slow, obvious way and compares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, LeaveOneOut

from preflearn import metrics
from preflearn.model_selection import LeaveQueryOut, QueryKFold

M, QUERIES = 24, 4
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(M, 3))
QID = np.repeat(np.arange(QUERIES), M // QUERIES)
Y = np.clip(np.round(X[:, 0] + 0.5 * RANDOM.normal(size=M) + 1.5), 0, 3)
ALPHAS = [0.1, 10.0, 1000.0]
FOLDS = [np.flatnonzero(QID == query) for query in range(QUERIES)]
REST = [np.flatnonzero(QID != query) for query in range(QUERIES)]

# Ways to say "each query by itself", which must all mean the same.
LEAVE_QUERY_OUT: dict[str, Any] = {
    "name": "leave-query-out",
    "int": QUERIES,
    "splitter": LeaveQueryOut(),
    "folds of whole queries": QueryKFold(QUERIES),
    "splitter of scikit-learn": LeaveOneGroupOut(),
    "k folds of scikit-learn": GroupKFold(QUERIES),
    "test index arrays": FOLDS,
    "lists": [fold.tolist() for fold in FOLDS],
    "masks": [QID == query for query in range(QUERIES)],
    "(train, test) pairs": list(zip(REST, FOLDS, strict=True)),
    "a generator": None,  # made anew for each use
}
# Ways to say "single rows" and "three folds of rows".
LEAVE_ONE_OUT: dict[str, Any] = {
    "name": "leave-one-out",
    "splitter": LeaveOneOut(),
    "arrays": [[row] for row in range(M)],
}
THREE_FOLDS: dict[str, Any] = {
    "int": 3,
    "splitter": KFold(3),
    "arrays": [test for _, test in KFold(3).split(X)],
    "(train, test) pairs": list(KFold(3).split(X)),
}
# What cannot be meant.
REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown name": ("leave-two-out", "leave-two-out"),
    "a number that is not an int": (2.5, "cv must be"),
    "True": (True, "cv must be"),
    "no fold": ([], "no fold"),
    "training sets that are not complements": ([(REST[0][1:], FOLDS[0])], "trains on 17 rows"),
    "an unknown row": ([[0, M]], f"row {M}"),
    "a row twice": ([[0, 0]], "twice"),
    "a fold without rows": ([np.array([], dtype=int), [0, 1]], "non-empty"),
    "rows that are not whole numbers": ([[0.0, 1.0], [2.0, 3.0]], "row numbers"),
    "a table of rows": ([[[0, 1], [2, 3], [4, 5]]], "one-dimensional"),
}


def cv_of(name: str, cv: Any) -> Any:
    return (fold for fold in FOLDS) if name == "a generator" else cv


def by_concordance(y: np.ndarray, scores: np.ndarray, qid: np.ndarray) -> float:
    return metrics.concordance(y, scores, qid)


# Ways to name one measure; each list must give the same scores.
SAME_MEASURES: dict[str, list[Any]] = {
    "concordance": ["concordance", metrics.concordance_scorer, by_concordance, metrics.concordance],
    "ndcg": ["ndcg@3", metrics.ndcg_scorer(k=3), lambda y, f, qid: metrics.ndcg(y, f, qid, k=3)],
    "average precision": ["map", "average_precision", metrics.average_precision],
    "reciprocal rank": ["mrr", "reciprocal_rank"],
    "disagreement": ["neg_disagreement_error", "disagreement_error"],
    "precision": ["precision@2", metrics.precision_at_scorer(k=2)],
    "err": ["err", metrics.err],
    "kendall": ["kendall_tau", metrics.kendall_tau],
    "volume": ["vus", "volume_under_surface", metrics.volume_under_surface],
    "all pairs": [metrics.get_scorer("neg_disagreement_error", definition="all")],
    "strict": [metrics.get_scorer("neg_disagreement_error", definition="strict")],
    "pooled": [metrics.get_scorer("neg_disagreement_error", definition="pooled")],
    "magnitude": ["neg_mean_squared_pair_error", "mean_squared_pair_error"],
    "absolute error": [
        "neg_mean_absolute_error",
        lambda y, f: -mean_absolute_error(y, f),
    ],
    "squared error": ["neg_mean_squared_error"],
    "r2": ["r2"],
}
SCIKIT_LEARN_SCORER = make_scorer(mean_absolute_error, greater_is_better=False)


@dataclass(frozen=True)
class Case:
    """A selecting class or function.

    Attributes
    ----------
    name : str
    select : callable
        Takes cv, scoring and alphas, gives the score of each alpha.
    model : callable or None
        The learner at one alpha, for the slow way; None where the contract of another case covers it.
    pooled : bool
        Whether rows are compared whatever the fold.
    with_queries : bool
        Whether rows belong to queries.
    """

    name: str
    select: Callable[..., np.ndarray]
    model: Callable[[float], Any] | None
    pooled: bool
    with_queries: bool = True

    def scores(self, **grammar: Any) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The best alpha")
            return np.asarray(self.select(**grammar))

    def held_out(self, folds: list[Any], alpha: float) -> np.ndarray:
        """By refitting; NaN for rows in no fold."""
        assert self.model is not None
        out = np.full(M, np.nan)
        for fold in folds:
            rest = np.setdiff1d(np.arange(M), fold)
            model = self.model(alpha)
            labels = {"qid": QID[rest]} if self.with_queries and hasattr(model, "rank") else {}
            out[fold] = model.fit(X[rest], Y[rest], **labels).predict(X[fold])
        return out
