"""The logistic loss of answers: minus the log likelihood of Bradley and Terry's model.

With d_k = r_k (f_h - f_j), P(h over j) = σ(d) = 1 / (1 + e^{-d}), and y_k the share of the win (1, or 1/2 for a tie):

    ℓ(f) = Σ_k w_k [y_k log(1 + e^{-d_k}) + (1 - y_k) log(1 + e^{d_k})]
    ∇ℓ   = -Σ_k g_k (e_h - e_j),                 g_k = w_k r_k (y_k - σ(d_k))
    ∇²ℓ  =  Σ_k v_k (e_h - e_j)(e_h - e_j)ᵀ,      v_k = w_k r_k² σ(d_k)(1 - σ(d_k))

so that the Hessian is the Laplacian of the compared pairs weighted by v.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit

from ..comparisons.answers import AdjustedAnswers, Answers

# From this many answers on, loading compiled loops is worth its time.
_MANY = 100_000


class LogisticLoss:
    """The loss at one vector of latent scores: value, gradient, curvature. O(l).

    Parameters
    ----------
    answers : Answers
    f : ndarray of shape (m,)
        Latent scores.

    Attributes
    ----------
    value : float
    gradient : ndarray of shape (m,)
        With respect to f.
    degrees : ndarray of shape (m,)
        Diagonal of the Hessian.
    pulls : ndarray of shape (l,)
        g, how much each answer pulls its two items apart.
    curvatures : ndarray of shape (l,)
        v.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons.answers import Answers
    >>> LogisticLoss(Answers.read(2, np.array([[0, 1]])), np.zeros(2)).gradient
    array([-0.5,  0.5])
    """

    def __init__(self, answers: Answers, f: np.ndarray):
        self._answers = answers
        d = answers.scale * answers.differences(f)
        losing = expit(-d)
        # log(1 + e^{-d}) without overflow at either end.
        surprise = np.maximum(-d, 0.0) + np.log1p(np.exp(-np.abs(d)))
        self.value = float(np.sum(answers.weight * (surprise + (1.0 - answers.share) * d)))
        self.pulls = answers.weight * answers.scale * (answers.share - 1.0 + losing)
        self.curvatures = answers.weight * answers.scale**2 * losing * (1.0 - losing)
        self.gradient = -answers.spread(self.pulls)

    @property
    def degrees(self) -> np.ndarray:
        return self._answers.spread_sizes(self.curvatures)

    def rounding(self, sizes: np.ndarray) -> np.ndarray:
        """How far rounding may shift each entry of the gradient, in units of the machine precision.

        ``sizes`` are those of the numbers that were added to give the scores.
        """
        return self._answers.spread_sizes(np.abs(self.pulls) + self.curvatures * self._answers.sums(sizes))

    def curvature(self, v: np.ndarray) -> np.ndarray:
        """Hessian with respect to f times v."""
        # The loop handles only the two items of a pair.
        if self._answers.n_pairs >= _MANY and not isinstance(self._answers, AdjustedAnswers):
            from ._loops import curvature_product

            return curvature_product(self._answers.pairs, self.curvatures, v)
        return self._answers.spread(self.curvatures * self._answers.differences(v))


def averaged_probability(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E σ(d) for d with this mean and variance: σ(mean / √(1 + π variance / 8)).

    The probit approximation of MacKay, "The evidence framework applied to classification networks", Neural
    Computation 4 (1992).
    """
    return expit(mean / np.sqrt(1.0 + np.pi / 8.0 * np.maximum(variance, 0.0)))


def estimate_reliability(answers: Answers, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """How reliable is each judge? A factor r > 0 that multiplies the differences a judge sees.

    P(judge k prefers h to j) = σ(r_k (f_h - f_j)): r is near 0 for a judge who answers at random (or always takes the
    left one, where the sides are shuffled), and above 1 for one who sees finer differences than most. f and r are found
    in turns. For r each answer is predicted by the model without it; otherwise a careless judge would be confirmed by
    scores that have learned from those same answers:

        r_k = argmin  -Σ_{answers of k} w [y log p + (1 - y) log(1 - p)] + (log r)² / 2,   p = σ(r μ / √(1 + π r² v/8))

    with mean μ and variance v of the held-out difference. The mean of r over answers is 1: one judge alone has r = 1.

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

    # Golden-section search between e^-4 and e^3, for all judges at once.
    low, high, golden = np.full(n_judges, -4.0), np.full(n_judges, 3.0), (np.sqrt(5.0) - 1.0) / 2.0
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = surprise(left), surprise(right)
    for _ in range(32):
        down = at_left <= at_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        left, right = high - golden * (high - low), low + golden * (high - low)
        at_left, at_right = surprise(left), surprise(right)
    r = np.exp(0.5 * (low + high))
    totals = np.bincount(judges, answers.weight, n_judges)
    return r * totals.sum() / max(float(totals @ r), np.finfo(float).tiny)
