"""Data in the form that learners take, with a record of where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any, overload

import numpy as np
from scipy import sparse as sp

from ..comparisons.grouping import Groups, encode_queries
from ..comparisons.inputs import surv


class NumberedNames(Sequence[str]):
    """The names "1" to "n" of numbered features, made when they are asked for: a sparse file may have millions.

    Examples
    --------
    >>> names = NumberedNames(30_000_000)
    >>> len(names), names[0], names[-1], names[:3]
    (30000000, '1', '30000000', ['1', '2', '3'])
    """

    def __init__(self, n: int):
        self._numbers = range(1, n + 1)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        found = self._numbers[place]
        return str(found) if isinstance(found, int) else list(map(str, found))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberedNames):
            return len(self) == len(other)
        if not isinstance(other, (list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return repr(self[:]) if len(self) <= 10 else f"['1', '2', ..., '{len(self)}']"


@dataclass(frozen=True, eq=False, repr=False)
class RankingData:
    """Rows to rank.

    Attributes
    ----------
    X : ndarray or csr_array of shape (m, n)
        Features.
    y : ndarray of shape (m,) or (m, v), or None
        Targets, higher is better; None for a file without targets.
    qid : ndarray of shape (m,) or None
        The query of each row; None for one global ranking.
    feature_names : sequence of str
        A name for each column of X; the features of LETOR files are named by their numbers, "1" to "n".
    item_names : ndarray of shape (m,) or None
        A name for each row: the item column of a table, the comment of a LETOR line.
    source : str
        The file or files.
    encoder : preflearn.preprocessing.TableEncoder or None
        What made X of a table that was read by :func:`read_table`: the first step of a pipeline for such tables.
    columns : dict of str to ndarray, or None
        That table.
    weight : ndarray of shape (m,) or None
        Row weights, as ``sample_weight`` of the learners.
    clusters : ndarray of shape (m,) or None
        Labels of dependent rows (patients, documents), as ``groups`` of the learners.
    cluster : str or None
        The column that these came from.
    events : ndarray of bool of shape (m,), or None
        Where y holds censored times: whether the event was seen at each of them.

    Examples
    --------
    >>> RankingData(np.eye(3), np.array([2.0, 1.0, 0.0]), np.array([7, 7, 8]), ["a", "b", "c"])
    RankingData: 3 rows in 2 queries, 3 features (dense float64), targets 0 to 2
    """

    X: Any  # dense or sparse
    y: np.ndarray | None
    qid: np.ndarray | None
    feature_names: Any  # a sequence of str: a list, or NumberedNames
    item_names: np.ndarray | None = None
    source: str = ""
    encoder: Any = None
    columns: dict[str, np.ndarray] | None = None
    weight: np.ndarray | None = None
    clusters: np.ndarray | None = None
    cluster: str | None = None
    events: np.ndarray | None = None

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def known(self) -> np.ndarray | None:
        """What learners and metrics take as y: the targets, or times and events as one structured array."""
        return self.y if self.y is None or self.events is None else surv(self.y, self.events)

    @cached_property
    def groups(self) -> Groups:
        """The rows divided by query."""
        return encode_queries(self.qid, len(self))

    @property
    def n_queries(self) -> int:
        """Number of queries; 1 for a global ranking."""
        return self.groups.n_groups

    def __repr__(self) -> str:
        return f"RankingData: {self.in_brief()}"

    def in_brief(self) -> str:
        """What there is, in one line."""
        queries = "one ranking" if self.qid is None else _count(self.n_queries, "query", "queries")
        layout = "sparse" if sp.issparse(self.X) else "dense"
        shape = f"{_count(self.X.shape[1], 'feature')} ({layout} {self.X.dtype})"
        return f"{_count(len(self), 'row')} in {queries}, {shape}, {_targets(self.y, self.events)}"

    def summary(self) -> str:
        """What there is, in a few lines.

        Examples
        --------
        >>> X, y, qid = np.eye(3), np.array([2.0, 1.0, 0.0]), np.array([7, 7, 8])
        >>> print(RankingData(X, y, qid, ["a", "b", "c"], source="three.csv").summary())
        source    three.csv
        rows      3
        queries   2, with 1 to 2 rows (median 1.5)
        features  3, 33.3 % of the values not zero, dense float64, 0.0 MB
        targets   0: 1 row, 1: 1 row, 2: 1 row
        names     no item names
        """
        return "\n".join(f"{name:<9} {text}" for name, text in self.facts().items())

    def facts(self) -> dict[str, str]:
        """The lines of the summary by their names."""
        return {
            "source": self.source or "memory",
            "rows": f"{len(self):,}",
            "queries": self._describe_queries(),
            "features": self._describe_features(),
            "targets": _describe_targets(self.y) if self.events is None else _targets(self.y, self.events),
            "names": "no item names" if self.item_names is None else f"items such as {self.item_names[0]!r}",
        }

    def _describe_queries(self) -> str:
        if self.qid is None:
            return "none: all rows form one ranking"
        counts = self.groups.counts
        return (
            f"{self.n_queries:,}, with {counts.min()} to {_count(int(counts.max()), 'row')} "
            f"(median {np.median(counts):g})"
        )

    def _describe_features(self) -> str:
        cells = self.X.shape[0] * self.X.shape[1]
        filled = (self.X.count_nonzero() if sp.issparse(self.X) else np.count_nonzero(self.X)) / max(1, cells)
        layout = "sparse" if sp.issparse(self.X) else "dense"
        parts = (self.X.data, self.X.indices, self.X.indptr) if sp.issparse(self.X) else (self.X,)
        size = sum(part.nbytes for part in parts)
        return (
            f"{self.X.shape[1]:,}, {100 * filled:.1f} % of the values not zero, {layout} {self.X.dtype}, "
            f"{size / 1e6:.1f} MB"
        )


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _targets(y: np.ndarray | None, events: np.ndarray | None = None) -> str:
    if y is None:
        return "no targets"
    known = y[~np.isnan(y)]
    if events is not None:
        return (
            f"times {known.min():g} to {known.max():g}, {_count(int(np.count_nonzero(events)), 'event')} seen"
        )
    many = f"{y.shape[1]} targets" if y.ndim == 2 else "targets"
    return f"{many} {known.min():g} to {known.max():g}" if known.size else f"{many} not known"


def _describe_targets(y: np.ndarray | None) -> str:
    if y is None:
        return "none"
    if y.ndim == 2:
        return _targets(y)
    unknown = int(np.isnan(y).sum())
    suffix = f", {unknown:,} not known" if unknown else ""
    levels, counts = np.unique(y[~np.isnan(y)], return_counts=True)
    if levels.shape[0] > 10:
        return f"{levels[0]:g} to {levels[-1]:g}, {levels.shape[0]:,} different values{suffix}"
    return ", ".join(f"{level:g}: {_count(int(n), 'row')}" for level, n in zip(levels, counts)) + suffix


@dataclass(frozen=True, eq=False, repr=False)
class TableData:
    """A table as it comes, with its target, query and item columns taken out.

    Attributes
    ----------
    columns : dict of str to ndarray of shape (m,)
        The other columns: float64 where every cell is a number or missing (NaN), else texts ("" where missing).
        Learners do not take these; `preflearn.preprocessing.TableEncoder` does.
    y, weight : ndarray of shape (m,) or None
        Targets, higher is better, and row weights.
    qid : ndarray of shape (m,) or None
        The query of each row; None for one global ranking.
    item_names : ndarray of shape (m,) or None
        A name for each row.
    target, query, item : str or None
        The columns that these came from.
    source : str
        The file or files.
    place : function
        Where a row stands in its file, for messages.
    kept : ndarray of bool or None
        Which rows of the file remain, where others were left out.
    left_out : str
        Which those were, and why.
    events : ndarray of bool of shape (m,), or None
        Where y holds censored times: whether the event was seen at each of them.
    """

    columns: dict[str, np.ndarray]
    y: np.ndarray | None
    qid: np.ndarray | None
    item_names: np.ndarray | None = None
    weight: np.ndarray | None = None
    target: str | None = None
    query: str | None = None
    item: str | None = None
    source: str = ""
    place: Any = str  # a function of the row number
    kept: np.ndarray | None = None
    left_out: str = ""
    events: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def without(self, bad: np.ndarray, left_out: str) -> TableData:
        """The table without some rows, numbers of rows, and a sentence about them."""
        remains = np.ones(len(self), dtype=bool)
        remains[bad] = False
        kept = np.flatnonzero(remains)
        y, qid, names, weight = (
            None if values is None else values[kept]
            for values in (self.y, self.qid, self.item_names, self.weight)
        )
        columns = {name: values[kept] for name, values in self.columns.items()}
        return TableData(
            columns, y, qid, names, weight, self.target, self.query, self.item, self.source,
            lambda row: self.place(int(kept[row])), remains, left_out,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"TableData: {self.in_brief()}"

    def in_brief(self) -> str:
        """What there is, in one line."""
        n_queries = encode_queries(self.qid, len(self)).n_groups
        queries = "one ranking" if self.qid is None else _count(n_queries, "query", "queries")
        targets = _targets(self.y, self.events)
        return f"{_count(len(self), 'row')} in {queries}, {_count(len(self.columns), 'column')}, {targets}"

    def encode(self, kinds: Mapping[str, Any] | None = None) -> RankingData:
        """Numbers for a learner, by a new `preflearn.preprocessing.TableEncoder`.

        Parameters
        ----------
        kinds : mapping from column name to kind, default=None
            As the encoder takes them.

        Returns
        -------
        RankingData
            Its ``encoder`` is the first step of a pipeline that takes tables like this one.
        """
        from .encoding.table import TableEncoder

        encoder = TableEncoder(kinds=kinds)
        X = encoder.fit_transform(self.columns)
        names = encoder.get_feature_names_out().tolist()
        return RankingData(
            X, self.y, self.qid, names, self.item_names, self.source, encoder, self.columns, self.weight,
            events=self.events,
        )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class PreferenceData:
    """Items and which of them are preferred to which.

    Attributes
    ----------
    X : ndarray or csr_array of shape (m, n)
        Features of the items.
    pairs : ndarray of shape (l, 2), int64
        Row ``pairs[k, 0]`` of X is preferred to row ``pairs[k, 1]``.
    item_names : ndarray of shape (m,)
        The name of each row of X.
    feature_names : sequence of str
        A name for each column of X.
    magnitude, weight : ndarray of shape (l,) or None
        How far, and how much, where the file says so.
    judge : ndarray of shape (l,) or None
        Who said so.
    encoder : transformer or None
        What made X of a table or of texts: the first step of a pipeline for such items.
    """

    X: Any  # dense or sparse
    pairs: np.ndarray
    item_names: np.ndarray
    feature_names: Any  # a sequence of str: a list, or NumberedNames
    magnitude: np.ndarray | None = None
    weight: np.ndarray | None = None
    judge: np.ndarray | None = None
    encoder: Any = None

    def __len__(self) -> int:
        return self.pairs.shape[0]

    def __repr__(self) -> str:
        return f"PreferenceData: {self.in_brief()}"

    def in_brief(self) -> str:
        """What there is, in one line."""
        return (
            f"{_count(len(self), 'preference')} between {_count(self.X.shape[0], 'item')}, "
            f"{_count(self.X.shape[1], 'feature')}"
        )
