r"""Laplace's posterior of a Bradley-Terry model, and its update by one more answer.

The penalty alpha ‖f‖² is minus the log density of a Gaussian prior. In coordinates u with prior covariance Q and latent
scores f = Φ u of the m items, the mode û minimises

    J(u) = ℓ(Φ u) + ½ uᵀ Q⁻¹ u,        and        S = (Q⁻¹ + Φᵀ L Φ)⁻¹

is the posterior covariance of u, L being the Laplacian of the answers weighted by their curvatures v at the mode. Two
choices of coordinates serve every model:

* features: u = w, the weights of few features, Q = I / 2 alpha;
* items: u = f itself (Φ = I), Q = K / 2 alpha. Q⁻¹ is never needed: with a = Q⁻¹ u carried along, and
  Q⁻¹ S = I - Φᵀ L Φ S, a Newton step is  Δu = S (Φᵀ g - a),  Δa = (I - Φᵀ L Φ S)(Φᵀ g - a),  g = -∇ℓ.

**One more answer.** The curvatures of the other answers change little. S is kept for curvatures ṽ close to the present
v: it takes steps that are nearly Newton's, each O(q²), and the few answers whose curvature has moved by more than
`SLACK` are corrected by Woodbury's identity in O(q²) each. The mode is exact; S is that of curvatures within `SLACK`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..comparisons.answers import Answers
from ..core.gram import feature_gram
from ..losses.logistic import LogisticLoss
from ..numerics.linalg import (
    cholesky_in_place,
    inverse_in_place,
    mirror_lower,
    solve_checked,
    solve_triangular_in_place,
)
from ..numerics.memory import require_memory
from .newton import PairLossFit, PairObjective, Report, minimise_logistic

# How far the curvature of an answer may move, relative to its own size plus a hundredth of the largest it can have,
# before the covariance is corrected for it.
SLACK = 0.002
# The mode is found when a step changes no coordinate by more than this, relative to the largest.
_TOL = 1e-9
_MAX_STEPS = 100


class LatentSpace:
    """Coordinates of a latent function: f = Φ u with prior covariance F Fᵀ / 2 alpha of u.

    Parameters
    ----------
    n_items : int
        m.
    design : ndarray or CSR matrix of shape (m, q), optional
        Φ; the identity (coordinates are the items) by default.
    root : ndarray of shape (q, r), optional
        F with F Fᵀ = K; the identity by default.
    """

    def __init__(self, n_items: int, design: Any = None, root: np.ndarray | None = None):
        self.n_items = n_items
        self.design = design
        self.root = root
        self.n_coordinates = n_items if design is None else design.shape[1]

    @property
    def features(self) -> Any:
        """Features on which the model is linear with the penalty alpha ‖w‖²: what Newton's method works on."""
        if self.design is not None:
            return self.design
        return sp.eye_array(self.n_items, format="csr") if self.root is None else self.root

    def of_items(self, items: np.ndarray) -> LatentSpace:
        """The same function of some of the items."""
        if self.design is not None:
            return LatentSpace(items.shape[0], self.design[items], self.root)
        return LatentSpace(items.shape[0], root=None if self.root is None else self.root[items])

    def mean_prior_variance(self) -> float:
        """Mean of the items' prior variance at alpha = 1/2."""
        if self.design is None:
            return 1.0 if self.root is None else float(np.sum(self.root**2) / self.n_items)
        squares = self.design.multiply(self.design) if sp.issparse(self.design) else np.square(self.design)
        return float(squares.sum() / self.n_items)

    def forward(self, u: np.ndarray) -> np.ndarray:
        """Φ u, of one vector or several columns."""
        return u if self.design is None else np.asarray(self.design @ u)

    def backward(self, v: np.ndarray) -> np.ndarray:
        """Φᵀ v."""
        return v if self.design is None else np.asarray(self.design.T @ v)

    def prior_times(self, a: np.ndarray) -> np.ndarray:
        """F Fᵀ a."""
        return a if self.root is None else self.root @ (self.root.T @ a)

    def edges(self, pairs: np.ndarray) -> np.ndarray | None:
        """Φᵀ (e_h - e_j) of some pairs as columns, shape (q, k); None when they are unit vectors."""
        if self.design is None:
            return None
        rows = self.design[pairs[:, 0]] - self.design[pairs[:, 1]]
        return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64).T


class LaplacePosterior:
    """Mode and covariance of the coordinates, given answers.

    Parameters
    ----------
    space : LatentSpace
    answers : Answers
    alpha : float
    dual : ndarray of shape (q,)
        a = Q⁻¹ u at the mode or near it (zero is the prior mean): 2 alpha times the weights of features, or times the
        dual coefficients of items.

    Attributes
    ----------
    space : LatentSpace
    by_features : bool
        Whether the coordinates are weights of features; they are items otherwise.
    mean : ndarray of shape (q,)
        u.
    dual : ndarray of shape (q,)
        a.
    covariance : ndarray of shape (q, q)
        S.
    scores : ndarray of shape (m,)
        Latent scores of the items, Φ u.
    n_steps : int
        Steps that the last search for the mode took.

    Notes
    -----
    O(q³) for the first covariance, O(l + m q + q²) for each step to the mode after a new answer.
    """

    def __init__(self, space: LatentSpace, answers: Answers, alpha: float, dual: np.ndarray):
        require_memory(
            2 * space.n_coordinates**2 * 8,
            f"the posterior covariance of {space.n_coordinates} coordinates",
        )
        self.space = space
        self.by_features = space.design is not None
        self._alpha = alpha
        self._answers = answers
        self.dual = np.array(dual, dtype=np.float64)
        self.mean = space.prior_times(self.dual) / (2.0 * alpha)
        self.scores = space.forward(self.mean)
        self.n_steps = 0
        self._assumed = LogisticLoss(answers, self.scores).curvatures
        self.covariance = self._whole_covariance()
        self._find_mode()
        curvatures = LogisticLoss(answers, self.scores).curvatures
        if np.abs(curvatures - self._assumed).max(initial=0.0) > 1e-9 * curvatures.max(initial=0.0):
            self._assumed = curvatures
            self.covariance = self._whole_covariance()

    def add(self, answers: Answers, space: LatentSpace | None = None) -> None:
        """Move to the posterior of more answers; those of before come first.

        Parameters
        ----------
        answers : Answers
            All answers, the old ones first; their scales may have changed.
        space : LatentSpace, optional
            The same coordinates with further items.
        """
        if space is not None:
            self.space = space
            self.scores = space.forward(self.mean)
        n_new = answers.n_pairs - self._answers.n_pairs
        self._answers = answers
        self._assumed = np.concatenate([self._assumed, np.zeros(n_new)])
        self._correct(LogisticLoss(answers, self.scores))
        self._find_mode()

    def variances_of_differences(self, pairs: np.ndarray) -> np.ndarray:
        """Posterior variance of f_h - f_j for each pair of items."""
        S = self.covariance
        if self.space.design is None:
            h, j = pairs.T
            diagonal = np.diagonal(S)
            return np.maximum(diagonal[h] + diagonal[j] - 2.0 * S[h, j], 0.0)
        variances = np.empty(pairs.shape[0])
        step = max(1, (1 << 21) // self.space.n_coordinates)
        for start in range(0, pairs.shape[0], step):
            X = self.space.edges(pairs[start : start + step])
            assert X is not None
            variances[start : start + step] = np.einsum("ij,ij->j", X, S @ X)
        return np.maximum(variances, 0.0)

    def laplacian_times(self, V: Any) -> Any:
        """L V for the Laplacian of the answers, V of one row for each item."""
        return self._answers.laplacian(self._assumed).laplacian(V)

    def _find_mode(self) -> None:
        loss = LogisticLoss(self._answers, self.scores)
        for step in range(_MAX_STEPS):
            self.n_steps = step + 1
            residual = self.space.backward(-loss.gradient) - self.dual
            direction = self.covariance @ residual
            along = self.space.forward(direction)
            pulled = self._assumed * self._answers.differences(along)
            dual_direction = residual - self.space.backward(self._answers.spread(pulled))
            loss = self._search(loss, direction, dual_direction, along)
            size = float(np.abs(direction).max(initial=0.0))
            if size <= _TOL * max(1.0, float(np.abs(self.mean).max(initial=0.0))):
                break
            self._correct(loss)

    def _search(
        self, loss: LogisticLoss, direction: np.ndarray, dual_direction: np.ndarray, along: np.ndarray
    ) -> LogisticLoss:
        """Go along the direction as far as the convex objective falls; nearly always the whole way."""
        value = loss.value + 0.5 * float(self.dual @ self.mean)
        slope = float(loss.gradient @ along) + float(self.dual @ direction)
        length = 1.0
        for _ in range(30):
            mean = self.mean + length * direction
            dual = self.dual + length * dual_direction
            scores = self.scores + length * along
            new = LogisticLoss(self._answers, scores)
            lower = new.value + 0.5 * float(dual @ mean) <= value + 1e-4 * length * slope
            # Near the mode the objective is flat to rounding, and its slope tells.
            if lower or float(new.gradient @ along) + float(dual @ direction) <= 0 or slope > -1e-13 * value:
                break
            length *= 0.5
        self.mean, self.dual, self.scores = mean, dual, scores
        return new

    def _correct(self, loss: LogisticLoss) -> None:
        """Bring the covariance to the curvatures of the loss, where they differ by more than the slack."""
        answers = self._answers
        change = loss.curvatures - self._assumed
        ceiling = 0.25 * answers.weight * answers.scale**2
        moved = np.flatnonzero(np.abs(change) > SLACK * (self._assumed + 0.01 * ceiling))
        if moved.size == 0:
            return
        if moved.size > max(8, self.space.n_coordinates // 3):
            self._assumed = loss.curvatures
            self.covariance = self._whole_covariance()
            return
        self._assumed = self._assumed.copy()
        self._assumed[moved] += change[moved]
        self._correct_edges(answers.pairs[moved], change[moved])

    def _correct_edges(self, pairs: np.ndarray, change: np.ndarray) -> None:
        """S ← S - Y (diag(1 / change) + Xᵀ Y)⁻¹ Yᵀ with Y = S X, X the edges."""
        S, X = self.covariance, self.space.edges(pairs)
        if X is None:
            h, j = pairs.T
            Y = (S.T[h] - S.T[j]).T
            inner = Y[h] - Y[j]
        else:
            Y = S @ X
            inner = X.T @ Y
        middle, reciprocal = solve_checked(inner + np.diag(1.0 / change), np.ascontiguousarray(Y.T))
        if not reciprocal > 1e-12:
            self.covariance = self._whole_covariance()
            return
        # In place: at thousands of items, touching fresh memory costs more than the product.
        self.covariance = sl.blas.dgemm(-1.0, Y, middle, beta=1.0, c=S, overwrite_c=True)

    def log_evidence(self) -> float:
        """Laplace's approximation of the log marginal likelihood: -J(û) - ½ log det(I + Q Φᵀ L Φ). O(q³).

        Unlike held-out answers it stays fair when the questions were chosen by the answers before.
        """
        loss = LogisticLoss(self._answers, self.scores)
        factor = cholesky_in_place(self._precision(loss.curvatures))
        log_det = 2.0 * float(np.log(np.diagonal(factor)).sum()) - factor.shape[0] * np.log(2.0 * self._alpha)
        return -(loss.value + 0.5 * float(self.dual @ self.mean)) - 0.5 * log_det

    def _precision(self, curvatures: np.ndarray) -> np.ndarray:
        """2 alpha I + Fᵀ Φᵀ L Φ F, Fortran-ordered."""
        space, comparisons = self.space, self._answers.laplacian(curvatures)
        root = space.root
        if space.design is None:
            if root is None:
                B = np.asfortranarray(comparisons.to_dense())
            else:
                B = np.asfortranarray(root.T @ comparisons.laplacian(root))
        elif sp.issparse(space.design):
            # Not `feature_gram`, which would write down a feature vector for every answer.
            B = (space.design.T @ comparisons.laplacian(space.design)).toarray(order="F").astype(np.float64)
        else:
            B = feature_gram(np.asarray(space.design, dtype=np.float64), comparisons)
        B[np.diag_indices_from(B)] += 2.0 * self._alpha
        return B

    def _whole_covariance(self) -> np.ndarray:
        """S = F (2 alpha I + Fᵀ Φᵀ L Φ F)⁻¹ Fᵀ."""
        B, root = self._precision(self._assumed), self.space.root
        if root is None:
            return inverse_in_place(B)
        half = solve_triangular_in_place(cholesky_in_place(B), np.array(root, order="C"))
        return mirror_lower(sl.blas.dsyrk(1.0, half.T, trans=1, lower=True))


def find_mode(
    space: LatentSpace,
    answers: Answers,
    alpha: float,
    *,
    tol: float = 1e-14,
    max_iter: int = 100,
    start: np.ndarray | None = None,
    report: Report | None = None,
) -> tuple[PairLossFit, np.ndarray]:
    """The mode by Newton's method with conjugate gradients, which needs no covariance.

    Parameters
    ----------
    space, answers, alpha
        As in `LaplacePosterior`.
    tol, max_iter, start, report
        As in `preflearn.solvers.newton.minimise_logistic`.

    Returns
    -------
    fit : PairLossFit
        With the weights of ``space.features``.
    dual : ndarray of shape (q,)
        a, from which `LaplacePosterior` starts.
    """
    fit = minimise_logistic(
        PairObjective(space.features, answers), alpha, tol=tol, max_iter=max_iter, start=start, report=report
    )
    if space.design is not None:
        return fit, 2.0 * alpha * fit.weights
    # At the mode a = g, which keeps f in the span of the kernel where K is singular.
    scores = fit.weights if space.root is None else space.root @ fit.weights
    return fit, -LogisticLoss(answers, scores).gradient


def without_each(
    answers: Answers, scores: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each answer the mean and variance of its difference in the model without it, by one Newton step.

    With c the variance of f_h - f_j, leaving answer k out divides c by 1 - v c and takes c / (1 - v c) g off the
    difference. Exact for a quadratic loss; here to second order.

    Returns
    -------
    mean, variance : ndarrays of shape (l,)
        Not scaled by the reliability of the judge.
    """
    loss = LogisticLoss(answers, scores)
    left = np.maximum(1.0 - loss.curvatures * variances, 1e-6)
    variance = variances / left
    return answers.differences(scores) - variance * loss.pulls, variance
