r"""Hold-out for a reduced set and a few large folds, on the kernel values themselves.

f = K_MR β with (K_RM L K_MR + λ K_RR) β = K_RM b. When a fold leaves, B = K_RM L K_MR loses Y diag(σ) Yᵀ with
Y = K_RM N, and the rows and columns of the basis vectors in the fold are struck out. A fold costs a product of its own
size and a Cholesky factorisation, n r² + r³ / 3; only B itself, which is formed once, costs the m r² of a training.
Where the system of a fold is ill conditioned, its solution is corrected on the rows that stay (`basis_system`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cache

import numpy as np
import scipy.linalg as la

from ...comparisons import Comparisons
from ...numerics.linalg import KernelFactor, cholesky_in_place, one_norm, subtract_gram
from ..basis_system import BasisEquation, solve_penalised, solve_summed
from ..problem import feature_gram, gram_times, target_moment
from .base import HoldOut, RemovedBasis, RemovedRows, refuse_without_basis, rows_outside

# Up to this many folds are factorised one by one; for more, one eigendecomposition that serves them all is cheaper.
FEW_FOLDS = 30
# A fold that leaves less than this share of B behind is refitted.
_LEAST_LEFT = 1e-3


class BasisHoldOut(HoldOut):
    """Exact hold-out by a factorisation for each fold and alpha.

    Parameters
    ----------
    K_MR : ndarray of shape (m, rank)
        On the pivots of the factor.
    factor : KernelFactor
        Of K_RR, well conditioned: no basis vector lies in the span of others, except for copies.
    basis_indices : ndarray of shape (r,)
        The rows that are basis vectors.
    comparisons : Comparisons
    intercept : bool
    fallback : callable
        Makes the routine to use for these comparisons when the system of a fold cannot be corrected.
    """

    def __init__(
        self,
        K_MR: np.ndarray,
        factor: KernelFactor,
        basis_indices: np.ndarray,
        comparisons: Comparisons,
        *,
        intercept: bool,
        fallback: Callable[[Comparisons], HoldOut],
    ):
        self.comparisons = comparisons
        self.intercept = intercept
        self._K, self._C = K_MR, factor.C
        self._reciprocal_condition = factor.reciprocal_condition  # a lower bound for fewer basis vectors
        self._pivot_rows = basis_indices[factor.pivots]
        self._K_RR = np.asfortranarray(K_MR[self._pivot_rows].T)  # symmetric
        self._with_penalty: tuple[float, np.ndarray] | None = None
        self._removed_basis = RemovedBasis.of(factor, basis_indices, comparisons.n_rows)
        assert self._removed_basis.dependent.size == 0
        self._B = feature_gram(K_MR, comparisons)
        self._c = target_moment(K_MR, comparisons)
        self._removed_rows = RemovedRows(comparisons, K_MR, None)
        self._fallback = fallback
        self._instead: HoldOut | None = None

    def predict(self, folds, alphas, *, on_fold=None) -> list[np.ndarray]:
        if self._instead is not None:
            return self._instead.predict(folds, alphas, on_fold=on_fold)
        predictions = []
        for number, fold in enumerate(folds):
            try:
                predictions.append(self._predict_fold(fold, alphas))
            except np.linalg.LinAlgError:
                self._instead = self._fallback(self.comparisons)
                return self._instead.predict(folds, alphas, on_fold=on_fold)
            if on_fold is not None:
                on_fold(number + 1)
        return predictions

    def _predict_fold(self, fold: np.ndarray, alphas: Sequence[float]) -> np.ndarray:
        stays = rows_outside(self._pivot_rows.shape[0], self._removed_basis.numbers(fold))
        refuse_without_basis(stays.size)
        solve, rhs, scale = self._system_without(fold, stays)
        out = np.empty((len(alphas), fold.shape[0], self._c.shape[1]))
        for k, alpha in enumerate(alphas):
            beta = np.zeros_like(self._c)
            beta[stays] = solve(alpha / scale, rhs)
            f = self._K[fold] @ beta
            out[k] = (
                f + self._removed_rows.intercept(fold, f, self._removed_rows.mean @ beta)
                if self.intercept
                else f
            )
        return out

    def _system_without(
        self, fold: np.ndarray, stays: np.ndarray
    ) -> tuple[Callable[[float, np.ndarray], np.ndarray], np.ndarray, float]:
        """(B' + λ K_RR)⁻¹ on the basis vectors that stay, as a function of λ; the right-hand side; the scale."""
        if fold.shape[0] <= self.comparisons.n_rows // 2:
            Y, signs, change, scale = self._removed_rows.removal(fold)
            left, whole = float(np.einsum("ij,j,ij->", Y, signs, Y)), float(np.trace(self._B))
            if whole - left > _LEAST_LEFT * whole:
                equation = self._equation_without(fold, stays, scale)
                return (
                    lambda alpha, c: self._downdate(alpha, Y[stays], signs, stays, c, equation),
                    (self._c - change)[stays],
                    scale,
                )
        # Little is left: subtracting would leave mostly rounding errors.
        kept, K = self._rows_without(fold, stays)
        B, K_RR = feature_gram(K, kept), _struck_out(self._K_RR, stays)
        equation = self._equation_without(fold, stays, 1.0)
        return (
            lambda alpha, c: solve_penalised(B.copy(order="F"), K_RR, c, lambda: equation(alpha), alpha),
            target_moment(K, kept),
            1.0,
        )

    def _rows_without(self, fold: np.ndarray, stays: np.ndarray) -> tuple[Comparisons, np.ndarray]:
        rest = rows_outside(self.comparisons.n_rows, fold)
        return self.comparisons.take(rest), self._K[np.ix_(rest, stays)]

    def _equation_without(
        self, fold: np.ndarray, stays: np.ndarray, scale: float
    ) -> Callable[[float], BasisEquation]:
        """The equation that the system of a fold stands for, as a function of λ; its parts are made on first use."""

        @cache
        def parts() -> tuple[Comparisons, np.ndarray, np.ndarray]:
            return *self._rows_without(fold, stays), cholesky_in_place(
                _struck_out(self._K_RR, stays), clean=True
            )

        def equation(alpha: float) -> BasisEquation:
            kept, K, C = parts()
            return BasisEquation(
                lambda beta: gram_times(K, kept, beta) / scale,
                C,
                alpha,
                self._reciprocal_condition,
            )

        return equation

    def _downdate(
        self,
        alpha: float,
        Y: np.ndarray,
        signs: np.ndarray,
        stays: np.ndarray,
        rhs: np.ndarray,
        equation: Callable[[float], BasisEquation],
    ) -> np.ndarray:
        if self._with_penalty is None or self._with_penalty[0] != alpha:
            self._with_penalty = alpha, self._B + alpha * self._K_RR
        whole = self._with_penalty[1]
        system = subtract_gram(_struck_out(whole, stays), Y, signs)
        return solve_summed(system, one_norm(whole.T), rhs, lambda: equation(alpha))

    @property
    def size(self) -> float:
        """The largest eigenvalue of C⁻¹ B C⁻ᵀ, C Cᵀ = K_RR, by a few steps of the power method."""
        v = np.asarray(np.random.default_rng(0).standard_normal(self._C.shape[0]))
        size = 0.0
        for _ in range(8):
            v = v / float(np.linalg.norm(v))
            image = la.solve_triangular(
                self._C, self._B @ la.solve_triangular(self._C, v, lower=True, trans="T"), lower=True
            )
            size = float(np.linalg.norm(image))
            if not size > 0:
                break
            v = image
        return size

    def with_targets(self, comparisons: Comparisons) -> HoldOut | None:
        if self._instead is not None:
            return self._instead.with_targets(comparisons)
        other = copy(self)
        other.comparisons = comparisons
        other._c = target_moment(self._K, comparisons)
        other._removed_rows = self._removed_rows.with_targets(comparisons)
        return other

    @property
    def largest_eigenvalue(self) -> float:
        raise ValueError("No eigendecomposition was made: use FeatureHoldOut.")


def _struck_out(B: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """A Fortran-ordered copy of the symmetric B on some of its rows and columns."""
    if stays.shape[0] == B.shape[0]:
        return B.copy(order="F")
    return np.take(np.take(B.T, stays, axis=0), stays, axis=1).T
