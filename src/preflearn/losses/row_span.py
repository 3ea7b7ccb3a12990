r"""Bradley-Terry models where alpha is small relative to the kernel: only what the answers see.

The objective  ℓ(Φ w) + alpha ‖w‖²  depends on w through the differences D w of the compared pairs, D = Mᵀ Φ, and the
minimiser lies in the span of the rows of D. Outside that span only 2 alpha restrains w: a rounding error e of the
gradient becomes e / 2 alpha there. So the span is made explicit: with Q an orthonormal basis of it, w = Q z,

    J(z) = ℓ(D Q z) + alpha ‖z‖²,        H = Qᵀ Dᵀ V D Q + 2 alpha I = Rᵀ R,

R from a QR factorisation of [√V D Q; √(2 alpha) I], which does not square the range of the numbers. Differences of
rows are taken first, so that what all rows have in common disappears before anything is multiplied. The posterior
covariance of w is

    (Q R⁻¹)(Q R⁻¹)ᵀ + (I - Q Qᵀ) / 2 alpha.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..comparisons.answers import Answers, DifferenceAnswers
from ..comparisons.grouping import centred, encode_queries
from ..numerics.linalg import cholesky_in_place, in_row_span
from .logistic import LogisticLoss
from .newton import PairLossFit, PairObjective, Preconditioner, minimise_logistic

# Multiplications of a factorisation, and numbers of an array, up to which the precision is worth its cost.
_MOST_WORK, _MOST_NUMBERS = 4e9, 2e7


class RowSpan:
    """The span of the rows of D in an orthonormal basis.

    Parameters
    ----------
    design : ndarray or CSR matrix of shape (m, q)
        Φ.
    answers : Answers

    Attributes
    ----------
    basis : ndarray of shape (q, r)
        Q.
    rows : ndarray of shape (k, r)
        D Q, one row for each distinct pair; where there are too many, Φ Q minus its means, one for each compared item.
    answers : Answers
        About those rows.

    Notes
    -----
    O(m q min(m, q)) for m compared items, then O(k r²) for each factor.
    """

    def __init__(self, design: Any, answers: Answers):
        compared, numbers = np.unique(answers.pairs, return_inverse=True)
        block = design[compared]
        block = np.ascontiguousarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)
        relabelled = Answers(
            compared.shape[0],
            numbers.reshape(-1, 2),
            answers.weight,
            answers.share,
            answers.scale,
            answers.judges,
        )
        components = encode_queries(relabelled.components(), compared.shape[0])
        common = centred(block, components)[0]
        rows, self.basis = in_row_span(common)
        of_pairs, pairs = DifferenceAnswers.of(relabelled)
        n_pairs, rank = pairs.shape[0], rows.shape[1]
        if n_pairs * max(rank * rank, 1) <= _MOST_WORK and n_pairs * block.shape[1] <= _MOST_NUMBERS:
            self.answers: Answers = of_pairs
            self.rows = (block[pairs[:, 0]] - block[pairs[:, 1]]) @ self.basis
        else:
            self.answers, self.rows = relabelled, np.ascontiguousarray(rows)

    @staticmethod
    def affordable(shape: tuple[int, int], answers: Answers) -> bool:
        """Whether the basis of features of this shape can be computed in seconds."""
        n_rows, n = min(shape[0], 2 * answers.n_pairs), shape[1]
        return (
            answers.n_pairs > 0 and n_rows * n <= _MOST_NUMBERS and n_rows * n * min(n_rows, n) <= _MOST_WORK
        )

    def root(self, curvatures: np.ndarray, alpha: float) -> Root:
        """R for these curvatures of the answers."""
        rank = self.rows.shape[1]
        if not isinstance(self.answers, DifferenceAnswers):
            H = self.rows.T @ self.answers.laplacian(curvatures).laplacian(self.rows)
            floor = 2.0 * alpha + np.finfo(float).eps * float(np.diagonal(H).max(initial=0.0))
            H[np.diag_indices(rank)] += floor
            return Root(np.ascontiguousarray(cholesky_in_place(np.asfortranarray(H)).T), np.arange(rank))
        scaled = np.sqrt(self.answers.spread_sizes(curvatures))[:, None] * self.rows
        stacked = np.vstack([scaled, np.sqrt(2.0 * alpha) * np.eye(rank)])
        # Large rows first, and column pivoting, keep each row as accurate as its own size allows.
        order = np.argsort(-np.abs(stacked).max(axis=1), kind="stable")
        R, pivots = sl.qr(stacked[order], mode="r", pivoting=True, check_finite=False)
        return Root(np.ascontiguousarray(R[:rank]), pivots)


class Root:
    """R with Rᵀ R = H, its columns in the order ``pivots``."""

    def __init__(self, R: np.ndarray, pivots: np.ndarray):
        self._R, self._pivots = R, pivots

    def half(self, Z: np.ndarray) -> np.ndarray:
        """Z R⁻¹ for rows Z, so that its rows have the products Z H⁻¹ Zᵀ."""
        return sl.solve_triangular(self._R, Z[:, self._pivots].T, trans="T", check_finite=False).T

    def solve(self, r: np.ndarray) -> np.ndarray:
        """H⁻¹ r."""
        half = sl.solve_triangular(self._R, r[self._pivots], trans="T", check_finite=False)
        solution = np.empty_like(half)
        solution[self._pivots] = sl.solve_triangular(self._R, half, check_finite=False)
        return solution

    def log_determinant(self) -> float:
        """log det H."""
        return 2.0 * float(np.log(np.abs(np.diagonal(self._R))).sum())

    def reciprocal_condition(self) -> float:
        """Of R: H has its square."""
        size = np.abs(np.diagonal(self._R))
        return (
            float(size.min(initial=np.inf) / max(size.max(initial=0.0), np.finfo(float).tiny))
            if size.size
            else 1.0
        )


class _RootPreconditioner(Preconditioner):
    """R of the present curvatures: conjugate gradients converge in a step or two."""

    def __init__(self, span: RowSpan, alpha: float):
        super().__init__(span.rows.shape, span.rows.size, alpha)
        self._span = span

    def prepare(self, loss: Any) -> None:
        self._root = self._span.root(loss.curvatures, self._alpha)

    def solve(self, r: np.ndarray) -> np.ndarray:
        return self._root.solve(r)


def refine(
    span: RowSpan, design: Any, alpha: float, start: np.ndarray, *, tol: float, max_iter: int
) -> tuple[PairLossFit, float]:
    """The minimiser in the span, starting near it, and the possible error of a prediction, relative to the largest."""
    objective = PairObjective(span.rows, span.answers)
    fit = minimise_logistic(
        objective,
        alpha,
        tol=tol,
        max_iter=max_iter,
        start=span.basis.T @ start,
        preconditioner=_RootPreconditioner(span, alpha),
    )
    z = fit.weights
    loss = LogisticLoss(span.answers, objective.forward(z))
    gradient = objective.backward(loss.gradient) + 2.0 * alpha * z
    off = gradient + random_signs(z.shape[0]) * _rounding(span.rows, z, loss)
    moved = design @ (span.basis @ span.root(loss.curvatures, alpha).solve(off))
    fit.weights = span.basis @ z
    size = float(np.abs(design @ fit.weights).max(initial=0.0))
    least = score_of_one_answer(span.answers, objective.longest_row(), alpha)
    return fit, relative(float(np.abs(moved).max(initial=0.0)), size, least)


def _rounding(rows: np.ndarray, z: np.ndarray, loss: LogisticLoss) -> np.ndarray:
    """How far rounding shifts each entry of the gradient, treating errors of single terms as independent."""
    sizes = loss.rounding(np.sqrt(np.square(rows) @ np.square(z)))
    return np.finfo(float).eps * np.sqrt(np.square(sizes) @ np.square(rows))


def random_signs(n: int) -> np.ndarray:
    """Rounding errors of random sign, the same ones each time."""
    return np.random.default_rng(0).choice([-1.0, 1.0], n)


def score_of_one_answer(answers: Answers, longest_row: float, alpha: float) -> float:
    """Approximately the score that the answer of least weight alone would give, at most 1: the unit for scores.

    Answers that contradict each other give none, and then only rounding is left.
    """
    weights = answers.weight * answers.scale
    with np.errstate(over="ignore"):
        alone = float(weights.min(initial=np.inf)) * longest_row * longest_row / (4.0 * alpha)
    return min(1.0, alone)


def relative(error: float, size: float, least: float) -> float:
    """error / size; 0 where scores of this size are only rounding compared with ``least``, as those of a tie are."""
    if error <= 64.0 * np.finfo(float).eps * least and size <= 1000.0 * error:
        return 0.0
    return error / size if size > 0 else np.inf
