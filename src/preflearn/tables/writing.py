"""Files of scores and rankings, written and read: tables, LETOR text, runs and judgements as TREC's tools write them.

Files appear whole or not at all; the name determines format and compression.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
from scipy import sparse as sp

from ..comparisons.grouping import encode_queries, positions_in_groups
from ..errors import InputError
from .atomic import atomic_write, write_whole
from .options import ReadOptions, as_paths
from .ranking import read_ranking
from .streams import open_compressing, require_arrow, split_name


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
        for first in range(0, X.shape[0], 4096):
            last = min(first + 4096, X.shape[0])
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


def csv_text(head: Iterable[str], rows: Iterable[Iterable[Any]], delimiter: str = ",") -> str:
    """A table as text: the names of its columns and its rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def _write_csv(file: IO[bytes], columns: dict[str, list[Any]], delimiter: str = ",") -> None:
    file.write(csv_text(columns, zip(*columns.values()), delimiter).encode())


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


# ------------------------------------------------------------------------------------- runs and judgements of TREC
#
# run:    query Q0 item rank score tag
# qrels:  query iteration item grade


class Run(NamedTuple):
    """Scores by query and item: arrays of the same length, and the name of the system."""

    qid: np.ndarray
    items: np.ndarray
    scores: np.ndarray
    tag: str


class Qrels(NamedTuple):
    """Grades by query and item: arrays of the same length."""

    qid: np.ndarray
    items: np.ndarray
    grades: np.ndarray


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a TREC run.

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.trec")
    >>> _ = path.write_text("q1 Q0 d7 1 2.5 bm25\\nq1 Q0 d3 2 1.5 bm25\\n")
    >>> read_run(path).items.tolist(), read_run(path).tag
    (['d7', 'd3'], 'bm25')
    """
    rows = _trec_rows(path, 6, "query Q0 item rank score tag")
    scores = _trec_numbers(path, [row[4] for row in rows], "score")
    _refuse_twice(path, rows)
    return Run(_objects(rows, 0), _objects(rows, 2), scores, rows[0][5])


def read_qrels(path: str | os.PathLike[str]) -> Qrels:
    """Read TREC judgements.

    Parameters
    ----------
    path : path
    """
    rows = _trec_rows(path, 4, "query iteration item grade")
    grades = _trec_numbers(path, [row[3] for row in rows], "grade")
    _refuse_twice(path, rows)
    return Qrels(_objects(rows, 0), _objects(rows, 2), grades)


def write_run(
    path: str | os.PathLike[str], scores: Any, qid: Any, items: Any, *, tag: str = "preflearn"
) -> None:
    """Write scores as a TREC run, best first inside each query.

    Parameters
    ----------
    path : path
    scores, qid, items : array-like of shape (m,)
    tag : str, default="preflearn"
        The name of the system.
    """
    scores, qid, items = np.asarray(scores, dtype=np.float64), np.asarray(qid), np.asarray(items)
    groups = encode_queries(qid, scores.shape[0])
    ranks = positions_in_groups(scores, groups)
    order = np.lexsort((np.arange(scores.shape[0]), ranks, groups.codes))
    lines, place, before = [], 0, -1
    for row in order.tolist():
        place = 1 if groups.codes[row] != before else place + 1  # every line has a rank of its own
        before = groups.codes[row]
        score = float(scores[row])
        lines.append(
            f"{_trec_word(qid[row])} Q0 {_trec_word(items[row])} {place} {score!r} {_trec_word(tag)}\n"
        )
    write_whole(path, "".join(lines))


def write_qrels(path: str | os.PathLike[str], grades: Any, qid: Any, items: Any) -> None:
    """Write grades as TREC judgements; whole grades as whole numbers.

    Parameters
    ----------
    path : path
    grades, qid, items : array-like of shape (m,)
    """
    rows = zip(np.asarray(qid).tolist(), np.asarray(items).tolist(), np.asarray(grades, dtype=float).tolist())
    text = "".join(f"{_trec_word(query)} 0 {_trec_word(item)} {grade:g}\n" for query, item, grade in rows)
    write_whole(path, text)


class Judged(NamedTuple):
    """A run with its judgements: targets, scores and queries, row by row, and what to know about it."""

    y: np.ndarray
    scores: np.ndarray
    qid: np.ndarray
    notes: list[str]


def judge_run(run: Run, qrels: Qrels) -> Judged:
    """The items of a run with their grades: 0 where nobody judged, and judged items that the run lacks come last.

    Parameters
    ----------
    run : Run
    qrels : Qrels
    """
    grade = {(q, i): g for q, i, g in zip(qrels.qid.tolist(), qrels.items.tolist(), qrels.grades.tolist())}
    retrieved = list(zip(run.qid.tolist(), run.items.tolist()))
    known, asked = {query for query, _ in grade}, {query for query, _ in retrieved}
    if not known & asked:
        raise ValueError(
            "The run and the judgements have no query in common: are they of the same collection?"
        )
    kept = [k for k, (query, _) in enumerate(retrieved) if query in known]
    there = set(retrieved)
    lacking = [(pair, g) for pair, g in grade.items() if pair[0] in asked and pair not in there]
    last = float(run.scores.min()) - 1.0
    notes = []
    unjudged = sum(retrieved[k] not in grade for k in kept)
    for count, what in (
        (unjudged, "items of the run were not judged and count as grade 0"),
        (len(lacking), "judged items are not in the run and count as its last"),
        (len(asked - known), "queries of the run have no judgements and were left out"),
        (len(known - asked), "queries of the judgements are not in the run and were left out"),
    ):
        if count:
            notes.append(f"{count:,} {what}.")
    y = [grade.get(retrieved[k], 0.0) for k in kept] + [g for _, g in lacking]
    scores = [*run.scores[kept].tolist(), *([last] * len(lacking))]
    qid = [retrieved[k][0] for k in kept] + [query for (query, _), _ in lacking]
    return Judged(np.array(y), np.array(scores), np.array(qid, dtype=object), notes)


def _trec_rows(path: str | os.PathLike[str], n: int, expected: str) -> list[list[str]]:
    rows = []
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            cells = line.split()
            if cells and len(cells) != n:
                raise InputError(
                    f"{path}, line {number}: found {len(cells)} fields, expected {n}: {expected}"
                )
            if cells:
                rows.append(cells)
    if not rows:
        raise InputError(f"{path}: there are no rows in it, expected lines of {expected}")
    return rows


def _trec_numbers(path: Any, texts: Sequence[str], what: str) -> np.ndarray:
    out = np.empty(len(texts))
    for row, text in enumerate(texts):
        try:
            out[row] = float(text)
        except ValueError:
            out[row] = math.nan
        if not math.isfinite(out[row]):
            raise InputError(f"{path}: {what} {text!r} of row {row + 1} is not a finite number")
    return out


def _refuse_twice(path: Any, rows: Sequence[Sequence[str]]) -> None:
    seen: set[tuple[str, str]] = set()
    for row in rows:
        pair = (row[0], row[2])
        if pair in seen:
            raise InputError(f"{path}: item {pair[1]!r} of query {pair[0]!r} appears twice")
        seen.add(pair)


def _objects(rows: Sequence[Sequence[str]], place: int) -> np.ndarray:
    out = np.empty(len(rows), dtype=object)
    out[:] = [row[place] for row in rows]
    return out


def _trec_word(value: Any) -> str:
    """A label without blanks, which would end the field."""
    return "_".join(str(value).split()) or "_"
