"""Which column of a table looks like its query column."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._engine.loops.threads import in_turns
from ..comparisons.grouping import Groups
from .frames import NUMBER, TEXT, Column, Table, read_table
from .kinds import name_words

_QUERY_WORDS = {
    "query", "queries", "qid", "session", "sessionid", "search", "request", "impression", "question", "prompt",
    "auction", "user", "userid", "customer", "customerid", "visitor", "basket", "reviewer", "rater", "judge",
    "conversation", "queryid",
}  # fmt: skip
# Queries have a few rows up to some hundreds each.
_LARGEST_QUERY = 500
# Columns that are looked at to see whether rows of a query differ.
_LOOK_AT = 20


def suggest_query_column(X: Any, *, target: str | None = None) -> str | None:
    """The column of a table that looks like its query column, if one does.

    A query column has labels, texts or whole numbers, that repeat: at least two rows each in the mean, four fifths of
    the rows not alone, and other columns (the target first of all) differ inside. Two of these make it a suggestion,
    the name counting for two: the name ("session", "query_id", "user"), the rows of every label stand together, at
    least ten labels with up to 500 rows each in the mean. Numbers need the name.

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
    for column, groups in zip(columns, in_turns(_groups, [(column,) for column in columns])):
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
    named = bool(name_words(column.name) & _QUERY_WORDS)
    if column.form == TEXT:
        assert column.texts is not None
        if not named and not column.texts.repeated:
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
    many = groups.n_groups >= 10 and groups.n_rows <= _LARGEST_QUERY * groups.n_groups
    return 2 * bool(name_words(column.name) & _QUERY_WORDS) + bool(together) + bool(many)


def _others_differ(table: Table, column: Column, groups: Groups, target: str | None) -> bool:
    others = [one for one in table.columns if one is not column and not one.problem]
    if target is not None:
        others = [one for one in others if one.name == target]
    return any(_differs(one, groups) for one in others[:_LOOK_AT])


def _differs(column: Column, groups: Groups) -> bool:
    """Whether rows of one group have different values, in some group."""
    values = column.array
    if column.form == TEXT:
        assert column.texts is not None
        values = column.texts.factorised[0]
    ordered, codes = values[groups.order], groups.codes[groups.order]
    return bool(((ordered[1:] != ordered[:-1]) & (codes[1:] == codes[:-1])).any())
