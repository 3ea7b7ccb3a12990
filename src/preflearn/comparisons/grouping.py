"""Rows divided into queries: labels to integer codes, how much a query counts, and what its rows have in common.

Rows of one query need not be adjacent and a label may be any hashable value. Everything behind this module
sees a query only as an integer code 0 .. n_groups - 1, one per row.

Weighting "pair" counts every pair once, "item" scales the block of a query by 1 / n_q, "query" divides it by its number
of counted pairs, so that every query has the same total.

Comparisons inside groups do not see a constant that is added to a column. Squares do: a column of numbers near 1e9
that differ by 1 has squares whose last digit is worth more than the differences. So `centred` subtracts the means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..numerics.namespace import as_host

WEIGHTINGS = ("pair", "item", "query")
# Share of the squares of features that remains within groups, below which what rows have in common costs precision.
_SMALL_SHARE = 1e-4
# A lookup table over the whole range of integer labels is used while it is at most this many times longer
# than the labels themselves; it replaces a sort by two passes.
_TABLE_FACTOR = 4


@dataclass(frozen=True)
class Groups:
    """Rows divided into groups.

    Attributes
    ----------
    codes : ndarray of shape (m,), int64
        The group of each row, 0 .. n_groups - 1.
    n_groups : int
        Number of groups; each has at least one row.
    labels : ndarray of shape (n_groups,) or None
        The caller's label of each group; None for the single group of a global ranking.
    """

    codes: np.ndarray
    n_groups: int
    labels: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return self.codes.shape[0]

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of rows in each group, shape (n_groups,)."""
        return np.bincount(self.codes, minlength=self.n_groups)

    @cached_property
    def order(self) -> np.ndarray:
        """Row numbers sorted by group, stable inside a group, shape (m,)."""
        if self.n_groups == 1:
            return np.arange(self.n_rows)
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def starts(self) -> np.ndarray:
        """Group g owns the rows ``order[starts[g]:starts[g + 1]]``, shape (n_groups + 1,)."""
        found = np.zeros(self.n_groups + 1, dtype=np.int64)
        np.cumsum(self.counts, out=found[1:])
        return found

    def rows(self, group: int) -> np.ndarray:
        """Row numbers of one group, ascending."""
        return self.order[self.starts[group] : self.starts[group + 1]]

    def are_whole(self, rows: np.ndarray) -> bool:
        """Whether distinct rows are all the rows of their groups."""
        return int(self.counts[np.unique(self.codes[rows])].sum()) == rows.shape[0]

    def sample(self, n_rows: int) -> np.ndarray:
        """Rows of whole groups, drawn at random until there are about ``n_rows``; all rows where there are not more.

        Of a single group single rows are drawn. The draw is the same for the same groups.
        """
        if self.n_rows <= n_rows:
            return np.arange(self.n_rows)
        rng = np.random.default_rng(0)
        if self.n_groups == 1:
            return np.sort(rng.choice(self.n_rows, n_rows, replace=False))
        order = rng.permutation(self.n_groups)
        n_taken = max(2, int(np.searchsorted(np.cumsum(self.counts[order]), n_rows, side="right")))
        taken = np.zeros(self.n_groups, dtype=bool)
        taken[order[:n_taken]] = True
        return np.flatnonzero(taken[self.codes])


def one_group(n_rows: int) -> Groups:
    """All rows in one group: a global ranking."""
    return Groups(np.zeros(n_rows, dtype=np.int64), 1 if n_rows else 0)


def encode_queries(qid: Any, n_rows: int) -> Groups:
    """Encode query labels.

    Parameters
    ----------
    qid : array-like of shape (m,), Groups or None
        One hashable label per row in any order; None puts every row in one query; groups are returned as they are.
    n_rows : int
        Number of rows that the labels must match.

    Returns
    -------
    Groups

    Raises
    ------
    ValueError
        If there is not one label per row, or a label is missing (NaN or None).

    Notes
    -----
    O(m) for integer labels of moderate range and for labels of any hashable type, O(m log m) for other arrays.

    Examples
    --------
    >>> encode_queries(["first", "second", "first"], 3).codes
    array([0, 1, 0])
    """
    if qid is None:
        return one_group(n_rows)
    if isinstance(qid, Groups) and qid.n_rows == n_rows:
        return qid
    values = _as_label_array(as_host(qid.codes if isinstance(qid, Groups) else qid))
    if values.shape != (n_rows,):
        found = f"{values.shape[0]} labels" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise ValueError(
            f"qid must hold one query label per row: found {found} for {n_rows} rows of X.{_if_sizes(values, n_rows)}"
        )
    if n_rows == 0:
        return Groups(np.zeros(0, dtype=np.int64), 0)
    if values.dtype == object:
        return _encode_objects(values)
    _refuse_missing(values)
    if values.dtype.kind in "iu":
        return _encode_integers(values)
    labels, codes = np.unique(values, return_inverse=True)
    return Groups(codes.astype(np.int64, copy=False), labels.shape[0], labels)


def _if_sizes(values: np.ndarray, n_rows: int) -> str:
    """What to pass instead of the sizes of the queries, which other libraries take as ``group``."""
    if values.ndim != 1 or values.dtype.kind not in "iu" or values.size == 0 or values.min() < 0:
        return ""
    if int(values.sum()) != n_rows:
        return ""
    return " They add up to the rows, as group sizes do: pass qid=np.repeat(np.arange(len(group)), group)."


def _as_label_array(qid: Any) -> np.ndarray:
    """A 1-d array of labels; tuples stay single labels instead of becoming a second axis."""
    if isinstance(qid, Sequence) and not isinstance(qid, (str, bytes)):
        try:
            values: np.ndarray = np.asarray(qid)
        except ValueError:  # a ragged list: its items are examined one by one
            values = np.empty((0, 0))
        # Lists of tuples and of mixed types must not be turned into 2-d or string arrays.
        if values.ndim != 1 or values.dtype.kind in "USO":
            values = np.empty(len(qid), dtype=object)
            values[:] = list(qid)
        return values
    values = np.asarray(qid)
    return values.ravel() if values.ndim == 2 and values.shape[1] == 1 else values


def _refuse_missing(values: np.ndarray) -> None:
    missing = np.flatnonzero(np.isnan(values)) if values.dtype.kind == "f" else np.empty(0)
    if values.dtype.kind in "mM":
        missing = np.flatnonzero(np.isnat(values))
    if missing.size:
        raise _missing_label(int(missing[0]))


def _is_missing(label: Any) -> bool:
    """None, NaN, NaT, or a value whose equality with itself is undefined, such as pandas' NA."""
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):
        return not isinstance(label, (list, np.ndarray))  # those are refused as labels that cannot be hashed


def _missing_label(row: int) -> ValueError:
    return ValueError(
        f"qid holds a missing label (row {row}). Every row must belong to a query: drop the row or give it a label."
    )


def _encode_integers(values: np.ndarray) -> Groups:
    low, high = int(values.min()), int(values.max())
    if high - low >= _TABLE_FACTOR * values.shape[0] + 1024 or high > np.iinfo(np.int64).max:
        labels, codes = np.unique(values, return_inverse=True)
        return Groups(codes.astype(np.int64, copy=False), labels.shape[0], labels)
    shifted = values.astype(np.int64) - low if low else values.astype(np.int64, copy=False)
    present = np.zeros(high - low + 1, dtype=bool)
    present[shifted] = True
    found = np.flatnonzero(present)
    if found.shape[0] == present.shape[0]:
        return Groups(shifted, found.shape[0], found + low)
    table = np.cumsum(present) - 1
    return Groups(table[shifted], found.shape[0], found + low)


def _encode_objects(values: np.ndarray) -> Groups:
    seen: dict[Any, int] = {}
    codes = np.empty(values.shape[0], dtype=np.int64)
    for row, label in enumerate(values.tolist()):
        if _is_missing(label):
            raise _missing_label(row)
        try:
            codes[row] = seen.setdefault(label, len(seen))
        except TypeError as error:
            raise ValueError(
                f"qid must hold hashable labels: row {row} is a {type(label).__name__}. "
                "Use strings, numbers or tuples."
            ) from error
    labels = np.empty(len(seen), dtype=object)
    labels[:] = list(seen)
    return Groups(codes, len(seen), labels)


def positions_in_groups(scores: np.ndarray, groups: Groups) -> np.ndarray:
    """1 + the number of rows of the group with a higher score. O(m log m)."""
    order = np.lexsort((-scores, groups.codes))
    place = np.arange(scores.shape[0]) - groups.starts[groups.codes[order]]
    new = np.ones(scores.shape[0], dtype=bool)
    new[1:] = (scores[order][1:] != scores[order][:-1]) | (place[1:] == 0)
    first = np.maximum.accumulate(np.where(new, np.arange(scores.shape[0]), 0))
    positions = np.empty(scores.shape[0], dtype=np.int64)
    positions[order] = place[first] + 1
    return positions


def query_weights(weighting: str, counts: np.ndarray, n_pairs: np.ndarray) -> np.ndarray:
    """The factor of each query's block, shape (n_queries,); 0 for a query without a counted pair.

    Parameters
    ----------
    weighting : {"pair", "item", "query"}
    counts : ndarray of shape (n_queries,)
        Rows of each query, or their total weight.
    n_pairs : ndarray of shape (n_queries,)
        Counted pairs of each query, or their total weight.
    """
    if weighting == "pair":
        return np.ones(counts.shape[0])
    if weighting == "item":
        return np.divide(1.0, counts, out=np.zeros(counts.shape[0]), where=counts > 0)
    return np.divide(1.0, n_pairs, out=np.zeros(counts.shape[0]), where=n_pairs > 0)


def centred(X: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """X minus the mean row of each group, and those means.

    Parameters
    ----------
    X : ndarray of shape (m, n)
        Not modified.
    groups : Groups

    Returns
    -------
    Z : ndarray of shape (m, n)
    means : ndarray of shape (n_groups, n)

    Notes
    -----
    The mean is subtracted twice, the second time that of the remainder: a column that is constant inside a group
    becomes exactly zero there. O(m n).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import one_group
    >>> Z, means = centred(np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]]), one_group(3))
    >>> Z.tolist()
    [[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]
    """
    if groups.n_groups == 1:
        means = X.mean(axis=0, keepdims=True, dtype=np.float64).astype(X.dtype, copy=False)
        Z = X - means
        rest = Z.mean(axis=0, keepdims=True)
        Z -= rest
        return Z, means + rest
    from ._loops import centre_rows, segment_sums

    X = np.ascontiguousarray(X)
    Z, unit, counts = np.empty_like(X), np.ones(X.shape[0]), groups.counts[:, None]
    means = segment_sums(X, groups.codes, groups.n_groups) / counts
    centre_rows(X, groups.codes, means, unit, Z)
    rest = segment_sums(Z, groups.codes, groups.n_groups) / counts
    centre_rows(Z, groups.codes, rest, unit, Z)
    return Z, means + rest


def offset_is_large(X: np.ndarray) -> bool:
    """Whether what rows have in common is so large that their squares lose precision to it. O(m n)."""
    mean = X.mean(axis=0)
    unit = np.abs(X).max(initial=0.0) or 1.0
    spread = np.square((X[: 1 << 14] - mean) / unit).sum(axis=1).mean()
    return bool(spread < _SMALL_SHARE * np.square(mean / unit).sum())
