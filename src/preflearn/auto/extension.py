"""From members that were chosen on a sample to members that were trained on everything.

One fold of the sample stays out. The members with a share are trained on all other rows; what they predict for this
fold gives their weights, and the figure that is reported: it is that of what was trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..comparisons import Groups, encode_queries
from .combination import FoldScores, choose_combination
from .curves import described
from .everything import Chunk, Everything
from .resuming import Run
from .trees import TreeSum
from .trial import Attempt, Trial, name_of_model

# Rows of a chunk, about.
CHUNK_ROWS = 50_000


def fold_to_keep(folds: FoldScores) -> int:
    """The fold with the most queries to compare."""
    return int(np.argmax(folds.sizes))


def chunks_without(
    rows: np.ndarray, y: np.ndarray, order: np.ndarray, queries: Groups, held_out: np.ndarray
) -> Callable[[], Iterator[Chunk]]:
    """All rows but some, in chunks of whole queries; of a single query any rows.

    Parameters
    ----------
    rows : ndarray of shape (m, n)
    y : ndarray of shape (m,)
    order : ndarray of int of shape (m,)
        The order in which the rows are taken, query after query.
    queries : Groups
        Of the rows in this order.
    held_out : ndarray of int
        Places in this order that are left out.
    """
    kept = np.ones(order.shape[0], dtype=bool)
    kept[held_out] = False
    places = np.flatnonzero(kept)
    codes = queries.codes[places]
    if queries.n_groups == 1:
        starts = np.arange(places.shape[0])
    else:
        starts = np.flatnonzero(np.r_[True, np.diff(codes) != 0])
    # A chunk ends with the first query that ends beyond its size.
    ends = np.append(starts[1:], places.shape[0])
    number = (ends - 1) // CHUNK_ROWS
    bounds = np.append(starts[np.r_[True, np.diff(number) != 0]], places.shape[0])

    def chunks() -> Iterator[Chunk]:
        for first, last in zip(bounds[:-1], bounds[1:], strict=True):
            taken = order[places[first:last]]
            yield Chunk(rows[taken], y[taken], encode_queries(codes[first:last], taken.shape[0]))

    return chunks


def extend(
    trial: Trial,
    everything: Everything,
    rows: np.ndarray,
    y: np.ndarray,
    queries: Groups,
    folds: FoldScores,
    run: Run,
) -> Trial:
    """The members with a share, trained on everything, and their weights by the fold that stays out.

    Parameters
    ----------
    trial : Trial
        On the sample.
    everything : Everything
    rows : ndarray of shape (k, n)
        Of the fold that stays out.
    y : ndarray of shape (k,)
        Their targets.
    queries : Groups
    folds : FoldScores
        Of these rows: parts of the fold.
    run : Run
        Remembers what has been trained.
    """
    test = trial.folds.tests[everything.fold]
    views = everything.features.views(rows, queries)
    attempts = []
    for one in trial.attempts:
        attempts.append(_restricted(one, test))
        member = one.member
        if one.share <= 0 or member is None or member.extend is None:
            continue
        model, unbiased = run.extended(one.candidate.name, member.extend, everything)
        attempts[-1].member = replace(
            member,
            model=model,
            held_out=model.predict(views[one.candidate.view]),
            unbiased=unbiased,
            importances=model.feature_importances_,
            detail=described_on(model, everything.n_learned(is_kernel=member.extend.is_kernel)),
        )
    joining = [one for one in attempts if one.share > 0 and one.member is not None]
    held_out, unbiased = (
        np.column_stack([getattr(one.member, name) for one in joining]) for name in ("held_out", "unbiased")
    )
    chosen = choose_combination(held_out, unbiased, y, queries, folds.choosing)
    for one, weight, spread in zip(joining, chosen.weights, chosen.spreads, strict=True):
        one.share, one.factor = weight / chosen.weights.sum(), weight / spread
    scored = (folds.sizes > 0) & (folds.n_scored > 1)
    return Trial(attempts, folds, chosen.nested, name_of_model(joining), scored)


def described_on(model: Any, n_rows: int) -> str:
    """The settings of a member that has learned from this number of rows, for the leaderboard."""
    if isinstance(model, TreeSum):
        n_nodes = np.diff(np.append(model.roots_, model.left_.shape[0]))
        found = f"{n_nodes.shape[0]} trees of {(int(n_nodes.max()) + 1) // 2} leaves"
    else:
        found = described(model)
    return f"{found}; on {n_rows:,} rows"


def _restricted(attempt: Attempt, rows: np.ndarray) -> Attempt:
    """The same with the held-out predictions of some rows."""
    member = attempt.member
    if member is None:
        return replace(attempt)
    return replace(
        attempt, member=replace(member, held_out=member.held_out[rows], unbiased=member.unbiased[rows])
    )


__all__ = ["CHUNK_ROWS", "chunks_without", "described_on", "extend", "fold_to_keep"]
