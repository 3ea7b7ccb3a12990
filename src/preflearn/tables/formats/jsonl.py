"""JSON lines: one object per line, keys are column names.

The first row names the columns. A row may leave a key out (its value is missing) but not bring a new one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..blocks import Block, read_records
from ..cells import CellError, QueryLabels, clip, refuse
from ..options import ReadOptions, Roles, check_names
from .delimited import remedies_for_words

# Rows that are looked at to see which columns hold numbers.
_LOOK_AT_ROWS = 1000


class JsonLinesFile:
    """A file of JSON lines."""

    unit = "line"

    def __init__(self, path: str, options: ReadOptions):
        options.refuse_given("table", "their columns have names", "n_features")
        options.refuse_given("JSON lines", "their rows name the columns", "columns", "delimiter", "encoding")
        self.path = path
        self.options = options
        _, first = next(self._rows(_ignore), ([], []))
        if not first:
            raise ValueError(f"{path}: the file is empty, expected one JSON object per line.")
        self._first = first[:_LOOK_AT_ROWS]
        self.names = list(first[0])
        check_names(path, self.names)

    def number_columns(self) -> list[str]:
        """Columns whose first values are numbers, true, false or missing."""
        found = []
        for name in self.names:
            there = [row[name] for row in self._first if row.get(name) is not None]
            if there and all(isinstance(value, (bool, int, float)) for value in there):
                found.append(name)
        return found

    def blocks(self, roles: Roles | None, progress: Callable[[int], None]) -> Iterator[Block]:
        assert roles is not None
        labels = QueryLabels(self.path, self.unit)
        known = set(self.names)
        for lines, rows in self._rows(progress):
            for line, row in zip(lines, rows):
                if not known.issuperset(row):
                    new = next(name for name in row if name not in known)
                    refuse(self.path, self.unit, line, f"column {clip(new)} is not in the first row")
            where = np.array(lines, dtype=np.int64)
            numbers = np.empty((len(rows), len(roles.numbers)))
            for place, name in enumerate(roles.numbers):
                numbers[:, place] = [
                    self._number(row.get(name), line, name) for line, row in zip(lines, rows)
                ]
            targets = np.empty((len(rows), len(roles.targets)))
            for place, name in enumerate(roles.targets):
                targets[:, place] = [
                    self._number(row.get(name), line, name, True) for line, row in zip(lines, rows)
                ]
            yield Block(
                path=self.path,
                features=numbers,
                lines=where,
                y=None if not roles.targets else targets if roles.many_targets else targets[:, 0],
                qid=None
                if roles.query is None
                else labels.from_values([r.get(roles.query) for r in rows], where),
                items=None if roles.item is None else self._texts(rows, lines, roles.item),
                texts={name: self._texts(rows, lines, name) for name in roles.words},
            )

    def _rows(self, progress: Callable[[int], None]) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
        """Line numbers and objects of each block that has any."""
        n_lines = 0
        decode = json.JSONDecoder(object_pairs_hook=_refuse_repeated_keys).decode
        for data in read_records(self.path, progress):
            lines, rows = [], []
            for raw in data.split(b"\n"):
                n_lines += 1
                if not raw.strip():
                    continue
                try:
                    row = decode(raw.decode("utf-8-sig" if n_lines == 1 else "utf-8").strip())
                except (ValueError, RecursionError) as error:
                    refuse(self.path, self.unit, n_lines, f"not a JSON object ({str(error).rstrip('.')})")
                if not isinstance(row, dict):
                    refuse(self.path, self.unit, n_lines, f"found {clip(raw)}, expected a JSON object")
                lines.append(n_lines)
                rows.append(row)
            if data.endswith(b"\n"):
                n_lines -= 1  # what split() finds after the last line end is not a line
            if rows:
                yield lines, rows

    def _number(self, value: Any, line: int, column: str, is_target: bool = False) -> float:
        try:
            if value is None:
                found = math.nan
            elif isinstance(value, (bool, int, float)):
                found = float(value)
            else:
                remedies = () if is_target else remedies_for_words(column)
                raise CellError(f"found {clip(json.dumps(value))}, expected a number", *remedies)
            if math.isinf(found):
                raise CellError("the value is infinite, expected a finite number")
            if math.isnan(found):
                return self.options.missing_target() if is_target else self.options.missing_feature()
            return found
        except OverflowError:
            refuse(self.path, self.unit, line, "the number is too large for a 64-bit float", column)
        except CellError as error:
            refuse(self.path, self.unit, line, error, column)

    def _texts(self, rows: list[dict[str, Any]], lines: list[int], column: str) -> np.ndarray:
        texts = np.empty(len(rows), dtype=object)
        for place, (line, row) in enumerate(zip(lines, rows)):
            value: Any = row.get(column)
            if _is_conversation(value):
                value = "\n".join(message["content"] for message in value)
            if isinstance(value, (dict, list)):
                refuse(
                    self.path, self.unit, line, f"found {clip(json.dumps(value))}, expected a text", column
                )
            texts[place] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        return texts


def _is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages, as chat models write them."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and isinstance(one.get("content"), str) for one in value)
    )


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key appears twice")
    return row


def _ignore(_: int) -> None:
    return None
