"""Rows of numbers, of a table in columns, or of a data frame: taken out and put together alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp


def as_rows(X: Any) -> Any:
    """An array of float64, a dict of columns, or a data frame as it is.

    Raises
    ------
    ValueError
        For arrays that do not have two axes, and values that are infinite or not numbers.
    """
    if isinstance(X, Mapping):
        return {str(name): _column(values) for name, values in X.items()}
    if hasattr(X, "columns"):
        return X
    try:
        rows = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X contains values that are not numbers ({error}): pass a data frame, or a mapping from names to columns."
        ) from error
    if rows.ndim != 2:
        raise ValueError(f"X has shape {rows.shape}: expected (m, n).")
    if not is_complete(rows) and np.isinf(rows).any():
        raise ValueError("X contains infinity: replace it, or mark it as missing (NaN).")
    return rows


def is_complete(rows: np.ndarray) -> bool:
    """Whether every number is finite."""
    # A sum is finite only if every term is, and is the fastest look at all of them.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(rows.sum())) or bool(np.isfinite(rows).all())


def n_rows(rows: Any) -> int:
    """The number of rows."""
    return len(next(iter(rows.values()), ())) if isinstance(rows, dict) else rows.shape[0]


def n_columns(rows: Any) -> int:
    """The number of columns."""
    return len(rows) if isinstance(rows, dict) else rows.shape[1]


def names_of(rows: Any) -> list[Any] | None:
    """The names of the columns, if they have names."""
    if isinstance(rows, dict):
        return list(rows)
    return list(rows.columns) if hasattr(rows, "columns") else None


def take(rows: Any, places: np.ndarray) -> Any:
    """Some rows, in this order."""
    if isinstance(rows, dict):
        return {name: values[places] for name, values in rows.items()}
    if isinstance(rows, np.ndarray):
        return rows[places]
    import narwhals as nw

    return nw.from_native(rows, eager_only=True)[places].to_native()


def join(parts: Sequence[Any]) -> Any:
    """Rows of one kind, one below the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    import narwhals as nw

    frames = [nw.from_native(part, eager_only=True) for part in parts]
    return nw.concat(frames, how="vertical").to_native()


def arrays_of(rows: Any) -> list[np.ndarray]:
    """The arrays that hold every value of some rows."""
    if isinstance(rows, Mapping):
        return [np.asarray(values) for values in rows.values()]
    if hasattr(rows, "columns"):
        import narwhals as nw

        return [one.to_numpy() for one in nw.from_native(rows, eager_only=True).iter_columns()]
    return [rows.toarray() if sp.issparse(rows) else np.asarray(rows)]


def _column(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values
    out = np.empty(len(values), dtype=object)
    out[:] = list(values)
    return out
