"""What a column means, found from its values and its name, which column looks like the query column, and a summary.

The rules, in their order; m counts the rows with a value, d the distinct values, c is ``max_categories``.

1. No value: ``empty``. One value, never missing: ``constant``. Both are set aside.
2. A category of the frame's own (pandas, polars): ``category``. A column of dates: ``date``. Of booleans: ``boolean``.
3. Texts at least nine tenths of which are numbers, none with a leading zero ("007"): as numbers, see 5. Texts that are
   yes/no, true/false, y/n, t/f, on/off: ``boolean``. Texts at least nine tenths of which are dates: ``date``. The
   others of such a column count as missing and are reported.
4. Other texts. Three or more words that rarely repeat (d > m / 5 and d > c), six or more words and d > c, or twenty or
   more words however often they repeat: ``text``. Shorter texts that rarely repeat (d > 9 m / 10 with d >= 10, or
   d > m / 2 with d > c), or an identifier by its name with d > c: ``identifier``, set aside. The rest: ``category``,
   of which the c most frequent are kept.
5. Numbers. 0 and 1: ``boolean``. Whole numbers that all read as 20240131: ``date``. Whole numbers 1, 2, 3, ... in the
   order of the rows: ``identifier``. Whole numbers with a name such as "id" or "key": ``category`` where d <= c and
   d <= m / 2, else ``identifier``. Whole numbers with the name of a label ("region", "store_code", "type") and
   3 <= d <= c, d <= m / 5: ``category``. The rest, grades and counts among them: ``number``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...comparisons.grouping import Groups
from ..cells import (
    TRUTH,
    day_comes_first,
    is_missing,
    looks_like_code,
    number_style,
    parse_numbers,
    parse_times,
    times_of_digits,
    truth_values,
)
from .frames import BOOLEAN, MOST_EXACT, NUMBER, TEXT, TIME, Column, Table, Texts, read_table

# Kinds that become features.
FEATURES = ("number", "boolean", "category", "date", "text", "words")

SAMPLE = 1000
_MOSTLY = 0.9
_IDENTIFIERS = {
    "id", "ids", "uuid", "guid", "key", "index", "idx", "rowid", "sku", "isbn", "ean", "unnamed", "userid", "itemid",
    "productid", "sessionid", "queryid", "qid", "docid", "customerid", "orderid", "patientid", "serial", "pid", "uid",
}  # fmt: skip
_LABELS = {
    "code", "type", "kind", "category", "cat", "class", "region", "store", "shop", "branch", "zone", "district",
    "department", "dept", "cluster", "status", "state", "country", "city", "gender", "sex", "brand", "channel",
    "segment", "color", "colour", "warehouse", "site", "clinic", "hospital", "ward", "station", "sensor", "device",
    "machine", "zip", "zipcode", "postcode", "postal", "label", "genre", "language", "agent", "vendor", "supplier",
}  # fmt: skip
QUERY_WORDS = {
    "query", "queries", "qid", "session", "sessionid", "search", "request", "impression", "question", "prompt",
    "auction", "user", "userid", "customer", "customerid", "visitor", "basket", "reviewer", "rater", "judge",
    "conversation", "queryid",
}  # fmt: skip


@dataclass
class Decision:
    """The kind of a column, the reason where it is not obvious, and what a caller asked for besides."""

    kind: str
    note: str = ""
    categories: list[str] | None = None
    n_features: int = 0


_ALIKE_AS_NUMBERS = Decision("identifier", "whole numbers too long for float64")


def name_words(name: str) -> set[str]:
    """The words of a column's name, lower case.

    Examples
    --------
    >>> sorted(name_words("PassengerId")), sorted(name_words("store_code2"))
    (['id', 'passenger'], ['code', 'store'])
    """
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def decide(column: Column, max_categories: int) -> Decision:
    """The kind of a column, by the rules above."""
    if column.labels_declared:
        return _decide_labels(column)
    if column.form == TEXT:
        assert column.texts is not None
        return _decide_texts(column.name, column.texts, max_categories)
    if column.form == TIME:
        return _unless_alike(column.array, Decision("date"))
    if column.form == BOOLEAN:
        return _unless_alike(column.array, Decision("boolean"))
    decision = decide_numbers(column.name, column.array, max_categories)
    if decision.kind == "constant" and column.whole is not None and len({*column.whole[0].tolist()}) > 1:
        return _ALIKE_AS_NUMBERS
    return decision


def _unless_alike(values: np.ndarray, otherwise: Decision) -> Decision:
    missing = np.isnan(values)
    there = values[~missing] if missing.any() else values
    if there.size == 0:
        return Decision("empty", "no value")
    if there.size == values.size and there.min() == there.max():
        return Decision("constant", "one value")
    return otherwise


def _decide_labels(column: Column) -> Decision:
    if column.texts is None:
        return _unless_alike(column.array, Decision("category"))
    codes, distinct = column.texts.factorised
    if not distinct:
        return Decision("empty", "no value")
    return (
        Decision("constant", "one value") if len(distinct) == 1 and codes.min() >= 0 else Decision("category")
    )


def decide_numbers(name: str, values: np.ndarray, max_categories: int) -> Decision:
    """The kind of a column of numbers (rule 5)."""
    decision = _unless_alike(values, Decision("number"))
    if decision.kind != "number":
        return decision
    good = np.isfinite(values)
    finite = values if good.all() else values[good]
    if finite.size == 0 or not _whole(finite):
        return decision
    low, high = finite.min(), finite.max()
    if low == 0 and high == 1:
        return Decision("boolean")
    words = name_words(name)
    if max(-low, high) > MOST_EXACT:
        return Decision("identifier", "an identifier by its name") if words & _IDENTIFIERS else decision
    whole, m = finite.astype(np.int64), finite.size
    if m >= 10 and high - low == m - 1 and (np.diff(whole) == 1).all():
        return Decision("identifier", "numbers the rows")
    if low >= 19000101 and high <= 21001231:
        distinct = np.unique(whole)
        if distinct.size >= 3 and not np.isnan(times_of_digits(distinct)).any():
            return Decision("date", "digits read as year, month, day")
    if words & (_IDENTIFIERS | _LABELS):
        d = np.unique(whole).size
        if words & _IDENTIFIERS:
            if d <= max_categories and d <= m / 2:
                return Decision("category", "an identifier by its name")
            return Decision("identifier", f"{d:,} distinct values, an identifier by its name")
        if 3 <= d <= max_categories and d <= m / 5:
            return Decision("category", "a label by its name")
    return decision


def _whole(values: np.ndarray) -> bool:
    some = values[:SAMPLE]
    return bool((np.floor(some) == some).all() and (np.floor(values) == values).all())


def _decide_texts(name: str, texts: Texts, max_categories: int) -> Decision:
    some = values_in(texts.sample(SAMPLE))
    if not some and not _some_value(texts):
        return Decision("empty", "no value")
    decision = _decide_values(name, some, texts, max_categories) if some else None
    return decision or _decide_words(name, some, texts, max_categories)


def _decide_values(name: str, some: list[str], texts: Texts, max_categories: int) -> Decision | None:
    """Rule 3: texts that stand for numbers, truth values or dates."""
    style = number_style(some)
    if _share(parse_numbers(some, style)) >= _MOSTLY and not any(map(looks_like_code, some)):
        numbers, stray = values_of_texts(texts, lambda items: parse_numbers(items, style))
        if not _too_many(stray, numbers):
            decision = decide_numbers(name, numbers, max_categories)
            alike = decision.kind == "constant" and np.abs(numbers[0]) > MOST_EXACT
            return _ALIKE_AS_NUMBERS if alike and len(texts.factorised[1]) > 1 else decision
    if some[0].lower() in TRUTH and {text.lower() for text in some} <= TRUTH.keys():
        numbers, stray = values_of_texts(texts, truth_values)
        if not stray:
            return _unless_alike(numbers, Decision("boolean"))
    day_first, undecided = day_comes_first(some)
    if _share(parse_times(some, day_first)) >= _MOSTLY:
        return Decision("date", "day and month may be the other way round" if undecided else "")
    return None


def values_in(texts: list[str]) -> list[str]:
    """The texts that are not missing, without blanks around them."""
    missing = {text for text in set(texts) if is_missing(text, among_values=True)}
    return [text.strip() for text in texts if text not in missing]


def _share(values: np.ndarray) -> float:
    return 1.0 - np.isnan(values).mean()


def _too_many(stray: dict[str, int], values: np.ndarray) -> bool:
    """Whether the column as a whole has more words among its values than the sample had."""
    lost = sum(stray.values())
    return lost > (1 - _MOSTLY) * (lost + int((~np.isnan(values)).sum()))


def _some_value(texts: Texts) -> bool:
    return not all(is_missing(text) for text in texts.factorised[1])


def _decide_words(name: str, some: list[str], texts: Texts, max_categories: int) -> Decision:
    """Rule 4: categories, free text, identifiers."""
    distinct_some = set(some)
    n_words = float(np.mean([text.count(" ") + 1 for text in distinct_some])) if some else 1.0
    if n_words >= 3 and len(some) > max_categories and len(distinct_some) > _MOSTLY * len(some):
        return Decision("text")  # without counting the distinct texts of a long column
    codes, distinct = texts.factorised
    there = [k for k, text in enumerate(distinct) if not is_missing(text)]
    d, m = len(there), int(texts.counts[there].sum())
    if d == 1 and m == texts.size:
        return Decision("constant", "one value")
    if n_words >= 20 or d > max_categories and (n_words >= 6 or n_words >= 3 and d > m / 5):
        return Decision("text")
    if d >= 10 and d > _MOSTLY * m and n_words < 4 or d > max_categories and d > m / 2:
        return Decision("identifier", f"{d:,} distinct values in {m:,} rows")
    if d >= 10 and d > _MOSTLY * m:
        return Decision("text")
    if d > max_categories and name_words(name) & _IDENTIFIERS:
        return Decision("identifier", f"{d:,} distinct values, an identifier by its name")
    return Decision("category")


def values_of_texts(texts: Texts, parse) -> tuple[np.ndarray, dict[str, int]]:
    """A number per row by ``parse`` of the texts, NaN where missing; and how often which text was neither.

    Each distinct text is parsed once.
    """
    codes, items = texts.factorised
    found = parse(items) if items else np.empty(0)
    unread = [k for k in np.flatnonzero(np.isnan(found)) if not is_missing(items[k], among_values=True)]
    return np.append(found, np.nan)[codes], {items[k]: int(texts.counts[k]) for k in unread}


# ------------------------------------------------------------------------------------------- the query column


def suggest_query_column(X: Any, *, target: str | None = None) -> str | None:
    """The column of a table that looks like its query column, if one does.

    The labels of a query column, texts or whole numbers, repeat: at least two rows per label on average, at least four
    fifths of the rows share their label with another row, and other columns (above all the target) differ within a
    label. It is suggested if two more points are found: a name such as "session", "query_id" or "user", which counts as
    two; rows of every label that are adjacent; at least ten labels with up to 500 rows each on average. Numbers need
    the name.

    Parameters
    ----------
    X : data frame, array, list of rows, or mapping from names to columns
    target : str, default=None
        The target column, which must differ inside queries.

    Returns
    -------
    str or None

    Examples
    --------
    >>> table = {"session": ["a", "a", "b", "b"], "price": [3, 5, 8, 7], "bought": [0, 1, 1, 0]}
    >>> suggest_query_column(table, target="bought")
    'session'
    """
    table = read_table(X)
    names = [column.name for column in table.columns]
    if target is not None and target not in names:
        raise ValueError(
            f"target={target!r} is not a column of the table: found {', '.join(map(repr, names))}."
        )
    return suggest(table, target)


def suggest(table: Table, target: str | None = None) -> str | None:
    """The same for a table that has been read."""
    best, best_score = None, 1
    columns = [column for column in table.columns if column.name != target]
    for column, groups in zip(columns, map(_groups, columns)):
        if groups is None:
            continue
        score = _score(column, groups)
        if score > best_score and _others_differ(table, column, groups, target):
            best, best_score = column.name, score
    return best


def _groups(column: Column) -> Groups | None:
    """The rows by label, or None where the column cannot be a query column."""
    if column.problem:
        return None
    named = bool(name_words(column.name) & QUERY_WORDS)
    if column.form == TEXT:
        assert column.texts is not None
        some = column.texts.sample(SAMPLE)
        if not named and len(set(some)) > 0.5 * len(some):
            return None
        codes, labels = column.texts.factorised
        n_labels = len(labels)
        if not n_labels or codes.min() < 0:
            return None
    elif column.form == NUMBER and named and np.isfinite(column.array).all():
        numbers, codes = np.unique(column.array, return_inverse=True)
        n_labels = numbers.size
        if not (np.floor(numbers) == numbers).all():
            return None
    else:
        return None
    groups = Groups(codes, n_labels)
    in_company = groups.counts[groups.counts > 1].sum()
    if n_labels < 2 or codes.shape[0] < 2 * n_labels or in_company < 0.8 * codes.shape[0]:
        return None
    return groups


def _score(column: Column, groups: Groups) -> int:
    together = 1 + np.count_nonzero(np.diff(groups.codes)) == groups.n_groups >= 5
    # Queries have from a few to a few hundred rows each.
    many = groups.n_groups >= 10 and groups.n_rows <= 500 * groups.n_groups
    return 2 * bool(name_words(column.name) & QUERY_WORDS) + bool(together) + bool(many)


def _others_differ(table: Table, column: Column, groups: Groups, target: str | None) -> bool:
    others = [one for one in table.columns if one is not column and not one.problem]
    if target is not None:
        others = [one for one in others if one.name == target]
    return any(_differs(one, groups) for one in others[:20])


def _differs(column: Column, groups: Groups) -> bool:
    """Whether rows of one group have different values, in some group."""
    values = column.array
    if column.form == TEXT:
        assert column.texts is not None
        values = column.texts.factorised[0]
    ordered, codes = values[groups.order], groups.codes[groups.order]
    return bool(((ordered[1:] != ordered[:-1]) & (codes[1:] == codes[:-1])).any())


# ------------------------------------------------------------------------------------------- what was found


class TableWarning(UserWarning):
    """Something in a table that does not prevent a prediction, but that its owner should know."""


@dataclass
class ColumnSummary:
    """One column of a table.

    Attributes
    ----------
    name : str
    kind : str
        ``"number"``, ``"boolean"``, ``"category"``, ``"date"``, ``"text"``, ``"words"``; or why the column is set
        aside: ``"constant"``, ``"empty"``, ``"identifier"``, ``"drop"``.
    n_features : int
        Columns of the output that it became.
    n_missing : int
        Rows without a value.
    detail : str
        Categories, range or the like.
    notes : list of str
        What a reader should know.
    """

    name: str
    kind: str
    n_features: int = 0
    n_missing: int = 0
    detail: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass
class TableSummary:
    """The columns of a table; prints itself.

    Attributes
    ----------
    columns : list of ColumnSummary
    n_rows : int
    query : str or None
        The column that looks like the query column, if one does.
    """

    columns: list[ColumnSummary]
    n_rows: int
    query: str | None = None

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded summary is checked for (`preflearn.tables.models.fitted`)."""
        if not all(isinstance(column, ColumnSummary) for column in self.columns):
            raise ValueError("columns are not summaries of columns")
        return {"columns": "a list"}

    def __getitem__(self, name: str) -> ColumnSummary:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def __iter__(self) -> Iterator[ColumnSummary]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column by name."""
        return {column.name: column.kind for column in self.columns}

    def by_kind(self) -> list[tuple[str, list[str], int, list[str]]]:
        """Kind, names of its columns, number of their features, and what to know about them, in few lines."""
        found = []
        for kind in dict.fromkeys(self.kinds.values()):
            columns = [column for column in self.columns if column.kind == kind]
            notes = [f"{column.name}: {note}" for column in columns for note in column.notes]
            missing = [column.name for column in columns if column.n_missing and column.n_features]
            if missing:
                notes.append(
                    f"missing values in {', '.join(missing[:6])}{', ...' if len(missing) > 6 else ''}"
                )
            names = [column.name for column in columns]
            found.append((kind, names, sum(column.n_features for column in columns), notes))
        return found

    def __str__(self) -> str:
        n_features = sum(column.n_features for column in self.columns)
        heading = ("column", "kind", "features", "missing", "found")
        rows = [
            (
                _clip(column.name),
                column.kind,
                str(column.n_features or "-"),
                _percent(column.n_missing, self.n_rows),
                "; ".join([*([column.detail] if column.detail else []), *column.notes]),
            )
            for column in self.columns
        ]
        widths = [max(len(row[k]) for row in [heading, *rows]) for k in range(4)]
        lines = [f"{self.n_rows:,} rows, {len(self.columns)} columns, {n_features} features"]
        for row in [heading, *rows]:
            cells = [
                row[0].ljust(widths[0]),
                row[1].ljust(widths[1]),
                row[2].rjust(widths[2]),
                row[3].rjust(widths[3]),
            ]
            lines.append("  ".join([*cells, row[4]]).rstrip())
        if self.query is not None:
            lines.append(f"{self.query!r} looks like the query column: pass it as qid, not as a feature.")
        return "\n".join(lines)

    __repr__ = __str__


def _clip(name: str, most: int = 28) -> str:
    return name if len(name) <= most else name[: most - 3] + "..."


def _percent(count: int, total: int) -> str:
    if count == 0:
        return "-"
    share = 100 * count / total
    return "<1%" if share < 1 else f"{share:.0f}%"
