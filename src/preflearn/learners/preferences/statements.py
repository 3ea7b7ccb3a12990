"""Soft statements about the values of a function: pairs f(x_i) - f(x_j) >= d, and bounds on single values.

Each statement is one row of a sparse matrix Q with entries 1 and -1, so that all of them read Q f(X) >= d: a pair has
two entries, a lower bound one 1, an upper bound one -1.

The builders make pairs from a rule, from the scores of a proxy, or from known targets; none enumerates all m² pairs of
rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from ...comparisons.censored import lived_longer
from ...comparisons.inputs import read_pairs, read_per_pair, read_times
from ...losses.order_program import Statements
from ...numerics.memory import require_memory

# Candidate pairs are kept within this relative distance of a tolerance, then checked in the caller's units.
_ROUNDING = 1e-9
# Bytes per candidate pair of the neighbour search: the pair, its copy and the differences.
_BYTES_PER_CANDIDATE = 64


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


# ----------------------------------------------------------------
# Builders of pairs.


def pairs_where(
    X: Any,
    *,
    similar: Mapping[Hashable, float],
    ordered_by: Any,
    by_more_than: float = 0.0,
    labelled: Any = None,
    n: int | None = None,
    weight: float | str = 1.0,
    random_state: Any = None,
) -> Preferences:
    """ "Everything else roughly equal, more of this is better."

    A pair of rows is stated when they are similar in the named columns and differ in `ordered_by`; the row with more
    of it is preferred.

    Parameters
    ----------
    X : array-like or data frame of shape (m, n)
        Columns are named by their labels in a data frame, else by position.
    similar : mapping of column, or tuple of columns, to tolerance
        A column must differ by at most its tolerance; for a tuple of columns the Euclidean distance counts. 0 means
        equal.
    ordered_by : column, or array-like of shape (m,)
        What determines the order. Negate it where less is better.
    by_more_than : float, default=0
        The difference in `ordered_by` must be larger than this.
    labelled : array-like of bool, shape (m,), optional
        Leave out pairs of two labelled rows: their targets are more informative than the rule.
    n : int, optional
        At most this many pairs, drawn at random without replacement; None takes all.
    weight : float or "gap", default=1
        Weight of each statement; ``"gap"`` in proportion to the difference in `ordered_by`, 1 on average.
    random_state : int, Generator, RandomState or None
        For the draw.

    Returns
    -------
    Preferences
        Sorted by row numbers, margin 0.

    Notes
    -----
    One k-d tree over the scaled columns: O(m log m) plus the number of rows that are similar, not m² comparisons.

    Examples
    --------
    >>> import numpy as np
    >>> houses = np.array([[10.0, 3], [10.5, 4], [90.0, 5]])  # location, bedrooms
    >>> pairs_where(houses, similar={0: 1.0}, ordered_by=1).pairs.tolist()
    [[1, 0]]
    """
    n_rows = len(X) if not hasattr(X, "shape") else X.shape[0]
    rule = [(_columns(X, names), _tolerance(names, value)) for names, value in similar.items()]
    if not rule:
        raise ValueError("similar is empty: name at least one column and how much it may differ.")
    order = _ordering(X, ordered_by, n_rows)
    candidates = _similar_pairs(rule)
    gap = order[candidates[:, 0]] - order[candidates[:, 1]]
    keep = np.abs(gap) > _nonnegative("by_more_than", by_more_than)
    if labelled is not None:
        mask = np.asarray(labelled)
        if mask.shape != (n_rows,) or mask.dtype != bool:
            raise ValueError(
                f"labelled must be one bool per row ({n_rows}): found {mask.dtype}, shape {mask.shape}."
            )
        keep &= ~mask[candidates].all(axis=1)
    pairs, gap = candidates[keep], gap[keep]
    pairs[gap < 0] = pairs[gap < 0][:, ::-1]
    by_rows = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, gap = pairs[by_rows], np.abs(gap[by_rows])
    if n is not None and _count("n", n) < pairs.shape[0]:
        drawn = np.sort(_generator(random_state).choice(pairs.shape[0], size=n, replace=False))
        pairs, gap = pairs[drawn], gap[drawn]
    return Preferences(pairs, 0.0, _weight_of(weight, gap))


def pairs_from_scores(
    scores: Any,
    threshold: float = 0.0,
    *,
    event: Any = None,
    n: int | None = None,
    rows: Any = None,
    margin: float = 0.0,
    weight: float | str = 1.0,
    random_state: Any = None,
) -> Preferences:
    """Pairs that a proxy orders with confidence: scores[i] - threshold > scores[j].

    Parameters
    ----------
    scores : array-like of shape (m,)
        For example the decision function of a classifier trained on other data.
    threshold : float, default=0
        How confident the proxy must be.
    event : array-like of bool, shape (m,), optional
        The scores are censored times, as in the fit of `RankRLS`: a row is preferred to those whose event was seen and
        that it is known to have outlived. Without threshold and weight="gap": by how much is not known.
    n : int, optional
        This many of the pairs (or all, if there are fewer), drawn at random without replacement; None takes all.
    rows : array-like of int, optional
        Draw pairs only of these rows; all rows by default.
    margin : float, default=0
        Margin of each statement.
    weight : float or "gap", default=1
        ``"gap"``: in proportion to the difference of the scores, 1 on average.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Preferences

    Notes
    -----
    O(m log m + n log m): qualifying pairs are counted and drawn by number after one sort, never listed.

    Examples
    --------
    >>> pairs_from_scores([0.1, 0.9, 0.2], 0.25).pairs.tolist()
    [[1, 0], [1, 2]]
    >>> pairs_from_scores([3.0, 5.0, 7.0], event=[True, False, True]).pairs.tolist()
    [[1, 0], [2, 0]]
    """
    scores, events = read_times(scores, event)
    values, numbers = _values_of_rows("scores", scores, rows)
    threshold = _nonnegative("threshold", threshold)
    if events is not None:
        if threshold or weight == "gap":
            raise ValueError(
                "threshold and weight='gap' need to know by how much one row outlived another, which event leaves "
                "open: leave them out."
            )
        values = lived_longer(values, events[numbers]).astype(float)
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    lower = order if events is None else order[events[numbers[order]]]
    # The row at position t of the ascending order beats the first beaten[t] rows of the lower ones.
    beaten = np.searchsorted(values[lower], ascending - threshold, side="left")
    total = int(beaten.sum())
    if n is None:
        require_memory(
            total * _BYTES_PER_CANDIDATE, f"a list of {total} pairs", "Draw some of them with n=...."
        )
        chosen = np.arange(total)
    else:
        size = min(_count("n", n), total)
        chosen = (
            np.sort(_generator(random_state).choice(total, size=size, replace=False))
            if size
            else np.arange(0)
        )
    ends = np.cumsum(beaten)
    better = np.searchsorted(ends, chosen, side="right")
    worse = chosen - (ends[better] - beaten[better])
    pairs = numbers[np.column_stack([order[better], lower[worse]])]
    by_rows = np.lexsort((pairs[:, 1], pairs[:, 0]))
    gap = (ascending[better] - values[lower[worse]])[by_rows]
    return Preferences(pairs[by_rows], margin, _weight_of(weight, gap))


def pairs_from_targets(
    y: Any,
    n: int = 1000,
    margin_factor: float = 0.5,
    *,
    rows: Any = None,
    weight: float | str = 1.0,
    random_state: Any = None,
) -> Preferences:
    """Statements of an oracle: f(x_i) - f(x_j) >= margin_factor (y_i - y_j) for random pairs with y_i >= y_j.

    A way to measure what preferences could achieve, where the targets are known.

    Parameters
    ----------
    y : array-like of shape (m,)
        Known targets; rows where it is NaN are not drawn.
    n : int, default=1000
        Number of pairs, drawn with replacement.
    margin_factor : float, default=0.5
        0 states only the order, 1 the whole difference.
    rows : array-like of int, optional
        Draw only from these rows.
    weight : float or "gap", default=1
        ``"gap"``: in proportion to the difference of the targets, 1 on average.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Preferences

    Notes
    -----
    Equation (8) of Zhu and Goldberg (2007), who use 0.5 and find factors between 0 and 1 best.

    Examples
    --------
    >>> preferences = pairs_from_targets([0.0, 4.0], n=2, random_state=0)
    >>> preferences.pairs.tolist(), preferences.margin.tolist()
    ([[1, 0], [1, 0]], [2.0, 2.0])
    """
    y = np.asarray(y, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(y)) if rows is None else rows
    values, numbers = _values_of_rows("y", y, known)
    if numbers.shape[0] < 2:
        raise ValueError(f"A pair needs two rows with known targets: found {numbers.shape[0]}.")
    factor = _nonnegative("margin_factor", margin_factor)
    random = _generator(random_state)
    first = random.integers(numbers.shape[0], size=_count("n", n))
    second = random.integers(numbers.shape[0] - 1, size=n)
    second += second >= first  # any row except the first
    swap = values[first] < values[second]
    first[swap], second[swap] = second[swap], first[swap]
    gap = values[first] - values[second]
    pairs = np.column_stack([numbers[first], numbers[second]])
    return Preferences(pairs, factor * gap, _weight_of(weight, gap))


def _similar_pairs(rule: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """Unordered pairs of rows within every tolerance, shape (p, 2)."""
    scaled = np.hstack([_scaled(columns, tolerance) for columns, tolerance in rule])
    tree = cKDTree(scaled)
    radius = 1.0 + _ROUNDING
    n_rows = scaled.shape[0]
    n_candidates = (tree.count_neighbors(tree, radius, p=np.inf) - n_rows) // 2
    require_memory(
        int(n_candidates) * _BYTES_PER_CANDIDATE,
        f"a list of {n_candidates} similar pairs",
        "Use smaller tolerances, more columns, or a sample of the rows.",
    )
    pairs = tree.query_pairs(radius, p=np.inf, output_type="ndarray").astype(np.int64).reshape(-1, 2)
    keep = np.ones(pairs.shape[0], dtype=bool)
    for columns, tolerance in rule:
        difference = columns[pairs[:, 0]] - columns[pairs[:, 1]]
        distance = np.abs(difference[:, 0]) if columns.shape[1] == 1 else np.sqrt((difference**2).sum(axis=1))
        keep &= distance <= tolerance
    return pairs[keep]


def _scaled(columns: np.ndarray, tolerance: float) -> np.ndarray:
    """Columns in units of the tolerance; for tolerance 0, codes that are two apart."""
    if tolerance > 0:
        return columns / tolerance
    codes = [np.unique(column, return_inverse=True)[1] for column in columns.T]
    return 2.0 * np.column_stack(codes)


def _columns(X: Any, names: Any) -> np.ndarray:
    """The named columns as floats, shape (m, k)."""
    if not isinstance(names, tuple):
        names = (names,)
    columns = np.column_stack([_column(X, name) for name in names])
    missing = np.flatnonzero(~np.isfinite(columns).all(axis=1))
    if missing.size:
        raise ValueError(
            f"Column {names} holds NaN or infinity (row {missing[0]}): fill it in or drop the row first."
        )
    return columns


def _column(X: Any, name: Any) -> np.ndarray:
    if hasattr(X, "columns"):
        if name not in list(X.columns):
            raise ValueError(f"X has no column {name!r}: it has {', '.join(map(str, X.columns))}.")
        return np.asarray(X[name], dtype=np.float64)
    if not hasattr(X, "shape"):
        X = np.asarray(X)
    if not isinstance(name, Integral):
        raise ValueError(
            f"X has no column names: found {name!r}. Use column positions, or pass a data frame."
        )
    if len(X.shape) != 2 or not -X.shape[1] <= name < X.shape[1]:
        raise ValueError(f"X has no column {name}: its shape is {X.shape}.")
    column = X[:, [int(name)]]
    return np.asarray(column.toarray() if hasattr(column, "toarray") else column, dtype=np.float64).ravel()


def _ordering(X: Any, ordered_by: Any, n_rows: int) -> np.ndarray:
    if isinstance(ordered_by, (str, tuple, Integral)):
        return _columns(X, ordered_by)[:, 0]
    values = np.asarray(ordered_by, dtype=np.float64)
    if values.shape != (n_rows,) or not np.isfinite(values).all():
        raise ValueError(f"ordered_by must name a column or hold one finite value per row ({n_rows}).")
    return values


def _values_of_rows(name: str, values: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional: found shape {array.shape}.")
    numbers = np.arange(array.shape[0]) if rows is None else np.unique(np.asarray(rows))
    if rows is not None and (
        numbers.size and (numbers.dtype.kind not in "iu" or numbers[0] < 0 or numbers[-1] >= array.shape[0])
    ):
        raise ValueError(f"rows must hold row numbers between 0 and {array.shape[0] - 1}.")
    numbers = numbers.astype(np.int64)
    chosen = array[numbers]
    if not np.isfinite(chosen).all():
        wrong = numbers[np.flatnonzero(~np.isfinite(chosen))[0]]
        raise ValueError(
            f"{name} holds {array[wrong]} (row {wrong}): use rows=... to choose those that are known."
        )
    return chosen, numbers


def _tolerance(names: Hashable, value: Any) -> float:
    return _nonnegative(f"The tolerance of {names!r}", value)


def _nonnegative(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be a finite number >= 0: found {value!r}.")
    return float(value)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be a whole number >= 0: found {value!r}.")
    return int(value)


def _weight_of(weight: float | str, gap: np.ndarray) -> Any:
    if not isinstance(weight, str):
        return weight
    if weight != "gap":
        raise ValueError(f"weight must be a number or 'gap': found {weight!r}.")
    mean = gap.mean() if gap.size else 0.0
    return gap / mean if mean > 0 else np.ones_like(gap)


def _generator(random_state: Any) -> np.random.Generator:
    """NumPy's newer generator draws from large ranges without listing them."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    return np.random.default_rng(random_state)
