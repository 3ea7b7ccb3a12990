"""What a text may stand for: a missing value, a number, a boolean, a date.

Every rule here looks at one text, or at a whole column where one text alone would be ambiguous ("1,234" or
"03/04/2024").
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

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
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "-infinity": -math.inf,
}


def is_missing(text: str, among_values: bool = False) -> bool:
    """Whether a text says that there is no value.

    Examples
    --------
    >>> is_missing(" N/A"), is_missing("none"), is_missing("none", among_values=True)
    (True, False, True)
    """
    return text.strip().lower() in (_MISSING_AMONG_VALUES if among_values else MISSING)


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


DAY = 86400.0  # in seconds

# Dates -------------------------------------------------------------------------------------------------------------

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
