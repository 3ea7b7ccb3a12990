"""Small summaries that several tables use."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def count(n: int, noun: str) -> str:
    """A number with its noun.

    Examples
    --------
    >>> count(1, "draw"), count(2, "draw")
    ('1 draw', '2 draws')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def spread(values: ArrayLike) -> float | None:
    """Sample standard deviation; None of fewer than two values.

    Examples
    --------
    >>> spread([1.0, 3.0])
    1.4142135623730951
    """
    column = np.asarray(values, dtype=float)
    return float(column.std(ddof=1)) if column.size > 1 else None
