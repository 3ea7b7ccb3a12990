r"""Every pair of rows within a query, in O(m).

With n rows in a query, tie groups g of n_g rows, P averaging inside tie groups and O averaging over the query, the
block of a query with weight w is

    L = w [ (n - n_g) (I - P) + n (P - O) ]          L = S S
    S = √w [ √(n - n_g) (I - P) + √n (P - O) ]

When tied pairs are included every row is its own tie group for this purpose: P = I, L = w n (I - O).
The target is b = L s for cost "magnitude" (each pair should differ by s_i - s_j), and for cost "unit" (each untied pair
should differ by 1) b_i = w (#lower in the query - #higher in the query).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from .base import (
    Comparisons,
    HalfRemoval,
    Removal,
    drop_from_blocks,
    drop_half_from_blocks,
    parts_change_weight,
)
from .grouping import Groups, query_weights

# Up to this many columns, one bincount per column is faster than compiling and starting a parallel loop.
_FEW_COLUMNS = 4


class QueryComparisons(Comparisons):
    """All pairs (or all untied pairs) of rows of the same query.

    Parameters
    ----------
    scores : ndarray of shape (m, v)
        s, higher is better. One column only when L depends on the scores (ties excluded, or cost "unit").
    queries : Groups
        The query of each row.
    weighting : {"pair", "item", "query"}
    exclude_ties : bool
        Leave pairs with equal scores out.
    unit : bool
        Targets 1 for every untied pair instead of the difference of the scores; needs `exclude_ties`.

    Notes
    -----
    O(m) per column for L @ V and S @ V, O(m log m) once for tie groups and ranks. Reference: Pahikkala et al.,
    "An efficient algorithm for learning to rank from preference graphs", Machine Learning 75 (2009).
    """

    has_half = True

    queries: Groups

    def __init__(
        self, scores: np.ndarray, queries: Groups, *, weighting: str = "pair",
        exclude_ties: bool = False, unit: bool = False,
    ):  # fmt: skip
        if exclude_ties or unit:
            refuse_several_outputs(scores)
        self.n_rows = scores.shape[0]
        self.scores = scores
        self.queries = queries
        self.weighting = weighting
        self.exclude_ties = exclude_ties or unit
        self.unit = unit
        self.tie_groups: Groups | None = None
        lower = None
        if self.exclude_ties:
            tie_groups, lower = tie_groups_of(scores[:, 0], queries)
            # Without ties the block is the one with ties included, which is cheaper.
            self.tie_groups = tie_groups if tie_groups.n_groups < self.n_rows else None
        self._set_weights()
        self.target = self.laplacian(scores) if lower is None or not unit else self._unit_target(lower)

    def _set_weights(self) -> None:
        n = self.queries.counts
        pairs = n * (n - 1) // 2
        if self.tie_groups is not None:
            n_tied = self.tie_groups.counts
            query_of_tie = np.empty(self.tie_groups.n_groups, dtype=np.int64)
            query_of_tie[self.tie_groups.codes] = self.queries.codes
            pairs = pairs - np.bincount(
                query_of_tie, weights=n_tied * (n_tied - 1) // 2, minlength=n.shape[0]
            ).astype(np.int64)
            self._query_of_tie = query_of_tie
        self.pairs_per_query = pairs
        self.n_comparisons = int(pairs.sum())
        self.weights = query_weights(self.weighting, n, pairs)
        row_weight = self.weights[self.queries.codes]
        self._outer = row_weight * n[self.queries.codes]
        if self.tie_groups is None:
            self._inner = self._outer
        else:
            self._inner = self._outer - row_weight * self.tie_groups.counts[self.tie_groups.codes]

    def _unit_target(self, lower: np.ndarray) -> np.ndarray:
        codes = self.queries.codes
        tied = 1 if self.tie_groups is None else self.tie_groups.counts[self.tie_groups.codes]
        higher = self.queries.counts[codes] - lower - tied
        return (self.weights[codes] * (lower - higher))[:, None]

    # The two operators differ only in the factors inside tie groups (inner) and between them (outer).

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        return self._apply(V, self._inner, self._outer)

    def half(self, V: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return self._apply(V, np.sqrt(self._inner), np.sqrt(self._outer), out)

    def half_inverse(self, V: np.ndarray) -> np.ndarray:
        return self._apply(V, _inverse_root(self._inner), _inverse_root(self._outer))

    def anchors(self) -> Groups:
        """A query is one anchor; where nothing is compared S is zero, and each row is its own."""
        alone = (self.pairs_per_query == 0)[self.queries.codes]
        codes = self.queries.codes.copy()
        codes[alone] = self.queries.n_groups + np.arange(int(alone.sum()))
        kept, codes = np.unique(codes, return_inverse=True)
        return Groups(codes.astype(np.int64), kept.shape[0])

    @property
    def half_target(self) -> np.ndarray:
        if self.unit:
            # b is constant inside tie groups and sums to zero over a query, where S is √(w n).
            outer = np.sqrt(self._outer)[:, None]
            return np.divide(self.target, outer, out=np.zeros_like(self.target), where=outer > 0)
        return self.half(self.scores)

    def _apply(
        self, V: np.ndarray, inner: np.ndarray, outer: np.ndarray, out: np.ndarray | None = None
    ) -> np.ndarray:
        if V.ndim == 1 or V.shape[1] <= _FEW_COLUMNS:
            result = self._apply_few(V.reshape(self.n_rows, -1), inner, outer).reshape(V.shape)
            if out is None:
                return result
            out[...] = result
            return out
        V = np.ascontiguousarray(V)
        out = np.empty_like(V) if out is None else out
        self._centre(V, self._means(V), slice(0, self.n_rows), inner, outer, out)
        return out

    def _apply_few(self, V: np.ndarray, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        means = _means_of_few(V, self.queries)[self.queries.codes]
        if self.tie_groups is None:
            return (outer[:, None] * (V - means)).astype(V.dtype, copy=False)
        tie_means = _means_of_few(V, self.tie_groups)[self.tie_groups.codes]
        result = inner[:, None] * (V - tie_means) + outer[:, None] * (tie_means - means)
        return result.astype(V.dtype, copy=False)

    def _means(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Means of the queries, and of the tie groups where there are any."""
        from ._loops import segment_sums

        means = segment_sums(V, self.queries.codes, self.queries.n_groups)
        means /= self.queries.counts[:, None]
        if self.tie_groups is None:
            return means, None
        tie_means = segment_sums(V, self.tie_groups.codes, self.tie_groups.n_groups)
        tie_means /= self.tie_groups.counts[:, None]
        return means, tie_means

    def _centre(self, V, means, rows: slice, inner, outer, out) -> None:
        """out = (operator @ whole matrix)[rows], V being those rows."""
        from ._loops import centre_rows, centre_rows_with_ties

        query_means, tie_means = means
        queries = self.queries.codes[rows]
        if self.tie_groups is None:
            centre_rows(V, queries, query_means, outer[rows], out)
        else:
            ties = self.tie_groups.codes[rows]
            centre_rows_with_ties(V, queries, query_means, ties, tie_means, inner[rows], outer[rows], out)

    def half_levels(self) -> list[Groups]:
        # Tie groups are numbered in the order of the queries.
        return [self.queries] if self.tie_groups is None else [self.queries, self.tie_groups]

    def half_factors(self) -> tuple[np.ndarray, np.ndarray]:
        return self._outer, self._inner

    def half_both_sides(self, K: np.ndarray) -> np.ndarray:
        from ._loops import centre_along_rows

        none = np.empty(0, dtype=np.int64)
        ties, tie_counts = (
            (none, none) if self.tie_groups is None else (self.tie_groups.codes, self.tie_groups.counts)
        )
        factors = (np.sqrt(self._inner), np.sqrt(self._outer))
        centre_along_rows(K, self.queries.codes, self.queries.counts, ties, tie_counts, *factors)
        self._centre(K, self._means(K), slice(0, self.n_rows), *factors, K)
        return K

    def blocks(self, V: np.ndarray, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if self._longest > n_rows:
            yield from self._blocks_of_long_queries(V, n_rows)
            return
        block = np.empty((min(n_rows, self.n_rows), V.shape[1]), dtype=V.dtype)
        for places in self._runs_of_queries(n_rows):
            part = block[: places.stop - places.start]
            self._half_of_queries(V, self._by_query, places, part)
            yield part, part

    def half_blocks(self, V: np.ndarray, n_rows: int, rows: np.ndarray | None = None) -> Iterator[np.ndarray]:
        if self._longest > n_rows:
            V = V if rows is None else V[rows]
            targets, width, start = self.half_target, V.shape[1], 0
            for part, _ in self._blocks_of_long_queries(V, n_rows, targets.shape[1]):
                stop = start + part.shape[0]
                part[:, width:] = targets[start:stop]
                yield part
                start = stop
            return
        order = self._by_query
        targets = self.half_target[order]
        width = V.shape[1]
        block = np.empty((min(n_rows, self.n_rows), width + targets.shape[1]), dtype=V.dtype)
        for places in self._runs_of_queries(n_rows):
            part = block[: places.stop - places.start]
            self._half_of_queries(V, order if rows is None else rows[order], places, part)
            part[:, width:] = targets[places]
            yield part

    @property
    def _longest(self) -> int:
        return int(self.queries.counts.max(initial=0))

    @property
    def _by_query(self) -> np.ndarray:
        """The rows with those of a query, and inside it those of a tie group, side by side."""
        # Tie groups are numbered query by query.
        return self.queries.order if self.tie_groups is None else self.tie_groups.order

    def _runs_of_queries(self, n_rows: int) -> Iterator[slice]:
        """Places of whole queries in the order by query, at most ``n_rows`` at a time."""
        starts, start = self.queries.starts, 0
        while start < self.n_rows:
            stop = int(starts[np.searchsorted(starts, start + n_rows, side="right") - 1])
            yield slice(start, stop)
            start = stop

    def _half_of_queries(self, V: np.ndarray, rows: np.ndarray, places: slice, out: np.ndarray) -> None:
        """out = (S V) at some places of the order by query, ``rows`` naming the row of V for each place."""
        from ._loops import centre_queries, centre_queries_with_ties

        starts = self.queries.starts
        first, last = np.searchsorted(starts, [places.start, places.stop])
        own_rows = self._by_query[places]
        outer = np.sqrt(self._outer[own_rows])
        bounds = starts[first : last + 1] - places.start
        if self.tie_groups is None:
            centre_queries(V, rows[places], bounds, outer, out)
            return
        tie_starts = self.tie_groups.starts
        first_tie = np.searchsorted(tie_starts, starts[first : last + 1])
        ties = tie_starts[first_tie[0] : first_tie[-1] + 1] - places.start
        inner = np.sqrt(self._inner[own_rows])
        centre_queries_with_ties(V, rows[places], bounds, ties, first_tie - first_tie[0], inner, outer, out)

    def _blocks_of_long_queries(
        self, V: np.ndarray, n_rows: int, n_free: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """S V in blocks of rows, with some free columns after it."""
        V = np.ascontiguousarray(V)
        inner, outer = np.sqrt(self._inner), np.sqrt(self._outer)
        means = self._means(V)
        block = np.empty((min(n_rows, self.n_rows), V.shape[1] + n_free), dtype=V.dtype)
        for start in range(0, self.n_rows, n_rows):
            rows = slice(start, min(start + n_rows, self.n_rows))
            part = block[: rows.stop - start]
            self._centre(V[rows], means, rows, inner, outer, part)
            yield part, part

    def squared_targets(self) -> np.ndarray:
        if self.unit:
            return np.array([self.total_weight()])
        half = self.half_target
        return np.einsum("ij,ij->j", half, half)

    def total_weight(self) -> float:
        return float(self.weights @ self.pairs_per_query)

    def diagonal(self) -> np.ndarray:
        # diag(I - P) = 1 - 1/n_g and diag(P - O) = 1/n_g - 1/n.
        share = 1.0 / self.queries.counts[self.queries.codes]
        tie_share = 1.0 if self.tie_groups is None else 1.0 / self.tie_groups.counts[self.tie_groups.codes]
        return self._inner * (1.0 - tie_share) + self._outer * (tie_share - share)

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        terms = [
            (sp.eye_array(self.n_rows, format="csr"), self._inner),
            (_indicator(self.queries), -self.weights),
        ]
        if self.tie_groups is not None:
            terms.append((_indicator(self.tie_groups), self.weights[self._query_of_tie]))
        return terms

    def take(self, rows: np.ndarray) -> QueryComparisons:
        kept, codes = np.unique(self.queries.codes[rows], return_inverse=True)
        return QueryComparisons(
            self.scores[rows],
            Groups(codes.astype(np.int64), kept.shape[0]),
            weighting=self.weighting,
            exclude_ties=self.exclude_ties,
            unit=self.unit,
        )

    @property
    def alike(self) -> Groups | None:
        return self.tie_groups if self.queries.n_groups == 1 else None

    def magnitudes_without(self, rows: np.ndarray) -> QueryComparisons | None:
        """Cost "magnitude" with the same L, and with b of the rows that stay when others leave one ranking.

        Under cost "unit" without ties b_i = w (n' - 1 - 2 #higher), which is L s with s the ranks of the n' rows that
        stay times 2 / n'. None for other comparisons.
        """
        if not self.unit or self.alike is not None or self.queries.n_groups > 1:
            return None
        order = np.argsort(self.scores[:, 0], kind="stable")
        order = order[~np.isin(order, rows)]
        n = order.shape[0]
        scores = np.zeros((self.n_rows, 1))
        scores[order, 0] = (2.0 * np.arange(n) - (n - 1)) / max(n, 1)
        return QueryComparisons(scores, self.queries, weighting=self.weighting)

    @property
    def is_one_block(self) -> bool:
        return self.queries.n_groups == 1 and self.tie_groups is None and not self.unit

    @property
    def drops_row_by_row(self) -> bool:
        return self.queries.n_groups == 1 and self.tie_groups is None

    @property
    def block_scale(self) -> float:
        return float(np.sqrt(self._outer[0])) if self.is_one_block else super().block_scale

    @property
    def whole_queries_only(self) -> bool:
        return parts_change_weight(self.queries, self.weighting)

    def drop(self, rows: np.ndarray) -> Removal:
        if not self.is_one_block:
            return drop_from_blocks(self, rows, self.queries)
        # C - C' is the projector on span{C e_i: i in H}. With E_HᵀC E_H = I - 1 1ᵀ / n an orthonormal basis of it is
        # C E_H (I + ω 1 1ᵀ), (I + ω 1 1ᵀ)² = I + 1 1ᵀ / (n - h).
        h, n_left = rows.shape[0], self.n_rows - rows.shape[0]
        scale = self._scale_without(h)
        omega = 1.0 / (n_left * (1.0 + np.sqrt(self.n_rows / n_left)))
        y = self.scores[rows] - self.scores.mean(axis=0)
        change = self.block_scale**2 * (y + y.sum(axis=0) / n_left)
        return Removal(rows, self.block_scale * (np.eye(h) + omega), np.ones(h), change, scale, centred=True)

    def drop_half(self, rows: np.ndarray) -> HalfRemoval:
        if self.is_one_block:
            return HalfRemoval(rows, scale=self._scale_without(rows.shape[0]), centred=True)
        return drop_half_from_blocks(self, rows, self.queries)

    def _scale_without(self, h: int) -> float:
        """Factor of the centring of a global ranking of n - h rows over that of n rows."""
        n = self.n_rows
        if h >= n:
            raise ValueError("All rows would leave the global ranking: nothing is left to train on.")
        rest = query_weights(self.weighting, np.array([n - h]), np.array([(n - h) * (n - h - 1) // 2]))
        if rest[0] == 0:
            raise ValueError("Only one row would be left of the global ranking: nothing is left to compare.")
        return float(rest[0] * (n - h) / self._outer[0])


def _inverse_root(values: np.ndarray) -> np.ndarray:
    return np.divide(1.0, np.sqrt(values), out=np.zeros_like(values), where=values > 0)


def refuse_several_outputs(scores: np.ndarray) -> None:
    """Refuse scores of several outputs where L depends on them."""
    if scores.shape[1] != 1:
        raise ValueError("Comparisons that leave ties out depend on the scores: one output at a time.")


def tie_groups_of(scores: np.ndarray, queries: Groups) -> tuple[Groups, np.ndarray]:
    """Rows of the same query with equal scores, and for each row the number of lower ones in its query.

    O(m log m), never through the pairs.
    """
    order = np.lexsort((scores, queries.codes))
    sorted_scores, sorted_queries = scores[order], queries.codes[order]
    new = np.ones(scores.shape[0], dtype=bool)
    new[1:] = (sorted_scores[1:] != sorted_scores[:-1]) | (sorted_queries[1:] != sorted_queries[:-1])
    codes = np.empty(scores.shape[0], dtype=np.int64)
    codes[order] = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    groups = Groups(codes, first.shape[0])
    lower = first[codes] - queries.starts[queries.codes]
    return groups, lower


def _means_of_few(V: np.ndarray, groups: Groups) -> np.ndarray:
    sums = [np.bincount(groups.codes, weights=column, minlength=groups.n_groups) for column in V.T]
    return np.stack(sums, axis=1) / groups.counts[:, None]


def _indicator(groups: Groups) -> sp.csr_array:
    m = groups.n_rows
    return sp.csr_array((np.ones(m), groups.codes, np.arange(m + 1)), shape=(m, groups.n_groups))
