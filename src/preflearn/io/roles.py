"""Which column of a table is the target, the query, the item's name, a feature; and the query labels of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..errors import InputError, Remedy, refuse_all
from .cells import clip, refuse, whole_number
from .options import AUTO, ReadOptions

# The names that "auto" looks for; the ones that preflearn's own files use come first.
_USUAL_NAMES = {"target": ("target",), "query": ("qid", "query"), "item": ("item",)}


@dataclass(frozen=True)
class Roles:
    """The columns of a table by what they are for.

    Attributes
    ----------
    targets : tuple of str
        Target columns, none for a file without targets.
    many_targets : bool
        Whether y has a second axis.
    query, item : str or None
    numbers : tuple of str
        Features that are numbers, in the order of X.
    words : tuple of str
        Columns to read as text.
    """

    targets: tuple[str, ...]
    many_targets: bool
    query: str | None
    item: str | None
    numbers: tuple[str, ...]
    words: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Every column read as text: the words, then query and item."""
        labels = [name for name in (self.query, self.item) if name is not None]
        return tuple(dict.fromkeys([*self.words, *labels]))


def choose_columns(path: str, names: Sequence[str], options: ReadOptions) -> Roles:
    """Find the role of every column.

    Raises
    ------
    ValueError
        If columns that were asked for are not there, or have two roles; all of them in one message.
    """
    roles, problems = find_columns(path, names, options)
    refuse_all(path, problems)
    return roles


def find_columns(
    path: str, names: Sequence[str], options: ReadOptions, aside: Sequence[str] = ()
) -> tuple[Roles, list[InputError]]:
    """Find the role of every column that exists, and what is wrong; columns ``aside`` are not features."""
    problems: list[InputError] = []
    targets, many = _targets(path, names, options, problems)
    query = _label(path, names, "query", options.query, problems)
    item = _label(path, names, "item", options.item, problems)
    taken = [*targets, *(name for name in (query, item) if name is not None), *aside]
    _note_twice(path, taken, "is asked for in two roles", problems)
    if options.features is not None:
        features = list(options.features)
        _require(path, names, features, "features", problems)
        _note_twice(path, features, "is listed twice among the features", problems)
        clash = "is among the features and is also the target, query or item"
        given = features
    else:
        given = list(options.drop or ())
        _require(path, names, given, "drop", problems)
        features = [name for name in names if name not in {*taken, *given}]
        clash = "is to be dropped and is also the target, query or item"
    problems += [InputError(f"{path}: column {name!r} {clash}") for name in given if name in taken]
    known = [name for name in dict.fromkeys(features) if name in names and name not in taken]
    return Roles(tuple(targets), many, query, item, tuple(known)), problems


def _targets(
    path: str, names: Sequence[str], options: ReadOptions, problems: list[InputError]
) -> tuple[list[str], bool]:
    wanted = options.target
    if wanted is None:
        return [], False
    if not isinstance(wanted, str):
        if not wanted:
            problems.append(
                InputError("target is an empty list: name the columns", Remedy("target", None, "for none"))
            )
        return _require(path, names, wanted, "target", problems), True
    if wanted != AUTO:
        return _require(path, names, [wanted], "target", problems), False
    for name in _USUAL_NAMES["target"]:
        if name in names:
            return [name], False
    problems.append(
        InputError(
            f"{path}: which column is the target? No column is named 'target'",
            Remedy("target", purpose=f"with one of {_listed(names)}"),
            Remedy("target", None, "for a file without targets"),
        )
    )
    return [], False


def _label(
    path: str, names: Sequence[str], role: str, wanted: str | None, problems: list[InputError]
) -> str | None:
    if wanted is None:
        return None
    if wanted != AUTO:
        return next(iter(_require(path, names, [wanted], role, problems)), None)
    return next((name for name in _USUAL_NAMES[role] if name in names), None)


def _require(
    path: str, names: Sequence[str], wanted: Sequence[str], role: str, problems: list[InputError]
) -> list[str]:
    """Keep the names that exist; add a problem for each of the others."""
    absent = [name for name in wanted if name not in names]
    if absent:
        columns = "column" if len(absent) == 1 else "columns"
        asked = ", ".join(map(repr, absent))
        problems.append(
            InputError(
                f"{path}: {{argument}} asks for {columns} {asked}, found {_listed(names)}", argument=role
            )
        )
    return [name for name in wanted if name in names]


def _note_twice(path: str, names: Sequence[str], what: str, problems: list[InputError]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    problems += [InputError(f"{path}: column {name!r} {what}") for name in twice]


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(clip(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def check_names(path: str, names: Sequence[str]) -> None:
    """Refuse a header that cannot name columns."""
    problems = [
        InputError(
            f"{path}: column {place} has no name. Give it one (a table written with its row numbers is the usual "
            "cause: write it without them)"
        )
        for place, name in enumerate(names, start=1)
        if not name.strip()
    ]
    named = [name for name in names if name.strip()]
    _note_twice(path, named, "appears twice in the header. Rename one of them", problems)
    refuse_all(path, problems)


class QueryLabels:
    """Labels of one file, all of one kind: whole numbers, or texts.

    The first row decides, so that the labels do not depend on how the file is cut up: where it holds a whole number,
    every row must; where it does not, every label is a text, also one that looks like a number.
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
