r"""Statistics of fixed width that add and subtract.

For features Φ of width n, (Φᵀ L Φ, Φᵀ b) of disjoint sets of queries add up: training in chunks, forgetting, clusters
and one-pass cross-validation are sums of these. The rows of one global ranking do not split into queries; for them the
centred moments Σ (φ - μ)(φ - μ)ᵀ, Σ (φ - μ)(s - σ)ᵀ with the means μ and σ are kept and merged pairwise, which is
stable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..comparisons import Comparisons, one_group
from ..comparisons.queries import QueryComparisons
from ..comparisons.weighting import query_weights
from .gram import feature_gram, feature_moment
from .problem import RidgeProblem, _unchanged


@dataclass
class QueryMoments:
    """Sums over whole queries.

    Attributes
    ----------
    gram : ndarray of shape (n, n)
        Φᵀ L Φ.
    cross : ndarray of shape (n, v)
        Φᵀ b.
    n_rows, n_comparisons : int
    """

    gram: np.ndarray
    cross: np.ndarray
    n_rows: int
    n_comparisons: int

    @classmethod
    def of(cls, features, comparisons: Comparisons) -> QueryMoments:
        """The statistics of one chunk of whole queries. O(m n²)."""
        gram = feature_gram(features, comparisons).astype(np.float64, copy=False)
        cross = feature_moment(features, comparisons.target).astype(np.float64, copy=False)
        return cls(gram, cross, comparisons.n_rows, comparisons.n_comparisons)

    def add(self, other: QueryMoments) -> None:
        """Take the queries of another chunk in."""
        self._accumulate(other, 1)

    def subtract(self, other: QueryMoments) -> None:
        """Take queries out again."""
        self._accumulate(other, -1)

    def _accumulate(self, other: QueryMoments, sign: int) -> None:
        if sign > 0:
            self.gram += other.gram
            self.cross += other.cross
        else:
            self.gram -= other.gram
            self.cross -= other.cross
        self.n_rows += sign * other.n_rows
        self.n_comparisons += sign * other.n_comparisons

    def problem(self) -> RidgeProblem:
        """The primal system of everything seen; the statistics stay as they are."""
        return RidgeProblem(np.array(self.gram, order="F"), self.cross, _unchanged)


@dataclass
class GlobalMoments:
    """Centred moments of the rows of one global ranking.

    Attributes
    ----------
    scatter : ndarray of shape (n, n)
        Σ (φ - μ)(φ - μ)ᵀ.
    cross : ndarray of shape (n, v)
        Σ (φ - μ)(s - σ)ᵀ.
    mean : ndarray of shape (n,)
        μ.
    score_mean : ndarray of shape (v,)
        σ.
    n_rows : int
    weighting : {"pair", "item", "query"}
        What `problem` makes of them: L = n C, C or 2 / (n - 1) C with the centring C.
    """

    scatter: np.ndarray
    cross: np.ndarray
    mean: np.ndarray
    score_mean: np.ndarray
    n_rows: int
    weighting: str

    @classmethod
    def of(cls, features, scores: np.ndarray, weighting: str) -> GlobalMoments:
        """The statistics of one chunk of rows. O(m n²)."""
        m = scores.shape[0]
        centring = QueryComparisons(scores, one_group(m), weighting="item")
        return cls(
            feature_gram(features, centring).astype(np.float64, copy=False),
            feature_moment(features, centring.target).astype(np.float64, copy=False),
            np.asarray(features.mean(axis=0, dtype=np.float64)).ravel(),
            scores.mean(axis=0),
            m,
            weighting,
        )

    @property
    def n_comparisons(self) -> int:
        return self.n_rows * (self.n_rows - 1) // 2

    def add(self, other: GlobalMoments) -> None:
        """Take the rows of another chunk in (pairwise update of Chan, Golub and LeVeque)."""
        total = self.n_rows + other.n_rows
        step, score_step = other.mean - self.mean, other.score_mean - self.score_mean
        factor = self.n_rows * other.n_rows / total
        self.scatter += other.scatter + factor * np.outer(step, step)
        self.cross += other.cross + factor * np.outer(step, score_step)
        self.mean = self.mean + step * (other.n_rows / total)
        self.score_mean = self.score_mean + score_step * (other.n_rows / total)
        self.n_rows = total

    def subtract(self, other: GlobalMoments) -> None:
        """Take rows out again: the update of `add` run backwards."""
        rest = self.n_rows - other.n_rows
        mean = self.mean + (self.mean - other.mean) * (other.n_rows / rest)
        score_mean = self.score_mean + (self.score_mean - other.score_mean) * (other.n_rows / rest)
        step, score_step = other.mean - mean, other.score_mean - score_mean
        factor = rest * other.n_rows / self.n_rows
        self.scatter -= other.scatter + factor * np.outer(step, step)
        self.cross -= other.cross + factor * np.outer(step, score_step)
        self.mean, self.score_mean, self.n_rows = mean, score_mean, rest

    def problem(self) -> RidgeProblem:
        """The primal system of everything seen; the statistics stay as they are."""
        n = np.array([self.n_rows])
        factor = float(query_weights(self.weighting, n, n * (n - 1) // 2)[0] * self.n_rows)
        return RidgeProblem(np.array(factor * self.scatter, order="F"), factor * self.cross, _unchanged)
