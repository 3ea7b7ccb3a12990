"""What a combination predicts: the members one after the other for some rows, other rows in other threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..comparisons import Groups
from ..learners.base import KernelModel
from ..numerics.threads import blas_at_rest, in_turns, threads_at_hand
from .features import Features
from .kernels import KernelAndCurves
from .trees import TreeSum

# Rows of whole queries that a thread prepares and scores at a time: they stay in its cache.
_ROWS_OF_QUERIES = 512


def scores_by_query(
    scores: Callable[[np.ndarray, Groups], np.ndarray], rows: np.ndarray, queries: Groups
) -> np.ndarray:
    """``scores(rows, queries)``, for some whole queries at a time where there are many rows, others in other threads.

    Parameters
    ----------
    scores : function
        From rows and their queries to an array of shape (m,), queries independent of each other.
    rows : ndarray of shape (m, n)
    queries : Groups
    """
    m = rows.shape[0]
    # A query that is most of the work is better divided among the threads.
    if m <= _ROWS_OF_QUERIES or queries.counts.max() > m // threads_at_hand():
        with blas_at_rest(m <= _ROWS_OF_QUERIES):
            return scores(rows, queries)
    # A part begins with the query in which a multiple of the number of rows lies.
    begin = np.unique(np.searchsorted(queries.starts[1:], np.arange(0, m, _ROWS_OF_QUERIES), side="right"))
    ends = np.append(begin[1:], queries.n_groups)
    out = np.empty(m)
    is_sorted = bool((queries.codes[1:] >= queries.codes[:-1]).all())

    def fill(first: int, last: int) -> None:
        span = slice(queries.starts[first], queries.starts[last])
        place = span if is_sorted else queries.order[span]
        out[place] = scores(rows[place], Groups(queries.codes[place] - first, last - first))

    with blas_at_rest():
        in_turns(fill, list(zip(begin.tolist(), ends.tolist(), strict=True)))
    return out


def weighted_scores(
    features: Features,
    members: Sequence[Any],
    views: Sequence[tuple[str, ...]],
    weights: np.ndarray,
    rows: np.ndarray,
    queries: Groups,
) -> np.ndarray:
    """Σ_k weights_k · (scores of member k, which sees view k of the features), shape (m,)."""

    def scores(X: np.ndarray, within: Groups) -> np.ndarray:
        seen = features.views(X, within)
        return combined_scores(members, [seen[view] for view in views], weights)

    return scores_by_query(scores, rows, queries)


def combined_scores(members: Sequence[Any], views: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Σ_k weights_k · (scores of member k), shape (m,).

    Parameters
    ----------
    members : sequence of fitted models
    views : sequence of float64 arrays of shape (m, n_k)
        What each member sees, validated.
    weights : ndarray of shape (k,)
    """
    out = np.zeros(views[0].shape[0])
    for member, view, weight in zip(members, views, weights, strict=True):
        out += float(weight) * getattr(member, "predict_items", member.predict)(view)
    return out


def refuse_misfits(members: Sequence[Any], views: Sequence[Sequence[str]], n_columns: int) -> None:
    """Refuse members that are not fitted models with one output, or whose number of features is not that of their view.

    Raises
    ------
    ValueError
    """
    for place, (member, view) in enumerate(zip(members, views, strict=True)):
        name = f"members_[{place}]"
        if not isinstance(member, (TreeSum, KernelAndCurves, KernelModel)):
            raise ValueError(f"{name} is a {type(member).__name__}, expected a model that scores rows")
        if not member._fitted_arrays():
            raise ValueError(f"{name} is a {type(member).__name__} that is not fitted")
        coefficients = [getattr(member, one) for one in ("dual_coef_", "coef_") if hasattr(member, one)]
        if isinstance(member, KernelModel) and not any(np.ndim(one) == 1 for one in coefficients):
            raise ValueError(f"{name} gives several scores to a row, expected one")
        if member.n_features_in_ != len(view) * n_columns:
            raise ValueError(
                f"{name} takes {member.n_features_in_} features, and its view has {len(view) * n_columns}"
            )
