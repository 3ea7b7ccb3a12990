"""Query labels as a file gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from .cells import clip, refuse, whole_number


class QueryLabels:
    """Labels of one file, all of one kind: whole numbers, or texts.

    The first row decides, so that the labels do not depend on how the file is cut up: where it holds a whole number,
    every row must; where it does not, every label is a text, also one that looks like a number.
    """

    def __init__(self, path: str, unit: str):
        self.path = path
        self.unit = unit
        self.kind: type | None = None
        self.first = ""

    def from_texts(self, texts: np.ndarray, lines: np.ndarray) -> np.ndarray:
        """Labels of cells that do not say whether they are numbers."""
        if self.kind is None:
            self.first = texts[0]
            self.kind = str if whole_number(texts[0]) is None else int
        if self.kind is str:
            for row, text in enumerate(texts.tolist()):
                if not text:
                    self._refuse_missing(lines[row])
            return texts
        labels = np.empty(texts.shape[0], dtype=np.int64)
        previous = None
        label: int | None = None
        for row, text in enumerate(texts.tolist()):
            if text is not previous:
                previous, label = text, whole_number(text)
            if label is None:
                if not text:
                    self._refuse_missing(lines[row])
                self._refuse_kind(text, lines[row])
            labels[row] = label
        return labels

    def from_values(self, values: Sequence[Any], lines: np.ndarray) -> np.ndarray:
        """Labels of values that have a type: whole numbers or texts."""
        for row, value in enumerate(values):
            if value is None or value == "":
                self._refuse_missing(lines[row])
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                refuse(
                    self.path,
                    self.unit,
                    int(lines[row]),
                    f"the query is {clip(str(value))}, expected a whole number or a text",
                )
            if self.kind is None:
                self.kind, self.first = type(value), str(value)
            if type(value) is not self.kind or (isinstance(value, int) and abs(value) >= 10**18):
                self._refuse_kind(str(value), lines[row])
        if self.kind is int:
            return np.array(values, dtype=np.int64)
        labels = np.empty(len(values), dtype=object)
        labels[:] = values
        return labels

    def _refuse_missing(self, line: int) -> NoReturn:
        refuse(self.path, self.unit, int(line), "the query is missing. Every row must belong to a query")

    def _refuse_kind(self, text: str, line: int) -> NoReturn:
        refuse(
            self.path,
            self.unit,
            int(line),
            f"the query is {clip(text)}, but the first one is {clip(self.first)}: expected all of them to be whole "
            "numbers of at most 18 digits, or all of them texts",
        )
