"""What a text or a value of a table may stand for, and the sentence for what it may not.

A missing value, a number, a boolean, a date, the label of a query. Every rule looks at one text, or at a whole column
where one text alone would be ambiguous ("1,234" or "03/04/2024").
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..errors import InputError, Remedy
from .streams import detect_encoding

# Missing whatever the column holds; and missing where the other values are numbers, dates or truth values.
MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "?"}
# As it is usually written; `is_missing` knows every other spelling.
SPELLED_MISSING = {spelled for text in MISSING for spelled in (text, text.upper(), text.capitalize())} | {
    "NaN"
}
_MISSING_AMONG_VALUES = MISSING | {"-", "--", ".", "none", "nat", "missing", "unknown", "n.a.", "nil"}

_TRUE = {"true": "false", "t": "f", "yes": "no", "y": "n", "on": "off"}
TRUTH = {**dict.fromkeys(_TRUE, 1.0), **dict.fromkeys(_TRUE.values(), 0.0), "1": 1.0, "0": 0.0}

# A number with a point, thousands by commas; and the other way round.
NUMBER_STYLES = {
    "point": re.compile(
        r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?\.\d+(?:[eE][+-]?\d+)?"
    ),
    "comma": re.compile(r"[+-]?(?:\d+|\d{1,3}(?:[. ]\d{3})+)(?:,\d+)?"),
}
_UNIT = re.compile(r"^([+-]?)\s*[$€£¥]\s*|\s*[$€£¥%]$")
_CODE = re.compile(r"0\d+")
_INFINITE = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
}


def is_missing(text: str, among_values: bool = False) -> bool:
    """Whether a text says that there is no value.

    Examples
    --------
    >>> is_missing(" N/A"), is_missing("none"), is_missing("none", among_values=True)
    (True, False, True)
    """
    return text.strip().lower() in (_MISSING_AMONG_VALUES if among_values else MISSING)


def labels_in(texts: Iterable[str]) -> list[str]:
    """The different texts without the missing ones, to which words like "unknown" belong beside two others.

    Examples
    --------
    >>> labels_in(["none", "some", "", "some "]), labels_in(["alive", "died", "unknown"])
    (['none', 'some'], ['alive', 'died'])
    """
    labels = sorted({text.strip() for text in texts if not is_missing(text)})
    return [one for one in labels if len(labels) <= 2 or not is_missing(one, among_values=True)]


def is_missing_value(value: Any) -> bool:
    """None, NaN, NaT, or a value that will not say whether it equals itself, such as pandas' NA."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return not isinstance(value, (list, np.ndarray))


def looks_like_code(text: str) -> bool:
    """Digits with a leading zero are a label: "007", "01234"."""
    return _CODE.fullmatch(text.strip()) is not None


def number_style(texts: Sequence[str]) -> str:
    """Whether the numbers of a column have a decimal point or a decimal comma.

    A comma only where some value cannot be read otherwise: "1,234" alone is read as 1234.
    """
    bare = [_UNIT.sub(r"\1", text.strip()) for text in texts]
    n_point, n_comma = (
        sum(style.fullmatch(text) is not None for text in bare)
        for style in (NUMBER_STYLES["point"], NUMBER_STYLES["comma"])
    )
    return "comma" if n_comma > n_point else "point"


def parse_numbers(texts: Sequence[str], style: str) -> np.ndarray:
    """The numbers, NaN for anything else.

    Currency signs and a per cent sign are left out: the column keeps its unit. O(characters).

    Examples
    --------
    >>> parse_numbers(["1,234.5", "12%", "$ 3", "many"], "point")
    array([1234.5,   12. ,    3. ,    nan])
    """
    try:
        return np.array(list(map(float, texts)))
    except ValueError:
        return np.array([_parse_number(text, style) for text in texts], dtype=np.float64)


def _parse_number(text: str, style: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    bare = _UNIT.sub(r"\1", text.strip())
    if NUMBER_STYLES[style].fullmatch(bare) is None:
        return _INFINITE.get(bare.lower(), math.nan)
    if style == "comma":
        bare = bare.replace(".", "").replace(" ", "").replace(",", ".")
    return float(bare.replace(",", ""))


def truth_values(texts: Sequence[str]) -> np.ndarray:
    """1 for yes, true, on ...; 0 for no, false, off ...; NaN for anything else."""
    return np.array([TRUTH.get(text.strip().lower(), math.nan) for text in texts], dtype=np.float64)


# Dates -------------------------------------------------------------------------------------------------------------

DAY = 86400.0  # in seconds

# The layouts that NumPy reads, many at a time.
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?")
_MONTHS = {
    name: number
    for number, names in enumerate(
        ("jan january", "feb february", "mar march", "apr april", "may", "jun june", "jul july", "aug august",
         "sep sept september", "oct october", "nov november", "dec december"),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_CLOCK = (
    r"(?:(?:[T ]|,\s+)\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?P<fraction>\.\d+)?)?"
    r"\s*(?P<half>[AaPp][Mm])?\s*(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})?)?"
)
_DATES = [
    re.compile(rf"(?P<year>\d{{4}})(?P<mark>[-/.])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}}){_CLOCK}"),
    re.compile(rf"(?P<first>\d{{1,2}})(?P<mark>[-/.])(?P<other>\d{{1,2}})(?P=mark)(?P<year>\d{{4}}){_CLOCK}"),
    re.compile(rf"(?P<day>\d{{1,2}})[ -](?P<name>[A-Za-z]{{3,9}})\.?,?[ -](?P<year>\d{{4}}){_CLOCK}"),
    re.compile(rf"(?P<name>[A-Za-z]{{3,9}})\.? (?P<day>\d{{1,2}}),? (?P<year>\d{{4}}){_CLOCK}"),
]


def day_comes_first(texts: Sequence[str]) -> tuple[bool, bool]:
    """Whether "03/04/2024" is the third of April in this column, and whether the column leaves it open.

    A part above 12 decides; otherwise the month comes first with "/", the day with "." and "-".
    """
    found = [match for match in (_DATES[1].fullmatch(text.strip()) for text in texts) if match]
    day_first = sum(int(match["first"]) > 12 for match in found)
    month_first = sum(int(match["other"]) > 12 for match in found)
    if not day_first and not month_first:
        return any(match["mark"] != "/" for match in found), bool(found)
    return day_first >= month_first, False


def parse_times(texts: Sequence[str], day_first: bool) -> np.ndarray:
    """Seconds since 1970 (UTC; a time without a zone is taken as it stands), NaN for anything that is not a date.

    Examples
    --------
    >>> parse_times(["1970-01-02", "2 Jan 1970", "02/01/1970 00:00", "soon"], day_first=True)
    array([86400., 86400., 86400.,    nan])
    """
    usual = np.array([_ISO.fullmatch(text) is not None for text in texts], dtype=bool)
    out = np.full(len(texts), np.nan)
    try:
        moments = np.array([text for text, one in zip(texts, usual) if one], dtype="datetime64[s]")
        out[usual] = moments.astype(np.int64)
    except ValueError:  # such as the 31st of April
        usual[:] = False
    for row in np.flatnonzero(~usual).tolist():
        out[row] = _parse_time(texts[row], day_first)
    return out


def _parse_time(text: str, day_first: bool) -> float:
    text = text.strip()
    match = next((found for found in (date.fullmatch(text) for date in _DATES) if found), None)
    if match is None:
        return math.nan
    parts = match.groupdict()
    if "first" in parts:
        day, month = (parts["first"], parts["other"]) if day_first else (parts["other"], parts["first"])
    else:
        day = parts["day"]
        month = parts["month"] if "month" in parts else _MONTHS.get(parts["name"].lower(), 0)
    hour = int(parts["hour"] or 0)
    if parts["half"]:
        if not 1 <= hour <= 12:
            return math.nan
        hour = hour % 12 + (12 if parts["half"].lower() == "pm" else 0)
    try:
        moment = datetime.datetime(
            int(parts["year"]), int(month), int(day), hour, int(parts["minute"] or 0), int(parts["second"] or 0),
            tzinfo=datetime.UTC,
        )  # fmt: skip
    except ValueError:
        return math.nan
    return moment.timestamp() + float(parts["fraction"] or 0) - _offset(parts["zone"])


def _offset(zone: str | None) -> float:
    """Seconds that a zone such as "+02:00" is ahead of UTC."""
    if zone is None or zone in ("Z", "UTC"):
        return 0.0
    ahead = 3600 * int(zone[1:3]) + 60 * int(zone[-2:])
    return float(-ahead if zone[0] == "-" else ahead)


def times_of_digits(numbers: np.ndarray) -> np.ndarray:
    """Seconds since 1970 of whole numbers that spell a date as 20240131 does, NaN for others.

    Examples
    --------
    >>> times_of_digits(np.array([19700102, 19701350, 7]))
    array([86400.,    nan,    nan])
    """
    plausible = (numbers >= 18000101) & (numbers <= 21001231)
    digits = np.where(plausible, numbers, 0).astype(np.int64).tolist()
    return parse_times([f"{n // 10000:04d}-{n // 100 % 100:02d}-{n % 100:02d}" for n in digits], False)


# Cells of files, with errors that say what was found --------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


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
        cells = texts.tolist()
        known = {text: whole_number(text) if self.kind is int else text for text in dict.fromkeys(cells)}
        odd = next((text for text, label in known.items() if label is None or text == ""), None)
        if odd == "":
            self._refuse_missing(lines[cells.index(odd)])
        if odd is not None:
            self._refuse_kind(odd, lines[cells.index(odd)])
        return texts if self.kind is str else np.array([known[text] for text in cells], dtype=np.int64)

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
