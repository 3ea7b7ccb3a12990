r"""What leaves with a fold, seen through an m × n array Z of features or kernel values.

L' = scale (L - N diag(σ) Nᵀ) and b' = scale (b - d): what the hold-out routines need of it is Y = Zᵀ N, σ and Zᵀ d.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from ..comparisons import Comparisons
from ..numerics.linalg import KernelFactor
from .holdout import intercept_of_rest

# From a reciprocal condition of K_RR of this many roundings on, six digits are left of what leaves with a basis vector.
LOST_IN_ROUNDING = 500.0


class Leaving:
    """The change of ZᵀLZ and Zᵀb when rows leave.

    Parameters
    ----------
    comparisons : Comparisons
    Z : ndarray of shape (m, n)
    T : ndarray of shape (m, n) or None
        S Z where it is at hand; rows that leave with all that they compare are then read from it. Without it S is
        applied to those rows.
    """

    def __init__(self, comparisons: Comparisons, Z: np.ndarray, T: np.ndarray | None):
        self.comparisons = comparisons
        self.mean = Z.mean(axis=0)
        self._Z, self._T = Z, T
        self._queries = getattr(comparisons, "queries", None)

    def with_targets(self, comparisons: Comparisons) -> Leaving:
        """The same for other targets of the same L."""
        other = copy(self)
        other.comparisons = comparisons
        return other

    def is_whole(self, fold: np.ndarray) -> bool:
        """Whether the rows leave with everything that they compare, in a form with a closed half."""
        return are_whole(self.comparisons, [fold])

    def n_columns(self, fold: np.ndarray) -> int:
        """At most so many columns has N; a fold of whole queries, and a row of a global ranking, one per row."""
        if self._queries is None or getattr(self.comparisons, "is_one_block", False) or self.is_whole(fold):
            return fold.shape[0]
        return int(self._queries.counts[np.unique(self._queries.codes[fold])].sum())

    def removal(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Y = Zᵀ N, σ, Zᵀ d and the scale."""
        if self.is_whole(fold):
            Y = self._half_rows(fold).T
            return Y, np.ones(fold.shape[0]), Y @ self.comparisons.half_target[fold], 1.0
        removal = self.comparisons.drop(fold)
        Z = self._Z[removal.rows]
        if removal.centred:
            Z = self.centred_rows(removal.rows)
        return Z.T @ removal.columns, removal.signs, Z.T @ removal.change, removal.scale

    def centred_rows(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a global ranking less the mean row: from S Z, which has lost no digits to it, where it is at hand."""
        if self._T is None:
            return self._Z[rows] - self.mean
        return self._T[rows] / np.sqrt(self.comparisons._outer[0])  # type: ignore[attr-defined]

    def _half_rows(self, fold: np.ndarray) -> np.ndarray:
        """(S Z) on rows that leave with all that they compare."""
        if self._T is not None:
            return self._T[fold]
        return self.comparisons.take(fold).half(self._Z[fold])

    def intercept(self, fold: np.ndarray, f: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Mean of y less mean of f over the rows that stay; ``level`` is the mean of f over all rows."""
        y = self.comparisons.scores  # type: ignore[attr-defined]
        return intercept_of_rest(y, y[fold].sum(axis=0), level, f.sum(axis=0), fold.shape[0])


def are_whole(comparisons: Comparisons, folds: Sequence[np.ndarray]) -> bool:
    """Whether the rows of every fold leave with everything that they compare, in a form with a closed half."""
    if not comparisons.has_half:
        return False
    queries = getattr(comparisons, "queries", None)
    if queries is None:
        return True  # plain regression
    if queries.n_groups == 1:
        return False
    sizes = np.array([fold.shape[0] for fold in folds])
    touched = np.repeat(np.arange(len(folds)), sizes) * queries.n_groups
    touched += queries.codes[np.concatenate(folds)]
    # Mostly the rows of a query stand together, and no sort is needed.
    ends = np.flatnonzero(np.append(touched[1:] != touched[:-1], True))
    if (np.diff(ends, prepend=-1) == queries.counts[touched[ends] % queries.n_groups]).all():
        return True
    owner, query = np.divmod(np.unique(touched), queries.n_groups)
    rows = np.bincount(owner, weights=queries.counts[query], minlength=len(folds))
    return bool((rows == sizes).all())


class LeavingBasis:
    """Which basis vectors leave the model with a fold: those all of whose copies are in it.

    Parameters
    ----------
    factor : KernelFactor
        Of K_RR; its pivots are the vectors that span the model.
    basis_indices : ndarray of shape (r,)
        The rows that are basis vectors, copies included.
    n_rows : int
        m.
    """

    def __init__(self, factor: KernelFactor, basis_indices: np.ndarray, n_rows: int):
        if factor.pivot_of is None:
            raise ValueError(
                "Linearly dependent basis vectors: what leaves the model with one of them is not one direction."
            )
        self._pivot_of_row = np.full(n_rows, -1)
        self._pivot_of_row[basis_indices] = factor.pivot_of
        self._copies = np.bincount(factor.pivot_of, minlength=factor.rank)

    def numbers(self, fold: np.ndarray) -> np.ndarray:
        """The pivots that leave, ascending."""
        touched = self._pivot_of_row[fold]
        inside = np.bincount(touched[touched >= 0], minlength=self._copies.shape[0])
        return np.flatnonzero((inside == self._copies) & (inside > 0))

    def numbers_of_pairs(self, pairs: np.ndarray) -> np.ndarray:
        """For each row of a pair the pivot that leaves with the pair, or -1; one that both rows equal stands first."""
        pivots = self._pivot_of_row[pairs]
        copies = np.where(pivots >= 0, self._copies[pivots], 0)
        out = np.where(copies == 1, pivots, -1)
        both = (pivots[:, 0] == pivots[:, 1]) & (copies[:, 0] == 2)
        out[both, 0] = pivots[both, 0]
        return out
