"""The probability of an order by the difference of two scores: monotone, and estimated from held-out pairs.

With d = f_a - f_b over pairs of a query with different y, p(|d|) is the share of pairs ordered as y is: counted in bins
of equally many pairs, each query with the same weight, smoothed by half a row on each side and made monotone
(isotonic regression). For d < 0 it is 1 - p(|d|), and one half at d = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from ..comparisons import Groups
from ._calibration import Calibration

_BINS = 40
_QUERIES_OF_A_BIN = 3
_PAIRS_OF_A_QUERY = 200
_MOST_QUERIES = 300


@dataclass(frozen=True)
class OrderProbability:
    """A monotone function from differences to probabilities.

    Attributes
    ----------
    difference, probability : ndarray of shape (b,)
        Its corners, from (0, 1/2) on; constant after the last.
    """

    difference: np.ndarray
    probability: np.ndarray

    def __call__(self, d: np.ndarray) -> np.ndarray:
        p = np.interp(np.abs(d), self.difference, self.probability)
        return np.where(d >= 0, p, 1.0 - p)

    @classmethod
    def fit(cls, held_out: Calibration) -> OrderProbability:
        """From the pairs of held-out queries: of up to 300 queries, up to 200 each, drawn at random."""
        size, right, weight = _pairs(held_out)
        if not size.shape[0]:
            return cls(np.zeros(1), np.full(1, 0.5))
        order = np.argsort(size, kind="stable")
        size, right, weight = size[order], right[order], weight[order]
        n_queries = weight.sum()
        n_bins = max(1, min(_BINS, int(n_queries) // _QUERIES_OF_A_BIN))
        place = np.minimum((np.cumsum(weight) / n_queries * n_bins).astype(np.int64), n_bins - 1)
        total = np.bincount(place, weights=weight, minlength=n_bins)
        kept = total > 0
        middle = np.bincount(place, weights=weight * size, minlength=n_bins)[kept] / total[kept]
        row = (
            held_out.queries.n_groups / held_out.scores.shape[0]
        )  # the weight of one row, where a query has weight 1
        won = (np.bincount(place, weights=weight * right, minlength=n_bins)[kept] + row / 2) / (
            total[kept] + row
        )
        p = np.maximum(isotonic_regression(won, sample_weight=total[kept] + row), 0.5)
        return cls(np.concatenate([[0.0], middle]), np.concatenate([[0.5], p]))

    def _fitted_arrays(self) -> dict[str, str]:
        if np.any(np.diff(self.difference) < 0):
            raise ValueError("difference is not ascending")
        return {"difference": "b", "probability": "b"}


def _pairs(held_out: Calibration) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """|d|, whether the order is right (one half for a tie), and the weight of pairs with different y."""
    rng = np.random.default_rng(0)
    queries: Groups = held_out.queries
    found = []
    for query in range(0, queries.n_groups, 1 + queries.n_groups // _MOST_QUERIES):
        rows = queries.rows(query)
        i, j = _some_pairs(rows.shape[0], rng)
        dy = held_out.y[rows[i]] - held_out.y[rows[j]]
        differs = dy != 0
        if not differs.any():
            continue
        d = (held_out.scores[rows[i]] - held_out.scores[rows[j]])[differs] * np.sign(dy[differs])
        found.append((np.abs(d), 0.5 * (1.0 + np.sign(d)), np.full(d.shape, 1.0 / d.shape[0])))
    if not found:
        return (np.empty(0),) * 3
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


def _some_pairs(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of n rows, or a random sample of them."""
    if n * (n - 1) // 2 <= _PAIRS_OF_A_QUERY:
        return np.triu_indices(n, 1)
    i, j = rng.integers(n, size=_PAIRS_OF_A_QUERY), rng.integers(n - 1, size=_PAIRS_OF_A_QUERY)
    return i, j + (j >= i)
