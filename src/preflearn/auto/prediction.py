"""What a combination predicts: the members one after the other for some rows, other rows in other threads.

What depends on a member alone is prepared when it is first asked, and kept as long as the member lives; it is neither
part of the model nor of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..comparisons import Groups
from ..kernels.expansions import RbfExpansion
from ..learners.base import KernelModel
from ..learners.rankrfm import RankRFM
from ..numerics.threads import blas_at_rest, in_turns, over_small_ranges, threads_at_hand
from .curves import KernelAndCurves
from .features import Views
from .trees import TreeSum

# Error of a learned kernel that single precision may make, relative to the standard deviation of its scores. It is the
# largest one: most errors are a fifth of it, and that of a combination is smaller by the share of its kernels.
TOLERANCE = 1e-6
# Multiplications that are worth a thread, and those after which a thread takes other rows.
_LEAST_WORK, _MOST_WORK = 1 << 22, 1 << 26
# Rows begin at multiples of this: trees take so many together.
_ROWS = 64
# Multiplications that a node of a tree, a bump of a curve, and anything else of a member take as long as.
_OF_NODE, _OF_BUMP, _OF_REST = 2, 15, 1 << 12

# Rows of whole queries that a thread prepares and scores at a time: they stay in its cache.
_ROWS_OF_QUERIES = 512

Scores = Callable[[np.ndarray], np.ndarray]
_PREPARED: WeakKeyDictionary[RankRFM, tuple[np.ndarray, RbfExpansion]] = WeakKeyDictionary()


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

    in_turns(fill, list(zip(begin.tolist(), ends.tolist(), strict=True)))
    return out


def combined_scores(members: Sequence[Any], views: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Σ_k weights_k · (scores of member k), shape (m,).

    Parameters
    ----------
    members : sequence of fitted models
    views : sequence of float64 arrays of shape (m, n_k)
        What each member sees, validated.
    weights : ndarray of shape (k,)
    """
    m = views[0].shape[0]
    out = np.zeros(m)
    parts = [(*_scores_of(one), view, float(weight)) for one, view, weight in zip(members, views, weights)]
    work = _OF_REST + sum(each for _, each, *_ in parts)

    def fill(first: int, last: int) -> None:
        for scores, _, view, weight in parts:
            out[first:last] += weight * scores(view[first:last])

    n_parts = min(threads_at_hand(), m * work // _LEAST_WORK)
    if n_parts < 2:
        fill(0, m)
        return out
    step = min(-(-m // n_parts), max(1, _MOST_WORK // work))
    over_small_ranges(fill, m, -(-step // _ROWS) * _ROWS if step > _ROWS else step)
    return out


@dataclass(frozen=True)
class WeightedMembers:
    """Members with the views that they see and the factors of their predictions; called with `Views`, scores of rows.

    Attributes
    ----------
    members : list of fitted models
    views : list of tuple of str
    weights : ndarray of shape (k,)
    """

    members: list[Any]
    views: list[tuple[str, ...]]
    weights: np.ndarray

    def __call__(self, views: Views) -> np.ndarray:
        return combined_scores(self.members, [views[view] for view in self.views], self.weights)


def prepare(members: Sequence[Any]) -> None:
    """Make ready what depends on the members alone: once, and not by each of the threads that score rows."""
    for one in members:
        _scores_of(one)


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


def _scores_of(member: Any) -> tuple[Scores, int]:
    """How rows that have been validated are scored, and the multiplications that one takes as long as."""
    if isinstance(member, TreeSum):
        return member.predict, _OF_NODE * member.left_.shape[0] // 2
    if isinstance(member, KernelAndCurves):
        of_kernel, work = _scores_of(member.kernel_)
        return (
            lambda rows: of_kernel(rows) + member.curve_scores(rows),
            work + _OF_BUMP * member.knots_.size,
        )
    if not isinstance(member, RankRFM) or member.kernel != "rbf" or not _is_plain(member):
        size = np.size(member.dual_coef_) if hasattr(member, "dual_coef_") else 1
        return partial(_with_blas, member.predict_items), size * member.n_features_in_
    found = _PREPARED.get(member)
    if found is None or found[0] is not member.dual_coef_:
        expansion = RbfExpansion(member._read_kernel(), member.basis_, member.dual_coef_, TOLERANCE)
        _PREPARED[member] = found = member.dual_coef_, expansion
    return found[1], found[1].work


def _with_blas(scores: Scores, rows: np.ndarray) -> np.ndarray:
    """Scores of a member that BLAS computes, in this thread."""
    with blas_at_rest():
        return scores(rows)


def _is_plain(member: RankRFM) -> bool:
    """One output, dense rows in double precision."""
    arrays = (member.basis_, member.dual_coef_)
    return member.dual_coef_.ndim == 1 and all(
        isinstance(one, np.ndarray) and one.dtype == np.float64 for one in arrays
    )


__all__ = ["TOLERANCE", "WeightedMembers", "combined_scores", "prepare", "refuse_misfits", "scores_by_query"]
