"""Preferences and relations: tables of objects, and a table that names two of them in each row.

Preferences say which item is preferred to which, also as two columns of texts; relations label pairs of a row object
and a column object.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, Remedy, refuse_all, shortened
from .cells import clip
from .data import PreferenceData, RankingData, TableData
from .formats import open_file
from .options import AUTO, ReadOptions, as_paths
from .ranking import read_ranking
from .table import numbers_in, read_table

_EXAMPLES = 3
# A word in only one of many texts says nothing about the others; and words beyond this number are rare ones.
_MANY_TEXTS, _MOST_WORDS = 200, 50_000


def read_preferences(
    items: str | os.PathLike[str],
    pairs: str | os.PathLike[str],
    *,
    item: str = AUTO,
    better: str | None = None,
    worse: str | None = None,
    magnitude: str | None = None,
    weight: str | None = None,
    judge: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    kinds: Mapping[str, Any] | None = None,
    encoder: Any = None,
    format: str | None = None,
    pairs_format: str | None = None,
    n_jobs: int | None = None,
) -> PreferenceData:
    """Read items and the preferences between them, for ``fit_pairs``.

    Parameters
    ----------
    items : path
        One item per row: its name and its features. A table with columns of any kind, or a LETOR file whose comments
        name the items (targets and queries of such a file are left out).
    pairs : path
        A table with one preference per row: the name of the preferred item, the name of the other one.
    item : str, default="auto"
        The column of ``items`` that names the item; "auto" is the column named ``item``.
    better, worse : str, default=None
        The columns of ``pairs``; by default ``winner`` and ``loser`` or ``better`` and ``worse`` where they are there,
        and the first two otherwise.
    magnitude, weight, judge : str, default=None
        Columns of ``pairs`` that say how far, how much, and who said so.
    features, drop : list of str, default=None
        As in :func:`read_table`, for the items.
    kinds : mapping from column name to kind, default=None
        Kinds of item columns, as `preflearn.preprocessing.TableEncoder` takes them.
    encoder : fitted transformer, default=None
        What makes features of the table of items; a new `TableEncoder` otherwise.
    format, pairs_format : str, default=None
        Formats of the two files; None goes by their names.
    n_jobs : int, default=None
        As in :func:`read_ranking`.

    Returns
    -------
    PreferenceData
        With ``X``, ``pairs`` (rows of X), ``magnitude``, ``weight`` and ``judge``.

    Raises
    ------
    ValueError
        If names are not among the items, an item is named twice or preferred to itself; the message has the lines.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "items.csv").write_text("item,price,weight\\ntea,3,1\\nmilk,2,5\\n")
    >>> _ = (folder / "pairs.csv").write_text("better,worse\\nmilk,tea\\n")
    >>> data = read_preferences(folder / "items.csv", folder / "pairs.csv")
    >>> data, data.pairs
    (PreferenceData: 1 preference between 2 items, 2 features, array([[1, 0]]))
    """
    (items_path,) = as_paths(items)
    (pairs_path,) = as_paths(pairs)
    found = _read_items(items_path, format, item, features, drop, kinds, n_jobs)
    if found.item_names is None:
        raise InputError(
            f"{items_path}: the items have no names",
            Remedy("item", purpose="with the column that names them"),
        )
    rows = rows_by_name(items_path, found.item_names)
    options = ReadOptions(format=pairs_format, n_jobs=n_jobs)
    if options.format_of(pairs_path) == "letor":
        raise ValueError(
            f"{pairs_path}: preferences are read from a table (csv, tsv, jsonl, parquet), not LETOR text."
        )
    columns = _pair_columns(pairs_path, better, worse, pairs_format)
    extra = [name for name in (magnitude, weight, judge) if name is not None]
    if len({*columns, *extra}) < 2 + len(extra):
        raise ValueError(f"{pairs_path}: a column cannot have two roles ({', '.join((*columns, *extra))}).")
    table = read_table(
        pairs_path, format=pairs_format, target=None, query=None, item=None, features=[*columns, *extra],
        texts=[*columns, *([] if judge is None else [judge])], n_jobs=n_jobs,
    )  # fmt: skip
    resolved = _resolve(table, columns, rows, items_path)
    data = found if isinstance(found, RankingData) else _encoded(found, kinds, encoder)
    return PreferenceData(
        data.X,
        resolved,
        found.item_names,
        data.feature_names,
        magnitude=_numbers(table, magnitude),
        weight=_numbers(table, weight),
        judge=None if judge is None else table.columns[judge],
        encoder=data.encoder,
    )


def _read_items(
    path: str, format: str | None, item: str, features: Any, drop: Any, kinds: Any, n_jobs: Any
) -> RankingData | TableData:
    if ReadOptions(format=format).format_of(path) == "letor":
        return read_ranking(path, format=format, target=None, query=None, item=item, n_jobs=n_jobs)
    return read_table(
        path, format=format, target=None, query=None, item=item, features=features, drop=drop,
        texts=list(kinds or ()), n_jobs=n_jobs,
    )  # fmt: skip


def _encoded(table: TableData, kinds: Any, encoder: Any) -> RankingData:
    if encoder is None:
        return table.encode(kinds)
    names = encoder.get_feature_names_out().tolist()
    X = encoder.transform(table.columns)
    return RankingData(X, None, None, names, table.item_names, table.source, encoder)


def _pair_columns(path: str, better: str | None, worse: str | None, format: str | None) -> tuple[str, str]:
    if better is not None and worse is not None:
        return better, worse
    if better is not None or worse is not None:
        raise ValueError("Give both better= and worse=, or neither (the first two columns).")
    names = open_file(path, ReadOptions(format=format)).names or []
    for usual in (("winner", "loser"), ("better", "worse")):
        if {*usual} <= {*names}:
            return usual
    if len(names) < 2:
        raise ValueError(
            f"{path}: found {len(names)} column, expected two: the preferred item and the other one."
        )
    return names[0], names[1]


def _numbers(table: TableData, name: str | None) -> np.ndarray | None:
    if name is None:
        return None
    values, _ = numbers_in(table.columns[name])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        cell = table.columns[name][bad[0]]
        found = clip(cell) if isinstance(cell, str) and cell else "nothing"
        many = "" if bad.size == 1 else f", and no number in {bad.size - 1:,} more rows: leave such rows out"
        raise InputError(
            f"{table.source}: column {name!r} must hold numbers in every row: found {found} in "
            f"{table.place(int(bad[0]))}{many}"
        )
    return values


def rows_by_name(path: str, names: np.ndarray) -> dict[str, int]:
    """From the name of an item to its row; refuse items without a name, and names of two items."""
    rows: dict[str, int] = {}
    problems: list[InputError] = []
    for row, name in enumerate(names.tolist()):
        if not name:
            problems.append(InputError(f"{path}: item {row + 1} has no name"))
        elif name in rows:
            problems.append(
                InputError(f"{path}: {clip(name)} names two items, {rows[name] + 1} and {row + 1}")
            )
        rows.setdefault(name, row)
    refuse_all(path, problems[: 2 * _EXAMPLES])
    return rows


def _resolve(table: TableData, columns: tuple[str, str], rows: dict[str, int], items_path: str) -> np.ndarray:
    """Names to rows of X."""
    pairs = np.stack([_places(table, column, rows, "item", items_path) for column in columns], axis=1)
    same = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    names = table.columns[columns[0]]
    refuse_all(
        table.source,
        [
            InputError(f"{table.source}, {table.place(row)}: {clip(names[row])} is preferred to itself")
            for row in same[:_EXAMPLES]
        ],
    )
    return pairs


def _places(table: TableData, column: str, rows: dict[str, int], kind: str, source: Any) -> np.ndarray:
    """The row of each name of a column; names that are not there are refused."""
    names = table.columns[column].tolist()
    places = np.array([rows.get(name, -1) for name in names], dtype=np.int64)
    unknown = np.flatnonzero(places < 0)
    if unknown.size:
        shown = shortened([f"{clip(names[row])} ({table.place(row)})" for row in unknown], _EXAMPLES)
        what = f"is not an {kind}" if unknown.size == 1 else f"are not {kind}s"
        raise InputError(f"{table.source}, column {column!r}: {shown} {what} of {source}")
    return places


@dataclass(frozen=True, eq=False, repr=False)
class TextPreferences:
    """Texts and which of them are preferred to which.

    Attributes
    ----------
    texts : ndarray of shape (m,)
        The distinct texts.
    pairs : ndarray of shape (l, 2), int64
        ``texts[pairs[k, 0]]`` is preferred to ``texts[pairs[k, 1]]``.
    weight, judge : ndarray of shape (l,) or None
        How much, and who said so.
    n_equal : int
        Rows with the same text twice, which carry no information and are left out.
    source : str
        The file.
    prompt : ndarray of shape (l,) or None
        What the two texts answer.
    n_empty : int
        Rows with an empty text, which are left out.
    """

    texts: np.ndarray
    pairs: np.ndarray
    weight: np.ndarray | None = None
    judge: np.ndarray | None = None
    n_equal: int = 0
    source: str = ""
    prompt: np.ndarray | None = None
    n_empty: int = 0

    def __len__(self) -> int:
        return self.pairs.shape[0]

    def __repr__(self) -> str:
        return f"TextPreferences: {len(self):,} preferences between {len(self.texts):,} texts"

    @property
    def lengths(self) -> np.ndarray:
        """Characters of each text: how far "the longer one" gets is the baseline to beat."""
        return np.array([len(text) for text in self.texts.tolist()], dtype=np.float64)

    def encode(self, features: Any = None) -> PreferenceData:
        """Features of the texts, for ``fit_pairs``.

        Parameters
        ----------
        features : transformer of texts, default=None
            Anything with ``transform`` from a sequence of texts to a matrix, fitted here unless it is; words by tf-idf
            (`sklearn.feature_extraction.text.TfidfVectorizer`) by default.

        Returns
        -------
        PreferenceData
            Its ``encoder`` is the first step of a pipeline that takes texts.
        """
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        encoder = self._words() if features is None else features
        try:
            check_is_fitted(encoder)
            X = encoder.transform(self.texts)
        except NotFittedError:
            try:
                X = encoder.fit_transform(self.texts)
            except ValueError as error:
                raise InputError(f"{self.source}: no words to learn from in the texts ({error})") from error
        names = getattr(encoder, "get_feature_names_out", lambda: [f"x{k}" for k in range(X.shape[1])])()
        return PreferenceData(
            X, self.pairs, self.texts, [str(name) for name in names], None, self.weight, self.judge, encoder
        )

    def _words(self) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        rare = 2 if len(self.texts) >= _MANY_TEXTS else 1
        return TfidfVectorizer(sublinear_tf=True, min_df=rare, max_features=_MOST_WORDS)


def read_text_preferences(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    chosen: str = "chosen",
    rejected: str = "rejected",
    weight: str | None = None,
    judge: str | None = None,
    prompt: str | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    n_jobs: int | None = None,
) -> TextPreferences:
    """Read preferences between texts: two columns, the preferred text and the other one.

    Parameters
    ----------
    path : path or list of paths
        JSON lines, CSV, TSV or Parquet. In JSON lines a text may also be a list of messages with ``content``, which
        are joined.
    chosen, rejected : str
        The columns of the preferred and of the other text.
    weight, judge, prompt : str, default=None
        Columns that say how much, who said so, and what the texts answer.
    format, delimiter, encoding, n_jobs
        As in :func:`read_table`.

    Returns
    -------
    TextPreferences

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "prefs.jsonl")
    >>> lines = ['{"chosen": "Paris.", "rejected": "I do not know."}', '{"chosen": "Paris.", "rejected": "Rome."}']
    >>> _ = path.write_text("\\n".join(lines))
    >>> found = read_text_preferences(path)
    >>> found, found.pairs.tolist(), found.texts.tolist()
    (TextPreferences: 2 preferences between 3 texts, [[0, 1], [0, 2]], ['Paris.', 'I do not know.', 'Rome.'])
    """
    labels = [name for name in (chosen, rejected, judge, prompt) if name is not None]
    extra = [] if weight is None else [weight]
    if len({*labels, *extra}) < len(labels) + len(extra):
        raise ValueError(f"A column cannot have two roles ({', '.join((*labels, *extra))}).")
    table = read_table(
        path, format=format, target=None, query=None, item=None, features=[*labels, *extra], texts=labels,
        delimiter=delimiter, encoding=encoding, n_jobs=n_jobs,
    )  # fmt: skip
    sides = [table.columns[chosen], table.columns[rejected]]
    whole = np.array(
        [bool(one.strip() and other.strip()) for one, other in zip(*(side.tolist() for side in sides))]
    )
    if not whole.any():
        raise InputError(f"{table.source}: {chosen!r} or {rejected!r} is empty in every row")
    both = list(zip(*(side[whole].tolist() for side in sides)))
    places = {text: place for place, text in enumerate(dict.fromkeys(text for pair in both for text in pair))}
    pairs = np.array([[places[one], places[other]] for one, other in both], dtype=np.int64)
    differ = pairs[:, 0] != pairs[:, 1]
    if not differ.any():
        raise InputError(f"{table.source}: {chosen!r} and {rejected!r} hold the same text in every row")
    kept = np.flatnonzero(whole)[differ]
    texts = np.empty(len(places), dtype=object)
    texts[:] = list(places)
    weights = _numbers(table, weight)
    return TextPreferences(
        texts,
        pairs[differ],
        None if weights is None else weights[kept],
        None if judge is None else table.columns[judge][kept],
        int((~differ).sum()),
        table.source,
        None if prompt is None else table.columns[prompt][kept],
        int((~whole).sum()),
    )


# ------------------------------------------------------------------------------------------------ relations


@dataclass(frozen=True)
class ObjectTable:
    """Objects of one kind.

    Attributes
    ----------
    X : ndarray of shape (n, n_features) or None
        None where columns hold anything but numbers.
    names : ndarray of str, shape (n,)
    feature_names : list of str
    columns : dict of str to ndarray
        The features as they were read.
    """

    X: np.ndarray | None
    names: np.ndarray
    feature_names: list[str]
    columns: dict[str, np.ndarray]


@dataclass(frozen=True)
class RelationTables:
    """What `read_relation` found.

    Attributes
    ----------
    rows, columns : ObjectTable
    row_index, column_index : int ndarray of shape (e,)
    y : ndarray of shape (e,)
    label : str
        The column of the labels.
    """

    rows: ObjectTable
    columns: ObjectTable
    row_index: np.ndarray
    column_index: np.ndarray
    y: np.ndarray
    label: str


def read_objects(
    path: str | os.PathLike[str], *, item: str | None = None, drop: Sequence[str] = ()
) -> ObjectTable:
    """A table of objects: the first column (or ``item``) names them, all others are features.

    Parameters
    ----------
    path : path
        CSV, TSV, JSON lines or Parquet.
    item : str, optional
        The column of the names.
    drop : sequence of str, default=()
        Columns to leave out, those of them that are there.

    Returns
    -------
    ObjectTable
    """
    name = as_paths(path)[0]
    columns = _column_names(name)
    item = columns[0] if item is None else item
    left_out = [one for one in drop if one in columns]
    data = read_table(name, target=None, query=None, item=item, drop=left_out or None)
    assert data.item_names is not None  # the column of the names was given
    rows_by_name(name, data.item_names)
    numbers = all(values.dtype != object and np.isfinite(values).all() for values in data.columns.values())
    X = np.column_stack(list(data.columns.values())) if numbers else None
    return ObjectTable(X, data.item_names, list(data.columns), data.columns)


def read_relation(
    rows: str | os.PathLike[str],
    columns: str | os.PathLike[str],
    pairs: str | os.PathLike[str],
    *,
    drop: Sequence[str] = (),
) -> RelationTables:
    """Read objects of two kinds and the labels of their pairs, for ``fit_pairs_of``.

    Parameters
    ----------
    rows, columns : path
        Tables of objects, the name first; see `read_objects`.
    pairs : path
        A table with one pair per row: the name of the row object, that of the column object, the label.
    drop : sequence of str, default=()
        Columns of the objects to leave out.

    Returns
    -------
    RelationTables

    Raises
    ------
    ValueError
        If a pair names an object that is not in its table; the message gives the line.
    """
    known = {name for path in (rows, columns) for name in _column_names(as_paths(path)[0])}
    absent = [one for one in drop if one not in known]
    if absent:
        raise InputError(
            f"{{argument}} asks for {', '.join(map(repr, absent))}, in neither table", argument="drop"
        )
    sides = [read_objects(path, drop=drop) for path in (rows, columns)]
    (path,) = as_paths(pairs)
    names = _pair_names(path, 3)
    table = read_table(path, target=None, query=None, item=None, features=names, texts=names[:2])
    row_index, column_index = _object_places(table, sides, (rows, columns))
    y = _numbers(table, names[2])
    assert y is not None
    if y.size and y.min() == y.max():
        raise InputError(
            f"{path}: all labels of column {names[2]!r} are {y[0]:g}: there is no order to learn"
        )
    return RelationTables(sides[0], sides[1], row_index, column_index, y, names[2])


def read_pairs(
    pairs: str | os.PathLike[str], sides: Sequence[ObjectTable], sources: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of a table, a row object and a column object in each row, as positions in two tables of objects."""
    (path,) = as_paths(pairs)
    names = _pair_names(path, 2)
    table = read_table(path, target=None, query=None, item=None, features=names, texts=names)
    return _object_places(table, sides, sources)


def _pair_names(path: str, n: int) -> list[str]:
    """The first columns of a table of pairs."""
    names = _column_names(path)
    if len(names) < n:
        expected = ("two: row object, column object", "three: row object, column object, label")[n - 2]
        raise ValueError(f"{path}: found {len(names)} columns, expected {expected}.")
    return names[:n]


def _object_places(
    table: TableData, sides: Sequence[ObjectTable], sources: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray]:
    row, column = (
        _places(table, name, rows_by_name(str(source), side.names), "object", source)
        for name, side, source in zip(table.columns, sides, sources)
    )
    return row, column


def _column_names(path: str) -> list[str]:
    if ReadOptions().format_of(path) == "letor":
        raise ValueError(
            f"{path}: relations are read from tables (csv, tsv, jsonl, parquet), not LETOR text."
        )
    names = open_file(path, ReadOptions()).names
    if not names:
        raise ValueError(f"{path}: the table has no columns.")
    return names
