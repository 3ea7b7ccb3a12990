"""Texts of a column as the bytes that a data frame holds, without a Python object for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Utf8:
    """Texts in UTF-8, concatenated.

    Attributes
    ----------
    signs : ndarray of uint8
    starts : ndarray of int64, shape (texts + 1,)
        Text k is ``signs[starts[k]:starts[k + 1]]``; a missing one is empty.
    """

    signs: np.ndarray
    starts: np.ndarray

    @property
    def n_empty(self) -> int:
        return int(np.count_nonzero(self.starts[1:] == self.starts[:-1]))

    def table(self) -> np.ndarray | None:
        """The bytes as a table with a row for each text, where all have one length."""
        first, last, size = int(self.starts[0]), int(self.starts[-1]), self.starts.shape[0] - 1
        width = (last - first) // max(size, 1)
        if width == 0 or not np.array_equal(self.starts, np.arange(first, last + 1, width)):
            return None
        return self.signs[first:last].reshape(size, width)


def utf8_of(series: Any) -> Utf8 | None:
    """The bytes of a narwhals series of texts, where its frame holds them in Arrow's form; None elsewhere."""
    native = series.to_native()
    dtype = getattr(native, "dtype", None)
    if hasattr(native, "iloc") and getattr(dtype, "storage", None) != "pyarrow":
        return None
    try:
        import pyarrow as pa
    except ImportError:
        return None
    found = series.to_arrow()
    if found.null_count:
        found = found.fill_null("")
    found = found.cast(pa.large_string())
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks != 1 else found.chunk(0)
    _, starts, signs = found.buffers()
    if signs is None:
        return None
    edges = np.frombuffer(starts, dtype=np.int64)[found.offset : found.offset + len(found) + 1]
    return Utf8(np.frombuffer(signs, dtype=np.uint8), edges)
