"""Small summaries that several tables use."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, rankdata, wilcoxon


def count(n: int, noun: str) -> str:
    """A number with its noun.

    Examples
    --------
    >>> count(1, "draw"), count(2, "draw")
    ('1 draw', '2 draws')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def spread(values: ArrayLike) -> float | None:
    """Sample standard deviation; None of fewer than two values.

    Examples
    --------
    >>> spread([1.0, 3.0])
    1.4142135623730951
    """
    column = np.asarray(values, dtype=float)
    return float(column.std(ddof=1)) if column.size > 1 else None


def signed_rank_pvalue(first: ArrayLike, second: ArrayLike) -> float | None:
    """Wilcoxon's signed-ranks test of two columns of results; None where they never differ.

    Examples
    --------
    >>> signed_rank_pvalue([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) is None
    True
    """
    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    # Shares of pairs from two orders of summation differ in the last digit.
    difference = difference[np.abs(difference) > 1e-12]
    if not difference.size:
        return None
    exact = difference.size <= 50 and np.unique(np.abs(difference)).size == difference.size
    return float(wilcoxon(difference, method="exact" if exact else "asymptotic").pvalue)


def auc_interval(y: np.ndarray, scores: np.ndarray) -> tuple[float, tuple[float, float]]:
    """AUC of given scores with DeLong's 95 % interval: the luck of the test rows, not of the training rows.

    Examples
    --------
    >>> value, (low, high) = auc_interval(np.array([0, 0, 1, 1, 1]), np.array([1.0, 3.0, 2.0, 4.0, 5.0]))
    >>> round(value, 3), low < value < high
    (0.833, True)
    """
    positive = np.asarray(y) > 0
    ranks = rankdata(scores)
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    # The share of the other class that each row is on the right side of.
    wins = (ranks[positive] - rankdata(scores[positive])) / n_negative
    losses = (ranks[~positive] - rankdata(scores[~positive])) / n_positive
    value = float(wins.mean())
    variance = _variance_of_mean(wins) + _variance_of_mean(losses)
    half = float(norm.ppf(0.975)) * np.sqrt(variance)
    return value, (max(0.0, float(value - half)), min(1.0, float(value + half)))


def _variance_of_mean(values: np.ndarray) -> float:
    return float(values.var(ddof=1) / values.shape[0]) if values.shape[0] > 1 else 0.0
