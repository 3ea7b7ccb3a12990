"""A sample of whole queries from a stream, and the other rows chunk by chunk, with memory for the sample and a chunk.

A query is in the sample when the hash of its label is among the smallest: the sample depends neither on the order of
the rows nor on the size of the chunks.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from ..comparisons import encode_queries
from ..comparisons.inputs import read_scores
from ..learners.streaming.checkpoint import CheckpointError, extend_digest
from ..learners.streaming.sources import Source, are_paths, as_source, read_ahead, unpack
from ..squared.query_keys import KeySet, folds_of, label_keys
from ..tables.cells import FileFaultError
from ..tables.encoding.summary import TableWarning
from ..tables.options import ReadOptions
from ..tables.table import TableChunks
from .everything import Chunk
from .rows import arrays_of, as_rows, is_complete, join, n_columns, n_rows, names_of, take

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


@dataclass(frozen=True)
class _Queries:
    """Whole queries, the rows of each together.

    Attributes
    ----------
    keys, places, sizes : ndarrays of int of shape (q,)
        Key, hash and number of rows of each query.
    X : rows
        As in `preflearn.auto.rows`.
    y : ndarray of shape (m,)
    """

    keys: np.ndarray
    places: np.ndarray
    sizes: np.ndarray
    X: Any
    y: np.ndarray

    def take(self, which: np.ndarray) -> _Queries:
        """Some of the queries, in this order."""
        sizes, ends = self.sizes[which], np.cumsum(self.sizes)
        firsts = (ends - self.sizes)[which]
        rows = np.arange(sizes.sum()) + np.repeat(firsts - (np.cumsum(sizes) - sizes), sizes)
        return _Queries(self.keys[which], self.places[which], sizes, take(self.X, rows), self.y[rows])

    @classmethod
    def join(cls, parts: list[_Queries]) -> _Queries:
        """All queries of some parts."""
        if len(parts) == 1:
            return parts[0]
        keys, places, sizes, y = (
            np.concatenate([getattr(part, name) for part in parts]) for name in (*_OF_QUERIES, "y")
        )
        return cls(keys, places, sizes, join([part.X for part in parts]), y)


_OF_QUERIES = ("keys", "places", "sizes")


class QuerySample:
    """Whole queries of a stream, up to about a given number of rows.

    Parameters
    ----------
    most : int

    Attributes
    ----------
    n_rows, n_queries : int
        Of the whole stream.
    has_missing : bool
        Whether any of its rows of numbers has a missing value, in the sample or not.

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
        self._parts: list[_Queries] = []
        self._held = 0
        # Hashes from here on are not in the sample.
        self._limit = _PLACES
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
        self.shrink()
        return self._held == self.n_rows

    def add(self, X: Any, y: np.ndarray, qid: Any) -> None:
        """The next rows, whole queries."""
        self._check_width(n_columns(X))
        self.has_missing |= isinstance(X, np.ndarray) and not is_complete(X)
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
        places = folds_of(keys, _PLACES)
        wanted = places < self._limit
        if wanted.any():
            rows = queries.order[np.repeat(wanted, queries.counts)]
            part = _Queries(keys[wanted], places[wanted], queries.counts[wanted], take(X, rows), y[rows])
            self._append(part)

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
        self._limit = min(self._limit, other._limit)
        for part in other._parts:
            self._append(part)

    def _append(self, part: _Queries) -> None:
        self._parts.append(part)
        self._held += part.y.shape[0]
        if self._held > 2 * self._most:  # not with every chunk, which would sort them all again
            self.shrink()

    def _check_width(self, width: int) -> None:
        if self._width not in (None, width):
            raise ValueError(
                f"X has {width} columns, but earlier chunks had {self._width}: expected the same number."
            )
        self._width = width

    def shrink(self) -> None:
        """Keep the queries with the smallest hashes, as many as fit, and two at least; nothing else is ever needed."""
        if self._held <= self._most and len(self._parts) <= 1 or not self._parts:
            return
        whole = _Queries.join(self._parts)
        order = np.lexsort((whole.keys, whole.places))
        # A query that did not fit into a merged sample ends this one too, though what follows it may fit here.
        order = order[whole.places[order] < self._limit]
        n_kept = max(2, int(np.searchsorted(np.cumsum(whole.sizes[order]), self._most, side="right")))
        if n_kept < order.shape[0]:
            self._limit = min(self._limit, int(whole.places[order[n_kept]]))
        self._parts = [whole.take(order[:n_kept])]
        self._held = int(self._parts[0].sizes.sum())

    def table(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Rows, targets and the key of the query of each row, in the order of the hashes."""
        self.shrink()
        whole = _Queries.join(self._parts)
        order = np.lexsort((whole.keys, whole.places))
        self._parts = [kept := whole.take(order)]
        return kept.X, kept.y, np.repeat(kept.keys, kept.sizes)

    def encoded(self, encode: Callable[[Any], np.ndarray]) -> None:
        """Replace the rows by what a function makes of them."""
        X, y, _ = self.table()
        self._parts = [replace(self._parts[0], X=encode(X))]

    def arrays(self) -> dict[str, np.ndarray] | None:
        """The sample as arrays for a file; None where the rows are not numbers."""
        X, y, _ = self.table()
        if not isinstance(X, np.ndarray):
            return None
        low, high = self._seen.runs()
        kept = self._parts[0]
        counts = np.array([self._most, self.n_rows, self.has_missing, self._limit])
        return {
            "X": X, "y": y, "keys": kept.keys, "places": kept.places, "sizes": kept.sizes,
            "low": low, "high": high, "counts": counts,
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, found: Mapping[str, np.ndarray]) -> QuerySample:
        """The sample that `arrays` took apart."""
        most, n_rows, has_missing, limit = found["counts"].tolist()
        sample = cls(most)
        sample.n_rows, sample.has_missing, sample._limit = n_rows, bool(has_missing), limit
        sample._seen = KeySet.from_runs(found["low"], found["high"])
        sample._width = found["X"].shape[1]
        sample._append(_Queries(*(found[name] for name in (*_OF_QUERIES, "X", "y"))))
        return sample


def read_chunk(X: Any, y: Any, qid: Any) -> tuple[Any, np.ndarray, Any]:
    """Rows, targets and query labels."""
    if qid is None:
        raise ValueError(
            "AutoRanker samples whole queries of rows that come in parts, and there is no qid: pass it, or use "
            "RankRLSCV, which takes a global ranking in parts."
        )
    rows = as_rows(X)
    scores, single = read_scores(y, n_rows(rows))
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
        rows = take(rows, np.flatnonzero(kept))
        if self.encoder is not None:
            with warnings.catch_warnings():
                # Categories that the sample does not have are to be expected.
                warnings.simplefilter("ignore", TableWarning)
                rows = self.encoder.transform(rows)
        codes = queries.codes[kept]
        return Chunk(rows, self.scale(targets[kept]), encode_queries(codes, codes.shape[0]))


class RowsInParts(Protocol):
    """Rows that are somewhere else, in parts of whole queries."""

    def sample(self, most: int, tell: Callable[[int], None] = ...) -> QuerySample:
        """Up to about this number of rows; progress is reported."""

    def over(self, prepare: Preparation, function: Callable[[Chunk], Any], skip: int = 0) -> Iterator[Any]:
        """The function of every prepared chunk but the first ones, in order."""


class StreamedRows:
    """Chunks of a source that can be read again and again.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    digests : Digests or None
        Make sure that the rows are the same in every pass.
    """

    digests: Digests | None = None
    # Whether a checkpoint keeps the sample, and what else it must belong to.
    keeps_sample = True
    parameters: Mapping[str, str] = MappingProxyType({})
    # Columns that turned out not to be numbers after the first rows.
    texts: Sequence[str] = ()

    def __init__(self, source: Source):
        if not source.again:
            raise ValueError(
                f"AutoRanker.fit_stream reads the rows several times, and {source.name}. Pass a path, a list, or a "
                "function that returns a fresh iterator."
            )
        self._source = source

    def sample(self, most: int, tell: Callable[[int], None] = lambda n_rows: None) -> QuerySample:
        found = QuerySample(most)
        for X, y, qid in self._chunks(read_chunk):
            found.add(X, y, qid)
            tell(found.n_rows)
        return found

    def over(self, prepare: Preparation, function: Callable[[Chunk], Any], skip: int = 0) -> Iterator[Any]:
        chunks = (chunk for chunk in self._chunks(prepare) if chunk is not None)
        return (function(chunk) for place, chunk in enumerate(chunks) if place >= skip)

    def read_as_texts(self, names: list[str]) -> None:
        """Columns that turned out not to be numbers in an earlier run."""

    def check_first(self) -> None:
        """Refuse rows whose first chunk is not what it was."""
        for _ in self._chunks(lambda X, y, qid: None):
            return

    def check_all(self) -> None:
        """Refuse rows that are not what they were."""
        for _ in self._chunks(lambda X, y, qid: None):
            pass

    def _chunks(self, read: Callable[[Any, Any, Any], Any]) -> Iterator[Any]:
        n_rows, names, number = 0, None, -1
        for number, chunk in enumerate(self._source.open()):
            try:
                X, y, qid = unpack(chunk)
                names = _same_columns(X, names)
                if self.digests is not None:
                    self.digests.check(number, X, y, qid)
                found = read(X, y, qid)
            except CheckpointError:
                raise
            except (TypeError, ValueError) as error:
                raise type(error)(f"Chunk {number + 1} (from row {n_rows}): {error}") from error
            n_rows += len(y)
            yield found
        if self.digests is not None:
            self.digests.end(number + 1)


class TableRows(StreamedRows):
    """A file with columns of any kind.

    Parameters
    ----------
    chunks : TableChunks
    open_chunks : callable, optional
        Starts reading: (columns, y, qid) of each chunk.
    """

    def __init__(self, chunks: TableChunks, open_chunks: Callable[[], Iterator[Any]] | None = None):
        def opened() -> Iterator[Any]:
            return ((table.columns, table.y, table.qid) for table in chunks)

        start = opened if open_chunks is None else open_chunks
        super().__init__(Source(lambda: read_ahead(start()), True, chunks.source))
        self._table, self.parameters = chunks, {"features": repr(chunks.features)}
        self.texts = []

    def sample(self, most: int, tell: Callable[[int], None] = lambda n_rows: None) -> QuerySample:
        while True:
            try:
                return super().sample(most, tell)
            except FileFaultError as fault:
                # The first rows looked like numbers; now the column is read as texts, from the beginning.
                if fault.column not in self._table.numbers:
                    raise
                self.read_as_texts([fault.column])
                if self.digests is not None:
                    self.digests.known.clear()

    def read_as_texts(self, names: list[str]) -> None:
        self.texts = [*self.texts, *names]
        for name in names:
            self._table.read_as_text(name)


def rows_in_chunks(chunks: Any, reading: dict[str, Any]) -> StreamedRows:
    """Recognise chunks, or files: tables with columns that are not numbers are encoded as their sample is."""
    if are_paths(chunks) and set(reading) <= _OF_TABLES:
        first = chunks if isinstance(chunks, (str, os.PathLike)) else chunks[0]
        options = {name: one for name, one in reading.items() if name != "rows"}
        if ReadOptions(**options).format_of(os.fspath(first)) != "letor":
            table = TableChunks(chunks, **reading)
            if table.numbers != table.features:
                return TableRows(table)
    return StreamedRows(as_source(chunks, reading, verbose=False))


# Options of `iter_ranking` that do not ask for numbers.
_OF_TABLES = {
    "rows", "format", "target", "query", "item", "features", "drop", "columns", "delimiter", "encoding",
}  # fmt: skip


class Digests:
    """Hashes of the chunks of a stream: noted in the first pass, compared in the others.

    Parameters
    ----------
    path : path
        Of the checkpoint, for messages.
    """

    def __init__(self, path: Any):
        self._path = path
        self.known: list[bytes] = []
        self.is_complete = False
        self.was_compared = False  # with all rows, in this process
        self._last = b""

    def check(self, number: int, X: Any, y: Any, qid: Any) -> None:
        """Note a chunk, or refuse one that differs."""
        first, *others = arrays_of(X)
        digest = extend_digest(b"" if number == 0 else self._last, first, np.asarray(y), qid)
        for part in others:
            digest = extend_digest(digest, part, np.empty(0), None)
        self._last = digest
        if number == len(self.known) and not self.is_complete:
            self.known.append(digest)
        elif number >= len(self.known) or digest != self.known[number]:
            raise self._refusal(f"chunk {number + 1} differs")

    def end(self, n_chunks: int) -> None:
        """The source has ended."""
        if n_chunks != len(self.known):
            raise self._refusal(f"there were {len(self.known):,} chunks, and there are {n_chunks:,}")
        self.is_complete = self.was_compared = True

    def _refusal(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"{self._path}: the checkpoint belongs to other data, or to chunks of another size ({why})",
            "Give another checkpoint, or remove the file to start over.",
        )


def _same_columns(X: Any, before: list[Any] | None) -> list[Any] | None:
    """The names of the columns of a table, which must be those of the chunks before."""
    names = list(X) if isinstance(X, Mapping) else names_of(X)
    if before is not None and names is not None and names != before:
        raise ValueError(
            f"the columns are {', '.join(map(str, names[:10]))}, but earlier chunks had "
            f"{', '.join(map(str, before[:10]))}: expected the same columns in the same order."
        )
    return names or before
