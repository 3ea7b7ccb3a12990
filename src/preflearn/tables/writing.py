"""Writing scores and rankings. Files appear whole or not at all; the name determines format and compression."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from scipy import sparse as sp

from ..comparisons.grouping import encode_queries
from ..errors import InputError
from .atomic import atomic_write
from .options import ReadOptions, as_paths
from .ranking import read_ranking
from .streams import open_compressing, require_arrow, split_name

_ROWS_AT_A_TIME = 4096


def write_scores(
    path: str | os.PathLike[str],
    scores: Any,
    *,
    qid: Any = None,
    item_names: Any = None,
    rank: Any = None,
    in_set: Any = None,
    query_column: str = "qid",
    item_column: str = "item",
    format: str | None = None,
) -> None:
    """Write one score per row.

    ``.csv``, ``.tsv``, ``.jsonl`` and ``.parquet`` files have the columns ``qid`` and ``item`` (where given),
    ``score``, ``rank`` and ``in_set`` (where given). ``.txt`` files hold one score per line, as SVMrank and LightGBM
    write them. Scores are written with enough precision to read back the same float64.

    Parameters
    ----------
    path : path
        The file, with ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` after its suffix to compress it.
    scores : array-like of shape (m,)
        The scores.
    qid : array-like of shape (m,), default=None
        The query of each row.
    item_names : array-like of shape (m,), default=None
        The name of each row.
    in_set : array-like of bool of shape (m,), default=None
        Whether each row is in the set of its query, as a last column ``in_set``.
    rank : array-like of shape (m,), default=None
        Positions inside the query.
    query_column, item_column : str
        Names of these columns.
    format : {"text", "csv", "tsv", "jsonl", "parquet"}, default=None
        None goes by the name of the file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "scores.csv")
    >>> write_scores(path, [0.5, -1.25], qid=[1, 1], item_names=["a", "b"])
    >>> print(path.read_text())
    qid,item,score
    1,a,0.5
    1,b,-1.25
    >>> read_scores(path)
    array([ 0.5 , -1.25])
    """
    kind = format if format is not None else _score_format(path)
    columns = _score_columns(
        kind, scores, qid, item_names, rank, in_set, query_column=query_column, item_column=item_column
    )
    with _open_for_writing(path) as file:
        _SCORE_WRITERS[kind](file, columns)


def scores_as_text(scores: Any, kind: str, **labels: Any) -> str:
    """What `write_scores` writes, with its arguments, for a format that is text."""
    file = io.BytesIO()
    _SCORE_WRITERS[kind](file, _score_columns(kind, scores, **labels))
    return file.getvalue().decode()


def _score_columns(
    kind: str,
    scores: Any,
    qid: Any = None,
    item_names: Any = None,
    rank: Any = None,
    in_set: Any = None,
    *,
    query_column: str = "qid",
    item_column: str = "item",
) -> dict[str, list[Any]]:
    if kind not in _SCORE_WRITERS:
        raise InputError(f"the format {kind!r} is not known: expected one of {', '.join(_SCORE_WRITERS)}")
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"scores must hold one score per row: found an array of shape {values.shape}.")
    _refuse_non_finite(values, "scores")
    n_rows = values.shape[0]
    labelled = qid is not None or item_names is not None or rank is not None or in_set is not None
    if kind == "text" and labelled:
        raise ValueError(
            "A text file of scores has no place for qid=, item_names=, rank= and in_set=: leave them out, or write "
            ".csv, .tsv, .jsonl or .parquet."
        )
    wanted = [
        (query_column, None if qid is None else _labels(qid, n_rows)),
        (item_column, None if item_names is None else _column(item_names, n_rows, "item_names")),
        ("score", values.tolist()),
        ("rank", None if rank is None else _column(rank, n_rows, "rank")),
        ("in_set", None if in_set is None else _column(in_set, n_rows, "in_set")),
    ]
    given = [(name, column) for name, column in wanted if column is not None]
    columns = dict(given)
    if len(columns) < len(given):
        raise ValueError(f"Two columns have the same name: found {', '.join(columns)}.")
    return columns


def read_scores(
    path: str | os.PathLike[str], *, column: str = "score", format: str | None = None
) -> np.ndarray:
    """Read one score per row from a file that :func:`write_scores` or another ranker wrote.

    Parameters
    ----------
    path : path
        A table with a column of scores, or a text file with one score per line.
    column : str, default="score"
        The column of a table.
    format : {"text", "csv", "tsv", "jsonl", "parquet"}, default=None
        None goes by the name of the file.

    Returns
    -------
    scores : ndarray of shape (m,)
    """
    (name,) = as_paths(path)
    kind = format if format is not None else _score_format(name)
    table = {"features": [column], "target": None, "query": None, "item": None, "sparse": False}
    if kind != "text":
        return read_ranking(name, format=kind, **table).X[:, 0]  # type: ignore[arg-type]
    return read_ranking(name, format="csv", columns=[column], **table).X[:, 0]  # type: ignore[arg-type]


def write_ranking(
    path: str | os.PathLike[str], X: Any, y: Any, *, qid: Any = None, item_names: Any = None
) -> None:
    """Write a LETOR text file that :func:`read_ranking` reads back unchanged.

    Parameters
    ----------
    path : path
        The file, with ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` after its name to compress it.
    X : array-like or sparse of shape (m, n)
        Features. Zeros of sparse input are left out, except one that preserves the width.
    y : array-like of shape (m,)
        Targets; NaN (not known) is written as ``NaN``.
    qid : array-like of shape (m,), default=None
        Whole numbers, the query of each row.
    item_names : array-like of shape (m,), default=None
        Names, written as comments.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "small.txt")
    >>> write_ranking(path, [[0.5, 2.0]], [1], qid=[7], item_names=["first"])
    >>> print(path.read_text())
    1 qid:7 1:0.5 2:2 # first
    """
    X, y = _matrix(X), np.asarray(y, dtype=np.float64)
    if y.shape != (X.shape[0],):
        raise ValueError(f"y must hold one target per row: found shape {y.shape} for {X.shape[0]} rows of X.")
    if np.isinf(y).any():
        raise ValueError("y must hold finite targets (or NaN for unknown ones): found an infinite one.")
    _refuse_non_finite(X.data if sp.issparse(X) else X, "X")
    queries = None if qid is None else _whole_numbers(qid, X.shape[0])
    names = None if item_names is None else _comments(item_names, X.shape[0])
    with _open_for_writing(path) as file:
        for first in range(0, X.shape[0], _ROWS_AT_A_TIME):
            last = min(first + _ROWS_AT_A_TIME, X.shape[0])
            file.write("".join(_lines(X, y, queries, names, first, last)).encode())


def _lines(X: Any, y: np.ndarray, qid: Any, names: Any, first: int, last: int) -> Iterator[str]:
    width = X.shape[1]
    for row in range(first, last):
        if sp.issparse(X):
            start, stop = X.indptr[row], X.indptr[row + 1]
            pairs = list(zip((X.indices[start:stop] + 1).tolist(), X.data[start:stop].tolist()))
            if row == 0 and (not pairs or pairs[-1][0] != width):
                pairs.append((width, 0.0))
        else:
            pairs = list(enumerate(X[row].tolist(), start=1))
        query = "" if qid is None else f" qid:{qid[row]}"
        features = "".join(f" {index}:{_shortest(value)}" for index, value in pairs)
        comment = f" # {names[row]}" if names is not None and names[row] else ""
        yield f"{_shortest(float(y[row]))}{query}{features}{comment}\n"


def _shortest(value: float) -> str:
    """The shortest text that reads back as the same float64."""
    text = repr(value)
    return "NaN" if text == "nan" else text.removesuffix(".0")


def _matrix(X: Any) -> Any:
    if sp.issparse(X):
        X = sp.csr_array(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X.astype(np.float64, copy=False)
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or not X.shape[1]:
        raise ValueError(f"X must have rows and columns: found shape {X.shape}.")
    return X


def _whole_numbers(qid: Any, n_rows: int) -> list[int]:
    values = np.asarray(_labels(qid, n_rows))
    if values.dtype.kind not in "iu":
        raise ValueError(
            "LETOR files need whole numbers as queries: found other labels. "
            "np.unique(qid, return_inverse=True)[1] numbers them, or write a table."
        )
    if values.size and max(abs(int(values.min())), abs(int(values.max()))) >= 10**18:
        raise ValueError("LETOR files need queries of at most 18 digits.")
    return values.tolist()


def _labels(qid: Any, n_rows: int) -> list[Any]:
    encode_queries(qid, n_rows)  # refuses missing labels and wrong lengths
    return _column(qid, n_rows, "qid")


def _column(values: Any, n_rows: int, name: str) -> list[Any]:
    found = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(found) != n_rows:
        raise ValueError(f"{name} must hold one value per row: found {len(found)} for {n_rows} rows.")
    return found


def _comments(item_names: Any, n_rows: int) -> list[str]:
    names = [str(name) for name in _column(item_names, n_rows, "item_names")]
    for row, name in enumerate(names):
        if name != name.strip() or "\n" in name or "\r" in name:
            raise ValueError(
                f"item_names[{row}] is {name!r}: a comment cannot hold line ends, or blanks at its ends."
            )
    return names


def _refuse_non_finite(values: np.ndarray, name: str) -> None:
    if not np.isfinite(values).all():
        place = np.argwhere(~np.isfinite(values))[0].tolist()
        raise ValueError(f"{name} must be finite: found {values[tuple(place)]} at {place}.")


@contextmanager
def _open_for_writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    _, compression = split_name(path)
    with atomic_write(path) as raw, open_compressing(raw, compression) as file:
        yield file


def _score_format(path: str | os.PathLike[str]) -> str:
    suffix, _ = split_name(path)
    if suffix in (".txt", ".scores", ".pred", ""):
        return "text"
    kind = ReadOptions().format_of(os.fspath(path))
    return "text" if kind == "letor" else kind


def _write_text(file: IO[bytes], columns: dict[str, list[Any]]) -> None:
    file.write("".join(f"{score!r}\n" for score in columns["score"]).encode())


def _write_csv(file: IO[bytes], columns: dict[str, list[Any]], delimiter: str = ",") -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values()))
    file.write(text.getvalue().encode())


def _write_tsv(file: IO[bytes], columns: dict[str, list[Any]]) -> None:
    _write_csv(file, columns, "\t")


def _write_jsonl(file: IO[bytes], columns: dict[str, list[Any]]) -> None:
    rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
    file.write("".join(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows).encode())


def _write_parquet(file: IO[bytes], columns: dict[str, list[Any]]) -> None:
    arrow = require_arrow("Writing Parquet")
    from pyarrow.parquet import write_table

    write_table(arrow.table(columns), file)


_SCORE_WRITERS = {
    "text": _write_text,
    "csv": _write_csv,
    "tsv": _write_tsv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
