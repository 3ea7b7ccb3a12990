"""Blocks regrouped into chunks that never split a query.

Only one chunk and the blocks being read are in memory. To notice a query that comes back after it has ended, the label
and the last line of every ended query are kept: 24 bytes each, and the text where labels are texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from ..errors import InputError
from .blocks import Block


def regroup(blocks: Iterable[Block], rows: int, unit: str) -> Iterator[list[Block]]:
    """Cut a stream of blocks into chunks of whole queries.

    Parameters
    ----------
    blocks : iterable of Block
    rows : int
        The most rows in a chunk; a longer query is a chunk of its own.
    unit : str
        What rows are counted in ("line", "row"), for errors.

    Yields
    ------
    chunk : list of Block

    Raises
    ------
    ValueError
        If a query comes back after another one has begun.
    """
    pending: list[Block] = []
    n_pending = 0
    ends: list[int] = []  # where queries end, counted in rows from the start of what is pending
    ended = _EndedQueries(unit)
    for block in blocks:
        ends += (_ends(pending[-1] if pending else None, block) + n_pending).tolist()
        pending.append(block)
        n_pending += len(block)
        while n_pending > rows and ends:
            fitting = bisect_right(ends, rows)
            cut = ends[max(0, fitting - 1)]
            chunk, pending = _split(pending, cut)
            ended.note(chunk)
            yield chunk
            n_pending -= cut
            ends = [end - cut for end in ends[max(1, fitting) :]]
    if pending:
        ended.note(pending)
        yield pending


def _ends(last: Block | None, block: Block) -> np.ndarray:
    """The rows of a block in front of which a query ends; without queries every row may end a chunk."""
    if block.qid is None:
        return np.arange(0 if last is not None else 1, len(block))
    ends = np.flatnonzero(block.qid[1:] != block.qid[:-1]) + 1
    if last is not None and last.qid is not None and last.qid[-1] != block.qid[0]:
        ends = np.concatenate([[0], ends])
    return ends


def _split(blocks: list[Block], n_rows: int) -> tuple[list[Block], list[Block]]:
    """The first rows, and the others."""
    head: list[Block] = []
    for place, block in enumerate(blocks):
        if n_rows < len(block):
            if n_rows:
                head.append(block.slice(0, n_rows))
            return head, [block.slice(n_rows, len(block)), *blocks[place + 1 :]]
        head.append(block)
        n_rows -= len(block)
    return head, []


class _EndedQueries:
    """The queries that have ended, sorted by label, with the line of their last row."""

    def __init__(self, unit: str):
        self.unit = unit
        self.labels: np.ndarray | None = None
        self.lines = np.empty(0, np.int64)
        self.files = np.empty(0, np.int64)
        self.paths: list[str] = []

    def note(self, chunk: list[Block]) -> None:
        """End the queries of a chunk; refuse one that has ended before."""
        if chunk[0].qid is None:
            return
        qid = np.concatenate([block.qid for block in chunk if block.qid is not None])
        lines = np.concatenate([block.lines for block in chunk])
        files = np.concatenate([np.full(len(block), self._file(block.path)) for block in chunk])
        last = np.append(np.flatnonzero(qid[1:] != qid[:-1]), qid.shape[0] - 1)
        first = np.concatenate([[0], last[:-1] + 1])

        labels = qid[last] if self.labels is None else np.concatenate([self.labels, qid[last]])
        n_before = labels.shape[0] - last.shape[0]
        end_lines = np.concatenate([self.lines, lines[last]])
        end_files = np.concatenate([self.files, files[last]])
        if n_before and labels.dtype != object and (labels[n_before - 1 : -1] < labels[n_before:]).all():
            order = np.arange(labels.shape[0])  # labels that ascend, the usual case, are in order already
        else:
            order = np.argsort(labels, kind="stable")
        again = np.flatnonzero(labels[order[1:]] == labels[order[:-1]])
        if again.size:
            # The earliest return in the file, and the end it follows.
            pick = again[np.argmin(order[again + 1])]
            before, after = order[pick], order[pick + 1]
            start = first[after - n_before]
            raise InputError(
                f"{self.paths[files[start]]}, {self.unit} {lines[start]}: query {labels[after]!s} comes back after it "
                f"ended on {self.unit} {end_lines[before]}{self._other(end_files[before], files[start])}. Rows of a "
                "query must be adjacent to be read in chunks: sort the file by query",
                in_python="or use read_ranking",
            )
        self.labels, self.lines, self.files = labels[order], end_lines[order], end_files[order]

    def _file(self, path: str) -> int:
        if not self.paths or self.paths[-1] != path:
            self.paths.append(path)
        return len(self.paths) - 1

    def _other(self, ended: int, returned: int) -> str:
        return "" if ended == returned else f" of {self.paths[ended]}"
