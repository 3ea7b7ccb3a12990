"""Soft statements about the values of a function: pairs f(x_i) - f(x_j) >= d, and bounds on single values.

Each statement is one row of a sparse matrix Q with entries 1 and -1, so that all of them read Q f(X) >= d: a pair has
two entries, a lower bound one 1, an upper bound one -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...comparisons.inputs import read_pairs, read_per_pair
from ...losses.order_program import Statements


@dataclass(frozen=True, eq=False)
class Preferences:
    """Pairs of rows with margin and weight: f(x_i) - f(x_j) >= margin, each violation costing weight times its size.

    Parameters
    ----------
    pairs : array-like of int, shape (p, 2)
        Row ``pairs[q, 0]`` is preferred to row ``pairs[q, 1]``.
    margin : float or array-like of shape (p,), default=0
        By how much at least; negative margins allow that much in the opposite direction.
    weight : float or array-like of shape (p,), default=1
        Confidence, nonnegative.

    Examples
    --------
    Statements can be added, and closeness and intervals are two statements each:

    >>> preferences = Preferences([[0, 1]]) + Preferences.close([[2, 3]], 0.5)
    >>> preferences.pairs.tolist(), preferences.margin.tolist()
    ([[0, 1], [2, 3], [3, 2]], [0.0, -0.5, -0.5])
    """

    pairs: np.ndarray
    margin: Any = 0.0
    weight: Any = 1.0

    def __post_init__(self) -> None:
        pairs = _pairs(self.pairs)
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "margin", read_per_pair(self.margin, pairs.shape[0], "margin"))
        object.__setattr__(self, "weight", _weights(self.weight, pairs.shape[0]))

    @classmethod
    def between(cls, pairs: Any, lower: Any, upper: Any, weight: Any = 1.0) -> Preferences:
        """lower <= f(x_i) - f(x_j) <= upper for each pair; an infinite side is left out."""
        pairs = _pairs(pairs)
        n_pairs = pairs.shape[0]
        lower, upper = _sides("lower", lower, n_pairs), _sides("upper", upper, n_pairs)
        _check_interval(lower, upper, "pair")
        weight = _weights(weight, n_pairs)
        below, above = np.isfinite(lower), np.isfinite(upper)
        return cls(pairs[below], lower[below], weight[below]) + cls(
            pairs[above][:, ::-1], -upper[above], weight[above]
        )

    @classmethod
    def close(cls, pairs: Any, tolerance: Any = 0.0, weight: Any = 1.0) -> Preferences:
        """|f(x_i) - f(x_j)| <= tolerance for each pair; 0 states equality."""
        tolerance = np.asarray(tolerance, dtype=np.float64)
        return cls.between(pairs, -tolerance, tolerance, weight)

    def reversed(self) -> Preferences:
        """The opposite statements, with the same margins and weights: to check that the direction matters."""
        return Preferences(self.pairs[:, ::-1], self.margin, self.weight)

    def __add__(self, other: Preferences) -> Preferences:
        return Preferences(
            np.concatenate([self.pairs, other.pairs]),
            np.concatenate([self.margin, other.margin]),
            np.concatenate([self.weight, other.weight]),
        )

    def __len__(self) -> int:
        return self.pairs.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        """``pairs, margin, weight = preferences``."""
        return iter((self.pairs, self.margin, self.weight))

    def __repr__(self) -> str:
        rows = np.unique(self.pairs).shape[0]
        text = f"Preferences({len(self)} pairs over {rows} rows"
        for name, values in (("margin", self.margin), ("weight", self.weight)):
            if values.size and values.min() == values.max():
                text += f", {name} {values[0]:.6g}"
            elif values.size:
                text += f", {name} {values.min():.6g} to {values.max():.6g}"
        return text + ")"


def read_statements(pairs: Any, margin: Any, weight: Any, bounds: Any, n_rows: int) -> Statements:
    """Validate the arguments ``pairs, margin, weight, bounds`` of ``fit``.

    Parameters
    ----------
    pairs : array-like of int (p, 2), `Preferences` or None
    margin, weight : float, array-like of shape (p,), or None
        Not with a `Preferences`, which holds its own.
    bounds : None or tuple (rows, lower, upper) or (rows, lower, upper, weight)
        lower <= f(x) <= upper; None or an infinite value leaves a side open.
    n_rows : int

    Raises
    ------
    ValueError
        For a row out of range, a pair of a row with itself, a negative or infinite weight, NaN, wrong lengths, or an
        argument that would be ignored.
    """
    if isinstance(pairs, Preferences):
        if margin is not None or weight is not None:
            raise ValueError(
                "margin and weight would be ignored: the Preferences given as pairs holds its own. "
                "Pass preferences.pairs to set others."
            )
        preferences = pairs
    elif pairs is None:
        if margin is not None or weight is not None:
            raise ValueError("margin and weight belong to pairs, and no pairs were given.")
        preferences = Preferences(np.empty((0, 2), dtype=np.int64))
    else:
        preferences = Preferences(pairs, 0.0 if margin is None else margin, 1.0 if weight is None else weight)
    _pairs(preferences.pairs, n_rows)
    return _join(preferences, _read_bounds(bounds, n_rows), n_rows)


@dataclass(frozen=True)
class _Bounds:
    rows: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    weight: np.ndarray


def _read_bounds(bounds: Any, n_rows: int) -> _Bounds:
    if bounds is None:
        nothing = np.empty(0)
        return _Bounds(nothing.astype(np.int64), nothing, nothing, nothing)
    if not isinstance(bounds, (tuple, list)) or len(bounds) not in (3, 4):
        raise ValueError(
            "bounds must be a tuple (rows, lower, upper) or (rows, lower, upper, weight): "
            f"found {type(bounds).__name__}{f' of length {len(bounds)}' if hasattr(bounds, '__len__') else ''}."
        )
    rows = np.atleast_1d(np.asarray(bounds[0]))
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(
            f"The rows of bounds must be row numbers: found type {rows.dtype}, shape {rows.shape}."
        )
    if rows.size and (rows.min() < 0 or rows.max() >= n_rows):
        raise ValueError(
            f"bounds name row {rows.min() if rows.min() < 0 else rows.max()}: X has rows 0 to {n_rows - 1}."
        )
    n_bounds = rows.shape[0]
    lower = _sides("lower", _opened(bounds[1], -np.inf), n_bounds)
    upper = _sides("upper", _opened(bounds[2], np.inf), n_bounds)
    _check_interval(lower, upper, "bounded row")
    return _Bounds(
        rows.astype(np.int64), lower, upper, _weights(bounds[3] if len(bounds) == 4 else 1.0, n_bounds)
    )


def _join(preferences: Preferences, bounds: _Bounds, n_rows: int) -> Statements:
    below, above = np.flatnonzero(np.isfinite(bounds.lower)), np.flatnonzero(np.isfinite(bounds.upper))
    n_pairs, n_bounds = len(preferences), below.shape[0] + above.shape[0]
    signs = np.concatenate([np.tile([1.0, -1.0], n_pairs), np.ones(below.shape[0]), -np.ones(above.shape[0])])
    columns = np.concatenate([preferences.pairs.ravel(), bounds.rows[below], bounds.rows[above]])
    starts = np.concatenate([2 * np.arange(n_pairs + 1), 2 * n_pairs + np.arange(1, n_bounds + 1)])
    return Statements(
        incidence=sp.csr_array((signs, columns, starts), shape=(n_pairs + n_bounds, n_rows)),
        margin=np.concatenate([preferences.margin, bounds.lower[below], -bounds.upper[above]]),
        weight=np.concatenate([preferences.weight, bounds.weight[below], bounds.weight[above]]),
        n_pairs=n_pairs,
        bounded=np.concatenate([below, above]),
        n_bounds=bounds.rows.shape[0],
    )


def _pairs(pairs: Any, n_rows: int | None = None) -> np.ndarray:
    """Pairs of row numbers, shape (p, 2); p may be 0."""
    array = np.asarray(pairs)
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if n_rows is None:  # the data are not known yet
        n_rows = int(array.max()) + 1 if array.dtype.kind in "iu" else 0
    return read_pairs(array, n_rows)


def _weights(weight: Any, n_statements: int) -> np.ndarray:
    """Nonnegative weights; they may all be zero only where there are none."""
    weights = read_per_pair(weight, n_statements, "weight", positive=n_statements > 0)
    assert weights is not None
    return weights


def _sides(name: str, values: Any, n_statements: int) -> np.ndarray:
    """One end of an interval per statement, infinite where it is open."""
    array = np.asarray(values, dtype=np.float64)
    array = np.full(n_statements, array) if array.ndim == 0 else array
    if array.shape != (n_statements,):
        raise ValueError(
            f"{name} must be a number or hold one value per statement: found shape {array.shape} for {n_statements}."
        )
    if np.isnan(array).any():
        wrong = int(np.flatnonzero(np.isnan(array))[0])
        raise ValueError(f"{name} holds NaN (entry {wrong}): use None or infinity for an open side.")
    return array


def _opened(values: Any, end: float) -> Any:
    """The values with this end for None, alone or inside a list."""
    if values is None:
        return end
    if isinstance(values, (list, tuple)) or np.asarray(values).dtype.kind == "O":
        return [end if one is None else one for one in values]
    return values


def _check_interval(lower: np.ndarray, upper: np.ndarray, of: str) -> None:
    if (lower > upper).any():
        wrong = int(np.flatnonzero(lower > upper)[0])
        raise ValueError(
            f"The interval of {of} {wrong} is empty: lower {lower[wrong]:.6g} is above upper {upper[wrong]:.6g}."
        )
    if (lower == np.inf).any() or (upper == -np.inf).any():
        raise ValueError(
            "A lower bound of inf or an upper bound of -inf cannot be met; use -inf and inf for open sides."
        )
