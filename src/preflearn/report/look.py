"""What is in a table, before anything is trained: kinds, missing values, outliers, likely roles, leaks.

``look`` works on anything that `preflearn.preprocessing.TableEncoder` takes; the kinds are the ones that it would find.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..comparisons import Groups, encode_queries, one_group
from ..comparisons.inputs import surv
from ..errors import shortened
from ..metrics import concordance
from ..metrics.single_columns import SingleColumn, labels_alone, leak_question, order_alone, suspicious
from ..shown_tables import ShownTable, align_columns, clipped, shows_itself
from ..tables.cells import labels_in, truth_values
from ..tables.encoding.columns import CategoryColumn, DateColumn, NumberColumn
from ..tables.encoding.frames import (
    MOST_EXACT,
    NUMBER,
    TEXT,
    Column,
    Table,
    read_table,
    refuse_repeated_columns,
    say_copies,
)
from ..tables.encoding.kinds import decide, name_words, suggest
from ..tables.options import SIDES, refuse_label, split_label
from .contents import plain

_MAX_CATEGORIES = 30
_BINS, _SHOWN_VALUES, _LONGEST = 16, 5, 40
# Rows that single columns are tried on.
TRIED_ROWS = 50_000
_TARGET_WORDS = (
    {"target", "targets"}, {"grade", "grades", "relevance", "rel", "gain", "judgement", "judgment"},
    {"label", "labels"}, {"score", "rating", "stars", "rank", "affinity", "outcome", "response"},
    {"clicks", "clicked", "click", "bought", "purchased", "converted", "liked", "preferred"},
)  # fmt: skip
# Names of columns that say whether an event was seen, those that hardly say anything else first; and of those times.
_EVENT_WORDS = (
    {"event", "died", "dead", "death", "deceased", "censored", "censor", "cens"},
    {"status", "alive", "failed", "failure", "relapse", "relapsed", "recurrence", "progression", "churn", "churned"},
)  # fmt: skip
_TIME_WORDS = {"time", "times", "days", "weeks", "months", "years", "duration", "survival", "survived", "lifetime",
               "followup", "futime", "tenure"}  # fmt: skip
_CENSORED_WORDS = {"censored", "censor", "cens", "alive"}
# Labels of events that were seen; 2 beside 1, as R's survival package has it.
_SEEN = {
    "dead",
    "died",
    "deceased",
    "death",
    "event",
    "failed",
    "failure",
    "relapse",
    "recurrence",
    "churned",
    "2",
}
_PREFERENCES = (("chosen", "rejected"), ("winner", "loser"), ("preferred", "other"))


@dataclass(frozen=True)
class ColumnLook:
    """One column.

    Attributes
    ----------
    name : str
    kind : str
        As `preflearn.preprocessing.TableEncoder` finds it.
    role : str
        "target", "query", "item", "event" where it looks like one; "feature"; "set aside".
    n_missing, n_distinct : int
    detail : str
        Range, categories or examples.
    n_outliers : int
        Numbers more than three interquartile ranges outside the quartiles.
    bars : tuple of int
        Numbers and dates: rows in equal steps from the smallest to the largest, or of each of a few values.
    top : tuple of (str, int)
        Others: the most frequent values.
    alone : float or None
        Share of the pairs that the column orders alone, where the target is known.
    notes : tuple of str
    """

    name: str
    kind: str
    role: str
    n_missing: int
    n_distinct: int
    detail: str = ""
    n_outliers: int = 0
    bars: tuple[int, ...] = ()
    top: tuple[tuple[str, int], ...] = ()
    alone: float | None = None
    notes: tuple[str, ...] = ()


@shows_itself
@dataclass(frozen=True)
class TableLook:
    """A table as `look` found it; prints itself, shows itself in a notebook, and writes itself as a page.

    Attributes
    ----------
    title : str
    n_rows : int
    columns : tuple of ColumnLook
    target, query, item : str or None
        The columns that were given, or look like these.
    queries : dict of str to int
        Number of queries, of those with one row, of those without a pair to order, and rows of the median one.
    notes : tuple of str
        What to know before training, the most important first.
    command : str
        A command that trains on it.
    event : str or None
        Where the target holds times, the column that says whether the event was seen: "COLUMN" or "COLUMN=LABEL".
    """

    title: str
    n_rows: int
    columns: tuple[ColumnLook, ...]
    target: str | None
    query: str | None
    item: str | None
    queries: dict[str, int]
    notes: tuple[str, ...]
    command: str = ""
    event: str | None = None

    def __getitem__(self, name: str) -> ColumnLook:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def summary(self) -> str:
        """The table in one line."""
        text = f"{self.n_rows:,} rows, {len(self.columns):,} columns"
        if self.queries:
            n_queries, median = self.queries["queries"], self.queries["median_rows"]
            text += f"; {n_queries:,} queries ({self.query}), the median one with {median:,} rows"
        return text

    def rows(self) -> list[tuple[str, ...]]:
        """Column, kind, role, missing, distinct, what is in it: texts for a table."""
        return [
            (
                one.name,
                one.kind,
                one.role,
                _share(one.n_missing, self.n_rows),
                f"{one.n_distinct:,}",
                "" if one.alone is None else f"{100 * one.alone:.1f} %",
                "; ".join([text for text in (one.detail, _say_outliers(one.n_outliers), *one.notes) if text]),
            )
            for one in self.columns
        ]

    def __str__(self) -> str:
        (table,) = self.shown_tables()
        return "\n".join(
            [table.caption, *align_columns(table.rows, "lllrrrl"), *(f"note: {note}" for note in self.notes)]
        )

    def shown_tables(self) -> list[ShownTable]:
        heading = ("column", "kind", "role", "missing", "distinct", "alone", "found")
        return [ShownTable([heading, *self.rows()], f"{self.title}: {self.summary}", self.notes)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return plain(asdict(self))

    def to_html(self) -> str:
        """The page, without references to other files."""
        from .. import __version__
        from .html import environment

        return environment().get_template("look.html.j2").render(look=self, share=_share, version=__version__)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page, which appears whole or not at all.

        Parameters
        ----------
        path : path
        """
        from ..tables.atomic import write_whole

        write_whole(path, self.to_html())


def look(
    frame: Any,
    *,
    target: str | None = "auto",
    query: str | None = "auto",
    item: str | None = "auto",
    event: str | None = "auto",
    title: str = "Table",
) -> TableLook:
    """Look at a table before training: kinds, missing values, outliers, likely target and queries, leaks.

    Parameters
    ----------
    frame : data frame, array, list of rows, or mapping from names to columns
    target, query, item : str or None, default="auto"
        The columns with these roles; "auto" looks for them by name and values, None says that there is none.
    event : str or None, default="auto"
        The column that says whether the event was seen at the time in the target, "COLUMN=LABEL" where LABEL of two
        labels says so.
    title : str, default="Table"

    Returns
    -------
    TableLook

    Examples
    --------
    >>> from preflearn.report import look
    >>> table = {"session": ["a"] * 3 + ["b"] * 3, "price": [3.0, 5.0, None, 7.0, 1.0, 2.0],
    ...          "seconds": [9, 41, 12, 6, 44, 8], "bought": [0, 1, 0, 0, 1, 0]}
    >>> found = look(table)
    >>> found.target, found.query, found["price"].n_missing
    ('bought', 'session', 1)
    >>> found.notes[0]
    '`seconds` alone orders 100 % of the pairs: is it known before ranking?'
    """
    refuse_repeated_columns(frame)
    table, target = _with_label(read_table(frame), target, title)
    event = _find_event(table, target) if event == "auto" else event
    column = (event or "").partition("=")[0]
    if event and target == "auto":
        target = _times_beside(table, column)
    roles = _find_roles(table, {"target": target, "query": query, "item": item, "event": column or None})
    labels = {name: role for role, name in roles.items() if name is not None}
    kinds = {column.name: decide(column, _MAX_CATEGORIES) for column in table.columns}
    alone = _columns_alone(table, kinds, roles, event)
    columns = tuple(
        _look_at(column, kinds[column.name], labels.get(column.name), alone.get(column.name))
        for column in table.columns
    )
    queries, query_notes = _look_at_queries(table, roles)
    leaks = [leak_question(one) for one in suspicious(list(alone.values()))]
    notes = [
        *leaks,
        *_notes_on_roles(table, roles),
        *query_notes,
        *say_copies(
            (one.array if one.texts is None else one.texts.values for one in table.columns), bool(queries)
        ),
        *table.problems,
        *_notes_on_columns(columns, table.n_rows),
    ]
    return TableLook(
        title, table.n_rows, columns, roles["target"], roles["query"], roles["item"], queries, tuple(notes),
        event=event,
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------------- the roles


def _find_roles(table: Table, asked: dict[str, str | None]) -> dict[str, str | None]:
    names = [column.name for column in table.columns]
    for role, name in asked.items():
        if name not in (None, "auto", *names):
            raise ValueError(
                f"{role}={name!r} is not a column of the table: found {', '.join(map(repr, names))}."
            )
    given = [name for name in asked.values() if name not in (None, "auto")]
    if len({*given}) < len(given):
        raise ValueError(f"A column has one role: found {', '.join(f'{k}={v!r}' for k, v in asked.items())}.")
    target = _likely_target(table) if asked["target"] == "auto" else asked["target"]
    query = asked["query"]
    if query == "auto":
        query = next(
            (name for name in ("qid", "query") if name in names and name != target), None
        ) or suggest(table, target)
    item = asked["item"]
    if item == "auto":
        others = [column for column in table.columns if column.name not in (target, query, asked["event"])]
        item = next((column.name for column in others if column.name == "item"), None)
        item = item or next(
            (one.name for one in others if decide(one, _MAX_CATEGORIES).kind == "identifier"), None
        )
    return {"target": target, "query": query, "item": item, "event": asked["event"]}


def _battles_in(names: Sequence[str]) -> tuple[str, str] | None:
    """The columns of two sides that met, where another says who won."""
    return next((pair for pair in SIDES if {*pair, "winner"} <= {*names}), None)


def _find_event(table: Table, target: str | None) -> str | None:
    """The column that looks as if it said whether the event was seen, beside one of times, as ``event`` takes it."""
    if target == "auto" and (found := _event_named(table, _EVENT_WORDS[0], target)):
        return found
    target = _likely_target(table) or target if target == "auto" else target
    return _event_named(table, {*_EVENT_WORDS[0], *_EVENT_WORDS[1]}, target)


def suggest_event(columns: Any, target: str) -> str | None:
    """The same for a table whose target is known."""
    return _find_event(read_table(columns), target)


def _event_named(table: Table, words: set[str], target: str | None) -> str | None:
    for column in table.columns:
        time = _times_beside(table, column.name) if target == "auto" else target
        if column.problem or not name_words(column.name) & words or time in (None, column.name):
            continue
        y = _target_of(table, time) if name_words(str(time)) & _TIME_WORDS else None
        labels = _labels_of(column)[1]
        if y is None or np.nanmin(y) < 0 or np.unique(y).size < 3 or len(labels) != 2:
            continue
        values, seen = truth_values(labels), [one for one in labels if one.lower() in _SEEN]
        if np.isnan(values).any():
            if len(seen) == 1:
                return f"{column.name}={seen[0]}"
        elif name_words(column.name) & _CENSORED_WORDS:
            return f"{column.name}={labels[int(values.argmin())]}"
        else:
            return column.name
    return None


def _times_beside(table: Table, event: str) -> str | None:
    """The column of numbers that is named like a time."""
    found = [
        one.name
        for one in table.columns
        if one.name != event
        and name_words(one.name) & _TIME_WORDS
        and decide(one, _MAX_CATEGORIES).kind == "number"
    ]
    return min(found, key=len, default=None)


def _likely_target(table: Table) -> str | None:
    """A column of numbers or yes/no that is named like a target, the most likely name first; none of battles."""
    names = [column.name for column in table.columns]
    if "target" in names or _battles_in(names):
        return "target" if "target" in names else None
    numbers = {
        column.name
        for column in table.columns
        if decide(column, _MAX_CATEGORIES).kind in ("number", "boolean", "category")
    }
    for words in _TARGET_WORDS:
        found = [one.name for one in table.columns if one.name in numbers and name_words(one.name) & words]
        if found:
            return min(found, key=len)
    return "y" if "y" in numbers else None


def _values_of(column: Column, kind: str) -> np.ndarray | None:
    """Numbers, truth values and dates as floats, NaN where missing."""
    if kind == "date":
        return DateColumn.learn(column)[0].values(column)
    if kind in ("number", "boolean", "identifier", "constant") and not (
        kind in ("identifier", "constant") and column.form == TEXT
    ):
        truth = kind == "boolean" and column.form == TEXT
        values = NumberColumn.learn(column, truth)[0].values(column)
        if truth and np.isnan(values).all():  # "0" and "1" as texts
            values = NumberColumn.learn(column, False)[0].values(column)
        return values
    return None


def _labels_of(column: Column) -> tuple[np.ndarray, list[str]]:
    """Code of each row, -1 where missing, and the labels."""
    if column.whole is None:
        values = CategoryColumn.learn(column, _MAX_CATEGORIES, None)[0].values(column)
    else:
        values = np.array(["" if none else str(value) for value, none in zip(*column.whole)])
    labels, codes = np.unique(values.astype(str), return_inverse=True)
    empty = labels == ""
    if not empty.any():
        return codes, labels.tolist()
    return codes - 1, labels[1:].tolist()  # "" comes first


def _groups_of(table: Table, query: str | None) -> Groups:
    if query is None:
        return one_group(table.n_rows)
    column = next(one for one in table.columns if one.name == query)
    codes, _ = _labels_of(column)
    alone = codes < 0  # a row without a query is compared with none
    return encode_queries(np.where(alone, -np.cumsum(alone), codes), table.n_rows)


def _target_of(table: Table, target: str | None) -> np.ndarray | None:
    """The targets as numbers; None where they are not."""
    if target is None:
        return None
    column = next(one for one in table.columns if one.name == target)
    kind = decide(column, _MAX_CATEGORIES).kind
    values = _values_of(column, "number" if kind == "category" and column.form != TEXT else kind)
    return None if values is None or np.isnan(values).all() else values


def target_of(columns: Any, target: str, event: str | None = None) -> np.ndarray | None:
    """The targets of a table as numbers; None where they are not. With times and events where there is an event."""
    return _outcomes(*_with_label(read_table(columns), target, "Table"), event)


def _outcomes(table: Table, target: str | None, event: str | None) -> np.ndarray | None:
    y = _target_of(table, target)
    if y is None or event is None:
        return y
    name, _, seen = event.partition("=")
    codes, labels = _labels_of(next(one for one in table.columns if one.name == name))
    died = np.array([one == seen if seen else truth_values([one])[0] > 0 for one in labels] + [False])
    return surv(y, died[codes])  # the last for missing ones, whose code is -1


def _with_label(table: Table, target: str | None, title: str) -> tuple[Table, str | None]:
    """COLUMN=LABEL as a column of 0 and 1, with its name; anything else as it is."""
    names = [column.name for column in table.columns]
    name, label = split_label(target or "", names)
    if label is None:
        return table, target
    columns, place = list(table.columns), names.index(name)
    codes, labels = _labels_of(columns[place])
    known = labels_in(labels)
    refuse_label(title, name, label, known)
    values = np.array([*(float(one == label) if one in known else np.nan for one in labels), np.nan])
    columns[place] = Column(name, NUMBER, values[codes])
    return replace(table, columns=columns), name


# ------------------------------------------------------------------------------------------------------- the leaks


def columns_alone(table: Any, y: np.ndarray, qid: Any, names: Sequence[str]) -> list[SingleColumn]:
    """How well each of some columns of a table orders the rows alone."""
    read = read_table(table)
    kinds = {column.name: decide(column, _MAX_CATEGORIES) for column in read.columns if column.name in names}
    return list(_alone(read, kinds, y, encode_queries(qid, y.shape[0])).values())


def _columns_alone(
    table: Table, kinds: dict[str, Any], roles: dict[str, str | None], event: str | None
) -> dict[str, SingleColumn]:
    y = _outcomes(table, roles["target"], event)
    if y is None:
        return {}
    apart = (roles["target"], roles["query"], roles["event"])
    others = {name: one for name, one in kinds.items() if name not in apart}
    return _alone(table, others, y, _groups_of(table, roles["query"]))


def _alone(table: Table, kinds: dict[str, Any], y: np.ndarray, groups: Groups) -> dict[str, SingleColumn]:
    rows = groups.sample(TRIED_ROWS)
    rows = rows[~np.isnan((y["time"] if y.dtype.names else y)[rows])]
    if not rows.size:
        return {}
    part, y = encode_queries(groups.codes[rows], rows.size), y[rows]
    found: dict[str, SingleColumn] = {}
    if np.isnan(concordance(y, np.zeros(rows.size), part, per_query=True).values).all():
        return found  # no two rows to compare
    for column in table.columns:
        kind = None if column.name not in kinds or column.problem else kinds[column.name].kind
        if kind in (None, "empty", "constant", "text", "words"):
            continue
        values = _values_of(column, kind)
        if values is not None:
            found[column.name] = order_alone(column.name, values[rows], y, part)
        elif kind == "category":
            found[column.name] = labels_alone(column.name, _labels_of(column)[0][rows], y, part)
    return found


# ----------------------------------------------------------------------------------------------------- the columns


def _look_at(column: Column, decision: Any, role: str | None, alone: SingleColumn | None) -> ColumnLook:
    kind = decision.kind
    role = role or ("feature" if kind in ("number", "boolean", "category", "date", "text") else "set aside")
    notes = tuple(note for note in (decision.note, column.note, column.problem) if note)
    share = None if alone is None else alone.share
    values = None if column.problem or kind == "empty" else _values_of(column, kind)
    if values is None:
        return _look_at_labels(column, kind, role, share, notes)
    there = values[np.isfinite(values)]
    n_infinite = int(np.isinf(values).sum())
    if n_infinite:
        notes += (f"{n_infinite:,} infinite",)
    distinct = np.unique(there)
    exact = np.abs(there).max(initial=0) <= MOST_EXACT
    n_distinct = distinct.size if exact else len(_labels_of(column)[1])
    detail = ""
    if there.size and kind == "date":
        detail = " to ".join(str(np.datetime64(int(end), "s"))[:10] for end in (there.min(), there.max()))
    elif there.size:
        detail = f"{there.min():.4g} to {there.max():.4g}" + (
            f", median {np.median(there):.4g}" if distinct.size > 2 else ""
        )
    bars = _histogram(there, distinct)
    outliers = _count_outliers(there) if kind == "number" else 0
    return ColumnLook(
        column.name, kind, role, int(np.isnan(values).sum()), n_distinct, detail, outliers, bars,
        alone=share, notes=notes,
    )  # fmt: skip


def _histogram(values: np.ndarray, distinct: np.ndarray) -> tuple[int, ...]:
    """Rows in equal steps; of few distinct values the rows of each."""
    if distinct.size < 3:
        return ()
    if distinct.size <= _BINS:
        return tuple(np.bincount(np.searchsorted(distinct, values)).tolist())
    return tuple(np.histogram(values, _BINS)[0].tolist())


def _look_at_labels(
    column: Column, kind: str, role: str, share: float | None, notes: tuple[str, ...]
) -> ColumnLook:
    if column.problem or kind == "empty":
        return ColumnLook(column.name, kind, role, column.size, 0, notes=notes)
    codes, labels = _labels_of(column)
    counts = np.bincount(codes + 1, minlength=len(labels) + 1)
    most = np.argsort(-counts[1:], kind="stable")[:_SHOWN_VALUES]
    top = tuple((clipped(labels[k], _LONGEST), int(counts[k + 1])) for k in most)
    detail = ", ".join(text for text, _ in top[:3]) + (", ..." if len(labels) > 3 else "")
    return ColumnLook(
        column.name, kind, role, int(counts[0]), len(labels), detail,
        top=top if counts[1:].max(initial=0) > 1 else (), alone=share, notes=notes,
    )  # fmt: skip


def _count_outliers(values: np.ndarray) -> int:
    """Numbers far outside the quartiles (Tukey's outer fences)."""
    if values.size < 8:
        return 0
    low, high = np.quantile(values, [0.25, 0.75])
    far = 3 * (high - low)
    return int(((values < low - far) | (values > high + far)).sum()) if far > 0 else 0


# ------------------------------------------------------------------------------------------------------- the notes


def _look_at_queries(table: Table, roles: dict[str, str | None]) -> tuple[dict[str, int], list[str]]:
    if roles["query"] is None:
        return {}, []
    codes = _labels_of(next(one for one in table.columns if one.name == roles["query"]))[0]
    there = codes >= 0
    if not there.any():
        return {}, [f"`{roles['query']}` has no value: rows are compared within queries."]
    groups = encode_queries(codes[there], int(there.sum()))
    n = groups.n_groups
    found = {
        "queries": n,
        "median_rows": int(np.median(groups.counts)),
        "one_row": int((groups.counts == 1).sum()),
    }
    notes = []
    if not there.all():
        notes.append(f"{_rows_have(int((~there).sum()))} no query: leave such rows out of the training.")
    if found["one_row"]:
        notes.append(f"{_of_queries(found['one_row'], n)} one row: nothing to compare it with.")
    y = _target_of(table, roles["target"])
    if y is None:
        return found, notes
    low, high, y = np.full(n, np.inf), np.full(n, -np.inf), y[there]
    known = ~np.isnan(y)
    np.minimum.at(low, groups.codes[known], y[known])
    np.maximum.at(high, groups.codes[known], y[known])
    found["without_pair"] = int((~(high > low)).sum())
    tied = found["without_pair"] - found["one_row"]
    if tied > 0:
        notes.append(f"{_of_queries(tied, n)} several rows whose targets are all equal: no pair to order.")
    return found, notes


def _notes_on_roles(table: Table, roles: dict[str, str | None]) -> list[str]:
    names = [column.name for column in table.columns]
    sides = _battles_in(names)
    if sides and roles["target"] is None:
        named = f"Columns {sides[0]!r}, {sides[1]!r} and 'winner'"
        return [f"{named} look like battles: preflearn rate puts the two sides in order."]
    for chosen, rejected in _PREFERENCES:
        if chosen in names and rejected in names:
            return [
                f"Columns {chosen!r} and {rejected!r} look like preferences between two texts or items: train on them "
                f"with --chosen {chosen} --rejected {rejected}."
            ]
    if roles["target"] is None:
        return [
            "No column is named like a target (target, grade, relevance, label, clicks, ...): name it to see what "
            "orders it."
        ]
    notes, y = [], _target_of(table, roles["target"])
    if y is None:
        column = next(one for one in table.columns if one.name == roles["target"])
        if decide(column, _MAX_CATEGORIES).kind == "empty":
            return [f"The target {roles['target']!r} has no values: there is nothing to learn from."]
        labels = labels_in(_labels_of(column)[1])
        if len(labels) == 1:
            return [f"All targets are {clipped(labels[0], _LONGEST)}: there is no order to learn."]
        if len(labels) == 2:
            label_asked = " or ".join(f"{column.name}={one}" for one in labels)
            return [
                f"The target `{column.name}` has two labels: name it with the better one, as {label_asked}."
            ]
        return [
            f"The target `{column.name}` is neither numbers nor yes/no: write numbers instead of its values, higher "
            "for better, before training."
        ]
    n = int(np.isnan(y).sum())
    if n:
        notes.append(f"{_rows_have(n)} no target that can be read: leave such rows out of the training.")
    if roles["event"] is not None:
        codes = _labels_of(next(one for one in table.columns if one.name == roles["event"]))[0]
        if n := int((codes < 0).sum()):
            notes.append(f"{_rows_have(n)} no `{roles['event']}`: leave such rows out of the training.")
        notes.append(
            f"`{roles['target']}` looks like times, and `{roles['event']}` says whether the event was seen then: rows "
            "are compared where it is known which lived longer."
        )
    if np.nanmin(y) == np.nanmax(y):
        notes.append(f"All targets are {np.nanmin(y):g}: there is no order to learn.")
    return notes


def _notes_on_columns(columns: Sequence[ColumnLook], n_rows: int) -> list[str]:
    notes = []
    if all(one.role != "feature" for one in columns):
        notes.append("No column is left to learn from.")
    empty = [one.name for one in columns if one.kind in ("empty", "constant") and one.role != "target"]
    if empty:
        notes.append(
            f"{_named(empty)} one value or none, and {'is' if len(empty) == 1 else 'are'} set aside."
        )
    missing = [one.name for one in columns if one.kind != "empty" and one.n_missing > n_rows / 2]
    if missing:
        notes.append(f"{_named(missing)} no value in more than half of the rows.")
    outliers = [one for one in columns if one.n_outliers]
    notes += [f"`{one.name}` has {_say_outliers(one.n_outliers)}: {one.detail}." for one in outliers[:3]]
    return notes


def _named(names: Sequence[str]) -> str:
    shown = shortened([f"`{name}`" for name in names], 6)
    return f"{shown} {'has' if len(names) == 1 else 'have'}"


def _of_queries(count: int, total: int) -> str:
    return (
        f"{count:,} of {total:,} queries {'has' if count == 1 else 'have'}" if total != 1 else "The query has"
    )


def _rows_have(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"


def _say_outliers(count: int) -> str:
    return "" if not count else f"{count:,} outlier{'s' if count > 1 else ''}"


def _share(count: int, total: int) -> str:
    if not count:
        return "-"
    share = 100 * count / total
    return "<1 %" if share < 1 else f"{share:.0f} %"


__all__ = ["ColumnLook", "TableLook", "columns_alone", "look"]
