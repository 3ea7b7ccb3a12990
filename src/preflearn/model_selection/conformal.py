r"""How far to trust an order: sets, ranks and cut-offs with a guarantee, from what held-out queries needed.

    held-out scores f₋q ──► distance from the top that a query needed ──► cut-off t ──► rows shown of a new query

`_calibration` has the mathematics. What holds:

**A calibration part** (``cv="prefit"``). If its queries and a new one are exchangeable, the set of the new query holds
what it must with probability at least c, and at most c + 1 / (Q + 1) where no two queries need the same cut-off. This
is true for any model, any distribution of the data and any Q; the probability is over both the calibration part and the
new query.

**Leave-query-out and folds.** Every query is scored by a model that has not seen it, and a new one by the model trained
on all. There is no such theorem for one cut-off: it requires that the model hardly changes when a query leaves. (Sets
that score the new query by all Q models, called jackknife+, hold what they must with probability at least
1 - 2 (1 - c).) The measured coverage is c; see ``benchmarks/coverage.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..comparisons import encode_queries
from ..plots import on_axes
from ._calibration import (
    DISTANCES,
    Calibration,
    Cutoff,
    OrderProbability,
    SetChoice,
    as_odds,
    in_units_of,
    least_cutoff,
    rank_bounds,
    rank_needs,
    share_interval,
    spreads,
)
from ._learner import SelfValidatingLearner
from .calibrated import (
    CalibratedRanker,
    DriftTest,
    compare_figures,
    query_figures,
    read_share,
    refuse_estimator,
    refuse_few,
    refuse_too_few,
    shown_rows,
)

# Maximum number of queries that are stored.
_MOST_QUERIES = 2000
# With fewer new queries drift cannot be tested.
LEAST_FOR_DRIFT = 30

_TARGETS = ("best", "top-k", "any-relevant", "all-relevant")
_WORDS = {
    "best": "the best item",
    "top-k": "all of the top {k} items",
    "any-relevant": "a relevant item",
    "all-relevant": "all relevant items",
}


class ConformalRanker(CalibratedRanker):
    """A ranker whose sets hold the best item, the top k or the relevant items with a given probability.

    For every held-out query it is known how far down its list one had to go; a new query is shown as far as the share
    ``coverage`` of these needed. Ranks and the order of two items get guarantees of the same kind.

    Parameters
    ----------
    estimator : estimator
        Any ranker or regressor with fit and predict; its fit may take the queries as qid, group_id or group.
    coverage : float, default=0.9
        The share of new queries whose set must hold what the target says.
    target : {"best", "top-k", "any-relevant", "all-relevant"}, default="best"
        What a set must hold: an item with the highest y of its query; k items such that no other is better; a relevant
        item (y > 0); or all relevant items. Queries whose y are all equal, or without a relevant item, do not count.
    k : int, default=1
        For "top-k".
    cv : "leave-query-out", int or "prefit", default="leave-query-out"
        How queries are held out: each separately (by algebra for `RLS`, `RankRLS` and their searches, by refitting for
        others; `AutoRanker` uses the folds that it makes anyway), in this number of folds, or not at all: "prefit" uses
        the estimator as it is and the rows as a calibration part that it was not trained on. Without qid (a global
        ranking), a number of folds, each of which represents a query.
    distance : {"auto", "gap", "spread", "rank", "share", "softmax"}, default="auto"
        What is cut off: the difference from the highest score; this in standard deviations of the scores of the query;
        the position; the position over the number of items; minus the logarithm of the share of Σ exp(f / σ), σ being
        that standard deviation. "auto" chooses by the size of the sets, and is "softmax" for "prefit", where choosing
        by the calibration part would void the guarantee.

    Attributes
    ----------
    estimator_ : estimator
        Trained on all rows.
    threshold_ : float
        The cut-off t: rows with a distance of at most t are in the set.
    distance_ : str
    coverage_ : float
        Measured: the share of held-out queries whose set, chosen and cut off by other queries, holds what it must.
    coverage_interval_ : tuple of two floats
        Its 95 % interval (Clopper and Pearson).
    set_sizes_ : ndarray of int of shape (n_queries,)
        The size of the set of each held-out query, by its scores without it.
    n_calibration_queries_ : int
        Number of queries that count.
    calibration_ : Calibration
        Held-out scores, y and queries.

    Notes
    -----
    **Guarantee.** With a calibration part, if its queries and the new one are exchangeable, sets hold what they must
    with probability at least `coverage`, whatever the model and the distribution; and at most 1 / (Q + 1) more where no
    two queries tie. It is an average over queries: not for each kind of query, and not under drift (`drift_test`). With
    leave-query-out or folds there is no such bound without the assumption that the model hardly changes when a query
    leaves; jackknife+, which keeps the Q models, has the bound 1 - 2 (1 - coverage). The measured coverage is
    `coverage`.

    Cost: held-out predictions (for `RankRLS` about those of a training) and O(m log m).

    References
    ----------
    R. F. Barber, E. J. Candès, A. Ramdas, R. J. Tibshirani. Predictive inference with the jackknife+. Annals of
    Statistics 49 (2021), 486-507.
    A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster. Conformal risk control. ICLR 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.model_selection import ConformalRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(1000, 3)), np.repeat(np.arange(100), 10)
    >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=1000)
    >>> sure = ConformalRanker(RankRLS(), coverage=0.9).fit(X, y, qid=qid)
    >>> print(sure.summary())
    To have the best item among those shown for 9 of 10 new queries, show 2 of 10 items on average.
    >>> sure.predict_set(X[:10], qid=qid[:10]).sum()
    np.int64(1)
    """

    def __init__(
        self, estimator, *, coverage=0.9, target="best", k=1, cv="leave-query-out", distance="auto"
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.target = target
        self.k = k
        self.cv = cv
        self.distance = distance

    def fit(self, X, y, *, qid=None, groups=None) -> Self:
        """Train on all rows, and find the cut-offs from held-out queries.

        Parameters
        ----------
        X : as in the estimator's fit
        y : array-like of shape (m,)
            Higher is better.
        qid : array-like of shape (m,), optional
            Query labels.
        groups : array-like of shape (m,), optional
            Labels of dependent rows (patients, documents): a held-out query is scored by a model that has seen none of
            its groups, and the coverage is measured on queries of other groups than those that chose the cut-off.

        Returns
        -------
        self
        """
        self._check_options()
        refuse_estimator(self.estimator, self.cv)
        refuse_few(qid, self.coverage)
        held_out, units = self._fit_held_out(X, y, qid, groups)
        choice = SetChoice(held_out, self.target, self.k, self._kinds())
        self._refuse_unsuitable(choice)
        self.distance_ = choice.choose(self.coverage)
        cutoff = choice.cutoff(self.coverage, self.distance_)
        self.threshold_ = cutoff.value
        self.set_sizes_ = choice.sizes(cutoff).astype(np.int64)
        self.n_calibration_queries_ = choice.n_counted
        covered = choice.covered(self.coverage, units)
        self.coverage_ = float(covered.mean())
        self.coverage_interval_ = share_interval(int(covered.sum()), covered.shape[0])
        for name in ("_rank_width", "_order_probability"):  # made on first use
            self.__dict__.pop(name, None)
        return self

    def predict_set(self, X, *, qid=None, coverage=None) -> np.ndarray:
        """Which rows are in the set of their query.

        Parameters
        ----------
        X : as in predict
        qid : array-like of shape (m,), optional
            Query labels; all items of a query together. Without them all rows are one query.
        coverage : float, optional
            A coverage other than that of the fit.

        Returns
        -------
        ndarray of bool of shape (m,)
        """
        scores = self.predict(X, qid=qid)
        return shown_rows(scores, encode_queries(qid, scores.shape[0]), self._cutoff(coverage))

    def predict_rank_interval(self, X, *, qid=None, coverage=None) -> np.ndarray:
        """For every row the lowest and highest rank that it may have in its query.

        Parameters
        ----------
        X, qid : as in predict_set
        coverage : float, optional
            The share of the items of a new query, on average over queries, whose true rank lies in the interval; by
            default that of the fit.

        Returns
        -------
        ndarray of int of shape (m, 2)
            1 is the best.

        Notes
        -----
        Row i has the interval [1 + #{j : f_j > f_i + c}, n - #{j : f_j < f_i - c}], c being the smallest width at which
        enough rows of held-out queries have their rank inside; where rows share y, any of their ranks is correct. The
        guarantee is that of the sets.
        """
        scores = self.predict(X, qid=qid)
        queries = encode_queries(qid, scores.shape[0])
        kind, width = self._width(coverage)
        widths = np.full(queries.n_groups, width)
        if kind == "spread":
            widths *= in_units_of(spreads(scores, queries))
        return rank_bounds(scores, widths, queries)

    def order_probability(self, X_a, X_b) -> np.ndarray:
        """The probability that each item of X_a has a higher y than that of X_b, given that they differ.

        Parameters
        ----------
        X_a, X_b : as in predict, with the same number of rows

        Returns
        -------
        ndarray of shape (m,)

        Notes
        -----
        The share of pairs of held-out queries with similar differences of scores that are ordered as y is: monotone in
        the difference, and 1 - p for the reversed pair. All queries have the same weight.
        """
        a, b = self.predict(X_a), self.predict(X_b)
        if a.shape != b.shape:
            raise ValueError(f"X_a has {a.shape[0]} rows and X_b {b.shape[0]}: expected the same number.")
        differences = a - b
        if "_order_probability" not in self.__dict__:
            self._order_probability = OrderProbability.fit(self.calibration_)
        return self._order_probability(differences)

    def size_curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Every coverage that the held-out queries allow, and the mean size of the sets at it.

        Returns
        -------
        coverages, sizes : ndarray of shape (n_calibration_queries_,)
        """
        check_is_fitted(self, "calibration_")
        choice = SetChoice(self.calibration_, self.target, self.k, [self.distance_])
        return choice.sizes_by_coverage(self.distance_)

    @on_axes
    def plot_set_sizes(self, ax: Any) -> None:
        """The mean size of the sets over the coverage, with the chosen coverage marked."""
        from ..report.displays import SetSizeDisplay

        SetSizeDisplay.from_estimator(self, ax=ax)

    def summary(self) -> str:
        """One sentence: how many items to show."""
        check_is_fitted(self, "calibration_")
        held = _WORDS[self.target].format(k=self.k)
        items = self.calibration_.codes.shape[0] / self.set_sizes_.shape[0]
        return (
            f"To have {held} among those shown for {as_odds(self.coverage)} new queries, show "
            f"{round(self.set_sizes_.mean(), 1):g} of {round(items, 1):g} items on average."
        )

    def drift_test(self, X, *, qid=None) -> DriftTest:
        """Do new queries look like those that the cut-off comes from?

        Parameters
        ----------
        X : as in predict
        qid : array-like of shape (m,)

        Returns
        -------
        DriftTest
        """
        scores = self.predict(X, qid=qid)
        new = query_figures(scores, encode_queries(qid, scores.shape[0]))
        return compare_figures(self.query_figures(), new, with_scale=self.has_one_scale)

    def query_figures(self) -> np.ndarray:
        """What is known about each held-out query without labels, shape (n_queries, 3): see `DriftTest`."""
        check_is_fitted(self, "calibration_")
        return query_figures(self.calibration_.scores, self.calibration_.queries)

    @property
    def has_one_scale(self) -> bool:
        """Whether held-out scores are on the scale of the final model: those of folds come from clearly fewer rows."""
        return self.cv in ("leave-query-out", "prefit") and not isinstance(
            self.estimator_, SelfValidatingLearner
        )

    def _cutoff(self, coverage: float | None = None) -> Cutoff:
        check_is_fitted(self, "calibration_")
        if coverage is None or coverage == self.coverage:
            return Cutoff(self.distance_, self.threshold_)
        read_share(coverage, "coverage")
        choice = SetChoice(self.calibration_, self.target, self.k, self._kinds())
        refuse_too_few(choice.n_counted, coverage)
        return choice.cutoff(coverage, choice.choose(coverage))

    def _width(self, coverage: float | None) -> tuple[str, float]:
        """The unit and the width of rank intervals."""
        auto = self.cv != "prefit"
        if coverage is not None:
            return _rank_cutoff(self.calibration_, read_share(coverage, "coverage"), auto=auto)
        if "_rank_width" not in self.__dict__:
            self._rank_width = _rank_cutoff(self.calibration_, self.coverage, auto=auto)
        return self._rank_width

    def _kinds(self) -> tuple[str, ...]:
        if self.distance != "auto":
            return (self.distance,)
        return ("softmax",) if self.cv == "prefit" else DISTANCES

    def _check_options(self) -> None:
        read_share(self.coverage, "coverage")
        if self.target not in _TARGETS:
            raise ValueError(f"target={self.target!r}: expected one of {', '.join(map(repr, _TARGETS))}.")
        if isinstance(self.k, bool) or not isinstance(self.k, Integral) or self.k < 1:
            raise ValueError(f"k={self.k!r}: expected a whole number of at least 1.")
        if self.k != 1 and self.target != "top-k":
            raise ValueError(f"k={self.k} is for target='top-k': leave it out for target={self.target!r}.")
        if self.distance not in ("auto", *DISTANCES):
            raise ValueError(
                f"distance={self.distance!r}: expected one of {', '.join(map(repr, ('auto', *DISTANCES)))}."
            )

    def _refuse_unsuitable(self, choice: SetChoice) -> None:
        if not choice.n_counted:
            lacks = "a relevant row (y > 0)" if "relevant" in self.target else "rows with different y"
            raise ValueError(
                f"No query has {lacks}, so there is nothing to hold for target={self.target!r}: check y, or use "
                "another target."
            )
        if "relevant" in self.target and (self.calibration_.y > 0).all():
            raise ValueError(
                f"Every row has y > 0, so all are relevant: target={self.target!r} is for y with 0 for irrelevant "
                "rows. Use target='best' or 'top-k'."
            )
        refuse_too_few(choice.n_counted, self.coverage)


def _rank_cutoff(held_out: Calibration, coverage: float, *, auto: bool) -> tuple[str, float]:
    """Whether widths are in units of the spread of a query, and the width: whichever makes intervals narrower."""
    counted = held_out.counted
    if not counted.any():
        raise ValueError(
            "No held-out query has rows with different y, so there are no ranks to calibrate intervals by."
        )
    held_out = held_out.take(counted)
    queries = held_out.queries
    needs = rank_needs(held_out.y, held_out.scores, queries)
    gains = 1.0 / queries.counts[queries.codes]
    units = in_units_of(spreads(held_out.scores, queries))
    found = []
    for kind in ("gap", "spread") if auto else ("gap",):
        unit = units if kind == "spread" else np.ones(queries.n_groups)
        width = least_cutoff(needs / unit[queries.codes], gains, queries.n_groups, 1.0 - coverage)
        found.append((kind, width, width * unit))
    if len(found) == 1:
        return found[0][:2]
    # Some of the queries, at most 200, decide which intervals are narrower.
    some = np.arange(queries.n_groups) % (1 + queries.n_groups // 200) == 0
    part = held_out.take(some)
    bounds = [rank_bounds(part.scores, widths[some], part.queries) for _, _, widths in found]
    return found[int(np.argmin([float(np.mean(one[:, 1] - one[:, 0])) for one in bounds]))][:2]


@dataclass(frozen=True, eq=False)
class StoredSets:
    """Sets that hold what they must (the best item for those of `preflearn train`), from what held-out queries needed.

    Attributes
    ----------
    distance : str
        What is cut off; see `ConformalRanker`.
    needs : ndarray of shape (q,)
        The cut-off that each held-out query needed, ascending.
    figures : ndarray of shape (n, 3)
        What is known about each held-out query without labels, for `drift`.
    with_scale : bool
        Whether held-out scores are on the scale of the model.
    """

    distance: str
    needs: np.ndarray
    figures: np.ndarray
    with_scale: bool = True

    def shown(self, scores: np.ndarray, qid: Any, coverage: float) -> np.ndarray:
        """The rows in the set of their query, shape (m,).

        Raises
        ------
        ValueError
            If there were too few held-out queries for the coverage.
        """
        refuse_too_few(self.needs.shape[0], read_share(coverage, "coverage"))
        n = self.needs.shape[0]
        cutoff = Cutoff(self.distance, least_cutoff(self.needs, np.ones(n), n, 1.0 - coverage))
        return shown_rows(scores, encode_queries(qid, scores.shape[0]), cutoff)

    def drift(self, figures: np.ndarray) -> DriftTest:
        """New queries, given by their figures, against the held-out ones."""
        return compare_figures(self.figures, figures, with_scale=self.with_scale)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for the metadata of a model file."""
        return {
            "target": "best",
            "distance": self.distance,
            "needs": self.needs.tolist(),
            "figures": self.figures.tolist(),
            "with_scale": self.with_scale,
        }

    @classmethod
    def from_dict(cls, found: Any) -> StoredSets | None:
        """What `to_dict` wrote; None for anything else."""
        if not isinstance(found, Mapping) or found.get("distance") not in DISTANCES:
            return None
        try:
            needs = np.asarray(found["needs"], dtype=float)
            figures = np.asarray(found["figures"], dtype=float)
        except (KeyError, TypeError, ValueError):
            return None
        fits = needs.ndim == 1 and needs.size and figures.ndim == 2 and figures.shape[1] == 3
        if not fits or not np.isfinite(needs).all() or not np.isfinite(figures).all():
            return None
        return cls(found["distance"], np.sort(needs), figures, bool(found.get("with_scale", True)))

    @classmethod
    def of_choice(cls, choice: SetChoice, kind: str, scores: np.ndarray, *, with_scale: bool) -> StoredSets:
        """Those of held-out queries with one of the distances."""
        figures = query_figures(scores, choice.queries)
        needs = np.sort(choice.needs[kind])
        return cls(kind, needs[_some(needs.shape[0])], figures[_some(figures.shape[0])], with_scale)

    @classmethod
    def of(cls, ranker: ConformalRanker) -> StoredSets:
        """The sets of a fitted ranker, for any target."""
        held_out = ranker.calibration_
        choice = SetChoice(held_out, ranker.target, ranker.k, [ranker.distance_])
        return cls.of_choice(choice, ranker.distance_, held_out.scores, with_scale=ranker.has_one_scale)


def _some(n: int) -> np.ndarray:
    """Positions of at most `_MOST_QUERIES` of n sorted values, rounded up so that a cut-off is never too low."""
    if n <= _MOST_QUERIES:
        return np.arange(n)
    return np.ceil(np.arange(1, _MOST_QUERIES + 1) * (n / _MOST_QUERIES)).astype(np.int64) - 1
