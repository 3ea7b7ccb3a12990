r"""Rows that count more or less: a row i with weight w_i, a pair (i, j) with weight w_i w_j.

With integer weights a row counts as that many copies of it. For plain regression L = diag(w) and b = w y. For the pairs
of a query with weights w, total W, and totals W_g of its tie groups, times the factor κ of the query,

    (L f)_i = κ w_i [ (W - W_g) (f_i - m_g) + W (m_g - μ) ],      (L f)_i = κ w_i W (f_i - μ) with ties included,

in O(m) for each column, where m_g and μ are the weighted means over the tie group and the query. W diag(w) - w wᵀ is
the same matrix, but where one weight is far above the others it is a small difference of large numbers. L = F Fᵀ with
Fᵀ f = √(κ w_i (W - W_g)) (f_i - m_g) + √(κ w_i W) (m_g - μ); there is no symmetric half in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .base import Comparisons, Removal, drop_from_blocks, parts_change_weight
from .grouping import Groups
from .queries import refuse_several_outputs, tie_groups_of


class WeightedRows(Comparisons):
    """J(f) = Σ w_i (y_i - f_i)² + λ ‖f‖².

    Parameters
    ----------
    scores : ndarray of shape (m, v)
        The targets y.
    row_weights : ndarray of shape (m,)
        w, not negative.
    """

    ignores_constants = False
    row_weights: np.ndarray

    def __init__(self, scores: np.ndarray, row_weights: np.ndarray):
        self.n_rows, self.n_comparisons = scores.shape[0], int(np.count_nonzero(row_weights))
        self.scores, self.row_weights = scores, row_weights
        self.target = row_weights[:, None] * scores

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        return (self.row_weights * V.T).T

    def diagonal(self) -> np.ndarray:
        return self.row_weights

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        return [(sp.eye_array(self.n_rows, format="csr"), self.row_weights)]

    def take(self, rows: np.ndarray) -> WeightedRows:
        return WeightedRows(self.scores[rows], self.row_weights[rows])

    def drop(self, rows: np.ndarray) -> Removal:
        root = np.sqrt(self.row_weights[rows])
        return Removal(rows, np.diag(root), np.ones(rows.shape[0]), self.target[rows])


class WeightedPairs(Comparisons):
    """All pairs (or all untied pairs) of rows of the same query, each with the product of the weights of its rows.

    Parameters
    ----------
    scores, queries, weighting, exclude_ties, unit : as in QueryComparisons
        Weighting "item" divides by the total weight of a query, "query" by that of its counted pairs.
    row_weights : ndarray of shape (m,)
        w, not negative.
    """

    has_factor = True

    queries: Groups
    row_weights: np.ndarray

    def __init__(
        self,
        scores: np.ndarray,
        queries: Groups,
        row_weights: np.ndarray,
        *,
        weighting: str = "pair",
        exclude_ties: bool = False,
        unit: bool = False,
    ):
        if exclude_ties or unit:
            refuse_several_outputs(scores)
        self.n_rows = scores.shape[0]
        self.scores, self.queries, self.row_weights = scores, queries, row_weights
        self._options: dict[str, Any] = {"weighting": weighting, "exclude_ties": exclude_ties, "unit": unit}
        self.weighting = weighting
        self._ties: WeightedGroups | None = None
        self._nodes = WeightedGroups(queries, row_weights)
        node_of_row = np.arange(self.n_rows)
        if exclude_ties or unit:
            ties = tie_groups_of(scores[:, 0], queries)[0]
            query_of_tie = np.empty(ties.n_groups, dtype=np.int64)
            query_of_tie[ties.codes] = queries.codes
            self._ties, node_of_row = WeightedGroups(ties, row_weights), ties.codes
            # Tie groups are numbered query by query, and in ascending order inside it.
            self._nodes = WeightedGroups(Groups(query_of_tie, queries.n_groups), self._ties.total)
        self.n_comparisons = self._count()
        self._factors = self._factors_of_queries()
        scaled = self._factors[queries.codes] * row_weights
        self._inner = scaled * self._nodes.others[node_of_row]
        self._outer = scaled * self._nodes.total[queries.codes]
        self.target = self._unit_target(scaled) if unit else self.laplacian(scores)

    def _count(self) -> int:
        """Pairs of rows that both have a weight."""
        counted = (self.row_weights > 0) * 1.0
        of_nodes = counted if self._ties is None else np.bincount(self._ties.groups.codes, weights=counted)
        of_queries = np.bincount(self.queries.codes, weights=counted)
        return int(round(float(of_queries @ of_queries - of_nodes @ of_nodes) / 2))

    def _with_weights(self, weights: np.ndarray) -> WeightedGroups:
        """What is compared, rows or tie groups, with other weights of the rows."""
        if self._ties is not None:
            weights = WeightedGroups(self._ties.groups, weights).total
        return WeightedGroups(self._nodes.groups, weights)

    def _factors_of_queries(self) -> np.ndarray:
        """κ."""
        if self.weighting == "pair":
            return np.ones(self.queries.n_groups)
        below = self._nodes.total if self.weighting == "item" else self._nodes.pair_weight()
        return np.divide(1.0, below, out=np.zeros_like(below), where=below > 0)

    def _unit_target(self, scaled: np.ndarray) -> np.ndarray:
        """b_i = κ w_i (weight of the lower rows minus that of the higher ones)."""
        assert self._ties is not None
        lower, higher = self._nodes.before_and_after()
        return (scaled * (lower - higher)[self._ties.groups.codes])[:, None]

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        return self._apply(V, self._inner, self._outer)

    def _apply(self, V: np.ndarray, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        """inner (V - mean of the tie group) + outer (mean of the tie group - mean of the query)."""
        columns = V.reshape(self.n_rows, -1)
        if self._ties is None:
            out = outer[:, None] * self._nodes.centred(columns)[0]
        else:
            inside, means = self._ties.centred(columns)
            between = self._nodes.centred(means)[0][self._ties.groups.codes]
            out = inner[:, None] * inside + outer[:, None] * between
        return out.astype(V.dtype, copy=False).reshape(V.shape)

    def _factored(self, V: np.ndarray) -> np.ndarray:
        """Fᵀ V with F Fᵀ = L."""
        return self._apply(V, np.sqrt(self._inner), np.sqrt(self._outer))

    def blocks(self, V: np.ndarray, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        T = self._factored(V)
        for start in range(0, self.n_rows, n_rows):
            part = T[start : start + n_rows]
            yield part, part

    def least_squares(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self._options["unit"]:
            return self._factored(V), self._factored(self.scores)
        # b is κ w times a constant of each tie group, and sums to zero over a query.
        outer = np.sqrt(self._outer)[:, None]
        t = np.divide(self.target, outer, out=np.zeros_like(self.target), where=outer > 0)
        return self._factored(V), t

    def diagonal(self) -> np.ndarray:
        return self._inner

    def to_dense(self) -> np.ndarray:
        w, codes = self.row_weights, self.queries.codes
        L = -(self._factors[codes] * w)[:, None] * w
        L[codes[:, None] != codes] = 0.0
        if self._ties is not None:
            ties = self._ties.groups.codes
            L[ties[:, None] == ties] = 0.0
        np.fill_diagonal(L, 0.0)
        np.fill_diagonal(L, -L.sum(axis=1))
        return L

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        if self._ties is None:
            return self._nodes.indicators(self._factors)
        # Rows of a tie group are a complete graph, too, and so are the means of the tie groups of a query.
        total = self._ties.total
        share = np.divide(self._nodes.others, total, out=np.zeros_like(total), where=total > 0)
        inside = self._ties.indicators(self._factors[self._nodes.groups.codes] * share)
        means = self._ties.averages()
        between = self._nodes.indicators(self._factors)
        return inside + [(sp.csr_array(means @ E), c) for E, c in between]

    def take(self, rows: np.ndarray) -> WeightedPairs:
        kept, codes = np.unique(self.queries.codes[rows], return_inverse=True)
        groups = Groups(codes.astype(np.int64), kept.shape[0])
        return WeightedPairs(self.scores[rows], groups, self.row_weights[rows], **self._options)

    @property
    def whole_queries_only(self) -> bool:
        return parts_change_weight(self.queries, self.weighting)

    @property
    def drops_row_by_row(self) -> bool:
        return self.queries.n_groups == 1 and self._ties is None

    def drop(self, rows: np.ndarray) -> Removal:
        if not self.drops_row_by_row:
            return drop_from_blocks(self, rows, self.queries)
        # L = κ W D^½ P D^½ with D = diag(w), u = √w / √W and P = I - u uᵀ. P minus the same for the rows that stay is
        # the projector on span{P e_i: i in H}. With r = u on H, ρ = 1 - |r|² the share of the weight that stays, an
        # orthonormal basis of it is I - r rᵀ / (1 + √ρ) on H and -u rᵀ / √ρ elsewhere.
        w = self.row_weights
        total, rest = float(self._nodes.total[0]), self._total_of_rest(rows)
        root, left = np.sqrt(w / total), np.sqrt(rest / total)
        columns = -np.outer(root, root[rows] / left)
        columns[rows] = np.eye(rows.shape[0]) - np.outer(root[rows], root[rows] / (1.0 + left))
        if rows.shape[0] == 1:
            columns[rows] = left  # the same without a subtraction
        size = float(self._factors[0]) * total
        columns *= np.sqrt(size * w)[:, None]
        scores = self.scores - self.scores[self._nodes.heaviest]
        return Removal(
            np.arange(self.n_rows),
            columns,
            np.ones(rows.shape[0]),
            columns @ (columns.T @ scores),
            self._size_of_rest(rows, rest) / size,
        )

    def _total_of_rest(self, rows: np.ndarray) -> float:
        stays = np.ones(self.n_rows, dtype=bool)
        stays[rows] = False
        rest = float(self.row_weights[stays].sum())
        if not rest > 0:
            raise ValueError("All remaining rows have weight 0: nothing is left to train on.")
        return rest

    def _size_of_rest(self, rows: np.ndarray, rest: float) -> float:
        """κ W of the rows that stay."""
        if self.weighting == "pair":
            return rest
        if self.weighting == "item":
            return 1.0
        weights = self.row_weights.copy()
        weights[rows] = 0.0
        pairs = float(self._with_weights(weights).pair_weight()[0])
        if not pairs > 0:
            raise ValueError("Only one row with a weight would be left: nothing is left to compare.")
        return rest / pairs


# ----------------------------------------------------------------
# The complete graph over the members of each group, an edge (i, j) with the product w_i w_j of their weights.
#
# Its Laplacian W diag(w) - w wᵀ is a small difference of large numbers where one weight is far above the others. So
# nothing is subtracted from a total that it dominates: means are taken relative to the heaviest member of the group,
# and the total of the others is summed without it.


# A member with a larger share of the weight of its group than this is compared with the others pair by pair.
_DOMINATES = 0.75


@dataclass(frozen=True)
class WeightedGroups:
    """Members of groups with their weights.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import one_group
    >>> WeightedGroups(one_group(3), np.array([1e20, 1.0, 2.0])).others.tolist()
    [3.0, 1e+20, 1e+20]
    """

    groups: Groups  # of the m members
    weights: np.ndarray  # w, not negative, shape (m,)

    @cached_property
    def total(self) -> np.ndarray:
        """W of each group."""
        return self._sums(self.weights)

    @cached_property
    def heaviest(self) -> np.ndarray:
        """A member of largest weight for each group."""
        order = np.lexsort((self.weights, self.groups.codes))
        return order[self.groups.starts[1:] - 1]

    @cached_property
    def others(self) -> np.ndarray:
        """W - w of each member, of the group that it is in."""
        light = self.weights.copy()
        light[self.heaviest] = 0.0
        others = self.total[self.groups.codes] - self.weights
        others[self.heaviest] = self._sums(light)
        return others

    def pair_weight(self) -> np.ndarray:
        """Total weight of the pairs of each group."""
        return self._sums(self.weights * self.others) / 2

    def before_and_after(self) -> tuple[np.ndarray, np.ndarray]:
        """For each member the total weights of those before and after it in its group; groups lie side by side."""
        from ._loops import sums_beside

        return sums_beside(self.weights, self.groups.starts)

    def centred(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """V minus the weighted mean of each group, shape (m, k), and those means, shape (n_groups, k)."""
        codes, reference = self.groups.codes, V[self.heaviest].astype(np.float64, copy=False)
        Z = V - reference[codes]
        means = np.asarray(self._matrix(self.weights).T @ Z)
        total = self.total[:, None]
        np.divide(means, total, out=means, where=total > 0)
        Z -= means[codes]
        return Z, reference + means

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.groups.codes, weights=values, minlength=self.groups.n_groups)

    def averages(self) -> sp.csr_array:
        """M with Mᵀ V the weighted means of the groups, shape (m, n_groups)."""
        total = self.total[self.groups.codes]
        share = np.divide(self.weights, total, out=np.zeros_like(total), where=total > 0)
        return self._matrix(share)

    def indicators(self, factors: np.ndarray) -> list[tuple[sp.csr_array, np.ndarray]]:
        """Pairs (E, c) with Σ E diag(c) Eᵀ = W diag(w) - w wᵀ times the factor of each group.

        A member that dominates its group has an edge to each of the others; the rest is a graph without it.
        """
        codes, m = self.groups.codes, self.groups.n_rows
        light = np.where(self.others > 0, self.weights, 0.0)  # a member that is alone has no edge
        heavy = light[self.heaviest] > _DOMINATES * self.total
        if not heavy.any():
            inner = factors[codes] * light * self.total[codes]
            return [(sp.eye_array(m, format="csr"), inner), (self._matrix(light), -factors)]
        light[self.heaviest[heavy]] = 0.0
        ends = np.flatnonzero(heavy[codes] & (light > 0))
        tops = self.heaviest[codes[ends]]
        edge, one = np.arange(ends.shape[0]), np.ones(ends.shape[0])
        places = (np.concatenate([tops, ends]), np.concatenate([edge, edge]))
        E = sp.csr_array((np.concatenate([one, -one]), places), shape=(m, ends.shape[0]))
        c = factors[codes[ends]] * self.weights[tops] * self.weights[ends]
        return [(E, c), *WeightedGroups(self.groups, light).indicators(factors)]

    def _matrix(self, values: np.ndarray) -> sp.csr_array:
        """The indicator matrix of the groups with a value for each member."""
        m = self.groups.n_rows
        return sp.csr_array((values, self.groups.codes, np.arange(m + 1)), shape=(m, self.groups.n_groups))
