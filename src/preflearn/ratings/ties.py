"""Ties with a probability of their own: Davidson's model.

With d = f_a - f_b + z · β and ν = u · γ, u a constant and what else makes ties likely,

    P(a wins) = e^{d/2} / Z,    P(tie) = e^ν / Z,    P(b wins) = e^{-d/2} / Z,    Z = e^{d/2} + e^ν + e^{-d/2},

convex in (f, β, γ) as minus the log likelihood, and Bradley and Terry's model at e^ν = 0. With y the share of side a
(1, 1/2, 0) and t 1 for a tie, P_a, P_t and P_b the probabilities and E y = P_a + P_t / 2,

    -∂ℓ/∂d = w (y - E y),        ∂²ℓ/∂d² = w (P_a + P_b - (P_a - P_b)²) / 4,
    -∂ℓ/∂ν = w (t - P_t),        ∂²ℓ/∂ν² = w P_t (1 - P_t),        ∂²ℓ/∂d∂ν = -w P_t (P_a - P_b) / 2,

so that sums over distinct pairs of w, w y and w t suffice where u is constant.

References
----------
Davidson, "On extending the Bradley-Terry model to accommodate ties in paired comparison experiments", Journal of the
American Statistical Association 65 (1970).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..comparisons.answers import Answers
from ..losses.newton import Features, PairObjective

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


def outcome_probabilities(d: np.ndarray, nu: np.ndarray, variance: np.ndarray | None = None) -> np.ndarray:
    """P(a wins), P(tie) and P(b wins), shape (l, 3); averaged over d ~ N(d, variance) where a variance is given."""
    if variance is not None:
        steps = np.sqrt(np.maximum(variance, 0.0))
        total = np.zeros((d.size, 3))
        for node, weight in zip(_NODES, _NODE_WEIGHTS, strict=True):
            total += weight * outcome_probabilities(d + node * steps, nu)
        return total / _NODE_WEIGHTS.sum()
    logits = np.stack([0.5 * d, nu, -0.5 * d], axis=1)
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(P / P.sum(axis=1, keepdims=True))


def with_share_of_ties(p: np.ndarray, ties: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Three outcomes from P(a wins) where ties are as likely in every battle, their share that of other battles."""
    r = (weight @ ties + 0.5) / (weight.sum() + 1.0)
    return np.stack([(1.0 - r) * p, np.full(p.size, r), (1.0 - r) * (1.0 - p)], axis=1)


@dataclass(frozen=True)
class Outcomes:
    """Battles with three outcomes, or sums of such battles.

    Attributes
    ----------
    answers : Answers
        Their weight and the share of the first side.
    ties : ndarray of shape (k,)
        The share of ties.
    design : ndarray of shape (k, q)
        u.
    """

    answers: Answers
    ties: np.ndarray
    design: np.ndarray

    @property
    def n_rows(self) -> int:
        """Of strengths, β and γ together."""
        return self.answers.n_rows + self.design.shape[1]


class OutcomeLoss:
    """Minus the log likelihood at θ = (f, β, γ): value, gradient, curvature. O(k)."""

    def __init__(self, outcomes: Outcomes, theta: np.ndarray) -> None:
        self._outcomes, answers, ties = outcomes, outcomes.answers, outcomes.ties
        self._n, w = answers.n_rows, answers.weight
        d, nu = answers.differences(theta[: self._n]), outcomes.design @ theta[self._n :]
        top = np.maximum(0.5 * np.abs(d), nu)
        won, tied, lost = np.exp(0.5 * d - top), np.exp(nu - top), np.exp(-0.5 * d - top)
        Z = won + tied + lost
        self.value = float(w @ (np.log(Z) + top - (answers.share - 0.5) * d - ties * nu))
        won, tied, lost = won / Z, tied / Z, lost / Z
        self.pulls = w * (answers.share - won - 0.5 * tied)
        self.tie_pulls = w * (ties - tied)
        self.curvatures = 0.25 * w * (won + lost - np.square(won - lost))
        self.mixed = -0.5 * w * tied * (won - lost)
        self.tie_curvatures = w * tied * (1.0 - tied)
        self.gradient = -np.concatenate([answers.spread(self.pulls), outcomes.design.T @ self.tie_pulls])

    @property
    def degrees(self) -> np.ndarray:
        own = np.square(self._outcomes.design).T @ self.tie_curvatures
        return np.concatenate([self._outcomes.answers.spread_sizes(self.curvatures), own])

    def curvature(self, v: np.ndarray) -> np.ndarray:
        """Hessian times v."""
        answers, U = self._outcomes.answers, self._outcomes.design
        d, nu = answers.differences(v[: self._n]), U @ v[self._n :]
        along = answers.spread(self.curvatures * d + self.mixed * nu)
        return np.concatenate([along, U.T @ (self.mixed * d + self.tie_curvatures * nu)])

    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """The columns of the Hessian that belong to γ: rows of f and β, and of γ."""
        U = self._outcomes.design
        cross = np.stack([self._outcomes.answers.spread(self.mixed * u) for u in U.T], axis=1)
        return cross, U.T @ (U * self.tie_curvatures[:, None])

    def hessian(self) -> np.ndarray:
        """Dense and Fortran-ordered."""
        H = np.empty((self._outcomes.n_rows,) * 2, order="F")
        H[: self._n, : self._n] = self._outcomes.answers.dense_hessian(self.curvatures)
        H[: self._n, self._n :], H[self._n :, self._n :] = self.blocks()
        H[self._n :, : self._n] = H[: self._n, self._n :].T
        return H


class OutcomeObjective(PairObjective):
    """The loss of θ = R w, R as `Features`."""

    def __init__(self, root: sp.sparray | np.ndarray, outcomes: Outcomes) -> None:
        super().__init__(Features(root), outcomes.answers)
        self._outcomes = outcomes

    def logistic(self, p: np.ndarray) -> OutcomeLoss:
        return OutcomeLoss(self._outcomes, p)
