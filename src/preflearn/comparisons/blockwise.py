"""Rows that leave a block-diagonal L.

Only the blocks of the queries that lose rows change: L - L' = N diag(σ) Nᵀ with at most n_q columns for each of them.
"""

from __future__ import annotations

import numpy as np

from .base import Comparisons, HalfRemoval, Removal
from .grouping import Groups


def parts_change_weight(queries: Groups, weighting: str) -> bool:
    """Whether the rest of a query would weigh more beside the others when part of it leaves."""
    return weighting == "query" and queries.n_groups > 1


def drop_from_blocks(comparisons: Comparisons, rows: np.ndarray, queries: Groups) -> Removal:
    """The removal of rows from queries, whole or in part. O(n_q³) for each query that loses rows.

    Raises
    ------
    ValueError
        If part of a query leaves under weighting "query": every query is to weigh the same, and what a part of one
        should weigh is not defined by that.
    """
    leaving = np.zeros(comparisons.n_rows, dtype=bool)
    leaving[rows] = True
    parts = [
        _drop_from_query(comparisons, queries.rows(query), leaving)
        for query in np.unique(queries.codes[rows])
    ]
    return Removal(
        rows=np.concatenate([members for members, _, _, _ in parts]),
        columns=_block_diagonal([columns for _, columns, _, _ in parts]),
        signs=np.concatenate([signs for _, _, signs, _ in parts]),
        change=np.concatenate([change for _, _, _, change in parts]),
    )


def drop_half_from_blocks(comparisons: Comparisons, rows: np.ndarray, queries: Groups) -> HalfRemoval:
    """The same removal seen through the symmetric half; free when whole queries leave."""
    leaving = np.zeros(comparisons.n_rows, dtype=bool)
    leaving[rows] = True
    touched = np.unique(queries.codes[rows])
    members = np.concatenate([queries.rows(query) for query in touched])
    if queries.are_whole(rows):
        return HalfRemoval(members)
    parts = [_half_drop_from_query(comparisons, queries.rows(query), leaving) for query in touched]
    return HalfRemoval(
        rows=members,
        columns=_block_diagonal([columns for columns, _, _ in parts]),
        lost=np.concatenate([lost for _, lost, _ in parts]),
        change=np.concatenate([change for _, _, change in parts]),
    )


def _half_drop_from_query(comparisons, members, leaving):
    _, columns, signs, lost_target = _drop_from_query(comparisons, members, leaving)
    inverse = comparisons.take(members).half_inverse(np.eye(members.shape[0]))
    seen = inverse @ columns
    values, vectors = np.linalg.eigh((seen * signs) @ seen.T)
    keep = np.abs(values) > values.shape[0] * np.finfo(float).eps
    return vectors[:, keep], values[keep], inverse @ lost_target


def _drop_from_query(comparisons, members, leaving):
    here = comparisons.take(members)
    lost, lost_target = here.to_dense(), here.target.copy()
    stays = np.flatnonzero(~leaving[members])
    if stays.size:
        if comparisons.whole_queries_only and stays.size < members.size:
            raise ValueError(
                "Part of a query is held out under weighting='query', where every query weighs the same: the remaining "
                "pairs of that query would change their weight. Hold out whole queries together, or use "
                "weighting='pair' or 'item'."
            )
        rest = here.take(stays)
        lost[np.ix_(stays, stays)] -= rest.to_dense()
        # What leaves is a difference of weights of pairs; one of their sums would lose a light pair beside a heavy one.
        np.fill_diagonal(lost, 0.0)
        np.fill_diagonal(lost, -lost.sum(axis=1))
        lost_target[stays] -= rest.target
    values, vectors = np.linalg.eigh(lost)
    size = np.abs(values)
    keep = size > size.max(initial=0.0) * size.shape[0] * np.finfo(float).eps
    return members, vectors[:, keep] * np.sqrt(size[keep]), np.sign(values[keep]), lost_target


def _block_diagonal(blocks: list[np.ndarray]) -> np.ndarray:
    heights = [block.shape[0] for block in blocks]
    widths = [block.shape[1] for block in blocks]
    out = np.zeros((sum(heights), sum(widths)))
    row = column = 0
    for block, height, width in zip(blocks, heights, widths, strict=True):
        out[row : row + height, column : column + width] = block
        row, column = row + height, column + width
    return out
