"""Small summaries that several tables use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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


def refuse_unknown(noun: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that is not among those of an experiment.

    Examples
    --------
    >>> refuse_unknown("author", ["Ann"], ["Anna", "Bea"])
    Traceback (most recent call last):
    ValueError: There is no author 'Ann': choose from Anna; Bea.
    """
    known = list(known)
    for name in given:
        if name not in known:
            raise ValueError(f"There is no {noun} {name!r}: choose from {'; '.join(known)}.")


def spread(values: ArrayLike) -> float | None:
    """Sample standard deviation; None of fewer than two values.

    Examples
    --------
    >>> spread([1.0, 3.0])
    1.4142135623730951
    """
    column = np.asarray(values, dtype=float)
    return float(column.std(ddof=1)) if column.size > 1 else None


def order_beside_published(rows: Iterable[Mapping[str, Any]], published: Mapping[str, float]) -> list[str]:
    """Which methods have the larger errors, and whether the publication, which lists them so, has the same order.

    Examples
    --------
    >>> rows = [{"method": "A", "error": 0.2}, {"method": "B", "error": 0.1}]
    >>> order_beside_published(rows, {"A": 0.4, "B": 0.3})
    ['from the largest error to the smallest: A, B', 'the published order']
    """
    order = [row["method"] for row in sorted(rows, key=lambda row: -row["error"])]
    same = order == list(published)
    return [
        "from the largest error to the smallest: " + ", ".join(order),
        "the published order" if same else "published: " + ", ".join(published),
    ]
