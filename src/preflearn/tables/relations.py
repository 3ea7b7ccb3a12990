"""Relations in files: a table of row objects, one of column objects, and one of labelled pairs that names both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from .cells import clip, refuse
from .formats import open_file
from .options import ReadOptions, Roles, as_paths
from .preferences import rows_by_name
from .table import read_table


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
    row_table, column_table = read_objects(rows, drop=drop), read_objects(columns, drop=drop)
    path = as_paths(pairs)[0]
    names = _column_names(path)
    if len(names) < 3:
        raise ValueError(
            f"{path}: found {len(names)} columns, expected three: row object, column object, label."
        )
    file = open_file(path, ReadOptions())
    roles = Roles((), False, None, None, (names[2],), (names[0], names[1]))
    blocks = list(file.blocks(roles, lambda n_bytes: None))
    if not blocks:
        raise ValueError(f"{path}: there are no pairs in it.")

    def positions(column: str, table: ObjectTable, source: Any) -> np.ndarray:
        known = rows_by_name(str(source), table.names)
        return np.concatenate([_resolve(block, column, known, file.unit, source) for block in blocks])

    row_index = positions(names[0], row_table, rows)
    column_index = positions(names[1], column_table, columns)
    y = np.concatenate([np.asarray(block.features, dtype=float)[:, 0] for block in blocks])
    return RelationTables(row_table, column_table, row_index, column_index, y, names[2])


def _column_names(path: str) -> Sequence[str]:
    options = ReadOptions()
    if options.format_of(path) == "letor":
        raise ValueError(
            f"{path}: relations are read from tables (csv, tsv, jsonl, parquet), not LETOR text."
        )
    names = open_file(path, options).names
    if not names:
        raise ValueError(f"{path}: the table has no columns.")
    return names


def _resolve(block: Any, column: str, known: dict[str, int], unit: str, source: Any) -> np.ndarray:
    """Names to positions."""
    places = np.empty(len(block), dtype=np.int64)
    for place, name in enumerate(block.texts[column].tolist()):
        if name not in known:
            line = int(block.lines[place])
            refuse(block.path, unit, line, f"{clip(name)} is not an object of {source}", column)
        places[place] = known[name]
    return places
