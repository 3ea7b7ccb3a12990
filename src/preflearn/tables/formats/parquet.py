"""Parquet tables, through pyarrow."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, Any

import numpy as np

from ..blocks import Block, map_ahead, parsing_threads
from ..cells import CellError, QueryLabels, refuse
from ..options import ReadOptions, Roles, check_names
from ..streams import DAMAGED, compression_of, open_plain, require_arrow
from .delimited import remedies_for_words

_BATCH_ROWS = 1 << 16
# The name under which pandas stores the row labels of a table.
_ROW_LABELS = re.compile(r"__index_level_\d+__")


class ParquetTable:
    """A Parquet file; its rows are counted from 1."""

    unit = "row"

    def __init__(self, path: str, options: ReadOptions):
        require_arrow(f"{path}: reading Parquet")
        options.refuse_given("table", "their columns have names", "n_features")
        options.refuse_given(
            "Parquet", "they name their columns themselves", "columns", "delimiter", "encoding"
        )
        self.path = path
        self.options = options
        with self._open() as file:
            schema = file.schema_arrow
        names = list(schema.names)
        self._types = dict(zip(names, schema.types))
        self.names = [name for name in names if not _ROW_LABELS.fullmatch(name)]
        check_names(path, self.names)

    def number_columns(self) -> list[str]:
        """Columns of numbers, true and false."""
        return [name for name in self.names if _is_numeric(self._types[name])]

    def count_rows(self) -> int:
        """The rows, by the metadata of the file."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow
        from pyarrow.parquet import ParquetFile

        compression = compression_of(self.path)
        with tempfile.TemporaryFile() if compression else open(self.path, "rb") as raw:
            if compression:
                self._unpack(compression, raw)
            try:
                # Read ahead by pyarrow would keep every row group that was read until the end of the file.
                with ParquetFile(raw, pre_buffer=False, page_checksum_verification=True) as file:
                    yield file
            except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise ValueError(f"{self.path}: not a whole Parquet file ({reason[:160]}).") from error

    def _unpack(self, compression: str, raw: IO[bytes]) -> None:
        """Parquet is read from its end, so a file compressed as a whole is unpacked to the disk first."""
        try:
            with open_plain(self.path, compression) as (_, stream):
                shutil.copyfileobj(stream, raw)
        except DAMAGED as error:
            raise ValueError(
                f"{self.path}: the {compression} data are damaged or cut short ({error})."
            ) from error
        raw.seek(0)

    def blocks(self, roles: Roles | None, progress: Callable[[int], None]) -> Iterator[Block]:
        assert roles is not None
        labels = QueryLabels(self.path, self.unit)
        wanted = [*roles.numbers, *roles.targets, *roles.texts]
        with self._open() as file:
            total = max(1, file.metadata.num_rows)
            n_bytes = sum(
                file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups)
            )
            done = 0

            def convert(numbered: tuple[int, Any]) -> tuple[Block, Any]:
                return self._block(*numbered, roles)

            batches = _numbered(file.iter_batches(batch_size=_BATCH_ROWS, columns=wanted))
            for block, queries in map_ahead(convert, batches, parsing_threads(self.options.n_jobs)):
                done += len(block)
                progress(n_bytes * done // total)
                yield (
                    block
                    if queries is None
                    else replace(block, qid=self._labels(queries, block.lines, labels))
                )

    def _block(self, first: int, batch: Any, roles: Roles) -> tuple[Block, Any]:
        """The rows of a batch, and its column of queries: labels depend on the first row of the file."""
        columns = dict(zip(batch.schema.names, batch.columns))
        lines = np.arange(first, first + batch.num_rows)
        # Columns are contiguous in Parquet, so they are here: the transpose is filled row by row.
        features = np.empty((len(roles.numbers), batch.num_rows))
        for place, name in enumerate(roles.numbers):
            self._numbers(columns[name], name, lines, features[place])
        targets = np.empty((len(roles.targets), batch.num_rows))
        for place, name in enumerate(roles.targets):
            self._numbers(columns[name], name, lines, targets[place], is_target=True)
        block = Block(
            path=self.path,
            features=features.T,
            lines=lines,
            y=None if not roles.targets else targets.T if roles.many_targets else targets[0],
            items=None if roles.item is None else self._texts(columns[roles.item], lines, roles.item),
            texts={name: self._texts(columns[name], lines, name) for name in roles.words},
        )
        return block, None if roles.query is None else columns[roles.query]

    def _numbers(
        self, column: Any, name: str, lines: np.ndarray, out: np.ndarray, *, is_target: bool = False
    ) -> None:
        import pyarrow as pa

        kind = column.type
        if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            remedies = () if is_target else remedies_for_words(name)
            error = CellError(f"found values of type {kind}, expected numbers", *remedies)
            refuse(self.path, self.unit, int(lines[0]), error, name)
        out[:] = column.to_numpy(zero_copy_only=False)
        # A sum is finite only if every term is, and is the fastest look at all of them.
        with np.errstate(over="ignore"):
            if np.isfinite(out.sum()) or np.isfinite(out).all():
                return
        if np.isinf(out).any():
            line = int(lines[np.argmax(np.isinf(out))])
            refuse(self.path, self.unit, line, "the value is infinite, expected a finite number", name)
        missing = np.isnan(out)
        try:
            out[missing] = self.options.missing_target() if is_target else self.options.missing_feature()
        except CellError as error:
            refuse(self.path, self.unit, int(lines[np.argmax(missing)]), error, name)

    def _labels(self, column: Any, lines: np.ndarray, labels: QueryLabels) -> np.ndarray:
        import pyarrow as pa

        if pa.types.is_integer(column.type) and not column.null_count and labels.kind in (None, int):
            if not pa.types.is_uint64(column.type):
                labels.kind = int
                return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return labels.from_values(column.to_pylist(), lines)

    def _texts(self, column: Any, lines: np.ndarray, name: str) -> np.ndarray:
        import pyarrow as pa

        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            refuse(
                self.path,
                self.unit,
                int(lines[0]),
                f"found values of type {column.type}, expected texts",
                name,
            )
        texts = np.empty(len(column), dtype=object)
        texts[:] = ["" if value is None else str(value) for value in column.to_pylist()]
        return texts


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _numbered(batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Batches that hold rows, with the number of their first row."""
    first = 1
    for batch in batches:
        if batch.num_rows:
            yield first, batch
            first += batch.num_rows
