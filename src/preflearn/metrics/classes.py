"""Measures of classes: of two at a threshold that was chosen on other scores than those it is applied to, and of
ordered ones by the tuples of rows, one of each class, that the scores put in the right order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .by_query import check_rows, mean_or_refuse, over_queries
from .registry import metric_entry

# In how many parts rows are divided: the threshold of each is chosen by the others.
_PARTS = 10


@metric_entry("f1", title="F1", compares_rows=False)
def f1(y: Any, scores: Any, *, threshold: float | None = None) -> float:
    """F1, the harmonic mean of precision and recall, at a threshold chosen on held-out scores.

    Parameters
    ----------
    y : array-like of shape (m,)
        Two different values; the larger marks the positive rows.
    scores : array-like of shape (m,)
        Scores of rows that the model has not seen.
    threshold : float, optional
        Rows with a higher score are called positive. By default a tenth of the rows, spread over the scores, is called
        by the threshold that is best for the other rows, which does not flatter as the best one for all of them would.

    Returns
    -------
    float
        0 where no positive row is found.

    Notes
    -----
    O(m log m). The rows of all queries and folds have one threshold: their scores must be on one scale.

    Examples
    --------
    >>> from preflearn.metrics import f1
    >>> f1([1, 0, 1, 0, 0], [0.9, 0.6, 0.5, 0.3, 0.1], threshold=0.4)
    0.8
    """
    positive, called = _called(y, scores, threshold, lambda hits, n, of: 2.0 * hits / np.maximum(n + of, 1))
    both = np.count_nonzero(positive) + np.count_nonzero(called)
    return float(2 * np.count_nonzero(positive & called) / both)


@metric_entry("class_accuracy", compares_rows=False)
def class_accuracy(y: Any, scores: Any, *, threshold: float | None = None) -> float:
    """The share of rows in the right one of two classes, at a threshold chosen on held-out scores.

    Parameters
    ----------
    y, scores, threshold
        As in :func:`f1`.

    Returns
    -------
    float

    Notes
    -----
    O(m log m).

    Examples
    --------
    >>> from preflearn.metrics import class_accuracy
    >>> class_accuracy([1, 0, 1, 0, 0], [0.9, 0.6, 0.5, 0.3, 0.1], threshold=0.4)
    0.8
    """
    # Of the rows called positive the hits are right and the others wrong: up to constants, right rows are 2 hits - n.
    positive, called = _called(y, scores, threshold, lambda hits, n, of: 2.0 * hits - n)
    return float(np.mean(positive == called))


def _called(
    y: Any, scores: Any, threshold: float | None, value: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are positive, and which are called so.

    ``value(hits, n, of)`` is to be largest: n rows called, hits of them right, of rows positive altogether.
    """
    rows = check_rows(y, scores, None)
    classes = np.unique(rows.y)
    if classes.shape[0] != 2:
        raise ValueError(
            f"f1 and class_accuracy need two classes: y holds {classes.shape[0]} different values. For graded or real "
            "y use the concordance (scoring='concordance')."
        )
    order = np.lexsort((rows.y[:, 0], -rows.scores[:, 0]))
    ordered, positive = rows.scores[order, 0], rows.y[order, 0] == classes[1]
    if threshold is not None:
        return positive, ordered > threshold
    called = np.zeros(ordered.shape[0], dtype=bool)
    part = np.arange(ordered.shape[0]) % _PARTS
    for number in range(min(_PARTS, ordered.shape[0])):
        others = part != number
        called[~others] = ordered[~others] >= _lowest_called(ordered[others], positive[others], value)
    return positive, called


def _lowest_called(
    scores: np.ndarray,
    positive: np.ndarray,
    value: Callable[[np.ndarray, np.ndarray, int], np.ndarray],
) -> float:
    """The lowest score of a row that is called positive at the best threshold; infinite where none is best."""
    hits = np.concatenate([[0], np.cumsum(positive)])
    values = value(hits, np.arange(hits.shape[0]), int(hits[-1]))
    # Equal scores are called together: a cut is before all rows, or after the last of a tie.
    cuts = np.concatenate([[0], np.flatnonzero(np.append(np.diff(scores) != 0, True)) + 1])
    n_called = int(cuts[np.argmax(values[cuts])])
    return float(scores[n_called - 1]) if n_called else np.inf


@metric_entry("volume_under_surface", title="volume under the ROC surface", aliases=("vus",))
def volume_under_surface(y: Any, scores: Any, qid: Any = None, *, per_query: bool = False) -> Any:
    r"""Volume under the ROC surface: the share of tuples, one row of each class, in the right order.

    .. math::

        \frac{1}{n_1 \cdots n_k} \sum_{i_1 \in C_1} \cdots \sum_{i_k \in C_k} [s_{i_1} < s_{i_2} < \cdots < s_{i_k}]

    Equal scores count by the fraction of their orders that is right: t of them count 1 / t!, as a tie of two counts
    half in the AUC. Random scores reach 1 / k!, and for two classes this is :func:`auc`.

    Parameters
    ----------
    y : array-like of shape (m,)
        Classes as numbers, higher is better.
    scores : array-like of shape (m,)
    qid : array-like of shape (m,) or None
        The query of each row; None compares all rows with each other.
    per_query : bool, default=False
        Return the value in each query instead of their mean.

    Returns
    -------
    float or PerQuery
        In a query without rows of one of the classes of y the value is NaN, and the query is left out of the mean.

    Raises
    ------
    ValueError
        If y has one class, or no query has rows of every class, or a value is NaN or infinite, or lengths differ.

    Notes
    -----
    O(m log m + m k). In the order of the scores, the sum over the tuples of the first c classes grows with each row of
    class c by the sum over those of the first c - 1 that are lower.

    References
    ----------
    W. Waegeman, B. De Baets, L. Boullart. ROC analysis in ordinal regression learning. Pattern Recognition Letters 29
    (2008), 1-9.

    Examples
    --------
    >>> from preflearn.metrics import volume_under_surface
    >>> volume_under_surface([1, 2, 3, 3], [0.1, 0.4, 0.7, 0.3])
    0.5
    >>> round(volume_under_surface([1, 2, 3], [0.0, 0.0, 0.0]), 4)
    0.1667
    """
    from ._loops import ordered_tuples

    rows = check_rows(y, scores, qid)
    classes, codes = np.unique(rows.y[:, 0], return_inverse=True)
    if classes.shape[0] < 2:
        raise ValueError(f"volume_under_surface needs two classes or more: every y is {classes[0]:g}.")
    ordered = np.lexsort((rows.scores[:, 0], rows.queries.codes))
    values = np.empty(rows.queries.n_groups)
    over_queries(
        ordered_tuples, rows.queries, rows.scores[ordered, 0], codes[ordered], classes.shape[0], values
    )
    found = rows.per_query(values)
    reason = f"no query has rows of all {classes.shape[0]} classes of y."
    return found if per_query else mean_or_refuse(found, metric="volume_under_surface", reason=reason)
