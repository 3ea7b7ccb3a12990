"""Read tables with numbers, yes/no, categories, dates, texts and missing values, without declaring types.

Every column is read as numbers where its first rows look like numbers, and again as texts where a later row disagrees;
what the columns mean is for `preflearn.preprocessing.TableEncoder` to find. Everything that is wrong with a file is
reported in one message.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from ..errors import InputError, Remedy, refuse_all, shortened
from .blocks import Block, ignore_progress, regroup
from .cells import (
    FileFaultError,
    clip,
    is_missing,
    labels_in,
    number_style,
    parse_numbers,
    parse_times,
    refuse,
    truth_values,
    whole_number,
)
from .data import TableData
from .encoding.frames import MOST_EXACT
from .encoding.kinds import TableWarning
from .formats import TableFile, open_file
from .options import AUTO, ReadOptions, Roles, as_paths, find_columns, refuse_label

# Rows named in one message for one kind of fault, and problems in one message.
_EXAMPLES, _MOST_PROBLEMS = 3, 8


def read_table(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    target: str | None = AUTO,
    query: str | None = AUTO,
    item: str | None = AUTO,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    texts: Sequence[str] = (),
    labels: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    allow_unknown: bool = False,
    on_bad: Literal["raise", "skip"] = "raise",
    n_jobs: int | None = None,
) -> TableData:
    """Read a table with columns of any kind, or several files one after the other.

    Parameters
    ----------
    path : path or list of paths
        CSV, TSV, JSON lines or Parquet, each also compressed.
    format : {"csv", "tsv", "jsonl", "parquet"}, default=None
        None goes by the name of the file.
    target : str or None, default="auto"
        Target column: numbers, or yes/no; None for a file without targets. "auto" is the column named ``target``.
        "COLUMN=LABEL" reads a column of two labels, 1 where it holds this one and 0 where it holds the other.
    query, item : str or None, default="auto"
        Columns of the queries and of the names of the rows. "auto" is the column named ``qid`` or ``query``, and the
        one named ``item``, if there is one.
    weight : str, default=None
        Column of row weights.
    features, drop : list of str, default=None
        The columns to take in this order, or the ones to leave out; every other column by default.
    texts : list of str, default=()
        Columns to read as texts even if they look like numbers.
    labels : list of str, default=()
        Columns to read as texts of which every row must have one, such as those of groups.
    columns : list of str, default=None
        Names of the columns of a CSV or TSV file that has no header.
    delimiter : str, default=None
        What separates the cells. None: a comma in CSV, a tab in TSV files, or the mark that evidently does, with a
        warning.
    encoding : str, default=None
        Of a CSV or TSV file. None: UTF-8, or what the file evidently is (UTF-16, Windows-1252), with a warning.
    allow_unknown : bool, default=False
        Read missing targets as NaN ("not known") instead of refusing them.
    on_bad : {"raise", "skip"}, default="raise"
        What to do with rows whose target, query or label is missing or cannot be read: refuse the table, or leave the
        rows out, with a warning that counts them and names the first ones. ``kept`` of the result says which rows
        remain. A column in which more values cannot be read than can is refused in any case.
    n_jobs : int, default=None
        Accepted as by :func:`read_ranking`; tables are parsed by one thread.

    Returns
    -------
    TableData

    Raises
    ------
    ValueError
        With everything that is wrong with the file in one message.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "visits.csv")
    >>> _ = path.write_text("grade,session,price,colour,day\\n2,a,3.5,red,2024-05-01\\n0,a,,blue,2024-05-03\\n")
    >>> table = read_table(path, target="grade", query="session")
    >>> table
    TableData: 2 rows in 1 query, 3 columns, targets 0 to 2
    >>> table.columns["price"], table.columns["colour"].tolist()
    (array([3.5, nan]), ['red', 'blue'])
    >>> table.encode().feature_names
    ['price=(missing)', 'colour=blue', 'colour=red', 'day.days', 'day.day', 'day.weekday']
    """
    paths = as_paths(path)
    options = ReadOptions(
        format,
        target,
        query,
        item,
        features,
        drop,
        columns,
        delimiter,
        missing=np.nan,
        n_jobs=n_jobs,
        encoding=encoding,
    )
    if on_bad not in ("raise", "skip"):
        raise ValueError(f"on_bad must be 'raise' or 'skip': found {on_bad!r}.")
    reader = _TableReader(paths, options, weight, texts, allow_unknown, on_bad == "skip", labels)
    nothing = not (reader.roles.targets or reader.roles.query or labels)
    if on_bad == "skip" and (allow_unknown or nothing):
        other = (
            "allow_unknown=True, which keeps them" if allow_unknown else "target=None and no query or label"
        )
        raise InputError(f"on_bad='skip' leaves rows out by these columns, and would be ignored with {other}")
    return reader.read()


class TableChunks:
    """A table with targets and queries in chunks of whole queries, which can be read again and again.

    Parameters
    ----------
    path : path or list of paths
    rows : int, default=65536
        The most rows in a chunk; a query that is longer is a chunk of its own.
    texts : sequence of str
        Columns to read as texts.
    **options
        As in `read_table`: format, target, query, item, features, drop, columns, delimiter, encoding.

    Attributes
    ----------
    features : list of str
    numbers : list of str
        Features that are read as numbers; the others are texts.
    names : list of str
        All columns of the table.
    target, query, item : str or None
        The columns of these names.
    source : str
        The file or files.

    Raises
    ------
    ValueError
        With everything that is wrong with the columns in one message.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "visits.csv")
    >>> _ = path.write_text("target,qid,price,colour\\n2,a,3.5,red\\n0,a,,blue\\n1,b,1,red\\n")
    >>> [(len(chunk), chunk.qid[0], list(chunk.columns)) for chunk in TableChunks(path, rows=2)]
    [(2, 'a', ['price', 'colour']), (1, 'b', ['price', 'colour'])]
    """

    def __init__(self, path: Any, *, rows: int = 65536, texts: Sequence[str] = (), **options: Any):
        self._paths, self._rows = as_paths(path), rows
        reader = _TableReader(self._paths, ReadOptions(missing=np.nan, **options), None, texts, False, False)
        self._files, roles = reader.files, reader.roles
        if roles.label is not None:
            instead = f"write 1 for {roles.label!r} and 0 for the other, since the table is read in parts"
            reader.problems.append(
                InputError(f"{reader.name}: {{argument}} names a label: {instead}", argument="target")
            )
        refuse_all(reader.name, reader.problems)
        self.source = reader.name
        self.target, self.query, self.item = (
            roles.targets[0] if roles.targets else None,
            roles.query,
            roles.item,
        )
        self.features = list(roles.numbers)
        self.names = list(self._files[0].names or [])
        self._numeric = set.intersection(*(set(file.number_columns()) for file in self._files)) - reader.texts

    @property
    def numbers(self) -> list[str]:
        return [name for name in self.features if name in self._numeric]

    def read_as_text(self, column: str) -> None:
        """A feature whose first rows look like numbers, and whose others do not.

        Raises
        ------
        ValueError
            If it is not read as numbers.
        """
        if column not in self.numbers:
            raise ValueError(f"{column!r} is not a feature that is read as numbers.")
        self._numeric.discard(column)

    def __iter__(self) -> Iterator[TableData]:
        texts = [name for name in self.features if name not in self._numeric]
        aside = [] if self.target is None or self.target in self._numeric else [self.target]
        targets = () if self.target is None or aside else (self.target,)
        roles = Roles(targets, False, self.query, self.item, tuple(self.numbers), (*texts, *aside))
        blocks = (block for file in self._files for block in file.blocks(roles, ignore_progress))
        for chunk in regroup(blocks, self._rows, self._files[0].unit):
            yield self._table(chunk, roles)

    def _table(self, blocks: list[Block], roles: Roles) -> TableData:
        found = _columns_of(blocks, roles)
        y, qid, items = (
            _joined([getattr(block, name) for block in blocks]) for name in ("y", "qid", "items")
        )
        if self.target is not None and y is None:
            y = self._targets(found[self.target], blocks)
        columns = {name: found[name] for name in self.features}
        source = ", ".join(self._paths)
        return TableData(columns, y, qid, items, None, self.target, self.query, self.item, source)

    def _targets(self, texts: np.ndarray, blocks: list[Block]) -> np.ndarray:
        """Targets that are yes and no, or numbers in words."""
        y, _ = numbers_in(texts)
        wrong = np.flatnonzero(~np.isfinite(y))
        if wrong.size:
            lines = np.concatenate([block.lines for block in blocks])
            row = int(wrong[0])
            found = f"{clip(texts[row])}, expected a target: a number, or yes or no" + _as_grades(
                _words(texts)
            )
            refuse(blocks[0].path, self._files[0].unit, int(lines[row]), found, self.target)
        return y


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    found = [part for part in parts if part is not None]
    return np.concatenate(found) if found else None


def iter_columns(
    paths: Sequence[str | os.PathLike[str]],
    texts: Sequence[str],
    numbers: Sequence[str] = (),
    *,
    rows: int = 200_000,
) -> Iterator[dict[str, np.ndarray]]:
    """Some columns of files of any size, in parts of about this many rows.

    Parameters
    ----------
    paths : sequence of paths
        CSV, TSV, JSON lines or Parquet, each also compressed; all with these columns.
    texts, numbers : sequences of str
        Columns to read as texts and as numbers.
    rows : int
    """
    roles = Roles((), False, None, None, tuple(numbers), tuple(texts))
    held: list[Block] = []
    for path in as_paths(list(paths)):
        for block in open_file(path, ReadOptions(missing=np.nan)).blocks(roles, ignore_progress):
            held.append(block)
            if sum(map(len, held)) >= rows:
                yield _columns_of(held, roles)
                held = []
    if held:
        yield _columns_of(held, roles)


def _columns_of(blocks: list[Block], roles: Roles) -> dict[str, np.ndarray]:
    """Columns of blocks, one below the other."""
    columns: dict[str, np.ndarray] = {}
    for place, name in enumerate(roles.numbers):
        columns[name] = np.concatenate([np.asarray(block.features)[:, place] for block in blocks])
    for name in roles.words:
        columns[name] = np.concatenate([block.texts[name] for block in blocks])
    return columns


@dataclass(frozen=True)
class _Rows:
    """Columns of all files, one below the other, and where each row stands."""

    columns: dict[str, np.ndarray]
    place: Callable[[int], str]


class _TableReader:
    """One reading of a table: roles, rows, targets and labels, with what is wrong collected on the way."""

    def __init__(
        self,
        paths: list[str],
        options: ReadOptions,
        weight: str | None,
        texts: Sequence[str],
        allow_unknown: bool,
        skips: bool,
        labels: Sequence[str] = (),
    ):
        self.paths, self.options, self.weight, self.allow_unknown = paths, options, weight, allow_unknown
        self.skips, self.bad, self.reasons = skips, np.empty(0, dtype=np.int64), list[str]()
        self.name = shortened(paths, 1)
        self.problems: list[InputError] = []
        self.files = [self._open(path) for path in paths]
        names = self.files[0].names or []
        self.roles = self._find_roles(names)
        self.texts = self._known((*texts, *labels), names)
        self.labels = [name for name in labels if name in self.roles.numbers]

    def _open(self, path: str) -> TableFile:
        if self.options.format_of(path) == "letor":
            raise InputError(
                f"{path}: a table has named columns, and LETOR files number their features: expected files of one kind",
                in_python="read_ranking reads the latter",
            )
        return cast(TableFile, open_file(path, self.options))

    def _find_roles(self, names: list[str]) -> Roles:
        aside = [] if self.weight is None else [self.weight]
        roles, self.problems = find_columns(self.paths[0], names, self.options, aside)
        if self.weight is not None and self.weight not in names:
            self.problems.append(
                InputError(
                    f"{self.paths[0]}: {{argument}} asks for column {self.weight!r}, which is not there",
                    argument="weight",
                )
            )
            self.weight = None
        for path, file in zip(self.paths[1:], self.files[1:]):
            if {*(file.names or [])} != {*names}:
                odd = sorted({*names} ^ {*(file.names or [])})
                self.problems.append(
                    InputError(
                        f"{path}: the columns are not those of {self.paths[0]}: {', '.join(map(repr, odd[:6]))} "
                        "in one of them only. Files read together must agree"
                    )
                )
        return roles

    def _known(self, texts: Sequence[str], names: list[str]) -> set[str]:
        labels = (self.roles.query, self.roles.item, *(self.roles.targets if self.roles.label else ()))
        return {name for name in (*texts, *labels) if name in names}

    def read(self) -> TableData:
        features = self.roles.numbers
        if len(self.files) > 1 and self.problems:
            refuse_all(self.name, self.problems)  # columns that differ cannot be read together
        rows = self._rows()
        target = self.roles.targets[0] if self.roles.targets else None
        y = None if target is None else self._targets(rows, target)
        weight = None if self.weight is None else self._weights(rows, self.weight)
        qid = None if self.roles.query is None else self._queries(rows, self.roles.query)
        for name in self.labels:
            self._require(rows, name, ("missing label", "missing labels"), "every row must have one")
        if not features and not self.problems:
            self.problems.append(InputError(f"{self.name}: no column is left as a feature"))
        refuse_all(self.name, self.problems[:_MOST_PROBLEMS])
        items = None if self.roles.item is None else rows.columns[self.roles.item]
        columns = {name: rows.columns[name] for name in features}
        source = ", ".join(self.paths)
        found = TableData(
            columns, y, qid, items, weight, target, self.roles.query, self.roles.item, source, rows.place
        )
        if not self.bad.size:
            return found
        many = "1 row was" if self.bad.size == 1 else f"{self.bad.size:,} rows were"
        left_out = f"{self.name}: {many} left out of {len(found):,}: {'; '.join(self.reasons)}."
        warnings.warn(left_out, TableWarning, stacklevel=3)
        return found.without(self.bad, left_out)

    # ------------------------------------------------------------------------------------------------ the rows

    def _rows(self) -> _Rows:
        """Every column, as numbers where all files agree that it holds them."""
        labels = [self.weight, *self.roles.targets, self.roles.query, self.roles.item]
        wanted = [name for name in (*self.roles.numbers, *labels) if name is not None]
        numeric = set.intersection(*(set(file.number_columns()) for file in self.files)) - self.texts
        while True:
            numbers = tuple(name for name in wanted if name in numeric)
            words = tuple(name for name in wanted if name not in numeric)
            try:
                rows = self._read_as(Roles((), False, None, None, numbers, words))
                if not (long := {name for name in numbers if _loses_digits(rows.columns[name])}):
                    return rows
                numeric -= long
            except FileFaultError as fault:
                if fault.column not in numeric:
                    self._refuse(fault)
                numeric.discard(fault.column)

    def _read_as(self, roles: Roles) -> _Rows:
        blocks = [block for file in self.files for block in file.blocks(roles, ignore_progress)]
        if not blocks:
            self.problems.append(InputError(f"{self.name}: there are no rows in it"))
            refuse_all(self.name, self.problems)
        return _Rows(_columns_of(blocks, roles), self._placing(blocks))

    def _placing(self, blocks: list[Block]) -> Callable[[int], str]:
        unit = self.files[0].unit
        ends = np.cumsum([len(block) for block in blocks])
        known = [(block.path, block.lines) for block in blocks]  # and not the blocks, which hold all cells

        def place(row: int) -> str:
            k = int(np.searchsorted(ends, row, side="right"))
            path, lines = known[k]
            line = f"{unit} {lines[row - int(ends[k])]}"
            return line if len(self.paths) == 1 else f"{path}, {line}"

        return place

    def _refuse(self, fault: FileFaultError) -> None:
        """A fault that no other reading helps with; rows of the wrong length come together."""
        more: list[InputError] = [fault]
        if fault.column is None and "cells" in fault.found:
            more = [one for file in self.files for one in file.uneven_rows(_MOST_PROBLEMS)] or more
        refuse_all(self.name, [*self.problems, *more][:_MOST_PROBLEMS])

    # ---------------------------------------------------------------------------------- targets, weights, queries

    def _targets(self, rows: _Rows, name: str) -> np.ndarray:
        y, strange = (
            numbers_in(rows.columns[name])
            if self.roles.label is None
            else self._of_label(rows.columns[name], name, self.roles.label)
        )
        missing = np.setdiff1d(np.flatnonzero(np.isnan(y)), strange)
        n_read = y.size - strange.size - missing.size
        if strange.size:
            words = _words(rows.columns[name])
            expected = "targets are numbers, higher is better" + _as_grades(words)
            two = [Remedy("target", f"{name}={word}", f"where {word!r} is to come first") for word in words]
            expected += _as_durations([str(rows.columns[name][row]) for row in strange.tolist()])
            what = ("value that is neither a number nor yes/no", "values that are neither numbers nor yes/no")
            if all(_is_whole(rows.columns[name][row]) for row in strange.tolist()):
                what = ("number that is too large", "numbers that are too large")
                expected = f"targets are numbers up to {np.finfo(float).max:.1e}"
                two = []
            remedies = two if len(two) == 2 else []
            self._bad_rows(rows, name, strange, what, expected, *remedies, few=strange.size <= n_read)
        if missing.size and not self.allow_unknown:
            unknown = Remedy("allow_unknown", True, "to read them as NaN (not known)")
            expected = "leave out rows whose target is not known"
            what = ("missing target", "missing targets")
            self._bad_rows(rows, name, missing, what, expected, unknown, few=n_read > 0)
        return y

    def _of_label(self, column: np.ndarray, name: str, label: str) -> tuple[np.ndarray, np.ndarray]:
        """1 where a column of two labels holds this one, 0 where it holds the other, NaN where missing."""
        labels = labels_in(column.tolist())
        refuse_label(self.name, name, label, labels)
        values = {one: float(one == label) for one in labels}
        return np.array([values.get(text.strip(), np.nan) for text in column.tolist()]), np.empty(
            0, dtype=np.int64
        )

    def _bad_rows(
        self,
        rows: _Rows,
        name: str,
        at: np.ndarray,
        what: tuple[str, str],
        expected: str,
        *remedies: Remedy,
        few: bool,
    ) -> None:
        """Rows to leave out, where that was asked for and they are few enough to be rows and not the column."""
        if few and self.skips:
            self.bad = np.union1d(self.bad, at)
            self.reasons.append(f"column {name!r} has {_found(rows, name, at, what)}")
            return
        skip = (Remedy("on_bad", "skip", "to leave these rows out"),) if few else ()
        self._fault(rows, name, at, what, expected, *skip, *remedies)

    def _weights(self, rows: _Rows, name: str) -> np.ndarray:
        weight, _ = numbers_in(rows.columns[name])
        wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
        if wrong.size:
            what = ("value that is not a weight", "values that are not weights")
            self._fault(rows, name, wrong, what, "expected numbers, 0 or more")
        return weight

    def _queries(self, rows: _Rows, name: str) -> np.ndarray:
        texts = rows.columns[name]
        self._require(rows, name, ("missing query", "missing queries"), "every row must belong to a query")
        distinct = {text: whole_number(text) for text in set(texts.tolist()) if text}
        if None in distinct.values():
            return texts
        return np.array([distinct.get(text, -1) for text in texts.tolist()], dtype=np.int64)

    def _require(self, rows: _Rows, name: str, what: tuple[str, str], expected: str) -> None:
        missing = np.flatnonzero(rows.columns[name] == "")
        if missing.size:
            self._bad_rows(rows, name, missing, what, expected, few=missing.size < rows.columns[name].size)

    def _fault(
        self, rows: _Rows, name: str, at: np.ndarray, what: tuple[str, str], expected: str, *remedies: Remedy
    ) -> None:
        found = _found(rows, name, at, what)
        self.problems.append(InputError(f"{self.name}: column {name!r} has {found}: {expected}", *remedies))


def _found(rows: _Rows, name: str, at: np.ndarray, what: tuple[str, str]) -> str:
    """How many cells of a column are of one or several of this kind, and the first ones."""
    shown = []
    for row in at[:_EXAMPLES].tolist():
        value = rows.columns[name][row]
        said = f" ({clip(value)})" if isinstance(value, str) and value else ""
        shown.append(rows.place(row) + said)
    where = ", ".join(shown) + (", ..." if at.size > _EXAMPLES else "")
    return f"{at.size:,} {what[at.size > 1]} ({where})"


def _words(column: np.ndarray) -> list[str]:
    """The words of a column that holds a few and no number; none otherwise."""
    if column.dtype != object:
        return []
    words = labels_in(column.tolist())
    return words if len(words) <= 8 and np.isnan(parse_numbers(words, number_style(words))).all() else []


def _as_grades(words: list[str]) -> str:
    """What to write for a few words that grade; of two labels one may be named instead."""
    if len(words) < 3:
        return ""
    grades = ", ".join(map(str, range(len(words))))
    return f". Write {grades} for {', '.join(map(clip, words))}, in their order from worst to best"


def _as_durations(texts: list[str]) -> str:
    """What to write for dates."""
    if np.isnan(parse_times(texts, True)).any():
        return ""
    return ". These are dates: write the time since the start of each row as a number, in days for example"


def _loses_digits(values: np.ndarray) -> bool:
    """Whether a column holds whole numbers of 64 bits of which float64 makes others, as ids have."""
    largest = np.abs(values).max(initial=0.0, where=np.isfinite(values))
    return bool(MOST_EXACT < largest < 2.0**64 and (np.floor(values) == values)[np.isfinite(values)].all())


def _is_whole(value: Any) -> bool:
    """Whether a cell holds a whole number, of any size."""
    return isinstance(value, str) and value.strip().lstrip("+-").isdigit()


def numbers_in(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, NaN where missing; and the rows that hold something else.

    It is one of yes and no where all its texts are, or more of them than are numbers.
    """
    if column.dtype != object:
        return column, np.flatnonzero(np.isinf(column))
    texts = [text.strip() for text in column.tolist()]
    there = np.array([not is_missing(text, among_values=True) for text in texts], dtype=bool)
    known = [text for text, one in zip(texts, there) if one]
    found = parse_numbers(known, number_style(known))
    truths = truth_values(known)
    n_truths, n_numbers = (np.count_nonzero(~np.isnan(values)) for values in (truths, found))
    if n_truths == len(known) or n_truths > n_numbers:
        found = truths
    values = np.full(column.shape[0], np.nan)
    values[there] = found
    return values, np.flatnonzero(there & ~np.isfinite(values))
