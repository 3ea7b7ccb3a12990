"""Metrics of pairs: how many pairs of a query do the scores order as y does?

With the pairs of a query counted as D (discordant), H (tied in the scores only), U_y and U_s (not tied in y, not
tied in the scores),

    concordance = 1 - (D + H / 2) / U_y           tau-b = (U_y - H - 2 D) / √(U_y U_s)

both from one O(n log n) count per query.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..comparisons import Groups
from ..comparisons.censored import censoring_weights, levels_of, sorted_times
from ..comparisons.inputs import NOBODY_OUTLIVED, read_times
from .by_query import PerQuery, Rows, check_rows, check_weights, mean_or_refuse, over_queries
from .registry import metric_entry

# So few pairs are looked at one by one, since compiling what sorts them takes seconds on the first use.
_FEW_PAIRS = 20_000


@metric_entry("concordance", chance=0.5)
def concordance(
    y: Any,
    scores: Any,
    qid: Any = None,
    *,
    event: Any = None,
    weights: str | None = None,
    sample_weight: Any = None,
    per_query: bool = False,
) -> Any:
    r"""Share of the pairs of a query that the scores order as y does, averaged over the queries.

    .. math::

        \frac{1}{|Q|} \sum_{q \in Q} \frac{1}{U_q} \sum_{i, j \in q:\, y_i > y_j}
            [s_i > s_j] + \tfrac12 [s_i = s_j]

    with U_q the number of pairs of query q that are not tied in y, and Q the queries with such pairs. 1 is a perfect
    order, 0.5 is what random or constant scores get. For one query and two grades this is the area under the ROC
    curve.

    With ``event`` this is the C-index of censored times: the pairs are those of a row whose event was seen and a row
    that is known to have lived longer.

    Parameters
    ----------
    y : array-like of shape (m,) or (m, v)
        What is known about each row, higher is better; with `event` times. A structured array of a boolean and a
        numeric field, such as scikit-survival's ``Surv``, holds events and times.
    scores : array-like of the same shape
        Predicted scores. Equal scores are a tied prediction and count as half.
    qid : array-like of shape (m,) or None
        The query of each row, any hashable labels in any order; None compares all rows with each other.
    event : array-like of bool, shape (m,), optional
        True where the event was seen at the time y, False where it was still to come. Higher scores live longer. Two
        events at the same time are no pair; a row censored at the time of an event lived longer.
    weights : None or "ipcw", default=None
        With `event`: Harrell's C, or Uno's, where pairs count 1 / G(t)², t being the time of the event and G(t) the
        Kaplan-Meier estimate of the probability (in the query) that a row is not censored by then.
    sample_weight : array-like of shape (m,), optional
        The weight of a pair is the product of the weights of its rows, so a row of weight 2 counts as two equal rows.
        All queries have the same weight, whatever the weights inside them.
    per_query : bool, default=False
        Return the value in each query instead of their mean.

    Returns
    -------
    float or PerQuery
        For v outputs the mean over the outputs, or values of shape (n_queries, v). In a query whose y are all
        tied the value is NaN, and the query is left out of the mean.

    Raises
    ------
    ValueError
        If no query has two rows with different y, or a value is NaN or infinite, or lengths differ.

    See Also
    --------
    disagreement_error : 1 - concordance.
    kendall_tau : the same count of pairs between -1 and 1, corrected for ties in y and in the scores.

    Notes
    -----
    O(m log m), threads over queries.

    References
    ----------
    T. Pahikkala, E. Tsivtsivadze, A. Airola, J. Järvinen, J. Boberg. An efficient algorithm for learning to rank
    from preference graphs. Machine Learning 75 (2009), 129-165.
    H. Uno, T. Cai, M. Pencina, R. D'Agostino, L. Wei. On the C-statistics for evaluating overall adequacy of risk
    prediction procedures with censored survival data. Statistics in Medicine 30 (2011), 1105-1117.

    Examples
    --------
    >>> from preflearn.metrics import concordance
    >>> concordance([2, 3, 3, 5], [0.1, 0.15, 0.2, 0.3], event=[True, False, True, True])
    0.8
    >>> concordance([3, 2, 1, 1], [0.9, 0.3, 0.3, 0.5])
    0.7
    >>> concordance([2, 1, 0, 1], [0.9, 0.3, 0.5, 0.1], qid=["a", "a", "b", "b"])
    0.5
    >>> concordance([2, 1, 0, 1], [0.9, 0.3, 0.5, 0.1], qid=["a", "a", "b", "b"], per_query=True).values
    array([1., 0.])
    """
    y, events = read_times(y, event)
    if weights not in (None, "ipcw") or (weights is not None and events is None):
        raise ValueError(f"weights is None or, with event, 'ipcw': found {weights!r}.")
    rows = check_rows(y, scores, qid, many_outputs=True)
    row_weights = check_weights(sample_weight, rows.y.shape[0])
    if events is not None:
        found = rows.per_query(_c_indices(rows, events, weights, row_weights))
        return found if per_query else mean_or_refuse(found, metric="concordance", reason=NOBODY_OUTLIVED)
    discordant, tied, untied_y, _ = _count_pairs(rows, row_weights)
    with np.errstate(invalid="ignore"):
        values = rows.per_query(_as_given(1.0 - (discordant + 0.5 * tied) / untied_y))
    return values if per_query else mean_or_refuse(values, metric="concordance", reason=_no_untied_pair(rows))


DEFINITIONS = ("half", "strict", "all", "pooled")


@metric_entry("disagreement_error", higher_is_better=False, limits=(-1.0, 0.0))
def disagreement_error(
    y: Any,
    scores: Any,
    qid: Any = None,
    *,
    event: Any = None,
    weights: str | None = None,
    sample_weight: Any = None,
    per_query: bool = False,
    definition: str = "half",
) -> Any:
    """Share of the pairs of a query that the scores order the wrong way: 1 - :func:`concordance`.

    Tied predictions count as half; queries whose y are all tied are left out of the mean. Publications define it
    differently: see `definition`.

    Parameters
    ----------
    y, scores, qid, event, weights, sample_weight, per_query
        As in :func:`concordance`; `event`, `weights` and `sample_weight` for the definition "half" only.
    definition : {"half", "strict", "all", "pooled"}, default="half"
        "half" is (3.4) of Airola (2011), averaged over queries. "strict" counts a tied prediction as wrong: (1) of
        Pahikkala et al. (2009). "all" counts pairs with equal y, too, which are right (0) if their scores are equal and
        half wrong otherwise: (1) of Tsivtsivadze et al. (2008), and of Pahikkala et al. (2007). "pooled" counts as
        "half" does, over the pairs of all queries together: (3.3) of Airola (2011); the values per query, whose mean it
        is, are the wrong pairs of the query over the average number of pairs.

    Returns
    -------
    float or PerQuery

    References
    ----------
    A. Airola. Kernel-based ranking: methods for learning and performance estimation. University of Turku (2011).
    T. Pahikkala, E. Tsivtsivadze, A. Airola, J. Järvinen, J. Boberg. An efficient algorithm for learning to rank
    from preference graphs. Machine Learning 75 (2009), 129-165.
    E. Tsivtsivadze, T. Pahikkala, A. Airola, J. Boberg, T. Salakoski. A sparse regularized least-squares preference
    learning algorithm. SCAI 2008.
    T. Pahikkala, H. Suominen, J. Boberg, T. Salakoski. Transductive ranking via pairwise regularized least-squares
    (2007).

    Examples
    --------
    >>> from preflearn.metrics import disagreement_error
    >>> y, scores, qid = [3, 2, 1, 1, 1, 0], [0.9, 0.3, 0.3, 0.5, 0.1, 0.7], [1, 1, 1, 1, 2, 2]
    >>> for definition in ("half", "strict", "all", "pooled"):
    ...     print(f"{disagreement_error(y, scores, qid, definition=definition):.3f}")
    0.650
    0.700
    0.667
    0.417
    """
    if definition not in DEFINITIONS:
        raise ValueError(
            f"definition must be one of {', '.join(map(repr, DEFINITIONS))}: found {definition!r}."
        )
    if definition == "half":
        options = {"event": event, "weights": weights, "sample_weight": sample_weight}
        if per_query:
            labels, values = concordance(y, scores, qid, **options, per_query=True)
            return PerQuery(labels, 1.0 - values)
        return 1.0 - concordance(y, scores, qid, **options)
    y, events = read_times(y, event)
    for name, value in (("event", events), ("weights", weights), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(
                f"{name} is for definition='half': found definition={definition!r}. Leave it out."
            )
    rows = check_rows(y, scores, qid, many_outputs=True)
    discordant, tied, untied_y, untied_s = _count_pairs(rows, np.empty(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        if definition == "strict":
            found = (discordant + tied) / untied_y
        elif definition == "all":
            n_pairs = (rows.queries.counts * (rows.queries.counts - 1) / 2)[:, None]
            tied_y_only = untied_s - (untied_y - tied)
            found = (discordant + 0.5 * (tied + tied_y_only)) / n_pairs
        else:
            average = untied_y.sum(axis=0) / (untied_y > 0).sum(axis=0)
            found = np.where(untied_y > 0, (discordant + 0.5 * tied) / average, np.nan)
    values = rows.per_query(_as_given(found))
    reason = "no query has two rows." if definition == "all" else _no_untied_pair(rows)
    return values if per_query else mean_or_refuse(values, metric="disagreement_error", reason=reason)


@metric_entry(
    "mean_squared_pair_error",
    higher_is_better=False,
    title="magnitude-preserving error",
    limits=(-np.inf, 0.0),
)
def mean_squared_pair_error(y: Any, scores: Any, qid: Any = None, *, per_query: bool = False) -> Any:
    r"""The magnitude-preserving error: the mean over the pairs of a query of the squared error of their difference.

    .. math::

        \frac{1}{|Q|} \sum_{q \in Q} \binom{n_q}{2}^{-1} \sum_{i < j \in q} (y_i - y_j - (s_i - s_j))^2

    This is what RankRLS minimises, (4.2) of Airola (2011), for each pair.

    Parameters
    ----------
    y, scores : array-like of shape (m,)
    qid : array-like of shape (m,) or None
        The query of each row; None compares all rows with each other.
    per_query : bool, default=False
        Return the value in each query instead of their mean.

    Returns
    -------
    float or PerQuery
        In a query of one row the value is NaN, and the query is left out of the mean.

    Notes
    -----
    O(m): with the residuals r = y - s of a query it is 2 Σ (r_i - mean r)² / (n - 1).

    References
    ----------
    C. Cortes, M. Mohri, A. Rastogi. Magnitude-preserving ranking algorithms. ICML 2007.

    Examples
    --------
    >>> from preflearn.metrics import mean_squared_pair_error
    >>> mean_squared_pair_error([3, 2, 1], [13, 12, 12])
    0.6666666666666666
    """
    rows = check_rows(y, scores, qid)
    codes, counts = rows.queries.codes, rows.queries.counts
    residuals = rows.y[:, 0] - rows.scores[:, 0]
    residuals = residuals - (np.bincount(codes, residuals) / counts)[codes]
    with np.errstate(invalid="ignore"):
        found = rows.per_query(
            2.0 * np.bincount(codes, residuals**2) / np.where(counts > 1, counts - 1.0, np.nan)
        )
    reason = "every query has one row."
    return found if per_query else mean_or_refuse(found, metric="mean_squared_pair_error", reason=reason)


@metric_entry("auc", title="AUC", aliases=("roc_auc",))
def auc(y: Any, scores: Any, *, sample_weight: Any = None) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs where the positive row scores higher.

    The same as :func:`concordance` of one query. A tied prediction counts as half.

    Parameters
    ----------
    y : array-like of shape (m,)
        Two different values; the larger marks the positive rows.
    scores : array-like of shape (m,)
    sample_weight : array-like of shape (m,), optional

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If y does not hold exactly two different values.

    Notes
    -----
    O(m log m).

    References
    ----------
    J. A. Hanley, B. J. McNeil. The meaning and use of the area under a receiver operating characteristic (ROC)
    curve. Radiology 143 (1982), 29-36.

    Examples
    --------
    >>> from preflearn.metrics import auc
    >>> auc([1, 0, 1, 0], [0.8, 0.6, 0.4, 0.2])
    0.75
    """
    rows = check_rows(y, scores, None)
    low, high = rows.y.min(), rows.y.max()
    if low == high:
        raise ValueError(f"auc needs rows of both classes: every y is {low:g}.")
    if not ((rows.y == low) | (rows.y == high)).all():
        raise ValueError(
            f"auc needs two classes: y holds {np.unique(rows.y).shape[0]} different values. "
            "For graded or real y use concordance."
        )
    return concordance(rows.y, rows.scores, sample_weight=sample_weight)


@metric_entry("kendall_tau", title="Kendall tau-b", aliases=("tau",), limits=(-1.0, 1.0), chance=0.0)
def kendall_tau(y: Any, scores: Any, qid: Any = None, *, per_query: bool = False) -> Any:
    r"""Kendall's rank correlation tau-b between y and the scores, averaged over the queries.

    .. math::

        \tau_b = \frac{C - D}{\sqrt{U_y U_s}}

    with C concordant and D discordant pairs, U_y pairs not tied in y and U_s pairs not tied in the scores. A pair
    tied in either counts for neither C nor D.

    Parameters
    ----------
    y, scores : array-like of shape (m,)
    qid : array-like of shape (m,) or None
        The query of each row; None compares all rows with each other.
    per_query : bool, default=False
        Return the value in each query instead of their mean.

    Returns
    -------
    float or PerQuery
        In a query whose y are all tied, or whose scores are, the value is NaN, and the query is left out of the
        mean.

    Raises
    ------
    ValueError
        If tau-b is defined in no query, or a value is NaN or infinite, or lengths differ.

    Notes
    -----
    O(m log m), threads over queries.

    References
    ----------
    M. G. Kendall. The treatment of ties in ranking problems. Biometrika 33 (1945), 239-251.
    W. R. Knight. A computer method for calculating Kendall's tau with ungrouped data. Journal of the American
    Statistical Association 61 (1966), 436-439.

    Examples
    --------
    >>> from preflearn.metrics import kendall_tau
    >>> kendall_tau([3, 2, 1], [0.9, 0.3, 0.5])
    0.3333333333333333
    """
    rows = check_rows(y, scores, qid)
    discordant, tied, untied_y, untied_s = _count_pairs(rows, np.empty(0))[:, :, 0]
    with np.errstate(invalid="ignore"):
        values = (untied_y - tied - 2.0 * discordant) / np.sqrt(untied_y * untied_s)
    found = rows.per_query(np.clip(values, -1.0, 1.0))
    reason = (
        "no query has rows that differ both in y and in the scores. Check that the scores are not constant and "
        "that qid puts rows to be compared in the same query."
    )
    return found if per_query else mean_or_refuse(found, metric="kendall_tau", reason=reason)


def _count_pairs(rows: Rows, weights: np.ndarray) -> np.ndarray:
    """D, H, U_y, U_s for each query and output: shape (4, n_queries, v)."""
    counts = np.empty((rows.y.shape[1], rows.queries.n_groups, 4))
    if not weights.size and int((rows.queries.counts**2).sum()) <= _FEW_PAIRS:
        pairs = _pairs_inside(rows.queries)
        for output, found in enumerate(counts):
            found[:] = _look_at_every_pair(rows.scores[:, output], rows.y[:, output], rows.queries, pairs)
        return counts.T
    from ._loops import count_pairs

    if weights.size:
        (weights,) = rows.grouped(weights)
    for output, found in enumerate(counts):
        scores, y = rows.grouped(rows.scores[:, output], rows.y[:, output])
        over_queries(count_pairs, rows.queries, scores, y, weights, found)
    return counts.T


def _pairs_inside(queries: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Every row of a query with every row of it."""
    sizes = queries.counts[queries.codes[queries.order]]
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.repeat(queries.order, sizes)
    return first, queries.order[queries.starts[queries.codes[first]] + place]


def _look_at_every_pair(
    scores: np.ndarray, y: np.ndarray, queries: Groups, pairs: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """D, H, U_y, U_s of each query, from pairs that are each there twice: shape (n_queries, 4)."""
    first, second = pairs
    up, above = scores[first] > scores[second], y[first] > y[second]
    differ, untied = scores[first] != scores[second], y[first] != y[second]
    kinds = (differ & untied & (up != above), ~differ & untied, untied, differ)
    of = queries.codes[first]
    return np.column_stack([np.bincount(of, one, queries.n_groups) / 2 for one in kinds])


def time_dependent_auc(y: Any, scores: Any, times: Any, *, event: Any = None) -> np.ndarray:
    r"""Area under the ROC curve at each of some times: those whose event was seen by then against those still without
    it.

    .. math::

        \frac{\sum_{i: e_i, t_i \le t} \sum_{j: t_j > t} G(t_i)^{-1} ([s_j > s_i] + \tfrac12 [s_i = s_j])}
             {\sum_{i: e_i, t_i \le t} G(t_i)^{-1} \; |\{j: t_j > t\}|}

    with G the Kaplan-Meier estimate of the probability that a row is not censored by a time. Rows that are censored by
    t count for neither side.

    Parameters
    ----------
    y, scores, event : as in `concordance` with events
    times : array-like of shape (k,), or a number

    Returns
    -------
    ndarray of shape (k,)
        NaN where no event was seen by then, or no row is left.

    Notes
    -----
    O(m log m) for each time. Reference: H. Uno, T. Cai, L. Tian, L. Wei. Evaluating prediction rules for t-year
    survivors with censored regression models. Journal of the American Statistical Association 102 (2007), 527-537.

    Examples
    --------
    >>> from preflearn.metrics import time_dependent_auc
    >>> time_dependent_auc([1, 2, 3, 4], [0.1, 0.3, 0.2, 0.4], [1.5, 2.5], event=[True, True, False, True])
    array([1.  , 0.75])
    """
    t, events = read_times(y, event)
    if events is None:
        raise ValueError("time_dependent_auc needs events: pass event=..., True where the event was seen.")
    rows = check_rows(t, scores, None)
    inverse = censoring_weights(t, events, rows.queries)
    values = []
    for time in np.atleast_1d(np.asarray(times, dtype=np.float64)):
        cases, left = events & (t <= time), t > time
        known = cases | left
        weight = np.where(cases, inverse, 1.0)[known]
        defined = cases.any() and left.any()
        values.append(
            concordance(left[known], rows.scores[known, 0], sample_weight=weight) if defined else np.nan
        )
    return np.array(values)


def _c_indices(rows: Rows, events: np.ndarray, weights: str | None, row_weights: np.ndarray) -> np.ndarray:
    """The C-index of each query, NaN where nobody outlived another; O(m log m)."""
    from ._loops import count_outlived

    times, scores, queries = rows.y[:, 0], rows.scores[:, 0], rows.queries
    order, _, last = sorted_times(times, events, queries)
    ranks = levels_of(scores) + 1
    if queries.n_groups > 1:
        # Numbered inside each query.
        ranks = levels_of(queries.codes * (times.shape[0] + 1) + ranks) + 1
        lowest = np.full(queries.n_groups, ranks.max())
        np.minimum.at(lowest, queries.codes, ranks)
        ranks -= lowest[queries.codes] - 1
    w = row_weights if row_weights.size else np.ones(times.shape[0])
    event = events * w
    if weights is not None:
        event *= censoring_weights(times, events, queries) ** 2
    counts = np.zeros((queries.n_groups, 3))
    over_queries(count_outlived, queries, ranks[order], event[order], w[order], last, counts)
    discordant, tied, pairs = counts.T
    with np.errstate(invalid="ignore"):
        return 1.0 - (discordant + 0.5 * tied) / pairs


def _as_given(values: np.ndarray) -> np.ndarray:
    """(n_queries, v) values; (n_queries,) for one output."""
    return values[:, 0] if values.shape[1] == 1 else values


def _no_untied_pair(rows: Rows) -> str:
    output = "" if rows.y.shape[1] == 1 else " in one of the outputs"
    queries = "no query has" if rows.queries.n_groups > 1 else "there are no"
    return (
        f"{queries} two rows with different y (and weight above zero){output}. "
        "Check that y is not constant and that qid puts rows to be compared in the same query."
    )
