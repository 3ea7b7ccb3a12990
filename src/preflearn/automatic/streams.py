"""A sample of whole queries from a stream, and the other rows chunk by chunk, with memory for the sample and a chunk.

A query is in the sample when the hash of its label is among the smallest: the sample depends neither on the order of
the rows nor on the size of the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from .._engine.core.query_keys import KeySet, folds_of, label_keys
from .._engine.streaming.sources import Source, unpack
from ..comparisons import encode_queries
from ..comparisons.inputs import read_scores
from .everything import Chunk

# Hashes of labels are numbers below this.
_PLACES = 2**62


class UnitScale:
    """Takes targets to 0 to about 1, so that no square of them overflows or vanishes; their order is what is learned.

    Parameters
    ----------
    y : ndarray
        The targets that this is made for.

    Examples
    --------
    >>> import numpy as np
    >>> UnitScale(np.array([2.0, 5.0]))(np.array([2.0, 3.5, 5.0]))
    array([0.   , 0.375, 0.75 ])
    """

    def __init__(self, y: np.ndarray):
        self._first = -int(np.frexp(np.abs(y).max())[1])
        scaled = np.ldexp(y, self._first)
        self._least = float(scaled.min())
        self._second = -int(np.frexp(scaled.max() - self._least)[1])

    def __call__(self, y: np.ndarray) -> np.ndarray:
        return np.ldexp(np.ldexp(y, self._first) - self._least, self._second)


class QuerySample:
    """Whole queries of a stream, at most about so many rows.

    Parameters
    ----------
    most : int

    Attributes
    ----------
    n_rows, n_queries : int
        Of the whole stream.
    has_missing : bool
        Whether any of its rows has a missing value, in the sample or not.

    Examples
    --------
    >>> import numpy as np
    >>> sample = QuerySample(4)
    >>> sample.add(np.arange(6.0)[:, None], np.arange(6.0), np.array([1, 1, 2, 2, 3, 3]))
    >>> sample.n_rows, sample.table()[0].shape
    (6, (4, 1))
    """

    def __init__(self, most: int):
        self._most = most
        self._parts: dict[int, tuple[int, Any, np.ndarray]] = {}  # by key: place, rows, targets
        self._held = 0
        self._seen = KeySet()
        self._width: int | None = None
        self.n_rows = 0
        self.has_missing = False

    @property
    def n_queries(self) -> int:
        return len(self._seen)

    @property
    def is_everything(self) -> bool:
        """Whether no query had to be left out."""
        return self._held == self.n_rows

    def add(self, X: Any, y: np.ndarray, qid: Any) -> None:
        """The next rows, whole queries."""
        self._check_width(X.shape[1])
        self.has_missing |= bool(np.isnan(X).any())
        queries = encode_queries(qid, y.shape[0])
        assert queries.labels is not None
        keys = label_keys(queries.labels)
        known = self._seen.add(keys)
        if known is not None:
            label = queries.labels[np.flatnonzero(keys == known)[0]]
            raise ValueError(
                f"query {label!r} is in an earlier chunk already, and its rows are compared with each other: chunks "
                "must hold whole queries (iter_ranking cuts files that way)."
            )
        self.n_rows += y.shape[0]
        for group, (key, place) in enumerate(
            zip(keys.tolist(), folds_of(keys, _PLACES).tolist(), strict=True)
        ):
            rows = queries.rows(group)
            self._parts[key] = (place, X[rows], y[rows])
            self._held += rows.shape[0]
        self._shrink()

    def merge(self, other: QuerySample) -> None:
        """The sample of other rows, none of whose queries is here."""
        known = self._seen.merge(other._seen)
        if known is not None:
            raise ValueError(
                f"a query (key {known}) is in two parts, and its rows are compared with each other: parts must hold "
                "whole queries (preflearn.distributed.align_queries)."
            )
        if other._width is not None:
            self._check_width(other._width)
        self.has_missing |= other.has_missing
        self.n_rows += other.n_rows
        self._parts |= other._parts
        self._held += other._held
        self._shrink()

    def _check_width(self, width: int) -> None:
        if self._width not in (None, width):
            raise ValueError(
                f"X has {width} columns, and {self._width} in the chunks before: expected as many."
            )
        self._width = width

    def _shrink(self) -> None:
        for key in sorted(self._parts, key=lambda one: -self._parts[one][0]):
            size = self._parts[key][2].shape[0]
            if self._held <= self._most or len(self._parts) <= 2:
                return
            del self._parts[key]
            self._held -= size

    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, targets and the key of the query of each row."""
        kept = sorted(self._parts.items(), key=lambda one: one[1][0])
        sizes = [part[2].shape[0] for _, part in kept]
        return (
            np.concatenate([part[1] for _, part in kept]),
            np.concatenate([part[2] for _, part in kept]),
            np.repeat([key for key, _ in kept], sizes),
        )


def read_chunk(X: Any, y: Any, qid: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Rows of numbers, targets and query labels."""
    if qid is None:
        raise ValueError(
            "AutoRanker samples whole queries of rows that come in parts, and there is no qid: pass it, or use "
            "RankRLSCV, which takes a global ranking in parts."
        )
    rows = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"X has shape {rows.shape}: expected (m, n).")
    if np.isinf(rows).any():
        raise ValueError("X contains infinity: replace it, or mark it as missing (NaN).")
    scores, single = read_scores(y, rows.shape[0])
    if not single:
        raise ValueError(f"AutoRanker learns one ranking: found y with {scores.shape[1]} columns.")
    return rows, scores[:, 0].astype(np.float64), qid


@dataclass(frozen=True)
class Preparation:
    """From a part of the rows to a `Chunk` without some queries; it can be sent to another machine.

    Attributes
    ----------
    encoder : fitted TableEncoder or None
    left_out : ndarray of int64
        Keys of queries.
    scale : UnitScale
    """

    encoder: Any
    left_out: np.ndarray
    scale: UnitScale

    def __call__(self, X: Any, y: Any, qid: Any) -> Chunk | None:
        """None where no query is left."""
        rows, targets, qid = read_chunk(X, y, qid)
        queries = encode_queries(qid, targets.shape[0])
        assert queries.labels is not None
        kept = ~np.isin(label_keys(queries.labels), self.left_out)[queries.codes]
        if not kept.any():
            return None
        rows = rows[kept] if self.encoder is None else self.encoder.transform(rows[kept])
        codes = queries.codes[kept]
        return Chunk(rows, self.scale(targets[kept]), encode_queries(codes, codes.shape[0]))


class RowsInParts(Protocol):
    """Rows that are somewhere else, in parts of whole queries."""

    def sample(self, most: int) -> QuerySample:
        """At most about so many rows."""

    def over(self, prepare: Preparation, function: Callable[[Chunk], Any]) -> Iterator[Any]:
        """The function of every prepared chunk, in order."""


class StreamedRows:
    """Chunks of a source that can be read again and again.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source):
        if not source.again:
            raise ValueError(
                f"AutoRanker.fit_stream reads the rows several times, and {source.name}. Pass a path, a list, or a "
                "function that returns a fresh iterator."
            )
        self._source = source

    def sample(self, most: int) -> QuerySample:
        found = QuerySample(most)
        for X, y, qid in self._chunks(read_chunk):
            found.add(X, y, qid)
        return found

    def over(self, prepare: Preparation, function: Callable[[Chunk], Any]) -> Iterator[Any]:
        return (function(chunk) for chunk in self._chunks(prepare) if chunk is not None)

    def _chunks(self, read: Callable[[Any, Any, Any], Any]) -> Iterator[Any]:
        n_rows, names = 0, None
        for number, chunk in enumerate(self._source.open()):
            try:
                X, y, qid = unpack(chunk)
                names = _same_columns(X, names)
                found = read(X, y, qid)
            except (TypeError, ValueError) as error:
                raise type(error)(f"Chunk {number + 1} (from row {n_rows}): {error}") from error
            n_rows += len(y)
            yield found


def _same_columns(X: Any, before: list[Any] | None) -> list[Any] | None:
    """The names of the columns of a data frame, which must be those of the chunks before."""
    names = list(X.columns) if hasattr(X, "columns") else None
    if before is not None and names is not None and names != before:
        raise ValueError(
            f"the columns are {', '.join(map(str, names[:10]))}, and {', '.join(map(str, before[:10]))} in the chunks "
            "before: expected the same in the same order."
        )
    return names or before
