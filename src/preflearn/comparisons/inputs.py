"""Reading what users pass: alpha, scores with the options of their comparison, preferences.

Each mistake gets one clear error, before any work. `compare_scores` is the one place that reads cost, ties and
weighting.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils.validation import check_array, column_or_1d

from ..numerics.namespace import as_host, is_device_array
from .base import Comparisons
from .censored import CensoredComparisons, lived_longer
from .grouping import WEIGHTINGS, Groups
from .queries import QueryComparisons
from .relative import RelativeComparisons
from .weighted import WeightedPairs

COSTS = ("magnitude", "unit", "relative")
TIES = ("include", "exclude")
# Up to here, float64 tells all whole numbers apart.
_LAST_WHOLE = 2.0**53


_Fit = TypeVar("_Fit", bound=Callable[..., Any])
# What fit of LightGBM and XGBoost takes, and what does the same here.
_CURES = {
    "group": "sizes of the queries are qid=np.repeat(np.arange(len(group)), group) here",
    **dict.fromkeys(
        ("eval_set", "eval_group", "eval_qid", "eval_metric", "early_stopping_rounds", "callbacks"),
        "no rows are set aside: RankRLSCV and the other searches choose by exact cross-validation, and AutoRanker by "
        "held-out queries; measure new rows by score(X, y, qid=qid)",
    ),
}


def named_cures(fit: _Fit) -> _Fit:
    """A method ``fit`` whose refusal of a lazy frame, or of an argument of LightGBM or XGBoost, names the cure."""

    @functools.wraps(fit)
    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        foreign = next((name for name in options if name in _CURES), None)
        if foreign is not None:
            raise TypeError(f"{type(self).__name__}.fit does not take {foreign}=: {_CURES[foreign]}.")
        if arguments and hasattr(arguments[0], "collect_schema") and not hasattr(arguments[0], "__len__"):
            raise TypeError("X is a lazy frame, whose rows have not been computed: pass X.collect().")
        return fit(self, *arguments, **options)

    return cast(_Fit, checked)


def read_alpha(alpha: Any) -> float:
    """A positive, finite regularisation parameter."""
    value = float(alpha) if isinstance(alpha, Real) and not isinstance(alpha, bool) else np.nan
    if not 0 < value < np.inf:
        raise ValueError(
            f"alpha must be a positive number: found {alpha!r}. The closed form needs some regularisation; "
            "for nearly none use a small value such as 1e-8."
        )
    return value


def read_scores(y: Any, n_rows: int, *, estimator: Any = None) -> tuple[np.ndarray, bool]:
    """Scores as an (m, v) array of float64, and whether they came as one column.

    Raises
    ------
    ValueError
        If y is missing, of another length, not numeric, NaN or infinite.
    """
    if y is None:
        name = type(estimator).__name__ if estimator is not None else "This estimator"
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    if getattr(getattr(y, "dtype", None), "names", None):
        raise ValueError(
            f"y has the fields {', '.join(y.dtype.names)}: censored times are for fit of RankRLS, RankSVM, "
            "their searches and AutoRanker."
        )
    y = _as_numbers(as_host(y))
    if y.ndim == 0 or y.ndim > 2:
        raise ValueError(f"y must hold one score per row, or one row of scores: found {y.ndim} dimensions.")
    if y.shape[0] != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, y has {y.shape[0]}."
        )
    if y.ndim == 2 and y.shape[1] == 1:
        return column_or_1d(y, warn=True)[:, None], True
    return (y[:, None], True) if y.ndim == 1 else (y, False)


def _as_numbers(given: Any) -> np.ndarray:
    """Targets as float64 numbers, or a refusal that names a row and says what to do."""
    try:
        y = check_array(given, ensure_2d=False, dtype=np.float64, input_name="y", allow_nd=True, copy=False)
    except OverflowError:
        largest = f"{np.finfo(np.float64).max:.1e}"
        raise ValueError(
            f"y holds whole numbers above {largest}, the largest of float64: divide them first."
        ) from None
    except ValueError as error:
        raise ValueError(f"{error}{_how_to_mend(given)}") from error
    if y.size and abs(y.flat[0]) >= _LAST_WHOLE and (y == y.flat[0]).all():
        n_distinct = len(set(np.asarray(given).ravel().tolist()))
        if n_distinct > 1:
            raise ValueError(
                f"y holds {n_distinct:,} different numbers near {y.flat[0]:g}, which are all equal in the 16 digits of "
                "float64: subtract what they have in common, such as their minimum."
            )
    return y


def _how_to_mend(given: Any) -> str:
    """What to do about targets that scikit-learn refuses, with the first row that it concerns."""
    if np.iscomplexobj(given):
        return ""
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        texts = [one for one in np.asarray(given, dtype=object).ravel().tolist() if isinstance(one, str)]
        if not texts:
            return ""
        return ". y must hold numbers, higher is better: write 0, 1, 2, ... for grades in words, from worst to best."
    if values.ndim not in (1, 2) or np.isfinite(values).all():
        return ""
    row = int(np.flatnonzero(~np.isfinite(values.reshape(values.shape[0], -1)).all(axis=1))[0])
    if np.isnan(values).any():
        return f" Row {row} is the first: leave out rows whose target is not known."
    return f" Row {row} is the first: replace it by a finite number."


def warn_if_equal(scores: np.ndarray) -> None:
    """Warn that equal scores teach nothing; O(m)."""
    if scores.shape[0] > 1 and (scores == scores[0]).all():
        warnings.warn(
            f"All targets are equal ({float(scores[0, 0]):g}): there is no order to learn, and every item gets the "
            "same score.",
            UserWarning,
            stacklevel=3,
        )


def read_row_weights(sample_weight: Any, n_rows: int, X: Any = None) -> np.ndarray | None:
    """Weights of the rows as float64; None where there are none, or every row has weight 1.

    Raises
    ------
    ValueError
        If they are of another length, negative, not finite, or all zero.
    TypeError
        If X is an array of a device.
    """
    if sample_weight is None:
        return None
    if is_device_array(X):
        raise TypeError("sample_weight is for NumPy arrays and sparse matrices: X is on a device.")
    w = check_array(
        as_host(sample_weight), ensure_2d=False, dtype=np.float64, input_name="sample_weight", allow_nd=True
    )
    if w.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must hold one number for each of the {n_rows} rows: found shape {w.shape}. Weights of "
            "queries are repeated for their rows."
        )
    if (w < 0).any():
        raise ValueError(f"sample_weight must not be negative: row {int(np.argmin(w))} has {w.min():g}.")
    if not w.any():
        raise ValueError("sample_weight is zero for every row: nothing would be learned.")
    return None if (w == 1).all() else w


def read_times(y: Any, event: Any) -> tuple[Any, np.ndarray | None]:
    """Times, and whether the event was seen at each of them: y and event, or the two fields of a structured y.

    Returns
    -------
    y : as given, or ndarray of shape (m,)
    events : ndarray of bool, shape (m,), or None
        None where y holds scores.

    Raises
    ------
    ValueError
        If the times are dates, missing, negative or infinite, or the events are not true or false.
    """
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names:
        y, event = _fields_of(y, names, event)
    if event is None:
        return y, None
    times = np.asarray(as_host(y))
    kind = np.asarray(times.flat[0]).dtype.kind if times.dtype == object and times.size else times.dtype.kind
    if kind in "mMU" or (times.dtype == object and hasattr(next(iter(times.flat), None), "year")):
        raise ValueError(
            "y holds dates, durations or texts: with event it must hold times as numbers, such as days since the "
            "start: (end - start) / np.timedelta64(1, 'D')."
        )
    times = times[:, 0] if times.ndim == 2 and times.shape[1] == 1 else times
    if times.ndim != 1:
        raise ValueError(f"With event, y holds one time per row: found an array of shape {times.shape}.")
    found = _as_numbers(times)
    if found.min(initial=0.0) < 0:
        row = int(np.argmin(found))
        raise ValueError(f"With event, y holds times, which are not negative: row {row} has {found[row]:g}.")
    return found, _as_events(event, found.shape[0])


def order_of(y: Any) -> np.ndarray:
    """Numbers in the order of y, the higher the better: y, or how long the rows of a structured y are known to live."""
    times, events = read_times(y, None)
    return np.asarray(times) if events is None else 1.0 * lived_longer(times, events)


def surv(times: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Times and events as one structured array, which `read_times` takes apart."""
    together = np.empty(times.shape[0], dtype=[("event", bool), ("time", float)])
    together["event"], together["time"] = events, times
    return together


def label_columns(y: np.ndarray) -> np.ndarray:
    """Labels of rows as columns: y itself, or the times and events of a `surv` array."""
    return y[:, None] if y.dtype.names is None else np.column_stack([y["time"], y["event"]])


def _fields_of(y: Any, names: tuple[str, ...], event: Any) -> tuple[np.ndarray, np.ndarray]:
    """The times and events of a structured array such as scikit-survival's Surv."""
    if event is not None:
        raise ValueError(f"y has the fields {', '.join(names)} and holds the events itself: leave event out.")
    flags = [name for name in names if y.dtype[name].kind == "b"]
    numbers = [name for name in names if y.dtype[name].kind in "iuf"]
    if len(flags) != 1 or len(numbers) != 1:
        raise ValueError(
            "A structured y has one boolean field (whether the event was seen) and one of numbers (times): found "
            + ", ".join(f"{name} ({y.dtype[name]})" for name in names)
            + "."
        )
    return y[numbers[0]], y[flags[0]]


def _as_events(event: Any, n_rows: int) -> np.ndarray:
    values = np.asarray(as_host(event))
    if values.shape != (n_rows,):
        raise ValueError(
            f"event must hold one value for each of the {n_rows} rows: found an array of shape {values.shape}."
        )
    if values.dtype == bool:
        return values
    known = [
        value in {0, 1} for value in values.tolist()
    ]  # by their hashes: True is 1, and pandas.NA compares with none
    if not all(known):
        row = known.index(False)
        raise ValueError(
            f"event must be True (or 1) where the event was seen and False (or 0) where the time is censored: row "
            f"{row} has {values.tolist()[row]!r}. Compare other labels with the one that means seen, such as event="
            "(status == 'dead'), and leave out rows of which it is not known."
        )
    return values.astype(float).astype(bool)


def refuse_few_events(events: np.ndarray) -> None:
    """Refuse to learn from no event, or from one: a held-out event needs another one to learn from."""
    n_events = int(np.count_nonzero(events))
    if n_events < 2:
        what = "no row: every time is censored, and nobody is known to have outlived another"
        raise ValueError(
            f"event marks {what if n_events == 0 else 'a single row, and a ranking needs two events at least'}. Check "
            "that event is True where the event was seen."
        )


def read_pairs(pairs: Any, n_rows: int) -> np.ndarray:
    """Preferences as an (l, 2) array of row numbers.

    Raises
    ------
    ValueError
        If there are none, a row is out of range, or a row is preferred to itself.
    """
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.shape[0] == 0:
        raise ValueError(
            "pairs must be an integer array of shape (l, 2) with l >= 1, the better row first: "
            f"found shape {pairs.shape}."
        )
    if pairs.dtype.kind not in "iu":
        raise ValueError(
            f"pairs must hold row numbers of type int: found {pairs.dtype}. Convert with pairs.astype(int)."
        )
    outside = np.flatnonzero(((pairs < 0) | (pairs >= n_rows)).any(axis=1))
    if outside.size:
        raise ValueError(
            f"pairs[{outside[0]}] = {pairs[outside[0]].tolist()} names a row out of range: "
            f"X has rows 0 to {n_rows - 1}."
        )
    same = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if same.size:
        raise ValueError(f"pairs[{same[0]}] prefers row {pairs[same[0], 0]} to itself: drop it.")
    return pairs.astype(np.int64, copy=False)


def read_per_pair(values: Any, n_pairs: int, name: str, *, positive: bool = False) -> np.ndarray | None:
    """One finite number per preference (a single number applies to all); None stays None."""
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(n_pairs, float(array))
    if array.shape != (n_pairs,):
        raise ValueError(
            f"{name} must hold one number per preference: found shape {array.shape} for {n_pairs} preferences."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} holds NaN or infinity (entry {int(np.flatnonzero(~np.isfinite(array))[0])})."
        )
    if positive and (array < 0).any():
        raise ValueError(
            f"{name} must not be negative: entry {int(np.flatnonzero(array < 0)[0])} is {array.min():g}."
        )
    if positive and not array.any():
        raise ValueError(f"{name} is zero for every preference: nothing would be learned.")
    return array


def depends_on_scores(cost: str, ties: str) -> bool:
    """Whether L, and not only b, depends on the scores; then outputs cannot share a factorisation."""
    return cost != "magnitude" or ties == "exclude"


def compare_scores(
    scores: np.ndarray,
    queries: Groups,
    *,
    cost: str = "magnitude",
    ties: str = "include",
    weighting: str = "pair",
    allow_none: bool = False,
    row_weights: np.ndarray | None = None,
) -> Comparisons:
    """The comparisons that scores within queries imply.

    Parameters
    ----------
    scores : ndarray of shape (m, v)
        Higher is better.
    queries : Groups
    cost : {"magnitude", "unit", "relative"}
        What a pair should differ by: s_i - s_j, 1, or s_i - s_j with the squared error divided by (s_i - s_j)².
    ties : {"include", "exclude"}
        Whether pairs with equal scores are pulled together; costs "unit" and "relative" always leave them out.
    weighting : {"pair", "item", "query"}
    allow_none : bool
        Accept scores without any pair that can be compared, which may occur in a part of the data.
    row_weights : ndarray of shape (m,), optional
        A pair counts with the product of the weights of its rows.

    Returns
    -------
    Comparisons

    Raises
    ------
    ValueError
        If no pair at all can be compared, unless `allow_none`.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import compare_scores, one_group
    >>> compare_scores(np.array([[3.0], [1.0], [2.0]]), one_group(3)).target.ravel()
    array([ 3., -3.,  0.])
    """
    for name, value, known in (
        ("cost", cost, COSTS),
        ("ties", ties, TIES),
        ("weighting", weighting, WEIGHTINGS),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}: found {value!r}.")
    comparisons: Comparisons
    if cost == "relative":
        comparisons = RelativeComparisons(scores, queries, weighting=weighting, row_weights=row_weights)
    elif row_weights is not None:
        comparisons = WeightedPairs(
            scores,
            queries,
            row_weights,
            weighting=weighting,
            exclude_ties=ties == "exclude",
            unit=cost == "unit",
        )
    else:
        comparisons = QueryComparisons(
            scores, queries, weighting=weighting, exclude_ties=ties == "exclude", unit=cost == "unit"
        )
    if comparisons.n_comparisons == 0 and not allow_none:
        raise ValueError(_nothing_to_compare(queries, cost, ties))
    return comparisons


def compare_times(
    times: np.ndarray,
    events: np.ndarray,
    queries: Groups,
    *,
    cost: str = "unit",
    weighting: str = "pair",
    row_weights: np.ndarray | None = None,
) -> CensoredComparisons:
    """The comparisons that censored times within queries imply; the other parameters are those of `compare_scores`.

    Raises
    ------
    ValueError
        If nobody is known to have outlived another, or the cost needs to know by how much.
    """
    if cost not in ("magnitude", "unit"):
        raise ValueError(
            f"cost={cost!r} needs to know by how much one row outlived another, which event leaves open: leave cost "
            "out, or event."
        )
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting must be one of {', '.join(map(repr, WEIGHTINGS))}: found {weighting!r}.")
    comparisons = CensoredComparisons(times, events, queries, weighting=weighting, row_weights=row_weights)
    if comparisons.n_comparisons == 0:
        raise ValueError(NOBODY_OUTLIVED)
    return comparisons


NOBODY_OUTLIVED = (
    "No row is known to have outlived another: the others (of its query, with a weight above zero) are censored "
    "before the first event, or no event was seen. Check event, which is True where the event was seen, and qid."
)


def _nothing_to_compare(queries: Groups, cost: str, ties: str) -> str:
    if queries.n_rows == 1:
        return "Ranking needs at least two rows to compare: found 1 sample."
    if queries.counts.max(initial=0) <= 1:
        return (
            f"No pair can be compared: each of the {queries.n_groups} queries has only one row. "
            "Check qid: rows of the same query must carry the same label; without qid all rows are one query."
        )
    why = "ties='exclude'" if cost == "magnitude" else f"cost={cost!r}"
    return (
        f"No pair can be compared: all scores inside each query are equal, and {why} leaves tied pairs out. "
        "Check y and qid, or use cost='magnitude' with ties='include'."
    )


def refuse_weights_of_rows(sample_weight: Any) -> None:
    """Refuse weights of rows together with preferences, which have their own weights."""
    if sample_weight is not None:
        raise ValueError(
            "sample_weight applies to scores and is not supported together with pairs: use weight for the pairs, or "
            "leave out sample_weight or pairs."
        )


def refuse_without_pairs(magnitude: Any, weight: Any) -> None:
    """Refuse magnitude and weight without pairs."""
    if magnitude is not None or weight is not None:
        raise ValueError(
            "magnitude and weight belong to pairs and would be ignored: pass pairs=..., or leave them out."
        )
