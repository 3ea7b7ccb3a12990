r"""How well would a learner order rows it has not seen? AUC and concordance by cross-validation, with an interval.

Three ways to make one number of held-out predictions, H being 1 for a pair ordered as y is, 1/2 for a tied one:

    pooled          mean of H(f₋U(x_i) - f₋V(x_j)) over all pairs, i in fold U and j in fold V
    averaged        mean of H(f₋U(x_i) - f₋U(x_j)) over the pairs inside a fold
    leave-pair-out  mean of H(f₋ij(x_i) - f₋ij(x_j)) over all pairs, each held out by itself

Pooling compares predictions of different models and is biased downwards. Averaging uses few of the pairs and varies
much on small data. Leave-pair-out uses all pairs and compares only predictions of one model.

References
----------
A. Airola, T. Pahikkala, W. Waegeman, B. De Baets, T. Salakoski. An experimental comparison of cross-validation
techniques for estimating the area under the ROC curve. Computational Statistics & Data Analysis 55 (2011), 1828-1844.
I. Montoya Perez et al. Tournament leave-pair-out cross-validation for receiver operating characteristic analysis.
Statistical Methods in Medical Research 28 (2019), 2975-2991.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import roc_curve
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import _safe_split

from ..comparisons import Groups, encode_queries, one_group
from ..kernels.functions import n_items
from ..solvers.progress import Counter
from .cross_validation import scores_to_compare
from .intervals import mean_interval, placement_variance, wilson_interval
from .pairs import leave_pair_out_tally, pairs_to_compare
from .performance import PerformanceEstimate, RocCurve
from .splitters import QueryKFold
from .tally import PairTally, tally_pairs, tally_scores, winners

_DEFAULT_SPLITS = 10
_DEFAULT_HALVINGS = 10
_METHODS = ("leave-pair-out", "averaged", "pooled")
_QUERY_METHODS = ("leave-query-out", "averaged")
# A tournament keeps two predictions of every pair of rows: beyond this many pairs (4,473 rows) there is none.
_TOURNAMENT_PAIRS = 10_000_000

_SCORES_AS_GIVEN = (
    "from the placement values of the rows (DeLong), in Wilson's form. It takes the trained models as given: it covers "
    "the luck of the test rows but not that of the training rows, and is too narrow where models vary much"
)


def estimate_auc(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    method: str = "leave-pair-out",
    n_splits: int = _DEFAULT_SPLITS,
    random_state: Any = None,
    groups: Any = None,
    n_halvings: int = _DEFAULT_HALVINGS,
    verbose: int = 0,
) -> PerformanceEstimate:
    """Area under the ROC curve on unseen rows, with a 95 % interval.

    Parameters
    ----------
    estimator : estimator
        Any that has predict, decision_function or predict_proba; not modified. `RLS` and `RankRLS` are held out by
        algebra, others are refitted.
    X : as in the estimator's fit
    y : array-like of shape (m,)
        Two different values; the larger marks the positive rows.
    method : {"leave-pair-out", "averaged", "pooled"}, default="leave-pair-out"
        Each pair of a positive and a negative row held out by itself; pairs inside stratified folds; or all pairs,
        across folds, which is biased downwards.
    n_splits : int, default=10
        Folds of "averaged" and "pooled", and of the pooled number that leave-pair-out prints beside its own.
    random_state : int, RandomState or None
        For the folds, and for the halves that the interval of leave-pair-out is made from.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (patients, documents): all rows that share a group with a test row leave the training
        with it, and the interval takes groups, not rows, as independent.
    n_halvings : int, default=10
        Random divisions into halves for the interval of leave-pair-out; 0 for the quick interval that takes the models
        as given. Where the estimator has to be refitted, each costs half as many trainings as the estimate itself.
    verbose : int, default=0
        Report progress on standard error.

    Returns
    -------
    PerformanceEstimate
        ``value``, ``interval``, ``method``, ``n_pairs``, ``roc`` and more; prints and plots itself.

    Raises
    ------
    ValueError
        If y does not have two classes of at least two rows, or the folds would lack a class, or an option would be
        ignored.

    Notes
    -----
    Leave-pair-out costs O(m²) after one factorisation for `RLS` and `RankRLS`, and a training per pair otherwise.
    Averages weigh folds by their number of pairs. The ROC curve of leave-pair-out ranks rows by the pairs that they win
    in a tournament of all pairs. See `preflearn.model_selection.intervals` for the interval and why it holds.

    References
    ----------
    Airola et al., Computational Statistics & Data Analysis 55 (2011), 1828-1844.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RLS
    >>> from preflearn.model_selection import estimate_auc
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 20)
    >>> X = rng.normal(size=(40, 5)) + 0.8 * y[:, None] * [1, 1, 0, 0, 0]
    >>> result = estimate_auc(RLS(), X, y, random_state=0)
    >>> result.n_pairs, result.interval[0] < result.value < result.interval[1]
    (400, True)
    """
    labels, positive = _read_classes(y, n_items(X))
    data = _Data(estimator, X, labels, positive, "AUC", groups, verbose)
    _refuse_unknown(method, _METHODS)
    _refuse_ignored(method, n_splits, n_halvings)
    data.require_classes(method)
    return _estimate(data, method, _read_splits(n_splits), random_state, _read_halvings(n_halvings))


def estimate_concordance(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    method: str | None = None,
    n_splits: int = _DEFAULT_SPLITS,
    random_state: Any = None,
    groups: Any = None,
    n_halvings: int = _DEFAULT_HALVINGS,
    verbose: int = 0,
) -> PerformanceEstimate:
    """Concordance on unseen rows, or in unseen queries, with a 95 % interval.

    Without ``qid`` the rows are one global ranking, and the question is how a new pair of rows would be ordered. With
    ``qid`` it is how the rows of a new query would be: whole queries are held out, and the value is the mean over
    queries.

    Parameters
    ----------
    estimator, X, random_state, groups, verbose : as in `estimate_auc`
    y : array-like of shape (m,)
        Scores, higher is better.
    qid : array-like of shape (m,), optional
        The query of each row.
    method : str, optional
        Without qid "leave-pair-out" (the default), "averaged" or "pooled". With qid "leave-query-out" (the default), or
        "averaged" over n_splits folds of whole queries; pooling would be the same, since rows of different queries are
        not compared.
    n_splits : int, default=10
        Folds of "averaged" and "pooled", and of the pooled number that leave-pair-out prints beside its own.
    n_halvings : int, default=10
        For leave-pair-out, as in `estimate_auc`.

    Returns
    -------
    PerformanceEstimate

    Notes
    -----
    With qid the interval is Student's over the queries, which are independent trials.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.model_selection import estimate_concordance
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(120, 3)), np.repeat(np.arange(12), 10)
    >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=120) + 5 * qid
    >>> estimate_concordance(RankRLS(), X, y, qid=qid)
    PerformanceEstimate(concordance 0.8..., method='leave-query-out', n_pairs=540)
    """
    n_rows = n_items(X)
    labels = _read_scores(y, n_rows)
    data = _Data(estimator, X, labels, labels, "concordance", groups, verbose)
    if qid is not None:
        method = "leave-query-out" if method is None else method
        _refuse_query_method(method)
        _refuse_ignored(method, n_splits, n_halvings)
        return _estimate_queries(
            data, encode_queries(qid, n_rows), qid, method, _read_splits(n_splits), random_state
        )
    method = "leave-pair-out" if method is None else method
    if method == "leave-query-out":
        raise ValueError("method='leave-query-out' needs the query of each row: pass qid=...")
    _refuse_unknown(method, _METHODS)
    _refuse_ignored(method, n_splits, n_halvings)
    return _estimate(data, method, _read_splits(n_splits), random_state, _read_halvings(n_halvings))


# -------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class _Data:
    """An estimator with its rows.

    ``y`` is what it learns from, ``order`` what decides which row of a pair is the better one.
    """

    estimator: Any
    X: Any
    y: np.ndarray
    order: np.ndarray
    measure: str
    groups: Any
    verbose: int

    @property
    def n_rows(self) -> int:
        return self.y.shape[0]

    @property
    def owners(self) -> Groups | None:
        return None if self.groups is None else encode_queries(self.groups, self.n_rows)

    @property
    def values(self) -> np.ndarray:
        return np.unique(self.order)

    @property
    def classes(self) -> np.ndarray:
        """The class of each row where y has two values, zeros otherwise: the strata of the interval."""
        values = self.values
        if values.shape[0] != 2:
            return np.zeros(self.n_rows, dtype=np.int64)
        return (self.order == values[1]).astype(np.int64)

    def take(self, rows: np.ndarray) -> _Data:
        X, y = _safe_split(self.estimator, self.X, self.y, rows)
        groups = None if self.owners is None else self.owners.codes[rows]
        return _Data(
            _for_rows(self.estimator, rows, self.n_rows),
            X,
            y,
            self.order[rows],
            self.measure,
            groups,
            self.verbose,
        )

    def require_classes(self, method: str) -> None:
        if method == "leave-pair-out" and not self.can_leave_pairs():
            raise ValueError(
                "leave-pair-out with groups would leave a class without training rows: each class must be found "
                "outside of any two groups. Check that groups are small, or use method='averaged' with few folds."
            )

    def can_leave_pairs(self) -> bool:
        """Whether a pair, with its groups, can leave so that both classes stay in the training rows."""
        values = self.values
        if self.n_rows < 4 or values.shape[0] < 2:
            return False
        if values.shape[0] > 2:
            return self.owners is None or self.owners.n_groups >= 4
        if self.owners is None:
            return min(np.bincount(self.classes)) >= 2
        low, high = (set(self.owners.codes[self.classes == k].tolist()) for k in (0, 1))
        return all(
            len(own) > 2 or (len(own) == 2 and not own & other) for own, other in ((low, high), (high, low))
        )

    @property
    def possible_pairs(self) -> int:
        """Pairs of rows with different y."""
        counts = np.unique(self.order, return_counts=True)[1].astype(float)
        return int((self.n_rows**2 - counts @ counts) / 2)

    @property
    def max_effective(self) -> float:
        """The most independent pairs that the rows, or their groups, can be worth."""
        pairs = 4.0 * self.possible_pairs / self.n_rows
        return pairs if self.owners is None else pairs * self.owners.n_groups / self.n_rows


def _for_rows(estimator: Any, rows: np.ndarray, n_rows: int) -> Any:
    """The estimator for some of the rows: a reduced set keeps its share of them, or its basis vectors among them."""
    parameters = estimator.get_params(deep=False)
    basis, n_basis = parameters.get("basis"), parameters.get("n_basis")
    if basis is not None and not isinstance(basis, str):
        kept = np.flatnonzero(np.isin(rows, basis))
        return clone(estimator).set_params(basis=kept if kept.size else np.array([0]), n_basis=None)
    if isinstance(n_basis, Integral) and not isinstance(n_basis, bool):
        return clone(estimator).set_params(n_basis=max(1, round(int(n_basis) * rows.shape[0] / n_rows)))
    return estimator


# -------------------------------------------------------------------------------------------- global rankings


def _estimate(
    data: _Data, method: str, n_splits: int, random_state: Any, n_halvings: int
) -> PerformanceEstimate:
    random = check_random_state(random_state)
    if method == "leave-pair-out":
        return _leave_pair_out(data, random, n_splits, n_halvings)
    _require_folds(data, method, n_splits)
    folds = _deal(data, n_splits, random)
    if method == "averaged":
        _require_both_classes(data, folds)
    scores = _predict(data, folds, across=method == "pooled")
    if method == "averaged":
        tally = tally_scores(data.order, scores, folds)
        compared = f"{tally.n_pairs} pairs inside {folds.n_groups} folds, {_folds_of(data)}; folds weigh by their pairs"
        roc = None
    else:
        tally = tally_scores(data.order, scores, one_group(data.n_rows))
        compared = f"all {tally.n_pairs} pairs, inside and across {folds.n_groups} folds, {_folds_of(data)}"
        roc = _roc(data, scores)
    variance = placement_variance(tally, data.classes, data.owners)
    return PerformanceEstimate(
        value=tally.share,
        interval=wilson_interval(tally.share, variance, data.max_effective),
        method=method,
        n_pairs=tally.n_pairs,
        measure=data.measure,
        n_rows=data.n_rows,
        standard_error=float(np.sqrt(variance)),
        compared=compared,
        interval_method=_SCORES_AS_GIVEN,
        per_fold=_share_per_group(tally_scores(data.order, scores, folds), folds),
        per_row=_share_per_row(tally),
        roc=roc,
    )


def _leave_pair_out(
    data: _Data, random: np.random.RandomState, n_splits: int, n_halvings: int
) -> PerformanceEstimate:
    tally, tournament = _hold_out_pairs(data)
    variance = placement_variance(tally, data.classes, data.owners)
    halves = _halves(data, random, n_halvings)
    if halves:
        variance = max(variance, float(np.mean([(one - other) ** 2 for one, other in halves])) / 4)
    pairs = f"{tally.n_pairs} pairs of {data.n_rows} rows"
    if data.measure == "AUC":
        n_negative, n_positive = np.bincount(data.classes)
        pairs = f"{tally.n_pairs} pairs ({n_positive} positive × {n_negative} negative rows)"
    without = "the rows of both groups" if data.groups is not None else "its two rows"
    return PerformanceEstimate(
        value=tally.share,
        interval=wilson_interval(tally.share, variance, data.max_effective),
        method="leave-pair-out",
        n_pairs=tally.n_pairs,
        measure=data.measure,
        n_rows=data.n_rows,
        standard_error=float(np.sqrt(variance)),
        compared=f"{pairs}, each ordered by a model trained without {without}",
        interval_method=_interval_text(len(halves), n_halvings, data),
        per_row=_share_per_row(tally),
        roc=None if tournament is None else _roc(data, tournament),
        tournament=tournament,
        pooled=_pooled_beside(data, random, n_splits),
        pooled_folds=n_splits,
    )


def _interval_text(n_done: int, n_asked: int, data: _Data) -> str:
    if n_done:
        unit = "groups" if data.groups is not None else "rows"
        return (
            f"from {n_done} random divisions of the {unit} into halves, in Wilson's form. The halves of a division are "
            "independent data sets, so the spread between their own leave-pair-out estimates covers the luck of the "
            "training rows as well as that of the test rows"
        )
    why = "" if n_asked == 0 else " (there are too few rows to divide into halves)"
    return _SCORES_AS_GIVEN + why


def _hold_out_pairs(data: _Data) -> tuple[PairTally, np.ndarray | None]:
    """Wins of each row over rows of other y, and for an AUC its wins over all rows."""
    m = data.n_rows
    if data.measure != "AUC" or m * (m - 1) // 2 > _TOURNAMENT_PAIRS:
        return _tally(data), None
    pairs = np.stack(np.triu_indices(m, 1), axis=1)
    pairs, predictions = pairs_to_compare(
        data.estimator, data.X, data.y, pairs=pairs, groups=data.groups, verbose=data.verbose
    )
    untied = data.order[pairs[:, 0]] != data.order[pairs[:, 1]]
    won = winners(predictions)
    tournament = sum(
        np.bincount(pairs[:, k], weights=0.5 + sign * 0.5 * won, minlength=m) for k, sign in ((0, 1), (1, -1))
    )
    tally = tally_pairs(data.order, pairs[untied], predictions[untied])
    return tally, np.asarray(tournament)


def _tally(data: _Data) -> PairTally:
    if data.n_rows**2 // 2 > _TOURNAMENT_PAIRS:
        return leave_pair_out_tally(data.estimator, data.X, data.y, groups=data.groups, verbose=data.verbose)
    pairs, predictions = pairs_to_compare(
        data.estimator, data.X, data.y, groups=data.groups, verbose=data.verbose
    )
    return tally_pairs(data.order, pairs, predictions)


def _halves(data: _Data, random: np.random.RandomState, n_halvings: int) -> list[tuple[float, float]]:
    """Leave-pair-out estimates inside the two halves of random divisions; none where halves are too small."""
    found = []
    counter = Counter("interval", n_halvings, "divisions", data.verbose)
    for number in range(n_halvings):
        division = _deal(data, 2, random)
        halves = [data.take(division.rows(half)) for half in (0, 1)] if division.n_groups == 2 else []
        if not halves or not all(half.can_leave_pairs() for half in halves):
            return []
        one, other = (_tally(half).share for half in halves)
        found.append((one, other))
        counter(number + 1)
    return found


def _pooled_beside(data: _Data, random: np.random.RandomState, n_splits: int) -> float | None:
    """What pooling the folds would say; None where they would leave a class without training rows."""
    n_units = data.n_rows if data.owners is None else data.owners.n_groups
    folds = _deal(data, min(n_splits, n_units), random)
    everything = set(np.unique(data.classes).tolist())
    for fold in range(folds.n_groups):
        if set(np.unique(data.classes[folds.codes != fold]).tolist()) != everything:
            return None
    return tally_scores(data.order, _predict(data, folds, across=True), one_group(data.n_rows)).share


def _predict(data: _Data, folds: Groups, *, across: bool) -> np.ndarray:
    tests = [folds.rows(fold) for fold in range(folds.n_groups)]
    scores = scores_to_compare(
        data.estimator, data.X, data.y, cv=tests, groups=data.groups, across=across, verbose=data.verbose
    )
    if scores.shape != (data.n_rows,):
        raise ValueError(
            f"{type(data.estimator).__name__} gives predictions of shape {scores.shape}: expected one score per row."
        )
    return scores


def _roc(data: _Data, scores: np.ndarray) -> RocCurve | None:
    if data.measure != "AUC":
        return None
    fpr, tpr, _ = roc_curve(data.classes, scores)
    return RocCurve(fpr, tpr)


def _share_per_group(tally: PairTally, owners: Groups) -> np.ndarray:
    wins = np.bincount(owners.codes, weights=tally.wins, minlength=owners.n_groups)
    pairs = np.bincount(owners.codes, weights=tally.pairs, minlength=owners.n_groups)
    with np.errstate(invalid="ignore"):
        return wins / pairs


def _share_per_row(tally: PairTally) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return tally.wins / tally.pairs


# ------------------------------------------------------------------------------------------------- the folds


def _deal(data: _Data, n_splits: int, random: np.random.RandomState) -> Groups:
    """Rows, or whole groups, dealt out to folds so that each gets its share of every class (or level of y)."""
    if data.owners is None:
        strata = _strata(data.order, n_splits, random)
        order = np.lexsort((random.permutation(data.n_rows), strata))
        codes = np.empty(data.n_rows, dtype=np.int64)
        codes[order] = np.arange(data.n_rows) % n_splits
        return Groups(codes, n_splits)
    if data.owners.n_groups < n_splits:
        raise ValueError(
            f"{n_splits} folds of whole groups need at least {n_splits} groups: found {data.owners.n_groups}. "
            "Use a smaller n_splits."
        )
    blank, seed = np.zeros((data.n_rows, 1)), random.randint(2**31)
    codes = np.empty(data.n_rows, dtype=np.int64)
    if data.values.shape[0] == 2:
        with warnings.catch_warnings():
            # A class with fewer rows than folds is dealt out as well as can be; callers check what they need.
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            splits = list(
                StratifiedGroupKFold(n_splits, shuffle=True, random_state=seed).split(
                    blank, data.classes, data.owners.codes
                )
            )
    else:
        splits = list(
            QueryKFold(n_splits, shuffle=True, random_state=seed).split(blank, qid=data.owners.codes)
        )
    for fold, (_, test) in enumerate(splits):
        codes[test] = fold
    kept, codes = np.unique(codes, return_inverse=True)
    return Groups(codes.astype(np.int64), kept.shape[0])


def _strata(order: np.ndarray, n_splits: int, random: np.random.RandomState) -> np.ndarray:
    """Rows that should be spread evenly: those of equal y where each has many, else runs of n_splits rows by y."""
    values, codes, counts = np.unique(order, return_inverse=True, return_counts=True)
    if values.shape[0] == 2 or counts.min() >= n_splits:
        return codes
    place = np.empty(order.shape[0], dtype=np.int64)
    tie_breaker = random.permutation(order.shape[0])
    place[np.lexsort((tie_breaker, order))] = np.arange(order.shape[0])
    return place // n_splits


def _folds_of(data: _Data) -> str:
    spread = "stratified by class" if data.measure == "AUC" else "stratified by y"
    if data.owners is None:
        return spread
    return "of whole groups" + (" stratified by class" if data.measure == "AUC" else "")


def _require_folds(data: _Data, method: str, n_splits: int) -> None:
    if n_splits > data.n_rows:
        raise ValueError(f"n_splits={n_splits} is more than the {data.n_rows} rows: use a smaller n_splits.")
    if method != "averaged":
        return
    if data.measure == "AUC":
        smallest = int(np.bincount(data.classes).min())
        if smallest < n_splits:
            raise ValueError(
                f"averaged folds need a row of each class in every fold: the smaller class has {smallest} rows for "
                f"{n_splits} folds. Use n_splits={smallest} or less, or method='leave-pair-out'."
            )
    elif n_splits > data.n_rows // 2:
        raise ValueError(
            f"averaged folds need two rows or more each: found {data.n_rows} rows for {n_splits} folds. "
            "Use a smaller n_splits, or method='leave-pair-out'."
        )


def _require_both_classes(data: _Data, folds: Groups) -> None:
    pairs = tally_scores(data.order, np.zeros(data.n_rows), folds).pairs
    if data.measure == "AUC" and (np.bincount(folds.codes, weights=pairs) == 0).any():
        raise ValueError(
            "a fold of whole groups has rows of one class only. Use a smaller n_splits, or method='leave-pair-out'."
        )
    if not pairs.any():
        raise ValueError(
            "no fold has two rows with different y. Use a smaller n_splits, or 'leave-pair-out'."
        )


# --------------------------------------------------------------------------------------------------- queries


def _estimate_queries(
    data: _Data, queries: Groups, qid: Any, method: str, n_splits: int, random_state: Any
) -> PerformanceEstimate:
    if queries.n_groups < 2:
        raise ValueError(
            "qid names one query: whole queries are held out, so there must be two or more. Leave qid out for a "
            "global ranking."
        )
    if method == "averaged":
        cv: Any = QueryKFold(
            n_splits, shuffle=True, random_state=check_random_state(random_state).randint(2**31)
        )
    else:
        cv = "leave-query-out"
    scores = scores_to_compare(
        data.estimator, data.X, data.y, qid=qid, cv=cv, groups=data.groups, verbose=data.verbose
    )
    tally = tally_scores(data.order, scores, queries)
    per_query = _share_per_group(tally, queries)
    counted = np.flatnonzero(~np.isnan(per_query))
    if counted.size == 0:
        raise ValueError("no query has two rows with different y: there is nothing to compare.")
    clusters = _groups_of_queries(data.owners, queries, counted)
    variance, interval = mean_interval(per_query[counted], clusters)
    folds = "each query held out" if method == "leave-query-out" else f"{n_splits} folds of whole queries"
    independent = "queries" if clusters is None else f"{clusters.n_groups} groups of queries"
    return PerformanceEstimate(
        value=float(per_query[counted].mean()),
        interval=interval,
        method=method,
        n_pairs=tally.n_pairs,
        measure=data.measure,
        n_rows=data.n_rows,
        standard_error=float(np.sqrt(variance)),
        compared=f"{tally.n_pairs} pairs inside {counted.size} queries, {folds}; queries weigh the same",
        interval_method=f"Student's t over the {independent}, taken as independent trials",
        per_fold=per_query,
        per_row=_share_per_row(tally),
    )


def _groups_of_queries(owners: Groups | None, queries: Groups, counted: np.ndarray) -> Groups | None:
    """The group of each counted query, where every query lies in one group."""
    if owners is None:
        return None
    first = owners.codes[queries.order[queries.starts[:-1]]]
    if (owners.codes != first[queries.codes]).any():
        return None
    return encode_queries(first[counted], counted.size)


# ------------------------------------------------------------------------------------------- what was asked for


def _read_classes(y: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """What the estimator learns from, and 1.0 for the rows of the larger class."""
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"y must hold one class per row: found shape {labels.shape} for {n_rows} rows.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("y contains NaN or infinity: leave out the rows whose class is not known.")
    values, codes = np.unique(labels, return_inverse=True)
    if values.shape[0] != 2:
        raise ValueError(
            f"AUC needs two classes: y holds {values.shape[0]} different values. "
            + ("For graded or real y use estimate_concordance." if values.shape[0] > 2 else "")
        )
    counts = np.bincount(codes)
    if counts.min() < 2:
        raise ValueError(
            f"AUC by cross-validation needs two rows of each class or more, one to hold out and one to train on: found "
            f"{counts[0]} of {values[0]!r} and {counts[1]} of {values[1]!r}."
        )
    positive = codes.astype(float)
    return (labels.astype(float) if labels.dtype.kind in "iuf" else positive), positive


def _read_scores(y: Any, n_rows: int) -> np.ndarray:
    scores = np.asarray(y, dtype=float)
    if scores.shape != (n_rows,):
        raise ValueError(f"y must hold one score per row: found shape {scores.shape} for {n_rows} rows.")
    if not np.isfinite(scores).all():
        raise ValueError("y contains NaN or infinity: leave out the rows whose score is not known.")
    if (scores == scores[:1]).all():
        raise ValueError("all y are equal: there is no pair to order.")
    return scores


def _refuse_unknown(method: str, known: tuple[str, ...]) -> None:
    if method not in known:
        raise ValueError(f"method must be one of {', '.join(map(repr, known))}: found {method!r}.")


def _refuse_query_method(method: str) -> None:
    if method == "leave-pair-out":
        raise ValueError(
            "method='leave-pair-out' is for a global ranking: with qid, the other rows of a query would stay in the "
            "training while two of them are tested. Use 'leave-query-out' (or leave qid out)."
        )
    if method == "pooled":
        raise ValueError(
            "method='pooled' is the same as 'averaged' with qid, since rows of different queries are not compared: use "
            "'averaged' or 'leave-query-out'."
        )
    _refuse_unknown(method, _QUERY_METHODS)


def _refuse_ignored(method: str, n_splits: Any, n_halvings: Any) -> None:
    if method == "leave-query-out" and n_splits != _DEFAULT_SPLITS:
        raise ValueError(f"n_splits={n_splits!r} would be ignored by method={method!r}: leave it out.")
    if method != "leave-pair-out" and n_halvings != _DEFAULT_HALVINGS:
        raise ValueError(f"n_halvings={n_halvings!r} would be ignored by method={method!r}: leave it out.")


def _read_splits(n_splits: Any) -> int:
    return _read_int(n_splits, "n_splits", 2)


def _read_halvings(n_halvings: Any) -> int:
    return _read_int(n_halvings, "n_halvings", 0)


def _read_int(value: Any, name: str, least: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}: found {value!r}.")
    return int(value)
