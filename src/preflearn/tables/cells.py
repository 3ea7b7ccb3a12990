"""What a value in a file may be, a number or the label of a query, and the sentence for what it may not be."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..errors import InputError, Remedy
from .encoding.values import SPELLED_MISSING, is_missing
from .streams import detect_encoding

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_INFINITE = {"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}


class CellError(InputError):
    """A value that cannot be used, and its row where it is one of many; file, line and column are added later."""

    def __init__(self, found: str, *remedies: Remedy, row: int | None = None) -> None:
        super().__init__(found, *remedies)
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), row=self.row), (self.found, *self.remedies)


class NotANumberError(CellError):
    """Something else where a number is needed: the column may be one of words."""


def clip(text: str | bytes, longest: int = 40) -> str:
    """A value as it can be shown in one line of an error."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return repr(shown if len(shown) <= longest else shown[: longest - 3] + "...")


def number(text: str) -> float:
    """The float64 nearest to a decimal number; NaN for a missing value.

    Raises
    ------
    CellError
        For anything else.

    Examples
    --------
    >>> number("0.1000000000000000055511151231257827"), number("NULL")
    (0.1, nan)
    """
    if _NUMBER.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise CellError(f"{clip(text)} is too large for a 64-bit float")
        return value
    if is_missing(text, among_values=True):
        return math.nan
    if text.lower() in _INFINITE:
        raise CellError(f"{clip(text)} is infinite, expected a finite number")
    raise NotANumberError(f"found {clip(text)}, expected a number")


def numbers(cells: Sequence[str]) -> np.ndarray:
    """`number` of each cell without the blanks around it; an error has the row.

    Examples
    --------
    >>> numbers(["1", " 2.5", "NA"])
    array([1. , 2.5, nan])
    """
    joined = "".join(cells)
    if joined.isascii() and "_" not in joined:  # Python takes "1_000" and digits of every script for numbers
        try:
            values = np.array([math.nan if cell in SPELLED_MISSING else float(cell) for cell in cells])
        except ValueError:
            pass  # more missing values, or words
        else:
            if not np.isinf(values).any():
                return values
    values = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            values[row] = number(cell.strip())
        except CellError as error:
            error.row = row
            raise
    return values


def whole_number(text: str) -> int | None:
    """The whole number that a label spells in the one usual way ("7", not "07" or "7.0"), or None.

    Examples
    --------
    >>> whole_number("7"), whole_number("07")
    (7, None)
    """
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def how_to_convert(start: bytes = b"") -> str:
    """What to do about a file that is not UTF-8, by what the bytes that it starts with probably are.

    Examples
    --------
    >>> how_to_convert("größe".encode("latin-1"))
    'It may be Windows-1252, as spreadsheets write it: save it as UTF-8'
    """
    encoding = detect_encoding(start)
    if encoding.startswith("utf-16"):
        return "It is UTF-16: save it as UTF-8"
    if b"\x00" in start:
        return "It may not be a text file at all"
    return "It may be Windows-1252, as spreadsheets write it: save it as UTF-8"


class FileFaultError(InputError):
    """A fault in a file, with the column it is in where it is about one."""

    def __init__(self, found: str, *remedies: Remedy, column: str | None = None) -> None:
        super().__init__(found, *remedies)
        self.column = column

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), column=self.column), (self.found, *self.remedies)


def refuse(path: str, unit: str, line: int, what: str | CellError, column: str | None = None) -> NoReturn:
    """Raise the one error for a fault in a file: where, what was found, what was expected, what to pass."""
    where = f", column {column!r}" if column is not None else ""
    error = CellError(what) if isinstance(what, str) else what
    raise FileFaultError(f"{path}, {unit} {line}{where}: {error.found}", *error.remedies, column=column)


class QueryLabels:
    """Labels of one file, all of one kind: whole numbers, or texts.

    The first row decides, so that the labels do not depend on how the file is cut up: where it holds a whole number,
    every row must; where it does not, every label is a text, even if it looks like a number.
    """

    def __init__(self, path: str, unit: str):
        self.path = path
        self.unit = unit
        self.kind: type | None = None
        self.first = ""

    def from_texts(self, texts: np.ndarray, lines: np.ndarray) -> np.ndarray:
        """Labels of cells that do not say whether they are numbers."""
        if self.kind is None:
            self.first = texts[0]
            self.kind = str if whole_number(texts[0]) is None else int
        if self.kind is str:
            for row, text in enumerate(texts.tolist()):
                if not text:
                    self._refuse_missing(lines[row])
            return texts
        labels = np.empty(texts.shape[0], dtype=np.int64)
        previous = None
        label: int | None = None
        for row, text in enumerate(texts.tolist()):
            if text is not previous:
                previous, label = text, whole_number(text)
            if label is None:
                if not text:
                    self._refuse_missing(lines[row])
                self._refuse_kind(text, lines[row])
            labels[row] = label
        return labels

    def from_values(self, values: Sequence[Any], lines: np.ndarray) -> np.ndarray:
        """Labels of values that have a type: whole numbers or texts."""
        for row, value in enumerate(values):
            if value is None or value == "":
                self._refuse_missing(lines[row])
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                refuse(
                    self.path,
                    self.unit,
                    int(lines[row]),
                    f"the query is {clip(str(value))}, expected a whole number or a text",
                )
            if self.kind is None:
                self.kind, self.first = type(value), str(value)
            if type(value) is not self.kind or (isinstance(value, int) and abs(value) >= 10**18):
                self._refuse_kind(str(value), lines[row])
        if self.kind is int:
            return np.array(values, dtype=np.int64)
        labels = np.empty(len(values), dtype=object)
        labels[:] = values
        return labels

    def _refuse_missing(self, line: int) -> NoReturn:
        refuse(self.path, self.unit, int(line), "the query is missing. Every row must belong to a query")

    def _refuse_kind(self, text: str, line: int) -> NoReturn:
        refuse(
            self.path,
            self.unit,
            int(line),
            f"the query is {clip(text)}, but the first one is {clip(self.first)}: expected all of them to be whole "
            "numbers of at most 18 digits, or all of them texts",
        )
