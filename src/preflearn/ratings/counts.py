"""Battles counted by distinct pair and outcome, as they arrive.

The model of battles about which nothing but the two sides and the outcome is known depends on these counts alone: a
file of any size, or a service that has seen battles for years, shrinks to its distinct pairs, and ratings of the
counts are those of all battles.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from .battles import sorted_labels
from .reading import RowError, read_battles

if TYPE_CHECKING:
    from .result import Ratings

_COLUMNS = ("a", "b", "winner", "loser", "weight", "on_bad")
# What only the battles themselves can tell.
OF_ROWS = (
    *("judge", "time", "covariates", "cluster", "ranking", "margin", "half_life"),
    *("first_side", "tie_covariates", "trusted"),
)
_OUTCOMES = ("model_b", "tie", "model_a")
# Of items in a key, which holds two of them and the outcome.
_BITS = 30
# Of sums of weights, relative to the sum of the same pair and outcome.
_ROUNDING = 1e-9


class BattleCounts:
    """Counts of battles to which more can be added, and from which some can be taken out again.

    Parameters
    ----------
    **columns
        ``a``, ``b``, ``winner``, ``loser``, ``weight`` and ``on_bad``, as in `preflearn.rate`.

    Notes
    -----
    Memory and the time of `rate` grow with distinct pairs, not with battles. What is known of a battle besides, such as
    its judge or its time, cannot be counted.

    Examples
    --------
    >>> from preflearn.ratings import BattleCounts
    >>> counts = BattleCounts()
    >>> counts.add({"winner": ["x", "x"], "loser": ["y", "z"]}).add({"winner": ["y", "x"], "loser": ["x", "y"]})
    BattleCounts: 4 battles of 2 distinct pairs of 3 items
    >>> counts.rate(alpha=0.1).table["item"][0]
    'x'
    """

    def __init__(self, **columns: Any) -> None:
        unknown = [name for name in columns if name not in _COLUMNS + OF_ROWS]
        if unknown:
            expected = ", ".join(_COLUMNS)
            raise InputError(
                f"{{argument}} is not an argument here: expected {expected}", argument=unknown[0]
            )
        lost = [name for name in columns if name not in _COLUMNS]
        if lost:
            raise InputError(
                "{argument} would be lost: counts of pairs know nothing else of a battle. Rate the battles themselves",
                argument=lost[0],
            )
        self._columns = columns
        self._items: dict[Hashable, int] = {}
        self._keys: np.ndarray = np.empty(0, dtype=np.int64)
        self._counts: np.ndarray = np.empty(0)
        self._about_names: tuple[str, ...] = ()
        self._last: Ratings | None = None

    @property
    def n_battles(self) -> float:
        """Their number, or the sum of their weights."""
        return float(self._counts.sum())

    def __repr__(self) -> str:
        pairs = np.unique(self._keys >> 2)
        items = np.unique([pairs >> _BITS, pairs & ((1 << _BITS) - 1)]).size
        battles = f"{self.n_battles:,.10g} battle{'' if self.n_battles == 1 else 's'}"
        distinct = f"{pairs.size:,} distinct pair{'' if pairs.size == 1 else 's'}"
        return f"BattleCounts: {battles} of {distinct} of {items:,} items"

    def add(self, battles: Any) -> BattleCounts:
        """Count more battles: a data frame or a mapping of columns."""
        self._merge(battles, 1.0)
        return self

    def remove(self, battles: Any) -> BattleCounts:
        """Take out battles that were counted before."""
        self._merge(battles, -1.0)
        return self

    def _merge(self, battles: Any, sign: float) -> None:
        if not _n_rows(battles):
            return
        read = read_battles(battles, **self._columns)
        if self._items:
            kinds = [{isinstance(item, str) for item in items} for items in (read.items, self._items)]
            if kinds[0] != kinds[1]:
                raise InputError(
                    "Names of items are texts in one table and numbers in another, so that none would be the same: "
                    "write them alike"
                )
        known = dict(self._items)
        number = np.array([known.setdefault(item, len(known)) for item in read.items], dtype=np.int64)
        pairs = number[read.pairs]
        low = pairs[:, 0] < pairs[:, 1]
        twice = np.rint(2 * np.where(low, read.share, 1.0 - read.share)).astype(np.int64)
        keys = (((pairs.min(axis=1) << _BITS) | pairs.max(axis=1)) << 2) | twice
        distinct, which = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        n_before, which = self._keys.size, which.ravel()
        before = np.bincount(which[:n_before], self._counts, distinct.size)
        more = np.bincount(which[n_before:], read.weight, distinct.size)
        # What rounding may have made of sums of weights; whole numbers are exact.
        exact = (before == np.rint(before)) & (more == np.rint(more))
        slack = np.where(exact, 0.0, _ROUNDING * np.maximum(before, more))
        if sign < 0 and (more > before + slack).any():
            raise InputError("Battles that have not been counted cannot be taken out")
        counts = before + sign * more
        kept = counts > (slack if sign < 0 else 0.0)
        self._items, self._keys, self._counts = known, distinct[kept], counts[kept]
        self._about_names = tuple(dict.fromkeys([*self._about_names, *read.about_names]))

    @property
    def table(self) -> dict[str, list[Any]]:
        """Columns ``model_a``, ``model_b``, ``winner`` and ``count``: `preflearn.rate` takes them with
        ``weight="count"``."""
        items = list(self._items)
        order = sorted_labels(items)
        place = {item: k for k, item in enumerate(order)}
        number = np.array([place[item] for item in items], dtype=np.int64)
        pairs, outcome = self._keys >> 2, (self._keys & 3).astype(np.int64)
        a, b = number[pairs >> _BITS], number[pairs & ((1 << _BITS) - 1)]
        # The first of two names is that of side a, whichever was seen first.
        turned = a > b
        a, b = np.where(turned, b, a), np.where(turned, a, b)
        outcome = np.where(turned, 2 - outcome, outcome)
        rows = np.lexsort([-outcome, b, a])
        return {
            "model_a": [order[k] for k in a[rows]],
            "model_b": [order[k] for k in b[rows]],
            "winner": [_OUTCOMES[k] for k in outcome[rows]],
            "count": self._counts[rows].tolist(),
        }

    def rate(self, **options: Any) -> Ratings:
        """The ratings of everything counted so far, as `preflearn.rate` gives them for all battles.

        Parameters
        ----------
        **options
            ``anchor``, ``alpha``, ``level``, ``features``, ``kernel``, ``item_offsets`` and ``ties``, as in
            `preflearn.rate`. Where alpha is a number, Newton's method starts from the ratings before.
        """
        from .rating import rate_counts

        if not self._keys.size:
            raise InputError("No battles have been counted: add some before they are rated")
        self._last = rate_counts(self.table, self._last, self._about_names, **options)
        return self._last


def count_battles(tables: Iterable[Any], **columns: Any) -> dict[str, list[Any]]:
    """Count the battles of many tables by distinct pair and outcome, one table at a time.

    Parameters
    ----------
    tables : iterable of data frames or mappings
        For example the parts of a file that is larger than memory.
    **columns
        ``a``, ``b``, ``winner``, ``loser``, ``weight`` and ``on_bad``, as in `preflearn.rate`.

    Returns
    -------
    dict
        Columns ``model_a``, ``model_b``, ``winner`` and ``count``: ``rate(..., weight="count")`` gives the ratings of
        all battles.

    Notes
    -----
    Memory grows with distinct pairs, not with battles. `BattleCounts` is the same for battles that arrive one by one.

    Examples
    --------
    >>> parts = [{"winner": ["x", "x"], "loser": ["y", "z"]}, {"winner": ["y", "x"], "loser": ["x", "y"]}]
    >>> count_battles(parts)["count"]
    [2.0, 1.0, 1.0]
    """
    counts = BattleCounts(**columns)
    for number, table in enumerate(tables, start=1):
        try:
            counts.add(table)
        except RowError as error:
            raise error.moved(0, f"table {number:,}") from None
    return counts.table


def _n_rows(battles: Any) -> int:
    values = next(iter(battles.values()), ()) if isinstance(battles, Mapping) else battles
    return len(values)
