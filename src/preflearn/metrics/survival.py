r"""Do groups of rows live equally long? The log-rank test for any number of groups.

At each time t with D events among N rows at risk, n_g of them in group g, equally long lives make D n_g / N events of
the group expected, with covariance D (N - D) / (N - 1) · (δ_gh n_g / N - n_g n_h / N²). With u the observed events
minus the expected ones and V the covariance, both summed over times, uᵀ V⁺ u has a χ² distribution with one degree of
freedom less than there are groups.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from ..comparisons.grouping import encode_queries
from ..comparisons.inputs import read_times


class LogRank(NamedTuple):
    """What :func:`logrank_test` found.

    Attributes
    ----------
    statistic : float
    pvalue : float
        Of equally long lives in all groups.
    labels : ndarray of shape (k,)
        The groups.
    observed, expected : ndarrays of shape (k,)
        Events of each group, and how many equally long lives would make expected.
    """

    statistic: float
    pvalue: float
    labels: np.ndarray
    observed: np.ndarray
    expected: np.ndarray


def logrank_test(y: Any, groups: Any, *, event: Any = None) -> LogRank:
    """Test whether groups of rows with censored times live equally long.

    Parameters
    ----------
    y : array-like of shape (m,)
        Times, or times and events as one structured array, as in `concordance`.
    groups : array-like of shape (m,)
        Any labels, of two groups or more.
    event : array-like of bool, shape (m,), optional
        True where the event was seen at the time y, False where it was still to come.

    Returns
    -------
    LogRank

    Raises
    ------
    ValueError
        If there are no events or fewer than two groups.

    Notes
    -----
    O(k m log m) for k groups. A row that is censored at the time of an event was at risk then. Groups that were made by
    a model which learned from these rows differ by construction: use held-out predictions.

    References
    ----------
    N. Mantel. Evaluation of survival data and two new rank order statistics arising in its consideration. Cancer
    Chemotherapy Reports 50 (1966), 163-170.

    Examples
    --------
    >>> from preflearn.metrics import logrank_test
    >>> found = logrank_test([1, 2, 3, 4, 5, 6], ["a", "a", "b", "a", "b", "b"], event=[1, 1, 1, 1, 1, 0])
    >>> round(found.statistic, 3), found.observed.tolist()
    (2.557, [3, 2])
    """
    times, events = read_times(y, event)
    if events is None:
        raise ValueError(
            "logrank_test needs events: pass event=..., True where the event was seen at the time y."
        )
    owners = encode_queries(groups, times.shape[0])
    k, at = owners.n_groups, np.unique(times[events])
    if k < 2 or at.size == 0:
        what = "one group" if k < 2 else "no event"
        raise ValueError(f"logrank_test compares two groups or more by their events: found {what}.")
    at_risk, died = np.empty((k, at.size)), np.empty((k, at.size))
    for group in range(k):
        rows = owners.rows(group)
        own, ends = np.sort(times[rows]), np.sort(times[rows[events[rows]]])
        at_risk[group] = own.size - np.searchsorted(own, at)
        died[group] = np.searchsorted(ends, at, side="right") - np.searchsorted(ends, at)
    share, N, D = at_risk / at_risk.sum(axis=0), at_risk.sum(axis=0), died.sum(axis=0)
    weight = D * (N - D) / np.maximum(N - 1, 1)
    u, V = (died - share * D).sum(axis=1), np.diag(share @ weight) - (share * weight) @ share.T
    statistic = float(u @ np.linalg.pinv(V, hermitian=True) @ u)
    labels = np.asarray(owners.labels)
    observed = died.sum(axis=1).astype(np.int64)
    return LogRank(statistic, float(chi2.sf(statistic, k - 1)), labels, observed, observed - u)
