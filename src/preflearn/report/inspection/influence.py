r"""How much does a ranking depend on each feature? What is lost when its values are shuffled.

With c(X) the concordance of a model's scores and X⁽ᵏ⁾ the rows with column k shuffled,

    influence of k = c(X) - mean over shuffles of c(X⁽ᵏ⁾).

Values move only inside a query: between queries they would also lose what distinguishes the queries, which no ranking
inside a query uses. This shows what the model uses, not what is worth collecting: features that can replace each other
both look unimportant, and on training rows a feature that was fitted to noise looks important.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.stats import t as student
from sklearn.utils import check_random_state

from ...comparisons import Groups, encode_queries
from ...metrics import concordance
from ...metrics.by_query import wants_qid
from ...shown_tables import ShownTable, align_columns, shows_itself
from .explanation import ModelRows, count_rows, model_rows, take_rows

# The values of queries or preferences, from scores and the rows or preferences that are looked at (all of them).
_Measure = Callable[..., np.ndarray]
_MOST_BLOCKS = 30


@shows_itself
@dataclass(frozen=True, eq=False)
class FeatureInfluence:
    """The influence of each feature; prints itself, the largest first.

    Attributes
    ----------
    names : list of str
    values : ndarray of shape (n,)
        Concordance lost when the feature is shuffled, the mean over shuffles.
    intervals : ndarray of shape (n, 2)
        95 %, by Student's t over queries (or preferences). Where all rows are one ranking, or with groups, by the
        jackknife over at most 30 random blocks of whole groups (or rows). NaN where there is only one.
    concordance : float
        Of the unshuffled rows.
    n_rows, n_repeats : int
        Rows that were measured, and shuffles of each feature.
    over : str
        What the intervals are taken over, such as "queries" or "60 groups in 30 blocks".
    """

    names: list[str]
    values: np.ndarray
    intervals: np.ndarray
    concordance: float
    n_rows: int
    n_repeats: int
    over: str

    @property
    def order(self) -> np.ndarray:
        """Features, the most influential first."""
        return np.argsort(-self.values, kind="stable")

    def __str__(self) -> str:
        table = self.shown_tables()[0]
        return "\n".join([table.caption, *align_columns(table.rows), *table.notes])

    def shown_tables(self) -> list[ShownTable]:
        rows: list[tuple[str, ...]] = [("feature", "loss", "95 % interval")]
        for k in self.order:
            low, high = self.intervals[k]
            rows.append((self.names[k], f"{self.values[k]:+.4f}", f"{low:+.4f} to {high:+.4f}"))
        head = f"concordance {self.concordance:.4f} on {self.n_rows:,} rows; lost when a feature is shuffled"
        tail = f"mean of {self.n_repeats} shuffles; intervals by Student's t over {self.over}"
        return [ShownTable(rows, head, [tail])]

    def plot(self, ax: Any = None, *, n_features: int = 15) -> Any:
        """Bars of the largest losses, with their intervals.

        Parameters
        ----------
        ax : matplotlib axes, optional
        n_features : int, default=15

        Returns
        -------
        matplotlib axes
        """
        from ..displays import CoefficientsDisplay

        errors = self.intervals[:, 1] - self.values
        xlabel = "loss of concordance when shuffled"
        bars = CoefficientsDisplay(self.names, self.values, xlabel=xlabel, errors=errors)
        return bars.plot(ax, n_features=n_features).ax_


def feature_influence(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    qid: Any = None,
    pairs: Any = None,
    groups: Any = None,
    n_repeats: int = 10,
    max_rows: int | None = None,
    features: Sequence[int] | None = None,
    feature_names: Sequence[str] | None = None,
    random_state: Any = None,
) -> FeatureInfluence:
    """Concordance lost when the values of a feature are shuffled among the rows of a query.

    Parameters
    ----------
    model : fitted estimator
        Anything with ``predict``, which receives ``qid`` where it needs it; a pipeline is shuffled at its input.
    X : array-like, sparse matrix or data frame of shape (m, n)
        As ``predict`` takes it: a model of tables finds its columns by name; those that it does not use are left out.
    y : array-like of shape (m,), optional
        What is known about each row, higher is better. Rows that the model was not trained on give unbiased results.
    qid : array-like of shape (m,), optional
        The query of each row; without it all rows are one ranking.
    pairs : int array-like of shape (l, 2), optional
        Instead of y: row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (patients, documents), which the intervals then count; with ``pairs`` of shape (l,),
        those of the preferences (judges).
    n_repeats : int, default=10
        Shuffles of each feature.
    max_rows : int, optional
        Measure on a random sample of about this many rows, from as many queries as possible; of whole queries where the
        model's features are relative to their query. Not available with ``pairs``.
    features : sequence of int or str, optional
        Shuffle only these, by name or by number (of the columns of X, or of those that a model of tables uses).
    feature_names : sequence of n str, optional
        By default the names that the table or the model has, otherwise "x0", "x1", ....
    random_state : int, RandomState or None, default=None

    Returns
    -------
    FeatureInfluence

    Notes
    -----
    n · n_repeats predictions of m rows.

    References
    ----------
    L. Breiman. Random forests. Machine Learning 45 (2001), 5-32.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.inspection import feature_influence
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(300, 2)), np.repeat(np.arange(30), 10)
    >>> y = X[:, 0] + 0.5 * rng.normal(size=300)
    >>> model = RankRLS().fit(X[:150], y[:150], qid=qid[:150])
    >>> print(feature_influence(model, X[150:], y[150:], qid=qid[150:], feature_names=["a", "b"], random_state=0))
    concordance 0.8... on 150 rows; lost when a feature is shuffled
      feature     loss       95 % interval
      a        +0.3...  +0.3... to +0.4...
      b        ...
    mean of 10 shuffles; intervals by Student's t over queries
    """
    if n_repeats < 1:
        raise ValueError(f"n_repeats must be a positive whole number: found {n_repeats!r}.")
    random, n_rows = check_random_state(random_state), count_rows(X)
    if (y is None) == (pairs is None):
        raise ValueError("feature_influence needs y or pairs, and not both: found both or neither.")
    if pairs is not None:
        if qid is not None or max_rows is not None:
            raise ValueError("pairs compare rows directly: leave out qid and max_rows.")
        within, measure, over = encode_queries(None, n_rows), _share_of_pairs(pairs), "preferences"
        units = None if groups is None else encode_queries(groups, len(pairs))
    else:
        within, over = encode_queries(qid, n_rows), "rows" if qid is None else "queries"
        units = None if groups is None else encode_queries(groups, n_rows)
        rows = _sample(within, max_rows, random, whole=wants_qid(model))
        X, within = take_rows(X, rows), encode_queries(within.codes[rows], rows.size)
        if units is not None:
            units = encode_queries(units.codes[rows], rows.size)
        elif qid is None:
            units = Groups(np.arange(rows.size), rows.size)
        measure = _concordance_of_queries(np.asarray(y)[rows], within)
    if units is not None:
        n_blocks = min(units.n_groups, _MOST_BLOCKS)
        over = f"{units.n_groups:,} {over if groups is None else 'groups'} in {n_blocks} blocks"
        measure = _jackknifed(measure, units, n_blocks)
    found = model_rows(model, X, feature_names)
    whole = measure(found.predict(found.Z, within.codes))
    chosen = range(len(found.names)) if features is None else _read_features(features, found.names)
    losses = np.stack([_losses(found, k, within, measure, whole, n_repeats, random) for k in chosen])
    trials = losses.mean(axis=1)
    # The first of these values is that of all rows, and the others are those of blocks.
    values = trials.mean(axis=1) if units is None else trials[:, 0]
    trials = trials if units is None else trials[:, 1:]
    return FeatureInfluence(
        [found.names[k] for k in chosen],
        values,
        _intervals(values, trials),
        float(whole.mean() if units is None else whole[0]),
        within.n_rows,
        n_repeats,
        over,
    )


def _losses(
    found: ModelRows,
    k: int,
    groups: Groups,
    measure: _Measure,
    whole: np.ndarray,
    n_repeats: int,
    random: np.random.RandomState,
) -> list[np.ndarray]:
    """What each shuffle of feature k costs, by query or preference."""
    columns = np.flatnonzero(found.owners == k)
    shuffled = _shuffles(found.Z, columns, groups, n_repeats, random)
    return [whole - measure(found.predict(Z, groups.codes)) for Z in shuffled]


def _read_features(features: Sequence[int | str], names: list[str]) -> list[int]:
    found = [names.index(one) if isinstance(one, str) and one in names else one for one in features]
    if not found or not all(isinstance(k, Integral) and 0 <= k < len(names) for k in found):
        raise ValueError(
            f"features must be names or numbers of columns, from 0 to {len(names) - 1}: found {list(features)}, "
            f"and the names are {', '.join(names[:12])}."
        )
    return [int(k) for k in found]


def _concordance_of_queries(y: np.ndarray, groups: Groups) -> _Measure:
    """Concordance in each query that has a pair to order."""

    def measure(scores: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        found = concordance(y[rows], scores[rows], groups.codes[rows], per_query=True).values
        return found[~np.isnan(found)]

    if not measure(np.zeros(groups.n_rows)).size:
        raise ValueError("y is constant in every query: there is no pair to order.")
    return measure


def _share_of_pairs(pairs: Any) -> _Measure:
    """1 for each preference in the right order, 1/2 for a tie."""
    first, second = np.asarray(pairs).T
    return lambda scores, rows=slice(None): 0.5 + 0.5 * np.sign(scores[first[rows]] - scores[second[rows]])


def _jackknifed(measure: _Measure, units: Groups, n_blocks: int) -> _Measure:
    """The mean of a measure, then for each of B blocks of units B times it minus B - 1 times that without the block.

    Their mean is about that of all, and they spread as independent values would.
    """
    block = (np.random.default_rng(0).permutation(units.n_groups) % n_blocks)[units.codes]
    kept = [np.flatnonzero(block != left) for left in range(n_blocks)]

    def jackknifed(scores: np.ndarray) -> np.ndarray:
        whole, without = measure(scores).mean(), [measure(scores, rows) for rows in kept]
        left = np.array([one.mean() for one in without if one.size])  # the others leave nothing to compare
        return np.r_[whole, n_blocks * whole - (n_blocks - 1) * left]

    return jackknifed


def _shuffles(
    X: Any, columns: np.ndarray, groups: Groups, n_repeats: int, random: np.random.RandomState
) -> Any:
    """X with these columns, which form one feature, shuffled together inside the groups, repeatedly."""
    shuffled = X.tocsc(copy=True) if sp.issparse(X) else X.copy()
    for _ in range(n_repeats):
        # Sorting by the group and a random number shuffles the rows inside the groups.
        place = np.lexsort((random.random_sample(groups.n_rows), groups.codes))
        if sp.issparse(X):
            target = np.empty(groups.n_rows, dtype=shuffled.indices.dtype)
            target[place] = groups.order
            for k in columns:
                entries = slice(shuffled.indptr[k], shuffled.indptr[k + 1])
                shuffled.indices[entries] = target[shuffled.indices[entries]]
            shuffled.has_sorted_indices = False
            yield shuffled.tocsr()
        else:
            shuffled[groups.order[:, None], columns] = X[place[:, None], columns]
            yield shuffled


def _sample(
    groups: Groups, max_rows: int | None, random: np.random.RandomState, *, whole: bool
) -> np.ndarray:
    """Rows of as many groups as possible, or whole groups: the loss is a mean over groups, not over rows."""
    if max_rows is None or groups.n_rows <= max_rows:
        return np.arange(groups.n_rows)
    if whole and groups.n_groups > 1:
        order = random.permutation(groups.n_groups)
        n_groups = max(1, int(np.searchsorted(np.cumsum(groups.counts[order]), max_rows, side="right")))
        return np.sort(np.concatenate([groups.rows(group) for group in order[:n_groups]]))
    chosen = random.permutation(groups.n_groups)[: max(1, max_rows // 2)]
    most = max_rows // chosen.size
    picked = [groups.rows(group) for group in chosen]
    return np.sort(
        np.concatenate([random.choice(rows, min(most, rows.size), replace=False) for rows in picked])
    )


def _intervals(values: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """95 % intervals of values that are the means of independent trials, shape (n, trials)."""
    n = trials.shape[1]
    if n < 2:
        return np.full((values.shape[0], 2), np.nan)
    half = student.ppf(0.975, n - 1) * trials.std(axis=1, ddof=1) / np.sqrt(n)
    return np.column_stack([values - half, values + half])
