"""How relations read ``cv``, ``scoring`` and ``alphas``: the library's one grammar, for two kinds of objects.

Everything that other parts of the library provide for folds, measures and grids is imported here and nowhere else
in this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from ..model_selection._choice import auto_grid, choose, read_grid, read_scoring, without_rounding
from ..model_selection._folds import Folds, read_folds
from ..model_selection._learner import EstimatingLearner
from ..model_selection._nested import NestedChoice, RowJudge

__all__ = [
    "EstimatingLearner",
    "Folds",
    "NestedChoice",
    "RelationFolds",
    "RowJudge",
    "auto_grid",
    "choose",
    "read_alphas",
    "read_hold_out",
    "read_scoring",
    "without_rounding",
]

SETTINGS = ("entries", "rows", "columns", "both")


@dataclass(frozen=True)
class RelationFolds:
    """What leaves the training together.

    Attributes
    ----------
    setting : {"entries", "rows", "columns", "both"}
    rows, columns : Folds or None
        Of the objects, where whole objects leave.
    entries : list of int arrays or None
        Positions in the row-major p × q matrix; None where each entry leaves separately.
    """

    setting: str
    rows: Folds | None = None
    columns: Folds | None = None
    entries: list[np.ndarray] | None = None

    @property
    def n_folds(self) -> int:
        if self.setting == "entries":
            return 1 if self.entries is None else len(self.entries)
        return len((self.columns if self.setting == "columns" else self.rows).tests)  # type: ignore[union-attr]

    def fold_of_entries(self, shape: tuple[int, int]) -> np.ndarray:
        """A number for each entry, equal where one model predicts two of them; shape (p, q)."""
        p, q = shape
        if self.setting == "entries":
            if self.entries is None:
                return np.arange(p * q).reshape(shape)
            number = np.full(p * q, -1)
            for k, fold in enumerate(self.entries):
                number[fold] = k
            return number.reshape(shape)
        row = _fold_of(self.rows, p)[:, None]
        column = _fold_of(self.columns, q)[None, :]
        return row * (1 + int(column.max())) + column + np.zeros(shape, dtype=np.int64)


def _fold_of(folds: Folds | None, n: int) -> np.ndarray:
    number = np.zeros(n, dtype=np.int64)
    for k, test in enumerate(folds.tests if folds is not None else []):
        number[test] = k
    return number


def read_hold_out(
    hold_out: str,
    cv: Any,
    known: np.ndarray,
    *,
    row_groups: Any = None,
    column_groups: Any = None,
) -> RelationFolds:
    """Read the setting and its folds.

    Parameters
    ----------
    hold_out : {"entries", "rows", "columns", "both"}
    cv : str, int, splitter, iterable of index arrays, or for "both" a pair of these
        Index arrays name rows, columns, or positions in the row-major matrix of entries.
    known : bool ndarray of shape (p, q)
        The known labels; only these are held out as entries.
    row_groups, column_groups : array-like, optional
        Labels of objects that leave together.
    """
    if hold_out not in SETTINGS:
        raise ValueError(f"hold_out must be one of {', '.join(map(repr, SETTINGS))}: found {hold_out!r}.")
    unused = [
        name
        for name, groups, settings in (
            ("row_groups", row_groups, ("rows", "both")),
            ("column_groups", column_groups, ("columns", "both")),
        )
        if groups is not None and hold_out not in settings
    ]
    if unused:
        raise ValueError(f"{unused[0]} would be ignored with hold_out={hold_out!r}: leave it out.")
    p, q = known.shape
    if hold_out == "entries":
        return RelationFolds(hold_out, entries=_read_entries(cv, known))
    row_cv, column_cv = cv if hold_out == "both" and isinstance(cv, tuple) and len(cv) == 2 else (cv, cv)
    if hold_out == "both" and not isinstance(cv, (str, Integral, tuple)) and not hasattr(cv, "split"):
        raise ValueError(
            "hold_out='both' needs folds of the rows and of the columns: pass cv=(rows, columns), each a number of "
            "folds, 'leave-one-out' or index arrays."
        )
    rows = _objects(row_cv, p, row_groups) if hold_out in ("rows", "both") else None
    columns = _objects(column_cv, q, column_groups) if hold_out in ("columns", "both") else None
    return RelationFolds(hold_out, rows=rows, columns=columns)


def _objects(cv: Any, n: int, groups: Any) -> Folds:
    if isinstance(cv, str) and cv == "leave-one-out" and groups is not None:
        cv = "leave-group-out"
    return read_folds(cv, np.empty((n, 0)), None, n, groups=groups)


def _read_entries(cv: Any, known: np.ndarray) -> list[np.ndarray] | None:
    positions = np.flatnonzero(known)
    if positions.shape[0] < 2:
        raise ValueError(
            f"Found {positions.shape[0]} known label: without it nothing is left to train on. hold_out='entries' needs "
            "at least two."
        )
    if isinstance(cv, str) and cv == "leave-one-out":
        return None
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        # Neighbouring entries share their row: folds are drawn at random, with a fixed seed.
        splitter = KFold(int(cv), shuffle=True, random_state=0)
        return [positions[test] for _, test in splitter.split(positions)]
    if hasattr(cv, "split"):
        return [positions[test] for _, test in cv.split(positions)]
    if isinstance(cv, str):
        raise ValueError(
            f"cv must be 'leave-one-out', an int, a splitter or index arrays for hold_out='entries': found {cv!r}."
        )
    folds = read_folds(
        [_positions(fold, known.shape) for fold in cv], np.empty((known.size, 0)), None, known.size
    ).tests
    for number, fold in enumerate(folds):
        unknown = fold[~known.flat[fold]]
        if unknown.size:
            i, j = divmod(int(unknown[0]), known.shape[1])
            raise ValueError(
                f"Fold {number} holds out entry ({i}, {j}), whose label is unknown: Y is NaN there."
            )
    return folds


def _positions(fold: Any, shape: tuple[int, int]) -> np.ndarray:
    """Positions in the row-major matrix, from positions, a mask of the matrix, or pairs (row, column)."""
    fold = np.asarray(fold)
    if fold.dtype == bool and fold.shape == shape:
        return np.flatnonzero(fold)
    if fold.ndim == 2 and fold.shape[1] == 2 and fold.dtype.kind in "iu":
        inside = (fold >= 0).all() and (fold < shape).all()
        if not inside:
            raise ValueError(f"A fold of entries names a pair outside {shape[0]} × {shape[1]}.")
        return fold[:, 0] * shape[1] + fold[:, 1]
    return fold


def read_alphas(alphas: Any, largest: float | Callable[[], float]) -> np.ndarray:
    """The grid: as given, or powers of two around the largest eigenvalue."""
    return read_grid(alphas, lambda: auto_grid(largest() if callable(largest) else largest))
