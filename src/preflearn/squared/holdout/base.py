r"""What the hold-out routines share: their interface, and what leaves with a fold.

A `HoldOut` gives what the model would predict for rows that it had not seen, without refitting. `DualHoldOut` serves
the full kernel where L = S S has a closed form, `FeatureHoldOut` everything that has features: the linear kernel, the
reduced set (held-out basis vectors leave the model too), and factors of the kernel for comparisons without a closed
half. Both take any sets of rows, overlapping ones included, all alphas from one factorisation, and all outputs, and
agree with training on the remaining rows.

Without a fold, L' = scale (L - N diag(σ) Nᵀ) and b' = scale (b - d). For an m × n array Z of features or kernel values,
the routines need Y = Zᵀ N, σ and Zᵀ d (`RemovedRows`), and the basis vectors that leave (`RemovedBasis`).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import qr, svd

from ...comparisons import Comparisons, centred, encode_queries
from ...numerics.linalg import (
    LEAST_CONDITION,
    KernelFactor,
    cholesky_in_place,
    cholesky_solve,
    eigh_in_place,
    mirror_lower,
    reciprocal_condition,
    subtract_gram,
)
from ..problem import feature_moments

# A fold whose small system has a smaller reciprocal condition number is refitted instead.
STABLE = 1e-8
# From a reciprocal condition of K_RR of this many times eps on, what leaves with a basis vector has six correct digits.
LOST_IN_ROUNDING = 500.0
# A component of a basis vector counts as clearly present, or clearly absent, by this factor above or below the rounding
# of K_RR: the singular values that decide here and the pivots that decide in a refit differ by less.
_CLEARLY = 30.0
# Receives the number of folds done.
OnFold = Callable[[int], None] | None


class HoldOut(ABC):
    """Predictions for held-out rows by a model trained on the others.

    Attributes
    ----------
    comparisons : Comparisons
    intercept : bool
        Whether an unregularised intercept is added (then L is the centring of all rows).
    """

    comparisons: Comparisons
    intercept: bool
    # Whether predictions are exact up to a tolerance only, and nothing is kept from one to the next.
    iterates = False

    def warn_unless_converged(self) -> None:  # noqa: B027
        """Warn where iterations ran out before the tolerance was reached."""

    @abstractmethod
    def predict(
        self, folds: Sequence[np.ndarray], alphas: Sequence[float], *, on_fold: OnFold = None
    ) -> list[np.ndarray]:
        """Held-out predictions.

        Parameters
        ----------
        folds : sequence of int arrays
            Each a set of rows H to leave out together; they may overlap.
        alphas : sequence of float
        on_fold : callable, optional
            Receives the number of folds done.

        Returns
        -------
        list of ndarray of shape (len(alphas), len(H), v)
            One array per fold, rows in the order of the fold.
        """

    def with_targets(self, comparisons: Comparisons) -> HoldOut | None:
        """The same for other targets of the same L, reusing the factorisation; None where that is not possible."""
        return None

    @property
    @abstractmethod
    def largest_eigenvalue(self) -> float:
        """Of the matrix that alpha is added to: it says which alphas matter."""

    @property
    def size(self) -> float:
        """The largest eigenvalue, or an upper bound of it such as the trace: it says how far alpha shrinks f."""
        return self.largest_eigenvalue


# Matrices of up to this many entries are worked on by one thread each.
_SMALL_MATRIX = 1 << 20


def each_fold(
    predict: Callable[[int], np.ndarray],
    sizes: Sequence[int],
    width: int,
    on_fold: OnFold,
) -> list[np.ndarray]:
    """The predictions of every fold; small folds are shared out among threads.

    Parameters
    ----------
    predict : callable
        Receives the number of a fold; must only read what it shares with other folds.
    sizes : sequence of int
        Rows of each fold.
    width : int
        Columns of the arrays that are read for a fold.
    """
    from ...numerics.threads import with_small_matrices

    done = itertools.count(1)

    def one(number: int) -> np.ndarray:
        found = predict(number)
        if on_fold is not None:
            on_fold(next(done))
        return found

    if len(sizes) > 1 and max(sizes) * width <= _SMALL_MATRIX:
        return with_small_matrices(one, len(sizes))
    return [one(number) for number in range(len(sizes))]


def intercept_of_rest(n_rows: float, y_rest: Any, level: Any, f_left: Any, n_left: float) -> Any:
    """Mean of y less mean of f over the rows that stay; NumPy or device arrays.

    Parameters
    ----------
    n_rows : float
        m, or the weight of all rows; sums and means are then weighted too.
    y_rest : array
        Sums of y over the rows that stay.
    level : array
        Means of f over all rows.
    f_left : array
        Sums of f over the ``n_left`` rows that leave.
    """
    return (y_rest - n_rows * level + f_left) / (n_rows - n_left)


def rows_outside(n_rows: int, rows: np.ndarray) -> np.ndarray:
    """The other rows, ascending."""
    stays = np.ones(n_rows, dtype=bool)
    stays[rows] = False
    return np.flatnonzero(stays)


class RemovedRows:
    """The change of ZᵀLZ and Zᵀb when rows leave.

    Parameters
    ----------
    comparisons : Comparisons
    Z : ndarray of shape (m, n)
    T : ndarray of shape (m, n) or None
        S Z where it is available; rows that leave with all that they compare are then read from it. Without it S is
        applied to those rows.

    Attributes
    ----------
    half_rows : ndarray of shape (m, n) or None
        T.
    mean : ndarray of shape (n,)
        The mean row of Z.
    """

    def __init__(self, comparisons: Comparisons, Z: np.ndarray, T: np.ndarray | None):
        self.comparisons = comparisons
        w = comparisons.row_weights
        self.mean = Z.mean(axis=0) if w is None else (w @ Z) / w.sum()
        self._Z, self.half_rows = Z, T

    def with_targets(self, comparisons: Comparisons) -> RemovedRows:
        """The same for other targets of the same L."""
        other = copy(self)
        other.__dict__.pop("_half_target", None)
        other.comparisons = comparisons
        return other

    @cached_property
    def _half_target(self) -> np.ndarray:
        return self.comparisons.half_target

    def is_whole(self, fold: np.ndarray) -> bool:
        """Whether the rows leave with everything that they compare, in a form with a closed half."""
        return are_whole(self.comparisons, [fold])

    def removal(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Y = Zᵀ N, σ, Zᵀ d and the scale."""
        if self.is_whole(fold):
            Y = self._half_rows(fold).T
            return Y, np.ones(fold.shape[0]), Y @ self._half_target[fold], 1.0
        removal = self.comparisons.drop(fold)
        Z = self.centred_rows(removal.rows) if removal.centred else self._rows_within_queries(removal.rows)
        return Z.T @ removal.columns, removal.signs, Z.T @ removal.change, removal.scale

    def _rows_within_queries(self, rows: np.ndarray) -> np.ndarray:
        """Rows of Z minus what those of a query have in common.

        Neither N nor d depends on that, but their rounding does, and a small λ amplifies the rounding of a column that
        is constant inside queries.
        """
        queries = self.comparisons.queries
        if queries is None:
            return self._Z[rows]
        return centred(self._Z[rows], encode_queries(queries.codes[rows], rows.shape[0]))[0]

    def centred_rows(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a global ranking minus the mean row: from S Z, where available, which loses no precision to it."""
        if self.half_rows is None:
            return self._Z[rows] - self.mean
        return self.half_rows[rows] / self.comparisons.block_scale

    def _half_rows(self, fold: np.ndarray) -> np.ndarray:
        """(S Z) on rows that leave with all that they compare."""
        if self.half_rows is not None:
            return self.half_rows[fold]
        return self.comparisons.take(fold).half(self._Z[fold])

    def intercept(self, fold: np.ndarray, f: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Mean of y less mean of f over the rows that stay; ``level`` is the mean of f over all rows."""
        y, w = self.comparisons.scores, self.comparisons.row_weights
        if w is not None:
            left = w[fold]
            return intercept_of_rest(w.sum(), w @ y - left @ y[fold], level, left @ f, left.sum())
        return intercept_of_rest(
            y.shape[0], y.sum(axis=0) - y[fold].sum(axis=0), level, f.sum(axis=0), fold.shape[0]
        )


def are_whole(comparisons: Comparisons, folds: Sequence[np.ndarray]) -> bool:
    """Whether the rows of every fold leave with everything that they compare, in a form with a closed half."""
    if not comparisons.has_half:
        return False
    queries = comparisons.queries
    if queries is None:
        return True  # plain regression
    if queries.n_groups == 1:
        return False
    sizes = np.array([fold.shape[0] for fold in folds])
    touched = np.repeat(np.arange(len(folds)), sizes) * queries.n_groups
    touched += queries.codes[np.concatenate(folds)]
    # The rows of a query mostly lie together, and no sort is needed.
    ends = np.flatnonzero(np.append(touched[1:] != touched[:-1], True))
    if (np.diff(ends, prepend=-1) == queries.counts[touched[ends] % queries.n_groups]).all():
        return True
    owner, query = np.divmod(np.unique(touched), queries.n_groups)
    rows = np.bincount(owner, weights=queries.counts[query], minlength=len(folds))
    return bool((rows == sizes).all())


def n_columns_at_most(comparisons: Comparisons, fold: np.ndarray) -> int:
    """An upper bound of the number of columns of N: one per row for whole queries and for a global ranking."""
    queries = comparisons.queries
    if queries is None or comparisons.drops_row_by_row:
        return fold.shape[0]
    # The remaining rows of a query that loses some of its rows change with it.
    return int(queries.counts[np.unique(queries.codes[fold])].sum())


def cost_of_removal(comparisons: Comparisons, fold: np.ndarray) -> tuple[int, float]:
    """The number of columns of N, at most, and the multiplications that it takes to find them."""
    queries = comparisons.queries
    if queries is None or comparisons.drops_row_by_row or are_whole(comparisons, [fold]):
        return fold.shape[0], 0.0
    n = queries.counts[np.unique(queries.codes[fold])].astype(float)
    return int(n.sum()), float((200.0 * n**3 + 1e7).sum())  # their eigenvectors, twice, as measured


def leave_with_their_queries(comparisons: Comparisons, fold: np.ndarray) -> bool:
    """Whether the rows are whole queries and others are left: then L of the rest is a block of L."""
    queries = comparisons.queries
    if queries is None or queries.n_groups == 1:
        return False
    return int(queries.counts[np.unique(queries.codes[fold])].sum()) == fold.shape[0]


class RemovedBasis:
    """Which basis vectors leave the model with a fold: those all of whose copies are in it.

    Parameters
    ----------
    pivot_of : ndarray of shape (r,)
        For each basis vector the independent one that it is a copy of (`KernelFactor.pivot_of`); -1 for one that lies
        in the span of others.
    basis_indices : ndarray of shape (r,)
        The rows that are basis vectors, copies included.
    n_rows : int
        m.

    Attributes
    ----------
    dependent : ndarray of int
        The places in ``basis_indices`` of those in the span of others.
    """

    def __init__(self, pivot_of: np.ndarray, basis_indices: np.ndarray, n_rows: int):
        self._pivot_of_row = np.full(n_rows, -1)
        self._pivot_of_row[basis_indices] = pivot_of
        self._copies = np.bincount(pivot_of[pivot_of >= 0])
        self.dependent = np.flatnonzero(pivot_of < 0)
        self._dependent_rows = basis_indices[self.dependent]

    @classmethod
    def of(cls, factor: KernelFactor, basis_indices: np.ndarray, n_rows: int) -> RemovedBasis:
        """For the basis vectors of a factor."""
        pivot_of = factor.pivot_of
        if pivot_of is None:
            pivot_of = np.full(basis_indices.shape[0], -1)
            pivot_of[factor.pivots] = np.arange(factor.rank)
        return cls(pivot_of, basis_indices, n_rows)

    def dependent_that_stay(self, fold: np.ndarray) -> np.ndarray:
        """Numbers in `dependent`."""
        return np.flatnonzero(~np.isin(self._dependent_rows, fold))

    def numbers(self, fold: np.ndarray) -> np.ndarray:
        """The pivots that leave, ascending."""
        return self._leaving(self._pivot_of_row[fold])[0]

    def numbers_of_folds(self, folds: np.ndarray) -> np.ndarray:
        """The pivots that leave with each of many folds of h rows, -1 behind them; shapes (b, h) to (b, h)."""
        b, h = folds.shape
        rank = self._copies.shape[0]
        pivots = self._pivot_of_row[folds]
        keys = np.where(pivots >= 0, pivots + rank * np.arange(b)[:, None], -1)
        left, owner = self._leaving(keys.ravel())
        place = np.arange(left.shape[0]) - np.searchsorted(owner, owner)
        out = np.full((b, h), -1)
        out[owner, place] = left
        return out

    def _leaving(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of keys pivot + rank · fold the pivots that occur as often as they have copies, and their folds."""
        found, inside = np.unique(keys[keys >= 0], return_counts=True)
        fold, pivot = np.divmod(found, self._copies.shape[0])
        gone = inside == self._copies[pivot]
        return pivot[gone], fold[gone]


def refuse_without_basis(n_left: int) -> None:
    """Refuse a fold that leaves no basis vector in the model."""
    if n_left == 0:
        raise ValueError("A fold holds out every basis vector: use more basis vectors or smaller folds.")


def orthonormal(E: np.ndarray, least: float) -> np.ndarray | None:
    """Orthonormal columns that span those of E, which have unit length; None where two of them are nearly parallel.

    ``least`` is the smallest singular value of E that leaves the span precise enough.
    """
    if E.shape[1] < 2:
        return E
    Q, R = qr(E, mode="economic")
    return Q if svd(R, compute_uv=False)[-1] >= least else None


def directions_outside(Q: np.ndarray, rows: np.ndarray, eps: float) -> np.ndarray | None:
    """Orthonormal columns that span the directions among those of Q along which no row has a component.

    None where a component is neither far above nor far below what counts as zero in a factorisation of K_RR that was
    made with the precision ``eps``.
    """
    triangle = qr(rows @ Q, mode="r")[0]
    _, found, directions = svd(triangle[: min(triangle.shape)], full_matrices=True)
    size = np.zeros(directions.shape[0])
    size[: found.shape[0]] = found
    least = np.sqrt(Q.shape[0] * eps) * np.linalg.norm(rows, axis=1).max()
    none, some = size < least / _CLEARLY, size > least * _CLEARLY
    return Q @ directions[none].T if (none | some).all() else None


def span_of_rows(F: np.ndarray, eps: float | None = None) -> np.ndarray:
    """Q with orthonormal columns that span the weights w = Fᵀ β of the basis vectors with these rows of the factor.

    Directions below the rounding of K_RR = F Fᵀ, made with the precision ``eps`` (by default that of F), count as zero,
    as in the factorisation of a kernel matrix: the pivots are those of its Cholesky factor.
    """
    eps = float(np.finfo(F.dtype).eps) if eps is None else eps
    Q, R, _ = qr(F.T, mode="economic", pivoting=True)
    size = np.abs(np.diagonal(R))
    if not size.max(initial=0.0) > 0:
        return Q[:, :0]
    return Q[:, size > np.sqrt(F.shape[0] * eps) * size[0]]


# ----------------------------------------------------------------
# Hold-out of folds with more comparisons than features: their moments are subtracted from those of all rows.
#
# With A = Φᵀ L Φ and c = Φᵀ b, and the part Y diag(σ) Yᵀ of A and g of c that leaves with a fold,
#
#     (A - Y diag(σ) Yᵀ + λ I) w' = c - g.
#
# One eigendecomposition of the n × n matrix serves every λ that its rounding allows. Below, where columns of very
# different scales make the matrix ill conditioned, each row and column is divided by the root of its diagonal entry,
# which removes the scales from the condition, and the system is solved for each λ. What remains, such as a fold that
# holds nearly all of the trace, has to be trained on the remaining rows.


@dataclass(frozen=True)
class Moments:
    """Features with their moments, in the coordinates in which the weights are wanted.

    Attributes
    ----------
    features : ndarray of shape (m, n)
        Φ.
    A : ndarray of shape (n, n)
        Φᵀ L Φ, both triangles filled.
    c : ndarray of shape (n, v)
        Φᵀ b.
    removed_rows : RemovedRows
        Of Φ.
    rotation : ndarray of shape (n, n) or None
        U where the rows of Φ are still to be rotated into those of Z = Φ U; None for Z itself.
    size : float
        The largest eigenvalue of A, or an upper bound of it.
    """

    features: np.ndarray
    A: np.ndarray
    c: np.ndarray
    removed_rows: RemovedRows
    rotation: np.ndarray | None
    size: float

    @property
    def comparisons(self) -> Comparisons:
        return self.removed_rows.comparisons

    def without(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """A and c of the rows outside a fold, and the scale that λ is divided by. O(k n²)."""
        if self.comparisons.is_one_block:
            return self._without_ranked(fold)
        if leave_with_their_queries(self.comparisons, fold) and not self.comparisons.has_half:
            # No columns N: those of a whole query would be the eigenvectors of its Laplacian.
            lost, g = self._of_rows(fold)
            return self.A - lost, self.c - g, 1.0
        if self.comparisons.drops_densely:
            return self._without_parts(fold)
        Y, signs, change, scale = self.removed_rows.removal(fold)
        lost = subtract_gram(np.array(self.A, order="F"), Y.astype(np.float64, copy=False), signs)
        return mirror_lower(lost), self.c - change, scale

    def _without_parts(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The same from the moments of what remains of the queries that lose rows, and of those that lose none."""
        queries, every = self.comparisons.queries, np.arange(self.comparisons.n_rows)
        assert queries is not None
        touched = np.isin(queries.codes, queries.codes[fold])
        A, c = np.zeros_like(self.A), np.zeros_like(self.c)
        if not touched.all():
            lost, g = self._of_rows(np.flatnonzero(touched))
            A, c = self.A - lost, self.c - g
        rest = np.setdiff1d(every[touched], fold)
        if rest.size:
            kept, g = self._of_rows(rest)
            A, c = A + kept, c + g
        return A, c, 1.0

    def _of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A and c of some rows, as if there were no others."""
        features = np.ascontiguousarray(self.features[rows], dtype=np.float64)
        return feature_moments(features, self.comparisons.take(rows))

    def _without_ranked(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The same for a global ranking, where A = κ² Σ (φ - μ)(φ - μ)ᵀ, and likewise c.

        Without the h rows of a fold the mean moves by Σ_H (φ - μ) / (m - h).
        """
        comparisons = self.comparisons
        n_left = comparisons.n_rows - fold.shape[0]
        rows = self.removed_rows.centred_rows(fold).astype(np.float64, copy=False)
        targets = comparisons.scores[fold] - comparisons.scores.mean(axis=0)
        moved = rows.sum(axis=0) / n_left
        factor = comparisons.block_scale**2
        lost = rows.T @ rows + n_left * np.outer(moved, moved)
        g = rows.T @ targets + np.outer(moved, targets.sum(axis=0))
        return self.A - factor * lost, self.c - factor * g, comparisons.drop_half(fold).scale


def weights_without(
    moments: Moments,
    fold: np.ndarray,
    alphas: Sequence[float],
    *,
    span: np.ndarray | None = None,
    outside: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The weights of a model trained without a fold, for each alpha.

    Parameters
    ----------
    span : ndarray of shape (n, p), optional
        Orthonormal columns: the weights are a combination of these.
    outside : ndarray of shape (n, h), optional
        Orthonormal columns: the weights are orthogonal to these. In place of ``span``.

    Returns
    -------
    weights : ndarray of shape (len(alphas), n, v)
    settled : ndarray of bool, shape (len(alphas),)
        False where rounding leaves too little of the answer: these weights are not to be used.
    """
    A, c, scale = moments.without(fold)
    before = np.diagonal(moments.A)
    if span is not None:
        A, c, before = span.T @ A @ span, span.T @ c, np.einsum("ij,ij->j", span, moments.A @ span)
    elif outside is not None and outside.shape[1]:
        A, c = _projected(A, c, outside)
    ridges = np.asarray(alphas) / scale
    values, vectors = eigh_in_place(np.array(A, order="F"))
    # Rounding of the sums before anything was subtracted, compared with the least that is left.
    settled = ridges + max(values[0], 0.0) >= LEAST_CONDITION * moments.size
    projected = vectors.T @ c
    shrunk = np.zeros((ridges.shape[0], *projected.shape))
    shrunk[settled] = projected / (np.maximum(values, 0.0) + ridges[settled, None])[:, :, None]
    weights = vectors @ shrunk
    if outside is None:
        for k in np.flatnonzero(~settled):
            found = _solve_scaled(A, c, float(ridges[k]), before)
            if found is not None:
                weights[k], settled[k] = found, True
    return (weights if span is None else span @ weights), settled


def _projected(A: np.ndarray, c: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P A P and P c with P = I - E Eᵀ: nothing is left along E, and so no weight at any λ. O(n² h)."""
    AE = A @ E
    A = A - E @ AE.T
    A -= (AE - E @ (E.T @ AE)) @ E.T
    return A, c - E @ (E.T @ c)


def _solve_scaled(A: np.ndarray, c: np.ndarray, alpha: float, before: np.ndarray) -> np.ndarray | None:
    """(A + λ I)⁻¹ c, each row and column divided by the root of its diagonal entry; None where rounding hides it."""
    diagonal = np.diagonal(A) + alpha
    if not (diagonal > 0).all():
        return None
    root = 1.0 / np.sqrt(diagonal)
    S = np.asfortranarray(A * root * root[:, None])
    np.fill_diagonal(S, 1.0)
    norm = float(np.abs(S).sum(axis=0).max())
    try:
        factor = cholesky_in_place(S)
    except np.linalg.LinAlgError:
        return None
    kept = float((diagonal / np.maximum(before, diagonal)).min())
    if kept * reciprocal_condition(factor, norm) < LEAST_CONDITION:
        return None
    return root[:, None] * cholesky_solve(factor, root[:, None] * c)
