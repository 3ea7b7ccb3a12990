"""Cost "relative": every untied pair of a query, its squared error divided by (s_i - s_j)².

The weights 1 / (s_i - s_j)² give each query a dense block, so L costs O(Σ n_q²) memory and time per column.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ..numerics.memory import require_memory
from .base import Comparisons, Removal, drop_from_blocks, parts_change_weight
from .grouping import Groups, query_weights
from .queries import tie_groups_of

# Up to this many numbers, differences of features of all pairs are stored.
_MOST_DIFFERENCES = 1 << 24


class RelativeComparisons(Comparisons):
    """Σ over untied pairs of (1 - (f_i - f_j) / (s_i - s_j))².

    Parameters
    ----------
    scores : ndarray of shape (m, 1)
    queries : Groups
    weighting : {"pair", "item", "query"}
    row_weights : ndarray of shape (m,), optional
        A pair counts with the product of the weights of its rows.
    """

    queries: Groups

    def __init__(
        self, scores: np.ndarray, queries: Groups, *, weighting: str = "pair",
        row_weights: np.ndarray | None = None,
    ):  # fmt: skip
        if scores.shape[1] != 1:
            raise ValueError("Cost 'relative' depends on the scores: one output at a time.")
        _require_memory_for_blocks(queries)
        self.n_rows = scores.shape[0]
        self.scores = scores
        self.queries = queries
        self.weighting = weighting
        self.row_weights = row_weights
        self._members = [queries.rows(query) for query in range(queries.n_groups)]

    @cached_property
    def _compared(self) -> tuple[list[np.ndarray], np.ndarray, float]:
        """The blocks of L, b and the weight of all pairs; not made where only parts of the rows are trained on."""
        blocks, target = [], np.zeros((self.n_rows, 1))
        pair_weight = np.zeros(self.queries.n_groups)
        w = np.ones(self.n_rows) if self.row_weights is None else self.row_weights
        for query, members in enumerate(self._members):
            block, target[members, 0], pair_weight[query] = _relative_block(
                self.scores[members, 0], w[members]
            )
            blocks.append(block)
        totals = np.bincount(self.queries.codes, weights=w, minlength=self.queries.n_groups)
        weights = query_weights(self.weighting, totals, pair_weight)
        for block, weight in zip(blocks, weights, strict=True):
            block *= weight
        return blocks, target * weights[self.queries.codes][:, None], float(weights @ pair_weight)

    @property
    def _blocks(self) -> list[np.ndarray]:
        return self._compared[0]

    @property
    def target(self) -> np.ndarray:  # type: ignore[override]
        return self._compared[1]

    def total_weight(self) -> float:
        return self._compared[2]

    @property
    def n_outputs(self) -> int:
        return 1

    @cached_property
    def n_comparisons(self) -> int:  # type: ignore[override]
        counted = np.ones(self.n_rows) if self.row_weights is None else (self.row_weights > 0) * 1.0
        tied = tie_groups_of(self.scores[:, 0], self.queries)[0]
        of_queries, of_ties = (np.bincount(one.codes, weights=counted) for one in (self.queries, tied))
        return int(of_queries @ of_queries - of_ties @ of_ties) // 2

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        out = np.empty_like(V)
        for members, block in zip(self._members, self._blocks, strict=True):
            out[members] = block @ (V[members] - V[members[0]])
        return out

    def blocks(self, V: np.ndarray, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        # Small queries are taken together, so that the sum over blocks is not updated once for each of them.
        batch = (np.cumsum(self.queries.counts) - 1) // n_rows
        for first, last in _runs(batch):
            part = V[np.concatenate(self._members[first:last])]
            image = np.empty_like(part)
            start = 0
            for block in self._blocks[first:last]:
                rows = slice(start, start + block.shape[0])
                # What the rows of a query have in common is removed first: products would leave its rounding.
                part[rows] -= part[start].copy()
                image[rows] = block @ part[rows]
                start = rows.stop
            yield part, image

    def squared_targets(self) -> np.ndarray:
        # The error of a pair is divided by its target: each target is 1.
        return np.array([self.total_weight()])

    def diagonal(self) -> np.ndarray:
        out = np.empty(self.n_rows)
        for members, block in zip(self._members, self._blocks, strict=True):
            out[members] = np.diagonal(block)
        return out

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        # L = E diag(c) Eᵀ with the columns of E the edges of each block.
        heads, tails, weights = [], [], []
        for members, block in zip(self._members, self._blocks, strict=True):
            i, j = np.nonzero(np.triu(block, 1))
            heads.append(members[i])
            tails.append(members[j])
            weights.append(-block[i, j])
        head, tail = np.concatenate(heads), np.concatenate(tails)
        edge = np.arange(head.shape[0])
        E = sp.csr_array(
            (
                np.concatenate([np.ones(edge.shape[0]), -np.ones(edge.shape[0])]),
                (np.concatenate([head, tail]), np.concatenate([edge, edge])),
            ),
            shape=(self.n_rows, edge.shape[0]),
        )
        return [(E, np.concatenate(weights))]

    def least_squares(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.n_comparisons * V.shape[1] > _MOST_DIFFERENCES:
            return super().least_squares(V)
        [(E, weights)] = self.indicators()
        root = np.sqrt(weights)[:, None]
        return root * (E.T @ V), root * (E.T @ self.scores)

    def take(self, rows: np.ndarray) -> RelativeComparisons:
        kept, codes = np.unique(self.queries.codes[rows], return_inverse=True)
        return RelativeComparisons(
            self.scores[rows],
            Groups(codes.astype(np.int64), kept.shape[0]),
            weighting=self.weighting,
            row_weights=None if self.row_weights is None else self.row_weights[rows],
        )

    @property
    def alike(self) -> Groups | None:
        if self.queries.n_groups > 1 or self.row_weights is not None:
            return None
        values, codes = np.unique(self.scores[:, 0], return_inverse=True)
        return Groups(codes, values.shape[0]) if values.shape[0] < self.n_rows else None

    @property
    def whole_queries_only(self) -> bool:
        return parts_change_weight(self.queries, self.weighting)

    def drop(self, rows: np.ndarray) -> Removal:
        return drop_from_blocks(self, rows, self.queries)


def _require_memory_for_blocks(queries: Groups) -> None:
    n = queries.counts.astype(np.int64)
    largest = int(n.max(initial=0))
    require_memory(
        8 * (int((n * n).sum()) + 3 * largest * largest),  # the blocks, and temporary ones
        f"a block of {largest} × {largest} for the largest query under cost='relative'",
        "Use cost='magnitude' or 'unit', which need no such block, or smaller queries.",
    )


def _runs(labels: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last + 1 of each run of equal neighbours."""
    edges = np.flatnonzero(np.diff(labels, prepend=-1, append=-1))
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _relative_block(scores: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """L and b of one query, and the total weight of its untied pairs; w are the weights of the rows."""
    inverse = scores[:, None] - scores
    untied = inverse != 0
    np.divide(1.0, inverse, out=inverse, where=untied)
    target = (inverse * w).sum(axis=1) * w
    block = np.square(inverse, out=inverse)
    block *= -w[:, None]
    block *= w
    np.fill_diagonal(block, 0.0)
    np.fill_diagonal(block, -block.sum(axis=1))
    return block, target, float(w @ (untied @ w)) / 2
