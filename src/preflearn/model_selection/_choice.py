r"""Which alphas are tried, how held-out predictions are scored, and which alpha is chosen.

The automatic grid of a squared loss is placed by the spectrum: with Λ the largest eigenvalue of the matrix that alpha
is added to, alpha = 2⁻²⁷ Λ, ..., 2³ Λ. Smaller values regularise less than rounding does, and with larger ones nothing
is learned.

``scoring`` is a name of the registry (`preflearn.metrics.get_scorer`), one of its scorers, a scorer of scikit-learn, or
a function. Greater is better for all of them. Ties go to the stronger regularisation, and a choice at the edge of the
grid warns.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metadata_routing import get_routing_for_object

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import surv
from ..metrics.registry import RankingScorer, get_scorer, scorer_names
from ..numerics.namespace import as_host
from ..squared.routes import callers_level
from ._folds import Folds

_AUTO_POWERS = np.arange(-27, 4)
# Iterations grow with the square root of Λ / alpha: smaller values take thousands, and are rarely best for many rows.
_ITERATED_POWERS = np.arange(-15, 4)
# Where only refitting is possible the spectrum is not known.
BLIND_GRID = 2.0 ** np.arange(-15, 16, 3)
# Scores that differ by no more than this are equal.
SAME_SCORE = 1e-12
# Relative precision of held-out predictions: differences below it are rounding of the algebra.
_PRECISION = 2.0**-40
# Relative precision of sums of products.
_SUM_PRECISION = 2.0**-44


def auto_grid(largest: float, *, iterated: bool = False) -> np.ndarray:
    """The automatic alphas for this largest eigenvalue of the matrix that alpha is added to; fewer with iterations."""
    if not largest > 0:
        return BLIND_GRID
    return 2.0 ** (np.round(np.log2(largest)) + (_ITERATED_POWERS if iterated else _AUTO_POWERS))


def count_alphas(values: Any) -> int:
    """The number of alphas, before the grid is placed."""
    if values is None:
        return 1
    return _AUTO_POWERS.shape[0] if isinstance(values, str) else int(np.size(as_host(values)))


def spread_of(values: Any, own: Any, largest: float) -> float:
    """The largest eigenvalue over the smallest of these alphas, before the grid is read; ``own`` replaces None."""
    if isinstance(values, str):
        return float(2.0 ** -_ITERATED_POWERS[0])
    least = np.min(np.asarray(as_host(own if values is None else values), dtype=float), initial=np.inf)
    return 1.0 + largest / float(least) if least > 0 else np.inf


def read_grid(
    values: Any, automatic: np.ndarray | Callable[[], np.ndarray], *, name: str = "alphas", zero: bool = False
) -> np.ndarray:
    """Read ``alphas``, or the grid of another parameter.

    Parameters
    ----------
    values : "auto", a number or a sequence of numbers
    automatic : ndarray, or callable that returns one
        What "auto" stands for.
    name : str
        For messages.
    zero : bool
        Whether 0 is allowed.

    Returns
    -------
    ndarray of shape (a,)

    Raises
    ------
    ValueError
        If a value is not a positive number, or there are no values.
    """
    allowed = "numbers >= 0" if zero else "positive numbers"
    if isinstance(values, str):
        if values != "auto":
            raise ValueError(f"{name} must be 'auto' or a sequence of {allowed}: found {values!r}.")
        return automatic() if callable(automatic) else automatic
    try:
        grid = np.atleast_1d(np.asarray(as_host(values), dtype=np.float64))
    except (TypeError, ValueError):
        grid = np.empty(0)
    fine = grid.ndim == 1 and grid.size > 0 and np.isfinite(grid).all()
    if not fine or (grid < 0).any() or (not zero and (grid == 0).any()):
        raise ValueError(f"{name} must be 'auto' or a non-empty sequence of {allowed}: found {values!r}.")
    return grid


@dataclass(frozen=True)
class Scoring:
    """How held-out predictions are scored.

    Attributes
    ----------
    name : str
        As it was given, for messages.
    measure : callable
        Takes y and predictions of shape (m, v) and Groups of rows that may be compared, gives a float.
    compares_rows : bool
        Whether it is known to compare rows with each other, so that a single row has no score.
    scorer : RankingScorer or None
        The entry of the registry.
    knows_events : bool
        Whether y has a second column: whether the events were seen at the times of the first.
    """

    name: str
    measure: Callable[[np.ndarray, np.ndarray, Groups], float]
    compares_rows: bool
    scorer: RankingScorer | None = None
    knows_events: bool = False

    def of_times(self) -> Scoring:
        """The same for censored times: y has a second column, the events."""
        scorer = self.scorer
        if scorer is None or scorer.metric_name not in ("concordance", "disagreement_error"):
            raise ValueError(
                f"scoring={self.name} does not know censored times: with event use 'concordance' (the C-index), its "
                "error, or get_scorer('concordance', weights='ipcw')."
            )

        def measure(y: np.ndarray, f: np.ndarray, within: Groups) -> float:
            return scorer.measure(surv(y[:, 0], y[:, 1] > 0), f, within)

        return replace(self, measure=measure, compares_rows=True, knows_events=True)

    def __call__(self, y: np.ndarray, predictions: np.ndarray, within: Any) -> float:
        return self.measure(y, predictions, encode_queries(within, y.shape[0]))


def read_scoring(scoring: Any, default: Any = "concordance") -> Scoring:
    """Read ``scoring``; None is the default.

    Parameters
    ----------
    scoring : str, scorer, callable or None
        A name of `preflearn.metrics.get_scorer`, with its parameter where it has one ("ndcg@10"); a scorer of
        `preflearn.metrics`; a scorer of scikit-learn, which takes no queries and is applied to each set of rows that
        may be compared, then averaged; or a function of (y, scores, qid), or (y, scores), where greater is better.
    default : as scoring

    Raises
    ------
    ValueError
        If the name is not known.
    """
    given = default if scoring is None else scoring
    if isinstance(given, RankingScorer):
        return Scoring(repr(given), given.measure_within, given.compares_rows, given)
    if isinstance(given, str):
        scorer = _named(given)
        return Scoring(repr(given), scorer.measure_within, scorer.compares_rows, scorer)
    if hasattr(given, "get_metadata_routing"):
        return Scoring(repr(given), _of_scorer(given), compares_rows=False)
    if callable(given):
        return Scoring(repr(given), _of_function(given), compares_rows=False)
    raise ValueError(_expected(given))


def _named(name: str) -> RankingScorer:
    try:
        return get_scorer(name)
    except TypeError as error:
        raise ValueError(f"scoring={name!r}: {error}") from None
    except ValueError as error:
        if "unknown metric" in str(error):
            raise ValueError(_expected(name)) from None
        raise


def _expected(found: Any) -> str:
    known = ", ".join(repr(name) for name in scorer_names())
    return (
        f"scoring must be one of {known}, one with a number of positions such as 'ndcg@10', a scorer, or a callable "
        f"of (y, scores, qid): found {found!r}."
    )


def _of_function(function: Callable[..., float]) -> Callable[[np.ndarray, np.ndarray, Groups], float]:
    takes_queries = _n_positional(function) >= 3

    def measure(y: np.ndarray, f: np.ndarray, within: Groups) -> float:
        labels = (within.codes,) if takes_queries else ()
        return float(function(_one_column(y), _one_column(f), *labels))

    return measure


def _n_positional(function: Callable[..., Any]) -> int:
    """The number of positional arguments of a function; three where it cannot be determined."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 3
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return 3
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)


def _of_scorer(scorer: Any) -> Callable[[np.ndarray, np.ndarray, Groups], float]:
    """A scorer of scikit-learn, applied to the held-out predictions as if they were those of a fitted model."""
    takes_queries = get_routing_for_object(scorer).consumes("score", ["qid"])

    def measure(y: np.ndarray, f: np.ndarray, within: Groups) -> float:
        y, f = _one_column(y), _one_column(f)
        if takes_queries:
            return _apply(scorer, y, f, {"qid": within.codes})
        sets = [within.rows(group) for group in range(within.n_groups)]
        values = [_apply(scorer, y[rows], f[rows], {}) for rows in sets]
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    return measure


def _apply(scorer: Any, y: np.ndarray, f: np.ndarray, metadata: dict[str, Any]) -> float:
    rows = np.arange(f.shape[0])[:, None]
    try:
        return float(scorer(_HeldOutValues(f), rows, y, **metadata))
    except (AttributeError, ValueError):
        if np.ndim(y) != 1 or np.unique(y).shape[0] != 2:
            raise
        # A scorer for classifiers reads decision values.
        return float(scorer(_HeldOutDecisions(f, np.unique(y)), rows, y, **metadata))


class _HeldOutValues(RegressorMixin, BaseEstimator):
    """A fitted regressor with precomputed predictions; X holds row numbers."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.fitted_ = True

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.values[X[:, 0]]


class _HeldOutDecisions(ClassifierMixin, BaseEstimator):
    """The same for a classifier of two classes."""

    def __init__(self, values: np.ndarray, classes: np.ndarray) -> None:
        self.values = values
        self.classes = classes
        self.classes_ = classes

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self.values[X[:, 0]]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[(self.values[X[:, 0]] > 0).astype(int)]


def compared_within(folds: Folds, queries: Groups) -> np.ndarray:
    """Labels of rows whose held-out predictions come from one model: the query, and the fold inside it.

    Predictions of different models are not on one scale; pooling them is what biases pooled cross-validation.
    """
    n_rows = queries.n_rows
    fold_of = np.full(n_rows, -1)
    for number, test in enumerate(folds.tests):
        if (fold_of[test] >= 0).any():
            raise ValueError("The folds overlap: each row must be predicted once.")
        fold_of[test] = number
    return queries.codes * (len(folds.tests) + 1) + fold_of + 1


@dataclass(frozen=True)
class Comparable:
    """Which held-out predictions may be compared.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        The rows that are predicted, fold after fold; a row in several folds counts in each of them.
    order : ndarray of shape (n,)
        The permutation that sorts them by row.
    within : Groups
        Of the sorted predictions.
    """

    rows: np.ndarray
    order: np.ndarray
    within: Groups

    @classmethod
    def of(cls, scoring: Scoring, folds: Folds, queries: Groups, *, pooled: bool) -> Comparable:
        """Rows are compared inside a query, and inside a fold unless predictions may be pooled.

        Parameters
        ----------
        pooled : bool
            Whether predictions of different folds may be compared, as those of a regression on the scale of y may.

        Raises
        ------
        ValueError
            If a ranking measure would have no two rows to compare.
        """
        rows = np.concatenate(folds.tests)
        labels = queries.codes[rows]
        if not pooled:
            fold_of = np.repeat(np.arange(len(folds.tests)), [test.shape[0] for test in folds.tests])
            labels = labels * len(folds.tests) + fold_of
        order = np.argsort(rows, kind="stable")
        within = encode_queries(labels[order], rows.shape[0])
        if scoring.compares_rows and within.n_groups == rows.shape[0]:
            raise ValueError(
                f"scoring={scoring.name} compares rows of a query that one model predicts, and no two are held out "
                "together. Use cv='leave-query-out' with qid, cv='leave-pair-out' or a number of folds without, or "
                "scoring='neg_mean_squared_error'."
            )
        return cls(rows, order, within)

    def score(self, scoring: Scoring, y: np.ndarray, predictions: list[np.ndarray]) -> np.ndarray:
        """The score of every alpha, shape (a,).

        Parameters
        ----------
        y : ndarray of shape (m, v)
        predictions : list of ndarray of shape (a, n_test, v)
            Of each fold.
        """
        truth = y[self.rows[self.order]]
        values = np.concatenate(predictions, axis=1)
        return np.array([scoring.measure(truth, f[self.order], self.within) for f in values])


def _one_column(values: np.ndarray) -> np.ndarray:
    return values[:, 0] if values.shape[1] == 1 else values


def without_rounding(predictions: np.ndarray) -> np.ndarray:
    """Predictions of each row of an (a, m) array on a grid coarser than the rounding of a product: equal rows tie."""
    step = _SUM_PRECISION * np.abs(predictions).max(axis=1, keepdims=True)
    return np.where(step > 0, np.round(predictions / np.where(step > 0, step, 1.0)) * step, predictions)


def rounding_of(y: np.ndarray, size: float, alpha: float) -> float:
    """The size of differences of held-out predictions that are rounding errors and do not mean an order.

    A prediction without intercept consists of terms of the size of a leverage times y, and a leverage is at most
    Λ / (Λ + λ): the smaller the kernel relative to alpha, the smaller the predictions and their rounding. Rows that the
    model cannot distinguish differ by this rounding, in the direction of their labels: without a tolerance, a model
    that has learned nothing would order every pair correctly.

    Parameters
    ----------
    y : ndarray
    size : float
        Λ, the largest eigenvalue of the matrix that alpha is added to, or a bound of it (`HoldOut.size`).
    alpha : float
        λ.
    """
    return float(np.ptp(y)) * relative_rounding(size, alpha)


def relative_rounding(size: float, alpha: float) -> float:
    """`rounding_of` for scores that span 1."""
    return _PRECISION * (size / (size + alpha))


def choose(scores: np.ndarray, *grids: np.ndarray) -> tuple[int, ...]:
    """The position of the best score; of equally good ones, that with the largest alpha, then largest next parameter.

    Parameters
    ----------
    scores : ndarray of shape (a, ...)
    *grids : ndarray
        The values along the axes, alphas first. Axes without a grid do not break ties.

    Raises
    ------
    ValueError
        If no score is defined.

    Examples
    --------
    >>> import numpy as np
    >>> choose(np.array([0.8, 0.9, 0.9]), np.array([1.0, 10.0, 100.0]))
    (2,)
    """
    if np.isnan(scores).all():
        raise ValueError(
            "No alpha could be scored: every held-out measure is undefined. Check qid, y and cv."
        )
    best = np.argwhere(scores >= np.nanmax(scores) - SAME_SCORE)
    place = max(best.tolist(), key=lambda at: tuple(grid[k] for grid, k in zip(grids, at, strict=False)))
    return tuple(place)


def warn_at_edge(alphas: np.ndarray, scores: np.ndarray, choice: int) -> None:
    """Warn when the chosen alpha is the smallest or largest of several, unless all are equally good."""
    n = alphas.shape[0]
    place = int(np.flatnonzero(np.argsort(alphas) == choice)[0])
    if n < 2 or 0 < place < n - 1 or np.ptp(scores) == 0:
        return
    end, direction = ("smallest", "smaller") if place == 0 else ("largest", "larger")
    warnings.warn(
        f"The best alpha, {alphas[choice]:.3g}, is the {end} of the grid: try {direction} ones "
        "(alphas=...) to be sure.",
        UserWarning,
        stacklevel=callers_level(),
    )
