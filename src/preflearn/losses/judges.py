"""How reliable is each judge? A factor r > 0 that multiplies the differences a judge sees.

P(judge k prefers h to j) = σ(r_k (f_h - f_j)): r is near 0 for a judge who answers at random (or always takes the left
one, where the sides are shuffled), and above 1 for one who sees finer differences than most. f and r are found in
turns. For r each answer is predicted by the model without it; otherwise a careless judge would be confirmed by scores
that have learned from those same answers:

    r_k = argmin  -Σ_{answers of k} w [y log p + (1 - y) log(1 - p)] + (log r)² / 2,   p = σ(r μ / √(1 + π r² v / 8))

with mean μ and variance v of the held-out difference. The mean of r over answers is 1: one judge alone has r = 1.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit

from ..comparisons.answers import Answers

# Reliabilities are searched for between e^-4 and e^3.
_LOWEST, _HIGHEST = -4.0, 3.0
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_SECTIONS = 32


def estimate_reliability(answers: Answers, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """r of each judge, given each answer's held-out difference.

    Parameters
    ----------
    answers : Answers
        With judges numbered 0, 1, ...
    mean, variance : ndarrays of shape (l,)
        Of the held-out differences f_h - f_j.

    Returns
    -------
    ndarray of shape (n_judges,)
        One on average over answers.
    """
    judges = answers.judges
    assert judges is not None
    n_judges = int(judges.max(initial=-1)) + 1

    def surprise(log_r: np.ndarray) -> np.ndarray:
        r = np.exp(log_r)[judges]
        d = r * mean / np.sqrt(1.0 + np.pi / 8.0 * r**2 * variance)
        each = -(answers.share * log_expit(d) + (1.0 - answers.share) * log_expit(-d))
        return np.bincount(judges, answers.weight * each, n_judges) + 0.5 * log_r**2

    # Golden-section search, for all judges at once.
    low, high = np.full(n_judges, _LOWEST), np.full(n_judges, _HIGHEST)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = surprise(left), surprise(right)
    for _ in range(_SECTIONS):
        down = at_left <= at_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left, at_right = surprise(left), surprise(right)
    r = np.exp(0.5 * (low + high))
    totals = np.bincount(judges, answers.weight, n_judges)
    return r * totals.sum() / max(float(totals @ r), np.finfo(float).tiny)
