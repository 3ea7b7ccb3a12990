r"""Is there anything to learn? A permutation test that learns all permutations as outputs of one model.

A permutation test is exact if the labels are exchangeable, given X, in the way in which they are permuted: then the
statistic T of the original labels is one draw among those of the permuted ones, and P(p ≤ a) ≤ a. Which labels are
exchangeable depends on what depends on what (`Exchange`):

| | permuted | exchangeable if |
|---|---|---|
| without groups | rows, inside their query | rows are independent |
| groups, each with one label | whole groups, inside their query | the label of a group is independent of its rows |
| groups whose labels vary | rows, inside their group and query | the rows of a group are alike but for their labels |

Times and events of censored data (`lived_longer`: even where the event was seen) are permuted together.

Permutations with which T is not defined are drawn again: given that T is defined for the original labels, these are one
draw among the permutations with which it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import gammaln
from sklearn.utils import check_random_state

from ..comparisons import Groups, encode_queries
from ..comparisons.censored import lived_longer
from ..comparisons.inputs import read_scores, read_times, surv
from ..errors import InputError, Remedy
from ..kernels.functions import n_items
from ..metrics import concordance
from ..plots import on_axes
from ..progress import Counter
from ..shown_tables import shows_itself
from ._choice import compared_within
from ._folds import Folds, default_cv, encode_groups, read_folds, shuffled_folds
from ._held_out import HeldOut
from ._performance import C_INDEX
from ._problem import has_closed_form

# Number of permuted scores that are processed together: enough for the matrix products, within a bound on memory.
_NUMBERS = 1 << 22
# How often permutations with which the statistic is not defined are drawn again.
_DRAWS = 100


@shows_itself
@dataclass(frozen=True)
class PermutationTest:
    """The result of a permutation test.

    Attributes
    ----------
    value : float
        Held-out concordance with the original scores.
    pvalue : float
        (1 + permutations that reach it) / (1 + permutations).
    permuted : ndarray of shape (n_permutations,)
        Held-out concordance with permuted scores.
    exchanged : str
        What was permuted, in words: "the labels of 20 groups". Empty for rows without groups.
    smallest_pvalue : float
        No labels could have had a smaller one: limited by the permutations drawn, and by how many differ.
    measure : str
        "concordance", or "C-index" of censored times.
    """

    value: float
    pvalue: float
    permuted: np.ndarray = field(repr=False)
    exchanged: str = ""
    smallest_pvalue: float = 0.0
    measure: str = "concordance"

    def __str__(self) -> str:
        low, high = np.quantile(self.permuted, [0.025, 0.975])
        n = self.permuted.shape[0]
        of_what = f" of {self.exchanged}" if self.exchanged else ""
        limit = ""
        if self.smallest_pvalue > 1.5 / (1 + n):  # not explained by the number of permutations
            limit = f"; so few permutations differ that p cannot be below {self.smallest_pvalue:.2g}"
        return (
            f"held-out {self.measure} {self.value:.3f}, p = {self.pvalue:.2g} over {n} permutations{of_what} "
            f"(permuted scores: mean {self.permuted.mean():.3f}, 95 % between {low:.3f} and {high:.3f}{limit})"
        )

    @on_axes
    def plot(self, ax: Any) -> None:
        """The histogram of the permuted scores, and the one found."""
        ax.hist(self.permuted, bins=30, color="C7", label="scores permuted")
        ax.axvline(self.value, color="C1", label=f"original: {self.value:.3f}, p = {self.pvalue:.2g}")
        ax.set(xlabel=f"held-out {self.measure}", ylabel="permutations")
        ax.legend(frameon=False)


def permutation_test(
    estimator,
    X,
    y,
    *,
    qid=None,
    event=None,
    n_permutations=1000,
    cv=None,
    groups=None,
    random_state=None,
    verbose=0,
) -> PermutationTest:
    """Test whether held-out concordance is better than with scores permuted (inside queries, and with groups).

    Parameters
    ----------
    estimator : estimator
        For `RLS` and `RankRLS` all permutations are outputs of one model, held out by algebra; others are refitted for
        every permutation and fold.
    X : as in fit
    y : array-like of shape (m,)
    qid : array-like of shape (m,), optional
        Scores are permuted inside queries, and rows are compared inside queries.
    event : array-like of bool, shape (m,), optional
        Where y holds censored times, as in the fit of `RankRLS`: times and events are permuted together, the statistic
        is the C-index, and every permutation takes a training for each fold.
    n_permutations : int, default=1000
    cv : as in cross_val_predict, optional
        By default leave-query-out with qid; else with groups leave-group-out, or folds of whole groups in random order
        where each group has one label; else ten folds of rows.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (patients, documents): rows of a group are never on both sides of a fold. What is
        permuted depends on y, see Notes.
    random_state : int, RandomState or None
    verbose : int, default=0

    Returns
    -------
    PermutationTest

    Notes
    -----
    The statistic compares rows only inside a query and a fold, where one model predicts them; it is the mean over the
    folds (and queries) with two different labels. It is refused where there is none, and permutations with which it is
    not defined are drawn again.

    With `groups` the null hypothesis depends on y:

    - Each group has one label (patients with and without a disease, several visits each): the labels of whole groups
      are permuted, whatever their sizes. Null hypothesis: the label of a group is independent of its rows, of their
      features and their number. Each group has to lie in one query.
    - Labels vary inside groups: rows are permuted inside their group (and query). Null hypothesis: the labels inside a
      group are independent of its rows; differences between groups, of features and of labels, are not tested. Groups
      with one label stay as they are. A trend of both over time inside groups violates it.

    Folds are made once, from the original y: the p-value is exact for folds that do not depend on y.

    A test whose p-value could not be 0.05 or below, since too few permutations differ, is refused: three groups against
    three have 20 permutations, in pairs of opposite ones that give the same statistic.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> permutation_test(RankRLS(), X, X[:, 0], n_permutations=99, random_state=0).pvalue
    0.01
    """
    if not isinstance(n_permutations, Integral) or n_permutations < 1:
        raise ValueError(f"n_permutations must be an int of at least 1: found {n_permutations!r}.")
    n_rows = n_items(X)
    times, events = read_times(y, event)
    scores, _ = read_scores(times, n_rows, estimator=estimator)
    if scores.shape[1] != 1:
        raise ValueError("permutation_test takes one score per row.")
    queries = encode_queries(qid, n_rows)
    y, n = scores[:, 0], int(n_permutations)
    y = y if events is None else lived_longer(y, events) * 1.0
    owners = None if groups is None else encode_groups(groups, n_rows)
    exchange = replace(Exchange.of(y, queries, owners), censored=events is not None)
    cv = exchange.default_cv(qid, groups) if cv is None else cv
    folds = read_folds(cv, X, y, n_rows, qid=qid, groups=groups)
    # Others may refuse to train on rows without a pair.
    closed = has_closed_form(estimator) and events is None
    training = [] if closed else folds.leaving
    Y = _defined_permutations(exchange, folds, training, queries, n, check_random_state(random_state))
    tested = np.sort(np.concatenate(folds.tests))
    within = encode_queries(compared_within(folds, queries)[tested], tested.shape[0])
    values = np.concatenate(
        [
            np.atleast_1d(
                concordance(exchange.labels(Y[tested, outputs]), f[tested], within, per_query=True).means
            )
            for outputs, f in _held_out(estimator, X, Y, qid, folds, groups, verbose, exchange, closed=closed)
        ]
    )
    reached = int(np.count_nonzero(values[1:] >= values[0] - 1e-12))
    smallest = max(exchange.smallest_pvalue, 1 / (1 + n))
    pvalue, measure = (1 + reached) / (1 + n), "concordance" if events is None else C_INDEX
    return PermutationTest(float(values[0]), pvalue, values[1:], exchange.words, smallest, measure)


@dataclass(frozen=True)
class Exchange:
    """What is exchangeable under the null hypothesis: labels of units, inside blocks.

    Attributes
    ----------
    y : ndarray of shape (n_units,)
        The label of each unit.
    unit_of : ndarray of shape (m,) or None
        The unit of each row; None where rows are the units.
    blocks : Groups
        Of the units.
    words : str
        What is permuted; empty for rows without groups.
    censored : bool
        Whether labels are `lived_longer` of censored times.
    """

    y: np.ndarray
    unit_of: np.ndarray | None
    blocks: Groups
    words: str = ""
    censored: bool = False

    @classmethod
    def of(cls, y: np.ndarray, queries: Groups, groups: Groups | None) -> Exchange:
        """By whether the label varies inside groups."""
        if groups is None:
            return cls(y, None, queries)
        first = groups.order[groups.starts[:-1]]
        varies = np.zeros(groups.n_groups, dtype=bool)
        varies[groups.codes[y != y[first][groups.codes]]] = True
        inside = encode_queries(queries.codes * groups.n_groups + groups.codes, y.shape[0])
        if varies.any():
            some = "" if varies.all() else f"{int(varies.sum())} of "
            return cls(y, None, inside, f"labels inside {some}{groups.n_groups} groups")
        if inside.n_groups > groups.n_groups:
            raise InputError(
                "Each group has one label, and some groups have rows in several queries: their labels cannot be "
                "permuted inside queries without tearing groups apart",
                Remedy("qid", None, "to permute the labels of groups as one ranking"),
                Remedy("groups", None, "if rows are dependent inside queries only"),
            )
        blocks = encode_queries(queries.codes[first], groups.n_groups)
        return cls(y[first], groups.codes, blocks, f"the labels of {groups.n_groups} groups")

    def default_cv(self, qid: Any, groups: Any) -> Any:
        """Folds in which different labels can be compared."""
        if self.unit_of is None or self.blocks.n_groups > 1:
            n_rows = self.y.shape[0] if self.unit_of is None else self.unit_of.shape[0]
            return default_cv(n_rows, qid=qid, groups=groups)
        # Four groups in each, where there are enough: most folds then hold groups with different labels.
        n_folds = min(10, self.y.shape[0] // 4)
        return [np.flatnonzero(np.isin(self.unit_of, fold)) for fold in shuffled_folds(self.y.size, n_folds)]

    def draw(self, number: int, generator: np.random.Generator) -> np.ndarray:
        """The labels of the rows, then permuted ones, a column each; shape (m, number + 1)."""
        Y = _permuted(self.y, self.blocks, number, generator)
        return Y if self.unit_of is None else Y[self.unit_of]

    def labels(self, Y: np.ndarray) -> np.ndarray:
        """What is learned from columns of labels; censored times come as one column."""
        return Y if not self.censored else surv(Y[:, 0] // 2, Y[:, 0] % 2 == 0)

    def without_pair(self, Y: np.ndarray, sets: Sequence[np.ndarray]) -> np.ndarray:
        """The columns in which no set of rows holds two rows to compare, shape (n_columns,)."""
        left = np.arange(Y.shape[1])
        for rows in sets:
            if left.size == 0:
                break
            part = Y[np.ix_(rows, left)]
            first = np.where(part % 2 == 0, part, np.inf) if self.censored else part
            left = left[first.min(axis=0) >= part.max(axis=0)]
        found = np.zeros(Y.shape[1], dtype=bool)
        found[left] = True
        return found

    @property
    def smallest_pvalue(self) -> float:
        """One over the number of permutations that differ; opposite labels are learned as opposite predictions."""
        total = 0.0
        opposite = self.y.min() + self.y.max() - self.y
        has_opposite = not self.censored or not (self.y % 2).any()
        for block in range(self.blocks.n_groups):
            rows = self.blocks.rows(block)
            equal = np.unique(self.y[rows], return_counts=True)[1]
            total += float(gammaln(rows.shape[0] + 1) - gammaln(equal + 1).sum())
            has_opposite = has_opposite and np.array_equal(np.sort(self.y[rows]), np.sort(opposite[rows]))
        return float(np.exp(np.log(2.0) * has_opposite - total))


def _defined_permutations(
    exchange: Exchange,
    folds: Folds,
    training: Sequence[np.ndarray],
    queries: Groups,
    number: int,
    random_state: np.random.RandomState,
) -> np.ndarray:
    """The original labels, then permuted ones for which the statistic is defined, a column each.

    ``training`` are the sets of rows that leave where the others must hold a pair to learn from.
    """
    generator = np.random.default_rng(random_state.randint(np.iinfo(np.int32).max))
    tests = _inside_queries(folds.tests, queries)
    rests = [_inside_queries([np.setdiff1d(np.arange(queries.n_rows), left)], queries) for left in training]

    def undefined(Y: np.ndarray) -> np.ndarray:
        return np.logical_or.reduce([exchange.without_pair(Y, sets) for sets in (tests, *rests)])

    Y = exchange.draw(number, generator)
    if rests and undefined(Y[:, :1])[0]:
        rests = []  # the learner does without, or refuses the original labels
    if exchange.without_pair(Y[:, :1], tests)[0]:
        raise InputError(
            "The statistic is not defined: in no fold of cv two rows (of the same query) have different labels, so "
            "that nothing can be compared",
            Remedy("cv", purpose="with fewer, larger folds"),
        )
    if exchange.smallest_pvalue > 0.05:  # the test could say nothing
        _refuse_few_permutations(exchange)
    for _ in range(_DRAWS):
        bad = np.flatnonzero(undefined(Y[:, 1:])) + 1
        if bad.size == 0:
            return Y
        Y[:, bad] = exchange.draw(bad.size, generator)[:, 1:]
    raise InputError(
        f"With {bad.size} of {number} permutations nothing can be compared in any fold (or learned from the rest), and "
        f"drawing them again {_DRAWS} times gave no others: different labels are too rare",
        Remedy("cv", purpose="with fewer, larger folds"),
    )


def _refuse_few_permutations(exchange: Exchange) -> None:
    what = exchange.words or "rows inside queries"
    raise InputError(
        f"Too few permutations of {what} differ: the p-value could not be below {exchange.smallest_pvalue:.2g}, so "
        "that the test could find nothing at 5 %. It takes more of them, for example four groups with one label and "
        "three with another; where labels vary inside few groups only, give each group one label to compare groups"
    )


def _inside_queries(sets: Sequence[np.ndarray], queries: Groups) -> list[np.ndarray]:
    """Each set of rows divided by query."""
    if queries.n_groups == 1:
        return list(sets)
    parts = []
    for rows in sets:
        codes = encode_queries(queries.codes[rows], rows.shape[0])
        parts += [rows[codes.rows(query)] for query in range(codes.n_groups)]
    return parts


def _permuted(
    y: np.ndarray, queries: Groups, n_permutations: int, generator: np.random.Generator
) -> np.ndarray:
    """The original scores, then permuted inside queries, one column each."""
    Y = np.empty((n_permutations + 1, y.shape[0]))
    Y[0] = y
    for query in range(queries.n_groups):
        rows = queries.rows(query)
        size = rows.shape[0]
        together = slice(rows[0], rows[0] + size) if rows[-1] - rows[0] + 1 == size else rows
        Y[1:, together] = y[rows][_permutations(n_permutations, size, generator)]
    return np.ascontiguousarray(Y.T)


def _permutations(number: int, size: int, generator: np.random.Generator) -> np.ndarray:
    """Random permutations of 0 ... size - 1, one in a row, by sorting random keys that carry their place."""
    bits = max(1, int(size - 1).bit_length())
    places = (1 << bits) - 1
    keys = generator.integers(0, np.iinfo(np.uint64).max, (number, size), dtype=np.uint64, endpoint=True)
    keys &= np.uint64(np.iinfo(np.uint64).max - places)
    keys |= np.arange(size, dtype=np.uint64)
    keys.sort(axis=1)
    keys &= np.uint64(places)
    return keys.view(np.int64)


def _held_out(
    estimator, X, Y, qid, folds: Folds, groups, verbose, exchange: Exchange, *, closed: bool
) -> Iterator[tuple[slice, np.ndarray]]:
    """Held-out predictions to compare, some outputs at a time, from one factorisation where there is one."""
    at_once = max(1, _NUMBERS // Y.shape[0]) if closed else 1
    counter = Counter("permutation_test", Y.shape[1], "permutations", verbose)
    y = exchange.labels(Y[:, :1])
    held = HeldOut(estimator, X, y if exchange.censored else y[:, 0], qid=qid, groups=groups).for_order()
    for start in range(0, Y.shape[1], at_once):
        outputs = slice(start, min(start + at_once, Y.shape[1]))
        targets = exchange.labels(np.ascontiguousarray(Y[:, outputs]))
        held = held.with_targets(targets if targets.ndim == 1 or targets.shape[1] > 1 else targets[:, 0])
        yield outputs, held.predict(folds.tests)[0].reshape(targets.shape)
        counter(outputs.stop)
