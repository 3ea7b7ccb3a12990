r"""Would more queries help? Held-out scores of models trained on more and more queries.

The queries are split into folds; in each fold the model is trained on the first n of the other queries, for growing n,
and measured on the queries of the fold. The folds and their test queries are the same for every n, so that the points
of the curve can be compared.

What more queries would bring is extrapolated by a power law, score(n) = a - b n^-c with b >= 0 and a at most the best
possible score, fitted to the points by least squares; its interval comes from resampling the held-out queries, of which
the variance is doubled: the models of a fold, and those of different folds, share training queries, whose luck the
held-out queries do not show (Nadeau and Bengio). ``benchmarks/coverage.py --only learning_curve`` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.stats import t as student
from sklearn.utils import check_random_state

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import read_times, surv
from ..errors import InputError, Remedy
from ..metrics import get_scorer
from ..numerics.namespace import refuse_repeated_columns
from ..plots import on_axes
from ..shown_tables import ShownTable, align_columns, shows_itself
from ._folds import units_of
from ._intervals import mean_interval
from ._refitting import refit_and_predict

_SHARES = (0.1, 0.2, 0.4, 0.7, 1.0)
_LEAST_QUERIES = 2
# Powers that are tried, points that a power law needs, and resamples of the held-out queries for its interval.
_POWERS = np.geomspace(0.1, 2.0, 16)
_LEAST_POINTS = 3
_DRAWS = 400
# A gain that does not pay for more queries.
_SMALL = 0.01


@dataclass(frozen=True)
class Extension:
    """What a learning curve predicts for more queries than there are.

    Attributes
    ----------
    n_queries : ndarray of shape (k,)
    scores : ndarray of shape (k,)
    low, high : ndarray of shape (k,)
        95 % interval. It reflects the randomness of the held-out queries and of the training queries that the folds
        share, not whether a power law holds.
    """

    n_queries: np.ndarray
    scores: np.ndarray
    low: np.ndarray
    high: np.ndarray


@shows_itself
@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Held-out score over the number of training queries; prints itself.

    Attributes
    ----------
    n_queries : ndarray of shape (s,)
        Training queries of each point.
    scores : ndarray of shape (s,)
        Mean over the held-out queries.
    errors : ndarray of shape (s,)
        Half the 95 % interval of the mean, by Student's t over queries.
    gain : float
        Score of the last point minus that of the one before.
    gain_interval : tuple of two float
        Its 95 % interval, by Student's t over the differences of the same queries.
    scoring : str
    values : ndarray of shape (s, q) or None
        The score of each held-out query.
    n_rows : ndarray of shape (s,) or None
        Training rows of each point, on average over folds.
    units : ndarray of shape (q,) or None
        With groups, the number of the unit of each held-out query; the intervals then count units.
    """

    n_queries: np.ndarray
    scores: np.ndarray
    errors: np.ndarray
    gain: float
    gain_interval: tuple[float, float]
    scoring: str
    values: np.ndarray | None = None
    n_rows: np.ndarray | None = None
    units: np.ndarray | None = None

    @property
    def still_rises(self) -> bool:
        """Whether the last increase is statistically significant: more queries would help."""
        return self.gain_interval[0] > 0

    @property
    def is_level(self) -> bool:
        """Whether the last increase is below 0.01, as far as its interval reaches; if neither, that is open."""
        return self.gain_interval[1] < _SMALL

    def extend(self, n_queries: Any = None) -> Extension:
        """The predicted score with more queries, by a power law through the points.

        Parameters
        ----------
        n_queries : int or array-like of int, optional
            Ten times the last point by default.

        Returns
        -------
        Extension

        Raises
        ------
        ValueError
            With fewer than three points, or without ``values``.

        Examples
        --------
        >>> import numpy as np
        >>> n, rng = np.array([25, 50, 100, 200]), np.random.default_rng(0)
        >>> values = (0.9 - 0.8 * n**-0.5)[:, None] + 0.05 * rng.normal(size=60)
        >>> curve = LearningCurve(n, values.mean(axis=1), 0 * n, 0.0, (0.0, 0.0), "concordance", values)
        >>> found = curve.extend(2000)
        >>> bool(abs(found.scores[0] - (0.9 - 0.8 * 2000**-0.5)) < 0.02), bool(found.low[0] < found.high[0])
        (True, True)
        """
        if self.values is None or self.n_queries.shape[0] < _LEAST_POINTS:
            raise ValueError(
                f"A learning curve is extended from {_LEAST_POINTS} points or more with the scores of their queries: "
                f"found {self.n_queries.shape[0]}{' without them' if self.values is None else ''}."
            )
        n_new = np.atleast_1d(10 * self.n_queries[-1] if n_queries is None else n_queries).astype(float)
        if not (n_new >= 1).all():
            raise ValueError(f"Numbers of queries must be at least 1: found {float(n_new.min()):g}.")
        codes = np.arange(self.values.shape[1]) if self.units is None else self.units
        counts, n_units = np.bincount(codes), int(codes.max()) + 1
        sums = np.stack([np.bincount(codes, weights=row) for row in self.values])
        drawn = np.random.default_rng(0).integers(n_units, size=(_DRAWS, n_units))
        means = self.values.mean(axis=1)[:, None]
        deviations = sums[:, drawn].sum(axis=2) / counts[drawn].sum(axis=1) - means
        means = np.column_stack([means, means + 2**0.5 * deviations])
        found = _power_law(self.n_queries.astype(float), means, n_new)
        low, high = np.quantile(found[:, 1:], [0.025, 0.975], axis=1)
        return Extension(n_new.astype(np.int64), found[:, 0], low, high)

    @property
    def extended_to_ten_times(self) -> Extension | None:
        """The power law from the first point to ten times the last one, for plotting; None where there is none."""
        if self.values is None or self.n_queries.shape[0] < _LEAST_POINTS:
            return None
        first, last = int(self.n_queries[0]), 10 * int(self.n_queries[-1])
        return self.extend(np.unique(np.geomspace(first, last, 30).round().astype(np.int64)))

    def __str__(self) -> str:
        table = self.shown_tables()[0]
        return "\n".join([*align_columns(table.rows), *table.notes])

    def shown_tables(self) -> list[ShownTable]:
        rows: list[tuple[str, ...]] = [("queries", self.scoring, "+/-")]
        rows += [
            (str(n), f"{score:.4f}", f"{error:.4f}")
            for n, score, error in zip(self.n_queries.tolist(), self.scores, self.errors)
        ]
        if self.n_rows is not None:
            column = ["rows", *(f"{n:,.0f}" for n in self.n_rows)]
            rows = [(row[0], one, *row[1:]) for row, one in zip(rows, column, strict=True)]
        low, high = self.gain_interval
        said = (
            "it has levelled off"
            if self.is_level
            else "these data leave open whether more queries would help"
        )
        said = "more queries would help" if self.still_rises else said
        tail = f"last step {self.gain:+.4f} ({low:+.4f} to {high:+.4f}): {said}"
        notes = [tail]
        if self.values is not None and self.n_queries.shape[0] >= _LEAST_POINTS:
            more = self.extend()
            notes.append(
                f"{more.n_queries[0]:,} queries: {more.scores[0]:.4f} ({more.low[0]:.4f} to {more.high[0]:.4f}) if it "
                "goes on as a power law"
            )
        return [ShownTable(rows, notes=notes)]

    @on_axes
    def plot(self, ax: Any) -> None:
        """The score over the number of training queries, with its interval."""
        from ..report.displays import LearningCurveDisplay

        LearningCurveDisplay.from_curve(self, ax=ax)


def learning_curve(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any,
    groups: Any = None,
    event: Any = None,
    sizes: Sequence[int] | None = None,
    n_splits: int = 3,
    scoring: str = "concordance",
    random_state: Any = 0,
) -> LearningCurve:
    """Train on more and more queries, measure on the same held-out ones.

    Parameters
    ----------
    estimator : estimator with ``fit(X, y, qid=qid)``
        Cloned for each training; a search chooses alpha each time.
    X : array or sparse matrix of shape (m, n)
    y : array-like of shape (m,)
    qid : array-like of shape (m,)
    groups : array-like of shape (m,), optional
        Labels of dependent rows (patients, documents): no fold shares one with its training rows. Queries of a group
        are in the same fold, and are added to the training one after the other.
    event : array-like of bool, shape (m,), optional
        Where y holds censored times, as in the fit of `RankRLS`; the concordance is then the C-index, in strata.
    sizes : sequence of int, optional
        Numbers of training queries. By default a tenth, a fifth, two fifths, seven tenths and all of what a fold
        leaves.
    n_splits : int, default=3
        Folds of queries.
    scoring : str, default="concordance"
        A measure by query, as of :func:`preflearn.metrics.get_scorer`.
    random_state : int, RandomState or None, default=0
        Seed for the assignment of queries to folds.

    Returns
    -------
    LearningCurve

    Notes
    -----
    n_splits trainings for each size.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.model_selection import learning_curve
    >>> X, y, qid, _ = load_demo()
    >>> curve = learning_curve(RankRLS(10.0), X, y, qid=qid)
    >>> curve.n_queries, curve.scores.shape
    (array([ 4,  8, 16, 28, 40]), (5,))
    """
    refuse_repeated_columns(X)
    X = X.tocsr() if sp.issparse(X) else np.asarray(X)
    y, events = read_times(y, event)
    y = np.asarray(y) if events is None else surv(y, events)
    queries = encode_queries(qid, y.shape[0])
    order, folds = curve_folds(qid, groups, y.shape[0], n_splits, random_state)
    most = queries.n_groups - max(map(len, folds))
    steps = _read_sizes(sizes, most)
    measure = get_scorer(scoring)
    values = np.full((len(steps), queries.n_groups), np.nan)
    n_rows = np.zeros(len(steps))
    for fold in folds:
        test = np.flatnonzero(np.isin(queries.codes, fold))
        others = [query for query in order.tolist() if query not in set(fold.tolist())]
        for step, n in enumerate(steps):
            train = np.flatnonzero(np.isin(queries.codes, others[:n]))
            n_rows[step] += train.size / len(folds)
            if (np.ptp(y[train]) == 0) if events is None else np.count_nonzero(events[train]) < 2:
                continue
            left_out = f"The part of the learning curve beyond {n} queries"
            f = refit_and_predict(
                estimator, X, y, queries.codes, train, test, held_out=left_out, groups=groups
            )
            codes = queries.codes[test]
            found = measure.per_query(y[test], f, codes)
            values[step, np.asarray(found.labels, dtype=np.int64)] = found.values
    known = ~np.isnan(values).any(axis=0)
    if known.sum() < 2:
        raise ValueError("Fewer than two held-out queries have a pair to order: there is no curve.")
    values = values[:, known]
    clusters = None
    if groups is not None:
        owners = units_of(qid, groups, y.shape[0]).codes[queries.order[queries.starts[:-1]]][known]
        clusters = encode_queries(owners, owners.size)
    spans = [_student(row, clusters) for row in values]
    gains = values[-1] - values[-2] if len(steps) > 1 else np.zeros(values.shape[1])
    return LearningCurve(
        np.array(steps),
        values.mean(axis=1),
        np.array([(high - low) / 2 for low, high in spans]),
        float(gains.mean()),
        _student(gains, clusters),
        scoring,
        values,
        n_rows,
        None if clusters is None else clusters.codes,
    )


def curve_folds(
    qid: Any, groups: Any, n_rows: int, n_splits: int, random_state: Any = 0
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The queries in the order in which they are learned from, and those of each fold; groups are not divided."""
    queries = encode_queries(qid, n_rows)
    if qid is None or queries.n_groups < _LEAST_QUERIES * n_splits:
        raise ValueError(
            f"A learning curve over queries needs qid with at least {_LEAST_QUERIES * n_splits} queries: found "
            f"{'none' if qid is None else queries.n_groups}."
        )
    units = queries if groups is None else units_of(qid, groups, n_rows)
    if units.n_groups < n_splits:
        raise InputError(
            f"A learning curve over {n_splits} folds of whole queries and groups needs at least as many of these: "
            f"found {units.n_groups} that share neither queries nor groups",
            Remedy("n_splits", units.n_groups),
        )
    unit_of_query = units.codes[queries.order[queries.starts[:-1]]]
    place = np.argsort(check_random_state(random_state).permutation(units.n_groups))[unit_of_query]
    order = np.argsort(place, kind="stable")
    return order, [order[place[order] % n_splits == k] for k in range(n_splits)]


def _read_sizes(sizes: Sequence[int] | None, most: int) -> list[int]:
    if sizes is None:
        return sorted({max(_LEAST_QUERIES, int(round(share * most))) for share in _SHARES})
    found = sorted({int(size) for size in sizes})
    if not found or found[0] < 1 or found[-1] > most:
        raise ValueError(
            f"sizes must lie between 1 and the {most} queries that a fold leaves: found {list(sizes)}."
        )
    return found


def _power_law(n: np.ndarray, scores: np.ndarray, n_new: np.ndarray) -> np.ndarray:
    """a - b n^-c at new n, for each column of scores the c whose a and b fit best; shape (k, columns).

    b is not negative, since more queries do not harm, and a at most 1.
    """
    best = np.full(scores.shape[1], np.inf)
    found = np.empty((n_new.shape[0], scores.shape[1]))
    for power in _POWERS:
        x, x_new = n**-power, n_new**-power
        x_mean, mean = x.mean(), scores.mean(axis=0)
        slope = np.minimum(0.0, (x - x_mean) @ (scores - mean) / ((x - x_mean) ** 2).sum())
        top = mean - slope * x_mean
        # A top above 1 is taken to 1, with the slope that then fits best.
        beyond = top > 1.0
        slope = np.where(beyond, np.minimum(0.0, x @ (scores - 1.0) / (x @ x)), slope)
        top = np.where(beyond, 1.0, top)
        error = ((scores - top - slope * x[:, None]) ** 2).sum(axis=0)
        better = error < best
        best = np.where(better, error, best)
        found = np.where(better, top + slope * x_new[:, None], found)
    return found


def _student(values: np.ndarray, clusters: Groups | None) -> tuple[float, float]:
    """95 % interval of the mean; values of a group depend on each other."""
    n = values.size if clusters is None else clusters.n_groups
    half = float(student.ppf(0.975, n - 1) * mean_interval(values, clusters)[0] ** 0.5)
    return float(values.mean()) - half, float(values.mean()) + half
