"""File formats: each module turns one kind of file into blocks of rows.

A format is a class that is made with a path and the options, has ``unit`` (what its rows are counted in), ``names``
(its columns, or None where features only have numbers) and ``blocks(roles, progress)``. One with named columns is a
`TableFile`, which only says what the columns of some rows hold. To add a format, write such a class, name it here and
give it its suffixes in ``preflearn.tables.options``.
"""

from __future__ import annotations

from collections.abc import Callable

from ..blocks import TableFile
from ..options import ReadOptions
from .delimited import DelimitedFile
from .jsonl import JsonLinesFile
from .letor import LetorFile
from .parquet import ParquetTable

RankingFile = LetorFile | TableFile

_CLASSES: dict[str, Callable[[str, ReadOptions], RankingFile]] = {
    "letor": LetorFile,
    "csv": DelimitedFile,
    "tsv": DelimitedFile,
    "jsonl": JsonLinesFile,
    "parquet": ParquetTable,
}


def open_file(path: str, options: ReadOptions) -> RankingFile:
    """The file behind a path, ready to be read."""
    return _CLASSES[options.format_of(path)](path, options)


__all__ = ["RankingFile", "TableFile", "open_file"]
