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
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import qr, svd

from ...comparisons import Comparisons, centred, encode_queries
from ...numerics.linalg import KernelFactor

# A fold whose small system has a smaller reciprocal condition number is refitted instead.
STABLE = 1e-8
# Where R = (G + λ I)⁻¹ has a smaller reciprocal condition number, it has fewer than seven correct digits.
LEAST_CONDITION = 2.0**-30
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
