"""How few battles decide the first places of a board.

Removing battle c moves a difference of two strengths by about

    -aᵀ H⁻¹ g_c / (1 - v_c x_cᵀ H⁻¹ x_c),        a = e_i - e_j,

g_c minus the gradient of its loss. The battles that move the difference most are removed, in ever smaller steps with a
refit after each, until somebody else is among the first k; one fewer is then tried, those that matter most where the
two are level. On a small board every smaller set is tried as well. Shrinkage and half-life stay as they are. Battles
that are alike in everything are one row with a number, so that a step takes time proportional to these.

References
----------
Broderick, Giordano and Meager, "An automatic finite-sample robustness metric", arXiv:2011.14999; Huang, Shen, Wei and
Broderick, "Dropping just a handful of preferences can change top large language model rankings", arXiv:2508.11847.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from ..shown_tables import visible
from .battles import Battles
from .strengths import (
    Strengths,
    cluster_gradients,
    fit_strengths,
    scaled,
    solved_columns,
    variances_of_battles,
)

# Pairs of items whose exchange is estimated, and those of them that are verified by refitting.
_MOST_ESTIMATED, _MOST_VERIFIED = 32, 3
# Up to so many sets of one size, each is tried.
_MOST_TRIED = 700
# Strengths that differ by less are level.
_LEVEL = 1e-9


@dataclass(frozen=True)
class Fragility:
    """The fewest battles without which others are among the first k; `Ratings.fragility` finds them.

    Attributes
    ----------
    k : int
    n_battles : int
        How many; an item all of whose battles are removed is no longer on the board.
    battles : ndarray of int
        Their row numbers in the table that was rated, from 0; a row that counts several battles comes as often as
        they are removed.
    leaves, enters : item
        Who is no longer, and who is then, among the first k.
    total : int
        Of battles.
    """

    k: int
    n_battles: int
    battles: np.ndarray
    leaves: Hashable
    enters: Hashable
    total: int

    def __str__(self) -> str:
        places = "the first place" if self.k == 1 else f"the first {self.k} places"
        rows = ", ".join(f"{row + 1:,}" for row in self.battles[:5])
        more = f" and {self.n_battles - 5:,} more" if self.n_battles > 5 else ""
        what = "1 battle" if self.n_battles == 1 else f"{self.n_battles:,} battles"
        return (
            f"Removing {what} of {self.total:,} would change {places} ({visible(self.enters)} for "
            f"{visible(self.leaves)}): row{'' if self.n_battles == 1 else 's'} {rows}{more}."
        )

    __repr__ = __str__


def find_fragility(strengths: Strengths, k: int) -> Fragility:
    """Find the fewest battles without which the first k are others."""
    board = _Board(strengths)
    f = strengths.scores
    order = np.argsort(-f, kind="stable")
    best: tuple[int, np.ndarray, int, int] | None = None
    for _, i, j in sorted(board.estimates(order[:k], order[k:]))[:_MOST_VERIFIED]:
        most = np.inf if best is None else best[0]
        taken = board.fewest(i, j, most)
        if taken is not None and taken.sum() < most:
            best = (int(taken.sum()), taken, i, j)
    for i in order[:k]:
        # An item without battles is not on the board.
        taken = board.all_of(i)
        if best is None or taken.sum() < best[0]:
            best = (int(taken.sum()), taken, i, order[k])
    assert best is not None
    n, taken, i, j = board.smallest(order[:k], best[0]) or best
    items = strengths.battles.items
    return Fragility(k, n, board.rows_of(taken), items[i], items[j], int(board.counts.sum()))


class _Board:
    """Distinct battles with their numbers, and what removing some of them does."""

    def __init__(self, strengths: Strengths) -> None:
        battles, rankings = strengths.battles, strengths.battles.rankings
        self.alpha, self.used = strengths.alpha, battles
        # What is removed is a kind of battle, or a whole ranking: that of each row of the table, and of each row used.
        if rankings is not None:
            self.of_used = rankings.of_pair
            self.of_row = np.arange(rankings.n_rankings)
        else:
            self.of_row = _kinds(battles)
            self.of_used = np.arange(self.of_row.max() + 1)
        _, first, rows = np.unique(self.of_row, return_index=True, return_counts=True)
        #: How many battles a row counts, and how many of each kind there are.
        self.each = (
            np.maximum(battles.weight[first], 1.0)
            if battles.are_counts and rankings is None
            else np.ones(first.size)
        )
        self.counts = (self.each * rows).astype(np.int64)
        if rankings is None:
            self.used = replace(battles.take(first), weight=battles.weight[first] * rows)
        counted = scaled(self.used, strengths.scale).counted()
        self.strengths = replace(strengths, battles=self.used, counted=counted)

    def without(self, taken: np.ndarray) -> Strengths:
        """Fitted to the other battles."""
        left = (1.0 - taken / self.counts)[self.of_used]
        battles = replace(self.used, weight=self.used.weight * left)
        start = None if battles.covariate_names else self.strengths.theta
        return fit_strengths(battles, self.alpha, start=start)

    def moves(self, strengths: Strengths, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """How far removing one battle of each kind lowers f_i - f_j, shape (kinds, pairs)."""
        single = self.used.weight / self.counts[self.of_used]
        one = replace(strengths, battles=replace(self.used, weight=single))
        if not strengths.is_dense:
            A = solved_columns(strengths, i) - solved_columns(strengths, j)
            return np.asarray(cluster_gradients(one, self.of_used) @ A)
        A = strengths.inverse_rows[i] - strengths.inverse_rows[j]
        moved = np.asarray(cluster_gradients(one, self.of_used) @ A.T)
        if self.used.rankings is None:
            leverage = one.curvatures_of_battles() * variances_of_battles(strengths)
            moved /= (1.0 - np.minimum(leverage, 0.99))[:, None]
        return moved

    def estimates(self, top: np.ndarray, rest: np.ndarray) -> list[tuple[float, int, int]]:
        """(battles to remove, item that leaves, item that enters) of the exchanges that are most likely."""
        f, strengths = self.strengths.scores, self.strengths
        i, j = (one.ravel() for one in np.meshgrid(top[::-1][:20], rest[:50], indexing="ij"))
        gap = f[i] - f[j]
        if strengths.is_dense:
            C = strengths.inverse_hessian
            gap = gap / np.sqrt(np.maximum(C[i, i] + C[j, j] - 2.0 * C[i, j], 1e-300))
        some = np.argsort(gap, kind="stable")[:_MOST_ESTIMATED]
        i, j = i[some], j[some]
        moved = self.moves(strengths, i, j)
        return [
            (float(self._enough(m, f[a] - f[b], self.counts).sum()), int(a), int(b))
            for m, a, b in zip(moved.T, i, j, strict=True)
        ]

    def _enough(self, moved: np.ndarray, gap: float, available: np.ndarray) -> np.ndarray:
        """How many of each kind to remove, those that move most first, until the gap is closed."""
        order = np.argsort(-moved, kind="stable")
        order = order[moved[order] > 0]
        sums = np.cumsum(moved[order] * available[order])
        taken = np.zeros_like(available)
        n = int(np.searchsorted(sums, gap, side="right"))
        taken[order[:n]] = available[order[:n]]
        if n < order.size:
            rest = gap - (sums[n - 1] if n else 0.0)
            taken[order[n]] = min(int(rest / moved[order[n]]) + 1, available[order[n]])
        return taken

    def fewest(self, i: int, j: int, most: float) -> np.ndarray | None:
        """Battles of each kind, as few as were found, without which j is ahead of i; None where there are none."""
        one, other = np.array([i]), np.array([j])
        taken, strengths = np.zeros_like(self.counts), self.strengths
        while True:
            gap = float(strengths.scores[i] - strengths.scores[j])
            if gap < -_LEVEL:
                break
            if taken.sum() >= most:
                return None
            moved = self.moves(strengths, one, other)[:, 0]
            needed = self._enough(moved, max(gap, 0.0) + _LEVEL, self.counts - taken)
            if not needed.any():
                return None
            # Half of what seems to be needed, since every removal changes what the others do.
            taken = taken + _first(needed, moved, max(1, int(needed.sum()) // 2))
            strengths = self.without(taken)
        return self._fewer(i, j, taken, strengths)

    def _fewer(self, i: int, j: int, taken: np.ndarray, strengths: Strengths) -> np.ndarray:
        """The same with as many less as the battles that matter most where i and j are level allow."""
        while taken.sum() > 1:
            moved = self.moves(strengths, np.array([i]), np.array([j]))[:, 0]
            fewer = _first(self.counts, moved, int(taken.sum()) - 1)
            found = self.without(fewer)
            if not found.scores[j] - found.scores[i] > _LEVEL:
                return taken
            taken, strengths = fewer, found
        return taken

    def smallest(self, top: np.ndarray, n: int) -> tuple[int, np.ndarray, int, int] | None:
        """The first set of fewer than n battles that changes the first places, where all of them can be tried."""
        kinds = self.counts.size
        rest = np.setdiff1d(np.arange(self.used.n_items), top)
        for size in range(1, n):
            if comb(kinds + size - 1, size) > _MOST_TRIED:
                return None
            for some in combinations_with_replacement(range(kinds), size):
                taken = np.bincount(some, minlength=kinds)
                if (taken > self.counts).any():
                    continue
                there = np.isin(rest, self.used.pairs[(taken < self.counts)[self.of_used]])
                if not there.any():
                    continue
                f = self.without(taken).scores
                i, j = top[np.argmin(f[top])], rest[there][np.argmax(f[rest[there]])]
                if f[j] - f[i] > _LEVEL:
                    return size, taken, int(i), int(j)
        return None

    def all_of(self, i: int) -> np.ndarray:
        """The battles of an item."""
        taken = np.zeros_like(self.counts)
        own = np.unique(self.of_used[(self.used.pairs == i).any(axis=1)])
        taken[own] = self.counts[own]
        return taken

    def rows_of(self, taken: np.ndarray) -> np.ndarray:
        """Row numbers of the table."""
        order = np.argsort(self.of_row, kind="stable")
        starts = np.searchsorted(self.of_row[order], np.arange(taken.size))
        out: list[int] = []
        for kind in np.flatnonzero(taken):
            each, n = int(self.each[kind]), int(taken[kind])
            rows = order[starts[kind] : starts[kind] + -(-n // each)]
            out += np.repeat(rows, each)[:n].tolist()
        return np.array(sorted(out), dtype=np.int64)


def _first(available: np.ndarray, moved: np.ndarray, n: int) -> np.ndarray:
    """n battles, those that move most first."""
    order = np.argsort(-moved, kind="stable")
    sums = np.minimum(np.cumsum(available[order]), n)
    taken = np.zeros_like(available)
    taken[order] = np.diff(sums, prepend=0)
    return taken


def _kinds(battles: Battles) -> np.ndarray:
    """A number for each battle, equal for battles that are alike in everything that the model sees."""
    a, b = battles.pairs.T
    share, columns = battles.share, [battles.weight]
    if battles.covariates.shape[1] or battles.margin is not None:
        columns += [*battles.covariates.T, *([] if battles.margin is None else [battles.margin])]
    else:
        share = np.where(a < b, share, 1.0 - share)
        a, b = np.minimum(a, b), np.maximum(a, b)
    columns += [] if battles.tie_design is None else [*battles.tie_design.T]
    codes = (a * battles.n_items + b) * 3 + np.rint(2.0 * share).astype(np.int64)

    def joined(codes: np.ndarray, column: np.ndarray) -> np.ndarray:
        values, which = np.unique(column, return_inverse=True)
        if values.size == 1:
            return codes
        return np.unique(codes * values.size + which, return_inverse=True)[1]

    return np.unique(reduce(joined, columns, codes), return_inverse=True)[1]
