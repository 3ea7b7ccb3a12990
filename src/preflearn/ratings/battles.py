"""Battles as arrays: who met whom, who won, who judged, when, and what else differed.

A battle has two sides, a and b. Its share y is 1 where a won, 0 where b won and 1/2 for a tie; "both bad" is a tie as
far as the order of the two is concerned. Only sums over distinct pairs matter to the model as long as nothing else is
known of a battle, so that a file of any size shrinks to its distinct pairs (`Battles.counted`, ``counts``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..comparisons.answers import AdjustedAnswers, Answers
from ..errors import InputError, Remedy
from .rankings import Rankings
from .ties import Outcomes

POSITION = "position"
# The covariate of `rate(first_side=...)`.
FIRST_SIDE = "first side"
# Battles that counts are divided into one by one.
_MOST_SINGLE = 1_000_000


@dataclass(frozen=True)
class Battles:
    """l battles of m items.

    Attributes
    ----------
    items : list
        The labels, sorted.
    pairs : ndarray of shape (l, 2)
        Numbers of sides a and b.
    share : ndarray of shape (l,)
        y, of side a.
    weight : ndarray of shape (l,)
    judge, cluster : (codes, labels) or None
    time : ndarray of shape (l,) or None
        In days.
    covariates : ndarray of shape (l, p)
        a minus b.
    covariate_names : tuple of str
    ordered : bool
        Whether the sides say something about the presentation; not if side a is the winner by definition.
    outcomes : dict
        How many battles had each outcome.
    similarity : ndarray of shape (m, m) or None
        Prior covariance of the strengths, but for a factor, where it is not the identity.
    rankings : Rankings or None
        What the battles are the pairs of.
    unused : tuple of str
        Columns that look like a judge, a prompt or a time and were not asked for.
    margin : ndarray of shape (l,) or None
        By how much side a won, where that counts.
    only_margin : bool
        Whether the sign of a column of differences alone says who won.
    about_names : tuple of str
        What was done to names.
    ties : {"half", "davidson"}
    tie_columns : ndarray of shape (l, q) or None
        What makes ties likely, the first column a constant, where ties may have a probability of their own.
    cheap, cheap_left : ndarrays of shape (l,) or None
        c - c̄ and φ of judgements by judges that are not trusted (`judges`); φ is NaN where there are none.
    rows : ndarray of shape (l,) or None
        Row numbers in the table, where these are only some of its rows.
    n_read : int or None
        How many rows the table had, then.
    """

    items: list[Hashable]
    pairs: np.ndarray
    share: np.ndarray
    weight: np.ndarray
    judge: tuple[np.ndarray, list[Hashable]] | None = None
    cluster: tuple[np.ndarray, list[Hashable]] | None = None
    time: np.ndarray | None = None
    covariates: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    covariate_names: tuple[str, ...] = ()
    ordered: bool = True
    outcomes: dict[str, int] = field(default_factory=dict)
    similarity: np.ndarray | None = None
    rankings: Rankings | None = None
    unused: tuple[str, ...] = ()
    margin: np.ndarray | None = None
    only_margin: bool = False
    about_names: tuple[str, ...] = ()
    ties: str = "half"
    tie_columns: np.ndarray | None = None
    cheap: np.ndarray | None = None
    cheap_left: np.ndarray | None = None
    rows: np.ndarray | None = None
    n_read: int | None = None

    @property
    def tie_design(self) -> np.ndarray | None:
        """The same where ties have a probability of their own."""
        return self.tie_columns if self.ties == "davidson" else None

    @property
    def n_items(self) -> int:
        return len(self.items)

    def __len__(self) -> int:
        return self.pairs.shape[0]

    def take(self, kept: np.ndarray) -> Battles:
        """Some of the battles, of the same items."""

        def coded(one: Any) -> Any:
            return None if one is None else (one[0][kept], one[1])

        return replace(
            self,
            pairs=self.pairs[kept],
            share=self.share[kept],
            weight=self.weight[kept],
            judge=coded(self.judge),
            cluster=coded(self.cluster),
            time=None if self.time is None else self.time[kept],
            covariates=self.covariates[kept],
            rankings=None if self.rankings is None else self.rankings.take(kept),
            margin=None if self.margin is None else self.margin[kept],
            tie_columns=None if self.tie_columns is None else self.tie_columns[kept],
            cheap=None if self.cheap is None else self.cheap[kept],
            cheap_left=None if self.cheap_left is None else self.cheap_left[kept],
            rows=None if self.rows is None else self.rows[kept],
        )

    def of_rows(self, kept: np.ndarray) -> Battles:
        """Some of the battles, of the items, judges and clusters that they are about, which know their rows."""
        rows = kept if self.rows is None else self.rows[kept]
        found = replace(self.take(kept), rows=rows, n_read=self.n_read or len(self))
        played, pairs = np.unique(found.pairs, return_inverse=True)
        return replace(
            found,
            items=[self.items[k] for k in played],
            pairs=pairs.reshape(found.pairs.shape),
            judge=recoded(found.judge),
            cluster=recoded(found.cluster),
        )

    @property
    def n_battles(self) -> int:
        """How many battles the rows stand for."""
        return int(self.weight.sum()) if self.are_counts else len(self)

    @property
    def are_counts(self) -> bool:
        """Whether weights are whole numbers, so that a row may stand for several battles."""
        return are_counts(self.weight)

    def one_by_one(self) -> Battles:
        """Rows that stand for many battles as these battles, in a random order unless times are known.

        Of more than a million battles each row is divided into ten at most. Held-out battles must not be all wins of
        a pair at once, which is what a row of counts is.
        """
        w = self.weight
        if self.rankings is not None or not self.are_counts or w.max() <= 1:
            return self
        parts = (w if w.sum() <= _MOST_SINGLE else np.minimum(w, 10)).astype(np.int64)
        rows = np.repeat(np.arange(len(self)), parts)
        if self.time is None:
            rows = np.random.default_rng(0).permutation(rows)
        return replace(self.take(rows), weight=(w[rows] / parts[rows]))

    def answers(self) -> Answers:
        """One answer for each battle, as the learners take them."""
        ones = np.ones(len(self))
        plain = Answers(self.n_items, self.pairs, self.weight, self.share, ones)
        return AdjustedAnswers.of(plain, self.covariates) if self.covariates.shape[1] else plain

    def counted(self) -> Answers:
        """The same sums in as few answers as possible: one for each distinct pair, without covariates."""
        return self._counted()[0]

    def counted_outcomes(self) -> Outcomes:
        """The same with the share of ties: of distinct pairs where battles differ in nothing else."""
        assert self.tie_design is not None
        if self.tie_design.shape[1] > 1:
            return self.outcomes_of_battles()
        answers, ties = self._counted()
        return Outcomes(answers, ties, np.ones((ties.size, 1)))

    def outcomes_of_battles(self) -> Outcomes:
        """The same of every battle."""
        assert self.tie_design is not None
        return Outcomes(self.answers(), (self.share == 0.5).astype(float), self.tie_design)

    def _counted(self) -> tuple[Answers, np.ndarray]:
        """As few answers as possible, and the share of ties in each."""
        ties = (self.share == 0.5).astype(float)
        if self.covariates.shape[1]:
            return self.answers(), ties
        distinct, which, sign = Answers.read(self.n_items, self.pairs).distinct_pairs()
        n = distinct.shape[0]
        weight = np.bincount(which, self.weight, n)
        kept = weight > 0
        share, ties = (
            np.bincount(which, self.weight * values, n)[kept] / weight[kept]
            for values in (np.where(sign > 0, self.share, 1.0 - self.share), ties)
        )
        return Answers(self.n_items, distinct[kept], weight[kept], share, np.ones(int(kept.sum()))), ties

    def battles_of_items(self) -> np.ndarray:
        """Weight of the battles of each item, shape (m,)."""
        a, b = self.pairs.T
        return np.bincount(a, self.weight, self.n_items) + np.bincount(b, self.weight, self.n_items)

    def wins_of_items(self) -> np.ndarray:
        """Weight of the wins of each item, half of a tie, shape (m,)."""
        (a, b), won = self.pairs.T, self.weight * self.share
        return np.bincount(a, won, self.n_items) + np.bincount(b, self.weight - won, self.n_items)

    def followed_by(self, more: Battles) -> Battles:
        """These battles and more of them, perhaps of further items."""
        for name in ("judge", "cluster", "time"):
            if (getattr(self, name) is None) != (getattr(more, name) is None):
                raise ValueError(
                    f"The new battles must have the same columns as the old ones: {name} differs."
                )
        kinds = [
            {"texts" if isinstance(item, str) else "numbers" for item in one.items} for one in (more, self)
        ]
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"The items of the new battles are {kinds[0].pop()} and those of the old ones {kinds[1].pop()}, so "
                "that none of them would be the same: write them alike, or rate everything together."
            )
        items = sorted_labels({*self.items, *more.items})
        place = {item: k for k, item in enumerate(items)}
        pairs = [np.array([place[item] for item in one.items])[one.pairs] for one in (self, more)]
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(more, name)])
            for name in ("share", "weight", "covariates")
        }
        if self.margin is not None and more.margin is not None:
            joined["margin"] = np.concatenate([self.margin, more.margin])
        if self.tie_columns is not None and more.tie_columns is not None:
            joined["tie_columns"] = np.concatenate([self.tie_columns, more.tie_columns])
        if self.rows is not None or more.rows is not None:
            first, second = (np.arange(len(one)) if one.rows is None else one.rows for one in (self, more))
            read = self.n_read or len(self)
            joined |= {
                "rows": np.concatenate([first, read + second]),
                "n_read": read + (more.n_read or len(more)),
            }
        counts = Counter(self.outcomes)
        counts.update(more.outcomes)
        return replace(
            self,
            items=items,
            pairs=np.concatenate(pairs),
            judge=_joined_codes(self.judge, more.judge),
            cluster=_joined_codes(self.cluster, more.cluster),
            time=None if self.time is None or more.time is None else np.concatenate([self.time, more.time]),
            outcomes=dict(counts),
            about_names=tuple(dict.fromkeys([*self.about_names, *more.about_names])),
            **joined,
        )


def recoded(one: Any) -> Any:
    """Codes and labels of those labels that are there."""
    if one is None:
        return None
    there, codes = np.unique(one[0], return_inverse=True)
    return codes, [one[1][k] for k in there]


def are_counts(weight: np.ndarray) -> bool:
    return bool((weight == np.round(weight)).all())


def _joined_codes(one: Any, other: Any) -> Any:
    if one is None:
        return None
    labels = list(dict.fromkeys([*one[1], *other[1]]))
    place = {label: k for k, label in enumerate(labels)}
    codes = [np.array([place[label] for label in part[1]], dtype=np.int64)[part[0]] for part in (one, other)]
    return np.concatenate(codes), labels


def sorted_labels(labels: Iterable[Hashable]) -> list[Hashable]:
    """Numbers before texts."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))


def refuse_hopeless(battles: Battles) -> None:
    """Refuse battles that no model can rate."""
    if not battles.weight.any():
        raise ValueError("Every battle has weight 0: there is nothing to learn from.")
    _refuse_constant(battles)
    decided = battles.share != 0.5
    if not (decided & (battles.weight > 0)).any():
        n = battles.n_battles
        ties = (
            f"all {n:,} are ties, which order nothing"
            if n > 1
            else "the only one is a tie, which orders nothing"
        )
        raise ValueError(f"No battle was won: {ties}. Ratings need at least one winner.")
    for name, z in zip(battles.covariate_names, battles.covariates.T, strict=True):
        towards = z[decided] * (battles.share[decided] - 0.5)
        if decided.sum() > 1 and ((towards > 0).all() or (towards < 0).all()):
            raise ValueError(
                f"Covariate {name!r} alone predicts every one of the {int(decided.sum()):,} decided battles, so "
                "that nothing is left for the items "
                "and its coefficient is not finite. Is it another form of the outcome? Leave it out."
            )


def _refuse_constant(battles: Battles) -> None:
    """Of all battles together: new ones alone may well have a covariate that does not vary."""
    for name, z in zip(battles.covariate_names, battles.covariates.T, strict=True):
        if np.ptp(z) == 0 and not (name in (POSITION, FIRST_SIDE) and z[0] == 1.0):
            raise InputError(
                f"Covariate {name!r} is constant: it differs by {z[0]:g} in every battle, which cannot be "
                "distinguished from the advantage of being shown first. Leave it out",
                Remedy("covariates", ["position"], "to control for the side"),
            )
