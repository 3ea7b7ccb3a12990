"""How large a table is, before it is read: from the metadata of Parquet files, and the first rows of others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from .blocks import read_records
from .formats import TableFile, open_file
from .formats.parquet import ParquetTable
from .options import ReadOptions, as_paths

# Bytes of a cell of numbers, and about those of a text with its share of a Python object.
_NUMBER_BYTES, _TEXT_BYTES = 8, 100


@dataclass(frozen=True)
class TableSize:
    """Rows and columns of some files.

    Attributes
    ----------
    n_rows, n_columns : int
    n_bytes : int
        Of all cells in memory, once.
    is_exact : bool
        Whether the rows were counted; otherwise they follow from the size of the files and their first rows.
    """

    n_rows: int
    n_columns: int
    n_bytes: int
    is_exact: bool


def size_of(path: Any, **options: Any) -> TableSize:
    """The size of one file or several, without reading more than a few megabytes of each.

    Parameters
    ----------
    path : path or list of paths
    **options
        Of `read_ranking`: format, columns, delimiter, encoding.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "small.csv")
    >>> _ = path.write_text("target,qid,price\\n" + "1,7,2.5\\n" * 1000)
    >>> found = size_of(path)
    >>> 950 < found.n_rows < 1050, found.n_columns
    (True, 3)
    """
    asked = ReadOptions(**options)
    parts = [_size_of(one, asked) for one in as_paths(path)]
    return TableSize(
        sum(part.n_rows for part in parts),
        max(part.n_columns for part in parts),
        sum(part.n_bytes for part in parts),
        all(part.is_exact for part in parts),
    )


def _size_of(path: str, options: ReadOptions) -> TableSize:
    file = open_file(path, options)
    if isinstance(file, ParquetTable):
        n_rows = file.count_rows()
        return _of_table(n_rows, file, True)
    n_rows, lines = _estimated_rows(path, options)
    if file.names is None:
        cells = [line.count(b":") for line in lines]
        widest = max((_last_feature(line) for line in lines), default=0)
        n_filled = sum(cells) / max(1, len(cells))
        # Sparse rows hold an index beside each value.
        per_row = min(_NUMBER_BYTES * widest, 2 * _NUMBER_BYTES * n_filled)
        return TableSize(n_rows, widest, int(n_rows * per_row), False)
    return _of_table(n_rows, cast(TableFile, file), False)


def _of_table(n_rows: int, file: TableFile, is_exact: bool) -> TableSize:
    names = file.names or []
    n_numbers = len({*file.number_columns()} & {*names})
    per_row = _NUMBER_BYTES * n_numbers + _TEXT_BYTES * (len(names) - n_numbers)
    return TableSize(n_rows, len(names), n_rows * per_row, is_exact)


def _estimated_rows(path: str, options: ReadOptions) -> tuple[int, Sequence[bytes]]:
    """About how many rows a text file has, and the first of them."""
    read = [0]

    def note(n_bytes: int) -> None:
        read[0] = n_bytes

    records = read_records(path, note)
    first = next(records, b"")
    is_all = read[0] >= os.path.getsize(path) and next(records, None) is None
    records.close()  # type: ignore[attr-defined]
    lines = [line for line in first.splitlines() if line.strip()]
    if is_all or not lines:
        return len(lines), lines
    share = read[0] / os.path.getsize(path)  # of the file as it is stored
    return int(len(lines) / max(share, 1e-9)), lines


def _last_feature(line: bytes) -> int:
    """The largest feature number of a LETOR row: features ascend."""
    cells = [cell for cell in line.split(b"#", 1)[0].split() if cell[:1].isdigit() and b":" in cell]
    return int(cells[-1].split(b":", 1)[0]) if cells else 0
