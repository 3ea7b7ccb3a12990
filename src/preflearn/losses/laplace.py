r"""Laplace's posterior of a Bradley-Terry model, and its update by one more answer.

The penalty alpha ‖f‖² is minus the log density of a Gaussian prior. In coordinates u with prior covariance Q and latent
scores f = Φ u of the m items, the mode û minimises

    J(u) = ℓ(Φ u) + ½ uᵀ Q⁻¹ u,        and        S = (Q⁻¹ + Φᵀ L Φ)⁻¹

is the posterior covariance of u, L being the Laplacian of the answers weighted by their curvatures v at the mode. Two
choices of coordinates serve every model:

* features: u = w, the weights of few features, Q = I / 2 alpha;
* items: u = f itself (Φ = I), Q = K / 2 alpha with K = F Fᵀ. Q⁻¹ is never needed: f = F w with weights w of the
  columns of F.

`find_mode` finds w by Newton's method (`losses.newton`). A bound on its error follows from the rounding errors of the
gradient; where alpha is so small relative to the kernel that these matter, the mode is computed again in the span of
what the answers see (`losses.row_span`), and so is the posterior.

**One more answer.** The curvatures of the other answers change little. S is kept for curvatures ṽ close to the present
v: conjugate gradients that are preconditioned by it need two or three products for a step of Newton's method, each
O(q²), and the few answers whose curvature has moved by more than `SLACK` are corrected by Woodbury's identity in O(q²)
each. The mode is exact; S is that of curvatures within `SLACK`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..comparisons.answers import Answers
from ..comparisons.grouping import offset_is_large
from ..numerics.linalg import (
    KernelFactor,
    add_gram,
    cholesky_in_place,
    cholesky_solve,
    factor_kernel,
    inverse_in_place,
    mirror_lower,
    solve_checked,
    solve_triangular_in_place,
)
from ..numerics.memory import require_memory
from ..numerics.threads import blas_at_rest
from ..squared.problem import feature_gram
from .labels import LabelPosterior
from .logistic import LogisticLoss
from .newton import Features, PairLossFit, PairObjective, Preconditioner, Report, minimise_logistic
from .row_span import Root, RowSpan, random_signs, refine, relative, score_of_one_answer

# How far the curvature of an answer may move, relative to its own size plus a hundredth of the largest it can have,
# before the covariance is corrected for it.
SLACK = 0.002
# Errors of predictions, relative to the largest, that need no closer look, and that a user should know about.
_PRECISE, WORTH_A_WARNING = 1e-8, 1e-7
# Below this share of the largest eigenvalue of the Hessian, 2 alpha is lost in its rounding.
_SMALL_ALPHA = 1e-8
# Number of features whose Hessian is formed for an estimate of the error, and the multiplications that it may take.
_FEW_FEATURES, _MOST_WORK = 2000, 2e10
# Up to this many labels, their covariance is a dense matrix.
MOST_DENSE_LABELS = 3000
# Number of answers from which the size of the Hessian is estimated.
_SAMPLE = 512


class OffsetFeatures(Features):
    """Features [X, c I]: those of the items, and one for each item alone, which gives it its own offset."""

    def __init__(self, matrix: Any, root: float):
        super().__init__(matrix)
        self._root = root
        self._n = self.n_features
        self.n_features += self.n_rows
        self.size += self.n_rows

    def forward(self, w: np.ndarray) -> np.ndarray:
        return super().forward(w[: self._n]) + self._root * w[self._n :]

    def backward(self, u: np.ndarray) -> np.ndarray:
        return np.concatenate([super().backward(u), self._root * u])

    def rows(self, rows: np.ndarray) -> np.ndarray:
        own = np.zeros((rows.shape[0], self.n_rows))
        own[np.arange(rows.shape[0]), rows] = self._root
        return np.hstack([super().rows(rows), own])

    def row_lengths(self) -> np.ndarray:
        return np.hypot(super().row_lengths(), self._root)

    def squared_sums(self, u: np.ndarray) -> np.ndarray:
        squares = Features(self.matrix).squared_sums(u)
        return np.concatenate([squares, self._root**2 * u])


class LatentSpace:
    """Coordinates of a latent function: f = Φ u with prior covariance F Fᵀ / 2 alpha of u.

    Parameters
    ----------
    n_items : int
        m.
    design : ndarray or CSR matrix of shape (m, q), optional
        Φ; the identity (coordinates are the items) by default.
    factor : KernelFactor, optional
        With F Fᵀ = K, for coordinates that are the items; the identity by default.
    offset : float, default=0.0
        ρ: with a design, each item has an offset of this prior variance (at alpha = 1/2) in addition to its features.
    """

    def __init__(
        self, n_items: int, design: Any = None, factor: KernelFactor | None = None, offset: float = 0.0
    ):
        self.n_items = n_items
        self.design = design
        self.factor = factor
        self.offset = offset
        self.n_coordinates = n_items if design is None else design.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Of `matrix`."""
        if self.design is None:
            return self.n_items, self.n_items if self.root is None else self.root.shape[1]
        return self.n_items, self.n_coordinates + (self.n_items if self.offset else 0)

    @property
    def root(self) -> np.ndarray | None:
        """F; None for the identity."""
        return None if self.factor is None else self.factor.F

    def matrix(self) -> Any:
        """Features on which the model is linear with the penalty alpha ‖w‖², shape (m, n)."""
        if self.design is None:
            return sp.eye_array(self.n_items, format="csr") if self.root is None else self.root
        if not self.offset:
            return self.design
        own = np.sqrt(self.offset) * sp.eye_array(self.n_items, format="csr")
        return sp.hstack([sp.csr_array(self.design), own], format="csr")

    def features(self, answers: Answers) -> Features:
        """The same as Newton's method uses them; dense columns with large means are centred."""
        X = self.design
        if X is None:
            return self._fixed_features
        if not sp.issparse(X) and answers.n_pairs:
            is_compared = np.zeros(self.n_items, dtype=bool)
            is_compared[answers.pairs] = True
            compared = X if is_compared.all() else X[is_compared]
            if offset_is_large(compared):
                X = np.asarray(X, dtype=np.float64) - compared.mean(axis=0, dtype=np.float64)
        return OffsetFeatures(X, float(np.sqrt(self.offset))) if self.offset else Features(X)

    @cached_property
    def narrow(self) -> LatentSpace:
        """The same prior with the items as coordinates, where there are more features than items: K = Φ Φᵀ."""
        n = self.n_items
        if not self.offset and (self.design is None or self.design.shape[1] <= n):
            return self
        require_memory(2 * n * n * 8, f"a kernel matrix of {n} × {n}")
        K = self.design @ self.design.T
        K = np.array(K.toarray() if sp.issparse(K) else K, dtype=np.float64)
        K[np.diag_indices(n)] += self.offset
        return kernel_space(K)

    def weights_of(self, scores: np.ndarray) -> np.ndarray:
        """The weights of the columns of `matrix` that give the items these scores; where coordinates are items."""
        if self.factor is None:
            return scores
        return sl.solve_triangular(self.factor.C, scores[self.factor.pivots], lower=True, check_finite=False)

    @cached_property
    def _fixed_features(self) -> Features:
        return Features(self.matrix())

    def of_items(self, items: np.ndarray) -> LatentSpace:
        """The same function of some of the items."""
        if self.design is not None:
            return LatentSpace(items.shape[0], self.design[items], offset=self.offset)
        return LatentSpace(items.shape[0], None if self.root is None else self.root[items])

    def mean_prior_variance(self) -> float:
        """Mean of the items' prior variance at alpha = 1/2."""
        if self.design is None:
            return 1.0 if self.root is None else float(np.sum(self.root**2) / self.n_items)
        squares = self.design.multiply(self.design) if sp.issparse(self.design) else np.square(self.design)
        return float(squares.sum() / self.n_items) + self.offset

    def forward(self, u: np.ndarray) -> np.ndarray:
        """Φ u, of one vector or several columns."""
        return u if self.design is None else np.asarray(self.design @ u)

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """f of the items, from the weights of the columns of `matrix`."""
        if self.offset:
            own = weights[self.n_coordinates :]
            return self.forward(weights[: self.n_coordinates]) + np.sqrt(self.offset) * own
        return self.forward(weights) if self.root is None else self.root @ weights

    def edges(self, pairs: np.ndarray) -> np.ndarray | None:
        """Φᵀ (e_h - e_j) of some pairs as columns, shape (q, k); None when they are unit vectors."""
        if self.design is None:
            return None
        rows = self.design[pairs[:, 0]] - self.design[pairs[:, 1]]
        return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64).T

    def largest_curvature(self, answers: Answers, curvatures: np.ndarray) -> float:
        """The approximate trace of Φᵀ L Φ, a bound of its eigenvalues, from the answers of largest curvature."""
        matrix = self.root if self.design is None else self.design
        if matrix is None:
            return 2.0 * float(curvatures.sum())
        some = np.arange(answers.n_pairs)
        if answers.n_pairs > _SAMPLE:
            some = np.argpartition(-curvatures, _SAMPLE)[:_SAMPLE]
        pairs, v = answers.pairs[some], curvatures[some]
        D = Features(matrix[pairs[:, 0]] - matrix[pairs[:, 1]])
        lengths = D.row_lengths() ** 2 + 2.0 * self.offset
        rest = float(curvatures.sum()) - float(v.sum())
        return float(v @ lengths) + rest * float(lengths.mean() if some.size else 0.0)


def kernel_space(K: np.ndarray) -> LatentSpace:
    """The items as coordinates, for a kernel matrix; one zero feature where the matrix is zero."""
    if not K.any():
        return LatentSpace(K.shape[0], np.zeros((K.shape[0], 1)))
    factor = factor_kernel(np.asarray(K, dtype=np.float64))
    return LatentSpace(K.shape[0], factor=replace(factor, F=np.ascontiguousarray(factor.F)))


@dataclass
class Mode:
    """The maximum of the posterior.

    Attributes
    ----------
    fit : PairLossFit
        With the weights of the columns of ``space.matrix()``.
    error : float
        Approximate error of a score due to rounding, relative to the largest.
    span : RowSpan or None
        What the answers see, where it had to be found.
    """

    fit: PairLossFit
    error: float
    span: RowSpan | None = None


class _Covariance(Preconditioner):
    """The covariance of nearby curvatures as an approximate inverse of the Hessian."""

    def __init__(self, posterior: LaplacePosterior):
        self._posterior = posterior

    def prepare(self, loss: Any) -> None:
        pass

    def spend(self, n_products: int) -> None:
        pass

    def solve(self, r: np.ndarray) -> np.ndarray:
        return self._posterior.solve(r)


class LaplacePosterior:
    """Covariance of the coordinates at the mode, given answers.

    Parameters
    ----------
    space : LatentSpace
    answers : Answers
    alpha : float
    weights : ndarray
        Of the columns of ``space.matrix()`` at the mode.
    span : RowSpan, optional
        What the answers see: for an alpha that is small relative to the kernel. The covariance is then kept as a
        factor.

    Attributes
    ----------
    space : LatentSpace
    by_features : bool
        Whether the coordinates are weights of features; they are items otherwise.
    weights : ndarray
    mean : ndarray of shape (q,)
        u.
    covariance : ndarray of shape (q, q) or None
        S; None where there is a factor.
    scores : ndarray of shape (m,)
        Latent scores of the items.

    Notes
    -----
    O(q³) for the first covariance, O(l + m q + q²) for each product after a new answer.
    """

    def __init__(
        self,
        space: LatentSpace,
        answers: Answers,
        alpha: float,
        weights: np.ndarray,
        span: RowSpan | None = None,
    ):
        n = space.n_coordinates if span is None else span.basis.shape[1]
        require_memory(2 * n**2 * 8, f"the posterior covariance of {n} coordinates")
        self.space = space
        self.by_features = span is not None or space.design is not None
        self.span = span
        self._alpha = alpha
        self._answers = answers
        self.set_mode(weights)
        self._assumed = LogisticLoss(answers, self.scores).curvatures
        self.covariance: Any = None
        self._rebuild()

    def set_mode(self, weights: np.ndarray) -> None:
        """Move the mean; the covariance stays."""
        self.weights = weights
        self.scores = self.space.scores(weights)
        self.mean = weights if self.by_features else self.scores

    def _rebuild(self) -> None:
        if self.span is not None:
            self.root: Root = self.span.root(self._assumed, self._alpha)
        else:
            self.covariance = self._whole_covariance()

    @property
    def rounding(self) -> float:
        """Approximate relative error of a variance due to rounding."""
        return (
            0.0 if self.span is None else np.finfo(float).eps / max(self.root.reciprocal_condition(), 1e-300)
        )

    def add(
        self, answers: Answers, space: LatentSpace | None = None, *, tol: float = 1e-14, max_iter: int = 100
    ) -> Mode:
        """Move to the posterior of more answers; the earlier ones come first.

        Parameters
        ----------
        answers : Answers
            All answers, the old ones first; their scales may have changed.
        space : LatentSpace, optional
            The same coordinates with additional items.
        tol, max_iter
            As in `find_mode`.
        """
        if space is not None:
            self.space = space
            self.scores = space.scores(self.weights)
        n_new = answers.n_pairs - self._answers.n_pairs
        self._answers = answers
        self._assumed = np.concatenate([self._assumed, np.zeros(n_new)])
        if self.span is None:
            self._correct(LogisticLoss(answers, self.scores))
        mode = find_mode(
            self.space,
            answers,
            self._alpha,
            tol=tol,
            max_iter=max_iter,
            start=self.weights,
            preconditioner=None if self.span is not None else _Covariance(self),
        )
        self.set_mode(mode.fit.weights)
        loss = LogisticLoss(answers, self.scores)
        if self.span is None:
            self._correct(loss)
        else:
            self.span = mode.span or RowSpan(self.space.matrix(), answers)
            self._assumed = loss.curvatures
            self._rebuild()
        return mode

    def serves(self, answers: Answers) -> bool:
        """Whether `add` can handle these answers: not if alpha has become small relative to the kernel."""
        curvatures = LogisticLoss(answers, self.scores).curvatures
        new = slice(self._answers.n_pairs, None)
        curvatures[new] = 0.25 * answers.weight[new] * answers.scale[new] ** 2
        return self.span is not None or not is_small(self.space, answers, curvatures, self._alpha)

    def solve(self, r: np.ndarray) -> np.ndarray:
        """(2 alpha I + Wᵀ L W)⁻¹ r for the features W that the weights belong to."""
        factor = self.space.factor
        if self.by_features or factor is None:
            return self.covariance @ r
        # In coordinates of items the same matrix is F (...)⁻¹ Fᵀ, and F has the rows C.
        pivots = factor.pivots
        inner = sl.blas.dtrsv(factor.C, r, lower=1, trans=1)
        if pivots.shape[0] == self.covariance.shape[0]:
            whole = np.empty_like(inner)
            whole[pivots] = inner
            inner = (self.covariance @ whole)[pivots]
        else:
            inner = self.covariance[np.ix_(pivots, pivots)] @ inner
        return sl.blas.dtrsv(factor.C, inner, lower=1)

    def half(self, features: Any) -> np.ndarray:
        """T with T Tᵀ the covariance of the functions that have these features; only where there is a span."""
        assert self.span is not None
        features = np.asarray(features.toarray() if sp.issparse(features) else features, dtype=np.float64)
        seen = features @ self.span.basis
        unseen = features - seen @ self.span.basis.T
        # What answers determine is large compared with alpha: rounding errors must not look like something they do not
        # see.
        lengths = np.linalg.norm(features, axis=1)
        unseen[np.linalg.norm(unseen, axis=1) <= 64.0 * np.finfo(float).eps * lengths] = 0.0
        return np.hstack([self.root.half(seen), unseen / np.sqrt(2.0 * self._alpha)])

    def covariance_of(self, features: Any) -> np.ndarray:
        """Posterior covariance of functions given by their features, shape (k, k)."""
        if self.span is not None:
            T = self.half(features)
            return T @ T.T
        return np.asarray(features @ np.asarray(features @ self.covariance).T)

    def variances_of(self, features: Any) -> np.ndarray:
        """The diagonal of `covariance_of`, shape (k,)."""
        if self.span is not None:
            T = self.half(features)
            return np.einsum("ij,ij->i", T, T)
        return np.einsum("ij,ij->i", np.asarray(features @ self.covariance), features)

    def variances_of_differences(self, pairs: np.ndarray) -> np.ndarray:
        """Posterior variance of f_h - f_j for each pair of items."""
        if not self.by_features:
            S, (h, j) = self.covariance, pairs.T
            diagonal = np.diagonal(S)
            return np.maximum(diagonal[h] + diagonal[j] - 2.0 * S[h, j], 0.0)
        matrix = self.space.matrix()
        variances = np.empty(pairs.shape[0])
        step = max(1, (1 << 21) // matrix.shape[1])
        for start in range(0, pairs.shape[0], step):
            some = pairs[start : start + step]
            D = matrix[some[:, 0]] - matrix[some[:, 1]]
            D = np.asarray(D.toarray() if sp.issparse(D) else D, dtype=np.float64)
            variances[start : start + step] = self.variances_of(D)
        return np.maximum(variances, 0.0)

    def laplacian_times(self, V: Any) -> Any:
        """L V for the Laplacian of the answers, V of one row for each item."""
        return self._answers.laplacian(self._assumed).laplacian(V)

    def _correct(self, loss: LogisticLoss) -> None:
        """Update the covariance to the curvatures of the loss, where they differ by more than the slack."""
        answers = self._answers
        change = loss.curvatures - self._assumed
        ceiling = 0.25 * answers.weight * answers.scale**2
        moved = np.flatnonzero(np.abs(change) > SLACK * (self._assumed + 0.01 * ceiling))
        if moved.size == 0:
            return
        if moved.size > max(8, self.space.n_coordinates // 3):
            self._assumed = loss.curvatures
            self._rebuild()
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
            self._rebuild()
            return
        # In place: with thousands of items, touching fresh memory costs more than the product.
        self.covariance = sl.blas.dgemm(-1.0, Y, middle, beta=1.0, c=S, overwrite_c=True)

    def log_evidence(self) -> float:
        """Laplace's approximation of the log marginal likelihood: -J(û) - ½ log det(I + Q Φᵀ L Φ). O(q³).

        Unlike held-out answers it stays fair when the questions were chosen depending on earlier answers.
        """
        loss = LogisticLoss(self._answers, self.scores)
        if self.span is not None:
            root = self.span.root(loss.curvatures, self._alpha)
            n, log_det = self.span.basis.shape[1], root.log_determinant()
        else:
            factor = cholesky_in_place(precision(self.space, self._answers, loss.curvatures, self._alpha))
            n, log_det = factor.shape[0], 2.0 * float(np.log(np.diagonal(factor)).sum())
        penalty = self._alpha * float(self.weights @ self.weights)
        return -(loss.value + penalty) - 0.5 * (log_det - n * np.log(2.0 * self._alpha))

    def _whole_covariance(self) -> np.ndarray:
        """S = F (2 alpha I + Fᵀ Φᵀ L Φ F)⁻¹ Fᵀ."""
        B, root = precision(self.space, self._answers, self._assumed, self._alpha), self.space.root
        if root is None:
            return inverse_in_place(B)
        half = solve_triangular_in_place(cholesky_in_place(B), np.array(root, order="C"))
        rows = np.ascontiguousarray(half.T)
        return mirror_lower(add_gram(np.zeros((half.shape[0],) * 2, order="F"), rows, rows))


def precision(space: LatentSpace, answers: Answers, curvatures: np.ndarray, alpha: float) -> np.ndarray:
    """2 alpha I + Fᵀ Φᵀ L Φ F, Fortran-ordered."""
    comparisons, root = answers.laplacian(curvatures), space.root
    if space.design is None:
        if root is None:
            B = answers.hessian(curvatures).toarray(order="F").astype(np.float64, copy=False)
        else:
            B = np.asfortranarray(root.T @ comparisons.laplacian(root))
    elif sp.issparse(space.design):
        # Not `feature_gram`, which would form a feature vector for every answer.
        B = (space.design.T @ comparisons.laplacian(space.design)).toarray(order="F").astype(np.float64)
    else:
        B = feature_gram(np.asarray(space.design, dtype=np.float64), comparisons)
    B[np.diag_indices_from(B)] += 2.0 * alpha
    return B


def is_small(space: LatentSpace, answers: Answers, curvatures: np.ndarray, alpha: float) -> bool:
    """Whether 2 alpha is lost in the rounding of what the answers add to it."""
    return bool(2.0 * alpha < _SMALL_ALPHA * space.largest_curvature(answers, curvatures))


def find_mode(
    space: LatentSpace,
    answers: Answers,
    alpha: float,
    *,
    tol: float = 1e-14,
    max_iter: int = 100,
    start: np.ndarray | None = None,
    report: Report | None = None,
    preconditioner: Preconditioner | None = None,
) -> Mode:
    """The mode by Newton's method; in the span of what the answers see where rounding requires it.

    Parameters
    ----------
    space, answers, alpha
        As in `LaplacePosterior`.
    tol, max_iter, start, report, preconditioner
        As in `losses.newton.minimise_logistic`.
    """
    objective = PairObjective(space.features(answers), answers)
    # For labels BLAS multiplies many pairs of vectors and would wake its threads for each; matrices use our own
    # threads.
    with blas_at_rest(space.design is None and space.factor is None):
        fit = minimise_logistic(
            objective,
            alpha,
            tol=tol,
            max_iter=max_iter,
            start=start,
            report=report,
            preconditioner=preconditioner,
        )
        error = _error(space, objective, answers, alpha, fit, preconditioner)
    if error <= _PRECISE and fit.converged:
        return Mode(fit, error)
    if not RowSpan.affordable(space.shape, answers):
        return Mode(fit, error)
    matrix = space.matrix()
    span = RowSpan(matrix, answers)
    refined, error = refine(span, matrix, alpha, fit.weights, tol=tol, max_iter=max_iter)
    refined.n_iter += fit.n_iter
    return Mode(refined, error, span)


def _error(
    space: LatentSpace,
    objective: PairObjective,
    answers: Answers,
    alpha: float,
    fit: PairLossFit,
    inverse: Preconditioner | None,
) -> float:
    """How far a score may be off due to the gradient's rounding and residual, relative to the largest.

    First by the strong convexity of the objective, ‖w - ŵ‖ ≤ ‖∇J‖ / 2 alpha. That is far too pessimistic where answers
    determine w in every direction: then by the inverse of the Hessian, if it is known or cheap.
    """
    predictions = objective.forward(fit.weights)
    loss = LogisticLoss(answers, predictions)
    noise = objective.rounding(fit.weights, loss, alpha)
    size = float(np.abs(predictions).max(initial=0.0))
    bound = (fit.gradient_norm + float(np.linalg.norm(noise))) / (2.0 * alpha)
    longest = objective.longest_row()
    least = score_of_one_answer(answers, longest, alpha)
    bound = relative(longest * bound, size, least)
    n = objective.n_features
    if bound <= _PRECISE or is_small(space, answers, loss.curvatures, alpha):
        return bound
    off = objective.backward(loss.gradient) + 2.0 * alpha * fit.weights + random_signs(n) * noise
    if inverse is not None:
        step = inverse.solve(off)
    elif not space.offset and n <= _FEW_FEATURES and space.n_items * n * n <= _MOST_WORK:
        step = cholesky_solve(cholesky_in_place(precision(space, answers, loss.curvatures, alpha)), off)
    elif space.shape == (space.n_items, space.n_items) and space.factor is None and bound > WORTH_A_WARNING:
        # Labels: the scores of connected items sum to zero, so that an error common to all of them can be subtracted.
        components = answers.components()
        counts = np.bincount(components)
        fit.weights = fit.weights - (np.bincount(components, fit.weights) / counts)[components]
        off -= (np.bincount(components, off) / counts)[components]
        step = LabelPosterior(answers, alpha, fit.weights).solve(off[:, None], 1e-6)[:, 0]
    else:
        return bound
    return min(bound, relative(float(np.abs(objective.forward(step)).max(initial=0.0)), size, least))


def posterior_at(
    space: LatentSpace, answers: Answers, alpha: float, mode: Mode
) -> LaplacePosterior | LabelPosterior:
    """The posterior at a mode; as a factor where alpha is small relative to the kernel, sparse for very many labels."""
    weights = mode.fit.weights
    if space.design is None and space.factor is None and space.n_items > MOST_DENSE_LABELS:
        return LabelPosterior(answers, alpha, weights)
    scores = space.scores(weights)
    small = is_small(space, answers, LogisticLoss(answers, scores).curvatures, alpha)
    if space.shape[1] > space.n_items and isinstance(space.design, np.ndarray):
        # A kernel matrix would lose the differences of rows that have much in common.
        small = small or offset_is_large(space.design)
    if small and (mode.span is not None or RowSpan.affordable(space.shape, answers)):
        span = mode.span or RowSpan(space.matrix(), answers)
        return LaplacePosterior(space, answers, alpha, weights, span)
    narrow = space.narrow
    if narrow is not space:
        weights = narrow.weights_of(scores) if narrow.design is None else np.zeros(1)
    return LaplacePosterior(narrow, answers, alpha, weights)


def without_each(
    answers: Answers, scores: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each answer the mean and variance of its difference in the model without it, by one Newton step.

    With c the variance of f_h - f_j, leaving answer k out divides c by 1 - v c and subtracts c / (1 - v c) g from the
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
