"""Rows that come in parts: one pass keeps whole queries, up to 2,000,000 rows, with memory for these and a chunk.

A query is kept when the hash of its label is among the smallest: what is kept depends neither on the order of the rows
nor on the size of the chunks. Rows are numbers, tables in columns, or data frames, taken out and put together alike.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import _safe_indexing

from .. import __version__
from ..comparisons import encode_queries
from ..comparisons.inputs import read_scores
from ..learners.streaming.checkpoint import CheckpointFile, fingerprint
from ..learners.streaming.stream import Source, are_paths, as_source, read_ahead, refuse_groups, unpack
from ..squared.statistics import KeySet, folds_of, label_keys
from ..tables.cells import FileFaultError
from ..tables.options import ReadOptions
from ..tables.table import TableChunks

# AutoRanker learns from this many rows at most.
MOST_ROWS = 2_000_000
# Hashes of labels are numbers below this.
_PLACES = 2**62


def _by_hash(keys: np.ndarray, places: np.ndarray, sizes: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Queries in the order of their hashes, and how many of them are kept: as many as fit, and two at least."""
    order = np.lexsort((keys, places))
    return order, max(2, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))


def rows_to_keep(qid: Any, n_rows: int) -> np.ndarray | None:
    """The rows that `QuerySample` would keep of these, in their order; None for all of them."""
    if n_rows <= MOST_ROWS:
        return None
    queries = encode_queries(qid, n_rows)
    assert queries.labels is not None
    keys = label_keys(queries.labels)
    order, n_kept = _by_hash(keys, folds_of(keys, _PLACES), queries.counts, MOST_ROWS)
    kept = np.zeros(queries.n_groups, dtype=bool)
    kept[order[:n_kept]] = True
    return np.flatnonzero(kept[queries.codes])


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
    most : int, default=MOST_ROWS

    Attributes
    ----------
    n_rows, n_queries : int
        Of the whole stream.

    Examples
    --------
    >>> import numpy as np
    >>> sample = QuerySample(4)
    >>> sample.add(np.arange(6.0)[:, None], np.arange(6.0), np.array([1, 1, 2, 2, 3, 3]))
    >>> sample.n_rows, sample.table()[0].shape
    (6, (4, 1))
    """

    def __init__(self, most: int | None = None):
        self._most = MOST_ROWS if most is None else most
        self._parts: list[_Queries] = []
        self._held = 0
        # Hashes from here on are not in the sample.
        self._limit = _PLACES
        self._seen = KeySet()
        self._width: int | None = None
        self.n_rows = 0

    @property
    def n_queries(self) -> int:
        return len(self._seen)

    def add(self, X: Any, y: np.ndarray, qid: Any) -> None:
        """The next rows, whole queries."""
        self._check_width(n_columns(X))
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
        # A query that did not fit into a merged sample ends this one too, though what follows it may fit here.
        whole = whole.take(np.flatnonzero(whole.places < self._limit))
        order, n_kept = _by_hash(whole.keys, whole.places, whole.sizes, self._most)
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


class Kept(NamedTuple):
    """What one pass over the rows has kept.

    Attributes
    ----------
    X : rows of numbers, columns by their names, or a data frame
    y : ndarray of shape (m,)
    keys : ndarray of int64 of shape (m,)
        A number for the query of each row.
    n_rows, n_queries : int
        Of all that was read.
    """

    X: Any
    y: np.ndarray
    keys: np.ndarray
    n_rows: int
    n_queries: int

    @classmethod
    def of(cls, sample: QuerySample) -> Kept:
        """The rows of a sample."""
        if sample.n_rows == 0:
            raise ValueError("There are no rows to learn from: the source yielded no chunks.")
        return cls(*sample.table(), sample.n_rows, sample.n_queries)


class RowsInParts:
    """Chunks of whole queries: (X, y, qid) or `RankingData`.

    Parameters
    ----------
    source : Source
    parameters : mapping of str, optional
        What a checkpoint must belong to, beside the parameters of the model.
    """

    def __init__(self, source: Source, parameters: Mapping[str, str] | None = None):
        self._source, self.parameters = source, dict(parameters or {})

    def keep(self, tell: Callable[[int], None] = lambda n_rows: None) -> Kept:
        """Read all rows once; progress is reported."""
        found = QuerySample()
        for rows in self._chunks():
            found.add(*rows)
            tell(found.n_rows)
        return Kept.of(found)

    def check_first(self) -> None:
        """Refuse what the first chunk shows to be wrong."""
        next(self._chunks(), None)

    def _chunks(self) -> Iterator[Any]:
        n_rows, names = 0, None
        for number, chunk in enumerate(self._source.open()):
            try:
                X, y, qid = unpack(chunk)
                names = _same_columns(X, names)
                found = read_chunk(X, y, qid)
            except (TypeError, ValueError) as error:
                raise type(error)(f"Chunk {number + 1} (from row {n_rows}): {error}") from error
            n_rows += len(y)
            yield found


class TableInParts(RowsInParts):
    """A file with columns of any kind.

    Parameters
    ----------
    table : TableChunks
    open_chunks : callable, optional
        Starts reading: (columns, y, qid) of each chunk.
    parameters : mapping of str, optional
    """

    def __init__(
        self,
        table: TableChunks,
        open_chunks: Callable[[], Iterator[Any]] | None = None,
        parameters: Mapping[str, str] | None = None,
    ):
        def opened() -> Iterator[Any]:
            return ((one.columns, one.y, one.qid) for one in table)

        start = opened if open_chunks is None else open_chunks
        source = Source(lambda: read_ahead(start()), True, table.source)
        super().__init__(source, {"features": repr(table.features), **(parameters or {})})
        self._table = table

    def keep(self, tell: Callable[[int], None] = lambda n_rows: None) -> Kept:
        while True:
            try:
                return super().keep(tell)
            except FileFaultError as fault:
                # The first rows looked like numbers; now the column is read as texts, from the beginning.
                if fault.column not in self._table.numbers:
                    raise
                self._table.read_as_text(fault.column)

    def check_first(self) -> None:
        try:
            super().check_first()
        except FileFaultError as fault:
            if fault.column not in self._table.numbers:
                raise


def rows_in_parts(chunks: Any, reading: dict[str, Any]) -> RowsInParts:
    """Recognise chunks, or files: tables with columns that are not numbers keep their columns."""
    refuse_groups(reading)
    if are_paths(chunks) and set(reading) <= _OF_TABLES:
        first = chunks if isinstance(chunks, (str, os.PathLike)) else chunks[0]
        options = {name: one for name, one in reading.items() if name != "rows"}
        if ReadOptions(**options).format_of(os.fspath(first)) != "letor":
            table = TableChunks(chunks, **reading)
            if table.numbers != table.features:
                return TableInParts(table)
    return RowsInParts(as_source(chunks, reading, verbose=False))


# Options of `iter_ranking` that do not ask for numbers.
_OF_TABLES = {
    "rows", "format", "target", "query", "item", "features", "drop", "columns", "delimiter", "encoding",
}  # fmt: skip


class _File(CheckpointFile):
    format, version = "preflearn AutoRanker checkpoint", 2
    may_change = "n_jobs and verbose may change."


# The parameters that the model depends on.
_PARAMETERS = ("scoring", "time_limit", "preset", "random_state", "device")


def keep_rows(
    parts: RowsInParts,
    model: Any,
    checkpoint: str | os.PathLike[str] | None,
    tell: Callable[[int], None] = lambda n_rows: None,
) -> Kept:
    """The rows that a model learns from: those of the checkpoint, or else of one pass, which the checkpoint then holds.

    Data frames, and columns of objects other than numbers and texts, are not written to it; they are read again.

    Raises
    ------
    CheckpointError
        If the file is not a complete checkpoint, or belongs to other parameters.
    """
    if checkpoint is None:
        return parts.keep(tell)
    parameters = {name: getattr(model, name) for name in _PARAMETERS}
    known = fingerprint(type(model).__name__, {**parameters, "version": __version__}, 1)
    file = _File(checkpoint, None, known | parts.parameters)
    found = file.read()
    if found is not None:
        header, arrays = found
        names = header["columns"]
        columns = [arrays[f"column{k}"] for k in range(len(names or [0]))]
        X = columns[0] if names is None else dict(zip(names, map(_from_file, columns), strict=True))
        return Kept(X, arrays["y"], arrays["keys"], header["n_rows"], header["n_queries"])
    kept = parts.keep(tell)
    try:
        names = list(kept.X) if isinstance(kept.X, dict) else None
        columns = [kept.X] if names is None else list(map(_to_file, kept.X.values()))
    except TypeError:  # objects that are neither numbers nor texts
        return kept
    if names is not None or isinstance(kept.X, np.ndarray):
        arrays = {f"column{k}": one for k, one in enumerate(columns)}
        header = {"columns": names, "n_rows": kept.n_rows, "n_queries": kept.n_queries}
        file.write(header, {**arrays, "y": kept.y, "keys": kept.keys})
    return kept


def _to_file(values: np.ndarray) -> np.ndarray:
    """A column of objects as the characters of one JSON list: files hold no objects of Python."""
    if values.dtype != object:
        return values
    return np.array(json.dumps(values.tolist()).encode())


def _from_file(values: np.ndarray) -> np.ndarray:
    if values.ndim:
        return values
    return _column(json.loads(values.item()))


def _same_columns(X: Any, before: list[Any] | None) -> list[Any] | None:
    """The names of the columns of a table, which must be those of the chunks before."""
    names = list(X) if isinstance(X, Mapping) else names_of(X)
    if before is not None and names is not None and names != before:
        raise ValueError(
            f"the columns are {', '.join(map(str, names[:10]))}, but earlier chunks had "
            f"{', '.join(map(str, before[:10]))}: expected the same columns in the same order."
        )
    return names or before


# Rows of all kinds ----------------------------------------------------------------------------------------------------


def as_rows(X: Any) -> Any:
    """An array of float64, a dict of columns, or a data frame as it is.

    Raises
    ------
    ValueError
        For arrays that do not have two axes, and values that are infinite or not numbers.
    """
    if isinstance(X, Mapping):
        return {str(name): _column(values) for name, values in X.items()}
    if hasattr(X, "columns"):
        return X
    try:
        rows = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X contains values that are not numbers ({error}): pass a data frame, or a mapping from names to columns."
        ) from error
    if rows.ndim != 2:
        raise ValueError(f"X has shape {rows.shape}: expected (m, n).")
    if not is_complete(rows) and np.isinf(rows).any():
        raise ValueError("X contains infinity: replace it, or mark it as missing (NaN).")
    return rows


def is_complete(rows: np.ndarray) -> bool:
    """Whether every number is finite."""
    # A sum is finite only if every term is, and is the fastest look at all of them.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(rows.sum())) or bool(np.isfinite(rows).all())


def _is_mapping(rows: Any) -> bool:
    """Whether rows are columns by name; sparse matrices of keys (DOK) are mappings, too, but of places."""
    return isinstance(rows, Mapping) and not sp.issparse(rows)


def n_rows(rows: Any) -> int:
    """The number of rows."""
    if _is_mapping(rows):
        return len(next(iter(rows.values()), ()))
    return rows.shape[0] if hasattr(rows, "shape") else len(rows)


def n_columns(rows: Any) -> int:
    """The number of columns."""
    return len(rows) if _is_mapping(rows) else rows.shape[1]


def names_of(rows: Any) -> list[Any] | None:
    """The names of the columns, if they have names."""
    if _is_mapping(rows):
        return list(rows)
    return list(rows.columns) if hasattr(rows, "columns") else None


def take(rows: Any, places: np.ndarray) -> Any:
    """Some rows, in this order."""
    if _is_mapping(rows):
        return {name: _column(values)[places] for name, values in rows.items()}
    return _safe_indexing(rows.tocsr() if sp.issparse(rows) else rows, places)


def join(parts: Sequence[Any]) -> Any:
    """Rows of one kind, one below the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    import narwhals as nw

    frames = [nw.from_native(part, eager_only=True) for part in parts]
    return nw.concat(frames, how="vertical").to_native()


def _column(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values
    out = np.empty(len(values), dtype=object)
    out[:] = list(values)
    return out
