"""Statistics that add up: what a learner needs to know of a chunk of rows, of fixed width, one set for each fold.

Partial fits, streams and clusters share them: a `Recipe` is small and can be sent to other machines, and the
statistics of disjoint chunks of whole queries add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..comparisons import Comparisons, Groups, PointwiseComparisons, compare_scores, encode_queries
from ..comparisons.inputs import depends_on_scores
from ..errors import SplitQueryError
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.maps import NystromMap
from .moments import GlobalMoments, QueryMoments
from .query_keys import KeySet, folds_of, label_keys

Moments = QueryMoments | GlobalMoments
# Features of a reduced set are made for this many bytes of rows at a time, and for at least this many rows.
_FEATURE_BYTES = 1 << 27
_LEAST_ROWS = 1024


@dataclass
class Statistics:
    """What is known about the rows seen so far.

    Attributes
    ----------
    folds : list of QueryMoments, GlobalMoments or None
        The moments of each fold; one without cross-validation, None for a fold without rows.
    queries : KeySet
        The queries seen; empty for a global ranking.
    n_rows, n_chunks : int
    """

    folds: list[Moments | None]
    queries: KeySet = field(default_factory=KeySet)
    n_rows: int = 0
    n_chunks: int = 0

    def add(self, other: Statistics) -> None:
        """Add the statistics of other rows.

        Raises
        ------
        ValueError
            If both have rows of one query; nothing has been changed then.
        """
        again = self.queries.merge(other.queries)
        if again is not None:
            raise SplitQueryError(again)
        self.n_rows += other.n_rows
        self.n_chunks += other.n_chunks
        for place, (mine, more) in enumerate(zip(self.folds, other.folds, strict=True)):
            if more is None:
                continue
            if mine is None:
                self.folds[place] = more.copy()
            else:
                mine.add(more)  # type: ignore[arg-type]

    def copy(self) -> Statistics:
        """A copy that can be added to."""
        copied = Statistics([None] * len(self.folds))
        copied.add(self)
        return copied

    def total(self) -> Moments:
        """The moments of all folds together."""
        total: Moments | None = None
        for fold in self.folds:
            if fold is None:
                continue
            if total is None:
                total = fold.copy()
            else:
                total.add(fold)  # type: ignore[arg-type]
        if total is None:
            raise ValueError("There are no rows to learn from: the source yielded no chunks.")
        return total


@dataclass(frozen=True)
class Recipe:
    """How to turn rows into statistics.

    Attributes
    ----------
    kernel : Kernel
    feature_map : NystromMap or None
        The reduced set; None for the linear kernel.
    kind : {"queries", "ranking", "regression", "regression without intercept"}
        Pairs inside queries; one global ranking; rows with their own targets.
    cost, ties, weighting : str
        As in RankRLS.
    n_folds : int
        1 without cross-validation.
    basis_keys : ndarray of shape (r,) or None
        The keys of the queries (or rows) that the basis vectors belong to: they leave the model with their fold.
    """

    kernel: Kernel
    feature_map: NystromMap | None
    kind: str
    cost: str = "magnitude"
    ties: str = "include"
    weighting: str = "pair"
    n_folds: int = 1
    basis_keys: np.ndarray | None = None

    @property
    def with_queries(self) -> bool:
        return self.kind == "queries"

    @property
    def one_chunk_only(self) -> bool:
        """Whether pairs between chunks depend on the scores of both, so that the statistics do not add up."""
        return self.kind == "ranking" and depends_on_scores(self.cost, self.ties)

    def features(self, X: Any) -> Any:
        """Φ of validated rows."""
        return X if self.feature_map is None else self.feature_map.map_items(X, self.kernel)

    def statistics(self, X: Any, scores: np.ndarray, qid: Any, first_row: int = 0) -> Statistics:
        """The statistics of one chunk. O(m n²).

        Parameters
        ----------
        X : validated rows
        scores : ndarray of shape (m, v)
        qid : array-like of shape (m,) or None
        first_row : int
            Position of the first row among all rows: without queries it determines the folds.
        """
        m = n_items(X)
        queries = encode_queries(qid if self.with_queries else None, m)
        keys = np.empty(0, np.int64)
        if self.with_queries:
            assert queries.labels is not None
            keys = label_keys(queries.labels)
            fold_of_row = folds_of(keys, self.n_folds)[queries.codes]
        else:
            fold_of_row = folds_of(np.arange(first_row, first_row + m), self.n_folds)
        comparisons = self._comparisons(scores, queries)
        total = Statistics([None] * self.n_folds)
        for rows in self.pieces(queries):
            items = X if rows is None else take_items(X, rows)
            moments = self._moments(
                self.features(items),
                scores if rows is None else scores[rows],
                comparisons if rows is None or comparisons is None else comparisons.take(rows),
                fold_of_row if rows is None else fold_of_row[rows],
            )
            total.add(Statistics(moments))
        total.queries.add(keys)
        total.n_rows, total.n_chunks = m, 1
        return total

    def pieces(self, queries: Groups) -> Iterator[np.ndarray | None]:
        """Rows to be turned into features together: whole queries (or any rows without), None for all at once.

        Features of a reduced set are much wider than the rows, and a chunk of them need not fit in memory.
        """
        m = queries.n_rows
        step = m
        if self.feature_map is not None and not self.one_chunk_only:
            step = max(_LEAST_ROWS, _FEATURE_BYTES // (8 * max(1, self.feature_map.rank_)))
        if m <= step:
            yield None
            return
        ends = queries.starts[1:] if self.with_queries else np.arange(1, m + 1)
        start = 0
        while start < m:
            fitting = ends[np.searchsorted(ends, start + step, side="right") - 1]
            # A query that is too long is handled alone.
            stop = int(fitting if fitting > start else ends[np.searchsorted(ends, start, side="right")])
            yield queries.order[start:stop]
            start = stop

    def _comparisons(self, scores: np.ndarray, queries: Groups) -> Comparisons | None:
        """What is compared inside queries, or in one ranking; None where each row is summed separately."""
        if self.kind == "regression without intercept":
            return PointwiseComparisons(scores)
        if self.kind == "regression" or (self.kind == "ranking" and not self.one_chunk_only):
            return None
        return compare_scores(
            scores,
            queries,
            cost=self.cost,
            ties=self.ties,
            weighting=self.weighting,
            allow_none=True,  # a chunk of queries without a pair changes nothing, and is not an error
        )

    def _moments(
        self, features: Any, scores: np.ndarray, comparisons: Comparisons | None, fold_of_row: np.ndarray
    ) -> list[Moments | None]:
        k = self.n_folds
        if comparisons is not None:
            if k == 1:
                return [QueryMoments.of(features, comparisons)]
            return list(QueryMoments.of_folds(features, comparisons, fold_of_row, k))
        weighting = "item" if self.kind == "regression" else self.weighting
        if k == 1:
            return [GlobalMoments.of(features, scores, weighting)]
        return list(GlobalMoments.of_folds(features, scores, weighting, fold_of_row, k))


def recipe_of(
    model: Any,
    kernel: Kernel,
    feature_map: NystromMap | None,
    *,
    with_queries: bool,
    n_folds: int = 1,
    basis_keys: np.ndarray | None = None,
) -> Recipe:
    """The recipe of a RankRLS (or what searches over one), or of an RLS."""
    if hasattr(model, "fit_intercept"):
        kind = "regression" if model.fit_intercept else "regression without intercept"
        return Recipe(kernel, feature_map, kind, n_folds=n_folds)
    kind = "queries" if with_queries else "ranking"
    return Recipe(kernel, feature_map, kind, model.cost, model.ties, model.weighting, n_folds, basis_keys)
