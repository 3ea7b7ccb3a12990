r"""Every squared-loss learner as one ridge system (B + λ I) x = c.

* dual, when L = S S with S in closed form: B = S K S, c = t with S t = b, and the kernel coefficients are a = S x;
* primal, for features Φ: B = Φᵀ L Φ, c = Φᵀ b, and the weights are w = x.

One λ costs a Cholesky factorisation; a path of λ, and cross-validation, one symmetric eigen decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..comparisons import Comparisons
from ..numerics.linalg import (
    cholesky_in_place,
    cholesky_solve,
    eigh_in_place,
    one_norm,
    reciprocal_condition,
    restore_lower,
)
from .gram import feature_gram, feature_moment


@dataclass
class SquaredLossFit:
    """What training returns.

    Attributes
    ----------
    solver : {"dual", "primal", "cg"}
    weights : ndarray of shape (n, v) or None
        Of the features of X, for the linear kernel without a reduced set.
    dual_coef : ndarray of shape (r, v) or None
        Of the basis vectors otherwise.
    basis_indices : ndarray of shape (r,) or None
    mean_prediction : ndarray of shape (v,) or None
        Mean of f over the training rows where it was asked for; an intercept follows from it.
    n_iter : int or None
    residual : float or None
        What conjugate gradients reached.
    converged : bool
    """

    solver: str
    weights: np.ndarray | None
    dual_coef: np.ndarray | None
    basis_indices: np.ndarray | None
    mean_prediction: np.ndarray | None
    n_iter: int | None = None
    residual: float | None = None
    converged: bool = True


@dataclass
class RidgeProblem:
    """(B + λ I) x = c for v right-hand sides.

    Attributes
    ----------
    matrix : ndarray of shape (n, n), Fortran order
        B, symmetric positive semidefinite, both triangles filled. `solve` and `spectrum` use its memory: a problem
        can be solved once.
    rhs : ndarray of shape (n, v)
        c.
    recover : callable
        Takes x to the coefficients of the learner (a = S x, or w = x).
    """

    matrix: np.ndarray | None
    rhs: np.ndarray
    recover: Callable[[np.ndarray], np.ndarray]

    def solve(self, alpha: float) -> np.ndarray:
        """The coefficients at one λ = alpha, shape (n, v). n³/3 operations, in the memory of B."""
        return self.recover(self._solve_ridge(alpha))

    def _solve_ridge(self, alpha: float) -> np.ndarray:
        B = self._take_matrix()
        diagonal = np.diagonal(B).copy()
        np.fill_diagonal(B, diagonal + B.dtype.type(alpha))
        in_doubt = alpha <= rounding_of_sums(B.shape[0], B.dtype, float(diagonal.max()))
        norm = one_norm(B.T) if in_doubt else 0.0
        try:
            factor = cholesky_in_place(B)
            if in_doubt:
                _refuse_below(np.finfo(B.dtype).eps, factor, norm)
            return cholesky_solve(factor, self.rhs)
        except np.linalg.LinAlgError:
            # alpha is lost in the rounding of B. Cholesky has used the lower triangle; the upper one still holds B.
            restore_lower(B, diagonal)
            return _spectrum(B, self.rhs, self.recover).solve_ridge(alpha)

    def spectrum(self) -> Spectrum:
        """The eigen decomposition of B, from which every λ costs O(n²) per output."""
        return _spectrum(self._take_matrix(), self.rhs, self.recover)

    def _take_matrix(self) -> np.ndarray:
        B, self.matrix = self.matrix, None
        if B is None:
            raise RuntimeError(
                "This RidgeProblem has been solved already: its matrix was used up. Build it anew."
            )
        return B


@dataclass(frozen=True)
class Spectrum:
    """B = V diag(Λ) Vᵀ together with Vᵀ c.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Λ, ascending and not negative.
    vectors : ndarray of shape (n, n)
        V.
    projected : ndarray of shape (n, v)
        Vᵀ c.
    recover : callable
        As in `RidgeProblem`.
    """

    values: np.ndarray
    vectors: np.ndarray
    projected: np.ndarray
    recover: Callable[[np.ndarray], np.ndarray]

    def solve_ridge(self, alpha: float) -> np.ndarray:
        """x = V (Λ + λ)⁻¹ Vᵀ c, shape (n, v)."""
        return self.vectors @ self._shrink(alpha)

    def _shrink(self, alpha: float) -> np.ndarray:
        """(Λ + λ)⁻¹ Vᵀ c. Where λ itself is below rounding, so is what lies outside of the range of B: left out."""
        largest = float(self.values[-1])
        rounding = rounding_of_sums(1, self.values.dtype, largest)
        inverse = 1.0 / np.maximum(self.values + alpha, np.finfo(self.values.dtype).tiny)
        if alpha <= rounding:
            inverse[self.values <= rounding] = 0.0
        return self.projected * inverse[:, None]

    def path(self, alphas: Sequence[float]) -> np.ndarray:
        """The coefficients at every alpha, shape (len(alphas), n, v), by one matrix product."""
        shrunk = [self._shrink(alpha) for alpha in alphas]
        n_outputs = self.projected.shape[1]
        x = self.recover(self.vectors @ np.concatenate(shrunk, axis=1))
        return np.stack([x[:, i * n_outputs : (i + 1) * n_outputs] for i in range(len(alphas))])


def dual_problem(K: np.ndarray, comparisons: Comparisons) -> RidgeProblem:
    """The dual system in the memory of K.

    Parameters
    ----------
    K : ndarray of shape (m, m), C-contiguous
        The kernel matrix; overwritten.
    comparisons : Comparisons
        With a symmetric half in closed form.
    """
    G = comparisons.half_both_sides(K)
    rhs = comparisons.half_target.astype(K.dtype, copy=False)
    return RidgeProblem(G.T, rhs, comparisons.half)


def primal_problem(features, comparisons: Comparisons) -> RidgeProblem:
    """The primal system of features Φ, dense or sparse; Φ is not modified."""
    return RidgeProblem(
        feature_gram(features, comparisons), feature_moment(features, comparisons.target), _unchanged
    )


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x


def _spectrum(B: np.ndarray, rhs: np.ndarray, recover) -> Spectrum:
    values, vectors = eigh_in_place(B)
    refuse_indefinite(float(values[0]), float(values[-1]), values.dtype)
    return Spectrum(np.maximum(values, 0), vectors, vectors.T @ rhs, recover)


def refuse_indefinite(smallest: float, largest: float, dtype: np.dtype | type = np.float64) -> None:
    """Refuse a kernel with an eigenvalue that is negative beyond rounding."""
    size = max(abs(largest), abs(smallest), float(np.finfo(dtype).tiny))
    if smallest < -np.sqrt(np.finfo(dtype).eps) * size:
        raise ValueError(
            f"The kernel is not positive semidefinite: an eigenvalue is {smallest:.3g}, the largest {largest:.3g}. "
            "Check a precomputed or callable kernel, for example with np.linalg.eigvalsh."
        )


def rounding_of_sums(n: int, dtype: np.dtype, largest: float) -> float:
    """Size of the rounding errors in n sums of numbers up to ``largest``."""
    return 10 * n * float(np.finfo(dtype).eps) * largest


def _refuse_below(least: float, factor: np.ndarray, norm: float) -> None:
    if reciprocal_condition(factor, norm) < least:
        raise np.linalg.LinAlgError("the system is too ill-conditioned for Cholesky factorisation")
