"""CSV and TSV tables: a header of column names, then one row per record.

Cells may stand in double quotes, where a doubled quote is one quote and line ends are text. Only columns that are
asked for as text are text: a feature or target that is not a number is refused, with the remedy.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

import numpy as np

from ...errors import InputError, Remedy
from ..blocks import LOOK_AT_ROWS, TableFile, ignore_progress, read_records
from ..cells import (
    CellError,
    QueryLabels,
    how_to_convert,
    is_missing,
    looks_like_code,
    number,
    numbers,
    refuse,
)
from ..encoding.kinds import TableWarning
from ..options import ReadOptions, Roles, check_names
from ..streams import UTF8, detect_encoding, read_encoding, spoken

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What is looked at to see which columns hold numbers.
_LOOK_AT_BYTES = 1 << 18
# The first row that is not empty; a quote that is never closed reaches to the end.
_FIRST_ROW = re.compile(rb'[\r\n]*+(?:"[^"]*+(?:"|\Z)|[^"\n]++)*+\n?')
# The line in front of the header that tells spreadsheets what separates the cells.
_MARK = re.compile(rb'"?sep=([;,|\t])"?\r?\n')
_QUOTE, _LF, _CR = b'"\n\r'
# What stands for a byte that is not UTF-8.
_DAMAGED = re.compile("[\udc80-\udcff]")


class DelimitedFile(TableFile):
    """A CSV or TSV file."""

    def __init__(self, path: str, options: ReadOptions):
        options.refuse_given("table", "their columns have names", "n_features")
        self.path = path
        self.options = options
        self.delimiter = options.delimiter or ("\t" if options.format_of(path) == "tsv" else ",")
        first = next(read_records(path, ignore_progress, quoted=True), b"")
        self.encoding = read_encoding(options.encoding) if options.encoding else detect_encoding(first)
        if self.encoding != UTF8:
            first = next(self._blocks_of_text(ignore_progress), b"")
            if options.encoding is None:
                self._say(
                    f"the text is {spoken(self.encoding)}, not UTF-8, and is read as such",
                    "encoding",
                    self.encoding,
                )
        first = first.removeprefix(_BYTE_ORDER_MARK)
        mark = _MARK.match(first)
        start = self.header_bytes = mark.end() if mark else 0
        if options.delimiter is None and mark:
            self.delimiter = mark[1].decode()
        elif options.delimiter is None:
            self._detect_delimiter(first[:_LOOK_AT_BYTES])
        self._first = first[:_LOOK_AT_BYTES]
        if options.columns is not None:
            self.names = list(options.columns)
        else:
            header = _FIRST_ROW.match(first, start)
            self.header_bytes = header.end() if header else start
            self.names = self._header(first[start : self.header_bytes])
        check_names(path, self.names)

    def _blocks_of_text(self, progress: Callable[[int], None]) -> Iterator[bytes]:
        return read_records(self.path, progress, quoted=True, encoding=self.encoding)

    def _say(self, found: str, argument: str, value: str) -> None:
        """What was found about the file instead of what is usual."""
        warnings.warn(f"{self.path}: {found} ({argument}={value!r}).", TableWarning, stacklevel=2)

    def _detect_delimiter(self, start: bytes) -> None:
        """Use another mark where the usual one gives one column, or uneven rows, and that one does not."""
        text = start.decode("utf-8", "replace")
        if len(start) == _LOOK_AT_BYTES:
            text = text[: text.rfind("\n") + 1]
        if _are_even(text, self.delimiter):
            return
        others = [mark for mark in ";\t,|" if mark != self.delimiter and _are_even(text, mark)]
        if others:
            self.delimiter = max(others, key=lambda mark: text.partition("\n")[0].count(mark))
            shown = "tabs" if self.delimiter == "\t" else repr(self.delimiter)
            self._say(
                f"the cells are separated by {shown} and are read accordingly", "delimiter", self.delimiter
            )

    def _header(self, record: bytes) -> list[str]:
        try:
            text = io.StringIO(record.decode("utf-8"), newline="")
            rows = [row for row in csv.reader(text, delimiter=self.delimiter, strict=True) if row]
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}, line 1: the header cannot be read, byte {record[error.start]:#04x} is not UTF-8. "
                f"{how_to_convert(self._first)}",
                Remedy("encoding", purpose="with the encoding of the file"),
            ) from error
        except csv.Error as error:
            raise ValueError(f"{self.path}, line 1: the header cannot be read ({error}).") from error
        if not rows:
            raise ValueError(f"{self.path}: the file is empty, expected a header of column names.")
        if len(rows) > 1:
            raise ValueError(
                f"{self.path}, line 1: a carriage return inside the line, expected it only at its end."
            )
        names = rows[0]
        there = [name for name in names if not is_missing(name, among_values=True)]
        if there and all(map(_is_number, there)):
            raise InputError(
                f"{self.path}, line 1: expected a header of column names, found only numbers",
                Remedy("columns", purpose="to name the columns of a file without a header"),
            )
        if len(names) == 1 and self.options.delimiter is None:
            other = next((mark for mark in ";\t,|" if mark in names[0]), None)
            if other is not None:
                what = f"found one column {names[0][:40]!r}, and rows that {other!r} divides unevenly"
                found = f"{self.path}, line 1: {what}"
                raise InputError(found, Remedy("delimiter", other))
        return names

    def number_columns(self) -> list[str]:
        """Columns whose first cells are numbers or missing, and not labels such as "007"."""
        text = self._first[self.header_bytes :].decode("utf-8", "replace")
        if len(self._first) == _LOOK_AT_BYTES:
            text = text[: text.rfind("\n") + 1]
        rows = islice(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), LOOK_AT_ROWS)
        try:
            whole = [row for row in rows if len(row) == len(self.names)]
        except csv.Error:
            return []
        return [name for name, cells in zip(self.names, zip(*whole)) if _are_numbers(cells)]

    def rows(self, roles: Roles, progress: Callable[[int], None]) -> Iterator[tuple[np.ndarray, _Cells]]:
        for first, data in self._parts(progress):
            end = self._layout.prefix(data)
            lines = _lines_of_rows(data[:end])
            if lines.size:
                yield first + lines, _Cells(data[:end], self.names, roles, self.delimiter)
            if end < len(data):
                fault = self._layout.fault(data, end)
                column = self.names[fault.column] if 0 <= fault.column < len(self.names) else None
                refuse(self.path, self.unit, first + data.count(b"\n", 0, fault.place), fault.found, column)

    def uneven_rows(self, most: int) -> Sequence[InputError]:
        found: list[InputError] = []
        for first, data in self._parts(ignore_progress):
            end = self._layout.prefix(data)
            while end < len(data) and len(found) < most:
                fault = self._layout.fault(data, end)
                if fault.column >= 0:  # what follows a quote out of place cannot be counted
                    return found
                line = first + data.count(b"\n", 0, fault.place)
                found.append(InputError(f"{self.path}, line {line}: {fault.found}"))
                end = self._layout.prefix(data, fault.end)
        return found

    @cached_property
    def _layout(self) -> _Layout:
        return _Layout(self.delimiter, len(self.names))

    def _parts(self, progress: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
        """The file after its header, part by part, and the number of the line on which each part starts."""
        records = self._blocks_of_text(progress)
        first = next(records, b"").removeprefix(_BYTE_ORDER_MARK)
        line = 1 + first.count(b"\n", 0, self.header_bytes)
        for data in chain([first[self.header_bytes :]], records):
            if data:
                data += b"" if data.endswith(b"\n") else b"\n"
                yield line, data
                line += data.count(b"\n")


@dataclass(frozen=True)
class _Fault:
    """What is wrong with a row: where, in which column (-1 for the whole row, which ends at ``end``)."""

    place: int
    column: int
    found: str
    end: int = -1


class _Layout:
    """Which bytes are rows of so many cells; empty lines are none."""

    def __init__(self, delimiter: str, n_columns: int):
        mark = re.escape(delimiter).encode()
        self._cell = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"|[^"\r\n%s]*+' % mark)
        more = rb"(?:%s(?:%s)){%d}" % (mark, self._cell.pattern, n_columns - 1)
        self._rows = re.compile(rb"(?:(?:(?:%s)%s)?\r?\n)*+" % (self._cell.pattern, more))
        self._delimiter, self._n_columns = delimiter.encode(), n_columns

    def prefix(self, data: bytes, start: int = 0) -> int:
        """Where the rows from ``start`` on that are as they should be end."""
        match = self._rows.match(data, start)
        assert match is not None  # of nothing at all, at the least
        return match.end()

    def fault(self, data: bytes, at: int) -> _Fault:
        """What is wrong with the row that starts here: a cell starts with its quote, and ends with it."""
        start, column = at, 0
        while True:
            cell = self._cell.match(data, at)
            assert cell is not None
            end, after = cell.end(), data[cell.end() : cell.end() + 1]
            if after == self._delimiter:
                at, column = end + 1, column + 1
            elif after == b"\n" or data[end : end + 2] == b"\r\n":
                what = f"found {column + 1} cell{'s' if column else ''}, expected {self._n_columns} as in the header"
                return _Fault(start, -1, what, data.index(b"\n", end) + 1)
            elif after == b"\r":
                what = "a carriage return inside the line, expected it only before the line end"
                return _Fault(end, column, what)
            elif after != b'"':
                what = "text after the closing quote of a cell, expected the next cell or the line end"
                return _Fault(end, column, what)
            elif end == at:
                return _Fault(end, column, "a quote is opened here and never closed")
            else:
                what = "a quote inside a cell that does not start with one. Quote the whole cell and double the quote"
                return _Fault(end, column, what)


def _lines_of_rows(data: bytes) -> np.ndarray:
    """The line on which each row starts, from 0: a line end between quotes is text, and an empty line no row."""
    text = np.frombuffer(data, dtype=np.uint8)
    ends, quotes = np.flatnonzero(text == _LF), np.flatnonzero(text == _QUOTE)
    of_rows = np.flatnonzero(np.searchsorted(quotes, ends) % 2 == 0)
    starts = np.append(0, ends[of_rows] + 1)[:-1]
    filled = ends[of_rows] - starts > (text[ends[of_rows] - 1] == _CR)
    return np.append(0, of_rows + 1)[:-1][filled]


class _Cells:
    """The columns of some whole rows, which all have their cells.

    NumPy reads them; what it does not take for a number is read again as texts.
    """

    def __init__(self, data: bytes, names: list[str], roles: Roles, delimiter: str):
        self._data, self._names, self._delimiter = data, names, delimiter
        kinds: dict[str, type] = dict.fromkeys((*roles.numbers, *roles.targets), float)
        self._kinds = kinds | dict.fromkeys(roles.texts, object)
        try:
            self._columns = self._read(self._kinds)
            if any(
                np.isinf(self._columns[name]).any() for name, kind in self._kinds.items() if kind is float
            ):
                raise ValueError("infinite numbers are refused as texts")
        except ValueError:
            self._columns = self._read(dict.fromkeys(self._kinds, object))

    @cached_property
    def _text(self) -> str:
        return self._data.decode("utf-8", "surrogateescape")

    def _read(self, kinds: dict[str, type]) -> dict[str, np.ndarray]:
        places = {name: place for place, name in enumerate(self._names) if name in kinds}
        if not places:
            return {}
        found = np.loadtxt(
            io.StringIO(self._text, newline="\n"),
            dtype=[(f"c{place}", kinds[name]) for name, place in places.items()],
            delimiter=self._delimiter,
            quotechar='"',
            comments=None,
            usecols=list(places.values()),
            ndmin=1,
        )
        return {name: found[f"c{place}"] for name, place in places.items()}

    def numbers(self, name: str) -> np.ndarray:
        values = self._columns[name]
        return numbers(values.tolist()) if values.dtype == object else values

    def texts(self, name: str) -> np.ndarray:
        """Equal cells share one object."""
        cells = self._columns[name].tolist()
        if not self._data.isascii():
            damaged = next((row for row, cell in enumerate(cells) if _DAMAGED.search(cell)), None)
            if damaged is not None:
                found = "the cell is not UTF-8 text, unlike the rows before it"
                remedy = Remedy("encoding", "cp1252", "if the whole file is Windows-1252")
                raise CellError(found, remedy, row=damaged)
        known: dict[str, str] = {}
        texts = np.empty(len(cells), dtype=object)
        texts[:] = list(map(known.setdefault, cells, cells))
        return texts

    def queries(self, name: str, labels: QueryLabels, lines: np.ndarray) -> np.ndarray:
        return labels.from_texts(self.texts(name), lines)


def _are_even(text: str, mark: str) -> bool:
    """Whether the first rows have several cells between these marks, and all the same number."""
    try:
        rows = islice(csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True), 20)
        lengths = {len(row) for row in rows if row}
    except csv.Error:
        return False
    return len(lengths) == 1 and min(lengths) > 1


def _are_numbers(cells: Sequence[str]) -> bool:
    there = [cell.strip() for cell in cells if not is_missing(cell, among_values=True)]
    return bool(there) and all(_is_number(cell) and not looks_like_code(cell) for cell in there)


def _is_number(text: str) -> bool:
    try:
        number(text.strip())
    except CellError:
        return False
    return True
