"""Preferences between items: a table of items, and a table that says which item is preferred to which."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import InputError, Remedy
from .blocks import Block
from .cells import clip, refuse
from .data import PreferenceData
from .formats import open_file
from .options import AUTO, ReadOptions, as_paths
from .ranking import read_ranking
from .roles import Roles


def read_preferences(
    items: str | os.PathLike[str],
    pairs: str | os.PathLike[str],
    *,
    item: str = AUTO,
    better: str | None = None,
    worse: str | None = None,
    magnitude: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    encode: Mapping[str, Any] | None = None,
    missing: float | None = None,
    sparse: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
    format: str | None = None,
    pairs_format: str | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> PreferenceData:
    """Read items and the preferences between them, for ``fit_pairs``.

    Parameters
    ----------
    items : path
        One item a row: its name and its features. A table, or a LETOR file whose comments name the items (targets and
        queries of such a file are left out).
    pairs : path
        A table with one preference a row: the name of the preferred item, the name of the other one.
    item : str, default="auto"
        The column of ``items`` that names the item; "auto" is the column named ``item``.
    better, worse : str, default=None
        The columns of ``pairs``; the first two by default.
    magnitude, weight : str, default=None
        Columns of ``pairs`` that say how far, and how much.
    features, drop, encode, missing, sparse, dtype, n_jobs, verbose
        As in :func:`read_ranking`, for the items.
    format, pairs_format : str, default=None
        Formats of the two files; None goes by their names.

    Returns
    -------
    PreferenceData
        With ``X``, ``pairs`` (rows of X), ``magnitude`` and ``weight``.

    Raises
    ------
    ValueError
        If a name is not among the items, an item is named twice or preferred to itself; the message has the line.

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
    data = read_ranking(
        items_path,
        format=format,
        target=None,
        query=None,
        item=item,
        features=features,
        drop=drop,
        encode=encode,
        missing=missing,
        sparse=sparse,
        dtype=dtype,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    if data.item_names is None:
        raise InputError(
            f"{items_path}: the items have no names",
            Remedy("item", purpose="with the column that names them"),
        )
    rows = rows_by_name(items_path, data.item_names)
    options = ReadOptions(format=pairs_format, n_jobs=n_jobs)
    if options.format_of(pairs_path) == "letor":
        raise ValueError(
            f"{pairs_path}: preferences are read from a table (csv, tsv, jsonl, parquet), not LETOR text."
        )
    file = open_file(pairs_path, options)
    names = file.names or []
    columns = _pair_columns(pairs_path, names, better, worse)
    extra = [name for name in (magnitude, weight) if name is not None]
    for name in (*columns, *extra):
        if name not in names:
            raise ValueError(
                f"{pairs_path}: there is no column {name!r}, found {', '.join(map(clip, names))}."
            )
    if len({*columns, *extra}) < 2 + len(extra):
        raise ValueError(f"{pairs_path}: a column cannot have two roles ({', '.join((*columns, *extra))}).")
    roles = Roles((), False, None, None, tuple(extra), columns)
    blocks = list(file.blocks(roles, lambda n_bytes: None))
    if not blocks:
        raise ValueError(f"{pairs_path}: there are no preferences in it.")
    found = np.concatenate([_resolve(block, columns, rows, file.unit, items_path) for block in blocks])
    numbers = np.concatenate([block.features for block in blocks if isinstance(block.features, np.ndarray)])
    values = {name: numbers[:, place] for place, name in enumerate(extra)}
    return PreferenceData(
        data.X,
        found,
        data.item_names,
        data.feature_names,
        magnitude=None if magnitude is None else values[magnitude],
        weight=None if weight is None else values[weight],
        encoding=data.encoding,
    )


def _pair_columns(path: str, names: Sequence[str], better: str | None, worse: str | None) -> tuple[str, str]:
    if better is not None and worse is not None:
        return better, worse
    if better is not None or worse is not None:
        raise ValueError("Give both better= and worse=, or neither (the first two columns).")
    if len(names) < 2:
        raise ValueError(
            f"{path}: found {len(names)} column, expected two: the preferred item and the other one."
        )
    return names[0], names[1]


def rows_by_name(path: str, names: np.ndarray) -> dict[str, int]:
    """From the name of an item to its row; refuse items without a name, and names of two items."""
    rows: dict[str, int] = {}
    for row, name in enumerate(names.tolist()):
        if not name:
            raise ValueError(f"{path}: item {row + 1} has no name.")
        if name in rows:
            raise ValueError(f"{path}: {clip(name)} names two items, {rows[name] + 1} and {row + 1}.")
        rows[name] = row
    return rows


def _resolve(
    block: Block, columns: tuple[str, str], rows: dict[str, int], unit: str, items_path: str
) -> np.ndarray:
    """Names to rows of X."""
    pairs = np.empty((len(block), 2), dtype=np.int64)
    for side, column in enumerate(columns):
        for place, name in enumerate(block.texts[column].tolist()):
            row = rows.get(name)
            if row is None:
                refuse(
                    block.path,
                    unit,
                    int(block.lines[place]),
                    f"{clip(name)} is not an item of {items_path}",
                    column,
                )
            pairs[place, side] = row
    same = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if same.size:
        name = block.texts[columns[0]][same[0]]
        refuse(block.path, unit, int(block.lines[same[0]]), f"{clip(name)} is preferred to itself")
    return pairs
