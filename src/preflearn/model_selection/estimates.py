r"""How well would a learner order rows that it has not seen? AUC and concordance by cross-validation, with an interval.

Three ways to get one number from held-out predictions, H being 1 for a pair ordered as y is, 1/2 for a tied one:

    pooled          mean of H(f₋U(x_i) - f₋V(x_j)) over all pairs, i in fold U and j in fold V
    averaged        mean of H(f₋U(x_i) - f₋U(x_j)) over the pairs inside a fold
    leave-pair-out  mean of H(f₋ij(x_i) - f₋ij(x_j)) over all pairs, each held out by itself

Pooling compares predictions of different models and is biased downwards. Averaging uses few of the pairs and has a high
variance on small data. Leave-pair-out uses all pairs and compares only predictions of one model.

References
----------
A. Airola, T. Pahikkala, W. Waegeman, B. De Baets, T. Salakoski. An experimental comparison of cross-validation
techniques for estimating the area under the ROC curve. Computational Statistics & Data Analysis 55 (2011), 1828-1844.
I. Montoya Perez et al. Tournament leave-pair-out cross-validation for receiver operating characteristic analysis.
Statistical Methods in Medical Research 28 (2019), 2975-2991.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.metrics import roc_curve
from sklearn.utils import check_random_state

from ..comparisons import Groups, encode_queries, one_group
from ..comparisons.censored import lived_longer
from ..comparisons.inputs import read_times, surv
from ..kernels.functions import n_items
from ..numerics.namespace import as_host
from ..numerics.threads import n_threads
from ..squared.routes import in_words
from ._held_out import HeldOut
from ._intervals import (
    TRAINED_TOGETHER,
    groups_of_queries,
    interval_inside_folds,
    interval_of_one_ranking,
    interval_over_queries,
    optimism,
    placement_values,
    scarce_labels,
)
from ._performance import C_INDEX, PerformanceEstimate, RocCurve
from ._refitting import LONG, RefittedProblem, refit_and_predict
from ._splitters import QueryKFold
from ._tally import PairTally, tally_pairs, tally_scores, winners

_DEFAULT_SPLITS = 10
_METHODS = ("leave-pair-out", "averaged", "pooled")
_QUERY_METHODS = ("leave-query-out", "averaged")
# A tournament stores two predictions of every pair of rows; it is left out above this number of pairs (4,473 rows).
_TOURNAMENT_PAIRS = 10_000_000
# Rows of censored times up to which every pair is left out by default, each a training of its own.
_MOST_CENSORED = 150
# Pairs that are drawn to estimate an optimism.
_SAMPLE_PAIRS = 200_000

_SCORES_AS_GIVEN = (
    "from the placement values of the rows (DeLong), in Wilson's form. It takes the trained models as given: it covers "
    "the luck of the test rows but not that of the training rows, and is too narrow where models vary much"
)
# With fewer rows of a class an interval is only a rough guide.
_FEW_OF_A_CLASS = 5


def estimate_auc(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    method: str | None = None,
    n_splits: int = _DEFAULT_SPLITS,
    random_state: Any = None,
    groups: Any = None,
    verbose: int = 0,
) -> PerformanceEstimate:
    """Area under the ROC curve on unseen rows, with a 95 % interval.

    Parameters
    ----------
    estimator : estimator
        Any estimator with predict, decision_function or predict_proba; not modified. `RLS` and `RankRLS` are held out
        by algebra, others are refitted.
    X : as in the estimator's fit
    y : array-like of shape (m,)
        Two different values; the larger marks the positive rows.
    method : {"leave-pair-out", "averaged", "pooled"}, optional
        Each pair of a positive and a negative row held out by itself; pairs inside stratified folds; or all pairs,
        across folds, which is biased downwards. By default "leave-pair-out", or "averaged" where the pairs would take
        more than a minute of refitting, by the time of one; the result then says so.
    n_splits : int, default=10
        Folds of "averaged" and "pooled", and of the pooled estimate that leave-pair-out prints for comparison.
    random_state : int, RandomState or None
        For the folds.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (patients, documents): all rows that share a group with a test row leave the training
        with it, and the interval takes groups, not rows, as independent.
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
    in a tournament of all pairs. See `preflearn.model_selection._intervals` for the interval and why it holds.

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
    _refuse_unknown(method or _METHODS[0], _METHODS)
    data.require_classes(method)
    return _estimate(data, method, _read_splits(n_splits), random_state)


def estimate_concordance(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    event: Any = None,
    method: str | None = None,
    n_splits: int = _DEFAULT_SPLITS,
    random_state: Any = None,
    groups: Any = None,
    verbose: int = 0,
) -> PerformanceEstimate:
    """Concordance on unseen rows, or in unseen queries, with a 95 % interval.

    Without ``qid`` the rows are one global ranking, and the question is how a new pair of rows would be ordered. With
    ``qid`` it is how the rows of a new query would be ordered: whole queries are held out, and the value is the mean
    over queries.

    Parameters
    ----------
    estimator, X, random_state, groups, verbose : as in `estimate_auc`
    y : array-like of shape (m,)
        Scores, higher is better.
    qid : array-like of shape (m,), optional
        The query of each row.
    event : array-like of bool, shape (m,), optional
        Where y holds censored times, as in the fit of `RankRLS`: the value is the C-index, and queries are strata.
        Every pair takes a training of its own, so that beyond 150 rows the default without qid is "averaged".
    method : str, optional
        Without qid "leave-pair-out" (the default, but for long refitting, as in `estimate_auc`), "averaged" or
        "pooled". With qid "leave-query-out" (the default), or
        "averaged" over n_splits folds of whole queries; pooling would be the same, since rows of different queries are
        not compared.
    n_splits : int, default=10
        Folds of "averaged" and "pooled", and of the pooled estimate that leave-pair-out prints for comparison.

    Returns
    -------
    PerformanceEstimate

    Notes
    -----
    With qid the interval is Student's over the queries, widened because their models share nearly all training rows;
    see `preflearn.model_selection._intervals`. It costs one additional training.

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
    times, events = read_times(y, event)
    labels = _read_scores(times, n_rows)
    data = _Data(estimator, X, labels, labels, "concordance", groups, verbose)
    if events is not None:
        order = lived_longer(times, events) * 1.0
        data = replace(data, y=surv(times, events), order=order, measure=C_INDEX, events=events)
        if method is None and qid is None and n_rows > _MOST_CENSORED:
            method = "averaged"
    if qid is not None:
        method = "leave-query-out" if method is None else method
        _refuse_query_method(method)
        if method == "leave-query-out" and n_splits != _DEFAULT_SPLITS:
            raise ValueError(f"n_splits={n_splits!r} would be ignored by method={method!r}: leave it out.")
        return _estimate_queries(
            data, encode_queries(qid, n_rows), qid, method, _read_splits(n_splits), random_state
        )
    if method == "leave-query-out":
        raise ValueError("method='leave-query-out' needs the query of each row: pass qid=...")
    _refuse_unknown(method or _METHODS[0], _METHODS)
    return _estimate(data, method, _read_splits(n_splits), random_state)


# -------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class _Data:
    """An estimator with its rows.

    ``y`` is what it learns from, ``order`` decides which row of a pair is the better one.
    """

    estimator: Any
    X: Any
    y: np.ndarray
    order: np.ndarray
    measure: str
    groups: Any
    verbose: int
    events: np.ndarray | None = None

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

    @property
    def scarce(self) -> np.ndarray:
        """The labels that limit what is known."""
        return scarce_labels(self.order, self.events)

    def require_classes(self, method: str | None) -> None:
        if method == "leave-pair-out" and not self.can_leave_pairs():
            raise ValueError(
                "leave-pair-out with groups would leave a class without training rows: each class must be found "
                "outside any two groups. Check that groups are small, or use method='averaged' with few folds."
            )

    def can_leave_pairs(self) -> bool:
        """Whether a pair can leave with its groups so that both classes stay in the training rows."""
        values = self.values
        if self.n_rows < 4 or values.shape[0] < 2:
            return False
        if values.shape[0] > 2:
            return self.owners is None or self.owners.n_groups >= 4
        if self.owners is None:
            return bool(np.bincount(self.classes).min() >= 2)
        low, high = (set(self.owners.codes[self.classes == k].tolist()) for k in (0, 1))
        return all(
            len(own) > 2 or (len(own) == 2 and not own & other) for own, other in ((low, high), (high, low))
        )

    def fitted(self, qid: Any = None) -> np.ndarray:
        """What the model trained on all rows predicts for them; takes one training."""
        every = np.arange(self.n_rows)
        return refit_and_predict(self.estimator, self.X, self.y, qid, every, every, groups=self.groups)

    @property
    def counted(self) -> str:
        """How many there are of what: groups, rows."""
        groups = "" if self.owners is None else f"{self.owners.n_groups:,} groups, "
        return f"{groups}{self.n_rows:,} rows"


# -------------------------------------------------------------------------------------------- global rankings


def _estimate(data: _Data, method: str | None, n_splits: int, random_state: Any) -> PerformanceEstimate:
    random, instead = check_random_state(random_state), ""
    if method is None:
        n_splits, instead = _folds_instead_of_pairs(data, n_splits)
        method = "averaged" if instead else "leave-pair-out"
    if method == "leave-pair-out":
        return _leave_pair_out(data, random, n_splits)
    _require_folds(data, method, n_splits)
    folds = _deal(data, n_splits, random)
    if method == "averaged":
        _require_pairs(data, folds)
    scores = _predict(data, folds, across=method == "pooled")
    owners = data.owners
    of_groups = (
        "of rows of different groups, " if owners is not None and folds.n_groups < owners.n_groups else ""
    )
    if method == "averaged":
        tally, variance, interval = interval_inside_folds(
            data.order, scores, data.fitted(), folds, data.owners, data.events
        )
        compared = (
            f"{tally.n_pairs} pairs {of_groups}within {folds.n_groups} folds, {_folds_of(data, folds)}; "
            f"folds are weighted by their number of pairs{instead}"
        )
        roc = None
    else:
        tally = tally_scores(data.order, scores, one_group(data.n_rows), events=data.events)
        compared = (
            f"all {tally.n_pairs} pairs, within and across {folds.n_groups} folds, {_folds_of(data, folds)}"
        )
        roc = _roc(data, scores)
        variance, interval = interval_of_one_ranking(tally, data.scarce, clusters=data.owners)
    return PerformanceEstimate(
        value=tally.share,
        interval=interval,
        method=method,
        n_pairs=tally.n_pairs,
        measure=data.measure,
        n_rows=data.n_rows,
        standard_error=float(np.sqrt(variance)),
        compared=compared,
        interval_method=(
            placement_values(data.owners, inside_folds=True) if method == "averaged" else _SCORES_AS_GIVEN
        )
        + _caution(data),
        per_fold=tally.share_per_group(folds),
        per_row=tally.share_per_row,
        roc=roc,
        counted=data.counted,
    )


def _folds_instead_of_pairs(data: _Data, n_splits: int) -> tuple[int, str]:
    """The folds that are held out where leaving out every pair by refitting would take minutes, and what to say.

    Or where so few groups are there that a pair of them leaves too little to train on.
    """
    n = data.n_rows if data.owners is None else data.owners.n_groups
    counts = np.bincount(data.classes).min() if data.measure == "AUC" else data.n_rows // 2
    most = max(2, min(n_splits, int(counts), n // 2))
    if data.owners is not None and not data.can_leave_pairs():
        return most, f". {n:,} groups are too few to leave out every pair of them"
    if not isinstance(_hold_out(data).problem, RefittedProblem):
        return n_splits, ""
    seconds = float("inf")
    for _ in range(2):  # what is imported or compiled on first use does not count
        start = time.perf_counter()
        data.fitted()
        seconds = min(seconds, (time.perf_counter() - start) * n * (n - 1) / 2 / n_threads())
    if seconds <= LONG:
        return n_splits, ""
    return most, (
        f". Leaving out every pair would take {n * (n - 1) // 2:,} trainings, {in_words(seconds)}: "
        "method='leave-pair-out' does it"
    )


def _caution(data: _Data) -> str:
    """Add that an interval from a handful of rows of a class is only a rough guide."""
    fewest = int(np.bincount(data.classes).min()) if data.values.shape[0] == 2 else _FEW_OF_A_CLASS
    if fewest >= _FEW_OF_A_CLASS:
        return ""
    return f"; with {fewest} rows of a class it is a rough guide, and rather too wide"


def _leave_pair_out(data: _Data, random: np.random.RandomState, n_splits: int) -> PerformanceEstimate:
    tally, tournament, lost = _hold_out_pairs(data)
    variance, interval = interval_of_one_ranking(tally, data.scarce, lost, data.owners)
    pairs = f"{tally.n_pairs} pairs of {data.n_rows} rows"
    if data.measure == "AUC":
        n_negative, n_positive = np.bincount(data.classes)
        pairs = f"{tally.n_pairs} pairs ({n_positive} positive × {n_negative} negative rows)"
    without = "the rows of both groups" if data.groups is not None else "its two rows"
    return PerformanceEstimate(
        value=tally.share,
        interval=interval,
        method="leave-pair-out",
        n_pairs=tally.n_pairs,
        measure=data.measure,
        n_rows=data.n_rows,
        standard_error=float(np.sqrt(variance)),
        compared=f"{pairs}, each ordered by a model trained without {without}",
        interval_method=placement_values(data.owners) + _caution(data),
        per_row=tally.share_per_row,
        roc=None if tournament is None else _roc(data, tournament),
        tournament=tournament,
        pooled=_pooled_beside(data, random, n_splits),
        pooled_folds=n_splits,
        counted=data.counted,
    )


def _hold_out_pairs(data: _Data) -> tuple[PairTally, np.ndarray | None, float]:
    """Wins of each row over rows of other y; for an AUC its wins over all rows; the optimism of the training."""
    m = data.n_rows
    if m * (m - 1) // 2 > _TOURNAMENT_PAIRS:
        tally = _hold_out(data).tally()[0]
        return tally, None, _optimism(data, *_predict_pairs(data, _some_pairs(data)))
    if data.measure != "AUC":
        pairs, predictions = _predict_pairs(data, None)
        tournament = None
    else:
        pairs, predictions = _predict_pairs(data, np.stack(np.triu_indices(m, 1), axis=1))
        won = winners(predictions)
        tournament = np.bincount(pairs.T.ravel(), np.concatenate([0.5 + 0.5 * won, 0.5 - 0.5 * won]), m)
        untied = data.order[pairs[:, 0]] != data.order[pairs[:, 1]]
        pairs, predictions = pairs[untied], predictions[untied]
    tally = tally_pairs(data.order, pairs, predictions)
    return tally, tournament, _optimism(data, pairs, predictions)


def _hold_out(data: _Data, *, qid: Any = None, across: bool = False) -> HeldOut:
    """Held-out predictions to compare."""
    held = HeldOut(data.estimator, data.X, data.y, qid=qid, groups=data.groups, verbose=data.verbose)
    return held.for_order(across_folds=across)


def _predict_pairs(data: _Data, pairs: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    pairs, predictions = _hold_out(data).pairs(pairs=pairs)
    return as_host(pairs), as_host(predictions)[0]


def _some_pairs(data: _Data) -> np.ndarray:
    """Enough pairs with different y for a correlation."""
    order = data.order
    pairs = np.random.default_rng(0).integers(order.shape[0], size=(_SAMPLE_PAIRS, 2))
    pairs = pairs[order[pairs[:, 0]] != order[pairs[:, 1]]]
    if data.events is None:
        return pairs
    return pairs[data.events[np.where(order[pairs[:, 0]] < order[pairs[:, 1]], pairs[:, 0], pairs[:, 1])]]


def _optimism(data: _Data, pairs: np.ndarray, predictions: np.ndarray) -> float:
    """Of the model trained on all rows, by its predictions for the same pairs; takes one training."""
    fitted = data.fitted()[pairs]
    return optimism(
        data.order[pairs[:, 0]] - data.order[pairs[:, 1]],
        *(
            np.abs(difference[:, 0] - difference[:, 1]) * winners(difference)
            for difference in (predictions, fitted)
        ),
    )


def _pooled_beside(data: _Data, random: np.random.RandomState, n_splits: int) -> float | None:
    """The pooled estimate; None where the folds would leave a class without training rows."""
    n_units = data.n_rows if data.owners is None else data.owners.n_groups
    folds = _deal(data, min(n_splits, n_units), random)
    everything = set(np.unique(data.classes).tolist())
    for fold in range(folds.n_groups):
        if set(np.unique(data.classes[folds.codes != fold]).tolist()) != everything:
            return None
    scores = _predict(data, folds, across=True)
    return tally_scores(data.order, scores, one_group(data.n_rows), events=data.events).share


def _predict(data: _Data, folds: Groups, *, across: bool) -> np.ndarray:
    tests = [folds.rows(fold) for fold in range(folds.n_groups)]
    scores = as_host(_hold_out(data, across=across).predict(tests))[0]
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


# ------------------------------------------------------------------------------------------------- the folds


def _deal(data: _Data, n_splits: int, random: np.random.RandomState) -> Groups:
    """Assign rows, or whole groups, to folds; of rows so that each fold has its share of every class."""
    if data.owners is None:
        strata = _strata(data.order, n_splits)
        order = np.lexsort((random.permutation(data.n_rows), strata))
        codes = np.empty(data.n_rows, dtype=np.int64)
        codes[order] = np.arange(data.n_rows) % n_splits
        return Groups(codes, n_splits)
    if data.owners.n_groups < n_splits:
        raise ValueError(
            f"{n_splits} folds of whole groups need at least {n_splits} groups: found {data.owners.n_groups}. "
            "Use a smaller n_splits."
        )
    codes = np.empty(data.n_rows, dtype=np.int64)
    # Not stratified by class: groups of opposite classes would share a fold more often than others, and are easier.
    dealt = QueryKFold(n_splits, shuffle=True, random_state=random.randint(2**31))
    for fold, (_, test) in enumerate(dealt.split(np.zeros((data.n_rows, 1)), qid=data.owners.codes)):
        codes[test] = fold
    kept, codes = np.unique(codes, return_inverse=True)
    return Groups(codes.astype(np.int64), kept.shape[0])


def _strata(order: np.ndarray, n_splits: int) -> np.ndarray:
    """Rows that should be spread evenly: those of equal y where each value is frequent.

    Not runs of similar y: these would be apart in all folds, and they are what is hardest to order.
    """
    values, codes, counts = np.unique(order, return_inverse=True, return_counts=True)
    return codes if values.shape[0] == 2 or counts.min() >= n_splits else np.zeros_like(codes)


def _folds_of(data: _Data, folds: Groups) -> str:
    if data.owners is not None:
        return "of whole groups"
    spread = np.ptp(_strata(data.order, folds.n_groups)) > 0
    of = "class" if data.measure == "AUC" else "y"
    return f"stratified by {of}" if spread else "of single rows, at random"


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


def _require_pairs(data: _Data, folds: Groups) -> None:
    pairs = tally_scores(data.order, np.zeros(data.n_rows), folds, data.owners, data.events).pairs
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
    scores = as_host(_hold_out(data, qid=qid).predict(cv))[0]
    tally = tally_scores(data.order, scores, queries, events=data.events)
    per_query = tally.share_per_group(queries)
    counted = np.flatnonzero(~np.isnan(per_query))
    if counted.size == 0:
        raise ValueError("no query has two rows with different y: there is nothing to compare.")
    clusters = groups_of_queries(data.owners, queries, counted)
    variance, interval = interval_over_queries(
        per_query, data.order, scores, data.fitted(qid), queries, clusters=clusters, events=data.events
    )
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
        compared=f"{tally.n_pairs} pairs within {counted.size} queries, {folds}; all queries have equal weight",
        interval_method=f"Student's t over the {independent}, {TRAINED_TOGETHER}",
        per_fold=per_query,
        per_row=tally.share_per_row,
        counted=("" if clusters is None else f"{clusters.n_groups:,} groups, ")
        + f"{counted.size:,} queries, {data.n_rows:,} rows",
    )


# ------------------------------------------------------------------------------------------- reading the arguments


def _read_classes(y: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """What the estimator learns from, and 1.0 for the rows of the larger class."""
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"y must hold one class per row: found shape {labels.shape} for {n_rows} rows.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("y contains NaN or infinity: leave out the rows whose class is unknown.")
    values, codes = np.unique(labels, return_inverse=True)
    if values.shape[0] != 2:
        raise ValueError(
            f"AUC needs two classes: y holds {values.shape[0]} different values. "
            + ("For graded or real y use estimate_concordance." if values.shape[0] > 2 else "")
        )
    counts = np.bincount(codes)
    if counts.min() < 2:
        raise ValueError(
            f"AUC by cross-validation needs at least two rows of each class, one to hold out and one to train on: "
            f"found {counts[0]} of {values[0]!r} and {counts[1]} of {values[1]!r}."
        )
    positive = codes.astype(float)
    return (labels.astype(float) if labels.dtype.kind in "iuf" else positive), positive


def _read_scores(y: Any, n_rows: int) -> np.ndarray:
    scores = np.asarray(y, dtype=float)
    if scores.shape != (n_rows,):
        raise ValueError(f"y must hold one score per row: found shape {scores.shape} for {n_rows} rows.")
    if not np.isfinite(scores).all():
        raise ValueError("y contains NaN or infinity: leave out the rows whose score is unknown.")
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


def _read_splits(n_splits: Any) -> int:
    if not isinstance(n_splits, Integral) or isinstance(n_splits, bool) or n_splits < 2:
        raise ValueError(f"n_splits must be an int of at least 2: found {n_splits!r}.")
    return int(n_splits)
