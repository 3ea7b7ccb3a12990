"""Strengths of items, by Newton's method, and how certain they are.

With x_k = e_a - e_b, followed by the covariates z_k, and P(a wins) = σ(x_k · θ), θ = (f, β):

    min  -Σ_k w_k [y_k log σ(x_k · θ) + (1 - y_k) log σ(-x_k · θ)] + alpha ‖θ‖²
    H  =  Σ_k w_k p_k (1 - p_k) x_k x_kᵀ + 2 alpha I.

Covariates are scaled so that the penalty hardly touches β. Covariances of θ:

    model-based  C = H⁻¹
    sandwich     C = H⁻¹ (G / (G - 1) Σ_c g_c g_cᵀ + 2 alpha I) H⁻¹,     g_c = Σ_{k in c} w_k (y_k - p_k) x_k

for G clusters of battles that may depend on each other: those of a judge, of a prompt (`ranks` says how many clusters
that rests on). The prior counts as information in both, or an item that won all of its battles, of which the data alone
say nothing, would look certain. Strengths are relative to the mean of all items, and so are their variances.

**Margins**, by how much battles were won, give strengths by least squares. A margin d (a's score minus b's) is
τ (f_a - f_b) / c plus normal noise of standard deviation τ, so that a wins, d > 0, with the probability
Φ((f_a - f_b) / c). With c = 1.702 this is the logistic function of f_a - f_b to within .01: the strengths are those of
Bradley and Terry's model, learned from more than who won. In units of z = c d / τ,

    min  Σ_k w_k (z_k - x_k · θ)² / 2 c² + alpha ‖θ‖²,      H = Σ_k w_k x_k x_kᵀ / c² + 2 alpha I

(alpha θᵀ K⁻¹ θ and 2 alpha K⁻¹ where features say how similar items are), one linear system, whose residuals in units
of d do not depend on τ: τ² is their mean square, with degrees of freedom taken off.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from ..comparisons.answers import AdjustedAnswers, Answers
from ..losses.labels import MOST_SOLVED, LabelPosterior
from ..losses.logistic import LogisticLoss, averaged_probability
from ..losses.newton import ExactHessian, Features, PairLossFit, PairObjective, minimise_logistic
from ..numerics.linalg import cholesky_in_place, cholesky_solve, inverse_in_place
from .battles import FIRST_SIDE, Battles
from .rankings import MOST_FACTORED, ChoiceLoss, fit_rankings
from .ranks import MOST_INFORMATION, MOST_PRODUCTS, diagonal_information, information_of
from .ties import OutcomeLoss, OutcomeObjective, Outcomes, outcome_probabilities

# The logistic function is closest to the normal distribution with this standard deviation.
_LOGISTIC_WIDTH = 1.702
# At least this share of the battles is taken as degrees of freedom of the noise.
_LEAST_FREE = 0.1
# Coordinates up to which covariances are a dense matrix.
MOST_DENSE = 3000
# Prior standard deviation of a covariate's effect (a difference of one standard deviation) in units of that of a
# strength.
_EFFECT_WIDTH = 4.0
# The same of constants that should not be shrunk: the advantage of the first side, and how common ties are.
_UNSHRUNK = 1000.0
# What stands for alpha = 0: the mean of all strengths needs some value.
_NO_ALPHA = 1e-10
# Relative residual of columns of the inverse Hessian; their diagonal entries are right to its square.
_SOLVED = 1e-5
# Draws that are solved for together, and their relative residual.
_DRAWN_TOGETHER, _ROUGHLY_SOLVED = 32, 3e-3


@dataclass(frozen=True)
class Strengths:
    """A fitted model.

    Attributes
    ----------
    battles : Battles
    alpha : float
    theta : ndarray of shape (m + p,)
        Strengths with mean 0, and coefficients of the scaled covariates.
    scale : ndarray of shape (p,)
        What the covariates were multiplied by.
    counted : Answers
        What the model was fitted to.
    """

    battles: Battles
    alpha: float
    theta: np.ndarray
    scale: np.ndarray
    counted: Answers

    @property
    def scores(self) -> np.ndarray:
        """f, shape (m,)."""
        return self.theta[: self.battles.n_items]

    @property
    def coefficients(self) -> np.ndarray:
        """β of the covariates as given, shape (p,)."""
        return self.theta[self.battles.n_items :] * self.scale

    @cached_property
    def each(self) -> Answers:
        """One answer for each battle, with scaled covariates."""
        return scaled(self.battles, self.scale).answers()

    def differences(self) -> np.ndarray:
        """x_k · θ of each battle."""
        return self.each.differences(self.theta)

    def pulls(self) -> np.ndarray:
        """Minus the derivative of each battle's loss by x_k · θ."""
        return self.each.weight * (self.each.share - expit(self.differences()))

    @cached_property
    def curvatures(self) -> np.ndarray:
        return LogisticLoss(self.counted, self.theta).curvatures

    def probabilities(self, variance: np.ndarray | None = None) -> np.ndarray:
        """That side a wins each battle, or of the three outcomes where ties have a probability of their own.

        Averaged over errors of x_k · θ with this variance where it is given.
        """
        if self.battles.tie_design is not None:
            return outcome_probabilities(self.differences(), self.tie_logits(), variance)
        d = self.differences()
        return averaged_probability(d, np.zeros_like(d) if variance is None else variance)

    def tie_logits(self) -> np.ndarray:
        """ν of each battle; without any tie, as here, e^ν is 0."""
        return np.full(len(self.battles), -np.inf)

    def hessian(self) -> np.ndarray:
        """Of the loss, dense, as a function of θ."""
        return self.counted.dense_hessian(self.curvatures)

    @cached_property
    def inverse_hessian(self) -> np.ndarray:
        """H⁻¹, dense; what is common to all strengths, which nothing depends on, is held at 0."""
        H = self.hessian()
        n = self.battles.n_items
        if self.battles.similarity is None:
            H[np.diag_indices_from(H)] += 2.0 * self.alpha
            H[:n, :n] += max(float(np.median(H.diagonal()[:n])), 2.0 * self.alpha) / n
        else:
            H += self.prior_precision()
        return inverse_in_place(H)

    @property
    def inverse_rows(self) -> np.ndarray:
        """Rows of the inverse Hessian of all that was fitted, those of θ."""
        return self.inverse_hessian

    def model_covariance(self) -> np.ndarray:
        """Of θ, if all battles are independent and the model holds."""
        return self.inverse_hessian

    def prior_meat(self) -> np.ndarray:
        """What is added to the sum over clusters in the sandwich."""
        return self.prior_precision()

    def prior_precision(self) -> np.ndarray:
        """2 alpha times the inverse of the prior covariance, shape (m + p, m + p)."""
        P, K = np.eye(self.theta.shape[0]), self.battles.similarity
        if K is not None:
            P[: K.shape[0], : K.shape[0]] = inverse_in_place(np.array(K, order="F"))
        return 2.0 * self.alpha * P

    def informative_rows(self, cluster: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """√v_k x_k, whose products sum to the Hessian of the loss, and the cluster of each row."""
        each, n = self.each, self.battles.n_items
        root = np.sqrt(self.curvatures_of_battles())
        which = np.arange(root.size)
        entries = (np.concatenate([root, -root]), (np.concatenate([which, which]), each.pairs.T.ravel()))
        rows = sp.csr_array(entries, shape=(root.size, n))
        if self.scale.size:
            Z = self.battles.covariates * (self.scale * root[:, None])
            rows = sp.csr_array(sp.hstack([rows, Z]))
        return rows, cluster

    def curvatures_of_battles(self) -> np.ndarray:
        """v of each battle, shape (l,)."""
        return LogisticLoss(self.each, self.theta).curvatures

    @property
    def is_dense(self) -> bool:
        """Whether covariances of all coordinates are a matrix."""
        return self.theta.shape[0] <= MOST_DENSE

    @cached_property
    def posterior(self) -> LabelPosterior:
        """Covariances of very many items, without a matrix of them."""
        return LabelPosterior(self.counted, self.alpha, self.theta)


def scaled(battles: Battles, scale: np.ndarray) -> Battles:
    """The same battles with covariates multiplied by these numbers."""
    if not scale.size:
        return battles
    return replace(battles, covariates=battles.covariates * scale)


def root_mean_square(Z: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Of each column, without squares that are too large or too small to be numbers."""
    largest = np.abs(Z).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return largest * np.sqrt(np.average(np.square(Z / unit), axis=0, weights=weight))


def covariate_scale(battles: Battles) -> np.ndarray:
    """One over the standard deviation of each covariate (about 0, which means no difference), times a wide prior."""
    if not battles.covariates.shape[1]:
        return np.empty(0)
    sizes = root_mean_square(battles.covariates, battles.weight)
    # A covariate that never differed in these battles, such as a part of them, tells nothing: its effect stays 0.
    widths = [_UNSHRUNK if name == FIRST_SIDE else _EFFECT_WIDTH for name in battles.covariate_names]
    return np.divide(widths, sizes, out=np.ones_like(sizes), where=sizes > 0)


def fit_strengths(
    battles: Battles,
    alpha: float,
    *,
    start: np.ndarray | None = None,
    like: Strengths | None = None,
) -> Strengths:
    """Minimise the penalised log loss.

    Parameters
    ----------
    battles : Battles
    alpha : float
        0 for maximum likelihood, which the caller has checked to exist.
    start : ndarray of shape (m + p,), optional
    like : Strengths, optional
        Of the same battles at another alpha: what was counted is used again, and its strengths are the start.

    Notes
    -----
    O(distinct pairs) for each product with the Hessian; with covariates O(battles).
    """
    if battles.rankings is not None:
        return _fit_rankings(battles, max(alpha, _NO_ALPHA), start if like is None else like.theta)
    if battles.margin is not None:
        return _fit_margins(battles, max(alpha, _NO_ALPHA))
    if battles.tie_design is not None and battles.weight[battles.share == 0.5].any():
        return _fit_ties(battles, max(alpha, _NO_ALPHA), start, like)
    if battles.cheap is not None:
        return _fit_trusted(battles, alpha, start if like is None else like.theta)
    if like is not None:
        scale, answers, start = like.scale, like.counted, like.theta
    else:
        scale = covariate_scale(battles)
        answers = scaled(battles, scale).counted()
    root = None if battles.similarity is None else _prior_root(battles, answers.n_rows)
    theta = minimise(answers, max(alpha, _NO_ALPHA), start, root)
    theta[: battles.n_items] -= theta[: battles.n_items].mean()
    return Strengths(battles, max(alpha, _NO_ALPHA), theta, scale, answers)


def _prior_root(battles: Battles, size: int) -> np.ndarray:
    """R with θ = R w where w has independent coordinates a priori."""
    assert battles.similarity is not None
    root = np.eye(size)
    root[: battles.n_items, : battles.n_items] = np.linalg.cholesky(battles.similarity)
    return root


@dataclass(frozen=True)
class TieStrengths(Strengths):
    """The same with a probability of ties, by Davidson's model (`ties`).

    γ is eliminated: H is the Schur complement of its block. Of very many items γ is taken as known.

    Attributes
    ----------
    gamma : ndarray of shape (q,)
    """

    gamma: np.ndarray = field(default_factory=lambda: np.empty(0))

    def tie_logits(self) -> np.ndarray:
        assert self.battles.tie_design is not None
        return self.battles.tie_design @ self.gamma

    @cached_property
    def loss(self) -> OutcomeLoss:
        """At the strengths."""
        return self._loss_of(scaled(self.battles, self.scale).counted_outcomes())

    @cached_property
    def loss_of_battles(self) -> OutcomeLoss:
        """The same with a term for each battle."""
        return self._loss_of(scaled(self.battles, self.scale).outcomes_of_battles())

    def _loss_of(self, outcomes: Outcomes) -> OutcomeLoss:
        return OutcomeLoss(outcomes, np.concatenate([self.theta, self.gamma]))

    def pulls(self) -> np.ndarray:
        return self.loss_of_battles.pulls

    def tie_gradients(self) -> np.ndarray:
        """Minus the derivative of each battle's loss by γ, shape (l, q)."""
        assert self.battles.tie_design is not None
        return self.battles.tie_design * self.loss_of_battles.tie_pulls[:, None]

    @cached_property
    def curvatures(self) -> np.ndarray:
        return self.loss.curvatures

    def curvatures_of_battles(self) -> np.ndarray:
        return self.loss_of_battles.curvatures

    def hessian(self) -> np.ndarray:
        cross, own = self.loss.blocks()
        return super().hessian() - cross @ np.linalg.solve(own, cross.T)

    @property
    def inverse_rows(self) -> np.ndarray:
        cross, own = self.loss.blocks()
        return np.hstack([self.inverse_hessian, -self.inverse_hessian @ np.linalg.solve(own, cross.T).T])

    @cached_property
    def posterior(self) -> LabelPosterior:
        return LabelPosterior(self.counted, self.alpha, self.theta, self.curvatures)

    def informative_rows(self, cluster: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """√(w P_o) (g_o - E g) of each outcome o of each battle, g_o its gradient."""
        if not self.is_dense:
            return super().informative_rows(cluster)
        P, w = self.probabilities(), self.battles.weight
        share = np.array([1.0, 0.5, 0.0])
        off = np.sqrt(w[:, None] * P) * (share - (P @ share)[:, None])
        tied = np.sqrt(w[:, None] * P) * (np.array([0.0, 1.0, 0.0]) - P[:, 1:2])
        each, which, n = self.each, np.arange(w.size), self.battles.n_items
        at = (np.concatenate([which, which]), each.pairs.T.ravel())
        x = sp.csr_array((np.repeat([1.0, -1.0], w.size), at), shape=(w.size, n))
        x = sp.csr_array(sp.hstack([x, self.battles.covariates * self.scale]))
        rows = [
            sp.hstack([sp.diags_array(off[:, k]) @ x, self.battles.tie_design * tied[:, k : k + 1]])
            for k in range(3)
        ]
        return sp.csr_array(sp.vstack(rows)), np.tile(cluster, 3)


def _fit_ties(
    battles: Battles, alpha: float, start: np.ndarray | None, like: Strengths | None
) -> TieStrengths:
    """θ and γ; γ but for its constant is shrunk as coefficients of covariates are."""
    scale = covariate_scale(battles) if like is None else like.scale
    outcomes = scaled(battles, scale).counted_outcomes()
    n, U = outcomes.answers.n_rows, battles.tie_design
    assert U is not None
    sizes = root_mean_square(U, battles.weight)
    widths = np.where(np.arange(U.shape[1]) == 0, _UNSHRUNK, _EFFECT_WIDTH) / np.where(sizes > 0, sizes, 1.0)
    root: Any = sp.diags_array(np.concatenate([np.ones(n), widths]), format="csr")
    if battles.similarity is not None:
        root = root.toarray()
        root[:n, :n] = _prior_root(battles, n)
    exact = None
    if outcomes.n_rows <= MOST_FACTORED:
        exact = ExactHessian(lambda loss: np.asfortranarray(root.T @ loss.hessian() @ root), alpha)
    weights = None
    if isinstance(like, TieStrengths) and battles.similarity is None:
        weights = np.concatenate([like.theta, like.gamma / widths])
    fit = minimise_logistic(OutcomeObjective(root, outcomes), alpha, start=weights, preconditioner=exact)
    _warn_unless_converged(fit)
    theta = root @ fit.weights
    theta[: battles.n_items] -= theta[: battles.n_items].mean()
    return TieStrengths(battles, alpha, theta[:n], scale, outcomes.answers, theta[n:])


@dataclass(frozen=True)
class TrustedStrengths(Strengths):
    """The same of trusted judgements with the help of others (`judges`).

    Attributes
    ----------
    kappa : float
        κ.
    gain : float
        2 κ κ* - κ².
    clarity : float
        κ* in units of its standard error.
    """

    kappa: float = 0.0
    gain: float = 0.0
    clarity: float = 0.0

    @cached_property
    def each(self) -> Answers:
        return _helped(self.battles, self.kappa).answers()

    def model_covariance(self) -> np.ndarray:
        return self.inverse_hessian - self.inverse_hessian @ self._help(True) @ self.inverse_hessian

    def prior_meat(self) -> np.ndarray:
        return self.prior_precision() + self._help(False)

    def _help(self, left: bool) -> np.ndarray:
        """Σ φ (2 κ κ* - κ²) (c - c̄)² x xᵀ, or with 1 - φ in place of φ."""
        cheap, phi = self.battles.cheap, self.battles.cheap_left
        assert cheap is not None and phi is not None
        share = np.nan_to_num(phi if left else 1.0 - phi)
        return self.each.dense_hessian(self.each.weight * share * self.gain * np.square(cheap))


def _helped(battles: Battles, kappa: float) -> Battles:
    assert battles.cheap is not None
    return replace(battles, share=battles.share - kappa * battles.cheap)


def _fit_trusted(battles: Battles, alpha: float, start: np.ndarray | None) -> TrustedStrengths:
    """κ from the trusted alone, then the strengths."""
    alone = fit_strengths(replace(battles, cheap=None), alpha, start=start)
    c, phi = battles.cheap, battles.cheap_left
    assert c is not None and phi is not None
    phi = np.nan_to_num(phi)
    terms, total = phi * c * alone.pulls(), float(np.sum(battles.weight * phi * np.square(c)))
    slope = float(terms.sum()) / total if total > 0 else 0.0
    kappa = float(np.clip(slope, 0.0, 1.0))
    error = float(np.sqrt(np.square(terms).sum()))
    fitted = fit_strengths(replace(_helped(battles, kappa), cheap=None), alpha, start=alone.theta)
    return TrustedStrengths(
        battles, fitted.alpha, fitted.theta, fitted.scale, fitted.counted, kappa, kappa * (2.0 * slope - kappa),
        float(terms.sum()) / error if error > 0 else 0.0,
    )  # fmt: skip


class RankingStrengths(Strengths):
    """The same of Plackett and Luce's model."""

    @cached_property
    def loss(self) -> ChoiceLoss:
        """At the strengths."""
        rankings, weight = self.battles.rankings, self.battles.weight
        assert rankings is not None
        return ChoiceLoss(rankings, rankings.of_rankings(weight), self.theta)

    @cached_property
    def inverse_hessian(self) -> np.ndarray:
        H, n = self.loss.hessian(), self.battles.n_items
        H += self.prior_precision()
        H += max(float(np.median(H.diagonal())), 2.0 * self.alpha) / n
        return inverse_in_place(H)

    def informative_rows(self, cluster: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        assert self.battles.rankings is not None
        return self.loss.informative_rows(self.battles.rankings.of_rankings(cluster))


def _fit_rankings(battles: Battles, alpha: float, start: np.ndarray | None) -> RankingStrengths:
    rankings = battles.rankings
    assert rankings is not None
    weight = rankings.of_rankings(battles.weight)
    theta = fit_rankings(rankings, weight, battles.n_items, alpha, start)
    return RankingStrengths(battles, alpha, theta - theta.mean(), np.empty(0), battles.counted())


@dataclass(frozen=True)
class MarginStrengths(Strengths):
    """The same from margins.

    Attributes
    ----------
    noise : float
        Standard deviation of a margin about what the strengths predict.
    """

    noise: float = 1.0

    @cached_property
    def curvatures(self) -> np.ndarray:
        return _curvatures_of(self.counted)

    def curvatures_of_battles(self) -> np.ndarray:
        return _curvatures_of(self.each)

    @cached_property
    def posterior(self) -> LabelPosterior:
        return _posterior_of_margins(self.counted, self.alpha, self.theta)

    def pulls(self) -> np.ndarray:
        """Minus the derivative of each battle's loss."""
        assert self.battles.margin is not None
        off = self.battles.margin * (_LOGISTIC_WIDTH / self.noise) - self.differences()
        return self.battles.weight * off / _LOGISTIC_WIDTH**2


def _fit_margins(battles: Battles, alpha: float) -> MarginStrengths:
    scale = covariate_scale(battles)
    used = scaled(battles, scale)
    theta, noise = _least_squares(used, alpha)
    theta[: battles.n_items] -= theta[: battles.n_items].mean()
    return MarginStrengths(battles, alpha, theta, scale, used.counted(), noise)


def _curvatures_of(answers: Answers) -> np.ndarray:
    """w / c² of each answer."""
    return answers.weight / _LOGISTIC_WIDTH**2


def _posterior_of_margins(answers: Answers, alpha: float, theta: np.ndarray) -> LabelPosterior:
    """Covariances of very many items, without a matrix of them."""
    return LabelPosterior(answers, alpha, theta, _curvatures_of(answers))


def _least_squares(battles: Battles, alpha: float) -> tuple[np.ndarray, float]:
    """θ and τ for battles whose covariates are scaled."""
    assert battles.margin is not None
    w, d = battles.weight, battles.margin
    size, total = battles.n_items + battles.covariates.shape[1], float(w.sum())
    if total == 0:
        return np.zeros(size), 1.0
    # Seen from the other side a share y is 1 - y, a margin d is -d.
    counted = replace(battles, share=0.5 + d).counted()
    in_margins = _solver(counted, alpha, battles.similarity)(
        counted.spread(_curvatures_of(counted) * (counted.share - 0.5))
    )
    residual = d - battles.answers().differences(in_margins)
    # Weights that are not counts say how much battles count relative to each other: their scale must not matter.
    n = total if battles.are_counts else total**2 / float(w @ w)
    freedom = max(n - (size - 1), _LEAST_FREE * n) / n
    noise = float(np.sqrt((w @ residual**2) / (total * freedom)))
    # Margins without any noise would make strengths infinite.
    noise = max(noise, 1e-6 * float(np.abs(d).max()), np.finfo(float).tiny)
    return in_margins * (_LOGISTIC_WIDTH / noise), noise


def _solver(
    counted: Answers, alpha: float, similarity: np.ndarray | None
) -> Callable[[np.ndarray], np.ndarray]:
    if similarity is None and counted.n_rows > MOST_FACTORED:
        posterior = _posterior_of_margins(counted, alpha, np.zeros(counted.n_rows))
        return lambda r: posterior.solve(r[:, None])[:, 0]
    H = counted.dense_hessian(_curvatures_of(counted))
    prior = np.eye(counted.n_rows)
    if similarity is not None:
        n = similarity.shape[0]
        prior[:n, :n] = inverse_in_place(np.array(similarity, order="F"))
    H += 2.0 * alpha * prior
    H[np.diag_indices_from(H)] += 1e-13 * float(H.diagonal().max(initial=0.0))
    factor = cholesky_in_place(H)
    return lambda r: cholesky_solve(factor, r)


def minimise(
    answers: Answers,
    alpha: float,
    start: np.ndarray | None = None,
    root: np.ndarray | None = None,
) -> np.ndarray:
    """θ by Newton's method; coordinates are the items and the covariates, or weights w with θ = root w."""
    size = answers.n_rows
    exact = None
    if size <= MOST_FACTORED:
        exact = ExactHessian(lambda loss: _hessian_of(answers, loss.curvatures, root), alpha)
    if root is not None:
        objective: PairObjective = PairObjective(Features(root), answers)
        start = None if start is None else np.linalg.solve(root, start)
    else:
        objective = PairObjective(Features(sp.eye_array(size, format="csr")), answers)
    fit = minimise_logistic(objective, alpha, start=start, preconditioner=exact)
    _warn_unless_converged(fit)
    return fit.weights.copy() if root is None else root @ fit.weights


def _warn_unless_converged(fit: PairLossFit) -> None:
    if not fit.converged:
        warnings.warn(
            f"The ratings have not converged after {fit.n_iter} Newton steps: raise alpha.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _hessian_of(answers: Answers, curvatures: np.ndarray, root: np.ndarray | None) -> np.ndarray:
    H = answers.dense_hessian(curvatures)
    return H if root is None else np.asfortranarray(root.T @ H @ root)


def centred(C: np.ndarray, n_items: int) -> np.ndarray:
    """The covariance of strengths relative to their mean (coefficients stay), from that of strengths."""
    C = C.copy()
    C[:n_items] -= C[:n_items].mean(axis=0)
    C[:, :n_items] -= C[:, :n_items].mean(axis=1)[:, None]
    return C


def dense_covariance(strengths: Strengths, cluster: np.ndarray | None) -> np.ndarray:
    """C of shape (m + p, m + p), model-based or, with a code for each battle, by the sandwich."""
    inverse, n = strengths.inverse_hessian, strengths.battles.n_items
    if cluster is None:
        return centred(strengths.model_covariance(), n)
    g = cluster_gradients(strengths, cluster)
    return centred(sandwich(inverse, g, strengths.prior_meat(), strengths.inverse_rows), n)


def cluster_information(strengths: Strengths, cluster: np.ndarray) -> Any:
    """What each cluster tells about each strength (relative to the mean) and coefficient, shape (G, m + p).

    See `ranks`; sparse, and as of a diagonal Hessian, where there are too many battles, clusters or items.
    """
    rows, codes = strengths.informative_rows(cluster)
    size, n_clusters = strengths.theta.shape[0], int(codes.max()) + 1
    small = n_clusters * size <= MOST_INFORMATION and rows.shape[0] * size <= MOST_PRODUCTS
    if not (strengths.is_dense and small):
        return diagonal_information(rows[:, :size], codes)
    A, n = strengths.inverse_rows.T.copy(), strengths.battles.n_items
    A[:, :n] -= A[:, :n].mean(axis=1)[:, None]
    return information_of(rows, codes, A)


def solved_information(strengths: Strengths, cluster: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The same of some coordinates of very many, shape (G, k): a solve for each."""
    return information_of(*strengths.informative_rows(cluster), solved_columns(strengths, some))


def solved_columns(strengths: Strengths, some: np.ndarray) -> np.ndarray:
    """Columns of H⁻¹."""
    B = np.zeros((strengths.theta.shape[0], some.shape[0]))
    B[some, np.arange(some.shape[0])] = 1.0
    return strengths.posterior.solve(B, _SOLVED)


def sandwich(inverse: np.ndarray, g: Any, prior: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """H⁻¹ (G / (G - 1) Σ_c g_c g_cᵀ + prior) H⁻¹ for gradients of shape (G, size), dense or sparse.

    ``rows`` of the inverse Hessian of more coordinates, which gradients then have, too.
    """
    n_clusters, rows = g.shape[0], inverse if rows is None else rows
    meat = g.T @ g
    meat = (meat.toarray() if sp.issparse(meat) else meat) * (n_clusters / (n_clusters - 1.0))
    return rows @ meat @ rows.T + inverse @ prior @ inverse


def cluster_gradients(strengths: Strengths, cluster: np.ndarray) -> Any:
    """g_c as rows, shape (G, m + p); sparse but for rankings."""
    if isinstance(strengths, RankingStrengths):
        assert strengths.battles.rankings is not None
        return strengths.loss.cluster_gradients(strengths.battles.rankings.of_rankings(cluster))
    each, n_clusters = strengths.each, int(cluster.max()) + 1
    pulls = strengths.pulls()
    a, b = each.pairs.T
    effects = [
        np.bincount(cluster, pulls * z, n_clusters)
        for z in strengths.battles.covariates.T * strengths.scale[:, None]
    ]
    where = (np.concatenate([cluster, cluster]), np.concatenate([a, b]))
    shape = (n_clusters, strengths.battles.n_items)
    if isinstance(strengths, TieStrengths) and strengths.is_dense:
        effects += [np.bincount(cluster, t, n_clusters) for t in strengths.tie_gradients().T]
    g = sp.csr_array(sp.coo_array((np.concatenate([pulls, -pulls]), where), shape=shape))
    return sp.csr_array(sp.hstack([g, np.stack(effects, axis=1)])) if effects else g


def many_standard_errors(strengths: Strengths, cluster: np.ndarray | None, exact: np.ndarray) -> np.ndarray:
    """Standard errors of very many strengths: solved for the ``exact`` ones, estimated from draws for the others."""
    if cluster is None:
        variances = strengths.posterior.variances(np.arange(strengths.battles.n_items))
    else:
        variances = _drawn_sandwich(strengths, cluster)[: strengths.battles.n_items]
    errors = np.sqrt(variances)
    some = exact[:MOST_SOLVED]
    errors[some] = solved_standard_errors(strengths, cluster, some)
    return errors


def solved_standard_errors(strengths: Strengths, cluster: np.ndarray | None, some: np.ndarray) -> np.ndarray:
    """Standard errors of some of very many strengths: a solve for each."""
    columns = solved_columns(strengths, some)
    if cluster is None:
        return np.sqrt(columns[some, np.arange(some.shape[0])])
    g = cluster_gradients(strengths, cluster)
    factor = g.shape[0] / (g.shape[0] - 1.0)
    prior = 2.0 * strengths.alpha * np.square(columns).sum(axis=0)
    return np.sqrt(factor * np.square(g @ columns).sum(axis=0) + prior)


def _drawn_sandwich(strengths: Strengths, cluster: np.ndarray) -> np.ndarray:
    pull = _drawn_pulls(strengths, cluster)
    draws = pull(np.random.default_rng(0), 64)
    return np.square(strengths.posterior.solve(draws, 1e-4)).mean(axis=1)


def _rooted_design(strengths: Strengths) -> sp.csr_array:
    """Columns √v_k x_k, one for each distinct pair (or battle, with covariates), shape (m + p, k)."""
    answers, root = strengths.counted, np.sqrt(strengths.curvatures)
    which = np.arange(root.size)
    entries = np.concatenate([root, -root]).astype(np.float32)
    at = (answers.pairs.T.ravel(), np.concatenate([which, which]))
    X = sp.csr_array((entries, at), shape=(strengths.battles.n_items, root.size))
    if isinstance(answers, AdjustedAnswers):
        X = sp.csr_array(sp.vstack([X, (answers.covariates * root[:, None]).T.astype(np.float32)]))
    return X


def _drawn_pulls(
    strengths: Strengths, cluster: np.ndarray | None
) -> Callable[[np.random.Generator, int], np.ndarray]:
    """A function that draws columns r with H⁻¹ r distributed as the error of θ."""
    prior = np.sqrt(2.0 * strengths.alpha)
    if cluster is None:
        X = _rooted_design(strengths)

        def pull(rng: np.random.Generator, n: int) -> np.ndarray:
            # Single precision: random numbers are most of the time.
            return (X @ rng.standard_normal((X.shape[1], n), dtype=np.float32)).astype(np.float64)

    else:
        g = cluster_gradients(strengths, cluster)
        factor = np.sqrt(g.shape[0] / (g.shape[0] - 1.0))

        def pull(rng: np.random.Generator, n: int) -> np.ndarray:
            return factor * (g.T @ rng.standard_normal((g.shape[0], n)))

    def drawn(rng: np.random.Generator, n: int) -> np.ndarray:
        pulls = pull(rng, n)
        return pulls + prior * rng.standard_normal(pulls.shape)

    return drawn


def drawn_errors(strengths: Strengths, n_draws: int) -> Iterator[np.ndarray]:
    """Model-based errors of the strengths of very many items, in blocks of shape (m, 32): a solve for each, no m × m
    matrix."""
    rng, pull = np.random.default_rng(0), _drawn_pulls(strengths, None)
    for _ in range(n_draws // _DRAWN_TOGETHER):
        drawn = strengths.posterior.solve(pull(rng, _DRAWN_TOGETHER), _ROUGHLY_SOLVED)
        yield drawn[: strengths.battles.n_items]


def variances_of_battles(strengths: Strengths, battles: Battles | None = None) -> np.ndarray:
    """Model-based variance of x_k · θ of each battle, shape (l,); of others than those of the fit where given."""
    battles = strengths.battles if battles is None else battles
    pairs, Z = battles.pairs, battles.covariates * strengths.scale
    if not strengths.is_dense:
        if Z.shape[1]:
            raise ValueError(
                f"Held-out battles with covariates need a matrix of {strengths.theta.shape[0]:,} rows: found more "
                f"than {MOST_DENSE:,} items."
            )
        return strengths.posterior.variances_of_differences(pairs)
    C, (a, b), n = strengths.inverse_hessian, pairs.T, strengths.battles.n_items
    diagonal = C.diagonal()
    variance = diagonal[a] + diagonal[b] - 2.0 * C[a, b]
    if Z.shape[1]:
        cross = C[:n, n:]
        variance += 2.0 * np.einsum("kp,kp->k", Z, cross[a] - cross[b]) + np.einsum(
            "kp,pq,kq->k", Z, C[n:, n:], Z
        )
    return np.maximum(variance, 0.0)
