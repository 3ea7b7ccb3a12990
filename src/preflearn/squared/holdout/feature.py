r"""Hold-out for features, through Z = Φ U with Zᵀ L Z = diag(s).

With D = diag(1 / (s + λ)) and c = Zᵀ b the weights are w = D c. When comparisons leave, L' = L - N diag(σ) Nᵀ and
b' = b - d; with Y = Zᵀ N,

    P = D + D Y (diag(σ) - Yᵀ D Y)⁻¹ Yᵀ D,    w' = P (c - Zᵀ d).

When basis vectors H of a reduced set leave, w' must satisfy Eᵀ w' = 0 with E = Uᵀ (C⁻¹)[:, H]:

    w' ← w' - P E (Eᵀ P E)⁻¹ Eᵀ w'.

Where basis vectors are linearly dependent, C belongs to independent ones that span the others, and the components of
these directions that a remaining dependent vector has are excluded.

For a fold that is larger than the width of the features, its moments are subtracted from those of all rows instead
(`weights_without`); a fold whose small system is ill conditioned (a tiny λ) is trained on the remaining rows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from ...comparisons import Comparisons, PreferenceComparisons
from ...numerics.linalg import (
    LEAST_CONDITION,
    KernelFactor,
    add_gram,
    eigh_in_place,
    inverses_checked,
    mirror_lower,
)
from ...numerics.threads import blas_at_rest, product_in_threads
from ..problem import block_rows, feature_gram, feature_moment, solve_primal, solve_primal_path, target_moment
from .base import (
    STABLE,
    HoldOut,
    Moments,
    OnFold,
    RemovedBasis,
    RemovedRows,
    directions_outside,
    each_fold,
    intercept_of_rest,
    leave_with_their_queries,
    n_columns_at_most,
    orthonormal,
    refuse_without_basis,
    rows_outside,
    span_of_rows,
    weights_without,
)

# Up to this many entries, features are worked on without the threads of BLAS, which would keep the loop waiting.
_FEW_ENTRIES = 1 << 20
# Weights of comparisons without a closed half are unbounded; what a heavy one leaves behind needs more precision.
_STABLE_WITHOUT_HALF = 1e-5
# Features whose square has a smaller share of the largest may be lost in its rounding.
_GRADED = 1e-8
# The largest error to expect in the span of the directions that leave; an upper bound, usually far from attained.
_DIGITS = 1e-6
_making_features = threading.Lock()
# Steps from 0 to a solution whose first approximation has five correct digits.
_REFINEMENTS = 3


class FeatureSpace(HoldOut):
    """The features rotated so that Φᵀ L Φ is diagonal, and what leaves it with rows, comparisons or basis vectors.

    Parameters
    ----------
    features : ndarray or sparse array of shape (m, n)
        Φ.
    comparisons : Comparisons
    intercept : bool
    factor : KernelFactor, optional
        Of K_RR, when the features are those of a reduced set: held-out basis vectors leave the model too.
    basis_indices : ndarray of shape (r,), optional
        The rows that are basis vectors.
    offset : ndarray of shape (n,), optional
        What has been subtracted from every row of Φ; it is added to the predictions again.

    Attributes
    ----------
    s : ndarray of shape (n,)
        The eigenvalues, ascending.
    c : ndarray of shape (n, v)
    Z : ndarray of shape (m, n)
    T : ndarray of shape (m, n) or None
        S Z; None without a symmetric half in closed form.
    mean : ndarray of shape (n,)
        The mean row of Z.
    E : ndarray of shape (r, n)
        For each basis vector the direction that leaves with it; of a reduced set.
    removed_basis : RemovedBasis or None
    """

    def __init__(
        self,
        features,
        comparisons: Comparisons,
        *,
        intercept: bool = False,
        factor: KernelFactor | None = None,
        basis_indices: np.ndarray | None = None,
        offset: np.ndarray | None = None,
    ):
        self.comparisons = comparisons
        self._offset = offset
        self.intercept = intercept
        self._features = features
        self._half = (
            comparisons.half(features) if comparisons.has_half and not sp.issparse(features) else None
        )
        self._half_is_rotated = False
        width = features.shape[1]
        # Only the lower triangle is filled from the half, and only that is read.
        with blas_at_rest():
            A = (
                feature_gram(features, comparisons).astype(np.float64, copy=False)
                if self._half is None
                else add_gram(np.zeros((width, width), order="F"), self._half, self._half)
            )
            diagonal = np.diagonal(A).copy()
            self._A = A.copy(order="F")
            values, self._U = eigh_in_place(A)
            self.s = np.maximum(values, 0.0)
            self._graded = bool(
                diagonal[diagonal > 0].min(initial=np.inf) < _GRADED * diagonal.max(initial=0.0)
            )
            self._moment = (
                target_moment(features, comparisons)
                if self._half is None
                else self._half.T @ comparisons.half_target
            )
            self.c = self._U.T @ self._moment
        self._least_condition = STABLE if comparisons.has_half else _STABLE_WITHOUT_HALF
        self.removed_basis: RemovedBasis | None = None
        if factor is not None:
            assert basis_indices is not None
            self._set_basis(factor, basis_indices)

    # Z = Φ U and T = S Z, made when a fold needs more of them than a few rows at a time.

    @cached_property
    def Z(self) -> np.ndarray:
        if sp.issparse(self._features):
            Z = np.ascontiguousarray(self._features @ self._U)
        else:
            Z = product_in_threads(self._features, self._U)
        self._features = None
        return Z

    @cached_property
    def T(self) -> np.ndarray | None:
        if not self.comparisons.has_half:
            return None
        if self._half is None:
            return self.comparisons.half(self.Z)
        T, self._half, self._half_is_rotated = product_in_threads(self._half, self._U), None, True
        return T

    @cached_property
    def _removed_rows(self) -> RemovedRows:
        return RemovedRows(self.comparisons, self.Z, self.T)

    @property
    def mean(self) -> np.ndarray:
        return self._removed_rows.mean + self._level

    @property
    def _level(self) -> Any:
        """What has been subtracted from the rows, in the coordinates of Z."""
        return 0.0 if self._offset is None else self._offset @ self._U

    def shrink(self, alpha: float) -> np.ndarray:
        """D = 1 / (s + λ); where λ is small, directions within rounding of zero count as zero."""
        D = 1.0 / (self.s + alpha)
        if alpha < LEAST_CONDITION * self.size:
            D[self.s <= self._rounding] = 0.0
        return D

    @property
    def _rounding(self) -> float:
        return 16 * np.finfo(float).eps * np.sqrt(self.s.shape[0]) * self.size

    def is_well_determined(self, alpha: float) -> bool:
        """Whether every direction is known to six digits relative to λ, or is zero up to rounding."""
        if alpha >= LEAST_CONDITION * self.size:
            return True
        null = self.s <= self._rounding
        known = self.s + alpha >= LEAST_CONDITION * self.size
        return bool((null | known).all() and not (null.any() and self._graded))

    def _set_basis(self, factor: KernelFactor, basis_indices: np.ndarray) -> None:
        self.removed_basis = RemovedBasis.of(factor, basis_indices, self.comparisons.n_rows)
        self._C, self._eps = factor.C, float(np.finfo(factor.C.dtype).eps)
        # At smaller angles than this, the rounding of C⁻¹ changes the span of the directions by more than _DIGITS.
        self._least_angle = self._eps / (_DIGITS * np.sqrt(factor.condition_of_pivots()))
        self._dependent = factor.F[self.removed_basis.dependent] @ self._U
        E = la.solve_triangular(factor.C, self._U, lower=True, trans="T")
        self.E = E / np.linalg.norm(E, axis=1, keepdims=True)

    def with_targets(self, comparisons: Comparisons) -> Self:
        removed_rows = self._removed_rows.with_targets(comparisons)
        other = copy(self)
        other.comparisons = comparisons
        other.c = (
            target_moment(self.Z, comparisons)
            if self.T is None
            else feature_moment(self.T, comparisons.half_target)
        )
        other._removed_rows = removed_rows
        return other

    @property
    def basis_leaves(self) -> bool:
        """Whether rows are basis vectors, each of which removes one direction when it is held out."""
        return self.removed_basis is not None and self.removed_basis.dependent.size == 0

    @property
    def largest_eigenvalue(self) -> float:
        return float(self.s[-1])

    def _solve_with(self, comparisons: Comparisons, alpha: float) -> np.ndarray:
        """Train on other comparisons of the same rows, in the coordinates of Z."""
        return solve_primal(self.Z, comparisons, alpha)

    def _weights_without(self, alphas, Y, signs, change, E) -> tuple[np.ndarray, np.ndarray]:
        """w' = P (c - Zᵀ d) under Eᵀ w' = 0 for each alpha, shape (a, n, v), and where that is stable.

        Elsewhere the small system is too ill conditioned.
        """
        D = np.stack([self.shrink(alpha) for alpha in alphas])[:, :, None]
        DY = D * Y
        v = self.c.shape[1]
        rhs = np.concatenate([self.c - change, E], axis=1)
        small = np.diag(signs) - Y.T @ DY
        with np.errstate(over="ignore", invalid="ignore"):
            inverse, condition = inverses_checked(small)
            # Relative to the identity that Yᵀ D Y is subtracted from: what little is left of it is rounding.
            size = np.abs(small).sum(axis=1).max(axis=1, initial=0.0)
            stable = condition * np.minimum(1.0, size) >= self._least_condition if Y.size else condition > 0
            image = D * rhs + DY @ (inverse @ (DY.transpose(0, 2, 1) @ rhs))
            weights, constrained = _constrained(image[:, :, :v], image[:, :, v:], E)
        return weights, stable & constrained


class _WithoutPreferences(FeatureSpace):
    """Preferences held out one by one or in sets; the rows stay."""

    def predict_without_preferences(
        self, sets: Sequence[np.ndarray], alphas: Sequence[float], *, on_fold: OnFold = None
    ) -> list[np.ndarray]:
        """For each set of preferences their predicted differences when the set leaves, shape (len(alphas), k).

        For comparisons that are explicit preferences; rows and basis vectors stay. O(n k²) for a set of k preferences.
        """
        task = self.comparisons
        assert isinstance(task, PreferenceComparisons)
        if all(left.shape[0] == 1 for left in sets) and all(map(self.is_well_determined, alphas)):
            found = self._without_each_preference(np.concatenate(sets), alphas)
            return [found[:, [k]] for k in range(len(sets))]
        return self._without_sets(sets, alphas, on_fold)

    def _without_each_preference(self, which: np.ndarray, alphas: Sequence[float]) -> np.ndarray:
        """The predicted differences of single preferences, shape (len(alphas), len(which)), many at once.

        With y = Zᵀ N of a preference w' = w - D y (t - yᵀ w) / (1 - yᵀ D y), so that yᵀ w' needs yᵀ w and yᵀ D y only.
        """
        task = self.comparisons
        assert isinstance(task, PreferenceComparisons)
        D = np.stack([self.shrink(alpha) for alpha in alphas])
        w = D * self.c[:, 0]
        out = np.empty((len(alphas), which.shape[0]))
        step = block_rows(self.s.shape[0])
        for start in range(0, which.shape[0], step):
            part = which[start : start + step]
            better, worse = task.pairs[part].T
            differences = self.Z[better] - self.Z[worse]
            weight, z = task.weight[part], task.magnitude[part]
            leverage = weight * (D @ (differences**2).T)
            f = w @ differences.T
            left = 1.0 - leverage
            with np.errstate(divide="ignore", invalid="ignore"):
                out[:, start : start + step] = f - leverage * (z - f) / left
            for k, alpha in enumerate(alphas):
                lost = np.flatnonzero(left[k] < self._least_condition)
                if lost.size:
                    out[k, start + lost] = self._without_lonely(part[lost], differences[lost], alpha)
        return out

    def _without_lonely(self, which: np.ndarray, differences: np.ndarray, alpha: float) -> np.ndarray:
        """The same for preferences that determine their own prediction, with yᵀ D y ≈ 1, shape (len(which),).

        The precision that 1 - yᵀ D y has lost is recovered from residuals of (A - y yᵀ + λ I) w' = c - t y: with λ
        above the rounding of A a step removes all but 1e-5 of the error. O(n) a preference.
        """
        task = self.comparisons
        assert isinstance(task, PreferenceComparisons)
        if alpha < LEAST_CONDITION * self.size:
            return np.array([self._without_sets([k], [alpha], None)[0][0, 0] for k in which[:, None]])
        root = np.sqrt(task.weight[which])[:, None]
        Y, D = root * differences, self.shrink(alpha)
        target = self.c[:, 0] - root * task.magnitude[which, None] * Y
        left = 1.0 - np.einsum("ij,ij,j->i", Y, Y, D)[:, None]
        w = np.zeros_like(Y)
        for _ in range(_REFINEMENTS):
            step = D * (target - (self.s + alpha) * w + Y * _dots(Y, w))
            w += step + D * Y * (_dots(Y, step) / left)
        return _dots(differences, w)[:, 0]

    def _without_sets(self, sets, alphas: Sequence[float], on_fold) -> list[np.ndarray]:
        """Set by set."""
        task = self.comparisons
        assert isinstance(task, PreferenceComparisons)
        none = np.empty((self.s.shape[0], 0))
        predictions = []
        for number, left in enumerate(sets):
            removal = task.drop_preferences(left)
            Z = self.Z[removal.rows]
            Y, change = Z.T @ removal.columns, Z.T @ removal.change
            pairs = task.pairs[left]
            differences = self.Z[pairs[:, 0]] - self.Z[pairs[:, 1]]
            out = np.empty((len(alphas), left.shape[0]))
            for k, alpha in enumerate(alphas):
                w = None
                if left.shape[0] <= self.s.shape[0] and self.is_well_determined(alpha):
                    weights, stable = self._weights_without([alpha], Y, removal.signs, change, none)
                    w = weights[0] if stable[0] else None
                if w is None:
                    w = self._solve_with(task.without(left), alpha)
                out[k] = (differences @ w)[:, 0]
            predictions.append(out)
            if on_fold is not None:
                on_fold(number + 1)
        return predictions


class FeatureHoldOut(_WithoutPreferences):
    """Exact hold-out of rows in the space of the features.

    Parameters and attributes are those of `FeatureSpace`.

    Notes
    -----
    O(m n²) once, then O(n k²) for a fold of k lost comparisons and an alpha, or O(k n² + n³) for all alphas where that
    is less. Two arrays of the size of Φ, one where all folds are whole queries that are small or larger than n.
    """

    def predict(self, folds, alphas, *, on_fold=None) -> list[np.ndarray]:
        with blas_at_rest():  # every product that is worth threads uses our own
            return self._predict(folds, alphas, on_fold)

    def _predict(self, folds, alphas, on_fold) -> list[np.ndarray]:
        determined = np.array([self.is_well_determined(alpha) for alpha in alphas])
        if not determined.all():
            return self._with_refits(folds, np.asarray(alphas), determined, on_fold)
        if (
            all(fold.shape[0] == 1 for fold in folds)
            and self.removed_basis is None
            and self._has_single_form()
        ):
            return self._predict_singles(folds, alphas)
        return self._predict_folds(folds, alphas, on_fold)

    def _predict_folds(self, folds, alphas, on_fold) -> list[np.ndarray]:
        """Each fold by a small system of its own, or by subtracting its moments."""
        large = np.array([self._subtracts_moments(fold, alphas) for fold in folds])
        if not large.all():
            _ = self._removed_rows  # made once, before threads ask for it
        moments = self._moments() if large.any() else None

        def predict(k: int) -> np.ndarray:
            if large[k]:
                assert moments is not None
                return self._predict_by_moments(moments, folds[k], alphas)
            return self._predict_fold(folds[k], alphas)

        return each_fold(predict, [fold.shape[0] for fold in folds], self.s.shape[0], on_fold)

    def _with_refits(self, folds, alphas: np.ndarray, determined: np.ndarray, on_fold) -> list[np.ndarray]:
        """Predict without the decomposition at those alphas for which it is not precise enough."""
        out = [np.empty((alphas.shape[0], fold.shape[0], self.c.shape[1])) for fold in folds]
        # First, while the features still have their original coordinates and scales.
        moments = self._moments()
        small = alphas[~determined].tolist()

        def refit(k: int) -> np.ndarray:
            return self._predict_by_moments(moments, folds[k], small)

        for both, found in zip(
            out, each_fold(refit, [fold.shape[0] for fold in folds], self.s.shape[0], on_fold)
        ):
            both[~determined] = found
        if determined.any():
            for both, found in zip(out, self._predict(folds, alphas[determined].tolist(), None)):
                both[determined] = found
        return out

    # The moments of large folds subtracted

    def _subtracts_moments(self, fold: np.ndarray, alphas: Sequence[float]) -> bool:
        """Whether the moments of a fold and one decomposition cost less than a small system for each alpha.

        At an alpha that is small compared with the rounding of the features, only the small systems show which
        directions vanish.
        """
        if self.comparisons.drops_densely and not leave_with_their_queries(self.comparisons, fold):
            return True
        n, k = self.s.shape[0], self._n_columns(fold)
        if k > n or min(alphas) < LEAST_CONDITION * self.size:
            return k > n
        return len(alphas) * (2.0 * n * k**2 + 0.7 * k**3) > k * n**2 + 9.0 * n**3

    def _n_columns(self, fold: np.ndarray) -> int:
        """An upper bound of the number of comparisons and basis vectors that leave."""
        n_basis = 0 if self.removed_basis is None else self._basis_without(fold)[0].shape[0]
        return n_columns_at_most(self.comparisons, fold) + n_basis

    def _moments(self) -> Moments:
        """In the coordinates of Φ, which have the scales of its columns, as long as Φ is kept."""
        if self._features is None or sp.issparse(self._features) or self._half_is_rotated:
            return Moments(self.Z, np.diag(self.s), self.c, self._removed_rows, None, self.size)
        removed_rows = RemovedRows(self.comparisons, self._features, self._half)
        return Moments(self._features, mirror_lower(self._A), self._moment, removed_rows, self._U, self.size)

    def _predict_by_moments(self, moments: Moments, fold: np.ndarray, alphas: Sequence[float]) -> np.ndarray:
        f, settled = self._by_moments(moments, fold, alphas, self._constraints(fold))
        if not settled.all() and self.removed_basis is not None:
            # Without the inverse of the factor of K_RR.
            again = ~settled
            f[again], settled[again] = self._by_moments(
                moments, fold, np.asarray(alphas)[again].tolist(), None
            )
        if not settled.all():
            f[~settled] = self._retrain(fold, np.asarray(alphas)[~settled].tolist())
        return f

    def _by_moments(
        self, moments: Moments, fold: np.ndarray, alphas: Sequence[float], E: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predictions, and where they are settled; from the span of what stays where E is not known."""
        span = outside = None
        if self.removed_basis is not None and E is None:
            span = self._kept_span(fold)
        elif self.removed_basis is not None:
            outside = E
        if moments.rotation is not None:
            span = None if span is None else moments.rotation @ span
            outside = None if outside is None else moments.rotation @ outside
        weights, settled = weights_without(moments, fold, alphas, span=span, outside=outside)
        offset = self._offset if moments.rotation is not None else self._level
        flat = np.ascontiguousarray(weights.transpose(1, 0, 2).reshape(weights.shape[1], -1))
        f = product_in_threads(moments.features[fold], flat)
        f = f.reshape(fold.shape[0], *weights.shape[::2]).transpose(1, 0, 2)
        if self._offset is not None:
            f = f + (offset @ weights)[:, None]
        if self.intercept:
            level = moments.removed_rows.mean @ weights + (0.0 if self._offset is None else offset @ weights)
            f = np.stack([at + moments.removed_rows.intercept(fold, at, mean) for at, mean in zip(f, level)])
        return f, settled

    # One fold

    def _predict_fold(self, fold: np.ndarray, alphas: Sequence[float]) -> np.ndarray:
        E = self._constraints(fold)
        if E is None:
            return self._retrain(fold, alphas)
        Y, signs, change, scale = self._removed_rows.removal(fold)
        held_out = self.Z[fold]
        out = np.empty((len(alphas), fold.shape[0], self.c.shape[1]))
        step = max(1, _FEW_ENTRIES // Y.size) if Y.size else len(alphas)
        for start in range(0, len(alphas), step):
            some = alphas[start : start + step]
            weights, stable = self._weights_without([a / scale for a in some], Y, signs, change, E)
            part = out[start : start + step]
            part[...] = self._predict_held_out(fold, held_out, weights)
            if not stable.all():
                part[~stable] = self._retrain(fold, np.asarray(some)[~stable].tolist())
        return out

    def _constraints(self, fold: np.ndarray) -> np.ndarray | None:
        """E: the directions that leave with held-out basis vectors, shape (n, h); None where rounding hides them."""
        if self.removed_basis is None:
            return np.empty((self.s.shape[0], 0))
        leaving, stays = self._basis_without(fold)
        E = orthonormal(self.E[leaving].T, self._least_angle)
        if E is not None and leaving.size and stays.size:
            # The components that a remaining basis vector has of these directions stay too.
            E = directions_outside(E, self._dependent[stays], self._eps)
        if E is not None:
            refuse_without_basis(self.E.shape[0] - E.shape[1])
        return E

    def _basis_without(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The independent basis vectors that leave, and the dependent ones that stay."""
        assert self.removed_basis is not None
        return self.removed_basis.numbers(fold), self.removed_basis.dependent_that_stay(fold)

    def _retrain(self, fold: np.ndarray, alphas: Sequence[float]) -> np.ndarray:
        """Train on the remaining rows, in the coordinates of Z."""
        with _making_features:  # folds are worked on side by side
            _ = self.Z
        rest = rows_outside(self.comparisons.n_rows, fold)
        span = None if self.removed_basis is None else self._kept_span(fold)
        weights = solve_primal_path(self.Z[rest], self.comparisons.take(rest), alphas, span)
        held_out = self.Z[fold]
        return self._predict_held_out(fold, held_out, np.stack(weights))

    def _kept_span(self, fold: np.ndarray) -> np.ndarray | None:
        """An orthonormal basis of the weights w = Cᵀ β of the basis vectors that stay, without an inverse of C.

        None where all independent ones stay.
        """
        leaving, stays = self._basis_without(fold)
        if not leaving.size:
            return None
        kept = self._C[rows_outside(self._C.shape[0], leaving)] @ self._U
        span = span_of_rows(np.concatenate([kept, self._dependent[stays]]), self._eps)
        refuse_without_basis(span.shape[1])
        return span

    def _predict_held_out(self, fold: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Of the rows of Z that are held out, for weights of shape (a, n, v)."""
        f = rows @ weights
        if self._offset is not None:
            f = f + (self._level @ weights)[:, None]
        if not self.intercept:
            return f
        levels = self.mean @ weights
        return np.stack([at + self._removed_rows.intercept(fold, at, level) for at, level in zip(f, levels)])

    # Single rows, all at once

    def _has_single_form(self) -> bool:
        """Plain regression, or one global ranking: one column of N per row."""
        if self.comparisons.queries is None:
            return self.T is not None
        return self.comparisons.is_one_block

    def _predict_singles(self, folds: Sequence[np.ndarray], alphas: Sequence[float]) -> list[np.ndarray]:
        """w' = w - D y (t - yᵀ w) / (1 - yᵀ D y) for the column y of each row and its target t."""
        rows = np.concatenate(folds)
        Z, scale, t = self.Z[rows] + self._level, 1.0, self.comparisons.target[rows]
        columns = self.Z[rows]
        if self.comparisons.is_one_block:
            removal = self.comparisons.drop(rows[:1])
            factor, scale = float(removal.columns[0, 0]), removal.scale
            columns = self._removed_rows.centred_rows(rows) * factor
            scores = self.comparisons.scores
            t = factor * (scores[rows] - scores.mean(axis=0))
        out = np.empty((len(alphas), rows.shape[0], self.c.shape[1]))
        for k, alpha in enumerate(alphas):
            D = self.shrink(alpha / scale)
            w = D[:, None] * self.c
            left = 1.0 - columns**2 @ D
            step = (t - columns @ w) / left[:, None]
            f = Z @ w - np.einsum("ij,ij,j->i", Z, columns, D)[:, None] * step
            if self.intercept:
                mean = self.mean @ w - (columns @ (D * self.mean))[:, None] * step
                y = self.comparisons.scores
                f = f + intercept_of_rest(y.shape[0], y.sum(axis=0) - y[rows], mean, f, 1)
            out[k] = f
            for i in np.flatnonzero(left < STABLE):
                out[k, i] = self._retrain(rows[[i]], [alpha])[0]
        ends = np.cumsum([fold.shape[0] for fold in folds])[:-1]
        return np.split(out, ends, axis=1)


def _dots(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Products of the rows of A with those of B, shape (k, 1)."""
    return np.einsum("ij,ij->i", A, B)[:, None]


def _constrained(w: np.ndarray, PE: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """w - P E (Eᵀ P E)⁻¹ Eᵀ w for each alpha, and where the small system is well conditioned."""
    if E.shape[1] == 0:
        return w, np.ones(w.shape[0], dtype=bool)
    inverse, condition = inverses_checked(E.T @ PE)
    return w - PE @ (inverse @ (E.T @ w)), condition >= STABLE
