"""Any table as a list of columns: pandas, polars, pyarrow (through narwhals), arrays, lists of rows, mappings.

A column is read into one of four forms, without deciding yet what it means: float64 numbers, booleans (as 0 and 1),
times (seconds since 1970, UTC), or texts. A missing value is NaN, or None among texts.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from numbers import Number
from typing import Any

import numpy as np
from scipy import sparse as sp

from ...numerics.namespace import refuse_repeated_columns
from ..cells import is_missing_value

NUMBER, BOOLEAN, TIME, TEXT = "number", "boolean", "time", "text"
# Up to which float64 has all whole numbers.
MOST_EXACT = 2**53


class Texts:
    """A column of texts, with its distinct values found once and only when somebody asks.

    Parameters
    ----------
    values : list
        The texts, None (or anything else that is not text) where one is missing.
    """

    def __init__(self, values: list) -> None:
        self.values: list[str | None] = _only_texts(values)

    @property
    def size(self) -> int:
        return len(self.values)

    @cached_property
    def factorised(self) -> tuple[np.ndarray, list[str]]:
        """(code of each row, -1 where missing; distinct texts)."""
        distinct = [text for text in dict.fromkeys(self.values) if text is not None]
        places: dict[str | None, int] = {text: place for place, text in enumerate(distinct)}
        places[None] = -1
        return np.fromiter(map(places.__getitem__, self.values), dtype=np.int64, count=self.size), distinct

    @cached_property
    def counts(self) -> np.ndarray:
        """Rows of each distinct text."""
        codes, distinct = self.factorised
        return count_codes(codes, len(distinct))

    def sample(self, most: int) -> list[str]:
        """Up to ``most`` texts, evenly spread over the rows."""
        return [text for text in self.values[:: max(1, -(-self.size // most))] if text is not None]


def count_codes(codes: np.ndarray, n: int) -> np.ndarray:
    """How often each of the codes 0 ... n - 1 occurs; -1 is not a code."""
    return np.bincount(codes + 1, minlength=n + 1)[1:]


def _only_texts(values: list) -> list[str | None]:
    if set(map(type, values)) <= {str, type(None)}:
        return values
    return [value if isinstance(value, str) else None for value in values]


def count_copies(columns: Iterable[Any]) -> int:
    """Rows that are equal to an earlier one in every column, missing values included.

    Examples
    --------
    >>> count_copies([np.array([1.0, np.nan, 1.0, np.nan]), ["a", "b", "a", "c"]])
    1
    """
    cells = [
        one.view(np.int64).tolist() if getattr(one, "dtype", None) == np.float64 else list(one)
        for one in columns
    ]
    rows = [hash(row) for row in zip(*cells, strict=True)]
    return len(rows) - len(set(rows))


def say_copies(columns: Iterable[Any], queries: bool) -> list[str]:
    """A note about rows that are copies, where there are any."""
    n = count_copies(columns)
    if not n:
        return []
    text = "1 row is a copy of an earlier one" if n == 1 else f"{n:,} rows are copies of earlier ones"
    why = "" if queries else ", because a model that was trained on a copy of a held-out row looks too good"
    return [f"{text} in every column: leave copies out unless they were observed separately{why}."]


@dataclass
class Column:
    """One column as it was read.

    Attributes
    ----------
    name : str
    form : {"number", "boolean", "time", "text"}
    array : ndarray of float64
        Numbers, 0 and 1, or seconds since 1970; empty for texts.
    texts : Texts or None
    labels_declared : bool
        The frame itself says that this is a category.
    note : str
        What was done to read it.
    problem : str
        Why it cannot be used, or "".
    readings : dict
        What has been read from it so far.
    whole : (values, missing) or None
        The whole numbers as they are, where float64 would make several of them one: beyond 2^53. ``values`` is an
        integer or object array with anything where ``missing`` is True.
    """

    name: str
    form: str
    array: np.ndarray
    texts: Texts | None = None
    labels_declared: bool = False
    note: str = ""
    problem: str = ""
    readings: dict = field(default_factory=dict)
    whole: tuple[np.ndarray, np.ndarray] | None = None

    def once(self, key: tuple, read: Callable[[], Any]) -> Any:
        """The result of ``read``, called once for each key: fitting and transforming look at the same values."""
        if key not in self.readings:
            self.readings[key] = read()
        return self.readings[key]

    @property
    def size(self) -> int:
        return self.array.shape[0] if self.texts is None else self.texts.size


@dataclass
class Table:
    """Columns in their order; ``named`` says whether the input itself had names."""

    columns: list[Column]
    n_rows: int
    named: bool
    problems: list[str]


def read_table(X: Any, what: str = "The table") -> Table:
    """Read a table of any supported kind.

    Raises
    ------
    TypeError
        For sparse matrices and objects that are not tables.
    ValueError
        For arrays that are not two-dimensional, and empty tables.
    """
    if sp.issparse(X):
        raise TypeError(
            f"{what} is a sparse matrix, which holds numbers already: sparse input is not supported here, pass it "
            "to the learner as it is."
        )
    if isinstance(X, np.ndarray):
        table = _from_array(X)
    elif isinstance(X, Mapping):
        table = _from_mapping(X)
    elif hasattr(X, "__array__") and not hasattr(X, "columns") and not hasattr(X, "column_names"):
        table = _from_array(np.asarray(X))
    elif isinstance(X, Sequence) and not isinstance(X, str):
        table = _from_rows(X)
    else:
        if not hasattr(
            X, "iloc"
        ):  # of pandas, columns are named by their places, and said with what else is wrong
            refuse_repeated_columns(X)
        table = _from_frame(X, what)
    for axis, size in (("sample(s)", table.n_rows), ("feature(s)", len(table.columns))):
        if size == 0:
            shape = (table.n_rows, len(table.columns))
            raise ValueError(f"{what} has 0 {axis} (shape={shape}) while a minimum of 1 is required.")
    return table


def _from_array(X: np.ndarray) -> Table:
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead. Reshape your data: X.reshape(-1, 1) if it is one column, "
            "X.reshape(1, -1) if it is one row."
        )
    if X.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected numbers, texts, booleans and dates.")
    columns = [_from_vector(f"x{j}", X[:, j]) for j in range(X.shape[1])]
    return Table(columns, X.shape[0], False, _problems(columns))


def _from_rows(X: Sequence) -> Table:
    """Rows as sequences or as mappings from names to values."""
    if X and all(isinstance(row, Mapping) for row in X):
        names = dict.fromkeys(name for row in X for name in row)
        return _from_mapping({name: [row.get(name) for row in X] for name in names})
    try:
        values = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"The rows of the table have different lengths: {error}.") from error
    if values.ndim == 2 and values.dtype.kind in "USO":
        # NumPy makes texts of the numbers in mixed rows.
        mixed = np.empty(values.shape, dtype=object)
        for i, row in enumerate(X):
            mixed[i] = list(row)
        values = mixed
    return _from_array(values)


def _from_mapping(X: Mapping) -> Table:
    columns = [
        _from_vector(str(name), values if isinstance(values, np.ndarray) else _objects(values))
        for name, values in X.items()
    ]
    sizes = Counter(column.size for column in columns)
    if len(sizes) > 1:
        usual = sizes.most_common(1)[0][0]
        odd = [f"{column.name!r} ({column.size})" for column in columns if column.size != usual]
        raise ValueError(f"The columns have different lengths: most have {usual} rows, but {', '.join(odd)}.")
    problems = _problems(columns) + _name_problems(list(map(str, X)))
    return Table(columns, columns[0].size if columns else 0, True, problems)


def _from_frame(X: Any, what: str) -> Table:
    import narwhals as nw

    names = [str(name) for name in getattr(X, "columns", [])] if hasattr(X, "iloc") else []
    doubled = _name_problems(names)
    if doubled:  # narwhals refuses such a frame; everything else that is wrong with it is still reported
        columns = [_from_vector(name, _objects(X.iloc[:, j].tolist())) for j, name in enumerate(names)]
        return Table(columns, len(X), True, doubled + _problems(columns))
    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError as error:
        raise TypeError(
            f"{what} must be a data frame (pandas, polars, pyarrow), an array, a list of rows or a mapping from names "
            f"to columns: found {type(X).__name__}."
        ) from error
    columns = [_from_series(str(series.name), series) for series in frame.iter_columns()]
    named = all(isinstance(name, str) for name in frame.columns)
    problems = _problems(columns) + _name_problems([str(name) for name in frame.columns])
    return Table(columns, frame.shape[0], named, problems)


def _from_series(name: str, series: Any) -> Column:
    import narwhals as nw

    dtype = series.dtype
    if dtype == nw.String:
        return Column(name, TEXT, np.empty(0), Texts(series.to_list()))
    if dtype in (nw.Categorical, nw.Enum):
        return _from_category(name, series)
    if dtype == nw.Decimal:
        return Column(name, NUMBER, series.cast(nw.Float64).to_numpy().astype(np.float64))
    if dtype.is_integer():
        return _from_integers(name, series)
    if dtype.is_numeric():
        return Column(name, NUMBER, _float(series.to_numpy()))
    if dtype in (nw.Datetime, nw.Date):
        return Column(name, TIME, _float(series.dt.timestamp("ms").cast(nw.Float64).to_numpy()) / 1e3)
    if dtype == nw.Duration:
        note = "durations in seconds"
        return Column(name, NUMBER, _float(series.to_numpy().astype("timedelta64[ms]")) / 1e3, note=note)
    return _from_vector(name, _objects(series.to_list()))


def _from_integers(name: str, series: Any) -> Column:
    """Missing values make floating-point numbers of integers in every frame, so these are taken apart first."""
    missing = series.is_null().to_numpy().astype(bool)
    if not missing.any():
        return _from_vector(name, series.to_numpy())
    values = series.fill_null(0).to_numpy()
    column = _from_vector(name, values if values.dtype.kind in "iu" else values.astype(np.int64))
    column.array = np.where(missing, np.nan, column.array)
    if column.whole is not None:
        column.whole = column.whole[0], missing
    return column


def _from_category(name: str, series: Any) -> Column:
    """Categories are labels, whatever their type."""
    column = _from_vector(name, _objects(series.to_list()))
    column.labels_declared = True
    return column


def _from_vector(name: str, values: np.ndarray) -> Column:
    if values.ndim != 1:
        raise ValueError(f"Column {name!r} has {values.ndim} dimensions: expected one value per row.")
    if values.dtype.kind == "b":
        return Column(name, BOOLEAN, values.astype(np.float64))
    if values.dtype.kind in "iu":
        whole = (values, np.zeros(values.shape, dtype=bool)) if _are_long(values) else None
        return Column(name, NUMBER, _float(values), whole=whole)
    if values.dtype.kind == "f":
        return Column(name, NUMBER, _float(values))
    if values.dtype.kind == "M":
        return Column(name, TIME, _float(values.astype("datetime64[ms]")) / 1e3)
    if values.dtype.kind == "m":
        seconds = _float(values.astype("timedelta64[ms]")) / 1e3
        return Column(name, NUMBER, seconds, note="durations in seconds")
    if values.dtype.kind == "U":
        return Column(name, TEXT, np.empty(0), Texts(values.tolist()))
    if values.dtype.kind == "O":
        return _from_objects(name, values.tolist())
    return _unusable(name, values.shape[0], f"values of type {values.dtype}")


def _from_objects(name: str, values: list) -> Column:
    types = set(map(type, values))
    if types <= {str, type(None)}:
        return Column(name, TEXT, np.empty(0), Texts(values))
    if types <= {float, int}:
        return Column(name, NUMBER, np.array(values, dtype=np.float64), whole=_whole(values))
    values = [None if is_missing_value(value) else value for value in values]
    types = {type(value) for value in values if value is not None}
    if all(issubclass(kind, str) for kind in types):
        return Column(name, TEXT, np.empty(0), Texts(values))
    if types <= {bool, np.bool_}:
        return Column(name, BOOLEAN, _numbers(values))
    if all(issubclass(kind, (Number, np.number, np.bool_, Decimal)) for kind in types):
        if any(issubclass(kind, (complex, np.complexfloating)) for kind in types):
            return _unusable(name, len(values), "complex numbers")
        return Column(name, NUMBER, _numbers(values), whole=_whole(values))
    if all(issubclass(kind, (datetime.date, np.datetime64)) for kind in types):
        return Column(name, TIME, np.array([_seconds(value) for value in values]))
    if all(issubclass(kind, (datetime.timedelta, np.timedelta64)) for kind in types):
        moments = np.array(values, dtype="timedelta64[ms]")
        return Column(name, NUMBER, _float(moments) / 1e3, note="durations in seconds")
    odd = [kind for kind in types if not issubclass(kind, (str, Number, np.generic, datetime.date, Decimal))]
    if odd:
        row = next(row for row, value in enumerate(values) if type(value) in odd)
        return _unusable(name, len(values), f"a {type(values[row]).__name__} in row {row}")
    texts = [None if value is None else str(value) for value in values]
    note = "mixed types (" + ", ".join(sorted(kind.__name__ for kind in types)) + ") read as text"
    return Column(name, TEXT, np.empty(0), Texts(texts), note=note)


def _are_long(values: np.ndarray) -> bool:
    """Whether some integers have more digits than float64 has."""
    return bool(values.size) and (int(values.max()) > MOST_EXACT or int(values.min()) < -MOST_EXACT)


def _whole(values: list) -> tuple[np.ndarray, np.ndarray] | None:
    """`Column.whole` of numbers as Python or NumPy objects; None where float64 has all of their digits."""
    if not any(isinstance(value, (int, np.integer)) and abs(int(value)) > MOST_EXACT for value in values):
        return None
    whole = [
        None
        if value is None or value != value
        else int(value)
        if isinstance(value, (int, np.integer)) or value == int(value)
        else float(value)
        for value in values
    ]
    return _objects([0 if value is None else value for value in whole]), np.array([v is None for v in whole])


def _unusable(name: str, size: int, found: str) -> Column:
    problem = (
        f"column {name!r} holds {found}: expected numbers, texts, booleans or dates. Convert it, or drop it with "
        f"kinds={{{name!r}: 'drop'}}"
    )
    return Column(name, NUMBER, np.full(size, np.nan), problem=problem)


def _numbers(values: list) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in values])


def _seconds(value: Any) -> float:
    if value is None:
        return np.nan
    if isinstance(value, np.datetime64):
        return float(value.astype("datetime64[ms]").astype(np.int64)) / 1e3
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return aware.timestamp()
    return (value - datetime.date(1970, 1, 1)).days * 86400.0


def _float(values: np.ndarray) -> np.ndarray:
    """float64, with NaN for NaT and None."""
    if values.dtype.kind in "mM":
        return np.where(np.isnat(values), np.nan, values.astype(np.int64))
    if values.dtype == object:
        return _numbers([None if is_missing_value(value) else value for value in values.tolist()])
    return values.astype(np.float64, copy=False)


def _objects(values: Any) -> np.ndarray:
    """One object per row, whatever they are: a list in a row is not a second axis."""
    values = list(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _problems(columns: list[Column]) -> list[str]:
    return [column.problem for column in columns if column.problem]


def _name_problems(names: list[str]) -> list[str]:
    doubled = [name for name, count in Counter(names).items() if count > 1]
    empty = [j for j, name in enumerate(names) if not name.strip()]
    problems = [
        f"column name {name!r} appears {names.count(name)} times: rename all but one" for name in doubled
    ]
    return problems + [f"column {j} has no name: give it one" for j in empty]


__all__ = [
    "BOOLEAN",
    "NUMBER",
    "TEXT",
    "TIME",
    "Column",
    "Table",
    "Texts",
    "count_codes",
    "read_table",
    "refuse_repeated_columns",
]
