"""Columns as a data frame of the kind that was given."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def backend_of(table: Any) -> Any:
    """What makes frames like this one; for a mapping or rows, the first data frame library that is installed."""
    import narwhals as nw

    try:
        return nw.from_native(table, eager_only=True).implementation
    except TypeError:
        return next((name for name in ("pandas", "polars", "pyarrow") if find_spec(name) is not None), None)


def frame_like(backend: Any, columns: Mapping[str, list[Any]]) -> Any:
    """A data frame of these columns; the mapping itself where no data frame library is installed."""
    import narwhals as nw

    if backend is None:
        return dict(columns)
    if isinstance(backend, str):
        import_module(backend)
    return nw.from_dict(dict(columns), backend=backend).to_native()


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """The columns of a frame that `frame_like` made, as lists."""
    import narwhals as nw

    if isinstance(frame, dict):
        return frame
    return {
        name: column.to_list() for name, column in nw.from_native(frame, eager_only=True).to_dict().items()
    }
