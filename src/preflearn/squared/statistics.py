"""Statistics that add up: what a learner needs to know of a chunk of rows, of fixed width, one set for each fold.

Partial fits, streams and clusters share them: a `Recipe` is small and can be sent to other machines, and the
statistics of disjoint chunks of whole queries add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from ..comparisons import Comparisons, Groups, PointwiseComparisons, compare_scores, encode_queries
from ..comparisons.inputs import depends_on_scores
from ..errors import SplitQueryError
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.maps import NystromMap
from .moments import GlobalMoments, QueryMoments


def label_keys(labels: np.ndarray) -> np.ndarray:
    """A 64-bit key for each label, shape (n_queries,), int64.

    Examples
    --------
    >>> label_keys(np.array([3, 7]))
    array([3, 7])
    """
    if labels.dtype.kind in "iu" and labels.dtype.itemsize <= 8:
        return labels.astype(np.int64)
    return np.array([_key(label) for label in labels.tolist()], dtype=np.int64)


def _key(label: Any) -> int:
    if isinstance(label, int) and not isinstance(label, bool) and -(1 << 63) <= label < 1 << 63:
        return label
    text = label if isinstance(label, str) else repr(label)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def folds_of(keys: np.ndarray, n_folds: int) -> np.ndarray:
    """The fold of each key, 0 .. n_folds - 1: a hash (the finaliser of SplitMix64) modulo the number of folds.

    Examples
    --------
    >>> folds_of(np.arange(8), 3)
    array([1, 2, 1, 0, 1, 2, 2, 0])
    """
    z = keys.astype(np.int64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(n_folds)).astype(np.int64)


class KeySet:
    """A set of 64-bit keys, kept as sorted runs of consecutive numbers.

    Queries numbered one after the other take 16 bytes altogether, others 16 bytes each. The runs lie in a few sorted
    lists, each at least twice as long as the next, so that n additions cost O(n log n) together.

    Examples
    --------
    >>> seen = KeySet()
    >>> seen.add(np.array([1, 2, 3])), seen.add(np.array([5, 3]))
    (None, 3)
    >>> len(seen)
    3
    """

    def __init__(self) -> None:
        self._lists: list[tuple[np.ndarray, np.ndarray]] = []  # first and last key of each run
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, keys: np.ndarray) -> int | None:
        """Add distinct keys; if one of them is in the set already, return the first such key and change nothing."""
        keys = np.sort(keys)
        for lows, highs in self._lists:
            if not keys.shape[0] or keys[0] > highs[-1] or keys[-1] < lows[0]:
                continue
            place = np.searchsorted(lows, keys, side="right") - 1
            known = np.flatnonzero((place >= 0) & (keys <= highs[np.maximum(place, 0)]))
            if known.size:
                return int(keys[known[0]])
        if keys.shape[0]:
            self._append(_runs(keys, keys), keys.shape[0])
        return None

    def merge(self, other: KeySet) -> int | None:
        """Add another set; if a key is in both, return one and change nothing."""
        lows, highs = other.runs()
        for own_lows, own_highs in self._lists:
            # Disjoint runs do not overlap: each ends before the next begins.
            place = np.searchsorted(own_lows, highs, side="right") - 1
            common = np.flatnonzero((place >= 0) & (own_highs[np.maximum(place, 0)] >= lows))
            if common.size:
                k = common[0]
                return int(max(lows[k], own_lows[place[k]]))
        if lows.shape[0]:
            self._append((lows, highs), len(other))
        return None

    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        """First and last key of every run of consecutive keys, sorted."""
        if not self._lists:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return _runs(*(np.concatenate(bounds) for bounds in zip(*self._lists, strict=True)))

    @classmethod
    def from_runs(cls, lows: np.ndarray, highs: np.ndarray) -> KeySet:
        """The set that `runs` describes."""
        found = cls()
        if lows.shape[0]:
            found._append((lows, highs), int((highs - lows).astype(np.uint64).sum()) + lows.shape[0])
        return found

    def _append(self, runs: tuple[np.ndarray, np.ndarray], n_keys: int) -> None:
        self._size += n_keys
        self._lists.append(runs)
        while len(self._lists) > 1 and 2 * len(self._lists[-1][0]) >= len(self._lists[-2][0]):
            (lows, highs), (more_lows, more_highs) = self._lists[-2:]
            self._lists[-2:] = [_runs(np.concatenate([lows, more_lows]), np.concatenate([highs, more_highs]))]


def _runs(lows: np.ndarray, highs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint runs in order, those joined that follow each other without a gap."""
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], highs[order]
    gap = np.ones(lows.shape[0], dtype=bool)
    gap[1:] = highs[:-1] + 1 != lows[1:]  # wraps around at the largest key, which nothing follows
    ends = np.ones(lows.shape[0], dtype=bool)
    ends[:-1] = gap[1:]
    return lows[gap], highs[ends]


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
