r"""Every label known: solutions, and predictions for what was left out, in closed form.

With the decompositions of the two sides (see `Side`), T = Vᵀ Y W and D_kl = 1 / (θ_kl + λ), θ = σ γᵀ for the
Kronecker kernel,

    A = V (T ∘ D) Wᵀ,      F = K A G,

for every λ from the same V, W and T. A model trained without the pairs H has a dual vector that is zero there:
with the inverse M of the regularised system,

    a⁻ = a - M_:H (M_HH)⁻¹ a_H,      f⁻_H = f_H - (Q M)_HH (M_HH)⁻¹ a_H.

* One entry: M_HH is a number, and all of them are (V∘V) D (W∘W)ᵀ.
* Whole rows: in the basis W the problem separates into ridge problems in K that share their eigenvectors;
  `leave_out` solves them all. Whole columns are treated the same way in the basis V.
* Rows and columns together: a decomposition without the rows for each fold of them, then `leave_out` of the
  columns.

All of it holds where rows (or columns) are compared with each other: C K C then replaces K in the decomposition, and
only the images K V contain the level. Two-step learning is the same with D_kl = 1 / ((σ_k + λ_rows)(γ_l +
λ_columns)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..numerics.memory import require_memory
from ..squared.centred_kernel import refuse_small_alpha
from ..squared.conjugate_gradients import iterate
from ..squared.holdout.base import rows_outside
from .grammar import Folds
from .inputs import Side
from .pairwise import PairwiseKernel

# Where the shrinkage of modes differs by more than this, precision is checked.
_LEAST_SPREAD = 2.0**-26
# Rounding of entries of eigenvectors, and its largest acceptable share of a result.
_ROUNDING, _FEW_DIGITS = 2.0**-50, 1e-8
# An alpha this far above the kernel makes predictions less precise than the labels.
_STRONG = 2.0**20
# Numbers in the array of small systems that are solved together.
_BATCH = 1 << 22
# Of `cauchy_factors`: relative error 1e-14 of every entry.
_DIGITS = np.log(1e14)
_STEP = np.pi**2 / _DIGITS
# exp(-x) is negligible compared with 1 from here on.
_NOTHING = 37.0

OnFold = Callable[[int], None] | None


def leave_out(
    side: Side,
    targets: np.ndarray,
    scale: np.ndarray,
    ridges: Sequence[np.ndarray],
    folds: Folds,
) -> np.ndarray:
    """K a⁻ at objects that leave the training, for ridge problems (scale_j K + ridge_j) a = targets[:, j].

    Parameters
    ----------
    side : Side
        K, n objects.
    targets : ndarray of shape (n, v)
    scale : ndarray of shape (v,) or (1,)
        One for each problem, or one for all.
    ridges : sequence of ndarray of the shape of scale
        One for each alpha.
    folds : Folds
        Of the n objects.

    Returns
    -------
    ndarray of shape (n_alphas, n, v)
        The mean where an object is in several folds, NaN where it is in none.

    Notes
    -----
    Every object separately: two products of n × n and n × v for each alpha. A fold of u objects: O(u² n) for each
    problem and alpha, or one decomposition without them, whichever is cheaper.
    """
    projected = side.vectors.T @ targets
    images = side.images()
    if any(left.shape[0] == side.n for left in folds.leaving):
        raise ValueError("A fold holds out every object of one side: nothing is left to train on.")
    if _each_once(folds, side.n):
        out = np.stack([_leave_one_out(side, images, projected, scale, ridge) for ridge in ridges])
        for number, ridge in enumerate(ridges):
            for i in _lost_in_rounding(side, scale, ridge):
                out[number, i] = _refit_without(side, targets, scale, [ridge], np.array([i]))[0, 0]
        return out
    stable = not any(_is_spread(_inverse(side, scale, ridge)) for ridge in ridges)
    found = []
    for left in folds.leaving:
        if stable and _algebra_is_cheaper(left.shape[0], side.n, scale.shape[0] * len(ridges)):
            values = [_leave_fold_out(side, images, projected, scale, ridge, left) for ridge in ridges]
            found.append(np.stack(values))
        else:
            found.append(_refit_without(side, targets, scale, ridges, left))
    return folds.collect(found, side.n)


def _refit_without(
    side: Side, targets: np.ndarray, scale: np.ndarray, ridges, left: np.ndarray
) -> np.ndarray:
    """Of a decomposition without these objects, shape (n_alphas, len(left), v)."""
    rest, images_left = side.without(left)
    again = rest.vectors.T @ np.delete(targets, left, axis=0)
    return np.stack([images_left @ (again * _inverse(rest, scale, ridge)) for ridge in ridges])


def _is_spread(D: np.ndarray) -> bool:
    """Whether λ is so small relative to the kernel that rounding of some modes may hide others."""
    return bool(D.size and D.min() < _LEAST_SPREAD * D.max())


def _lost_in_rounding(side: Side, scale: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """The objects whose share in M does not exceed the rounding of modes that they do not have."""
    D = _inverse(side, scale, ridge)
    if not _is_spread(D):
        return np.empty(0, dtype=np.int64)
    M = (side.vectors * side.vectors) @ D
    return np.flatnonzero((_ROUNDING * D.sum(axis=0) > _FEW_DIGITS * M).any(axis=1))


def _inverse(side: Side, scale: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """D: 1 / (scale_j σ_k + ridge_j), shape (k, v)."""
    return 1.0 / (np.multiply.outer(side.values, scale) + ridge)


def _each_once(folds: Folds, n: int) -> bool:
    """Whether every object is its own fold."""
    return (
        len(folds.tests) == n
        and all(left.shape[0] == 1 for left in folds.leaving)
        and np.unique(np.concatenate(folds.tests)).shape[0] == n
    )


def _algebra_is_cheaper(n_left: int, n: int, n_problems: int) -> bool:
    return 4 * n_left * n_left * n * n_problems <= 9 * (n - n_left) ** 3


def _leave_one_out(
    side: Side, images: np.ndarray, projected: np.ndarray, scale: np.ndarray, ridge: np.ndarray
) -> np.ndarray:
    D = _inverse(side, scale, ridge)
    shrunk = projected * D
    M = (side.vectors * side.vectors) @ D
    KM = (images * side.vectors) @ D
    return images @ shrunk - (KM / M) * (side.vectors @ shrunk)


def _leave_fold_out(
    side: Side,
    images: np.ndarray,
    projected: np.ndarray,
    scale: np.ndarray,
    ridge: np.ndarray,
    left: np.ndarray,
) -> np.ndarray:
    D = _inverse(side, scale, ridge)
    V, X = side.vectors[left], images[left]
    shrunk = projected * D
    a, g = V @ shrunk, X @ shrunk
    if D.shape[1] == 1:
        return g - ((X * D[:, 0]) @ V.T) @ np.linalg.solve((V * D[:, 0]) @ V.T, a)
    step = max(1, _BATCH // (left.shape[0] * max(V.shape[1], 1)))
    for first in range(0, a.shape[1], step):
        some = slice(first, first + step)
        weighted = D.T[some, None, :]
        solved = np.linalg.solve((V * weighted) @ V.T, a.T[some, :, None])
        g[:, some] -= (((X * weighted) @ V.T) @ solved)[:, :, 0].T
    return g


class CompleteRelation:
    """A complete relation in the basis of its two sides.

    Attributes
    ----------
    rows, columns : Side
    Y : ndarray of shape (p, q)
    pairwise : PairwiseKernel
        With a closed form.
    """

    def __init__(self, rows: Side, columns: Side, Y: np.ndarray, pairwise: PairwiseKernel) -> None:
        self.rows, self.columns, self.Y, self.pairwise = rows, columns, Y, pairwise
        self._targets = Y @ columns.vectors
        self._projected = rows.vectors.T @ self._targets

    @property
    def largest_eigenvalue(self) -> float:
        if not self._projected.size:
            return 0.0
        extremes = (self.rows.values[[0, -1]], self.columns.values[[0, -1]])
        return max(0.0, float(self.pairwise.spectrum(*extremes).max()))

    def mode_coefficients(self, alpha: float) -> np.ndarray:
        """T ∘ D: the solution in the basis of the modes, shape (k, l). O(pq)."""
        return self._projected / (self.spectrum() + alpha)

    def coefficients(self, alpha: float) -> np.ndarray:
        """A of a model, shape (p, q), without the modes that do not affect any prediction. O(pq(p + q))."""
        modes = self.mode_coefficients(alpha)
        if not self.pairwise.cartesian:
            # With a size of y / λ, they would only add their rounding to a prediction.
            _strike_out_unseen(modes, self.rows, self.columns)
        return self.rows.vectors @ modes @ self.columns.vectors.T

    # ------------------------------------------------------------------------------------------------ hold-outs

    def entries_out(self, alphas: Sequence[float], on_fold: OnFold = None) -> np.ndarray:
        """Each entry predicted without itself (and without its mirror image for labels of one kind)."""
        out = _room(len(alphas), self.Y.shape)
        if not self._projected.size:  # nothing is compared
            out[...] = 0.0
            return out
        weights = _Weights(self, alphas)
        compared = self.rows.compared or self.columns.compared
        # y - a / M loses a prediction that is small relative to y.
        strong = not self.pairwise.sign and max(alphas) > _STRONG * self.largest_eigenvalue
        hold_out = self._compared_entries(weights) if compared or strong else self._plain_entries(weights)
        for number, alpha in enumerate(alphas):
            hold_out(number, alpha, out[number])
            if on_fold is not None:
                on_fold(number + 1)
        return out

    def _plain_entries(self, weights: _Weights) -> Callable[[int, float, np.ndarray], None]:
        """The function that writes the predictions at one alpha: f + λ a = y, so that f⁻ = y - a / M."""
        V, W = self.rows.vectors, self.columns.vectors
        left, right = weights.left(V * V), W * W

        def hold_out(number: int, alpha: float, out: np.ndarray) -> None:
            self._refuse_lost_entries(weights, number, alpha)
            A, M = V @ self.mode_coefficients(alpha) @ W.T, weights.product(number, left, right)
            if self.pairwise.sign:
                self._add_mirrored(M, alpha)
            A /= M
            np.subtract(self.Y, A, out=out)

        return hold_out

    def _compared_entries(self, weights: _Weights) -> Callable[[int, float, np.ndarray], None]:
        """The same also where rows or columns are compared: f⁻ = f - (Q M) a / M."""
        V, W = self.rows.vectors, self.columns.vectors
        X, Z = self.rows.images(), self.columns.images()
        left, left_image, right, right_image = weights.left(V * V), weights.left(X * V), W * W, Z * W

        def hold_out(number: int, alpha: float, out: np.ndarray) -> None:
            self._refuse_lost_entries(weights, number, alpha)
            modes, product = self.mode_coefficients(alpha), self.pairwise.product
            F = product * (X @ modes @ Z.T)
            QM = product * weights.product(number, left_image, right_image)
            if self.pairwise.cartesian:
                F += self.pairwise.cartesian * (X @ modes @ W.T + V @ modes @ Z.T)
                QM += self.pairwise.cartesian * (
                    weights.product(number, left_image, right) + weights.product(number, left, right_image)
                )
            M = weights.product(number, left, right)
            np.subtract(F, (QM / M) * (V @ modes @ W.T), out=out)

        return hold_out

    def _refuse_lost_entries(self, weights: _Weights, number: int, alpha: float) -> None:
        """Refuse an alpha at which an entry that determines its own prediction leaves only rounding behind."""
        if alpha >= _LEAST_SPREAD * self.largest_eigenvalue:
            return
        V, W = self.rows.vectors, self.columns.vectors
        rounding = _ROUNDING * float((1.0 / (self.spectrum() + alpha)).sum())
        if (rounding > _FEW_DIGITS * weights.product(number, weights.left(V * V), W * W)).any():
            refuse_small_alpha(alpha, self.largest_eigenvalue)

    def spectrum(self) -> np.ndarray:
        """θ, shape (k, l)."""
        return self.pairwise.spectrum(self.rows.values, self.columns.values)

    def separate(
        self, alphas: Sequence[float], most: int | None = None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """P of shape (k, r) and R of shape (n_alphas, l, r) with D = P Rᵀ at each alpha; see `cauchy_factors`."""
        scale, _ = self._problems_of(self.columns.values, 0.0)
        ridges = [self._problems_of(self.columns.values, alpha)[1] for alpha in alphas]
        found = cauchy_factors(
            self.rows.values, np.tile(scale, len(alphas)), np.concatenate(ridges), most=most
        )
        return None if found is None else (found[0], found[1].reshape(len(alphas), scale.shape[0], -1))

    def _add_mirrored(self, M: np.ndarray, alpha: float) -> None:
        """(i, j) and (j, i) are one label: they leave together."""
        V = self.rows.vectors
        factors = self.separate([alpha])
        assert factors is not None
        mirrored = np.zeros_like(M)
        for left, right in zip(factors[0].T, factors[1][0].T, strict=True):
            mirrored += ((V * left) @ V.T) * ((V * right) @ V.T)
        sign = self.pairwise.sign
        np.fill_diagonal(mirrored, 0.0)
        if sign < 0:
            np.fill_diagonal(M, 1.0)
        M += sign * mirrored

    def rows_out(self, folds: Folds, alphas: Sequence[float]) -> np.ndarray:
        """Rows predicted by the model that has not seen them, shape (n_alphas, p, q)."""
        if self.pairwise.sign:
            return self._objects_out(folds, alphas)
        return self._rows_out(folds, alphas)

    def columns_out(self, folds: Folds, alphas: Sequence[float]) -> np.ndarray:
        """Columns predicted by the model that has not seen them, shape (n_alphas, p, q)."""
        return np.swapaxes(self.transposed().rows_out(folds, alphas), 1, 2)

    def both_out(
        self, row_folds: Folds, column_folds: Folds, alphas: Sequence[float], on_fold: OnFold = None
    ) -> np.ndarray:
        """Pairs of a new row and a new column, shape (n_alphas, p, q)."""
        if self.pairwise.sign:
            return self._two_objects_out(row_folds, column_folds, alphas, on_fold)
        if len(row_folds.tests) * self.rows.n**3 <= len(column_folds.tests) * self.columns.n**3:
            return self._both_out(row_folds, column_folds, alphas, on_fold)
        found = self.transposed()._both_out(column_folds, row_folds, alphas, on_fold)
        return np.swapaxes(found, 1, 2)

    def transposed(self) -> CompleteRelation:
        """Columns as rows; the decompositions are shared."""
        return CompleteRelation(self.columns, self.rows, np.ascontiguousarray(self.Y.T), self.pairwise)

    def _rows_out(self, folds: Folds, alphas: Sequence[float]) -> np.ndarray:
        scale, _ = self._problems_of(self.columns.values, 0.0)
        ridges = [self._problems_of(self.columns.values, alpha)[1] for alpha in alphas]
        found = leave_out(self.rows, self._targets, scale, ridges, folds)
        known = self.pairwise.product * self.columns.images() + self.pairwise.cartesian * self.columns.vectors
        return found @ known.T

    def _both_out(self, row_folds: Folds, column_folds: Folds, alphas: Sequence[float], on_fold: OnFold):
        found = []
        for number, left in enumerate(row_folds.leaving):
            rest, images = self.rows.without(left)
            targets = np.delete(self.Y, left, axis=0).T @ rest.vectors
            scale, _ = self._problems_of(rest.values, 0.0)
            ridges = [self._problems_of(rest.values, alpha)[1] for alpha in alphas]
            new = leave_out(self.columns, targets, scale, ridges, column_folds)
            found.append(self.pairwise.product * np.swapaxes(new @ images.T, 1, 2))
            if on_fold is not None:
                on_fold(number + 1)
        return row_folds.collect(found, self.rows.n)

    def _problems_of(self, values: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Scale and ridge of the problems into which the modes of one side divide the other."""
        w, c = self.pairwise.product, self.pairwise.cartesian
        return w * values + c, c * values + alpha

    # -------------------------------------------------------------------------------- objects of one kind

    def _objects_out(self, folds: Folds, alphas: Sequence[float]) -> np.ndarray:
        """An object leaves with its row and its column."""
        found = []
        for left in folds.leaving:
            everywhere = np.arange(self.rows.n)
            found.append(self._trained_without(left, alphas, left, everywhere))
        return folds.collect(found, self.rows.n)

    def _two_objects_out(self, row_folds: Folds, column_folds: Folds, alphas, on_fold: OnFold) -> np.ndarray:
        total = np.zeros((len(alphas), *self.Y.shape))
        count = np.zeros(self.Y.shape)
        for number, (rows, rows_left) in enumerate(zip(row_folds.tests, row_folds.leaving, strict=True)):
            for columns, columns_left in zip(column_folds.tests, column_folds.leaving, strict=True):
                left = np.union1d(rows_left, columns_left)
                if left.shape[0] == self.rows.n:
                    raise ValueError(
                        "A fold of rows and one of columns hold out every object: use more folds."
                    )
                block = np.ix_(rows, columns)
                total[:, block[0], block[1]] += self._trained_without(left, alphas, rows, columns)
                count[block] += 1
            if on_fold is not None:
                on_fold(number + 1)
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def _trained_without(self, left, alphas, rows, columns) -> np.ndarray:
        """Predictions for rows × columns by the model without the objects ``left``, shape (n_alphas, ·, ·)."""
        rest = rows_outside(self.rows.n, left)
        side, _ = self.rows.without(left)
        small = CompleteRelation(side, side, self.Y[np.ix_(rest, rest)], self.pairwise)
        K = side.images_of(self.rows.K[:, rest])
        return np.stack([K[rows] @ small.mode_coefficients(alpha) @ K[columns].T for alpha in alphas]) * (
            self.pairwise.product
        )


class _Weights:
    """P D Rᵀ for a relation's D at each alpha, through a short sum of products where D is large."""

    def __init__(self, relation: CompleteRelation, alphas: Sequence[float]):
        self._relation, self._alphas = relation, alphas
        most = min(relation.rows.values.shape[0], relation.columns.values.shape[0]) // 4
        self._factors = relation.separate(alphas, most)

    def left(self, P: np.ndarray) -> np.ndarray:
        """What is shared by all alphas."""
        return P if self._factors is None else P @ self._factors[0]

    def product(self, number: int, left: np.ndarray, R: np.ndarray) -> np.ndarray:
        """P D Rᵀ at an alpha by its number."""
        if self._factors is not None:
            return left @ (R @ self._factors[1][number]).T
        D = 1.0 / (self._relation.spectrum() + self._alphas[number])
        return left @ D @ R.T


class TwoStepRelation:
    """Ridge regression over the rows, then over the columns: A = (K + λ_rows)⁻¹ Y (G + λ_columns)⁻¹.

    An alpha is a pair (λ_rows, λ_columns).
    """

    def __init__(self, rows: Side, columns: Side, Y: np.ndarray) -> None:
        self.rows, self.columns, self.Y = rows, columns, Y
        self._projected = rows.vectors.T @ Y @ columns.vectors

    def mode_coefficients(self, alpha: tuple[float, float]) -> np.ndarray:
        """The solution in the basis of the modes, shape (k, l)."""
        return (
            self._projected
            / (self.rows.values + alpha[0])[:, None]
            / (self.columns.values + alpha[1])[None, :]
        )

    def coefficients(self, alpha: tuple[float, float]) -> np.ndarray:
        """A of a model, shape (p, q), without the modes that do not affect any prediction."""
        modes = self.mode_coefficients(alpha)
        _strike_out_unseen(modes, self.rows, self.columns)
        return self.rows.vectors @ modes @ self.columns.vectors.T

    def entries_out(self, alphas: Sequence[tuple[float, float]], on_fold: OnFold = None) -> np.ndarray:
        """Each entry predicted from the others.

        The missing label is the one that the model itself would predict for it: with the smoothers S of the two sides
        and their diagonals h, (F - h hᵀ ∘ Y) / (1 - h hᵀ).
        """
        out = _room(len(alphas), self.Y.shape)
        if not self._projected.size:
            out[...] = 0.0
            return out
        for number, alpha in enumerate(alphas):
            fitted, residual, S, P = self._smoothed(alpha)
            out[number] = fitted - P * residual / (1 - S)
            if on_fold is not None:
                on_fold(number + 1)
        return out

    def entry_folds_out(self, folds: Sequence[np.ndarray], alphas, on_fold: OnFold = None) -> np.ndarray:
        """The same for sets H of entries: (I - S)_HH d = -r_H by conjugate gradients, then F_H + P_HH d."""
        total, count = np.zeros((len(alphas), self.Y.size)), np.zeros(self.Y.size)
        for number, fold in enumerate(folds):
            for place, alpha in enumerate(alphas):
                total[place, fold] += self._fold_out(fold, alpha)
            count[fold] += 1
            if on_fold is not None:
                on_fold(number + 1)
        found = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        return found.reshape(-1, *self.Y.shape)

    def _fold_out(self, fold: np.ndarray, alpha: tuple[float, float]) -> np.ndarray:
        fitted, residual, S, _ = self._smoothed(alpha)

        def at_fold(change: np.ndarray, side_map: Callable) -> np.ndarray:
            labels = np.zeros(self.Y.size)
            labels[fold] = change[:, 0]
            rows = side_map(self.rows, labels.reshape(self.Y.shape), alpha[0])
            return side_map(self.columns, rows.T, alpha[1]).T.reshape(-1)[fold][:, None]

        diagonal = 1 - S.reshape(-1)[fold][:, None]
        solved = iterate(
            lambda change: change - at_fold(change, _smooth),
            lambda change: change / diagonal,
            -residual.reshape(-1)[fold][:, None],
            tol=1e-12,
            max_iter=10 * fold.shape[0] + 100,
        )
        return fitted.reshape(-1)[fold] + at_fold(solved.weights, _predict)[:, 0]

    def _smoothed(self, alpha: tuple[float, float]) -> tuple[np.ndarray, ...]:
        """F, the residual of the smoother, and the diagonals of the smoother and of the prediction, all p × q."""
        modes = self.mode_coefficients(alpha)
        fitted = self.rows.images() @ modes @ self.columns.images().T
        smooth_rows, predict_rows = _diagonals(self.rows, alpha[0])
        smooth_columns, predict_columns = _diagonals(self.columns, alpha[1])
        smoothed = _smooth(self.columns, _smooth(self.rows, self.Y, alpha[0]).T, alpha[1]).T
        S = np.multiply.outer(smooth_rows, smooth_columns)
        return fitted, self.Y - smoothed, S, np.multiply.outer(predict_rows, predict_columns)

    def rows_out(self, folds: Folds, alphas: Sequence[tuple[float, float]]) -> np.ndarray:
        """Rows predicted by the model that has not seen them, shape (n_alphas, p, q)."""
        found = _one_side_out(self.rows, self.Y, folds, [alpha[0] for alpha in alphas])
        return np.stack(
            [_predict(self.columns, F.T, alpha[1]).T for F, alpha in zip(found, alphas, strict=True)]
        )

    def columns_out(self, folds: Folds, alphas: Sequence[tuple[float, float]]) -> np.ndarray:
        """Columns predicted by the model that has not seen them, shape (n_alphas, p, q)."""
        found = self.transposed().rows_out(folds, [(b, a) for a, b in alphas])
        return np.swapaxes(found, 1, 2)

    def both_out(self, row_folds: Folds, column_folds: Folds, alphas, on_fold: OnFold = None) -> np.ndarray:
        """Pairs of a new row and a new column, shape (n_alphas, p, q)."""
        out = _room(len(alphas), self.Y.shape)
        first = sorted({alpha[0] for alpha in alphas})
        for row_alpha, F in zip(first, _one_side_out(self.rows, self.Y, row_folds, first), strict=True):
            mine = [number for number, alpha in enumerate(alphas) if alpha[0] == row_alpha]
            second = [alphas[number][1] for number in mine]
            out[mine] = np.swapaxes(_one_side_out(self.columns, F.T, column_folds, second), 1, 2)
        return out

    def transposed(self) -> TwoStepRelation:
        """Columns as rows; the decompositions are shared."""
        return TwoStepRelation(self.columns, self.rows, np.ascontiguousarray(self.Y.T))


def _strike_out_unseen(modes: np.ndarray, rows: Side, columns: Side) -> None:
    """Zero the modes whose kernel vanishes on either side."""
    modes[rows.values == 0] = 0.0
    modes[:, columns.values == 0] = 0.0


def _one_side_out(side: Side, Y: np.ndarray, folds: Folds, ridges: Sequence[float]) -> np.ndarray:
    known = ~np.isnan(Y).any(axis=0)
    out = np.full((len(ridges), *Y.shape), np.nan)
    one = np.ones(1)
    out[:, :, known] = leave_out(side, Y[:, known], one, [ridge * one for ridge in ridges], folds)
    return out


def _predict(side: Side, Y: np.ndarray, ridge: float) -> np.ndarray:
    """K (K + ridge)⁻¹ Y."""
    return side.images() @ ((side.vectors.T @ Y) / (side.values + ridge)[:, None])


def _smooth(side: Side, Y: np.ndarray, ridge: float) -> np.ndarray:
    """Fitted values: the prediction, with the mean of Y for its level where the objects are compared."""
    shares = (side.values / (side.values + ridge))[:, None]
    fitted = side.vectors @ (shares * (side.vectors.T @ Y))
    return fitted + Y.mean(axis=0) if side.compared else fitted


def _diagonals(side: Side, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Of the map from labels to fitted values, and of the map from labels to predictions."""
    V = side.vectors
    smooth = (V * V) @ (side.values / (side.values + ridge))
    if not side.compared:
        return smooth, smooth
    return smooth + 1 / side.n, (side.images() * V) @ (1 / (side.values + ridge))


def _room(n_alphas: int, shape: tuple[int, ...]) -> np.ndarray:
    require_memory(
        8 * n_alphas * shape[0] * shape[1], f"held-out predictions of {shape[0]} × {shape[1]} × {n_alphas}"
    )
    return np.empty((n_alphas, *shape))


def cauchy_factors(
    values: np.ndarray, scale: np.ndarray, ridge: np.ndarray, *, most: int | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors P and R with 1 / (scale_l values_k + ridge_l) = (P Rᵀ)_kl to 13 digits in every entry.

    From 1 / x = ∫ exp(-x eᶻ) eᶻ dz ≈ h Σ_r exp(z_r - x e^{z_r}) with x = σ_k + t_l / s_l, the trapezoidal rule, whose
    relative error falls as exp(-π² / h) for every x between the ends of the sum, and every term is positive: nothing
    cancels. The number of terms grows only with the logarithm of the range of x: a few hundred where the matrix itself
    has thousands of rows and columns.

    Parameters
    ----------
    values : ndarray of shape (k,)
        Not negative.
    scale, ridge : ndarray of shape (l,)
        Not negative, the ridge positive.
    most : int, optional
        Return None where more terms than this would be needed.

    Returns
    -------
    (ndarray of shape (k, r), ndarray of shape (l, r)) or None

    Examples
    --------
    >>> import numpy as np
    >>> P, R = cauchy_factors(np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([0.5, 0.5]))
    >>> np.round(P @ R.T, 6)
    array([[2.      , 2.      ],
           [0.666667, 0.4     ]])
    """
    largest = float(values.max(initial=0.0))
    # Problems in which the kernel is lost in the ridge: one separate term.
    flat = scale * largest <= 1e-17 * ridge
    ratio = np.divide(ridge, scale, out=np.full_like(ridge, np.nan), where=~flat)
    if flat.all():
        return np.ones((values.shape[0], 1)), (1 / ridge)[:, None]
    lowest = float(np.nanmin(ratio) + values.min())
    highest = float(np.nanmax(ratio)) + largest
    z = np.arange(-_DIGITS - np.log(highest), np.log(_NOTHING / lowest) + _STEP, _STEP)
    if most is not None and z.shape[0] + 1 > most:
        return None
    t = np.exp(z)
    P = np.exp(-np.multiply.outer(values, t))
    R = np.zeros((ridge.shape[0], z.shape[0]))
    R[~flat] = np.exp(z - np.multiply.outer(ratio[~flat], t)) * (_STEP / scale[~flat])[:, None]
    if flat.any():
        P = np.hstack([P, np.ones((values.shape[0], 1))])
        R = np.hstack([R, np.where(flat, 1 / ridge, 0.0)[:, None]])
    return P, R
