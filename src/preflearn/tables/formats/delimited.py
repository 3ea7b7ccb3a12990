"""CSV and TSV tables: a header of column names, then one row per record.

Cells may stand in double quotes, where a doubled quote is one quote and line ends are text. Only columns that are
asked for as text are text: a feature or target that is not a number is refused, with the remedy.
"""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ...errors import InputError, Remedy
from ..blocks import Block, map_ahead, parsing_threads, read_records
from ..cells import CellError, QueryLabels, how_to_convert, number, refuse
from ..encoding.summary import TableWarning
from ..encoding.values import is_missing
from ..options import ReadOptions, Roles, check_names
from ..streams import UTF8, detect_encoding, read_encoding, spoken

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What is looked at to see which columns hold numbers.
_LOOK_AT_BYTES, _LOOK_AT_ROWS = 1 << 18, 1000
# Rows that are looked at to see what separates the cells.
_ROWS_FOR_MARKS = 20
# Where a column has at least this many rows per distinct text, only the distinct ones become Python objects.
_REPETITIONS = 4
# Digits that are a label rather than a number: "007".
_LABEL = re.compile(r"0[0-9]+")


@dataclass(frozen=True)
class _Parsed:
    """A block as it came from the loop, lines counted from the start of the block."""

    numbers: np.ndarray
    texts: dict[str, np.ndarray]
    lines: np.ndarray
    n_lines: int
    fault: tuple[int, str | CellError, str | None] | None


class DelimitedFile:
    """A CSV or TSV file."""

    unit = "line"

    def __init__(self, path: str, options: ReadOptions):
        options.refuse_given("table", "their columns have names", "n_features")
        self.path = path
        self.options = options
        self.delimiter = options.delimiter or ("\t" if options.format_of(path) == "tsv" else ",")
        first = next(read_records(path, _ignore, quoted=True), b"")
        self.encoding = read_encoding(options.encoding) if options.encoding else detect_encoding(first)
        if self.encoding != UTF8:
            first = next(self._blocks_of_text(_ignore), b"")
            if options.encoding is None:
                self._say(
                    f"the text is {spoken(self.encoding)}, not UTF-8, and is read as such",
                    "encoding",
                    self.encoding,
                )
        first = first.removeprefix(_BYTE_ORDER_MARK)
        if options.delimiter is None:
            self._detect_delimiter(first[:_LOOK_AT_BYTES])
        self.header_bytes = 0
        self._first = first[:_LOOK_AT_BYTES]
        if options.columns is not None:
            self.names = list(options.columns)
        else:
            self.header_bytes = _first_record_end(first)
            self.names = self._header(first[: self.header_bytes])
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
        rows = islice(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), _LOOK_AT_ROWS)
        try:
            whole = [row for row in rows if len(row) == len(self.names)]
        except csv.Error:
            return []
        return [name for name, cells in zip(self.names, zip(*whole)) if _are_numbers(cells)]

    def uneven_rows(self, most: int) -> list[InputError]:
        """Rows with too few or too many cells, the first ones, read slowly: for a file that is refused anyway."""
        found: list[InputError] = []
        n_lines, n = 0, len(self.names)
        for place, data in enumerate(self._blocks_of_text(_ignore)):
            text = data.decode("utf-8", "replace").removeprefix("\ufeff")
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
            try:
                for row in reader:
                    is_header = place == 0 and reader.line_num == 1 and self.header_bytes > 0
                    if row and len(row) != n and not is_header:
                        where = f"{self.path}, line {n_lines + reader.line_num}"
                        what = f"found {len(row)} cell{'s' if len(row) > 1 else ''}"
                        found.append(InputError(f"{where}: {what}, expected {n} as in the header"))
            except csv.Error:  # what stops this reader is not what stopped the other one
                break
            if len(found) >= most:
                break
            n_lines += data.count(b"\n")
        return found[:most]

    def blocks(self, roles: Roles | None, progress: Callable[[int], None]) -> Iterator[Block]:
        assert roles is not None
        layout = _Layout(self.names, roles)
        labels = QueryLabels(self.path, self.unit)
        offset = 0

        def parse(data: bytes) -> _Parsed:
            return self._parse(data, layout)

        n = len(roles.numbers)
        for parsed in map_ahead(parse, self._records(progress), parsing_threads(self.options.n_jobs)):
            lines = parsed.lines + (offset + self._header_lines + 1)
            if parsed.fault is not None:
                line, what, column = parsed.fault
                refuse(self.path, self.unit, offset + self._header_lines + line + 1, what, column)
            offset += parsed.n_lines
            if not lines.shape[0]:
                continue
            targets = parsed.numbers[:, n:]
            yield Block(
                path=self.path,
                features=parsed.numbers[:, :n],
                lines=lines,
                y=None if not roles.targets else targets if roles.many_targets else targets[:, 0],
                qid=None if roles.query is None else labels.from_texts(parsed.texts[roles.query], lines),
                items=None if roles.item is None else parsed.texts[roles.item],
                texts={name: parsed.texts[name] for name in roles.words},
            )

    def _records(self, progress: Callable[[int], None]) -> Iterator[bytes]:
        records = self._blocks_of_text(progress)
        first = next(records, b"").removeprefix(_BYTE_ORDER_MARK)
        self._header_lines = first.count(b"\n", 0, self.header_bytes)
        yield first[self.header_bytes :]
        yield from records

    def _parse(self, data: bytes, layout: _Layout) -> _Parsed:
        from .._loops import delimited as loop
        from .._loops.text_numbers import LF, count_bytes

        if not data.endswith(b"\n"):
            data += b"\n"
        text = np.frombuffer(data, dtype=np.uint8)
        rows, _ = count_bytes(text, LF, LF)
        lines = np.empty(rows, np.int64)
        numbers = np.empty((rows, layout.n_numbers))
        spans = np.empty((rows, layout.n_texts, 2), np.int64)
        odd = np.empty((rows * layout.n_numbers, 5), np.int64)
        n, n_lines, n_odd, fault, column, at = loop.parse_delimited(
            text, ord(self.delimiter), layout.kinds, lines, numbers, spans, odd
        )
        problem = self._settle(data, odd[:n_odd], numbers, layout)
        if problem is None and fault != loop.FINE:
            name = self.names[column] if column < len(self.names) else None
            problem = n_lines, self._explain(fault, column), name if fault not in _ABOUT_ROWS else None
        texts: dict[str, np.ndarray] = {}
        if problem is None:
            # Places of bytes are those of characters, and slices of one text cost a third of decoding each cell.
            whole = data.decode("ascii") if layout.n_texts and data.isascii() else None
            for place, name in enumerate(layout.text_names):
                try:
                    texts[name] = _cells(data, whole, text, spans[:n, place], lines)
                except CellError as error:
                    assert error.line is not None
                    problem = error.line, error, name
                    break
        return _Parsed(numbers[:n], texts, lines[:n], n_lines, problem)

    def _settle(
        self, data: bytes, odd: np.ndarray, numbers: np.ndarray, layout: _Layout
    ) -> tuple[int, str | CellError, str | None] | None:
        """Fill in the numbers that the loop left; the first fault, if any."""
        for row, column, start, end, line in odd.tolist():
            name = self.names[column]
            place = int(layout.kinds[column])
            try:
                numbers[row, place] = number_cell(
                    data[start:end].strip(b" \t"), name, place >= layout.n_features, self.options
                )
            except CellError as error:
                return line, error, name
        return None

    def _explain(self, fault: int, column: int) -> str:
        from .._loops import delimited as loop

        expected = len(self.names)
        if fault == loop.TOO_FEW_CELLS:
            return f"found {column} cell{'s' if column > 1 else ''}, expected {expected} as in the header"
        if fault == loop.TOO_MANY_CELLS:
            return f"found more than the {expected} cells of the header"
        if fault == loop.STRAY_QUOTE:
            return "a quote inside a cell that does not start with one. Quote the whole cell and double the quote"
        if fault == loop.TEXT_AFTER_QUOTE:
            return "text after the closing quote of a cell, expected the next cell or the line end"
        if fault == loop.OPEN_QUOTE:
            return "a quote is opened here and never closed"
        return "a carriage return inside the line, expected it only before the line end"


_ABOUT_ROWS = (1, 2)  # too few and too many cells are about the row, not about a column


class _Layout:
    """Where the loop puts each column."""

    def __init__(self, names: list[str], roles: Roles):
        self.text_names = roles.texts
        self.n_features = len(roles.numbers)
        self.n_numbers = self.n_features + len(roles.targets)
        self.n_texts = len(self.text_names)
        places = {name: place for place, name in enumerate((*roles.numbers, *roles.targets))}
        places |= {name: -2 - place for place, name in enumerate(self.text_names)}
        self.kinds = np.array([places.get(name, -1) for name in names], dtype=np.int64)


def number_cell(text: bytes, column: str, is_target: bool, options: ReadOptions) -> float:
    """The number in a cell, or what the options put for a missing one."""
    try:
        value = number(text)
    except CellError as error:
        if is_target or "infinite" in error.found or "too large" in error.found:
            raise
        raise CellError(error.found, *remedies_for_words(column)) from None
    if not math.isnan(value):
        return value
    return options.missing_target() if is_target else options.missing_feature()


def remedies_for_words(column: str) -> tuple[Remedy, ...]:
    """What to do about a column of words where numbers are needed."""
    return (Remedy("drop", [column], "to leave it out (preflearn.io.read_table reads columns of words)"),)


def _cells(
    data: bytes, whole: str | None, text: np.ndarray, spans: np.ndarray, lines: np.ndarray
) -> np.ndarray:
    """The cells of a column of texts; where they repeat, equal ones share one object."""
    from .._loops.delimited import find_distinct

    rows = spans.shape[0]
    codes, firsts = np.empty(rows, np.int64), np.empty(rows // _REPETITIONS, np.int64)
    n = find_distinct(text, spans, firsts.shape[0], codes, firsts) if firsts.size else -1
    if n >= 0:
        spans, lines = spans[firsts[:n]], lines[firsts[:n]]
    found = _slices(whole, spans) if whole is not None else _texts(data, spans, lines)
    return found if n < 0 else found[codes]


def _slices(text: str, spans: np.ndarray) -> np.ndarray:
    """Cells of a text."""
    cells = [text[start:end] for start, end in zip(spans[:, 0].tolist(), spans[:, 1].tolist())]
    if '"' in text:
        cells = [cell[1:-1].replace('""', '"') if cell.startswith('"') else cell for cell in cells]
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found


def _texts(data: bytes, spans: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Cells as texts; equal neighbours share one object."""
    texts = np.empty(spans.shape[0], dtype=object)
    previous, text = None, ""
    for row, (start, end) in enumerate(spans.tolist()):
        cell = data[start:end]
        if cell != previous:
            previous = cell
            try:
                text = cell.decode("utf-8")
            except UnicodeDecodeError:
                found = "the cell is not UTF-8 text, unlike the rows before it"
                remedy = Remedy("encoding", "cp1252", "if the whole file is Windows-1252")
                raise CellError(found, remedy, line=int(lines[row])) from None
            if text.startswith('"'):
                text = text[1:-1].replace('""', '"')
        texts[row] = text
    return texts


def _are_even(text: str, mark: str) -> bool:
    """Whether the first rows have several cells between these marks, and all the same number."""
    try:
        rows = islice(csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True), _ROWS_FOR_MARKS)
        lengths = {len(row) for row in rows if row}
    except csv.Error:
        return False
    return len(lengths) == 1 and min(lengths) > 1


def _first_record_end(data: bytes) -> int:
    """Where the first row that is not empty ends."""
    start = 0
    while data[start : start + 1] in (b"\n", b"\r"):
        start += 1
    end = start
    while True:
        end = data.find(b"\n", end) + 1
        if not end:
            return len(data)
        if data.count(b'"', start, end) % 2 == 0:
            return end


def _are_numbers(cells: Sequence[str]) -> bool:
    there = [cell.strip() for cell in cells if not is_missing(cell, among_values=True)]
    return bool(there) and all(_is_number(cell) and not _LABEL.fullmatch(cell) for cell in there)


def _is_number(text: str) -> bool:
    try:
        number(text.strip().encode())
    except CellError:
        return False
    return True


def _ignore(_: int) -> None:
    return None
