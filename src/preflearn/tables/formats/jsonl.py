"""JSON lines: one object per line, keys are column names.

The first row names the columns. A row may leave a key out (its value is missing) but not bring a new one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..blocks import LOOK_AT_ROWS, TableFile, ignore_progress, read_records
from ..cells import CellError, NotANumberError, QueryLabels, clip, refuse
from ..options import ReadOptions, Roles, check_names


class JsonLinesFile(TableFile):
    """A file of JSON lines."""

    def __init__(self, path: str, options: ReadOptions):
        options.refuse_given("table", "their columns have names", "n_features")
        options.refuse_given("JSON lines", "their rows name the columns", "columns", "delimiter", "encoding")
        self.path = path
        self.options = options
        _, first = next(self._rows(ignore_progress), ([], []))
        if not first:
            raise ValueError(f"{path}: the file is empty, expected one JSON object per line.")
        self._first = first[:LOOK_AT_ROWS]
        self.names = list(first[0])
        check_names(path, self.names)

    def number_columns(self) -> list[str]:
        found = []
        for name in self.names:
            there = [row[name] for row in self._first if row.get(name) is not None]
            if there and all(isinstance(value, (bool, int, float)) for value in there):
                found.append(name)
        return found

    def rows(self, roles: Roles, progress: Callable[[int], None]) -> Iterator[tuple[np.ndarray, _Objects]]:
        known = set(self.names)
        for lines, rows in self._rows(progress):
            for line, row in zip(lines, rows):
                if not known.issuperset(row):
                    new = next(name for name in row if name not in known)
                    refuse(self.path, self.unit, line, f"column {clip(new)} is not in the first row")
            yield np.array(lines, dtype=np.int64), _Objects(rows)

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


class _Objects:
    """The columns of some objects."""

    def __init__(self, rows: list[dict[str, Any]]):
        self._rows = rows

    def numbers(self, name: str) -> np.ndarray:
        found = np.empty(len(self._rows))
        for row, value in enumerate(self._values(name)):
            if value is not None and not isinstance(value, (bool, int, float)):
                raise NotANumberError(f"found {clip(json.dumps(value))}, expected a number", row=row)
            try:
                found[row] = math.nan if value is None else value
            except OverflowError:
                raise CellError("the number is too large for a 64-bit float", row=row) from None
        return found

    def texts(self, name: str) -> np.ndarray:
        texts = np.empty(len(self._rows), dtype=object)
        for row, value in enumerate(self._values(name)):
            if _is_conversation(value):
                value = "\n".join(message["content"] for message in value)
            if isinstance(value, (dict, list)):
                raise CellError(f"found {clip(json.dumps(value))}, expected a text", row=row)
            texts[row] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        return texts

    def queries(self, name: str, labels: QueryLabels, lines: np.ndarray) -> np.ndarray:
        return labels.from_values(self._values(name), lines)

    def _values(self, name: str) -> list[Any]:
        return [row.get(name) for row in self._rows]


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
