"""What rankers with a guarantee share: a model, its scores for unseen queries, the rows to show, a test for drift."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.stats import ks_2samp
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_regressor
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import read_scores
from ..errors import InputError, Remedy
from ..kernels.functions import n_items
from ..learners.base import RankerMixin
from ..metrics.by_query import predict_scores
from ..metrics.listwise import LARGEST_EXPONENT
from ..numerics.namespace import as_host
from ._calibration import (
    DISTANCES,
    Calibration,
    Cutoff,
    distances,
    in_units_of,
    largest,
    least_cutoff,
    ndcg_gains,
    recall_gains,
    spreads,
)
from ._folds import units_of
from ._held_out import HeldOut
from ._learner import SearchingLearner, SelfValidatingLearner, SquaredLossLearner
from ._refitting import fit_on_rows
from ._splitters import QueryKFold

_FIGURES = ("rows", "spread of scores", "lead of the first")


class CalibratedRanker(RankerMixin, MetaEstimatorMixin, BaseEstimator):
    """A ranker with the scores that it gives to held-out queries; subclasses choose cut-offs by them."""

    __metadata_request__predict = {"qid": True}

    estimator: Any
    cv: Any
    calibration_: Calibration

    def _fit_held_out(self, X: Any, y: Any, qid: Any, groups: Any) -> tuple[Calibration, np.ndarray | None]:
        """Train `estimator_`, keep what it predicts for queries that it has not seen; and which queries share groups.

        The latter are numbers, one for each query of the calibration; None without groups.
        """
        y = np.asarray(as_host(y), dtype=float)
        if y.ndim != 1:
            raise ValueError(f"y has shape {y.shape}: sets are of one score per row, expected (m,).")
        read_scores(y, n_items(X), estimator=self)
        groups = as_host(groups)
        units = self._units(qid, groups, n_items(X))
        queries, cv = self._queries(qid, groups, n_items(X))
        if self.cv == "prefit":
            if hasattr(self.estimator, "__sklearn_tags__"):  # anything else with predict is accepted as it is
                check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            scores = predict_scores(self.estimator, X, qid)
        else:
            self.estimator_, scores = train_and_hold_out(self.estimator, X, y, qid, cv, groups)
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
        if units is None:
            return self.calibration_, None
        held_out = self.calibration_.queries
        return self.calibration_, units.codes[known][held_out.order[held_out.starts[:-1]]]

    def _units(self, qid: Any, groups: Any, n_rows: int) -> Groups | None:
        """Rows that share groups or queries."""
        if groups is None:
            return None
        if self.cv == "prefit":
            raise InputError(
                "groups say what leaves the training with a held-out query, and cv='prefit' holds nothing out: the "
                "estimator must have seen none of these groups",
                Remedy("groups", None),
            )
        return units_of(qid, groups, n_rows)

    def _queries(self, qid: Any, groups: Any, n_rows: int) -> tuple[Groups, Any]:
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
        blank = np.empty((n_rows, 0))
        splitter: Any = KFold if groups is None else QueryKFold
        folds = splitter(int(self.cv), shuffle=True, random_state=0).split(blank, groups=groups)
        tests = [test for _, test in folds]
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


def train_and_hold_out(
    estimator: Any, X: Any, y: np.ndarray, qid: Any, cv: Any, groups: Any = None
) -> tuple[Any, Any]:
    """The estimator trained on all rows, and the score of every row by one that has seen neither query nor group."""
    model = clone(estimator)
    if isinstance(model, SearchingLearner):
        return _search_and_hold_out(model, X, y, qid, cv, groups)
    fit_on_rows(model, X, y, qid, None, groups=groups)
    if isinstance(model, SelfValidatingLearner) and is_by_query(cv):
        return model, model.cv_predictions_
    return model, HeldOut(clone(estimator), X, y, qid=qid, groups=groups).predict(cv)[0]


def _search_and_hold_out(
    model: Any, X: Any, y: np.ndarray, qid: Any, cv: Any, groups: Any
) -> tuple[Any, Any]:
    """A search over alpha, and what its choice predicts for held-out queries.

    The alpha is the one that all queries chose: a single number, which hardly depends on any one of them. Where the
    search itself holds out single queries, its predictions are used.
    """
    if getattr(model, "alpha_per_output", False):
        raise ValueError("The queries of one output choose one alpha: use alpha_per_output=False.")
    by_query = is_by_query(model.cv) or (model.cv is None and not is_regressor(model))
    keeps = (
        qid is not None
        and is_by_query(cv)
        and by_query
        and isinstance(model, SquaredLossLearner)
        and not model.keep_predictions  # type: ignore[attr-defined]
    )
    if keeps:
        model.set_params(keep_predictions=True)
    fit_on_rows(model, X, y, qid, None, groups=groups)
    if not keeps:
        chosen = model._plain(getattr(model, "best_kernel_", {}), model.alpha_)
        return model, HeldOut(chosen, X, y, qid=qid, groups=groups).predict(cv)[0]
    scores = as_host(model.cv_predictions_)[int(np.flatnonzero(as_host(model.alphas_) == model.alpha_)[0])]
    model.set_params(keep_predictions=False)
    del model.cv_predictions_
    return model, scores


def is_by_query(cv: Any) -> bool:
    """Whether cv holds out single queries."""
    return isinstance(cv, str) and cv == "leave-query-out"


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


@dataclass(frozen=True)
class DriftTest:
    """Whether new queries resemble the held-out ones: a guarantee for exchangeable queries ends where they do not.

    Three figures of a query are known without labels: its number of rows, the standard deviation of its scores, and how
    far the first row is ahead of the mean in these units. Each is compared with the held-out queries by the test of
    Kolmogorov and Smirnov; the smallest p-value is multiplied by the number of figures (Bonferroni).

    Attributes
    ----------
    pvalue : float
        Of the hypothesis that they are, corrected for the number of figures.
    figure : str
        The figure that differs most: "rows", "spread of scores" or "lead of the first".
    pvalues : dict of float
        Of each figure.
    n_new, n_held_out : int
        Queries.
    """

    pvalue: float
    figure: str
    pvalues: dict[str, float]
    n_new: int
    n_held_out: int

    @property
    def drifted(self) -> bool:
        """Whether the p-value is below 0.01."""
        return self.pvalue < 0.01

    def __str__(self) -> str:
        what = f"{self.n_new} new queries against {self.n_held_out} held-out ones: "
        if not self.drifted:
            return what + f"no sign of drift (p = {self.pvalue:.3g})."
        return (
            what
            + f"they differ in the {self.figure} (p = {self.pvalue:.2g}). Coverage is not guaranteed for them: "
            "calibrate on recent queries."
        )


def query_figures(scores: np.ndarray, queries: Groups) -> np.ndarray:
    """What is known about each query without labels, shape (n_groups, 3)."""
    top, spread = largest(scores, queries), spreads(scores, queries)
    means = np.bincount(queries.codes, weights=scores) / queries.counts
    return np.column_stack([queries.counts, spread, (top - means) / in_units_of(spread)])


def compare_figures(held_out: np.ndarray, new: np.ndarray, *, with_scale: bool = True) -> DriftTest:
    """Kolmogorov and Smirnov's test for each figure.

    Parameters
    ----------
    held_out, new : ndarray of shape (n, 3)
        Of `query_figures`.
    with_scale : bool, default=True
        Whether the scores of both are on the same scale, so that their spread can be compared.
    """
    figures = zip(_FIGURES, held_out.T, new.T, strict=True)
    found = {
        name: float(ks_2samp(a, b).pvalue) for name, a, b in figures if with_scale or name != _FIGURES[1]
    }
    figure = min(found, key=lambda name: found[name])
    return DriftTest(min(1.0, len(found) * found[figure]), figure, found, new.shape[0], held_out.shape[0])


class RiskControlledRanker(CalibratedRanker):
    """A ranker that shows enough of the top of each list that the expected loss of new queries stays below a level.

    Parameters
    ----------
    estimator : estimator
        As in `ConformalRanker`.
    risk : float, default=0.1
        The maximum loss, on average over new queries.
    loss : {"recall", "ndcg"}, default="recall"
        The share of relevant items (y > 0) that are not shown; or one minus the NDCG of what is shown (gains 2^y - 1).
    k : int or None, default=None
        For "recall": with more than k relevant items in a query, showing k of them is enough.
    cv : as in ConformalRanker
    distance : {"rank", "gap", "spread", "share", "softmax"}, default="gap"
        What is cut off; see `ConformalRanker`.

    Attributes
    ----------
    estimator_, threshold_, set_sizes_, calibration_ : as in ConformalRanker
    risk_ : float
        The mean loss of the held-out queries at the cut-off.
    n_calibration_queries_ : int
        Queries with a relevant item.

    Notes
    -----
    The cut-off is the smallest t with (Σ_q ℓ_q(t) + 1) / (Q + 1) ≤ risk. With a calibration part (``cv="prefit"``) and
    exchangeable queries, the expected loss of a new query is at most `risk`. A level that even the whole lists do not
    reach, such as an NDCG below 1 - risk, is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.model_selection import RiskControlledRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(1000, 3)), np.repeat(np.arange(100), 10)
    >>> y = (X @ [1.0, -2.0, 0.5] + rng.normal(size=1000) > 2).astype(float)
    >>> sure = RiskControlledRanker(RankRLS(), risk=0.1).fit(X, y, qid=qid)
    >>> bool(sure.risk_ <= 0.1), bool(sure.set_sizes_.mean() < 6)
    (True, True)
    """

    def __init__(
        self, estimator, *, risk=0.1, loss="recall", k=None, cv="leave-query-out", distance="gap"
    ) -> None:
        self.estimator = estimator
        self.risk = risk
        self.loss = loss
        self.k = k
        self.cv = cv
        self.distance = distance

    def fit(self, X, y, *, qid=None, groups=None) -> Self:
        """Train on all rows, and find the cut-off from held-out queries.

        Parameters
        ----------
        X, y, qid, groups : as in ConformalRanker.fit

        Returns
        -------
        self
        """
        self._check_options()
        refuse_estimator(self.estimator, self.cv)
        refuse_few(qid, 1.0 - self.risk)
        held_out, _ = self._fit_held_out(X, y, qid, groups)
        queries = held_out.queries
        gains = self._gains(held_out)
        total = np.bincount(queries.codes, weights=gains, minlength=queries.n_groups)
        n_counted = int((total > 0).sum())
        if not n_counted:
            raise ValueError("No query has a relevant row (y > 0): there is nothing to miss.")
        refuse_too_few(n_counted, 1.0 - self.risk)
        far = distances(self.distance, held_out.scores, queries)
        self.distance_ = self.distance
        self.threshold_ = least_cutoff(far[gains > 0], gains[gains > 0], n_counted, self.risk)
        if not np.isfinite(self.threshold_):
            least = 1.0 - float(total.sum()) / n_counted
            raise ValueError(
                f"Even the whole lists have a loss of {least:.3f} on average, and risk={self.risk} with {n_counted} "
                f"queries requires less: use a risk above {(least * n_counted + 1) / (n_counted + 1):.3f}, or train "
                "a better ranker."
            )
        shown = far <= self.threshold_
        self.set_sizes_ = np.bincount(queries.codes, weights=shown, minlength=queries.n_groups).astype(
            np.int64
        )
        self.n_calibration_queries_ = n_counted
        self.risk_ = 1.0 - float(gains[shown].sum()) / n_counted
        return self

    def _gains(self, held_out: Calibration) -> np.ndarray:
        y, scores, queries = held_out.y, held_out.scores, held_out.queries
        if self.loss == "ndcg":
            if (y < 0).any():
                raise ValueError("loss='ndcg' has gains 2^y - 1, which are not defined for negative y.")
            if y.max() > LARGEST_EXPONENT:
                raise ValueError(
                    f"loss='ndcg' has gains 2^y - 1: found y = {y.max():g}, which is not a grade. Use grades such as "
                    "0 to 4, or loss='recall'."
                )
            return ndcg_gains(y, scores, queries)
        return recall_gains(y, scores, queries, self.k)

    def _check_options(self) -> None:
        read_share(self.risk, "risk")
        if self.loss not in ("recall", "ndcg"):
            raise ValueError(f"loss={self.loss!r}: expected 'recall' or 'ndcg'.")
        if self.distance not in DISTANCES:
            raise ValueError(
                f"distance={self.distance!r}: expected one of {', '.join(map(repr, DISTANCES))}."
            )
        if self.k is None:
            return
        if self.loss != "recall":
            raise ValueError(f"k={self.k!r} is for loss='recall': leave it out for loss={self.loss!r}.")
        if isinstance(self.k, bool) or not isinstance(self.k, Integral) or self.k < 1:
            raise ValueError(f"k={self.k!r}: expected a whole number of at least 1, or None.")
