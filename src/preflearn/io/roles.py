"""Which column of a table is the target, the query, the item's name, a feature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import InputError, Remedy
from .cells import clip
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
        Columns to read as text and to encode.
    """

    targets: tuple[str, ...]
    many_targets: bool
    query: str | None
    item: str | None
    numbers: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Every column read as text: the ones to encode, then query and item."""
        labels = [name for name in (self.query, self.item) if name is not None]
        return tuple(dict.fromkeys([*self.words, *labels]))


def choose_columns(path: str, names: Sequence[str], options: ReadOptions) -> Roles:
    """Find the role of every column.

    Raises
    ------
    ValueError
        If a column that was asked for is not there, or has two roles.
    """
    targets, many = _targets(path, names, options)
    query = _label(path, names, "query", options.query)
    item = _label(path, names, "item", options.item)
    taken = [*targets, *([query] if query is not None else []), *([item] if item is not None else [])]
    _refuse_twice(path, taken, "is asked for in two roles")
    if options.features is not None:
        features = list(options.features)
        _require(path, names, features, "features")
        _refuse_twice(path, features, "is listed twice among the features")
        for name in features:
            if name in taken:
                raise InputError(
                    f"{path}: column {name!r} is among the features and is also the target, query or item"
                )
    else:
        drop = list(options.drop or ())
        _require(path, names, drop, "drop")
        for name in drop:
            if name in taken:
                raise InputError(
                    f"{path}: column {name!r} is to be dropped and is also the target, query or item"
                )
        features = [name for name in names if name not in set(taken) | set(drop)]
    for name in options.encoders:
        if name not in features:
            _require(path, names, [name], "encode")
            raise InputError(f"{path}: column {name!r} is to be encoded and is not among the features")
    numbers = tuple(name for name in features if name not in options.encoders)
    return Roles(tuple(targets), many, query, item, numbers, tuple(options.encoders))


def _targets(path: str, names: Sequence[str], options: ReadOptions) -> tuple[list[str], bool]:
    wanted = options.target
    if wanted is None:
        return [], False
    if not isinstance(wanted, str):
        _require(path, names, wanted, "target")
        if not wanted:
            raise InputError("target is an empty list: name the columns", Remedy("target", None, "for none"))
        return list(wanted), True
    if wanted != AUTO:
        _require(path, names, [wanted], "target")
        return [wanted], False
    for name in _USUAL_NAMES["target"]:
        if name in names:
            return [name], False
    raise InputError(
        f"{path}: which column is the target? There is none named 'target'",
        Remedy("target", purpose=f"with one of {_listed(names)}"),
        Remedy("target", None, "for a file without targets"),
    )


def _label(path: str, names: Sequence[str], role: str, wanted: str | None) -> str | None:
    if wanted is None:
        return None
    if wanted != AUTO:
        _require(path, names, [wanted], role)
        return wanted
    return next((name for name in _USUAL_NAMES[role] if name in names), None)


def _require(path: str, names: Sequence[str], wanted: Iterable[str], role: str) -> None:
    for name in wanted:
        if name not in names:
            raise InputError(
                f"{path}: {{argument}} asks for column {name!r}, found {_listed(names)}", argument=role
            )


def _refuse_twice(path: str, names: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{path}: column {name!r} {what}.")
        seen.add(name)


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(clip(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def check_names(path: str, names: Sequence[str]) -> None:
    """Refuse a header that cannot name columns."""
    for place, name in enumerate(names, start=1):
        if not name.strip():
            raise ValueError(
                f"{path}: column {place} has no name. Give it one (a table written with its row numbers is the usual "
                "cause: write it without them)."
            )
    _refuse_twice(path, list(names), "appears twice in the header")
