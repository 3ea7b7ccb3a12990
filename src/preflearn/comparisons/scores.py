"""From scores and options to comparisons: the one place where cost, ties and weighting are read."""

from __future__ import annotations

import numpy as np

from .base import Comparisons
from .grouping import Groups
from .queries import QueryComparisons
from .relative import RelativeComparisons
from .weighted import WeightedPairs
from .weighting import WEIGHTINGS

COSTS = ("magnitude", "unit", "relative")
TIES = ("include", "exclude")


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
        Whether pairs with equal scores are pulled together; costs "unit" and "relative" leave them out always.
    weighting : {"pair", "item", "query"}
    allow_none : bool
        Accept scores without any pair that can be compared, as a part of more to come may be.
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


def _nothing_to_compare(queries: Groups, cost: str, ties: str) -> str:
    if queries.n_rows == 1:
        return "Ranking needs at least two rows to compare: found 1 sample."
    if queries.counts.max(initial=0) <= 1:
        return (
            f"No pair can be compared: each of the {queries.n_groups} queries has one row only. "
            "Check qid: rows of the same query must carry the same label; without qid all rows are one query."
        )
    why = "ties='exclude'" if cost == "magnitude" else f"cost={cost!r}"
    return (
        f"No pair can be compared: all scores inside each query are equal, and {why} leaves tied pairs out. "
        "Check y and qid, or use cost='magnitude' with ties='include'."
    )
