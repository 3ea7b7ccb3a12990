"""What rankers with a guarantee share: a model, its scores for queries that it has not seen, and the rows to show."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_regressor
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import read_scores
from ..kernels.functions import n_items
from ..learners.base import RankerMixin
from ..metrics.by_query import predict_scores
from ..numerics.namespace import as_host
from ._calibration import Calibration, Cutoff, distances
from ._held_out import HeldOut
from ._learner import SearchingLearner, SelfValidatingLearner, SquaredLossLearner
from ._refitting import fit_on_rows


class CalibratedRanker(RankerMixin, MetaEstimatorMixin, BaseEstimator):
    """A ranker with the scores that it gives to held-out queries; subclasses choose cut-offs by them."""

    __metadata_request__predict = {"qid": True}

    estimator: Any
    cv: Any
    calibration_: Calibration

    def _fit_held_out(self, X: Any, y: Any, qid: Any) -> Calibration:
        """Train `estimator_` and keep what it predicts for queries that it has not seen."""
        y = np.asarray(as_host(y), dtype=float)
        if y.ndim != 1:
            raise ValueError(f"y has shape {y.shape}: sets are of one score per row, expected (m,).")
        read_scores(y, n_items(X), estimator=self)
        queries, cv = self._queries(qid, n_items(X))
        if self.cv == "prefit":
            if hasattr(self.estimator, "__sklearn_tags__"):  # anything else with predict is accepted as it is
                check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            scores = predict_scores(self.estimator, X, qid)
        else:
            self.estimator_, scores = _train_and_hold_out(self.estimator, X, y, qid, cv)
        scores = np.asarray(as_host(scores), dtype=float)
        if scores.shape != y.shape:
            raise ValueError(
                f"{type(self.estimator).__name__} predicts an array of shape {scores.shape} for {y.shape[0]} rows: "
                "expected one score per row."
            )
        known = np.isfinite(scores)  # an AutoRanker does not score all folds
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        self.n_queries_ = queries.n_groups
        self.calibration_ = Calibration(scores[known], y[known], queries.codes[known])
        return self.calibration_

    def _queries(self, qid: Any, n_rows: int) -> tuple[Groups, Any]:
        """The queries, and the folds that hold them out; without qid every fold represents a query."""
        is_count = isinstance(self.cv, Integral) and not isinstance(self.cv, bool)
        if qid is not None:
            if not is_count and self.cv not in ("leave-query-out", "prefit"):
                raise ValueError(
                    f"cv={self.cv!r}: expected 'leave-query-out', a number of folds of queries, or 'prefit'."
                )
            return encode_queries(qid, n_rows), self.cv
        if not is_count:
            raise ValueError(
                "Sets are calibrated on queries: pass qid=..., or for a global ranking cv= a number of folds, each of "
                "which then represents a query of the same number of rows."
            )
        tests = [
            test for _, test in KFold(int(self.cv), shuffle=True, random_state=0).split(np.empty((n_rows, 0)))
        ]
        codes = np.empty(n_rows, dtype=np.int64)
        for number, test in enumerate(tests):
            codes[test] = number
        return encode_queries(codes, n_rows), tests

    def predict(self, X, *, qid=None) -> np.ndarray:
        """Scores by the estimator trained on all rows: higher is better.

        Parameters
        ----------
        X : as in the estimator's predict
        qid : array-like of shape (m,), optional
            For estimators whose predictions depend on the query.

        Returns
        -------
        ndarray of shape (m,)
        """
        check_is_fitted(self, "calibration_")
        return np.asarray(as_host(predict_scores(self.estimator_, X, qid)), dtype=float)

    def _scores_in_queries(self, X: Any, qid: Any) -> Any:
        return self.predict(X, qid=qid)

    def predict_set(self, X, *, qid=None) -> np.ndarray:
        """Which rows are in the set of their query.

        Parameters
        ----------
        X : as in predict
        qid : array-like of shape (m,), optional
            Query labels; all items of a query together. Without them all rows are one query.

        Returns
        -------
        ndarray of bool of shape (m,)
        """
        scores = self.predict(X, qid=qid)
        return shown_rows(scores, encode_queries(qid, scores.shape[0]), self._cutoff())

    def _cutoff(self) -> Cutoff:
        return Cutoff(self.distance_, self.threshold_)

    def _fitted_arrays(self) -> dict[str, str]:
        if not hasattr(self, "calibration_"):
            return {}
        return {"threshold_": "", "calibration_": "a Calibration", "estimator_": "a BaseEstimator"}


def shown_rows(scores: np.ndarray, queries: Groups, cutoff: Cutoff) -> np.ndarray:
    """The rows within the cut-off, shape (m,)."""
    if not np.isfinite(scores).all():
        raise ValueError("The scores of some rows are not finite.")
    return distances(cutoff.kind, scores, queries) <= cutoff.value


def _train_and_hold_out(estimator: Any, X: Any, y: np.ndarray, qid: Any, cv: Any) -> tuple[Any, Any]:
    """The estimator trained on all rows, and the score of every row by one that has not seen its query."""
    model = clone(estimator)
    if not isinstance(model, (SearchingLearner, SelfValidatingLearner)):
        scores = HeldOut(model, X, y, qid=qid).predict(cv)[0]
        fit_on_rows(model, X, y, qid, None)
        return model, scores
    if isinstance(model, SearchingLearner):
        return _search_and_hold_out(model, X, y, qid, cv)
    fit_on_rows(model, X, y, qid, None)
    if cv == "leave-query-out":
        return model, model.cv_predictions_
    return model, HeldOut(clone(estimator), X, y, qid=qid).predict(cv)[0]


def _search_and_hold_out(model: Any, X: Any, y: np.ndarray, qid: Any, cv: Any) -> tuple[Any, Any]:
    """A search over alpha, and what its choice predicts for held-out queries.

    The alpha is the one that all queries chose: a single number, which hardly depends on any one of them. Where the
    search itself holds out single queries, its predictions are used.
    """
    by_query = model.cv == cv or (model.cv is None and not is_regressor(model))
    keeps = (
        cv == "leave-query-out"
        and by_query
        and isinstance(model, SquaredLossLearner)
        and not model.keep_predictions  # type: ignore[attr-defined]
    )
    if keeps:
        model.set_params(keep_predictions=True)
    fit_on_rows(model, X, y, qid, None)
    if not keeps:
        chosen = model._plain(getattr(model, "best_kernel_", {}), model.alpha_)
        return model, HeldOut(chosen, X, y, qid=qid).predict(cv)[0]
    scores = as_host(model.cv_predictions_)[int(np.flatnonzero(as_host(model.alphas_) == model.alpha_)[0])]
    model.set_params(keep_predictions=False)
    del model.cv_predictions_
    return model, scores


def read_share(value: Any, name: str) -> float:
    """A number between 0 and 1, ends excluded."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name}={value!r}: expected a number strictly between 0 and 1.")
    return float(value)


def refuse_few(qid: Any, coverage: float) -> None:
    """Refuse, before any training, too few queries for the coverage even if all of them count."""
    if qid is not None:
        refuse_too_few(encode_queries(qid, len(as_host(qid))).n_groups, coverage)


def refuse_too_few(n_queries: int, coverage: float) -> None:
    """Refuse too few queries: to distinguish a share of 1 - c from zero takes 1 / (1 - c) of them."""
    needed = int(np.ceil(1.0 / (1.0 - coverage) - 1e-9))
    if n_queries >= needed:
        return
    largest = (
        f"at most {1 - 1 / n_queries:.3g} is possible with these"
        if n_queries > 1
        else "there must be several"
    )
    raise ValueError(
        f"A coverage of {coverage:g} takes at least {needed} queries that count (1 / (1 - coverage)): found "
        f"{n_queries}; {largest}."
    )


def refuse_estimator(estimator: Any, cv: Any) -> None:
    """Refuse an estimator that cannot be trained without a query."""
    if not hasattr(estimator, "predict"):
        raise ValueError(f"{type(estimator).__name__} has no predict: expected a ranker or a regressor.")
    if cv == "prefit":
        return
    if isinstance(estimator, type) or not hasattr(estimator, "get_params") or not hasattr(estimator, "fit"):
        raise ValueError(
            f"{estimator!r} cannot be refitted without a query, since it has no fit and get_params: train it on other "
            "queries and use cv='prefit'."
        )
