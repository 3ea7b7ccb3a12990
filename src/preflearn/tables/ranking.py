"""Reading rankings: all rows at once, or chunk by chunk, through one reader.

file ──► blocks of rows (any format, several threads) ──┬─► all of them          read_ranking
                                                        └─► whole queries        iter_ranking
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse as sp

from ..errors import InputError, Remedy, shortened
from ..progress import Stages
from .blocks import Block, SparseRows, read_records, regroup
from .cells import CellError, refuse
from .data import NumberedNames, RankingData
from .formats import RankingFile, TableFile, open_file
from .formats.parquet import ParquetTable
from .options import AUTO, ReadOptions, Roles, as_paths, choose_columns


def read_ranking(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    target: str | Sequence[str] | None = AUTO,
    query: str | None = AUTO,
    item: str | None = AUTO,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    missing: float | None = None,
    allow_unknown: bool = False,
    n_features: int | None = None,
    sparse: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> RankingData:
    """Read rows to rank from a file, or several files one after the other.

    Every number becomes exactly the float64 that ``float(text)`` gives. A file that cannot be read faithfully is
    refused with the line and the reason; nothing is skipped, and a delimiter or an encoding that is not the usual one
    is used with a warning. For tables with words, dates and missing
    values there is :func:`read_table`.

    Parameters
    ----------
    path : path or list of paths
        The file. Compressed files (gzip, bzip2, xz, zstd) are recognised by their content.
    format : {"letor", "csv", "tsv", "jsonl", "parquet"}, default=None
        None goes by the name of the file (``.txt`` and ``.svm`` are LETOR).
    target : str, list of str or None, default="auto"
        Target column, or columns for an m × v ``y``; None for a file without targets. "auto" is the column named
        ``target``, and the first value of a LETOR line.
    query : str or None, default="auto"
        Query column, or None for one global ranking. "auto" is the column named ``qid`` or ``query`` if there is one,
        and in LETOR files the ``qid`` if there is one; ``"qid"`` insists on it.
    item : str or None, default="auto"
        Column that names the rows; in LETOR files the comments do. None does without names.
    features, drop : list of str, default=None
        The columns to take as features in this order, or the ones to leave out; every other column by default.
    columns : list of str, default=None
        Names of the columns of a CSV or TSV file that has no header.
    delimiter : str, default=None
        What separates the cells. None: a comma in CSV, a tab in TSV files, or the mark that evidently does, with a
        warning.
    encoding : str, default=None
        Of a CSV or TSV file. None: UTF-8, or what the file evidently is (UTF-16, Windows-1252), with a warning.
    missing : float, default=None
        What stands for a missing feature (empty, NA, NaN, NULL): a number, NaN included. None refuses such files.
    allow_unknown : bool, default=False
        Read missing targets as NaN ("not known") instead of refusing them.
    n_features : int, default=None
        Width of X for LETOR files; None takes the largest feature number.
    sparse : bool or "auto", default="auto"
        Layout of X. "auto" is sparse for LETOR files where fewer than one value in ten differs from zero.
    dtype : float64 or float32, default=float64
        Type of X; targets are always float64.
    n_jobs : int, default=None
        Threads that parse LETOR files; None takes every core.
    verbose : bool, default=False
        Show a progress bar on stderr.

    Returns
    -------
    RankingData

    Raises
    ------
    ValueError
        If the file is malformed, truncated or damaged; the message has the line.

    Notes
    -----
    Text is parsed in blocks of 4 MiB; memory is at most about twice that of X.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "small.txt")
    >>> _ = path.write_text("2 qid:1 1:0.5 2:1 # first\\n0 qid:1 1:0.25 2:3 # second\\n")
    >>> data = read_ranking(path)
    >>> data
    RankingData: 2 rows in 1 query, 2 features (dense float64), targets 0 to 2
    >>> data.X, data.item_names
    (array([[0.5 , 1.  ],
           [0.25, 3.  ]]), array(['first', 'second'], dtype=object))
    """
    options = ReadOptions(
        format, target, query, item, features, drop, columns, delimiter, missing, allow_unknown, n_features, sparse,
        dtype, n_jobs, verbose, encoding,
    )  # fmt: skip
    source = _Source(as_paths(path), options)
    blocks = list(source.blocks())
    if not blocks:
        raise ValueError(f"{source.name}: there are no rows in it.")
    return _Assembler(source)(blocks)


def iter_ranking(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, rows: int = 65536, **options: Any
) -> Iterator[RankingData]:
    """Read rows to rank in chunks that never split a query, in constant memory.

    Chunks put together are what :func:`read_ranking` returns. Rows of a query must be adjacent: a query that comes back
    after it has ended is refused. Without queries (``query=None``, or a file that has none) the chunks are parts of one
    global ranking.

    Parameters
    ----------
    path : path or list of paths
    rows : int, default=65536
        The most rows in a chunk; a query that is longer is a chunk of its own.
    n_features : int, default=None
        Width of X for LETOR files. None takes the largest feature number of the first chunk, and refuses a larger one
        later on.
    sparse : bool or "auto", default="auto"
        "auto" looks at the first chunk.
    **options
        The other parameters of :func:`read_ranking`.

    Yields
    ------
    RankingData

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "small.csv")
    >>> _ = path.write_text("target,qid,price\\n1,a,3\\n0,a,5\\n1,b,2\\n")
    >>> [(len(chunk), chunk.qid[0]) for chunk in iter_ranking(path, rows=2)]
    [(2, 'a'), (1, 'b')]
    """
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise ValueError(f"rows must be a positive whole number: found {rows!r}.")
    source = _Source(as_paths(path), ReadOptions(**options))
    return _chunks(source, int(rows))


def _chunks(source: _Source, rows: int) -> Iterator[RankingData]:
    assemble = _Assembler(source)
    empty = True
    for blocks in regroup(source.blocks(), rows, source.unit):
        empty = False
        yield assemble(blocks)
    if empty:
        raise ValueError(f"{source.name}: there are no rows in it.")


@dataclass(frozen=True)
class RankingScan:
    """What a pass over a file finds, without keeping its rows.

    Attributes
    ----------
    n_rows, n_features : int
    n_queries : int or None
        Runs of rows of the same query; None where there are no queries.
    longest_query : int or None
        Rows of the longest run.
    """

    n_rows: int
    n_features: int
    n_queries: int | None
    longest_query: int | None


def scan_ranking(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any
) -> RankingScan:
    """Count rows, queries and features in one pass of constant memory.

    Parameters
    ----------
    path : path or list of paths
    **options
        As for :func:`read_ranking`.

    Returns
    -------
    RankingScan

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "small.txt")
    >>> _ = path.write_text("2 qid:1 1:0.5 9:1\\n0 qid:1 1:0.25\\n")
    >>> scan_ranking(path)
    RankingScan(n_rows=2, n_features=9, n_queries=1, longest_query=2)
    """
    source = _Source(as_paths(path), ReadOptions(**options))
    n_rows = n_features = 0
    previous: Any = None
    n_runs = longest = current = 0
    has_queries = False
    for block in source.blocks():
        n_rows += len(block)
        n_features = max(n_features, source.n_columns if block.widths is None else int(block.widths.max()))
        if block.qid is None:
            continue
        has_queries = True
        cuts = np.flatnonzero(block.qid[1:] != block.qid[:-1]) + 1
        runs = np.diff(np.concatenate([[0], cuts, [len(block)]])).tolist()
        if n_runs and block.qid[0] == previous:
            runs[0] += current
            n_runs -= 1
        n_runs += len(runs)
        longest = max(longest, *runs)
        current, previous = runs[-1], block.qid[-1]
    return RankingScan(n_rows, n_features, n_runs if has_queries else None, longest if has_queries else None)


class _Source:
    """One file or several, as one stream of blocks."""

    def __init__(self, paths: list[str], options: ReadOptions):
        self.paths = paths
        self.name = shortened(paths, 1)
        self.options = options
        self.files: list[tuple[RankingFile, Roles | None]] = []
        for path in paths:
            file = open_file(path, options)
            roles = None if file.names is None else choose_columns(path, file.names, options)
            if roles is not None and roles.label is not None:
                raise InputError(
                    f"{path}: {{argument}} names a label, which read_table reads", argument="target"
                )
            self.files.append((file, roles))
        first, self.roles = self.files[0]
        self.unit = first.unit
        for path, (_, roles) in zip(paths, self.files):
            if roles != self.roles:
                raise ValueError(
                    f"{path}: the columns are not those of {paths[0]}. Files read together must agree."
                )

    @property
    def n_columns(self) -> int:
        """Width of X for a table."""
        assert self.roles is not None
        return len(self.roles.numbers)

    def blocks(self) -> Iterator[Block]:
        """The rows of every file in turn."""
        kind: Any = None
        sizes = [os.path.getsize(path) for path in self.paths]
        read = shortened([os.path.basename(path) for path in self.paths], 1)
        with Stages("preflearn" if self.options.verbose else None)(f"reading {read}") as stage:
            for place, (file, roles) in enumerate(self.files):

                def tell(n_bytes: int, before: int = sum(sizes[:place])) -> None:
                    stage.count(before + n_bytes, sum(sizes), "bytes")

                for block in file.blocks(roles, tell):
                    found = None if block.qid is None else block.qid.dtype
                    if kind is not None and kind[0] != found:
                        refuse(block.path, file.unit, int(block.lines[0]), _disagreement(found, kind))
                    kind = (found, block.path)
                    yield block


def _disagreement(found: np.dtype | None, before: tuple[np.dtype | None, str]) -> str:
    names = {None: "no queries", np.dtype(np.int64): "queries that are numbers"}
    return (
        f"{names.get(found, 'queries that are texts')}, but {before[1]} has "
        f"{names.get(before[0], 'queries that are texts')}. Files read together must agree"
    )


class _Assembler:
    """Blocks to data. Width and layout are settled by the first call and held."""

    def __init__(self, source: _Source):
        self.source = source
        self.options = source.options
        self.unit = source.unit
        self.dtype = np.dtype(source.options.dtype)
        self.width = source.options.n_features
        self.sparse: bool | None = None if source.options.sparse == "auto" else bool(source.options.sparse)
        self.names: Sequence[str] | None = None

    def __call__(self, blocks: list[Block]) -> RankingData:
        """Consumes the list, so that memory is given back while X is filled."""
        y = (
            None
            if blocks[0].y is None
            else np.concatenate([block.y for block in blocks if block.y is not None])
        )
        qid = None if blocks[0].qid is None else np.concatenate([b.qid for b in blocks if b.qid is not None])
        items = _join_items(blocks)
        X = self._letor_matrix(blocks) if blocks[0].widths is not None else self._table_matrix(blocks)
        self._refuse_overflow(X)
        return RankingData(X, y, qid, self._feature_names(), items, ", ".join(self.source.paths))

    def _feature_names(self) -> Sequence[str]:
        if self.names is None:
            if self.source.roles is None:
                self.names = NumberedNames(self.width or 0)
            else:
                self.names = list(self.source.roles.numbers)
        return self.names

    def _letor_matrix(self, blocks: list[Block]) -> np.ndarray | sp.csr_array:
        largest = max(int(block.widths.max()) for block in blocks if block.widths is not None)
        if self.width is None:
            self.width = max(1, largest)
        elif largest > self.width:
            self._refuse_width(blocks)
        n_rows = sum(map(len, blocks))
        pieces = [block.features for block in blocks if isinstance(block.features, SparseRows)]
        blocks.clear()
        if self.sparse is None:
            # Above that dense arithmetic is faster, although it also multiplies the zeros.
            self.sparse = sum(len(piece.values) for piece in pieces) < 0.1 * n_rows * self.width
        if self.sparse:
            matrices = [piece.matrix(self.width, self.dtype) for piece in pieces]
            return matrices[0] if len(matrices) == 1 else sp.csr_array(sp.vstack(matrices, format="csr"))
        X = np.empty((n_rows, self.width), dtype=self.dtype)
        last = n_rows
        while pieces:
            piece = pieces.pop()
            piece.matrix(self.width, self.dtype).toarray(out=X[last - len(piece) : last])
            last -= len(piece)
        return X

    def _refuse_width(self, blocks: list[Block]) -> None:
        for block in blocks:
            assert block.widths is not None
            too_wide = np.flatnonzero(block.widths > self.width)
            if too_wide.size:
                row = too_wide[0]
                found = f"feature {block.widths[row]}"
                error = (
                    CellError(f"{found}, expected none above {self.width}")
                    if self.options.n_features is not None
                    else CellError(
                        f"{found}, but the first chunk has none above {self.width}",
                        Remedy("n_features", purpose="(scan_ranking counts them)"),
                    )
                )
                refuse(block.path, self.unit, int(block.lines[row]), error)

    def _table_matrix(self, blocks: list[Block]) -> np.ndarray | sp.csr_array:
        if self.source.n_columns == 0:
            raise ValueError(f"{self.source.name}: no column is left as a feature.")
        with np.errstate(over="ignore"):  # float32 that overflows is refused below
            X = np.empty((sum(map(len, blocks)), self.source.n_columns), dtype=self.dtype)
            np.concatenate([np.asarray(block.features) for block in blocks], out=X, casting="same_kind")
        return sp.csr_array(X) if self.sparse else X

    def _refuse_overflow(self, X: np.ndarray | sp.csr_array) -> None:
        if self.dtype == np.float64:
            return
        values = X.data if sp.issparse(X) else X
        if np.isinf(values).any():
            raise ValueError(f"{self.source.name}: a value is too large for float32. Use dtype=float64.")


def _join_items(blocks: list[Block]) -> np.ndarray | None:
    if all(block.items is None for block in blocks):
        return None
    nameless = np.array("", dtype=object)
    return np.concatenate([np.broadcast_to(nameless, len(b)) if b.items is None else b.items for b in blocks])


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
    parts = [_size_of(one, ReadOptions(**options)) for one in as_paths(path)]
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
    return _of_table(n_rows, file, False)


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
