"""Partitions that hold whole queries.

A query that lies in several partitions goes to the first of them; everything else stays where it is. For rows sorted by
query that is one piece for each border between partitions, and nothing else moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..comparisons import encode_queries
from .parts import as_plain, is_array, is_frame, read_parts, require_dask


def align_queries(X: Any, y: Any = None, qid: Any = None) -> Any:
    """Move rows between partitions so that no query is in two of them.

    Parameters
    ----------
    X : Dask array or data frame
    y : Dask array, series or frame, optional
        Targets, partitioned as X is. Leave it out for a data frame that has them as a column.
    qid : Dask array or series, or str
        Query labels, partitioned as X is, or the name of a column of the data frame X.

    Returns
    -------
    collection or tuple
        For the name of a column: the data frame. Otherwise (X, y, qid). Rows keep their order inside a query and,
        except for those that move, inside a partition; numbers of rows become unknown to Dask.

    Notes
    -----
    Two passes: the labels of every partition are read now (one per query comes to this machine), and the rows move
    when the result is used.

    Examples
    --------
    >>> import dask.array as da
    >>> X, y = da.ones((6, 2), chunks=(4, 2)), da.arange(6, chunks=4)
    >>> qid = da.from_array([1, 1, 2, 2, 2, 3], chunks=4)
    >>> X, y, qid = align_queries(X, y, qid)
    >>> [part.compute().tolist() for part in qid.blocks]
    [[1, 1, 2, 2, 2], [3]]
    """
    dask = require_dask()
    if qid is None:
        raise ValueError("align_queries needs qid: the labels, or the name of a column of the data frame.")
    if isinstance(qid, str):
        if y is not None:
            raise ValueError("y is given as well as a column for qid: leave y as a column of the data frame.")
        if not is_frame(X):
            raise TypeError(
                f"qid={qid!r} names a column, but X is not a Dask data frame: found {type(X).__name__}."
            )
        if qid not in X.columns:
            raise ValueError(f"There is no column {qid!r}: found {', '.join(map(str, X.columns))}.")
        moved = _move(dask, [X.to_delayed()], list(X[qid].to_delayed()))[0]
        return _rebuild(X, moved)
    if y is None:
        raise ValueError("align_queries needs y as well as qid, so that rows and targets stay together.")
    parts = read_parts(X, y, qid)
    assert parts.qid is not None
    moved = _move(dask, [parts.X, parts.y, parts.qid], parts.qid)
    return tuple(_rebuild(old, new) for old, new in zip((X, y, qid), moved, strict=True))


def _move(dask: Any, columns: list[list[Any]], labels: list[Any]) -> list[list[Any]]:
    """The partitions of several collections with the rows moved, given the labels of the rows."""
    moves = _moves(dask.compute(*map(dask.delayed(_distinct), labels)))
    rows_to, join = dask.delayed(_rows_to), dask.delayed(_join)
    # For each new partition the old ones it takes rows from, and which; None is all of them.
    pieces: list[dict[int, Any]] = [{number: None} for number in range(len(labels))]
    for source, (leaving, targets) in moves.items():
        for target in {-1, *targets}:
            rows = rows_to(labels[source], leaving, targets, target)
            pieces[source if target < 0 else target][source] = rows
    return [
        [
            column[target]
            if len(piece) == 1 and piece[target] is None
            else join([(column[source], piece[source]) for source in sorted(piece)])
            for target, piece in enumerate(pieces)
        ]
        for column in columns
    ]


def _moves(labels: tuple[list[Any], ...]) -> dict[int, tuple[list[Any], list[int]]]:
    """For each partition that loses rows: the labels that leave it, and where each goes."""
    first: dict[Any, int] = {}
    moves: dict[int, tuple[list[Any], list[int]]] = {}
    for number, here in enumerate(labels):
        for label in here:
            owner = first.setdefault(label, number)
            if owner != number:
                leaving, targets = moves.setdefault(number, ([], []))
                leaving.append(label)
                targets.append(owner)
    return moves


def _distinct(qid: Any) -> list[Any]:
    labels = as_plain(qid)
    found = encode_queries(labels, labels.shape[0]).labels
    return [] if found is None else found.tolist()


def _rows_to(qid: Any, leaving: list[Any], targets: list[int], target: int) -> np.ndarray:
    """The rows whose query goes to a partition; those that stay for target -1."""
    labels = as_plain(qid)
    queries = encode_queries(labels, labels.shape[0])
    assert queries.labels is not None
    goes = dict(zip(leaving, targets, strict=True))
    to = np.array([goes.get(label, -1) for label in queries.labels.tolist()])
    return np.flatnonzero(to[queries.codes] == target)


def _join(pieces: list[tuple[Any, np.ndarray | None]]) -> Any:
    """Some rows of several partitions, one after the other."""
    parts = [part if rows is None else _take(part, rows) for part, rows in pieces]
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def _take(part: Any, rows: np.ndarray) -> Any:
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


def _rebuild(old: Any, parts: list[Any]) -> Any:
    if is_array(old):
        import dask.array as da

        shape = (np.nan, *old.shape[1:])
        return da.concatenate(
            [da.from_delayed(part, shape, dtype=old.dtype, meta=old._meta) for part in parts]
        )
    import dask.dataframe as dd

    return dd.from_delayed(parts, meta=old._meta, verify_meta=False)
