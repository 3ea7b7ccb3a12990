r"""Scores for rows that have none, by minimising a cross-validated error: transductive RankRLS.

With the scores y of all m rows, unknown on the rows V, folds U of whole queries and L = S S, equation (11) of the
reference is a least-squares problem in the unknown scores ŷ:

    J(ŷ) = Σ_U ‖e_U‖² + γ ‖ŷ - f₀‖²,     e_U = S_U (y_U - f₋U(X_U)),     f₀ = f₋V(X_V)

f₋U is RankRLS trained without the rows U, f₀ the scores that RankRLS trained on the scored rows gives to the others.
The errors of all folds are linear in y and come from one factorisation:

* dual, R = (S K S + λ I)⁻¹:          e_U = (R_UU)⁻¹ (R S y)_U
* primal, T = S Φ, c = Tᵀ S y:        e_U = S_U y_U - T_U Q_U (c - T_Uᵀ S_U y_U),   Q_U = (TᵀT - T_UᵀT_U + λ I)⁻¹

so ŷ solves (E_Vᵀ E_V + γ I) ŷ = γ f₀ - E_Vᵀ e(y with 0 on V), where E_V are the columns of the map y → e.

In the primal form E = D S - W Zᵀ with D = blockdiag(I + T_U Q_U T_Uᵀ), W_U = T_U Q_U and Z = S T = L Φ: the normal
matrix is block diagonal plus 2r columns, and ŷ costs O(m r²).

Basis vectors of a reduced set that lie in a fold leave with it: w then obeys Nᵀ w = 0 with the columns N of C⁻¹ that
belong to them, which replaces Q_U by Q_U - Q_U N (Nᵀ Q_U N)⁻¹ Nᵀ Q_U.

Reference: Pahikkala, Suominen, Boberg, Salakoski, Transductive Ranking via Pairwise Regularized Least-Squares, 2007.
The printed G of its Theorem 2 has a slip (P_ŪŪ in the middle is P_ŪU), and so has λ/2 in R (it is λ).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, lu_factor, lu_solve

from ..comparisons.queries import QueryComparisons
from ..numerics.linalg import (
    add_gram,
    cholesky_in_place,
    cholesky_solve,
    inverse_in_place,
    mirror_lower,
    unit_of,
)
from .problem import Spectrum, dual_problem, primal_problem

# Refinement of the primal solution stops at this relative residual, or when it no longer shrinks.
_REFINED = 1e-14
_MAX_REFINEMENTS = 20


class TransductionAtAlpha(ABC):
    """Everything that a given λ fixes: unknown rows, known scores and γ may still vary."""

    def transduce(self, scores: np.ndarray, unknown: np.ndarray, fidelities: Sequence[float]) -> np.ndarray:
        """The scores of the unknown rows for every γ.

        Parameters
        ----------
        scores : ndarray of shape (m, v)
            Known scores; values on unknown rows are not read.
        unknown : ndarray of bool, shape (m,)
        fidelities : sequence of float
            γ > 0.

        Returns
        -------
        ndarray of shape (len(fidelities), n_unknown, v)
        """
        known_scores = np.where(unknown[:, None], 0.0, scores)
        rows = np.flatnonzero(unknown)
        inductive = self.inductive(known_scores, unknown)
        return self._minimise(rows, inductive, self._slope(known_scores, rows), fidelities)

    @abstractmethod
    def inductive(self, scores: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """f₀: what the model trained on the known rows predicts for the unknown ones, shape (n_unknown, v)."""

    @abstractmethod
    def coefficients(self, scores: np.ndarray) -> np.ndarray:
        """RankRLS trained on all rows: coefficients of the rows (dual) or of the features (primal)."""

    @abstractmethod
    def _slope(self, known_scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """E_Vᵀ e(known scores, 0 elsewhere), shape (n_unknown, v)."""

    @abstractmethod
    def _minimise(
        self, rows: np.ndarray, inductive: np.ndarray, slope: np.ndarray, fidelities: Sequence[float]
    ) -> np.ndarray:
        """(E_Vᵀ E_V + γ I)⁻¹ (γ f₀ - slope) for every γ."""


# ------------------------------------------------------------------------------------------------------------ dual


class DualTransduction:
    """Full kernel, O(m³).

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Kernel matrix of all rows, scored or not; not modified.
    comparisons : QueryComparisons
        All pairs inside queries (ties included), for all rows.
    folds : list of int arrays
        A partition of the rows into unions of whole queries.
    path : bool
        Whether more than one λ or set of unknown rows will be asked for: one eigendecomposition serves them all, and E
        is kept whole. Otherwise a Cholesky factorisation, and only the columns of the unknown rows.
    """

    def __init__(self, K: np.ndarray, comparisons: QueryComparisons, folds: list[np.ndarray], *, path: bool):
        _refuse_extreme(float(np.diagonal(K).max(initial=0.0)))
        self.K, self.comparisons, self.folds = K, comparisons, folds
        self._spectrum: Spectrum | None = None
        self._path = path

    def at(self, alpha: float) -> DualAtAlpha:
        """Fix λ. O(m³), or a matrix product once the eigendecomposition has been made."""
        R = self._resolvent_by_cholesky(alpha) if not self._path else None
        if R is None:
            R = self._resolvent_by_spectrum(alpha)
        return DualAtAlpha(self, alpha, R, keep_gram=self._path)

    def _matrix(self) -> np.ndarray:
        return self.comparisons.half_both_sides(self.K.copy()).T

    def _resolvent_by_cholesky(self, alpha: float) -> np.ndarray | None:
        G = self._matrix()
        G[np.diag_indices_from(G)] += alpha
        try:
            return inverse_in_place(G)
        except np.linalg.LinAlgError:
            return None  # alpha is lost in the rounding of G; the spectrum can be clipped

    def _resolvent_by_spectrum(self, alpha: float) -> np.ndarray:
        if self._spectrum is None:
            self._spectrum = dual_problem(self.K.copy(), self.comparisons, np.inf).spectrum()
        half = self._spectrum.vectors / np.sqrt(self._spectrum.values + alpha)
        R = np.zeros((half.shape[0],) * 2, order="F")
        return mirror_lower(add_gram(R, half.T, half.T))


class DualAtAlpha(TransductionAtAlpha):
    """R = (S K S + λ I)⁻¹ and what follows from it."""

    def __init__(self, problem: DualTransduction, alpha: float, R: np.ndarray, *, keep_gram: bool):
        self._problem, self._alpha, self._R = problem, alpha, R
        self._blocks = [cho_factor(R[np.ix_(fold, fold)], lower=True) for fold in problem.folds]
        self._gram = self._gram_of(np.arange(R.shape[0])) if keep_gram else None

    def coefficients(self, scores: np.ndarray) -> np.ndarray:
        half = self._problem.comparisons.half
        return half(self._R @ half(scores))

    def inductive(self, scores: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        known, rows = np.flatnonzero(~unknown), np.flatnonzero(unknown)
        problem = self._problem
        if problem.comparisons.queries.are_whole(np.flatnonzero(unknown)):
            # (S K S + λ I)⁻¹ of the known rows is a Schur complement of R.
            half = problem.comparisons.half
            solved = self._R @ half(scores)
            corner = cho_factor(self._R[np.ix_(rows, rows)], lower=True)
            solved[known] -= self._R[np.ix_(known, rows)] @ cho_solve(corner, solved[rows])
            solved[rows] = 0.0
            coef = half(solved)[known]
        else:
            # A query that is scored in part has fewer pairs there, hence another L and another factorisation.
            rest = _with_scores(problem.comparisons, scores).take(known)
            coef = dual_problem(problem.K[np.ix_(known, known)], rest, self._alpha).solve(self._alpha)
        return problem.K[np.ix_(rows, known)] @ coef

    def _slope(self, known_scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        half = self._problem.comparisons.half
        errors = self._R @ half(known_scores)
        for fold, block in zip(self._problem.folds, self._blocks):
            errors[fold] = cho_solve(block, cho_solve(block, errors[fold]))
        return half(self._R @ errors)[rows]

    def _minimise(self, rows, inductive, slope, fidelities):
        gram = self._gram_of(rows) if self._gram is None else self._gram[np.ix_(rows, rows)]
        return np.stack(
            [_solve_shifted(gram, fidelity, fidelity * inductive - slope) for fidelity in fidelities]
        )

    def _gram_of(self, rows: np.ndarray) -> np.ndarray:
        """E_Vᵀ E_V, from the columns (R_UU)⁻¹ (R S)_U,V."""
        half = self._problem.comparisons.half
        columns = np.ascontiguousarray(half(self._R)[rows].T)
        for fold, block in zip(self._problem.folds, self._blocks):
            columns[fold] = cho_solve(block, columns[fold])
        gram = np.zeros((rows.shape[0],) * 2, order="F")
        return mirror_lower(add_gram(gram, columns, columns))


# ---------------------------------------------------------------------------------------------------------- primal


def _refuse_extreme(size: float) -> None:
    """Refuse a kernel whose square leaves the range of float64."""
    if unit_of(size) != 1.0:
        raise ValueError(
            f"Kernel values of size {size:.3g} would overflow or vanish when squared: scale the features to ordinary "
            "sizes. The same model is found with X / s and alpha / s² for a linear kernel."
        )


class PrimalTransduction:
    """Features, O(m r²).

    Parameters
    ----------
    features : ndarray of shape (m, r)
        Φ of all rows, scored or not.
    comparisons, folds
        As in `DualTransduction`.
    constraints : list of ndarray of shape (r, h_U), optional
        For each fold the columns N of its basis vectors: w trained without the fold obeys Nᵀ w = 0.
    """

    def __init__(
        self,
        features: np.ndarray,
        comparisons: QueryComparisons,
        folds: list[np.ndarray],
        constraints: list[np.ndarray] | None = None,
    ):
        _refuse_extreme(float(np.square(np.abs(features).max(initial=0.0))))
        self.comparisons, self.folds = comparisons, folds
        spectrum = primal_problem(features, comparisons).spectrum()
        # In the basis of the eigenvectors TᵀT is diagonal, for every λ.
        self.values, self.rotation = spectrum.values, spectrum.vectors
        self.features = features @ self.rotation
        self.T = comparisons.half(self.features)
        self.Z = comparisons.half(self.T)
        n_folds = len(folds)
        self.constraints: list[np.ndarray | None] = (
            [None] * n_folds
            if constraints is None
            else [self.rotation.T @ N if N.size else None for N in constraints]
        )

    def at(self, alpha: float) -> PrimalAtAlpha:
        """Fix λ. O(m r²)."""
        return PrimalAtAlpha(self, alpha)


class PrimalAtAlpha(TransductionAtAlpha):
    """W = T_U Q_U of every fold, stacked."""

    def __init__(self, problem: PrimalTransduction, alpha: float):
        self._problem, self._alpha = problem, alpha
        self._W = np.zeros_like(problem.T)
        self._Q: list[np.ndarray | None] = []
        for fold, N in zip(problem.folds, problem.constraints):
            self._W[fold], Q = _held_out_weights(problem.T[fold], problem.values + alpha, N)
            self._Q.append(Q)

    def coefficients(self, scores: np.ndarray) -> np.ndarray:
        problem = self._problem
        return problem.rotation @ ((problem.Z.T @ scores) / (problem.values + self._alpha)[:, None])

    def inductive(self, scores: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        problem, known = self._problem, np.flatnonzero(~unknown)
        rest = _with_scores(problem.comparisons, scores).take(known)
        return problem.features[unknown] @ primal_problem(problem.features[known], rest).solve(self._alpha)

    def _errors(self, scores: np.ndarray) -> np.ndarray:
        """E y: S_U y_U - W_U Σ_{other folds} Zᵀ y."""
        errors = self._problem.comparisons.half(scores)
        return self._subtract_others(errors, self._W, self._problem.Z, scores)

    def _errors_transposed(self, errors: np.ndarray) -> np.ndarray:
        """Eᵀ e: S_U e_U - Z_U Σ_{other folds} Wᵀ e."""
        return self._subtract_others(self._problem.comparisons.half(errors), self._problem.Z, self._W, errors)

    def _subtract_others(
        self, out: np.ndarray, left: np.ndarray, right: np.ndarray, V: np.ndarray
    ) -> np.ndarray:
        folds = self._problem.folds
        parts = np.stack([right[fold].T @ V[fold] for fold in folds])
        for fold, others in zip(folds, _sums_of_others(parts)):
            out[fold] -= left[fold] @ others
        return out

    def _slope(self, known_scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self._errors_transposed(self._errors(known_scores))[rows]

    def _minimise(self, rows, inductive, slope, fidelities):
        columns = np.hstack([self._problem.Z[rows], self._second_columns()[rows]])
        WW = self._W.T @ self._W
        blocks = self._blocks(rows)
        out = np.empty((len(fidelities), *slope.shape))
        for k, fidelity in enumerate(fidelities):
            normal = _BlocksAndColumns([block(fidelity) for block in blocks], columns, WW)
            out[k] = self._refine(normal, rows, fidelity, fidelity * inductive - slope)
        return out

    def _refine(
        self, normal: _BlocksAndColumns, rows: np.ndarray, fidelity: float, rhs: np.ndarray
    ) -> np.ndarray:
        """Solve (E_VᵀE_V + γ I) ŷ = rhs. Its blocks and columns nearly cancel for small λ; those of E do not."""
        scores = np.zeros((self._W.shape[0], rhs.shape[1]))
        residual, size = rhs, np.inf
        for _ in range(_MAX_REFINEMENTS):
            step = normal.solve(residual)
            candidate = scores.copy()
            candidate[rows] += step
            residual = (
                rhs - self._errors_transposed(self._errors(candidate))[rows] - fidelity * candidate[rows]
            )
            previous, size = size, float(np.linalg.norm(residual))
            if size >= previous:
                break
            scores = candidate
            if size <= _REFINED * float(np.linalg.norm(rhs)):
                break
        return scores[rows]

    def _second_columns(self) -> np.ndarray:
        """Y = S D W with D_U = I + T_U Q_U T_Uᵀ = I + W_U T_Uᵀ."""
        DW = self._W.copy()
        for fold in self._problem.folds:
            DW[fold] += self._W[fold] @ (self._problem.T[fold].T @ self._W[fold])
        return self._problem.comparisons.half(DW)

    def _blocks(self, rows: np.ndarray) -> list[Callable[[float], _Block]]:
        """For each fold with unknown rows its block of S D² S + γ I, in the form that is cheaper."""
        problem = self._problem
        position = np.full(problem.T.shape[0], -1)
        position[rows] = np.arange(rows.shape[0])
        blocks: list[Callable[[float], _Block]] = []
        for fold, Q in zip(problem.folds, self._Q):
            inside = np.flatnonzero(position[fold] >= 0)
            if not inside.size:
                continue
            W, Z, here = self._W[fold], problem.Z[fold[inside]], position[fold[inside]]
            if Q is None or inside.size <= Q.shape[0]:
                X = problem.comparisons.take(fold).half(np.eye(fold.shape[0])[:, inside]) + W @ Z.T
                blocks.append(partial(_DenseBlock, here, X.T @ X))
            else:
                # D² = I + T (2 Q + Q TᵀT Q) Tᵀ with W = T Q
                blocks.append(
                    partial(_WideBlock, here, fold[inside], problem.comparisons, Z, 2 * Q + W.T @ W)
                )
        return blocks


class _Block(Protocol):
    rows: np.ndarray

    def solve(self, V: np.ndarray) -> np.ndarray:
        """(block + γ I)⁻¹ V."""


class _DenseBlock:
    """A square block of a fold that is narrower than the features."""

    def __init__(self, rows: np.ndarray, gram: np.ndarray, fidelity: float):
        self.rows = rows
        self._factor = cho_factor(gram + fidelity * np.eye(gram.shape[0]), lower=True)

    def solve(self, V: np.ndarray) -> np.ndarray:
        return cho_solve(self._factor, V)


class _WideBlock:
    """γ I + L_bb + Z M Zᵀ of a fold that is wider than the features, without a square matrix of its size."""

    def __init__(
        self,
        rows: np.ndarray,
        data_rows: np.ndarray,
        comparisons: QueryComparisons,
        Z: np.ndarray,
        M: np.ndarray,
        fidelity: float,
    ):
        self.rows, self._Z, self._M = rows, Z, M
        self._diagonal_part = partial(_solve_diagonal_part, comparisons, data_rows, fidelity)
        self._solved_Z = self._diagonal_part(Z)
        self._small = lu_factor(np.eye(M.shape[0]) + M @ (Z.T @ self._solved_Z))

    def solve(self, V: np.ndarray) -> np.ndarray:
        solved = self._diagonal_part(V)
        return solved - self._solved_Z @ lu_solve(self._small, self._M @ (self._Z.T @ solved))


class _BlocksAndColumns:
    """The inverse of D + F C Fᵀ for block diagonal D, F = [Z, Y] and C = [[WᵀW, -I], [-I, 0]]."""

    def __init__(self, blocks: list[_Block], F: np.ndarray, WW: np.ndarray):
        self._blocks, self._F = blocks, F
        self._solved_F = self._solve_blocks(F)
        r = WW.shape[0]
        inverse_middle = np.block([[np.zeros((r, r)), -np.eye(r)], [-np.eye(r), -WW]])
        self._small = lu_factor(inverse_middle + F.T @ self._solved_F)

    def solve(self, V: np.ndarray) -> np.ndarray:
        solved = self._solve_blocks(V)
        return solved - self._solved_F @ lu_solve(self._small, self._F.T @ solved)

    def _solve_blocks(self, V: np.ndarray) -> np.ndarray:
        out = np.empty_like(V)
        for block in self._blocks:
            out[block.rows] = block.solve(V[block.rows])
        return out


def _sums_of_others(parts: np.ndarray) -> np.ndarray:
    """For each k the sum of all parts except the k-th, without subtracting."""
    before, after = np.zeros_like(parts), np.zeros_like(parts)
    np.cumsum(parts[:-1], axis=0, out=before[1:])
    after[:-1] = np.cumsum(parts[:0:-1], axis=0)[::-1]
    return before + after


def _held_out_weights(
    T: np.ndarray, values: np.ndarray, N: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """W = T Q with Q = (diag(values) - TᵀT)⁻¹, constrained to Nᵀ w = 0 where there is an N; and Q for a wide fold.

    O(u² r + u³) for a fold of u <= r rows, O(u r² + r³) for a wider one; O(r²) more per basis vector.
    """
    u, r = T.shape
    Q = None
    if u <= r:
        scaled = T / values
        W = cho_solve(cho_factor(np.eye(u) - scaled @ T.T, lower=True), scaled)
        QN = None if N is None else (N + T.T @ (W @ N)) / values[:, None]  # Q = P + P TᵀW, P = diag(values)⁻¹
    else:
        Q = cho_solve(cho_factor(np.diag(values) - T.T @ T, lower=True), np.eye(r))
        W = T @ Q
        QN = None if N is None else Q @ N
    if N is None:
        return W, Q
    assert QN is not None
    kept_out = cho_solve(cho_factor(N.T @ QN, lower=True), QN.T)
    return W - (W @ N) @ kept_out, None if Q is None else Q - QN @ kept_out


def _solve_diagonal_part(
    comparisons: QueryComparisons, rows: np.ndarray, fidelity: float, V: np.ndarray
) -> np.ndarray:
    """(γ I + L_bb)⁻¹ V: per query (γ + w n) I - w 1 1ᵀ over those of its n rows that are among b."""
    codes = comparisons.queries.codes[rows]
    weight = comparisons.weights[codes]
    level = fidelity + weight * comparisons.queries.counts[codes]
    inside = np.bincount(codes, minlength=comparisons.queries.n_groups)[codes]
    member = sp.csr_array((np.ones(rows.shape[0]), codes, np.arange(rows.shape[0] + 1)))
    sums = member.T @ V
    share = weight / (level - weight * inside)
    return (V + share[:, None] * sums[codes]) / level[:, None]


def _solve_shifted(A: np.ndarray, shift: float, B: np.ndarray) -> np.ndarray:
    """(A + shift I)⁻¹ B for a symmetric positive semidefinite A, which is not modified."""
    shifted = np.array(A, order="F")
    shifted[np.diag_indices_from(shifted)] += shift
    return cholesky_solve(cholesky_in_place(shifted), B)


def _with_scores(comparisons: QueryComparisons, scores: np.ndarray) -> QueryComparisons:
    return QueryComparisons(scores, comparisons.queries, weighting=comparisons.weighting)
