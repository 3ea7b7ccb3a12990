"""Which queries have been seen, and which fold a query belongs to.

A query label becomes a 64-bit key: the number itself for whole numbers, a hash (BLAKE2b) of anything else. Both depend
on the label alone, so that the fold of a query is the same in every order, with every size of chunk, on every machine.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np


def label_keys(labels: np.ndarray) -> np.ndarray:
    """A 64-bit key for each label, shape (n_queries,), int64.

    Examples
    --------
    >>> label_keys(np.array([3, 7]))
    array([3, 7])
    """
    if labels.dtype.kind in "iu" and labels.dtype.itemsize <= 8:
        return labels.astype(np.int64)
    return np.array([_key(label) for label in labels.tolist()], dtype=np.int64)


def _key(label: Any) -> int:
    if isinstance(label, int) and not isinstance(label, bool) and -(1 << 63) <= label < 1 << 63:
        return label
    text = label if isinstance(label, str) else repr(label)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def folds_of(keys: np.ndarray, n_folds: int) -> np.ndarray:
    """The fold of each key, 0 .. n_folds - 1: a hash (the finaliser of SplitMix64) modulo the number of folds.

    Examples
    --------
    >>> folds_of(np.arange(8), 3)
    array([1, 2, 1, 0, 1, 2, 2, 0])
    """
    z = keys.astype(np.int64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(n_folds)).astype(np.int64)


class KeySet:
    """A set of 64-bit keys, kept as sorted runs of consecutive numbers.

    Queries numbered one after the other take 16 bytes altogether, others 16 bytes each. The runs lie in a few sorted
    lists, each at least twice as long as the next, so that n additions cost O(n log n) together.

    Examples
    --------
    >>> seen = KeySet()
    >>> seen.add(np.array([1, 2, 3])), seen.add(np.array([5, 3]))
    (None, 3)
    >>> len(seen)
    3
    """

    def __init__(self) -> None:
        self._lists: list[tuple[np.ndarray, np.ndarray]] = []  # first and last key of each run
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, keys: np.ndarray) -> int | None:
        """Add distinct keys; if one of them is in the set already, return the first such key and change nothing."""
        keys = np.sort(keys)
        for lows, highs in self._lists:
            if not keys.shape[0] or keys[0] > highs[-1] or keys[-1] < lows[0]:
                continue
            place = np.searchsorted(lows, keys, side="right") - 1
            known = np.flatnonzero((place >= 0) & (keys <= highs[np.maximum(place, 0)]))
            if known.size:
                return int(keys[known[0]])
        if keys.shape[0]:
            self._append(_runs(keys, keys), keys.shape[0])
        return None

    def merge(self, other: KeySet) -> int | None:
        """Add another set; if a key is in both, return one and change nothing."""
        lows, highs = other.runs()
        for own_lows, own_highs in self._lists:
            # Disjoint runs do not overlap: each ends before the next begins.
            place = np.searchsorted(own_lows, highs, side="right") - 1
            common = np.flatnonzero((place >= 0) & (own_highs[np.maximum(place, 0)] >= lows))
            if common.size:
                k = common[0]
                return int(max(lows[k], own_lows[place[k]]))
        if lows.shape[0]:
            self._append((lows, highs), len(other))
        return None

    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        """First and last key of every run of consecutive keys, sorted."""
        if not self._lists:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return _runs(*(np.concatenate(bounds) for bounds in zip(*self._lists, strict=True)))

    @classmethod
    def from_runs(cls, lows: np.ndarray, highs: np.ndarray) -> KeySet:
        """The set that `runs` describes."""
        found = cls()
        if lows.shape[0]:
            found._append((lows, highs), int((highs - lows).astype(np.uint64).sum()) + lows.shape[0])
        return found

    def _append(self, runs: tuple[np.ndarray, np.ndarray], n_keys: int) -> None:
        self._size += n_keys
        self._lists.append(runs)
        while len(self._lists) > 1 and 2 * len(self._lists[-1][0]) >= len(self._lists[-2][0]):
            (lows, highs), (more_lows, more_highs) = self._lists[-2:]
            self._lists[-2:] = [_runs(np.concatenate([lows, more_lows]), np.concatenate([highs, more_highs]))]


def _runs(lows: np.ndarray, highs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint runs in order, those joined that follow each other without a gap."""
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], highs[order]
    gap = np.ones(lows.shape[0], dtype=bool)
    gap[1:] = highs[:-1] + 1 != lows[1:]  # wraps around at the largest key, which nothing follows
    ends = np.ones(lows.shape[0], dtype=bool)
    ends[:-1] = gap[1:]
    return lows[gap], highs[ends]
