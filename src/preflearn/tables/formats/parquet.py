"""Parquet tables, through pyarrow."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from ..blocks import TableFile
from ..cells import CellError, NotANumberError, QueryLabels
from ..options import ReadOptions, Roles, check_names
from ..streams import DAMAGED, compression_of, open_plain, require_arrow

# The name under which pandas stores the row labels of a table.
_ROW_LABELS = re.compile(r"__index_level_\d+__")


class ParquetTable(TableFile):
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

    def rows(self, roles: Roles, progress: Callable[[int], None]) -> Iterator[tuple[np.ndarray, _Batch]]:
        wanted = [*roles.numbers, *roles.targets, *roles.texts]
        with self._open() as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            n_bytes = sum(group.total_byte_size for group in groups)
            done = 0
            for batch in file.iter_batches(batch_size=1 << 16, columns=wanted):
                if batch.num_rows:
                    first, done = done + 1, done + batch.num_rows
                    progress(n_bytes * done // file.metadata.num_rows)
                    yield np.arange(first, done + 1), _Batch(batch)


class _Batch:
    """The columns of some rows."""

    def __init__(self, batch: Any):
        import pyarrow

        self._types = pyarrow.types
        self._columns = {
            name: column.dictionary_decode() if self._types.is_dictionary(column.type) else column
            for name, column in zip(batch.schema.names, batch.columns)
        }

    def numbers(self, name: str) -> np.ndarray:
        column = self._columns[name]
        if not (_is_numeric(column.type) or self._types.is_null(column.type)):
            raise NotANumberError(f"found values of type {column.type}, expected numbers", row=0)
        if self._types.is_boolean(column.type) or self._types.is_decimal(column.type):
            column = column.cast("float64")
        return column.to_numpy(zero_copy_only=False)

    def texts(self, name: str) -> np.ndarray:
        column = self._columns[name]
        if self._types.is_nested(column.type) or self._types.is_binary(column.type):
            raise CellError(f"found values of type {column.type}, expected texts", row=0)
        texts = np.empty(len(column), dtype=object)
        texts[:] = ["" if value is None else str(value) for value in column.to_pylist()]
        return texts

    def queries(self, name: str, labels: QueryLabels, lines: np.ndarray) -> np.ndarray:
        column = self._columns[name]
        whole = self._types.is_signed_integer(column.type) and not column.null_count
        if whole and labels.kind in (None, int):  # without a Python object for each row
            labels.kind = int
            return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return labels.from_values(column.to_pylist(), lines)


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)
