"""Runs and judgements as TREC's tools write them.

run:    query Q0 item rank score tag
qrels:  query iteration item grade
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..comparisons import encode_queries
from ..comparisons.grouping import positions_in_groups
from ..errors import InputError
from .atomic import write_whole


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
    rows = _rows(path, 6, "query Q0 item rank score tag")
    scores = _numbers(path, [row[4] for row in rows], "score")
    _refuse_twice(path, rows)
    return Run(_texts(rows, 0), _texts(rows, 2), scores, rows[0][5])


def read_qrels(path: str | os.PathLike[str]) -> Qrels:
    """Read TREC judgements.

    Parameters
    ----------
    path : path
    """
    rows = _rows(path, 4, "query iteration item grade")
    grades = _numbers(path, [row[3] for row in rows], "grade")
    _refuse_twice(path, rows)
    return Qrels(_texts(rows, 0), _texts(rows, 2), grades)


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
        lines.append(f"{_word(qid[row])} Q0 {_word(items[row])} {place} {score!r} {_word(tag)}\n")
    write_whole(path, "".join(lines))


def write_qrels(path: str | os.PathLike[str], grades: Any, qid: Any, items: Any) -> None:
    """Write grades as TREC judgements; whole grades as whole numbers.

    Parameters
    ----------
    path : path
    grades, qid, items : array-like of shape (m,)
    """
    rows = zip(np.asarray(qid).tolist(), np.asarray(items).tolist(), np.asarray(grades, dtype=float).tolist())
    text = "".join(f"{_word(query)} 0 {_word(item)} {grade:g}\n" for query, item, grade in rows)
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


def _rows(path: str | os.PathLike[str], n: int, expected: str) -> list[list[str]]:
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


def _numbers(path: Any, texts: Sequence[str], what: str) -> np.ndarray:
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


def _texts(rows: Sequence[Sequence[str]], place: int) -> np.ndarray:
    out = np.empty(len(rows), dtype=object)
    out[:] = [row[place] for row in rows]
    return out


def _word(value: Any) -> str:
    """A label without blanks, which would end the field."""
    return "_".join(str(value).split()) or "_"
