r"""Wins and losses: the pairs that each row takes part in, and those of them that are ordered as in y.

Every estimate of this package is a share of pairs. With n_i the pairs of row i with rows of other y, and t_i those of
them whose predictions are ordered as y is (a tied prediction counts as half),

    c = Σ t_i / Σ n_i,

the AUC where y has two values, the concordance otherwise. What is compared with what differs: everything with
everything (pooled), inside folds (averaged), inside queries, or each pair in a model of its own (leave-pair-out).
The rows' own shares t_i / n_i are the placement values that intervals are computed from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..comparisons import Groups, encode_queries

# Rows of the meetings that are counted: beyond it some meetings are drawn.
_MOST_ROWS = 50_000


@dataclass(frozen=True)
class PairTally:
    """Pairs and wins of each row.

    Attributes
    ----------
    wins : ndarray of shape (m,)
        t: pairs of the row that are ordered as y is, tied predictions counting as half.
    pairs : ndarray of shape (m,)
        n: pairs of the row with a row of different y.
    """

    wins: np.ndarray
    pairs: np.ndarray

    @property
    def n_pairs(self) -> int:
        return int(round(float(self.pairs.sum()) / 2))

    @property
    def share(self) -> float:
        """c, NaN where there is no pair."""
        total = float(self.pairs.sum())
        return float(self.wins.sum()) / total if total else float("nan")

    @property
    def share_per_row(self) -> np.ndarray:
        """t_i / n_i, the placement value of each row, shape (m,); NaN where it has no pair."""
        with np.errstate(invalid="ignore"):
            return self.wins / self.pairs

    def share_per_group(self, owners: Groups) -> np.ndarray:
        """c of each fold or query, shape (n_groups,); NaN where it has no pair."""
        wins = np.bincount(owners.codes, weights=self.wins, minlength=owners.n_groups)
        pairs = np.bincount(owners.codes, weights=self.pairs, minlength=owners.n_groups)
        with np.errstate(invalid="ignore"):
            return wins / pairs


def tally_scores(
    y: np.ndarray,
    scores: np.ndarray,
    owners: Groups,
    apart: Groups | None = None,
    events: np.ndarray | None = None,
) -> PairTally:
    """Count the pairs inside each group by predicted scores.

    Parameters
    ----------
    y, scores : ndarray of shape (m,)
    owners : Groups
        Rows are compared inside a group only: the fold, the query, or all rows.
    apart : Groups, optional
        Rows that share one of these groups (those of a patient) are not compared with each other, unless they are all
        that there is to compare: a fold of two groups of many rows would mostly compare rows of one of them.
    events : ndarray of bool, shape (m,), optional
        Censored times: a row is compared with those of higher y only where its event was seen.

    Notes
    -----
    One sort for every bit of the number of distinct y: O(m log m) for two classes, which is DeLong's count by midranks.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import one_group
    >>> tally = tally_scores(np.array([1, 0, 1, 0]), np.array([0.8, 0.6, 0.4, 0.4]), one_group(4))
    >>> tally.wins.tolist(), tally.share
    ([2.0, 1.0, 0.5, 1.5], 0.625)
    """
    if y.size == 0:
        return PairTally(np.zeros(0), np.zeros(0))
    if apart is not None and apart.n_groups < y.shape[0]:
        every = tally_scores(y, scores, owners, events=events)
        together = encode_queries(owners.codes * apart.n_groups + apart.codes, y.shape[0])
        same = tally_scores(y, scores, together, events=events)
        if every.n_pairs > same.n_pairs:
            return PairTally(every.wins - same.wins, every.pairs - same.pairs)
        return every
    grade = np.unique(y, return_inverse=True)[1].astype(np.int64)
    place = np.unique(scores, return_inverse=True)[1].astype(np.int64)
    owner = owners.codes
    if events is not None:
        found = _outlived(grade, place, owner, events)
        ties = np.unique(owner * (int(place.max()) + 1) + place, return_inverse=True)[1]
        return PairTally(
            found + 0.5 * _outlived(grade, grade, ties, events), _outlived(grade, grade, owner, events)
        )
    pairs = owners.counts[owner] - _same(owner, grade)
    tied = _same(owner, place) - _same(owner, place, grade)
    concordant = _both_lower(grade, place, owner) + _both_lower(
        grade.max() - grade, place.max() - place, owner
    )
    return PairTally(concordant + 0.5 * tied, pairs.astype(float))


def tally_pairs(y: np.ndarray, pairs: np.ndarray, predictions: np.ndarray) -> PairTally:
    """Count held-out pairs, each predicted by its own model.

    Parameters
    ----------
    y : ndarray of shape (m,)
    pairs : int array of shape (p, 2)
        Rows with different y.
    predictions : ndarray of shape (p, 2)

    Notes
    -----
    O(p).
    """
    won = 0.5 + 0.5 * np.sign(y[pairs[:, 0]] - y[pairs[:, 1]]) * winners(predictions)
    ends, both = pairs.ravel(), np.repeat(won, 2)
    return PairTally(
        np.bincount(ends, weights=both, minlength=y.shape[0]),
        np.bincount(ends, minlength=y.shape[0]).astype(float),
    )


def tally_meetings(
    y: np.ndarray, scores: np.ndarray, owners: Groups, clusters: Groups, events: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the pairs between any two clusters that meet in a group of rows that are compared.

    Parameters
    ----------
    y, scores, owners, events : as in `tally_scores`
    clusters : Groups
        Rows that depend on each other.

    Returns
    -------
    wins, pairs, times : ndarray of shape (p,)
        Of each meeting: the pairs won, all pairs, and how many meetings it stands for.

    Notes
    -----
    In round r of a tournament of k, i meets r - i modulo k, so that any two meet once in k rounds. All rounds are
    counted together; where that is too much, the first of them, with players in a random order.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import Groups, one_group
    >>> rows = Groups(np.arange(3), 3)
    >>> wins, pairs, times = tally_meetings(np.array([1, 0, 2]), np.array([0.8, 0.6, 0.7]), one_group(3), rows)
    >>> int(wins.sum()), int(pairs.sum()), times.tolist()
    (2, 3, [1.0, 1.0, 1.0])
    """
    m = y.shape[0]
    order = np.random.default_rng(0).permutation(clusters.n_groups)
    players, player = np.unique(owners.codes * clusters.n_groups + order[clusters.codes], return_inverse=True)
    n_players = np.bincount(players // clusters.n_groups, minlength=owners.n_groups)
    starts = np.cumsum(n_players) - n_players
    place, k = player - starts[owners.codes], n_players[owners.codes]
    rounds = 1 + np.arange(min(int(k.max()), max(1, _MOST_ROWS // m)))[:, None]
    partner = (rounds - place) % k
    takes_part = (rounds <= k) & (partner != place)
    takes_part &= 2 * np.minimum(place, partner) <= k * (_MOST_ROWS / m)  # 0 and 1 meet in the first round
    number, row = np.nonzero(takes_part)
    seats = np.sort(starts[owners.codes[row]] + [place[row], partner[number, row]], axis=0)
    met = encode_queries(seats[0] * players.size + seats[1], row.size)
    own = encode_queries(2 * met.codes + (seats[0] == player[row]), row.size)
    some = None if events is None else events[row]
    every, same = (tally_scores(y[row], scores[row], of, events=some) for of in (met, own))
    owner = owners.codes[row[met.order[met.starts[:-1]]]]
    seen = np.bincount(owner, minlength=owners.n_groups)[owner]
    one, other = np.sort(players[seats] % clusters.n_groups, axis=0)
    pair = encode_queries(one * clusters.n_groups + other, row.size)  # may meet in several groups
    first = pair.order[pair.starts[:-1]]
    wins, pairs = (
        np.bincount(pair.codes, weights=ends, minlength=pair.n_groups) / 2
        for ends in (every.wins - same.wins, every.pairs - same.pairs)
    )
    all_meetings = n_players * (n_players - 1) / 2
    return wins, pairs, (all_meetings[owner] / seen)[met.codes[first]]


def winners(predictions: np.ndarray) -> np.ndarray:
    """1 where the first row of a pair is predicted higher, -1 where the second is, 0 where they are tied."""
    return np.sign(predictions[:, 0] - predictions[:, 1])


def share_in_order(differences: np.ndarray, tolerance: float = 0.0) -> float:
    """The share of differences above the tolerance; those within it count as half."""
    return float(np.mean(differences > tolerance) + 0.5 * np.mean(np.abs(differences) <= tolerance))


def _same(*keys: np.ndarray) -> np.ndarray:
    """For each row the number of rows with the same keys, itself included."""
    code = keys[0]
    for key in keys[1:]:
        code = np.unique(code * (int(key.max(initial=0)) + 1) + key, return_inverse=True)[1]
    return np.bincount(code)[code]


def _outlived(grade: np.ndarray, place: np.ndarray, owner: np.ndarray, events: np.ndarray) -> np.ndarray:
    """For each row the pairs of an event and a row of higher grade and place that it is one of."""
    as_later = _both_lower(grade, place, owner, events * 1.0)
    return as_later + events * _both_lower(grade.max() - grade, place.max() - place, owner)


def _both_lower(
    grade: np.ndarray, place: np.ndarray, owner: np.ndarray, weight: np.ndarray | None = None
) -> np.ndarray:
    """For each row the rows (their weight) of its owner whose grade and place are both strictly lower.

    Two grades first differ at one bit: the rows that agree above it are taken in order of place, and those
    with a 1 there find all with a 0 that come before.
    """
    count = np.zeros(grade.shape[0])
    by_place = np.argsort(place, kind="stable")
    n_bits = int(grade.max(initial=0)).bit_length()
    for bit in range(n_bits):
        block = owner * (1 << (n_bits - bit - 1)) + (grade >> (bit + 1))
        rows = by_place[np.argsort(block[by_place], kind="stable")]
        has_bit = (grade[rows] >> bit) & 1
        lower = 1 - has_bit if weight is None else (1 - has_bit) * weight[rows]
        lower_so_far = np.cumsum(lower) - lower
        new_block = _starts_run(block[rows])
        new_place = new_block | _starts_run(place[rows])
        found = lower_so_far[_run_start(new_place)] - lower_so_far[_run_start(new_block)]
        count[rows] += has_bit * found
    return count


def _starts_run(values: np.ndarray) -> np.ndarray:
    starts = np.ones(values.shape[0], dtype=bool)
    starts[1:] = values[1:] != values[:-1]
    return starts


def _run_start(starts: np.ndarray) -> np.ndarray:
    """The position where the run of each position starts."""
    return np.maximum.accumulate(np.where(starts, np.arange(starts.shape[0]), 0))
