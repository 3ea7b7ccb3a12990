"""Tables of results as text."""

from __future__ import annotations

from collections.abc import Sequence


def align_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of a table as lines of text: the first column to the left, the others to the right.

    Examples
    --------
    >>> print(*align_columns([("ranker", "mean"), ("A", "0.75"), ("B", "0.6125")]), sep="\\n")
      ranker    mean
      A         0.75
      B       0.6125
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            f"{cell:<{w}}" if k == 0 else f"{cell:>{w}}" for k, (cell, w) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
