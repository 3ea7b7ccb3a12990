r"""What the model would predict for rows that it had not seen, without refitting.

`DualHoldOut` serves the full kernel where L = S S has a closed form, `FeatureHoldOut` everything that has features: the
linear kernel, the reduced set (held-out basis vectors leave the model too), and factors of the kernel for comparisons
without a closed half. Both take any sets of rows, also overlapping ones, every alpha from one factorisation, and every
output, and are equal to training on the remaining rows.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...comparisons import Comparisons

# A fold whose small system has a smaller reciprocal condition number is refitted instead.
STABLE = 1e-8
# Where R = (G + λ I)⁻¹ has a smaller reciprocal condition number, it has fewer than seven correct digits.
LEAST_CONDITION = 2.0**-30
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
        """The same for other targets of the same L, with what was factorised; None where that does not serve them."""
        return None

    @property
    @abstractmethod
    def largest_eigenvalue(self) -> float:
        """Of the matrix that alpha is added to: it says which alphas matter."""

    @property
    def size(self) -> float:
        """The largest eigenvalue, or an upper bound of it such as the trace: it says how far alpha shrinks f."""
        return self.largest_eigenvalue


# Multiplications that take as long as what Python does for a fold.
_WORK_BESIDE_PYTHON = 1 << 20
# Matrices of up to this many entries are worked on by one thread each.
_SMALL_MATRIX = 1 << 20


def each_fold(
    predict: Callable[[int], np.ndarray],
    sizes: Sequence[int],
    width: int,
    on_fold: OnFold,
    n_alphas: int = 1,
) -> list[np.ndarray]:
    """The predictions of every fold; small folds are shared out among threads.

    Parameters
    ----------
    predict : callable
        Receives the number of a fold; only reads what it shares with other folds.
    sizes : sequence of int
        Rows of each fold.
    width : int
        Columns of the arrays that are read for a fold.
    n_alphas : int
        For which every fold is solved.
    """
    from ..loops.threads import with_small_matrices

    done = itertools.count(1)

    def one(number: int) -> np.ndarray:
        found = predict(number)
        if on_fold is not None:
            on_fold(next(done))
        return found

    if len(sizes) > 1 and max(sizes) * width <= _SMALL_MATRIX:
        # The interpreter itself goes one fold at a time: more threads than the matrices keep busy only get in its way.
        work = n_alphas * float(np.mean(sizes)) ** 2 * (2 * width + float(np.mean(sizes)))
        return with_small_matrices(one, len(sizes), 1 + int(work / _WORK_BESIDE_PYTHON))
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


def _increases(rows: np.ndarray) -> bool:
    return bool((rows[1:] > rows[:-1]).all())


def check_folds(folds: Sequence[np.ndarray], n_rows: int) -> list[np.ndarray]:
    """Folds as int arrays; refuse empty ones, repeated or unknown rows, and folds that leave nothing to train on."""
    checked = [_as_rows(fold, number, n_rows) for number, fold in enumerate(folds)]
    if checked and not _are_plainly_fine(checked, n_rows):
        for number, rows in enumerate(checked):
            _check_rows(rows, number, n_rows)
    return checked


def _as_rows(fold: Any, number: int, n_rows: int) -> np.ndarray:
    rows = np.asarray(fold)
    if rows.dtype == bool and rows.shape == (n_rows,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(
            f"Fold {number} must be a non-empty one-dimensional array of row numbers: found shape {rows.shape}, "
            f"type {rows.dtype}."
        )
    if rows.dtype.kind == "u" and rows.max() >= n_rows:  # before it is taken for a negative number
        _refuse_row(rows.max(), number, n_rows)
    return rows.astype(np.int64, copy=False)


def _refuse_row(row: Any, number: int, n_rows: int) -> None:
    raise ValueError(f"Fold {number} names row {row}: expected rows 0 to {n_rows - 1}.")


def _are_plainly_fine(folds: Sequence[np.ndarray], n_rows: int) -> bool:
    """Whether known rows in ascending order leave some others: thousands of folds are looked at together."""
    sizes = np.array([rows.shape[0] for rows in folds])
    rows = np.concatenate(folds)
    ascending = rows[1:] > rows[:-1]
    ascending[np.cumsum(sizes)[:-1] - 1] = True  # from one fold to the next
    return bool(ascending.all() and rows.min() >= 0 and rows.max() < n_rows and sizes.max() < n_rows)


def _check_rows(rows: np.ndarray, number: int, n_rows: int) -> None:
    if rows.min() < 0 or rows.max() >= n_rows:
        _refuse_row(rows.min() if rows.min() < 0 else rows.max(), number, n_rows)
    if not _increases(rows) and np.unique(rows).shape[0] != rows.shape[0]:
        raise ValueError(f"Fold {number} names a row twice.")
    if rows.shape[0] == n_rows:
        raise ValueError(
            f"Fold {number} holds out every row (n_samples = {n_rows}): nothing is left to train on."
        )
