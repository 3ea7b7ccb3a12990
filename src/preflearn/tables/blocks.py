"""Blocks: what every file format turns into, how they are made several at a time, and cut into whole queries.

A format cuts its file into blocks of whole rows, parses them on several threads and hands them on in order. What is
built from blocks (all rows at once, or chunks of whole queries) does not know which format they came from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from scipy import sparse as sp

from ..errors import InputError, Remedy
from .cells import CellError, NotANumberError, QueryLabels, refuse
from .streams import DAMAGED, UTF8, Recoded, compression_of, open_plain, spoken

if TYPE_CHECKING:
    from .options import ReadOptions, Roles

# Text is parsed in blocks of about this size: large enough for threads to pay off, small enough to stay in cache.
BLOCK_BYTES = 4 << 20
# Decompressors are asked for this much at a time, so that little is lost before damaged data.
_PIECE_BYTES = 1 << 17
# A row longer than this is taken as a sign that the file is not a table.
LONGEST_ROW = 64 << 20

# Rows that are looked at to see which columns hold numbers.
LOOK_AT_ROWS = 1000

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class SparseRows:
    """Rows in compressed sparse form, of no particular width."""

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return self.starts.shape[0] - 1

    def slice(self, first: int, last: int) -> SparseRows:
        start, stop = self.starts[first], self.starts[last]
        return SparseRows(
            self.starts[first : last + 1] - start, self.columns[start:stop], self.values[start:stop]
        )

    def matrix(self, width: int, dtype: np.dtype) -> sp.csr_array:
        values = self.values.astype(dtype, copy=False)
        return sp.csr_array((values, self.columns, self.starts), shape=(len(self), width))


@dataclass(frozen=True)
class Block:
    """Some rows of a file.

    Attributes
    ----------
    path : str
        The file.
    features : ndarray of shape (rows, n) or SparseRows
        The features that are numbers.
    lines : ndarray of shape (rows,)
        The number of each row in the file, from 1.
    y, qid, items : ndarray of shape (rows,) or None
    texts : dict of str to ndarray of shape (rows,)
        Columns of words.
    widths : ndarray of shape (rows,) or None
        Largest feature index of each row, for formats that do not fix it.
    """

    path: str
    features: np.ndarray | SparseRows
    lines: np.ndarray
    y: np.ndarray | None = None
    qid: np.ndarray | None = None
    items: np.ndarray | None = None
    texts: dict[str, np.ndarray] = field(default_factory=dict)
    widths: np.ndarray | None = None

    def __len__(self) -> int:
        return self.lines.shape[0]

    def slice(self, first: int, last: int) -> Block:
        """Rows first .. last - 1."""
        if first == 0 and last == len(self):
            return self

        def cut(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[first:last]

        return replace(
            self,
            features=self.features.slice(first, last)
            if isinstance(self.features, SparseRows)
            else self.features[first:last],
            lines=self.lines[first:last],
            y=cut(self.y),
            qid=cut(self.qid),
            items=cut(self.items),
            texts={name: values[first:last] for name, values in self.texts.items()},
            widths=cut(self.widths),
        )


class Columns(Protocol):
    """The columns of some rows; a `CellError` has the row."""

    def numbers(self, name: str) -> np.ndarray:
        """float64, NaN where a value is missing."""

    def texts(self, name: str) -> np.ndarray:
        """Texts, "" where one is missing."""

    def queries(self, name: str, labels: QueryLabels, lines: np.ndarray) -> np.ndarray:
        """Labels of queries."""


class TableFile:
    """A file whose columns have names.

    Attributes
    ----------
    path : str
    options : ReadOptions
    unit : {"line", "row"}
        What rows are counted in.
    names : list of str
    """

    path: str
    options: ReadOptions
    unit = "line"
    names: list[str]

    def number_columns(self) -> list[str]:
        """The columns that look like numbers, by their type or their first rows."""
        raise NotImplementedError

    def rows(self, roles: Roles, progress: Callable[[int], None]) -> Iterator[tuple[np.ndarray, Columns]]:
        """(the number of each row in the file, the columns), part by part."""
        raise NotImplementedError

    def uneven_rows(self, most: int) -> Sequence[InputError]:
        """Rows with too few or too many cells, the first ones, for a file that is refused anyway."""
        return ()

    def blocks(self, roles: Roles | None, progress: Callable[[int], None]) -> Iterator[Block]:
        """The rows, in the order of the file."""
        assert roles is not None
        labels = QueryLabels(self.path, self.unit)
        for lines, columns in self.rows(roles, progress):
            cells, texts = self._read(columns, roles, lines)
            n = len(roles.numbers)
            targets = cells[n:]
            yield Block(
                path=self.path,
                features=cells[:n].T,
                lines=lines,
                y=None if not roles.targets else targets.T if roles.many_targets else targets[0],
                qid=None if roles.query is None else columns.queries(roles.query, labels, lines),
                items=None if roles.item is None else texts[roles.item],
                texts={name: texts[name] for name in roles.words},
            )

    def _read(
        self, columns: Columns, roles: Roles, lines: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Features and targets one below the other, and texts; the first row with a fault is refused."""
        cells = np.empty((len(roles.numbers) + len(roles.targets), lines.shape[0]))
        texts: dict[str, np.ndarray] = {}
        faults: list[tuple[int, str, CellError]] = []
        for place, name in enumerate((*roles.numbers, *roles.targets)):
            is_target = place >= len(roles.numbers)
            try:
                cells[place] = columns.numbers(name)
                self._fill(cells[place], is_target)
            except CellError as error:
                if isinstance(error, NotANumberError) and not is_target:
                    purpose = "to leave it out (preflearn.io.read_table reads columns of words)"
                    error = CellError(error.found, Remedy("drop", [name], purpose), row=error.row)
                faults.append((error.row or 0, name, error))
        for name in dict.fromkeys((*roles.words, *([roles.item] if roles.item is not None else ()))):
            try:
                texts[name] = columns.texts(name)
            except CellError as error:
                faults.append((error.row or 0, name, error))
        if faults:
            row, name, fault = min(faults, key=lambda fault: (fault[0], self.names.index(fault[1])))
            refuse(self.path, self.unit, int(lines[row]), fault, name)
        return cells, texts

    def _fill(self, values: np.ndarray, is_target: bool) -> None:
        """Put what the options say for missing values; refuse infinite ones."""
        infinite, missing = np.isinf(values), np.isnan(values)
        if infinite.any():
            row = int(np.argmax(infinite))
            raise CellError("the value is infinite, expected a finite number", row=row)
        if not missing.any():
            return
        try:
            values[missing] = self.options.missing_target() if is_target else self.options.missing_feature()
        except CellError as error:
            error.row = int(np.argmax(missing))
            raise


def ignore_progress(_: int) -> None:
    """Nobody watches."""


def read_records(
    path: str, progress: Callable[[int], None], *, quoted: bool = False, encoding: str = UTF8
) -> Iterator[bytes]:
    """Cut a text file, compressed or not, into blocks of whole lines.

    Parameters
    ----------
    path : str
    progress : callable
        Called with the number of bytes of the file (as stored) that have been read.
    quoted : bool
        Whether a line end between double quotes belongs to its row.
    encoding : str
        Of the file; blocks are UTF-8.

    Yields
    ------
    block : bytes
        Whole lines; only the last block may lack its line end.
    """
    carry = b""
    n_lines = 0
    compression = compression_of(path)
    with open_plain(path, compression) as (raw, plain):
        stream: Any = plain if encoding == UTF8 else Recoded(plain, encoding)
        while True:
            pieces, size = [carry], len(carry)
            ended = False
            while size < BLOCK_BYTES + len(carry) and not ended:
                try:
                    piece = stream.read(_PIECE_BYTES if compression else BLOCK_BYTES)
                except UnicodeDecodeError as error:
                    found = error.object[error.start] if isinstance(error.object, bytes) else 0
                    raise InputError(
                        f"{path}: byte {found:#04x} after line {n_lines} is not {spoken(encoding)}",
                        Remedy("encoding", purpose="with the encoding of the file"),
                    ) from error
                except DAMAGED as error:
                    if compression is None:
                        raise
                    n_lines += sum(part.count(b"\n") for part in pieces)
                    raise ValueError(
                        f"{path}: the {compression} data are damaged or cut short after line {n_lines} "
                        f"({str(error).rstrip('.')}). Download or create the file again."
                    ) from error
                ended = not piece
                pieces.append(piece)
                size += len(piece)
            data = b"".join(pieces)
            progress(raw.tell())
            if ended:
                if data:
                    yield data
                return
            cut = _last_record_end(data) if quoted else data.rfind(b"\n") + 1
            if cut == 0 and len(data) > LONGEST_ROW:
                why = (
                    "a quote that is never closed, or a file of another kind"
                    if quoted
                    else "a file of another kind"
                )
                where = f", line {n_lines + 1}" if compression or quoted else ""
                raise ValueError(f"{path}{where}: a row of more than {LONGEST_ROW >> 20} MiB. Is this {why}?")
            if cut:
                # Lines are counted where an error here could need them; the parser counts for itself.
                n_lines += data.count(b"\n", 0, cut) if compression or quoted else 0
                yield data[:cut]
            carry = data[cut:]


def _last_record_end(data: bytes) -> int:
    """Where the last complete row ends: after a line end with an even number of quotes before it, or 0."""
    odd = data.count(b'"') & 1
    end = len(data)
    while True:
        line_end = data.rfind(b"\n", 0, end)
        odd ^= data.count(b'"', line_end + 1, end) & 1
        if line_end < 0 or not odd:
            return line_end + 1
        end = line_end


def map_ahead(function: Callable[[In], Out], items: Iterable[In], n_jobs: int) -> Iterator[Out]:
    """``map(function, items)`` in order, with up to ``n_jobs`` calls running ahead in threads.

    An error while fetching items comes after the results, and the errors, of the items fetched before it.
    """
    if n_jobs == 1:
        yield from map(function, items)
        return
    failure: Exception | None = None
    source = iter(items)
    waiting: deque[Future[Out]] = deque()
    with ThreadPoolExecutor(n_jobs, thread_name_prefix="preflearn-io") as pool:
        try:
            while True:
                try:
                    item = next(source)
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
                    break
                waiting.append(pool.submit(function, item))
                if len(waiting) > n_jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
    if failure is not None:
        raise failure


def regroup(blocks: Iterable[Block], rows: int, unit: str) -> Iterator[list[Block]]:
    """Cut a stream of blocks into chunks of whole queries.

    Parameters
    ----------
    blocks : iterable of Block
    rows : int
        The most rows in a chunk; a longer query is a chunk of its own.
    unit : str
        What rows are counted in ("line", "row"), for errors.

    Yields
    ------
    chunk : list of Block

    Raises
    ------
    ValueError
        If a query comes back after another one has begun.
    """
    pending: list[Block] = []
    n_pending = 0
    ends: list[int] = []  # where queries end, counted in rows from the start of what is pending
    ended = _EndedQueries(unit)
    for block in blocks:
        ends += (_ends(pending[-1] if pending else None, block) + n_pending).tolist()
        pending.append(block)
        n_pending += len(block)
        while n_pending > rows and ends:
            fitting = bisect_right(ends, rows)
            cut = ends[max(0, fitting - 1)]
            chunk, pending = _split(pending, cut)
            ended.note(chunk)
            yield chunk
            n_pending -= cut
            ends = [end - cut for end in ends[max(1, fitting) :]]
    if pending:
        ended.note(pending)
        yield pending


def _ends(last: Block | None, block: Block) -> np.ndarray:
    """The rows of a block in front of which a query ends; without queries every row may end a chunk."""
    if block.qid is None:
        return np.arange(0 if last is not None else 1, len(block))
    ends = np.flatnonzero(block.qid[1:] != block.qid[:-1]) + 1
    if last is not None and last.qid is not None and last.qid[-1] != block.qid[0]:
        ends = np.concatenate([[0], ends])
    return ends


def _split(blocks: list[Block], n_rows: int) -> tuple[list[Block], list[Block]]:
    """The first rows, and the others."""
    head: list[Block] = []
    for place, block in enumerate(blocks):
        if n_rows < len(block):
            if n_rows:
                head.append(block.slice(0, n_rows))
            return head, [block.slice(n_rows, len(block)), *blocks[place + 1 :]]
        head.append(block)
        n_rows -= len(block)
    return head, []


class _EndedQueries:
    """The queries that have ended, with the file and the line of their last row."""

    def __init__(self, unit: str):
        self.unit = unit
        self.ends: dict[Any, tuple[str, int]] = {}

    def note(self, chunk: list[Block]) -> None:
        """End the queries of a chunk; refuse one that has ended before."""
        current: Any = None
        for block in chunk:
            if block.qid is None:
                return
            cuts = np.append(np.flatnonzero(block.qid[1:] != block.qid[:-1]) + 1, len(block))
            first = 0
            for cut, query in zip(cuts.tolist(), block.qid[cuts - 1].tolist()):
                if query != current and query in self.ends:
                    self._refuse(query, block.path, int(block.lines[first]))
                self.ends[query] = (block.path, int(block.lines[cut - 1]))
                current, first = query, cut

    def _refuse(self, query: Any, path: str, line: int) -> None:
        file, end = self.ends[query]
        other = "" if file == path and end < line else f" of {file}"  # a file may be read twice
        raise InputError(
            f"{path}, {self.unit} {line}: query {query!s} comes back after it ended on {self.unit} {end}{other}. Rows "
            "of a query must be adjacent to be read in chunks: sort the file by query",
            in_python="or use read_ranking",
        )
