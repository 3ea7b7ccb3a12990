"""What a caller may ask of a reader, checked once and shared by every format, and the columns that answer it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from ..errors import InputError, Remedy, refuse_all, shortened
from .cells import CellError, clip
from .streams import read_encoding, split_name

AUTO = "auto"

FORMATS = ("letor", "csv", "tsv", "jsonl", "parquet")
_SUFFIXES = {
    "letor": (".txt", ".letor", ".svm", ".svmlight", ".libsvm", ".dat", ".train", ".vali", ".test"),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
}


# The names that "auto" looks for; the ones that preflearn's own files use come first.
_USUAL_NAMES = {"target": ("target",), "query": ("qid", "query"), "item": ("item",)}
# Of the two sides of a battle.
SIDES = (
    ("model_a", "model_b"),
    ("item_a", "item_b"),
    ("player_a", "player_b"),
    ("a", "b"),
    ("left", "right"),
    ("player_1", "player_2"),
    ("home", "away"),
)


@dataclass(frozen=True)
class ReadOptions:
    """The arguments of :func:`preflearn.io.read_ranking`, which documents them."""

    format: str | None = None
    target: str | Sequence[str] | None = AUTO
    query: str | None = AUTO
    item: str | None = AUTO
    features: Sequence[str] | None = None
    drop: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    delimiter: str | None = None
    missing: float | None = None
    allow_unknown: bool = False
    n_features: int | None = None
    sparse: bool | Literal["auto"] = "auto"
    dtype: Any = np.float64
    n_jobs: int | None = None
    verbose: bool = False
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise InputError(f"the format {self.format!r} is not known: expected one of {', '.join(FORMATS)}")
        for name in ("features", "drop", "columns"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list of column names: found the text {value!r}.")
        if self.features is not None and self.drop is not None:
            raise InputError("give either features (the columns to take) or drop (the columns to leave out)")
        if self.sparse not in (True, False, "auto"):
            raise ValueError(f"sparse must be True, False or 'auto': found {self.sparse!r}.")
        if np.dtype(self.dtype) not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise ValueError(f"dtype must be float64 or float32: found {self.dtype!r}.")
        if self.missing is not None and (not isinstance(self.missing, Real) or math.isinf(self.missing)):
            raise ValueError(
                f"missing must be the number that replaces a missing value (NaN included): found {self.missing!r}."
            )
        if self.n_features is not None and (
            isinstance(self.n_features, bool)
            or not isinstance(self.n_features, (int, np.integer))
            or self.n_features < 1
        ):
            raise ValueError(f"n_features must be a positive whole number: found {self.n_features!r}.")
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n'
        ):
            raise ValueError(f"delimiter must be one ASCII character: found {self.delimiter!r}.")
        if self.encoding is not None:
            read_encoding(self.encoding)
        parsing_threads(self.n_jobs)

    def format_of(self, path: str) -> str:
        """The format given, or the one that the name of the file implies."""
        if self.format is not None:
            return self.format
        suffix, _ = split_name(path)
        for name, suffixes in _SUFFIXES.items():
            if suffix in suffixes:
                return name
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder: give the name of a file, or a list of files.")
        if suffix in (".xlsx", ".xls", ".ods"):
            raise InputError(f"{path} is a spreadsheet: save its sheet as CSV")
        known = ", ".join(suffix for suffixes in _SUFFIXES.values() for suffix in suffixes)
        raise InputError(
            f"{path}: the name does not determine the format (known: {known}, each also with .gz, .bz2, .xz, .zst)",
            Remedy("format", purpose=f"with one of {', '.join(FORMATS)}"),
        )

    def refuse_given(self, kind: str, why: str, *names: str) -> None:
        """Refuse options that a format would ignore."""
        defaults = {"target": AUTO, "query": AUTO, "item": AUTO}
        for name in names:
            if getattr(self, name) != defaults.get(name):
                raise InputError(
                    f"{{argument}} does not apply to {kind} files: {why}; leave it out", argument=name
                )

    def missing_feature(self) -> float:
        """What stands for a missing feature."""
        if self.missing is None:
            raise CellError(
                "a missing value",
                Remedy("missing", 0.0, "(or another number) to fill it in"),
                Remedy("missing", math.nan, "to keep it as not known"),
            )
        return float(self.missing)

    def missing_target(self) -> float:
        """What stands for a missing target."""
        if not self.allow_unknown and self.target is not None:
            raise CellError(
                "a missing target, expected a finite number: leave out rows whose target is not known",
                Remedy("allow_unknown", True, "to read it as NaN (not known)"),
            )
        return math.nan


def parsing_threads(n_jobs: int | None) -> int:
    """How many threads parse: all cores by default, as in scikit-learn -1 means all and -2 all but one."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return available
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise ValueError(
            f"n_jobs must be a whole number other than 0, or None for all cores: found {n_jobs!r}."
        )
    return int(n_jobs) if n_jobs > 0 else max(1, available + 1 + int(n_jobs))


def as_paths(path: Any) -> list[str]:
    """One path or a sequence of paths, as texts."""
    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(paths, Sequence) or not paths:
        raise TypeError(f"Expected the path of a file or a list of paths: found {type(path).__name__}.")
    found = []
    for one in paths:
        if not isinstance(one, (str, os.PathLike)):
            raise TypeError(f"Expected the path of a file: found {type(one).__name__}.")
        text = os.fspath(one)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        found.append(text)
        if not os.path.exists(text):
            raise FileNotFoundError(f"There is no file {text}.")
        if os.path.isdir(text):
            raise IsADirectoryError(f"{text} is a folder: give the name of a file, or a list of files.")
    return found


# ------------------------------------------------------------------------------------------------ the columns


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
    label : str or None
        Of two labels in the target column the one that counts as 1.
    """

    targets: tuple[str, ...]
    many_targets: bool
    query: str | None
    item: str | None
    numbers: tuple[str, ...]
    words: tuple[str, ...] = ()
    label: str | None = None

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
    label = split_label(options.target, names)[1] if isinstance(options.target, str) else None
    return Roles(tuple(targets), many, query, item, tuple(known), label=label), problems


def split_label(target: str, names: Sequence[str]) -> tuple[str, str | None]:
    """The column, and the label where COLUMN=LABEL is asked for and no column has the whole as its name.

    Examples
    --------
    >>> split_label("outcome=died", ["age", "outcome"]), split_label("outcome=died", ["age", "outcome=died"])
    (('outcome', 'died'), ('outcome=died', None))
    """
    name, _, label = target.partition("=")
    return (name, label) if label and target not in names and name in names else (target, None)


def refuse_label(source: str, name: str, label: str, labels: Sequence[str]) -> None:
    """Refuse COLUMN=LABEL where the column does not hold two labels, this one and another."""
    if label not in labels or len(labels) > 2:
        raise InputError(
            f"{source}: {{argument}} asks for {label!r} against the other label of column {name!r}, which holds "
            f"{_listed(labels)}: expected two labels",
            argument="target",
        )


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
        return _require(path, names, [split_label(wanted, names)[0]], "target", problems), False
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


def _listed(names: Sequence[str]) -> str:
    return shortened([clip(name) for name in names])


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
