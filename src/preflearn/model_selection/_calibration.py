r"""Cut-offs with a guarantee, from what held-out queries needed.

Every row of a query gets a distance a_i from the top of its list that is known without labels and grows down the list;
the rows of a query with a_i ≤ t are shown. A row that is shown adds its gain g_i, the gains of a query sum to at most
1, and the loss of the query is ℓ_q(t) = 1 - Σ g_i over the rows shown. The cut-off is the smallest t with

    (Σ_q ℓ_q(t) + 1) / (Q + 1) ≤ r

over Q held-out queries. If they and a new query are exchangeable, and none of them was used to train the model, the
expected loss of the new query is at most r (conformal risk control). Sets that hold the best item, ranks and recall are
all expressed by gains:

    rows that a set must hold      g = 1 at the last of them: t is the ⌈(1 - r) (Q + 1)⌉-th smallest of their distances
    recall                         g = 1 / number of relevant rows, at each of them
    NDCG of what is shown          g = gain / log₂(1 + rank) / ideal
    ranks inside their interval    g = 1 / n_q at every row, a the width that it needs

Reference: A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster. Conformal risk control. ICLR 2024. V. Vovk, A.
Gammerman, G. Shafer. Algorithmic learning in a random world (2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import beta
from sklearn.isotonic import isotonic_regression

from ..comparisons import Groups, encode_queries
from ..comparisons.grouping import positions_in_groups

DISTANCES = ("gap", "spread", "rank", "share", "softmax")
# Sums of gains are compared with the required value up to rounding.
_ROUNDING = 1e-9
# Folds of queries with which the coverage is measured.
_FOLDS = 10


def least_cutoff(distance: np.ndarray, gain: np.ndarray, n_queries: int, risk: float) -> float:
    """The smallest t at which (Σ_q ℓ_q(t) + 1) / (Q + 1) ≤ r.

    Parameters
    ----------
    distance, gain : ndarray of shape (p,)
        Of the rows with a gain.
    n_queries : int
        Q.
    risk : float
        r, at least 1 / (Q + 1).

    Notes
    -----
    O(p log p). Infinite where even showing the whole lists gains too little.

    Examples
    --------
    >>> import numpy as np
    >>> least_cutoff(np.arange(1.0, 10.0), np.ones(9), 9, risk=0.2)
    8.0
    """
    order = np.argsort(distance, kind="stable")
    gained = np.cumsum(gain[order])
    wanted = (n_queries + 1) * (1.0 - risk) * (1.0 - _ROUNDING)
    place = int(np.searchsorted(gained, wanted))
    return float(distance[order[place]]) if place < order.shape[0] else float("inf")


def distances(kind: str, scores: np.ndarray, queries: Groups) -> np.ndarray:
    """How far each row is from the top of its query.

    Parameters
    ----------
    kind : {"gap", "spread", "rank", "share", "softmax"}
        The difference from the highest score; this over σ, the standard deviation of the scores of the query; the
        number of rows with a higher score, plus one; this over the number of rows; or minus the logarithm of the row's
        share of Σ exp(f / σ). The first row of a query is always shown: it is at 0, or at rank 1.
    scores : ndarray of shape (m,)
    queries : Groups

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import encode_queries
    >>> distances("gap", np.array([1.0, 3.0, 2.0]), encode_queries([0, 0, 0], 3))
    array([2., 0., 1.])
    """
    codes = queries.codes
    gap = largest(scores, queries)[codes] - scores
    if kind == "gap":
        return gap
    if kind in ("rank", "share"):
        far = positions_in_groups(scores, queries).astype(float)
        if kind == "rank":
            return far
        far /= queries.counts[codes]
    else:
        far = gap / in_units_of(spreads(scores, queries))[codes]
        if kind == "softmax":
            far += np.log(np.bincount(codes, weights=np.exp(-far), minlength=queries.n_groups))[codes]
    return np.where(gap == 0, 0.0, far)  # the first row of a query is always shown


def in_units_of(spread: np.ndarray) -> np.ndarray:
    """The divisor: one where the scores of a query are all equal."""
    return np.where(spread > 0, spread, 1.0)


def largest(values: np.ndarray, queries: Groups) -> np.ndarray:
    """The largest value of each query, shape (n_groups,)."""
    return np.maximum.reduceat(values[queries.order], queries.starts[:-1])


def spreads(scores: np.ndarray, queries: Groups) -> np.ndarray:
    """Standard deviation of the scores of each query, shape (n_groups,)."""
    means = np.bincount(queries.codes, weights=scores) / queries.counts
    return np.sqrt(np.bincount(queries.codes, weights=(scores - means[queries.codes]) ** 2) / queries.counts)


def required_rows(y: np.ndarray, scores: np.ndarray, queries: Groups, target: str, k: int) -> np.ndarray:
    """The rows that the set of their query must hold, shape (m,); of rows with equal y those with the highest scores.

    Parameters
    ----------
    y, scores : ndarray of shape (m,)
    queries : Groups
    target : {"best", "top-k", "any-relevant", "all-relevant"}
        Relevant is y > 0.
    k : int

    Returns
    -------
    ndarray of bool
        All False in queries without such rows: those whose y are all equal, or without a relevant row.
    """
    relevant = y > 0
    if target == "all-relevant":
        return relevant
    if target == "any-relevant":
        first = positions_by(-scores, -relevant.astype(float), queries) == 0
        return first & relevant
    has_different_y = largest(y, queries) > -largest(-y, queries)
    first = positions_by(-scores, -y, queries) < (1 if target == "best" else k)
    return first & has_different_y[queries.codes]


def positions_by(second: np.ndarray, first: np.ndarray, queries: Groups) -> np.ndarray:
    """Positions inside queries, from 0 on, by one key and, where it is tied, by a second one."""
    order = np.lexsort((second, first, queries.codes))
    places = np.empty(order.shape[0], dtype=np.int64)
    places[order] = np.arange(order.shape[0]) - queries.starts[queries.codes[order]]
    return places


def recall_gains(y: np.ndarray, scores: np.ndarray, queries: Groups, k: int | None) -> np.ndarray:
    """One over the number of relevant rows (y > 0) at each of them; with k, at no more than the first k of them."""
    relevant = y > 0
    place = positions_by(-scores, -relevant.astype(float), queries)
    if k is not None:
        relevant = relevant & (place < k)
    wanted = np.bincount(queries.codes, weights=relevant, minlength=queries.n_groups)
    return relevant / np.maximum(wanted, 1.0)[queries.codes]


def ndcg_gains(y: np.ndarray, scores: np.ndarray, queries: Groups) -> np.ndarray:
    """What each row adds to the NDCG of the list: (2^y - 1) / log₂(1 + rank), divided by the DCG of the ideal list.

    Rows with equal scores share the mean of their discounts, as in `preflearn.metrics.ndcg`: the order in which they
    are given may happen to be that of y.
    """
    gain = np.exp2(y) - 1.0
    ideal_places, places = (positions_by(-scores, -first, queries) for first in (y, scores))
    ideal = np.bincount(queries.codes, weights=gain / np.log2(ideal_places + 2.0), minlength=queries.n_groups)
    tied = queries.starts[queries.codes] + positions_in_groups(
        scores, queries
    )  # the same using only equal scores
    of_ties, tie = np.unique(tied, return_inverse=True)
    counts = np.bincount(tie, minlength=of_ties.shape[0])
    discount = np.bincount(tie, weights=1.0 / np.log2(places + 2.0), minlength=of_ties.shape[0]) / counts
    return gain * discount[tie] / np.where(ideal > 0, ideal, 1.0)[queries.codes]


def rank_needs(y: np.ndarray, scores: np.ndarray, queries: Groups) -> np.ndarray:
    """The smallest c for each row at which its true rank lies in [1 + #{f_j > f_i + c}, n - #{f_j < f_i - c}].

    With F the scores of the query in descending order and ranks r₁ to r₂ for rows that share y, any of which is
    correct, c_i = max(0, F_{r₂} - f_i, f_i - F_{r₁}). O(m log m).
    """
    order = np.lexsort((-scores, queries.codes))
    descending = scores[order]
    first = positions_in_groups(y, queries) - 1
    last = queries.counts[queries.codes] - positions_in_groups(-y, queries)
    start = queries.starts[queries.codes]
    need = np.maximum(descending[start + last] - scores, scores - descending[start + first])
    return np.maximum(need, 0.0)


def rank_bounds(scores: np.ndarray, width: np.ndarray, queries: Groups) -> np.ndarray:
    """[1 + #{f_j > f_i + c}, n - #{f_j < f_i - c}] for c the width of the query of i, shape (m, 2)."""
    bounds = np.empty((scores.shape[0], 2), dtype=np.int64)
    for query in range(queries.n_groups):
        rows = queries.rows(query)
        ascending = np.sort(scores[rows])
        above = rows.shape[0] - np.searchsorted(ascending, scores[rows] + width[query], side="right")
        below = np.searchsorted(ascending, scores[rows] - width[query], side="left")
        bounds[rows, 0], bounds[rows, 1] = 1 + above, rows.shape[0] - below
    return bounds


@dataclass(frozen=True)
class Cutoff:
    """Which distance is cut off, and at which value.

    Attributes
    ----------
    kind : str
        A name of `DISTANCES`.
    value : float
        t.
    """

    kind: str
    value: float


@dataclass
class Calibration:
    """Held-out scores with the true y: what cut-offs are chosen by.

    Attributes
    ----------
    scores, y : ndarray of shape (m,)
    codes : ndarray of int of shape (m,)
        The query of each row.
    """

    scores: np.ndarray
    y: np.ndarray
    codes: np.ndarray

    @property
    def queries(self) -> Groups:
        return encode_queries(self.codes, self.codes.shape[0])

    @property
    def counted(self) -> np.ndarray:
        """The queries whose rows have different y, shape (n_groups,)."""
        queries = self.queries
        return largest(self.y, queries) > -largest(-self.y, queries)

    def take(self, chosen: np.ndarray) -> Calibration:
        """Some queries, given as a bool array of shape (n_groups,)."""
        rows = chosen[self.queries.codes]
        return Calibration(self.scores[rows], self.y[rows], self.codes[rows])


class SetChoice:
    """Sets of held-out queries for every distance, and the distance that makes them smallest.

    Parameters
    ----------
    held_out : Calibration
    target, k : as in `required_rows`
    kinds : sequence of str
        Distances to choose from.

    Attributes
    ----------
    needs : dict of ndarray of shape (n_counted,)
        For each distance, the cut-off at which the set of a query holds what it must.
    counted : ndarray of bool of shape (n_groups,)
        Queries that have something to hold.
    """

    def __init__(self, held_out: Calibration, target: str, k: int, kinds: Sequence[str] = DISTANCES) -> None:
        queries = held_out.queries
        required = required_rows(held_out.y, held_out.scores, queries, target, k)
        self.queries = queries
        self.counted = np.bincount(queries.codes, weights=required, minlength=queries.n_groups) > 0
        self.distances = {kind: distances(kind, held_out.scores, queries) for kind in kinds}
        self.needs = {
            kind: largest(np.where(required, far, -np.inf), queries)[self.counted]
            for kind, far in self.distances.items()
        }

    @property
    def n_counted(self) -> int:
        return int(self.counted.sum())

    def sizes(self, cutoff: Cutoff) -> np.ndarray:
        """The number of rows in the set of each query, shape (n_groups,)."""
        shown = self.distances[cutoff.kind] <= cutoff.value
        return np.bincount(self.queries.codes, weights=shown, minlength=self.queries.n_groups)

    def cutoff(self, coverage: float, kind: str, among: np.ndarray | None = None) -> Cutoff:
        """The cut-off of a distance, by all queries that count or by those in a bool array of shape (n_counted,)."""
        needs = self.needs[kind] if among is None else self.needs[kind][among]
        return Cutoff(kind, least_cutoff(needs, np.ones(needs.shape), needs.shape[0], 1.0 - coverage))

    def choose(self, coverage: float, among: np.ndarray | None = None) -> str:
        """The distance with the smallest sets: "softmax", unless those of another are significantly smaller.

        Sizes are compared as a mean of their logarithms over all coverages from 1 - 2 (1 - c) on. Sets that are
        smallest only at the requested coverage would often be so because their cut-off happens to be too low.
        """
        if len(self.needs) == 1:
            return next(iter(self.needs))
        sizes = {}
        for kind in self.needs:
            shown = np.sort(self.shown[kind] if among is None else self.shown[kind][among])
            least = (1.0 - 2.0 * (1.0 - coverage)) * (shown.shape[0] + 1)
            sizes[kind] = float(np.mean(np.log(shown[np.arange(1, shown.shape[0] + 1) >= least])))
        # Another distance is chosen only where its sets are smaller by one over the root of the number of queries.
        sizes["softmax"] -= 1.0 / np.sqrt(shown.shape[0])
        return min(sizes, key=lambda kind: sizes[kind])

    @cached_property
    def shown(self) -> dict[str, np.ndarray]:
        """For each distance, the rows of all queries that are shown at the cut-off that a query needs."""
        return {
            kind: np.searchsorted(np.sort(self.distances[kind]), needs, side="right")
            for kind, needs in self.needs.items()
        }

    def sizes_by_coverage(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Every coverage that the queries allow, and the mean size of the sets at it."""
        shown = np.sort(self.shown[kind])
        return np.arange(1, shown.shape[0] + 1) / (shown.shape[0] + 1), shown / self.queries.n_groups

    def covered(self, coverage: float, units: np.ndarray | None = None) -> np.ndarray:
        """Whether the set of each query that counts holds what it must, chosen and cut off by other queries.

        Shape (n_counted,). A tenth of the queries is left out at a time; single queries where there are fewer than ten.
        Queries of one unit, numbers of shape (n_groups,), are left out together.
        """
        place = np.arange(self.n_counted)
        if units is not None:
            place = np.unique(units[self.counted], return_inverse=True)[1]
        fold = place % min(_FOLDS, int(place.max()) + 1)
        found = np.zeros(self.n_counted, dtype=bool)
        for number in range(int(fold.max()) + 1):
            others = fold != number
            cutoff = self.cutoff(coverage, self.choose(coverage, others), others)
            found[~others] = self.needs[cutoff.kind][~others] <= cutoff.value
        return found


def share_interval(n_right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share of n independent trials.

    Examples
    --------
    >>> [round(end, 3) for end in share_interval(90, 100)]
    [0.824, 0.951]
    """
    tail = (1.0 - level) / 2
    low = float(beta.ppf(tail, n_right, n - n_right + 1)) if n_right > 0 else 0.0
    high = float(beta.ppf(1.0 - tail, n_right + 1, n - n_right)) if n_right < n else 1.0
    return low, high


def as_odds(coverage: float) -> str:
    """A share in words: "9 of 10", "95 of 100"."""
    for whole in (10, 100, 1000):
        if abs(coverage * whole - round(coverage * whole)) < 1e-9:
            return f"{round(coverage * whole)} of {whole}"
    return f"{coverage:.4g} of all"


@dataclass(frozen=True)
class OrderProbability:
    """The probability of an order by the difference of two scores: monotone, and estimated from held-out pairs.

    With d = f_a - f_b over pairs of a query with different y, p(|d|) is the share of pairs ordered as y is: counted in
    bins of equally many pairs, each query with the same weight, smoothed by half a row on each side and made monotone
    (isotonic regression). For d < 0 it is 1 - p(|d|), and one half at d = 0.

    Attributes
    ----------
    difference, probability : ndarray of shape (b,)
        Its corners, from (0, 1/2) on; constant after the last.
    """

    difference: np.ndarray
    probability: np.ndarray

    def __call__(self, d: np.ndarray) -> np.ndarray:
        p = np.interp(np.abs(d), self.difference, self.probability)
        return np.where(d >= 0, p, 1.0 - p)

    @classmethod
    def fit(cls, held_out: Calibration) -> OrderProbability:
        """From the pairs of held-out queries: of up to 300 queries, up to 200 each, drawn at random."""
        size, right, weight = _pairs(held_out)
        if not size.shape[0]:
            return cls(np.zeros(1), np.full(1, 0.5))
        order = np.argsort(size, kind="stable")
        size, right, weight = size[order], right[order], weight[order]
        n_queries = weight.sum()
        n_bins = max(1, min(40, int(n_queries) // 3))  # at least three queries in each
        place = np.minimum((np.cumsum(weight) / n_queries * n_bins).astype(np.int64), n_bins - 1)
        total = np.bincount(place, weights=weight, minlength=n_bins)
        kept = total > 0
        middle = np.bincount(place, weights=weight * size, minlength=n_bins)[kept] / total[kept]
        # The weight of one row, where a query has weight 1.
        row = held_out.queries.n_groups / held_out.scores.shape[0]
        won = (np.bincount(place, weights=weight * right, minlength=n_bins)[kept] + row / 2) / (
            total[kept] + row
        )
        p = np.maximum(isotonic_regression(won, sample_weight=total[kept] + row), 0.5)
        return cls(np.concatenate([[0.0], middle]), np.concatenate([[0.5], p]))

    def _fitted_arrays(self) -> dict[str, str]:
        if np.any(np.diff(self.difference) < 0):
            raise ValueError("difference is not ascending")
        return {"difference": "b", "probability": "b"}


def _pairs(held_out: Calibration) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """|d|, whether the order is right (one half for a tie), and the weight of pairs with different y."""
    rng = np.random.default_rng(0)
    queries: Groups = held_out.queries
    found = []
    for query in range(0, queries.n_groups, 1 + queries.n_groups // 300):
        rows = queries.rows(query)
        i, j = _some_pairs(rows.shape[0], rng)
        dy = held_out.y[rows[i]] - held_out.y[rows[j]]
        differs = dy != 0
        if not differs.any():
            continue
        d = (held_out.scores[rows[i]] - held_out.scores[rows[j]])[differs] * np.sign(dy[differs])
        found.append((np.abs(d), 0.5 * (1.0 + np.sign(d)), np.full(d.shape, 1.0 / d.shape[0])))
    if not found:
        return (np.empty(0),) * 3
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


def _some_pairs(n: int, rng: np.random.Generator, most: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of n rows, or a random sample of them."""
    if n * (n - 1) // 2 <= most:
        return np.triu_indices(n, 1)
    i, j = rng.integers(n, size=most), rng.integers(n - 1, size=most)
    return i, j + (j >= i)
