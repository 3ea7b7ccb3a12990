"""Tables with named columns: how the columns of some rows become a block, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from ...errors import InputError, Remedy
from ..blocks import Block
from ..cells import CellError, NotANumberError, QueryLabels, refuse
from ..options import ReadOptions, Roles

# Rows that are looked at to see which columns hold numbers.
LOOK_AT_ROWS = 1000


class Columns(Protocol):
    """The columns of some rows; a `CellError` has the row."""

    def numbers(self, name: str) -> np.ndarray:
        """float64, NaN where a value is missing."""

    def texts(self, name: str) -> np.ndarray:
        """Texts, "" where one is missing."""

    def queries(self, name: str, labels: QueryLabels, lines: np.ndarray) -> np.ndarray:
        """Labels of queries."""


class TableFile:
    """A file whose columns have names.

    Attributes
    ----------
    path : str
    options : ReadOptions
    unit : {"line", "row"}
        What rows are counted in.
    names : list of str
    """

    path: str
    options: ReadOptions
    unit = "line"
    names: list[str]

    def number_columns(self) -> list[str]:
        """The columns that look like numbers, by their type or their first rows."""
        raise NotImplementedError

    def rows(self, roles: Roles, progress: Callable[[int], None]) -> Iterator[tuple[np.ndarray, Columns]]:
        """(the number of each row in the file, the columns), part by part."""
        raise NotImplementedError

    def uneven_rows(self, most: int) -> Sequence[InputError]:
        """Rows with too few or too many cells, the first ones, for a file that is refused anyway."""
        return ()

    def blocks(self, roles: Roles | None, progress: Callable[[int], None]) -> Iterator[Block]:
        """The rows, in the order of the file."""
        assert roles is not None
        labels = QueryLabels(self.path, self.unit)
        for lines, columns in self.rows(roles, progress):
            cells, texts = self._read(columns, roles, lines)
            n = len(roles.numbers)
            targets = cells[n:]
            yield Block(
                path=self.path,
                features=cells[:n].T,
                lines=lines,
                y=None if not roles.targets else targets.T if roles.many_targets else targets[0],
                qid=None if roles.query is None else columns.queries(roles.query, labels, lines),
                items=None if roles.item is None else texts[roles.item],
                texts={name: texts[name] for name in roles.words},
            )

    def _read(
        self, columns: Columns, roles: Roles, lines: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Features and targets one below the other, and texts; the first row with a fault is refused."""
        cells = np.empty((len(roles.numbers) + len(roles.targets), lines.shape[0]))
        texts: dict[str, np.ndarray] = {}
        faults: list[tuple[int, str, CellError]] = []
        for place, name in enumerate((*roles.numbers, *roles.targets)):
            is_target = place >= len(roles.numbers)
            try:
                cells[place] = columns.numbers(name)
                self._fill(cells[place], is_target)
            except CellError as error:
                if isinstance(error, NotANumberError) and not is_target:
                    purpose = "to leave it out (preflearn.io.read_table reads columns of words)"
                    error = CellError(error.found, Remedy("drop", [name], purpose), row=error.row)
                faults.append((error.row or 0, name, error))
        for name in dict.fromkeys((*roles.words, *([roles.item] if roles.item is not None else ()))):
            try:
                texts[name] = columns.texts(name)
            except CellError as error:
                faults.append((error.row or 0, name, error))
        if faults:
            row, name, fault = min(faults, key=lambda fault: (fault[0], self.names.index(fault[1])))
            refuse(self.path, self.unit, int(lines[row]), fault, name)
        return cells, texts

    def _fill(self, values: np.ndarray, is_target: bool) -> None:
        """Put what the options say for missing values; refuse infinite ones."""
        infinite, missing = np.isinf(values), np.isnan(values)
        if infinite.any():
            row = int(np.argmax(infinite))
            raise CellError("the value is infinite, expected a finite number", row=row)
        if not missing.any():
            return
        try:
            values[missing] = self.options.missing_target() if is_target else self.options.missing_feature()
        except CellError as error:
            error.row = int(np.argmax(missing))
            raise


def ignore_progress(_: int) -> None:
    """Nobody watches."""
