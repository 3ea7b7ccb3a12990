"""A measure of ordered classes: how many tuples of rows, one of each class, do the scores put in the right order?"""

from __future__ import annotations

from typing import Any

import numpy as np

from .by_query import check_rows, mean_or_refuse, over_queries
from .registry import metric_entry


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
