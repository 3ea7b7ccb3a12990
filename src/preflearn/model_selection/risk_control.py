"""A cut-off of the list that keeps the expected loss of new queries below a level; the algebra is in `_calibration`."""

from __future__ import annotations

from numbers import Integral
from typing import Self

import numpy as np

from ._calibration import DISTANCES, Calibration, distances, least_cutoff, ndcg_gains, recall_gains
from .calibrated import CalibratedRanker, read_share, refuse_estimator, refuse_few, refuse_too_few

# Above this grade the sum of the gains of a long list would overflow, as in `preflearn.metrics.ndcg`.
_LARGEST_GRADE = 900.0


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

    def fit(self, X, y, *, qid=None) -> Self:
        """Train on all rows, and find the cut-off from held-out queries.

        Parameters
        ----------
        X, y, qid : as in ConformalRanker.fit

        Returns
        -------
        self
        """
        self._check_options()
        refuse_estimator(self.estimator, self.cv)
        refuse_few(qid, 1.0 - self.risk)
        held_out = self._fit_held_out(X, y, qid)
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
            if y.max() > _LARGEST_GRADE:
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
