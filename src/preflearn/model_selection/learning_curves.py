r"""Would more queries help? Held-out scores of models trained on more and more queries.

The queries are split into folds; in each fold the model is trained on the first n of the other queries, for growing n,
and measured on the queries of the fold. The folds and their test queries are the same for every n, so that the points
of the curve can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.utils import check_random_state

from ..comparisons import encode_queries
from ..metrics import get_scorer
from ..metrics.by_query import predict_scores
from ..plots import on_axes
from ..shown_tables import ShownTable, align_columns, shows_itself

_SHARES = (0.1, 0.2, 0.4, 0.7, 1.0)
_LEAST_QUERIES = 2


@shows_itself
@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Held-out score over the number of training queries; prints itself.

    Attributes
    ----------
    n_queries : ndarray of shape (s,)
        Training queries of each point.
    scores : ndarray of shape (s,)
        Mean over the held-out queries.
    errors : ndarray of shape (s,)
        Half the 95 % interval of the mean, by Student's t over queries.
    gain : float
        Score of the last point minus that of the one before.
    gain_interval : tuple of two float
        Its 95 % interval, by Student's t over the differences of the same queries.
    scoring : str
    """

    n_queries: np.ndarray
    scores: np.ndarray
    errors: np.ndarray
    gain: float
    gain_interval: tuple[float, float]
    scoring: str

    @property
    def still_rises(self) -> bool:
        """Whether the last step up is more than chance: more queries would help."""
        return self.gain_interval[0] > 0

    def __str__(self) -> str:
        table = self.shown_tables()[0]
        return "\n".join([*align_columns(table.rows), *table.notes])

    def shown_tables(self) -> list[ShownTable]:
        rows: list[tuple[str, ...]] = [("queries", self.scoring, "+/-")]
        rows += [
            (str(n), f"{score:.4f}", f"{error:.4f}")
            for n, score, error in zip(self.n_queries.tolist(), self.scores, self.errors)
        ]
        low, high = self.gain_interval
        tail = f"last step {self.gain:+.4f} ({low:+.4f} to {high:+.4f}): " + (
            "more queries would help"
            if self.still_rises
            else "it has levelled off, as far as these data can tell"
        )
        return [ShownTable(rows, notes=[tail])]

    @on_axes
    def plot(self, ax: Any) -> None:
        """The score over the number of training queries, with its interval."""
        from ..report.displays import LearningCurveDisplay

        LearningCurveDisplay.from_curve(self, ax=ax)


def learning_curve(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any,
    sizes: Sequence[int] | None = None,
    n_splits: int = 3,
    scoring: str = "concordance",
    random_state: Any = 0,
) -> LearningCurve:
    """Train on more and more queries, measure on the same held-out ones.

    Parameters
    ----------
    estimator : estimator with ``fit(X, y, qid=qid)``
        Cloned for each training; a search chooses alpha anew each time.
    X : array or sparse matrix of shape (m, n)
    y : array-like of shape (m,)
    qid : array-like of shape (m,)
    sizes : sequence of int, optional
        Numbers of training queries. By default a tenth, a fifth, two fifths, seven tenths and all of what a fold
        leaves.
    n_splits : int, default=3
        Folds of queries.
    scoring : str, default="concordance"
        A measure by query, as of :func:`preflearn.metrics.get_scorer`.
    random_state : int, RandomState or None, default=0
        Deals the queries.

    Returns
    -------
    LearningCurve

    Notes
    -----
    n_splits trainings for each size.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.model_selection import learning_curve
    >>> X, y, qid, _ = load_demo()
    >>> curve = learning_curve(RankRLS(10.0), X, y, qid=qid)
    >>> curve.n_queries, curve.scores.shape
    (array([ 4,  8, 16, 28, 40]), (5,))
    """
    X = X.tocsr() if sp.issparse(X) else np.asarray(X)
    y = np.asarray(y)
    queries = encode_queries(qid, y.shape[0])
    if qid is None or queries.n_groups < _LEAST_QUERIES * n_splits:
        raise ValueError(
            f"A learning curve over queries needs qid with at least {_LEAST_QUERIES * n_splits} queries: found "
            f"{'none' if qid is None else queries.n_groups}."
        )
    order = check_random_state(random_state).permutation(queries.n_groups)
    folds = [order[k::n_splits] for k in range(n_splits)]
    most = queries.n_groups - max(map(len, folds))
    steps = _read_sizes(sizes, most)
    measure = get_scorer(scoring)
    values = np.full((len(steps), queries.n_groups), np.nan)
    for fold in folds:
        test = np.isin(queries.codes, fold)
        others = [query for query in order.tolist() if query not in set(fold.tolist())]
        for step, n in enumerate(steps):
            train = np.isin(queries.codes, others[:n])
            if np.ptp(y[train]) == 0:
                continue
            fitted = clone(estimator).fit(X[train], y[train], qid=queries.codes[train])
            codes = queries.codes[test]
            found = measure.per_query(y[test], predict_scores(fitted, X[test], codes), codes)
            values[step, np.asarray(found.labels, dtype=np.int64)] = found.values
    known = ~np.isnan(values).any(axis=0)
    if known.sum() < 2:
        raise ValueError("Fewer than two held-out queries have a pair to order: there is no curve.")
    values = values[:, known]
    spans = [_student(row) for row in values]
    gains = values[-1] - values[-2] if len(steps) > 1 else np.zeros(values.shape[1])
    return LearningCurve(
        np.array(steps),
        values.mean(axis=1),
        np.array([(high - low) / 2 for low, high in spans]),
        float(gains.mean()),
        _student(gains),
        scoring,
    )


def _read_sizes(sizes: Sequence[int] | None, most: int) -> list[int]:
    if sizes is None:
        return sorted({max(_LEAST_QUERIES, int(round(share * most))) for share in _SHARES})
    found = sorted({int(size) for size in sizes})
    if not found or found[0] < 1 or found[-1] > most:
        raise ValueError(
            f"sizes must lie between 1 and the {most} queries that a fold leaves: found {list(sizes)}."
        )
    return found


def _student(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean."""
    half = float(student.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return float(values.mean()) - half, float(values.mean()) + half
