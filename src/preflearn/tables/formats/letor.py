"""LETOR text, also known as svmlight or libsvm format with query ids.

    <target> qid:<query> <index>:<value> <index>:<value> ... # comment

Indices are whole numbers from 1, ascending inside a row; what is left out is 0. The query is a whole number and stands
right after the target, in every row or in none. Empty lines and lines that hold only a comment are skipped; the
comment after a row names its item.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InputError, Remedy
from ..blocks import Block, SparseRows, map_ahead, read_records
from ..cells import CellError, clip, number, refuse
from ..options import AUTO, ReadOptions, Roles, parsing_threads

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb"[^ \t\r\n#]*")


@dataclass(frozen=True)
class _Parsed:
    """A block as it came from the loop, lines counted from the start of the block."""

    block: Block
    has_qid: np.ndarray
    n_pairs: np.ndarray
    n_lines: int
    ends_in_line_end: bool
    fault: tuple[int, str | CellError] | None


class LetorFile:
    """A LETOR text file."""

    unit = "line"
    names = None

    def __init__(self, path: str, options: ReadOptions):
        why = "their features have numbers, not names"
        options.refuse_given("LETOR", why, "features", "drop", "columns", "delimiter", "encoding")
        if options.target not in (AUTO, None):
            raise InputError(
                f"{path}: the target of a LETOR file is the first value of a line: {{argument}} {options.target!r} "
                "does not apply",
                Remedy("target", None, "to leave it out"),
                argument="target",
            )
        if options.query not in (AUTO, None, "qid"):
            raise InputError(
                f"{path}: the query of a LETOR file is given by qid: {{argument}} {options.query!r} does not apply",
                Remedy("query", "qid", "to insist on it"),
                Remedy("query", None, "to leave it out"),
                argument="query",
            )
        if options.item not in (AUTO, None):
            raise InputError(
                f"{path}: the comments of a LETOR file name its items: item {options.item!r} does not apply",
                Remedy("item", None, "to leave the names out"),
            )
        self.path = path
        self.options = options

    def blocks(self, roles: Roles | None, progress: Callable[[int], None]) -> Iterator[Block]:
        offset = 0
        whole = _WholeFile(self.path, self.options)
        texts = _without_mark(read_records(self.path, progress))
        for parsed in map_ahead(self._parse, texts, parsing_threads(self.options.n_jobs)):
            block = replace(parsed.block, lines=parsed.block.lines + (offset + 1))
            whole.check(parsed, block.lines)
            if parsed.fault is not None:
                line, what = parsed.fault
                refuse(self.path, self.unit, offset + line + 1, what)
            offset += parsed.n_lines
            if len(block):
                yield replace(block, qid=block.qid if whole.has_qid else None)

    def _parse(self, data: bytes) -> _Parsed:
        from . import _loops as loop

        ends_in_line_end = data.endswith(b"\n")
        if not ends_in_line_end:
            data += b"\n"
        text = np.frombuffer(data, dtype=np.uint8)
        rows, pairs = loop.count_bytes(text, loop.LF, loop.COLON)
        y, qid, has_qid = np.empty(rows), np.empty(rows, np.int64), np.empty(rows, np.bool_)
        lines, n_pairs, widths = np.empty(rows, np.int64), np.empty(rows, np.int32), np.empty(rows, np.int32)
        comments = np.empty((rows, 2), np.int64)
        starts, columns, values = np.empty(rows + 1, np.int64), np.empty(pairs, np.int32), np.empty(pairs)
        odd = np.empty((rows + pairs, 4), np.int64)
        n, n_lines, n_values, n_odd, fault, at = loop.parse_letor(
            text, y, qid, has_qid, lines, n_pairs, widths, comments, starts, columns, values, odd
        )
        problem = _settle(data, odd[:n_odd], y, values, self.options)
        if problem is None and fault != loop.FINE:
            problem = n_lines, _explain(fault, data, at)
        items = None
        if self.options.item is not None:
            # A faulty comment before this fault comes first.
            n_good = n if problem is None else int(np.searchsorted(lines[:n], problem[0]))
            try:
                items = _names(data, comments[:n_good], lines)
            except CellError as error:
                assert error.row is not None
                problem = error.row, error
        block = Block(
            path=self.path,
            features=SparseRows(starts[: n + 1], columns[:n_values], values[:n_values]),
            lines=lines[:n],
            y=None if self.options.target is None else y[:n],
            qid=qid[:n],
            items=items,
            widths=widths[:n],
        )
        return _Parsed(block, has_qid[:n], n_pairs[:n], n_lines, ends_in_line_end, problem)


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Leave out the byte order mark that some editors put before UTF-8 text."""
    first = next(blocks, b"")
    yield first.removeprefix(_BYTE_ORDER_MARK)
    yield from blocks


class _WholeFile:
    """What can only be told from more than one row: are there queries, and is the last row whole?"""

    def __init__(self, path: str, options: ReadOptions):
        self.path = path
        self.wanted = options.query
        self.has_qid: bool | None = None if options.query is not None else False
        self.first_line = 0
        self.pairs: set[int] = set()
        self.n_rows = 0

    def check(self, parsed: _Parsed, lines: np.ndarray) -> None:
        """Look at the rows before a fault, so that the first fault of the file is the one reported."""
        n_rows = lines.shape[0]
        if parsed.fault is not None:
            n_rows = int(np.searchsorted(parsed.block.lines, parsed.fault[0]))
        if not n_rows:
            return
        self._check_queries(parsed.has_qid[:n_rows], lines)
        n_pairs = parsed.n_pairs
        ends_in_row = not parsed.ends_in_line_end and parsed.block.lines[-1] == parsed.n_lines - 1
        if ends_in_row and parsed.fault is None:
            last = int(n_pairs[-1])
            n_pairs = n_pairs[:-1]
            self._note(n_pairs)
            # Shorter than all of at least 20 rows before it, which have one length: it was cut short.
            if self.n_rows >= 20 and len(self.pairs) == 1 and last < min(self.pairs):
                refuse(
                    self.path,
                    "line",
                    int(lines[-1]),
                    f"the file ends in the middle of a row: {last} features where every row before has "
                    f"{min(self.pairs)}, and no line end. Download the file again, or end the line if it is complete",
                )
        else:
            self._note(n_pairs)

    def _note(self, n_pairs: np.ndarray) -> None:
        self.n_rows += n_pairs.size
        if n_pairs.size and len(self.pairs) < 2:
            self.pairs |= {int(n_pairs.min()), int(n_pairs.max())}

    def _check_queries(self, has_qid: np.ndarray, lines: np.ndarray) -> None:
        if self.wanted is None:
            return
        if self.has_qid is None:
            self.has_qid = bool(has_qid[0]) or self.wanted == "qid"
            self.first_line = int(lines[0])
        if bool((has_qid == self.has_qid).all()):
            return
        line = int(lines[np.argmax(has_qid != self.has_qid)])
        if self.wanted == "qid":
            what = "no qid:<query> after the target"
        elif self.has_qid:
            what = f"no qid:<query> after the target, but line {self.first_line} has one"
        else:
            what = f"a qid:<query>, but line {self.first_line} has none"
        refuse(self.path, "line", line, f"{what}. Every row must have a query, or none")


def _settle(
    data: bytes, odd: np.ndarray, y: np.ndarray, values: np.ndarray, options: ReadOptions
) -> tuple[int, str | CellError] | None:
    """Fill in the numbers that the loop left; the first fault, if any."""
    for slot, start, end, line in odd.tolist():
        try:
            text = data[start:end]
            if slot < 0:
                value = _target(text, options)
                y[-1 - slot] = value
            else:
                if not text:
                    raise CellError("no value after the colon")
                value = number(text.decode("utf-8", "replace"))
                values[slot] = options.missing_feature() if math.isnan(value) else value
        except CellError as error:
            return line, CellError(f"{_part(data, start, slot)}{error.found}", *error.remedies)
    return None


def _target(text: bytes, options: ReadOptions) -> float:
    if b":" in text:
        raise CellError(f"found {clip(text)}, expected the line to start with its target")
    value = number(text.decode("utf-8", "replace"))
    return options.missing_target() if math.isnan(value) else value


def _part(data: bytes, start: int, slot: int) -> str:
    """Which part of the row a fault is about."""
    if slot < 0:
        return "target: "
    token = max(data.rfind(blank, 0, start) for blank in (b" ", b"\t", b"\n")) + 1
    return f"feature {data[token : start - 1].decode('ascii')}: "


def _explain(fault: int, data: bytes, at: int) -> str:
    """The sentence for a fault that the loop found."""
    from . import _loops as loop

    token = _token(data, at)
    index = token.partition(b":")[0]
    if fault == loop.BAD_QUERY:
        return f"found {clip(token)}, expected qid: and a whole number"
    if fault == loop.QUERY_TOO_LARGE:
        return f"found {clip(token)}, expected a query of at most 18 digits"
    if fault == loop.INDEX_BELOW_ONE:
        return f"found {clip(token)}, but features are numbered from 1"
    if fault == loop.INDEX_NOT_ASCENDING:
        return f"found {clip(token)}, but feature numbers must ascend and {clip(index)} does not"
    if fault == loop.INDEX_TOO_LARGE:
        return f"found {clip(token)}, but the largest feature number is {loop.LARGEST_INDEX}"
    if fault == loop.STRAY_RETURN:
        return "a carriage return inside the line, expected it only before the line end"
    if fault == loop.QUERY_OUT_OF_PLACE:
        return f"found {clip(token)} among the features, expected it right after the target"
    return f"found {clip(token)}, expected <index>:<value>"


def _token(data: bytes, at: int) -> bytes:
    found = _TOKEN.match(data, at)
    return found.group() if found else b""


def _names(data: bytes, comments: np.ndarray, lines: np.ndarray) -> np.ndarray | None:
    """The comments as texts, or None where no row has one."""
    if not comments.any():
        return None
    names = np.empty(comments.shape[0], dtype=object)
    if data.isascii():
        text = data.decode("ascii")
        names[:] = [text[start:end].strip() for start, end in comments.tolist()]
        return names
    for row, (start, end) in enumerate(comments.tolist()):
        try:
            names[row] = data[start:end].decode("utf-8").strip()
        except UnicodeDecodeError:
            raise CellError("the comment is not UTF-8 text", row=int(lines[row])) from None
    return names
