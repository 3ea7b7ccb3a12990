"""One column to features: numbers, categories, dates, texts.

Each encoder is a plain record of what it learned from the column in ``fit``; ``features`` makes the features of a
column and tells what was odd about it, ``nodes`` records the same for `preflearn.io.to_onnx`. An exported table has one
input for each column that is used, of shape (m, 1):

    number, boolean   ``onnx_input`` "number": a number; NaN if missing
    category          "text": a text; "" if missing
    date              "moment": seconds since 1970-01-01, a number in float64; NaN if missing

What an encoder reads off texts on its own ("1,234", "yes", "31.1.2024") is up to the program that fills the inputs.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from ...numerics.onnx_graph import Graph, Value
from ...numerics.threads import blas_at_rest
from ..cells import (
    DAY,
    NUMBER_STYLES,
    SPELLED_MISSING,
    day_comes_first,
    is_missing,
    number_style,
    parse_numbers,
    parse_times,
    times_of_digits,
    truth_values,
)
from .frames import TEXT, TIME, Column, count_codes
from .kinds import SAMPLE, values_in, values_of_texts

# The years 1 to 9999, in seconds since 1970.
_FIRST_MOMENT, _LAST_MOMENT = -62135596800.0, 253402300800.0
_DATE_PARTS = ("days", "year", "month", "day", "weekday", "hour")
_OTHER, _MISSING = "(other)", "(missing)"
# Buckets of the words before they are reduced to a few directions.
TEXT_BUCKETS = 4096


@dataclass
class Oddities:
    """What was odd about a column: rows with a category not seen before, values of the wrong type, infinite ones."""

    unseen: dict[str, int] = field(default_factory=dict)
    stray: dict[str, int] = field(default_factory=dict)
    n_infinite: int = 0
    n_missing: int = 0


@dataclass
class NumberColumn:
    """A number, or a truth value as 0 and 1: the value with missing ones imputed, and where they were missing.

    Missing values are imputed by the median, infinite values replaced by the smallest or largest finite one.
    """

    onnx_input = "number"

    style: str
    median: float
    low: float
    high: float
    constant: bool
    has_missing: bool

    @classmethod
    def learn(cls, column: Column, truth: bool) -> tuple[NumberColumn, Oddities]:
        style = "truth" if truth else "point"
        if column.form == TEXT and not truth:
            assert column.texts is not None
            style = number_style(values_in(column.texts.sample(SAMPLE)))
        values, odd = _numbers(column, style)
        finite = values[np.isfinite(values)] if odd.n_missing or odd.n_infinite else values
        median = _median(finite)
        if truth:
            median = float(median >= 0.5)
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        return cls(style, median, low, high, low == high, odd.n_missing > 0), odd

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded column is checked for, besides its types (`tables.models.fitted`)."""
        if self.style != "truth" and self.style not in NUMBER_STYLES:
            raise ValueError(f"style is {self.style!r}, which no numbers are written in")
        return {}

    def names(self, column: str) -> list[str]:
        return ([] if self.constant else [column]) + ([f"{column}={_MISSING}"] if self.has_missing else [])

    def features(self, column: Column) -> tuple[np.ndarray, Oddities]:
        values, odd = _numbers(column, self.style)
        missing = np.isnan(values)
        filled = np.where(missing, self.median, values)
        filled = np.where(np.isinf(filled), np.where(filled > 0, self.high, self.low), filled)
        parts = [filled] * (not self.constant) + [missing] * self.has_missing
        return _side_by_side(parts, column.size), odd

    def values(self, column: Column) -> np.ndarray:
        """The numbers, NaN where one is missing."""
        return _numbers(column, self.style)[0]

    def nodes(self, graph: Graph, column: Value) -> list[Value]:
        """What `features` computes, recorded (`numerics.onnx_graph`)."""
        missing = graph.apply("IsNaN", column)
        parts = []
        if not self.constant:
            filled = graph.where(missing, self.median, column)
            infinite = graph.apply("IsInf", filled)
            nearest = graph.where(filled.less(0.0), self.low, self.high)
            parts.append(graph.where(infinite, nearest, filled))
        return [*parts, missing.as_numbers()] if self.has_missing else parts

    def detail(self) -> str:
        return f"{self.low:g} to {self.high:g}"


def _side_by_side(parts: list[np.ndarray], n_rows: int) -> np.ndarray:
    return np.column_stack(parts).astype(np.float64, copy=False) if parts else np.empty((n_rows, 0))


def _median(values: np.ndarray) -> float:
    """The median, 0 of no value."""
    return float(np.median(values)) if values.size else 0.0


def _numbers(column: Column, style: str) -> tuple[np.ndarray, Oddities]:
    return column.once(("numbers", style), lambda: _read_numbers(column, style))


def _read_numbers(column: Column, style: str) -> tuple[np.ndarray, Oddities]:
    if column.form == TEXT:
        assert column.texts is not None
        parse = truth_values if style == "truth" else (lambda items: parse_numbers(items, style))
        values, stray = values_of_texts(column.texts, parse)
    else:
        values, stray = column.array, {}
    return values, Oddities(
        stray=stray,
        n_missing=int(np.count_nonzero(np.isnan(values))),
        n_infinite=int(np.count_nonzero(np.isinf(values))),
    )


@dataclass
class CategoryColumn:
    """One feature per category, one for all rare ones of the training, if there were any.

    A category that training did not have is "other": the feature of the rare ones, or all zeros where there is none.
    """

    onnx_input = "text"

    categories: list[str]
    rare: list[str]
    has_missing: bool

    @classmethod
    def learn(
        cls, column: Column, max_categories: int, given: list[str] | None
    ) -> tuple[CategoryColumn, Oddities]:
        codes, labels = _labels(column)
        n_missing = int(np.count_nonzero(codes < 0))
        if given is not None:
            return cls(given, [], n_missing > 0), Oddities(n_missing=n_missing)
        counts = count_codes(codes, len(labels))
        by_count = [labels[k] for k in sorted(range(len(labels)), key=lambda k: (-counts[k], labels[k]))]
        kept, rare = sorted(by_count[:max_categories]), by_count[max_categories:]
        return cls(kept, rare, n_missing > 0), Oddities(n_missing=n_missing)

    def names(self, column: str) -> list[str]:
        more = [_OTHER] * bool(self.rare) + [_MISSING] * self.has_missing
        return [f"{column}={label}" for label in [*self.categories, *more]]

    def features(self, column: Column) -> tuple[np.ndarray, Oddities]:
        codes, labels = _labels(column)
        known = {label: place for place, label in enumerate(self.categories)}
        width = len(self.names(""))
        other = len(known) if self.rare else width
        places = [known.get(label, other) for label in labels]
        place = np.array([*places, width - 1 if self.has_missing else width])[codes]
        features = np.zeros((column.size, width))
        rows = np.flatnonzero(place < width)
        features[rows, place[rows]] = 1.0
        counts = count_codes(codes, len(labels))
        new = set(labels) - {*known, *self.rare}
        unseen = {label: int(n) for label, n in zip(labels, counts) if label in new}
        return features, Oddities(unseen=unseen, n_missing=int(np.count_nonzero(codes < 0)))

    def values(self, column: Column) -> np.ndarray:
        """The labels, "" where one is missing."""
        codes, labels = _labels(column)
        return np.array([*labels, ""], dtype=object)[codes]

    def nodes(self, graph: Graph, column: Value) -> list[Value]:
        """The place of each label among the features, compared with the places."""
        width = len(self.names(""))
        places = {label: place for place, label in enumerate(self.categories)}
        missing = width - 1 if self.has_missing else width
        places |= dict.fromkeys(sorted(SPELLED_MISSING), missing)
        code = graph.apply(
            "LabelEncoder",
            column,
            domain="ai.onnx.ml",
            keys_strings=list(places),
            values_int64s=list(places.values()),
            default_int64=len(self.categories) if self.rare else width,
        )
        return [code.equal(np.arange(width)[None]).as_numbers()] if width else []

    def detail(self) -> str:
        shown = ", ".join(self.categories[:4])
        shown += ", ..." if len(self.categories) > 4 else ""
        more = f" and {len(self.rare):,} rarer ones as one" if self.rare else ""
        return f"{len(self.categories)} categories{more}: {shown}"


def _labels(column: Column) -> tuple[np.ndarray, list[str]]:
    """(code of each row, -1 where missing; label of each code)."""
    return column.once(("labels",), lambda: _read_labels(column))


def _read_labels(column: Column) -> tuple[np.ndarray, list[str]]:
    if column.form == TEXT:
        assert column.texts is not None
        codes, distinct = column.texts.factorised
        stripped = ["" if is_missing(text) else text.strip() for text in distinct]
        places = {
            label: place for place, label in enumerate(dict.fromkeys(text for text in stripped if text))
        }
        places[""] = -1
        table = [places[text] for text in stripped]
        if table != list(range(len(table))):
            codes = np.array([*table, -1])[codes]
        return codes, list(places)[:-1]
    missing = np.isnan(column.array)
    numbers, inverse = np.unique(column.array[~missing], return_inverse=True)
    codes = np.full(column.size, -1)
    codes[~missing] = inverse
    return codes, [_label(value, column.form) for value in numbers.tolist()]


def _label(value: float, form: str) -> str:
    if form == TIME:
        return str(np.datetime64(int(value), "s"))
    return str(int(value)) if value.is_integer() else repr(value)


@dataclass
class DateColumn:
    """Year, month, day of the month, day of the week (Monday is 0), hour, and days since the oldest date in training.

    Parts that were constant in training are left out; missing dates are imputed by the median date.
    """

    onnx_input = "moment"

    day_first: bool
    oldest: float
    newest: float
    median: float
    parts: list[str]
    has_missing: bool

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded column is checked for (`tables.models.fitted`); a calendar has a line for each day."""
        if not _FIRST_MOMENT <= self.oldest <= self.median <= self.newest <= _LAST_MOMENT:
            raise ValueError("the dates are out of order or of range")
        if len({*self.parts}) != len(self.parts) or not {*self.parts} <= {*_DATE_PARTS}:
            raise ValueError(f"parts is {self.parts!r}, expected some of {', '.join(_DATE_PARTS)}")
        moments = dict.fromkeys(("oldest", "newest", "median"), "")
        return {**moments, "parts": "texts", "day_first": "truth", "has_missing": "truth"}

    @classmethod
    def learn(cls, column: Column) -> tuple[DateColumn, Oddities]:
        day_first = False
        if column.form == TEXT:
            assert column.texts is not None
            day_first, _ = day_comes_first(values_in(column.texts.sample(SAMPLE)))
        seconds, odd = _times(column, day_first)
        there = seconds[~np.isnan(seconds)] if odd.n_missing else seconds
        oldest, newest = (float(there.min()), float(there.max())) if there.size else (0.0, 0.0)
        median = _median(there)
        found = _date_parts(there, oldest)
        parts = [name for name, part in found.items() if part.size and part.min() < part.max()]
        return cls(day_first, oldest, newest, median, parts, odd.n_missing > 0), odd

    def names(self, column: str) -> list[str]:
        return [f"{column}.{part}" for part in self.parts] + [f"{column}={_MISSING}"] * self.has_missing

    def features(self, column: Column) -> tuple[np.ndarray, Oddities]:
        seconds, odd = _times(column, self.day_first)
        missing = np.isnan(seconds)
        values = _date_parts(np.where(missing, self.median, seconds), self.oldest)
        parts = [values[part] for part in self.parts] + [missing] * self.has_missing
        return _side_by_side(parts, column.size), odd

    def values(self, column: Column) -> np.ndarray:
        """Seconds since 1970-01-01, NaN where a date is missing."""
        return _times(column, self.day_first)[0]

    def nodes(self, graph: Graph, column: Value) -> list[Value]:
        """What `features` computes, recorded (`numerics.onnx_graph`)."""
        missing = graph.apply("IsNaN", column)
        seconds = graph.where(missing, self.median, column)
        calendar = _calendar(seconds)
        parts = {"days": (seconds - self.oldest) / DAY, **calendar}
        found = [parts[name] for name in self.parts]
        return [*found, missing.as_numbers()] if self.has_missing else found

    def detail(self) -> str:
        first, last = (str(np.datetime64(int(moment), "s"))[:10] for moment in (self.oldest, self.newest))
        return f"{first} to {last}"


def _times(column: Column, day_first: bool) -> tuple[np.ndarray, Oddities]:
    return column.once(("times", day_first), lambda: _read_times(column, day_first))


def _read_times(column: Column, day_first: bool) -> tuple[np.ndarray, Oddities]:
    stray: dict[str, int] = {}
    if column.form == TIME:
        seconds = column.array
    elif column.form == TEXT:
        assert column.texts is not None
        seconds, stray = values_of_texts(column.texts, lambda items: _times_of_texts(items, day_first))
    else:
        seconds = _times_of_numbers(column.array)
        n_stray = int((np.isnan(seconds) & ~np.isnan(column.array)).sum())
        stray = {"numbers that are not dates": n_stray} if n_stray else {}
    return seconds, Oddities(stray=stray, n_missing=int(np.count_nonzero(np.isnan(seconds))))


def _times_of_texts(items: list[str], day_first: bool) -> np.ndarray:
    seconds = parse_times(items, day_first)
    digits = [k for k in np.flatnonzero(np.isnan(seconds)) if len(items[k]) == 8 and items[k].isdecimal()]
    if digits:
        seconds[digits] = _times_of_numbers(np.array([float(items[k]) for k in digits]))
    return seconds


def _times_of_numbers(values: np.ndarray) -> np.ndarray:
    """Seconds since 1970 of numbers that spell 20240131, NaN for others."""
    distinct, inverse = np.unique(values, return_inverse=True)
    return times_of_digits(np.where(np.floor(distinct) == distinct, distinct, 0))[inverse]


def _date_parts(seconds: np.ndarray, oldest: float) -> dict[str, np.ndarray]:
    if seconds.size == 0:
        return {}
    days = np.floor(seconds / DAY).astype(np.int64)
    first = int(days.min())
    # The calendar of each day between the first and the last, looked up by the rows.
    calendar = np.arange(first, int(days.max()) + 1)
    months = calendar.astype("datetime64[D]").astype("datetime64[M]")
    month = months.astype(np.int64)
    parts = {
        "year": month // 12 + 1970,
        "month": month % 12 + 1,
        "day": calendar - months.astype("datetime64[D]").astype(np.int64) + 1,
        "weekday": (calendar + 3) % 7,  # 1970 began on a Thursday
    }
    return {
        "days": (seconds - oldest) / DAY,
        **{name: part.astype(np.float64)[days - first] for name, part in parts.items()},
        "hour": np.floor((seconds - days * DAY) / 3600.0),
    }


def _calendar(seconds: Value) -> dict[str, Value]:
    """Parts of the Gregorian date. Years are counted from March, so that the leap day is the last of its year.

    An era is 400 years, 146097 days; 719468 days lead from the March that begins era 0 to 1970.
    """
    days = (seconds / DAY).floor()
    shifted = days + 719468.0
    era = (shifted / 146097.0).floor()
    day_of_era = shifted - era * 146097.0
    leaps = (day_of_era / 1460.0).floor() - (day_of_era / 36524.0).floor() + (day_of_era / 146096.0).floor()
    year_of_era = ((day_of_era - leaps) / 365.0).floor()
    before = year_of_era * 365.0 + (year_of_era / 4.0).floor() - (year_of_era / 100.0).floor()
    day_of_year = day_of_era - before
    # From March, months repeat the pattern of 31, 30, 31, 30, 31 days: 153 in five of them.
    month_from_march = ((day_of_year * 5.0 + 2.0) / 153.0).floor()
    day = day_of_year - ((month_from_march * 153.0 + 2.0) / 5.0).floor() + 1.0
    late = month_from_march.less(9.5)  # March to December
    graph = seconds.graph
    month = month_from_march + graph.where(late, 3.0, -9.0)
    year = era * 400.0 + year_of_era + graph.where(late, 0.0, 1.0)
    since_thursday = days + 3.0  # 1970 began on a Thursday
    return {
        "year": year,
        "month": month,
        "day": day,
        "weekday": since_thursday - (since_thursday / 7.0).floor() * 7.0,
        "hour": ((seconds - days * DAY) / 3600.0).floor(),
    }


@dataclass
class TextColumn:
    """Words weighted by tf-idf, hashed; reduced to their leading directions unless all of them are wanted."""

    onnx_input = None  # there is no operator that hashes words

    idf: np.ndarray
    directions: np.ndarray | None

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded column is checked for (`tables.models.fitted`)."""
        if np.size(self.idf) == 0:
            raise ValueError("idf is empty")
        return {"idf": "b"} if self.directions is None else {"idf": "b", "directions": "b d"}

    @classmethod
    def learn(cls, column: Column, n_features: int, reduce: bool) -> tuple[TextColumn, Oddities]:
        Z, odd = words_of(column, TEXT_BUCKETS if reduce else n_features)
        idf = rarity(Z)
        if not reduce:
            return cls(idf, None), odd
        some = Z[:: -(-Z.shape[0] // 2000)]  # up to 2,000 texts show the directions
        directions = (
            leading_directions(weighted(some, idf), n_features) if some.nnz else np.zeros((TEXT_BUCKETS, 0))
        )
        return cls(idf, directions), odd

    def names(self, column: str) -> list[str]:
        n_features = self.idf.shape[0] if self.directions is None else self.directions.shape[1]
        return [f"{column}#{k}" for k in range(n_features)]

    def features(self, column: Column) -> tuple[Any, Oddities]:
        """Dense where reduced, sparse where not."""
        Z, odd = words_of(column, self.idf.shape[0])
        words = weighted(Z, self.idf)
        return words if self.directions is None else words @ self.directions, odd

    def detail(self) -> str:
        return "words" if self.directions is None else "words by tf-idf, leading directions"


def free_texts(encoders: Mapping[str, Any]) -> list[str]:
    """The columns whose words are hashed."""
    return [name for name, one in encoders.items() if one.onnx_input is None]


def words_of(column: Column, n_buckets: int) -> tuple[Any, Oddities]:
    """Signed counts of the hashed words of each row, sparse."""
    return column.once(("words", n_buckets), lambda: _read_words(column, n_buckets))


def _read_words(column: Column, n_buckets: int) -> tuple[Any, Oddities]:
    if column.form == TEXT:
        assert column.texts is not None
        texts = [text or "" for text in column.texts.values]
    else:
        codes, labels = _labels(column)
        texts = ["" if code < 0 else labels[code] for code in codes.tolist()]
    return hashed_words(texts, n_buckets), Oddities(n_missing=texts.count(""))


# ----------------------------------------------------------------
# Texts as hashed words, weighted by how rare they are.
#
# The words of a text (runs of letters and digits, lower case) are hashed into a fixed number of buckets. With
# z_b = Σ ±idf_b over the words of the text in bucket b, idf_b = 1 + log((1 + m) / (1 + texts with b)), a text becomes
# z / ‖z‖. The hash of a word with the characters c_k, p odd, is that of every version of the library, since model files
# hold the idf of its buckets (scikit-learn's `HashingVectorizer` has another one):
#
#     Σ_k c_k p^k  (mod 2^64), its bits mixed.


# Letters and digits of every script; what lies beyond the first 65,535 signs counts as a letter.
_WORD = re.compile(r"(?:[^\W_]|[\uffff-\U0010ffff])+")
_BASE, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def hashed_words(texts: list[str], n_buckets: int) -> sp.csr_array:
    """Signed counts of the words of each text, shape (texts, n_buckets).

    Examples
    --------
    >>> Z = hashed_words(["red wine", "Wine, white", ""], 64)
    >>> bool((Z[[0]].multiply(Z[[1]])).sum() == 1.0), Z[[2]].nnz
    (True, 0)
    """
    hashes = array("Q")
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    for row, text in enumerate(texts, start=1):
        hashes.extend(map(_hash, _WORD.findall(text.lower())))
        starts[row] = len(hashes)
    values = np.array(hashes, dtype=np.uint64)
    buckets = (values % np.uint64(n_buckets)).astype(np.int32)
    signs = np.where(values >> np.uint64(63), -1.0, 1.0)
    Z = sp.csr_array((signs, buckets, starts.astype(np.int32)), shape=(len(texts), n_buckets))
    Z.sum_duplicates()
    return Z


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    value = 0
    for sign in reversed(word):
        value = (value * _BASE + ord(sign)) & _BITS
    for factor in _MIX:  # every bit of the result depends on every bit of the sum
        value = (value ^ value >> 33) * factor & _BITS
    return value ^ value >> 33


def rarity(Z: sp.csr_array) -> np.ndarray:
    """idf of each bucket: 1 + log((1 + m) / (1 + rows with the bucket)), shape (n_buckets,)."""
    return 1.0 + np.log((1.0 + Z.shape[0]) / (1.0 + np.bincount(Z.indices, minlength=Z.shape[1])))


def weighted(Z: sp.csr_array, idf: np.ndarray) -> sp.csr_array:
    """Counts times idf, rows of length 1 (or 0)."""
    W = sp.csr_array((Z.data * idf[Z.indices], Z.indices, Z.indptr), shape=Z.shape)
    return normalize(W, copy=False)


def leading_directions(Z: sp.csr_array, n_components: int) -> np.ndarray:
    """The leading right singular vectors of some texts, shape (n_buckets, at most n_components).

    Each vector points to where its largest entry is positive.
    """
    there, places = np.unique(Z.indices, return_inverse=True)
    n_buckets = Z.shape[1]
    # Buckets without a word in these texts have no part in any direction.
    Z = sp.csr_array((Z.data, places, Z.indptr), shape=(Z.shape[0], there.shape[0]))
    with blas_at_rest():  # products of a few thousand rows and a few dozen columns
        _, values, V = randomized_svd(Z, min(n_components, *Z.shape), n_iter=4, random_state=0)
    V = V[values > 3e-5 * values[0]].T
    directions = np.zeros((n_buckets, V.shape[1]))
    directions[there] = V * np.sign(V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])])
    return directions
