r"""Statistics of fixed width that add and subtract.

For features Φ of width n, (Φᵀ L Φ, Φᵀ b, zᵀz) of disjoint sets of queries add up: training in chunks, forgetting,
clusters and one-pass cross-validation are sums of these. The rows of one global ranking do not split into queries; for
them the centred moments Σ (φ - μ)(φ - μ)ᵀ, Σ (φ - μ)(s - σ)ᵀ with the means μ and σ are kept and merged pairwise, which
is stable.

The loss of any weights w is a quadratic form in the same statistics, zᵀz - 2 wᵀ Φᵀb + wᵀ Φᵀ L Φ w: a model trained on
some queries can be tested on others without going back to their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..comparisons import Comparisons, one_group
from ..comparisons.grouping import query_weights
from ..comparisons.queries import QueryComparisons
from .problem import RidgeSystem, feature_moments, unchanged


@dataclass
class QueryMoments:
    """Sums over whole queries (or over single rows, for comparisons of each row with its own target).

    Attributes
    ----------
    gram : ndarray of shape (n, n)
        Φᵀ L Φ.
    cross : ndarray of shape (n, v)
        Φᵀ b.
    n_rows, n_comparisons : int
    squares : ndarray of shape (v,)
        zᵀz, the loss at w = 0.
    weight : float
        Sum of the weights of the comparisons.
    """

    gram: np.ndarray
    cross: np.ndarray
    n_rows: int
    n_comparisons: int
    squares: np.ndarray
    weight: float

    @classmethod
    def of(cls, features, comparisons: Comparisons, rows: np.ndarray | None = None) -> QueryMoments:
        """The statistics of one chunk of whole queries, or of some rows of it. O(m n²)."""
        gram, cross = feature_moments(features, comparisons, rows)
        return cls(
            gram.astype(np.float64, copy=False),
            cross.astype(np.float64, copy=False),
            comparisons.n_rows,
            comparisons.n_comparisons,
            comparisons.squared_targets(),
            comparisons.total_weight(),
        )

    @classmethod
    def of_folds(
        cls, features, comparisons: Comparisons, fold_of_row: np.ndarray, n_folds: int
    ) -> list[QueryMoments | None]:
        """The statistics of each fold of whole queries, None where a fold has no row. O(m n²) together."""
        order = np.argsort(fold_of_row, kind="stable")
        ends = np.cumsum(np.bincount(fold_of_row, minlength=n_folds))
        folds = [order[first:last] for first, last in zip([0, *ends[:-1]], ends, strict=True)]
        return [cls.of(features, comparisons.take(rows), rows) if rows.shape[0] else None for rows in folds]

    def add(self, other: QueryMoments) -> None:
        """Add the queries of another chunk."""
        self._accumulate(other, 1)

    def subtract(self, other: QueryMoments) -> None:
        """Remove queries again."""
        self._accumulate(other, -1)

    def _accumulate(self, other: QueryMoments, sign: int) -> None:
        if sign > 0:
            self.gram += other.gram
            self.cross += other.cross
            self.squares = self.squares + other.squares
        else:
            self.gram -= other.gram
            self.cross -= other.cross
            self.squares = self.squares - other.squares
        self.n_rows += sign * other.n_rows
        self.n_comparisons += sign * other.n_comparisons
        self.weight += sign * other.weight

    def copy(self) -> QueryMoments:
        """A copy that can be added to."""
        return QueryMoments(
            np.array(self.gram, order="F"),
            self.cross.copy(),
            self.n_rows,
            self.n_comparisons,
            self.squares.copy(),
            self.weight,
        )

    def problem(self) -> RidgeSystem:
        """The primal system of everything seen; the statistics stay as they are."""
        return RidgeSystem(np.array(self.gram, order="F"), self.cross, unchanged)

    def loss(self, weights: np.ndarray) -> np.ndarray:
        """The squared loss over these comparisons of weights learned elsewhere, shape (a,), summed over outputs.

        Parameters
        ----------
        weights : ndarray of shape (a, n, v)
        """
        return _quadratic(self.gram, self.cross, self.squares, weights)


@dataclass
class GlobalMoments:
    """Centred moments of the rows of one global ranking, or of a regression with an intercept.

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
        Which L `problem` uses: n C, C or 2 / (n - 1) C with the centring C.
    score_scatter : ndarray of shape (v,)
        Σ (s - σ)².
    """

    scatter: np.ndarray
    cross: np.ndarray
    mean: np.ndarray
    score_mean: np.ndarray
    n_rows: int
    weighting: str
    score_scatter: np.ndarray

    @classmethod
    def of(cls, features, scores: np.ndarray, weighting: str) -> GlobalMoments:
        """The statistics of one chunk of rows. O(m n²)."""
        m = scores.shape[0]
        centring = QueryComparisons(scores, one_group(m), weighting="item")
        scatter, cross = feature_moments(features, centring)
        return cls(
            scatter.astype(np.float64, copy=False),
            cross.astype(np.float64, copy=False),
            np.asarray(features.mean(axis=0, dtype=np.float64)).ravel(),
            scores.mean(axis=0),
            m,
            weighting,
            centring.squared_targets(),
        )

    @classmethod
    def of_folds(
        cls, features, scores: np.ndarray, weighting: str, fold_of_row: np.ndarray, n_folds: int
    ) -> list[GlobalMoments | None]:
        """The statistics of each fold of rows, None where a fold has no row."""
        rows = [np.flatnonzero(fold_of_row == fold) for fold in range(n_folds)]
        return [cls.of(features[part], scores[part], weighting) if part.size else None for part in rows]

    @property
    def n_comparisons(self) -> int:
        return self.n_rows * (self.n_rows - 1) // 2

    @property
    def weight(self) -> float:
        """Sum of the weights of the pairs."""
        n = np.array([self.n_rows])
        pairs = n * (n - 1) // 2
        return float(query_weights(self.weighting, n, pairs)[0] * pairs[0])

    def add(self, other: GlobalMoments) -> None:
        """Add the rows of another chunk (pairwise update of Chan, Golub and LeVeque)."""
        total = self.n_rows + other.n_rows
        step, score_step = other.mean - self.mean, other.score_mean - self.score_mean
        factor = self.n_rows * other.n_rows / total
        self.scatter += other.scatter + factor * np.outer(step, step)
        self.cross += other.cross + factor * np.outer(step, score_step)
        self.score_scatter = self.score_scatter + other.score_scatter + factor * score_step**2
        self.mean = self.mean + step * (other.n_rows / total)
        self.score_mean = self.score_mean + score_step * (other.n_rows / total)
        self.n_rows = total

    def subtract(self, other: GlobalMoments) -> None:
        """Remove rows again: the update of `add` run backwards."""
        rest = self.n_rows - other.n_rows
        mean = self.mean + (self.mean - other.mean) * (other.n_rows / rest)
        score_mean = self.score_mean + (self.score_mean - other.score_mean) * (other.n_rows / rest)
        step, score_step = other.mean - mean, other.score_mean - score_mean
        factor = rest * other.n_rows / self.n_rows
        self.scatter -= other.scatter + factor * np.outer(step, step)
        self.cross -= other.cross + factor * np.outer(step, score_step)
        self.score_scatter = self.score_scatter - other.score_scatter - factor * score_step**2
        self.mean, self.score_mean, self.n_rows = mean, score_mean, rest

    def copy(self) -> GlobalMoments:
        """A copy that can be added to."""
        return GlobalMoments(
            np.array(self.scatter, order="F"),
            self.cross.copy(),
            self.mean.copy(),
            self.score_mean.copy(),
            self.n_rows,
            self.weighting,
            self.score_scatter.copy(),
        )

    def problem(self) -> RidgeSystem:
        """The primal system of everything seen; the statistics stay as they are."""
        factor = self._factor()
        return RidgeSystem(np.array(factor * self.scatter, order="F"), factor * self.cross, unchanged)

    def _factor(self) -> float:
        """L is this times the centring."""
        n = np.array([self.n_rows])
        return float(query_weights(self.weighting, n, n * (n - 1) // 2)[0] * self.n_rows)

    def loss(self, weights: np.ndarray) -> np.ndarray:
        """The squared loss over the pairs of these rows of weights learned elsewhere, shape (a,), summed over outputs.

        Parameters
        ----------
        weights : ndarray of shape (a, n, v)
        """
        return self._factor() * _quadratic(self.scatter, self.cross, self.score_scatter, weights)

    def intercept(self, weights: np.ndarray) -> np.ndarray:
        """σ - μᵀw, the constant of the least squares with these rows, shape (..., v) for weights (..., n, v)."""
        return self.score_mean - np.einsum("i,...iv->...v", self.mean, weights)


def _quadratic(gram: np.ndarray, cross: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ over outputs of zᵀz - 2 wᵀc + wᵀAw for each of the weights; at least zero, whatever rounding does to it."""
    bent = np.einsum("anv,anv->a", weights, np.matmul(gram, weights))
    slope = np.einsum("anv,nv->a", weights, cross)
    return np.maximum(squares.sum() - 2.0 * slope + bent, 0.0)
