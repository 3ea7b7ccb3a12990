r"""Ordered classes: a ranking function cut into classes by thresholds.

    class of x = number of thresholds below f(x),      θ_1 <= ... <= θ_{k-1}

The thresholds are those with the least cost on held-out scores. With the rows in the order of their scores and S_c(p)
the cost of calling the first p of them class c, the least cost of the first p rows in classes 1 to c is

    B_c(p) = S_c(p) + min over p' <= p of (B_{c-1}(p') - S_c(p'))        p, p' between different scores
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ..comparisons.inputs import read_scores
from ..kernels.functions import n_items
from ..learners.base import RankerMixin
from ..learners.search import RankRLSCV
from ..metrics.by_query import predict_scores
from ..numerics.namespace import as_host
from .calibrated import refuse_estimator, train_and_hold_out

COSTS = ("absolute", "zero-one")


class OrdinalRanker(RankerMixin, MetaEstimatorMixin, BaseEstimator):
    """Ordered classes (grades, stages, stars) by a ranker and thresholds on its scores.

    Parameters
    ----------
    estimator : estimator, optional
        A ranker or regressor; it learns from the classes as 0, 1, 2, .... `RankRLSCV` by default.
    cost : {"absolute", "zero-one"}, default="absolute"
        What a wrong class costs: by how many classes it is wrong, or one.
    cv : str, int, splitter or iterable, default=5
        Folds whose scores, by models trained without them, place the thresholds: as in
        `preflearn.model_selection.cross_val_predict`. A number of folds holds out whole queries with qid; without, each
        fold gets its share of every class.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        The values of y, lowest first.
    thresholds_ : ndarray of shape (k - 1,)
        Ascending; equal neighbours enclose a class that is never predicted, and infinite ones are never reached.
    estimator_ : estimator
        Trained on all rows.
    cost_ : float
        The mean cost of the held-out rows, by which the thresholds were chosen.

    Notes
    -----
    O(m log m + m k) after the hold-out. The thresholds are shared by all queries: scores learned inside queries have to
    be on one scale for them.
    Reference: Airola, "Kernel-based ranking: methods for learning and performance estimation" (2011), section 3.6.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import OrdinalRanker
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> stars = np.digitize(X @ [1.0, -1.0], [-1.0, 0.5]) + 1
    >>> model = OrdinalRanker().fit(X, stars)
    >>> model.predict([[-2.0, 1.0], [0.0, 0.0], [2.0, -1.0]])
    array([1, 2, 3])
    >>> model.thresholds_.shape
    (2,)
    """

    def __init__(self, estimator=None, *, cost="absolute", cv=5) -> None:
        self.estimator = estimator
        self.cost = cost
        self.cv = cv

    def fit(self, X, y, *, qid=None, groups=None) -> Self:
        """Train the ranker on all rows, and place the thresholds by held-out scores.

        Parameters
        ----------
        X : as in the estimator's fit
        y : array-like of shape (m,)
            Classes as numbers, higher is better.
        qid : array-like of shape (m,), optional
            Query labels, for the estimator and the folds.
        groups : array-like of shape (m,), optional
            Labels of dependent rows (patients, documents), for the estimator and the folds: all rows that share one
            with a test row leave the training with it. A number of folds then holds out whole groups.

        Returns
        -------
        self
        """
        if self.cost not in COSTS:
            raise ValueError(f"cost must be one of {', '.join(map(repr, COSTS))}: found {self.cost!r}.")
        values, single = read_scores(as_host(y), n_items(X), estimator=self)
        if not single:
            raise ValueError(f"y has shape {values.shape}: expected one class per row.")
        classes, codes = np.unique(values[:, 0], return_inverse=True)
        if classes.shape[0] < 2:
            raise ValueError("OrdinalRanker needs two classes or more: found 1 class.")
        estimator = RankRLSCV() if self.estimator is None else self.estimator
        refuse_estimator(estimator, self.cv)
        labelled = qid is not None or groups is not None
        cv = self.cv if labelled else _with_every_class(self.cv, codes)
        self.estimator_, found = train_and_hold_out(estimator, X, codes.astype(float), qid, cv, groups)
        scores = np.asarray(as_host(found), dtype=float)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        known = np.isfinite(scores)
        self.thresholds_, total = least_cost_thresholds(
            scores[known], codes[known], classes.shape[0], self.cost
        )
        self.cost_ = total / int(np.count_nonzero(known))
        given = np.asarray(as_host(y)).dtype
        self.classes_ = classes.astype(given) if given.kind in "iu" else classes
        return self

    def decision_function(self, X) -> np.ndarray:
        """The scores that are compared with the thresholds.

        Parameters
        ----------
        X : as in the estimator's predict

        Returns
        -------
        ndarray of shape (m,)
        """
        check_is_fitted(self)
        return np.asarray(as_host(predict_scores(self.estimator_, X)), dtype=float)

    def predict(self, X) -> np.ndarray:
        """The class of each row.

        Parameters
        ----------
        X : as in the estimator's predict

        Returns
        -------
        ndarray of shape (m,)
        """
        scores = self.decision_function(X)
        return self.classes_[np.searchsorted(self.thresholds_, scores)]

    def _scores_in_queries(self, X: Any, qid: Any) -> Any:
        return self.decision_function(X)

    def _fitted_arrays(self) -> dict[str, str]:
        if not hasattr(self, "thresholds_"):
            return {}
        if np.size(self.classes_) != np.size(self.thresholds_) + 1 or np.any(
            self.thresholds_[1:] < self.thresholds_[:-1]
        ):
            raise ValueError("thresholds_ must ascend and be one fewer than classes_")
        return {"classes_": "k", "estimator_": "a BaseEstimator"}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        if self.estimator is not None:
            tags.input_tags = get_tags(self.estimator).input_tags
        else:
            tags.input_tags.sparse = True
        return tags


def _with_every_class(cv: Any, codes: np.ndarray) -> Any:
    """A number of folds as test sets that share the rows of every class out; anything else as it is."""
    if not isinstance(cv, Integral) or isinstance(cv, bool) or cv < 2:
        return cv  # `read_folds` refuses what is no number of folds
    order = np.argsort(codes, kind="stable")
    return [np.sort(order[fold :: int(cv)]) for fold in range(min(int(cv), codes.shape[0]))]


def least_cost_thresholds(
    scores: np.ndarray, codes: np.ndarray, n_classes: int, cost: str
) -> tuple[np.ndarray, float]:
    """The ascending thresholds with the least cost, half-way between scores, and that cost.

    Parameters
    ----------
    scores : ndarray of shape (m,)
    codes : int ndarray of shape (m,)
        Classes from 0 on.
    n_classes : int
        k.
    cost : {"absolute", "zero-one"}

    Returns
    -------
    thresholds : ndarray of shape (k - 1,)
    cost : float

    Notes
    -----
    O(m log m + m k).

    Examples
    --------
    >>> import numpy as np
    >>> least_cost_thresholds(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 0, 1, 2]), 3, "absolute")
    (array([1.5, 2.5]), 0.0)
    """
    order = np.argsort(scores, kind="stable")
    scores, codes = scores[order], codes[order]
    # The places where a threshold can be: before all rows, between different scores, after all rows.
    places = np.concatenate([[0], np.flatnonzero(np.diff(scores)) + 1, [scores.shape[0]]])
    chosen = np.zeros((n_classes, places.shape[0]), dtype=np.int64)
    best = np.full(places.shape[0], np.inf)
    best[0] = 0.0  # no row, no class
    for label in range(n_classes):
        wrong = np.abs(codes - label) if cost == "absolute" else codes != label
        spent = np.concatenate([[0.0], np.cumsum(wrong, dtype=float)])[places]
        before = best - spent
        least = np.minimum.accumulate(before)
        # The last place so far where the minimum went down.
        went_down = np.concatenate([[True], before[1:] < least[:-1]])
        chosen[label] = np.maximum.accumulate(np.where(went_down, np.arange(places.shape[0]), 0))
        best = spent + least
    low = np.concatenate([[-np.inf], scores])[places]
    high = np.concatenate([scores, [np.inf]])[places]
    between = low / 2 + high / 2
    between = np.where(between < high, between, low)  # of neighbouring numbers the lower one
    at, cuts = places.shape[0] - 1, []
    for label in range(n_classes - 1, 0, -1):
        at = int(chosen[label, at])
        cuts.append(between[at])
    return np.array(cuts[::-1]), float(best[-1])
