"""Which pairs violate the margin, and what they cost.

A pair says that row j is better than row i. At predictions p it violates the margin μ (1, unless said otherwise)
when p_j < p_i + μ. With M the oriented, weighted incidence matrix of the violating pairs, all losses see them only
through

    c_i, d_i   weighted violations as the worse and as the better row,   b = d - c
    L = M Mᵀ   their graph Laplacian:  L v = (c + d) v - Q(v),  Q(v)_i = sum of v over the partners of i

    hinge           h_μ(p) = Σ (μ - p_j + p_i)    = μ Σc - bᵀp                  subgradient  -b
    squared hinge   s_μ(p) = Σ (μ - p_j + p_i)²   = μ h_μ(p) + pᵀ(L p - μ b)    gradient     2 (L p - μ b)
                                                                                Hessian      2 L

so that the squared hinge at fixed violations is the least-squares problem of RankRLS with their L and b. The hinge
rounded off over a width ε is a difference of two squared hinges, (s_1 - s_{1-ε}) / 2ε, with slopes
β = clip(ξ / ε, 0, 1) at ξ = 1 - p_j + p_i.

`ScoredPairs` (all pairs with different scores inside each query) finds c, d and L v in O(m log m) however many
distinct scores there are; `ListedPairs` (given pairs) in O(l). Neither makes a feature vector per pair.

With weights w of the rows a pair counts w_i w_j: c and d are w times the sums of w over the violating partners in one
role, and Q(v) becomes w Q(w v).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..comparisons import CensoredComparisons
from ..comparisons.censored import lived_longer
from ..comparisons.grouping import WEIGHTINGS, Groups, one_group, query_weights
from ..numerics.linalg import dot_without_blas
from ..numerics.threads import in_turns
from ..numerics.threads import n_threads as processors

# Rows that a piece of work for a thread should have at least.
_PIECE = 16_384
# Maximum number of children of a node of the tree over the scores (1024, the loops' own limit, is the fastest).
_FANOUT = 1024


class Violations(Protocol):
    """The margin-violating pairs at one vector of predictions.

    Attributes
    ----------
    p : ndarray of shape (m,)
        The predictions.
    margin : float
    worse, better : ndarrays of shape (m,)
        Weighted numbers c and d of violated pairs that a row is the worse or the better one of; whole numbers where
        all weights are one.
    """

    p: np.ndarray
    margin: float
    worse: np.ndarray
    better: np.ndarray

    def laplacian(self, v: np.ndarray) -> np.ndarray:
        """L v for the Laplacian L of the violating pairs, shape (m,); a new array unless v is p."""
        ...


class PairSet(Protocol):
    """Pairs to be ordered."""

    n_rows: int
    n_pairs: int
    groups: Groups

    def violations(self, p: np.ndarray, *, margin: float = 1.0) -> Violations:
        """The pairs that violate the margin at the finite predictions p."""
        ...


def hinge(violations: Violations) -> tuple[float, np.ndarray]:
    """Sum of the hinge losses and a subgradient with respect to the predictions, O(m) given the violations.

    Equations (4.12) and (4.13) of Airola, "Kernel-based ranking" (PhD thesis, University of Turku, 2011).
    """
    slope = np.subtract(violations.worse, violations.better, dtype=np.float64)
    return float(violations.margin * violations.worse.sum() + dot_without_blas(slope, violations.p)), slope


def squared_hinge(violations: Violations) -> tuple[float, np.ndarray]:
    """Sum of the squared hinge losses and its gradient 2 (L p - μ b) with respect to the predictions."""
    linear, gradient = hinge(violations)
    # In place: memory that is touched for the first time costs more than the arithmetic.
    gradient *= violations.margin
    gradient += violations.laplacian(violations.p)
    value = violations.margin * linear + dot_without_blas(gradient, violations.p)
    gradient *= 2.0
    # Rounding can leave a tiny negative number where no pair is violated.
    return max(value, 0.0), gradient


class SquaredHinge:
    """The squared hinge at one vector of predictions: value, gradient, curvature.

    Attributes
    ----------
    value : float
    gradient : ndarray of shape (m,)
        With respect to the predictions.
    degrees : ndarray of shape (m,)
        Diagonal of the Hessian without the contribution of a row's partners: 2 (c + d).
    """

    def __init__(self, pairs: PairSet, p: np.ndarray):
        self._violations = pairs.violations(p)
        self.value, self.gradient = squared_hinge(self._violations)
        self.degrees = np.add(self._violations.worse, self._violations.better, dtype=np.float64)
        self.degrees *= 2.0

    def curvature(self, v: np.ndarray) -> np.ndarray:
        """Hessian with respect to the predictions times v."""
        product = self._violations.laplacian(v)
        return np.multiply(product, 2.0, out=None if v is self._violations.p else product)


class RoundedHinge:
    """The hinge smoothed over ``width``, and the hinge itself, at one vector of predictions.

    Attributes
    ----------
    value, gradient, degrees
        As in `SquaredHinge`, of the smoothed hinge.
    hinge : float
        Sum of the plain hinge losses.
    slopes : float
        Σ β over pairs: with gradient u, the dual objective of the hinge at β is slopes - ‖Φᵀu‖² / 4 alpha.
    """

    def __init__(self, pairs: PairSet, p: np.ndarray, width: float):
        self._width = width
        self._outer = pairs.violations(p, margin=1.0)
        self._inner = pairs.violations(p, margin=1.0 - width)
        outer, outer_gradient = squared_hinge(self._outer)
        inner, inner_gradient = squared_hinge(self._inner)
        self.value = max(outer - inner, 0.0) / (2.0 * width)
        self.gradient = (outer_gradient - inner_gradient) / (2.0 * width)
        self.hinge = hinge(self._outer)[0]
        self.slopes = (self.hinge - hinge(self._inner)[0]) / width
        between = self._outer.worse + self._outer.better - self._inner.worse - self._inner.better
        self.degrees = np.maximum(between, 0.0) / width  # weights leave rounding errors of either sign

    def curvature(self, v: np.ndarray) -> np.ndarray:
        """Hessian with respect to the predictions times v."""
        return (self._outer.laplacian(v) - self._inner.laplacian(v)) / self._width

    def narrowed(self, width: float) -> NarrowedHinge:
        """The model of a smaller width in which every pair keeps its present role."""
        return NarrowedHinge(self, width)


class NarrowedHinge:
    """What the hinge smoothed over a smaller width becomes if the pairs now in the smoothed part stay there.

    Pairs with ξ below the old width get the loss ξ² / 2ε of the new width ε even where ξ > ε, all others keep their
    slope of 1. Its minimiser is the one for the new width wherever the roles of the pairs do not change.

    Attributes
    ----------
    gradient, degrees
        As in `SquaredHinge`.
    """

    def __init__(self, rounded: RoundedHinge, width: float):
        self._rounded = rounded
        self._scale = rounded._width / width
        outer, inner = rounded._outer, rounded._inner
        beyond = inner.worse - inner.better
        between = outer.worse - outer.better - beyond + outer.laplacian(outer.p) - inner.laplacian(inner.p)
        self.gradient = between / width + beyond
        self.degrees = self._scale * rounded.degrees

    def curvature(self, v: np.ndarray) -> np.ndarray:
        return self._scale * self._rounded.curvature(v)


@dataclass
class SortedViolations:
    """Violations of scored pairs; the order of the predictions stays with the pairs for further products."""

    pairs: ScoredPairs
    p: np.ndarray
    margin: float
    worse: np.ndarray
    better: np.ndarray
    laplacian_p: np.ndarray

    def laplacian(self, v: np.ndarray) -> np.ndarray:
        return self.laplacian_p if v is self.p else self.pairs._laplacian(self, v)


@dataclass
class _ListedViolations:
    """Violations of listed pairs: the pairs themselves."""

    p: np.ndarray
    margin: float
    better_rows: np.ndarray
    worse_rows: np.ndarray
    weight: np.ndarray

    def __post_init__(self) -> None:
        # Without pairs np.bincount gives whole numbers.
        m = self.p.shape[0]
        self.worse = np.bincount(self.worse_rows, self.weight, minlength=m).astype(float, copy=False)
        self.better = np.bincount(self.better_rows, self.weight, minlength=m).astype(float, copy=False)

    def laplacian(self, v: np.ndarray) -> np.ndarray:
        weighted = self.weight * (v[self.better_rows] - v[self.worse_rows])
        m = v.shape[0]
        product = np.bincount(self.better_rows, weighted, minlength=m).astype(float, copy=False)
        product -= np.bincount(self.worse_rows, weighted, minlength=m)
        return product


class ListedPairs:
    """Given pairs of rows, the better row first.

    Parameters
    ----------
    n_rows : int
    pairs : ndarray of shape (l, 2), int
    weight : ndarray of shape (l,) or None
        Factor of a pair's loss; one by default.

    Examples
    --------
    >>> import numpy as np
    >>> pairs = ListedPairs(3, np.array([[2, 0], [2, 1]]), None)
    >>> hinge(pairs.violations(np.array([0.0, 1.5, 2.0])))
    (0.5, array([ 0.,  1., -1.]))
    """

    def __init__(self, n_rows: int, pairs: np.ndarray, weight: np.ndarray | None):
        self.n_rows = n_rows
        self.n_pairs = pairs.shape[0]
        self.groups = one_group(n_rows)
        self._better, self._worse = np.ascontiguousarray(pairs.T)
        self._weight = np.ones(pairs.shape[0]) if weight is None else weight

    def violations(self, p: np.ndarray, *, margin: float = 1.0) -> _ListedViolations:
        """The pairs that violate the margin at p, O(l)."""
        violated = p[self._better] < p[self._worse] + margin
        return _ListedViolations(
            p, margin, self._better[violated], self._worse[violated], self._weight[violated]
        )


class ScoredPairs:
    """All pairs of rows of one query with different scores.

    Parameters
    ----------
    y : ndarray of shape (m,)
        Scores, higher is better; tied rows make no pair.
    groups : Groups
        The queries.
    weighting : {"pair", "item", "query"}, default="pair"
        Weight of a pair: 1, one over the rows of its query, or one over the pairs of its query.
    n_threads : int or None, default=None
        Number of threads to share the work; None uses all available processors.
    row_weights : ndarray of shape (m,) or None, default=None
        w, not negative: a pair counts with the product of the weights of its rows, and a row of weight 0 makes no pair.
        Weighting "item" then divides by the total weight of the query, "query" by that of its pairs.

    Notes
    -----
    Construction sorts y once, O(m log m). `violations` then costs one sort by prediction and
    log(m) / log(1024) sequential sweeps, each product with the Laplacian only the sweeps (see
    ``losses._loops``). With weights of rows `violations` sweeps three times: for c, for d and for L p.
    About 130 bytes of workspace per row. Threads share the queries, and the parts of a query of more than 1024
    different scores after its first sweep. Not for use by several threads at once.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons.grouping import one_group
    >>> pairs = ScoredPairs(np.array([1.0, 2.0, 3.0]), one_group(3))
    >>> violated = pairs.violations(np.array([0.0, 5.0, 5.5]))
    >>> violated.worse, violated.better
    (array([0, 1, 0], dtype=int32), array([0, 0, 1], dtype=int32))
    >>> squared_hinge(violated)[0]
    0.25
    """

    def __init__(
        self,
        y: np.ndarray,
        groups: Groups,
        weighting: str = "pair",
        n_threads: int | None = None,
        row_weights: np.ndarray | None = None,
    ):
        from . import _loops as pairstats

        self._loops = pairstats
        self.n_rows = y.shape[0]
        self.groups = groups
        # The order of tied rows makes no difference.
        rows = np.lexsort((y, groups.codes)) if groups.n_groups > 1 else np.argsort(y)
        if row_weights is not None:
            rows = rows[row_weights[rows] > 0]
        codes = groups.codes[rows] if groups.n_groups > 1 else groups.codes[: rows.shape[0]]
        new_query = _first_of_run(codes)
        new_tie = new_query | _first_of_run(y[rows])
        # Queries whose scores are all tied make no pair: their rows get no slot.
        in_pairs = np.bincount(codes[new_tie], minlength=groups.n_groups) > 1
        if not in_pairs.all():
            kept = in_pairs[codes]
            new_query, new_tie, rows = new_query[kept], new_tie[kept], rows[kept]
        n_slots = rows.shape[0]
        self._row_of = rows.astype(np.int32)
        # Rows that make no pair share the slot behind the last, where nothing is ever counted.
        slot_of = np.full(self.n_rows, n_slots, dtype=np.int32)
        slot_of[rows] = np.arange(n_slots, dtype=np.int32)
        tie_starts = np.append(np.flatnonzero(new_tie), n_slots)
        query_ties = np.searchsorted(tie_starts, np.append(np.flatnonzero(new_query), n_slots))
        self._weigh(rows, tie_starts, query_ties, weighting, row_weights)
        self._plan(slot_of, tie_starts, query_ties, max(1, n_threads or processors()))

    def _weigh(
        self,
        rows: np.ndarray,
        tie_starts: np.ndarray,
        query_ties: np.ndarray,
        weighting: str,
        row_weights: np.ndarray | None,
    ) -> None:
        """Number of pairs, the weights of the rows, and the factor of a row's sums over its pairs (empty: all one)."""
        if weighting not in WEIGHTINGS:
            raise ValueError(f"weighting must be 'pair', 'item' or 'query': found {weighting!r}.")
        sizes = np.diff(tie_starts[query_ties])
        totals, pairs = _totals_of_queries(np.diff(tie_starts).astype(float), query_ties)
        self.n_pairs = int(pairs.sum())
        # A copy: the compiled loops are specialised for arrays that are writable and without gaps.
        self._row_weights = None if row_weights is None else np.array(row_weights, dtype=np.float64)
        self._weight = np.zeros(0 if weighting == "pair" and row_weights is None else self.n_rows)
        if not self._weight.size:
            return
        if self._row_weights is not None:
            of_ties = np.add.reduceat(self._row_weights[rows], tie_starts[:-1])
            totals, pairs = _totals_of_queries(of_ties, query_ties)
        self._weight[rows] = np.repeat(query_weights(weighting, totals, pairs), sizes)
        if self._row_weights is not None:
            self._weight *= self._row_weights

    def _plan(
        self, slot_of: np.ndarray, tie_starts: np.ndarray, query_ties: np.ndarray, n_threads: int
    ) -> None:
        """Build the tree over the scores, divide it into pieces of work, and reserve the workspace."""
        loops, n_slots = self._loops, self._row_of.shape[0]
        n_queries, *tree, first_group = loops.split_tree(tie_starts, query_ties, _FANOUT)
        begin, end, level, first_bound, n_children, bounds, _ = self._tree = tuple(tree)
        self._children = np.zeros((int(level.max(initial=0)) + 1, n_slots + 1), np.uint16)
        layout = (level, first_bound, n_children, bounds)
        loops.child_of_slot(tie_starts, first_group, end, *layout, self._children)
        self._slot_of, self._query_begin = slot_of, begin[:n_queries]
        self._query_of_slot = np.repeat(
            np.arange(n_queries, dtype=np.int32), end[:n_queries] - begin[:n_queries]
        )
        self._n_threads = n_threads if n_slots > _PIECE else 1
        # All queries, then all subtrees below them: a single large query is shared among threads as well.
        self._pieces = [_pieces_of_work(np.flatnonzero(level == depth), end - begin) for depth in (0, 1)]
        self._records = np.empty(n_slots, loops.ROW)
        # What rows gather at one node: c, d, and the sums on asking and on entering.
        self._gathered = (*np.empty((2, n_slots), np.int32), *np.empty((2, n_slots)))
        self._settled = np.zeros(self.n_rows, loops.SETTLED)
        self._order, self._sorted_p, self._sorted_v = (
            np.empty(n_slots, np.int64),
            np.empty(n_slots),
            np.empty(n_slots),
        )
        self._slots, self._root_children = np.empty(n_slots, np.int32), np.empty(n_slots, np.uint16)
        self._sorted_for: np.ndarray | None = None

    def violations(self, p: np.ndarray, *, margin: float = 1.0) -> SortedViolations:
        """The pairs that violate the margin at p, O(m log m); a second margin at the same p needs no second sort.

        Parameters
        ----------
        p : ndarray of shape (m,), float64
            Predictions; finite. Not to be changed afterwards: their order is kept as long as the array is.
        margin : float, default=1.0
        """
        if self._row_weights is None:
            found = self._statistics(p, margin, self._loops.COUNTS_AND_SUMS)
        else:
            worse, better = self._weighted_counts(p, margin, self._row_weights)
            found = (worse, better, self._product(p, margin, worse, better))
        return SortedViolations(self, p, margin, *found)

    def counts(self, p: np.ndarray, *, margin: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Only the weighted counts c and d at p, all that a subgradient of the hinge needs; a little cheaper."""
        if self._row_weights is not None:
            return self._weighted_counts(p, margin, self._row_weights)
        worse, better, _ = self._statistics(p, margin, self._loops.COUNTS)
        return worse, better

    def _statistics(self, p: np.ndarray, margin: float, want: int) -> tuple[np.ndarray, ...]:
        """c, d and L p; without weights columns of one array, which the loops fill row by row."""
        self._sort(p)
        # Rows that make no pair are not written to.
        new = np.empty if self._row_of.shape[0] == self.n_rows else np.zeros
        settled = new(self.n_rows, self._loops.SETTLED)
        self._settle(p, margin, want, settled)
        if not self._weight.size:
            return settled["c"], settled["d"], settled["q"]
        weighted = tuple(np.empty((3, self.n_rows)))
        self._map(
            lambda low, high: self._loops.weigh(settled, self._weight, low, high, *weighted),
            *self._stretches(0, self.n_rows),
        )
        return weighted

    def _weighted_counts(
        self, p: np.ndarray, margin: float, row_weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """c and d with weights of rows: sums of the weights over the partners in each role."""
        self._sort(p)

        def summed(role: int) -> np.ndarray:
            self._settle(row_weights, margin, role, self._settled)
            # Subtracting from a running sum can leave a rounding error below zero.
            return self._weight * np.maximum(self._settled["q"], 0.0)

        return summed(self._loops.SUMS_AS_WORSE), summed(self._loops.SUMS_AS_BETTER)

    def _laplacian(self, violations: SortedViolations, v: np.ndarray) -> np.ndarray:
        self._sort(violations.p)
        return self._product(v, violations.margin, violations.worse, violations.better)

    def _product(self, v: np.ndarray, margin: float, worse: np.ndarray, better: np.ndarray) -> np.ndarray:
        """L v for the order that `_sort` left."""
        loops = self._loops
        summed = v if self._row_weights is None else self._row_weights * v
        self._settle(summed, margin, loops.SUMS, self._settled)
        product = np.empty(self.n_rows)
        self._map(
            lambda low, high: loops.finish_product(
                self._settled, self._weight, worse, better, v, low, high, product
            ),
            *self._stretches(0, self.n_rows),
        )
        return product

    def _map(self, function: Any, *columns: Any) -> list[Any]:
        """Call a function that runs compiled loops once per row of arguments, in threads when there are several."""
        return in_turns(function, list(zip(*columns, strict=True)), self._n_threads)

    def _stretches(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """Cut low..high into one stretch per thread."""
        n = self._n_threads if high - low > _PIECE else 1
        cuts = np.linspace(low, high, n + 1).astype(np.int64)
        return cuts[:-1], cuts[1:]

    def _sort(self, p: np.ndarray) -> None:
        """Sort the rows of every query by prediction, unless they are in this order already."""
        if self._sorted_for is p:
            return
        self._sorted_for = None  # until it is done
        of_slots = (self._slot_of, self._query_of_slot, self._children[0], self._query_begin.copy())
        found = (self._order, self._sorted_p, self._slots, self._root_children)
        self._loops.sort_into_queries(p, np.argsort(p), *of_slots, *found)
        self._sorted_for = p

    def _settle(self, v: np.ndarray, margin: float, want: int, settled: np.ndarray) -> None:
        """c, d and L p, or Q(v), per row, for the order that `_sort` left."""
        sorted_v = self._sorted_p
        if want >= self._loops.SUMS:
            sorted_v = np.take(v, self._order, out=self._sorted_v)
        rows = (self._sorted_p, sorted_v, self._slots, self._root_children)
        layout = (self._tree, self._children, self._row_of, *rows, *self._gathered, self._records)
        for pieces in self._pieces:
            self._map(
                lambda nodes: self._loops.settle_subtrees(nodes, *layout, margin, want, settled), pieces
            )


def _first_of_run(values: np.ndarray) -> np.ndarray:
    """Whether each value differs from the one before it."""
    first = np.ones(values.shape[0], dtype=bool)
    first[1:] = values[1:] != values[:-1]
    return first


def _totals_of_queries(ties: np.ndarray, query_ties: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and untied pairs of each query, or their weights, from those of its tie groups."""
    totals = np.add.reduceat(ties, query_ties[:-1])
    others = np.repeat(totals, np.diff(query_ties)) - ties
    return totals, np.add.reduceat(ties * others, query_ties[:-1]) / 2


def _pieces_of_work(nodes: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """The nodes in runs of about `_PIECE` rows each."""
    rows = np.cumsum(sizes[nodes])
    cuts = np.searchsorted(rows, np.arange(_PIECE, rows.max(initial=0), _PIECE)) + 1
    return [piece for piece in np.split(nodes, cuts) if piece.size]


class CensoredPairs(ScoredPairs):
    """Each row whose event was seen, with every row of its query that outlived it.

    Parameters
    ----------
    comparisons : CensoredComparisons
        The pairs with their weights.

    Notes
    -----
    As `ScoredPairs`, with two sweeps in place of one: over the partners in each role.
    """

    def __init__(self, comparisons: CensoredComparisons):
        order = lived_longer(comparisons.scores[:, 0], comparisons.events).astype(float)
        super().__init__(order, comparisons.queries)
        self.n_pairs = comparisons.n_comparisons
        self._o, self._w = comparisons.event_weights, np.ones(self.n_rows)
        if comparisons.row_weights is not None:
            self._w = comparisons.row_weights.astype(float)

    def violations(self, p: np.ndarray, *, margin: float = 1.0) -> SortedViolations:
        worse, better = self.counts(p, margin=margin)
        return SortedViolations(self, p, margin, worse, better, self._product(p, margin, worse, better))

    def counts(self, p: np.ndarray, *, margin: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        self._sort(p)
        # Subtracting from a running sum can leave a rounding error below zero.
        worse, better = (np.maximum(sums, 0.0) for sums in self._of_partners(self._w, self._o, margin))
        return self._o * worse, self._w * better

    def _product(self, v: np.ndarray, margin: float, worse: np.ndarray, better: np.ndarray) -> np.ndarray:
        of_better, of_worse = self._of_partners(self._w * v, self._o * v, margin)
        return (worse + better) * v - self._o * of_better - self._w * of_worse

    def _of_partners(
        self, of_better: np.ndarray, of_worse: np.ndarray, margin: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each row the sums over the better rows of its pairs, and over the worse rows of its pairs."""
        self._settle(of_better, margin, self._loops.SUMS_AS_WORSE, self._settled)
        over_better = self._settled["q"].copy()
        self._settle(of_worse, margin, self._loops.SUMS_AS_BETTER, self._settled)
        return over_better, self._settled["q"].copy()
