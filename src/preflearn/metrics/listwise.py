"""Metrics of a list read from the top: NDCG, average precision, reciprocal rank, ERR, precision at k.

Three rules hold for all of them:

- rows with equal scores are taken to be in random order, and the metric is its expected value (no dependence on the
  order of the rows, no reward for luck), computed in closed form;
- a query without a relevant row counts as 0, as in trec_eval and scikit-learn; ``no_relevant="skip"`` makes it
  NaN and leaves it out of the mean;
- all queries have the same weight, whatever their length.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np

from .by_query import Rows, check_options, check_rows, mean_or_refuse, over_queries
from .registry import metric_entry

# Above this grade the sum of the gains 2**y of a long list would overflow.
LARGEST_EXPONENT = 900.0


@metric_entry("ndcg", title="NDCG")
def ndcg(
    y: Any,
    scores: Any,
    qid: Any = None,
    k: int | None = None,
    gain: str = "exponential",
    *,
    no_relevant: str = "zero",
    per_query: bool = False,
) -> Any:
    r"""Normalised discounted cumulative gain, averaged over the queries.

    .. math::

        \mathrm{DCG} = \sum_{p=1}^{k} \frac{g(y_{(p)})}{\log_2(p + 1)}, \qquad
        g(y) = 2^y - 1 \text{ or } y, \qquad
        \mathrm{NDCG} = \frac{\mathrm{DCG}}{\text{DCG of the best order}}

    with y_(p) the grade of the row at position p.

    Parameters
    ----------
    y : array-like of shape (m,)
        Grades, 0 = not relevant, higher is better; not negative.
    scores : array-like of shape (m,)
        Predicted scores. Rows with equal scores share the mean gain of their group, which is the expected value over
        a random order of them.
    qid : array-like of shape (m,) or None
        The query of each row; None = one query.
    k : int, optional
        Read only the first k positions.
    gain : {"exponential", "linear"}, default="exponential"
        2**y - 1 or y.
    no_relevant : {"zero", "skip"}, default="zero"
        A query whose y are all 0 counts as 0, or is NaN and left out of the mean.
    per_query : bool, default=False
        Return the value in each query instead of their mean.

    Returns
    -------
    float or PerQuery

    Notes
    -----
    O(m log m), threads over queries. With ``gain="linear"`` equal to ``sklearn.metrics.ndcg_score`` and to
    trec_eval's ndcg (ndcg_cut_k), the latter where no scores are tied.

    References
    ----------
    K. Järvelin, J. Kekäläinen. Cumulated gain-based evaluation of IR techniques. ACM Transactions on Information
    Systems 20 (2002), 422-446.
    F. McSherry, M. Najork. Computing information retrieval performance measures efficiently in the presence of
    tied scores. ECIR 2008, 414-421.

    Examples
    --------
    >>> from preflearn.metrics import ndcg
    >>> round(ndcg([2, 0, 1], [0.9, 0.5, 0.1]), 4)
    0.9639
    >>> ndcg([2, 0, 1], [0.9, 0.5, 0.1], k=1)
    1.0
    """
    from ._loops import discounted_gain

    check_options(k=k, gain=gain, no_relevant=no_relevant)
    rows = check_rows(y, scores, qid)
    _refuse_negative(rows, "ndcg")
    gains = rows.y[:, 0]
    if gain == "exponential":
        if gains.max() > LARGEST_EXPONENT:
            raise ValueError(
                f'gain="exponential" is 2**y - 1: found y = {gains.max():g}, which is not a grade. '
                'Use gain="linear" or grades such as 0 to 4.'
            )
        gains = _power_less_one(gains, 0.0)
    else:
        gains = gains / max(gains.max(), 1.0)  # the sum of very large grades must not overflow
    longest = min(int(rows.queries.counts.max()), _positions(k, rows))
    discount = 1.0 / np.log2(np.arange(2, 2 + longest))
    key, gains = rows.grouped(-rows.scores[:, 0], gains)
    reached = _value_of_grouped(discounted_gain, rows, key, gains, discount)
    best = _value_of_grouped(discounted_gain, rows, -gains, gains, discount)
    with np.errstate(invalid="ignore"):
        values = np.minimum(reached / best, 1.0)
    return _finished("ndcg", rows, values, no_relevant, per_query)


@metric_entry("average_precision", title="MAP", aliases=("map",))
def average_precision(
    y: Any,
    scores: Any,
    qid: Any = None,
    *,
    relevant_above: float = 0.0,
    no_relevant: str = "zero",
    per_query: bool = False,
) -> Any:
    r"""Average precision of a query, averaged over the queries (MAP).

    .. math::

        \mathrm{AP} = \frac{1}{R} \sum_{p:\ \text{row at } p \text{ is relevant}}
            \frac{\text{relevant rows among the first } p}{p}

    with R the number of relevant rows of the query.

    Parameters
    ----------
    y : array-like of shape (m,)
        Grades or labels; a row is relevant where ``y > relevant_above``.
    scores : array-like of shape (m,)
        Predicted scores. Rows with equal scores are taken to be in random order, and the value is the expected one.
    qid : array-like of shape (m,) or None
        The query of each row; None = one query.
    relevant_above : float, default=0.0
    no_relevant : {"zero", "skip"}, default="zero"
        A query without a relevant row counts as 0, or is NaN and left out of the mean.
    per_query : bool, default=False
        Return the value in each query instead of their mean.

    Returns
    -------
    float or PerQuery

    Notes
    -----
    O(m log m), threads over queries. Without tied scores equal to trec_eval's map and, query by query, to
    ``sklearn.metrics.average_precision_score``; where scores are tied the latter reads the tied rows together.

    References
    ----------
    F. McSherry, M. Najork. Computing information retrieval performance measures efficiently in the presence of
    tied scores. ECIR 2008, 414-421.

    Examples
    --------
    >>> from preflearn.metrics import average_precision
    >>> average_precision([1, 0, 1, 0], [0.8, 0.6, 0.4, 0.2])
    0.8333333333333333
    """
    from ._loops import average_precision as loop

    check_options(relevant_above=relevant_above, no_relevant=no_relevant)
    rows = check_rows(y, scores, qid)
    values = _value_of_lists(loop, rows, _relevant(rows, relevant_above))
    return _finished("average_precision", rows, values, no_relevant, per_query)


@metric_entry("reciprocal_rank", title="MRR", aliases=("mrr",))
def reciprocal_rank(
    y: Any,
    scores: Any,
    qid: Any = None,
    k: int | None = None,
    *,
    relevant_above: float = 0.0,
    no_relevant: str = "zero",
    per_query: bool = False,
) -> Any:
    """One over the position of the first relevant row, averaged over the queries (MRR).

    Parameters
    ----------
    y, scores, qid, relevant_above, no_relevant, per_query
        As in :func:`average_precision`.
    k : int, optional
        The value is 0 where the first relevant row comes after position k.

    Returns
    -------
    float or PerQuery

    Notes
    -----
    O(m log m), threads over queries. Equal to trec_eval's recip_rank where no scores are tied.

    References
    ----------
    F. McSherry, M. Najork. Computing information retrieval performance measures efficiently in the presence of
    tied scores. ECIR 2008, 414-421.

    Examples
    --------
    >>> from preflearn.metrics import reciprocal_rank
    >>> reciprocal_rank([0, 1, 1], [0.9, 0.5, 0.1])
    0.5
    """
    from ._loops import reciprocal_rank as loop

    check_options(k=k, relevant_above=relevant_above, no_relevant=no_relevant)
    rows = check_rows(y, scores, qid)
    values = _value_of_lists(
        loop,
        rows,
        _relevant(rows, relevant_above),
        _positions(k, rows),
    )
    return _finished("reciprocal_rank", rows, values, no_relevant, per_query)


@metric_entry("err", title="ERR")
def err(
    y: Any,
    scores: Any,
    qid: Any = None,
    k: int | None = None,
    *,
    max_grade: float | None = None,
    no_relevant: str = "zero",
    per_query: bool = False,
) -> Any:
    r"""Expected reciprocal rank, averaged over the queries.

    A reader goes down the list and stops at a row of grade y with probability R(y):

    .. math::

        \mathrm{ERR} = \sum_{p=1}^{k} \frac{1}{p} R(y_{(p)}) \prod_{i < p} \bigl(1 - R(y_{(i)})\bigr), \qquad
        R(y) = \frac{2^y - 1}{2^{y_{\max}}}

    Parameters
    ----------
    y, scores, qid, k, no_relevant, per_query
        As in :func:`ndcg`.
    max_grade : float, optional
        The highest grade of the scale; by default the largest y. Give it where a part of the data (a fold, a
        test set) might lack the highest grade: otherwise values of different parts cannot be compared.

    Returns
    -------
    float or PerQuery

    Notes
    -----
    O(m log m), threads over queries; a group of t tied scores adds O(t d), where d <= t is the number of its rows
    that the reader reaches with a probability above 1e-17.

    References
    ----------
    O. Chapelle, D. Metzler, Y. Zhang, P. Grinspan. Expected reciprocal rank for graded relevance. CIKM 2009,
    621-630.

    Examples
    --------
    >>> from preflearn.metrics import err
    >>> err([1, 0, 2], [0.9, 0.5, 0.1])
    0.4375
    """
    from ._loops import expected_reciprocal_rank

    check_options(k=k, max_grade=max_grade, no_relevant=no_relevant)
    rows = check_rows(y, scores, qid)
    _refuse_negative(rows, "err")
    largest = float(rows.y.max())
    if max_grade is not None and max_grade < largest:
        raise ValueError(
            f"max_grade must be at least the largest grade: found {max_grade:g} and y = {largest:g}."
        )
    top = largest if max_grade is None else float(max_grade)
    stop = _power_less_one(rows.y[:, 0], top)
    values = _value_of_lists(expected_reciprocal_rank, rows, stop, _positions(k, rows))
    values[~_any_in_query(rows, rows.y[:, 0] > 0.0)] = np.nan
    return _finished("err", rows, values, no_relevant, per_query)


@metric_entry("precision", aliases=("p", "precision_at"))
def precision_at(
    y: Any,
    scores: Any = None,
    qid: Any = None,
    *,
    k: int = 10,
    relevant_above: float = 0.0,
    no_relevant: str = "zero",
    per_query: bool = False,
) -> Any:
    """Share of relevant rows among the first k positions, averaged over the queries.

    ``precision_at(5)`` alone is the metric with k = 5, to be called with y, scores and qid.

    Parameters
    ----------
    y, scores, qid, relevant_above, no_relevant, per_query
        As in :func:`average_precision`.
    k : int, default=10
        A query of fewer than k rows is still divided by k, as if it were padded with irrelevant rows.

    Returns
    -------
    float or PerQuery

    Notes
    -----
    O(m log m), threads over queries. Equal to trec_eval's P_k where no scores are tied.

    References
    ----------
    F. McSherry, M. Najork. Computing information retrieval performance measures efficiently in the presence of
    tied scores. ECIR 2008, 414-421.

    Examples
    --------
    >>> from preflearn.metrics import precision_at
    >>> precision_at([1, 0, 1, 0], [0.8, 0.6, 0.4, 0.2], k=2)
    0.5
    >>> precision_at(2)([1, 0, 1, 0], [0.8, 0.6, 0.4, 0.2])
    0.5
    """
    from ._loops import precision

    if scores is None:
        if not isinstance(y, Integral):
            raise TypeError("precision_at needs y and scores, or a single integer k: precision_at(10).")
        check_options(k=int(y))
        return partial(precision_at, k=int(y))
    if k is None:
        raise ValueError("precision_at needs a number of positions k: found None.")
    check_options(k=k, relevant_above=relevant_above, no_relevant=no_relevant)
    rows = check_rows(y, scores, qid)
    relevant = _relevant(rows, relevant_above)
    values = _value_of_lists(precision, rows, relevant, int(k))
    values[~_any_in_query(rows, relevant > 0.0)] = np.nan
    return _finished("precision_at", rows, values, no_relevant, per_query)


def _value_of_lists(loop: Callable[..., None], rows: Rows, gains: np.ndarray, *options: Any) -> np.ndarray:
    """One value per query from a loop that reads its rows from the highest score down."""
    key, gains = rows.grouped(-rows.scores[:, 0], gains)
    return _value_of_grouped(loop, rows, key, gains, *options)


def _value_of_grouped(
    loop: Callable[..., None], rows: Rows, key: np.ndarray, gains: np.ndarray, *options: Any
) -> np.ndarray:
    """The same from grouped rows, read in ascending order of ``key``."""
    order = np.lexsort((key, rows.queries.codes[rows.queries.order]))
    values = np.empty(rows.queries.n_groups)
    over_queries(loop, rows.queries, key[order], gains[order], *options, values)
    return values


def _positions(k: int | None, rows: Rows) -> int:
    return rows.y.shape[0] if k is None else int(k)


def _relevant(rows: Rows, relevant_above: float) -> np.ndarray:
    return (rows.y[:, 0] > relevant_above).astype(np.float64)


def _any_in_query(rows: Rows, flags: np.ndarray) -> np.ndarray:
    return np.bincount(rows.queries.codes[flags], minlength=rows.queries.n_groups) > 0


def _power_less_one(y: np.ndarray, top: float) -> np.ndarray:
    """(2^y - 1) / 2^top: exact for whole grades, small ones keep their precision, large ones do not overflow."""
    small = -np.expm1(-np.log(2.0) * y) * np.exp2(y - top)
    return np.where(y < 1.0, small, np.exp2(y - top) - np.exp2(-top))


def _refuse_negative(rows: Rows, metric: str) -> None:
    if rows.y.min() < 0.0:
        raise ValueError(
            f"{metric} needs grades that are not negative: found y = {rows.y.min():g}. "
            "Shift the grades so that 0 means not relevant."
        )


def _finished(metric: str, rows: Rows, values: np.ndarray, no_relevant: str, per_query: bool) -> Any:
    """Resolve the queries without a relevant row (NaN so far), then take the mean."""
    if no_relevant == "zero":
        values = np.where(np.isnan(values), 0.0, values)
    found = rows.per_query(values)
    if per_query:
        return found
    reason = (
        "no query has a relevant row. Check the grades (and relevant_above, where the metric has it), or count such "
        'queries as 0 with no_relevant="zero".'
    )
    return mean_or_refuse(found, metric=metric, reason=reason)
