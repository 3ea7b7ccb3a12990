r"""Rows that count more or less: a row i with weight w_i, a pair (i, j) with weight w_i w_j.

With integer weights a row counts as so many copies of it. For plain regression L = diag(w) and b = w y. For the pairs
of a query with weights w, total W, and totals W_g of its tie groups, times the factor κ of the query,

    L = κ [ diag(w (W - W_g)) + Σ_g w_g w_gᵀ - w wᵀ ],      L = κ [ W diag(w) - w wᵀ ] with ties included,

in O(m) for each column. There is no symmetric half in closed form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from .base import Comparisons, Removal
from .blockwise import drop_from_blocks, parts_change_weight
from .grouping import Groups
from .queries import tie_groups_of

# Up to so many columns a bincount for each is faster than a compiled loop.
_FEW_COLUMNS = 4


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
        if (exclude_ties or unit) and scores.shape[1] != 1:
            raise ValueError("Comparisons that leave ties out depend on the scores: one output at a time.")
        self.n_rows = scores.shape[0]
        self.scores, self.queries, self.row_weights = scores, queries, row_weights
        self._options: dict[str, Any] = {"weighting": weighting, "exclude_ties": exclude_ties, "unit": unit}
        self.weighting = weighting
        self._ties: Groups | None = None
        if exclude_ties or unit:
            self._ties = tie_groups_of(scores[:, 0], queries)[0]
            self._query_of_tie = np.empty(self._ties.n_groups, dtype=np.int64)
            self._query_of_tie[self._ties.codes] = queries.codes
        self.n_comparisons = int(round(float(self._pair_weight((row_weights > 0) * 1.0).sum())))
        total = self._sums(queries, row_weights)
        self._factors = self._factors_of_queries(total)
        self._outer = self._factors[queries.codes] * row_weights
        others = total[queries.codes]
        if self._ties is not None:
            others = others - self._sums(self._ties, row_weights)[self._ties.codes]
        self._inner = self._outer * others
        self.target = self._unit_target() if unit else self.laplacian(scores)

    @staticmethod
    def _sums(groups: Groups, values: np.ndarray) -> np.ndarray:
        return np.bincount(groups.codes, weights=values, minlength=groups.n_groups)

    def _pair_weight(self, weights: np.ndarray) -> np.ndarray:
        """Total weight of the counted pairs of each query."""
        if self._ties is None:
            same = self._sums(self.queries, weights**2)
        else:
            squares = self._sums(self._ties, weights) ** 2
            same = np.bincount(self._query_of_tie, weights=squares, minlength=self.queries.n_groups)
        return np.maximum(self._sums(self.queries, weights) ** 2 - same, 0.0) / 2

    def _factors_of_queries(self, total: np.ndarray) -> np.ndarray:
        """κ."""
        if self.weighting == "pair":
            return np.ones(total.shape[0])
        below = total if self.weighting == "item" else self._pair_weight(self.row_weights)
        return np.divide(1.0, below, out=np.zeros_like(below), where=below > 0)

    def _unit_target(self) -> np.ndarray:
        """b_i = κ w_i (weight of the lower rows less that of the higher ones)."""
        assert self._ties is not None
        of_ties = self._sums(
            self._ties, self.row_weights
        )  # numbered query by query, and in ascending order inside it
        below = np.cumsum(of_ties) - of_ties
        first = np.searchsorted(self._query_of_tie, np.arange(self.queries.n_groups))
        lower = below[self._ties.codes] - below[first][self.queries.codes]
        total = self._sums(self.queries, self.row_weights)[self.queries.codes]
        higher = total - lower - of_ties[self._ties.codes]
        return (self._outer * (lower - higher))[:, None]

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        columns = V.reshape(self.n_rows, -1)
        weighted = self.row_weights[:, None] * columns
        levels = self._grouped(self.queries, weighted)
        if self._ties is not None:
            levels = levels - self._grouped(self._ties, weighted)
        out = self._inner[:, None] * columns - self._outer[:, None] * levels
        return out.astype(V.dtype, copy=False).reshape(V.shape)

    def _grouped(self, groups: Groups, V: np.ndarray) -> np.ndarray:
        """Sums over the group of each row."""
        if V.shape[1] <= _FEW_COLUMNS:
            return np.stack([self._sums(groups, column) for column in V.T], axis=1)[groups.codes]
        from ..loops.segments import segment_sums

        sums = segment_sums(np.ascontiguousarray(V, dtype=np.float64), groups.codes, groups.n_groups)
        return sums[groups.codes]

    def diagonal(self) -> np.ndarray:
        return self._inner if self._ties is not None else self._inner - self._outer * self.row_weights

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        terms = [
            (sp.eye_array(self.n_rows, format="csr"), self._inner),
            (self._indicator(self.queries), -self._factors),
        ]
        if self._ties is not None:
            terms.append((self._indicator(self._ties), self._factors[self._query_of_tie]))
        return terms

    def _indicator(self, groups: Groups) -> sp.csr_array:
        m = self.n_rows
        return sp.csr_array((self.row_weights, groups.codes, np.arange(m + 1)), shape=(m, groups.n_groups))

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
        # L = κ W D^½ P D^½ with D = diag(w), u = √w / √W and P = I - u uᵀ. P less the same for the rows that stay is
        # the projector on span{P e_i: i in H}.
        w = self.row_weights
        total, rest = float(w.sum()), self._total_of_rest(rows)
        root = np.sqrt(w / total)
        inside = la.cholesky(np.eye(rows.shape[0]) - np.outer(root[rows], root[rows]), lower=True)
        columns = -np.outer(root, root[rows])
        columns[rows, np.arange(rows.shape[0])] += 1.0
        columns = la.solve_triangular(inside, columns.T, lower=True).T
        size = float(self._factors[0]) * total
        columns *= np.sqrt(size * w)[:, None]
        return Removal(
            np.arange(self.n_rows),
            columns,
            np.ones(rows.shape[0]),
            columns @ (columns.T @ self.scores),
            self._size_of_rest(rows, rest) / size,
        )

    def _total_of_rest(self, rows: np.ndarray) -> float:
        stays = np.ones(self.n_rows, dtype=bool)
        stays[rows] = False
        rest = float(self.row_weights[stays].sum())
        if not rest > 0:
            raise ValueError("All rows that stay have weight 0: nothing is left to train on.")
        return rest

    def _size_of_rest(self, rows: np.ndarray, rest: float) -> float:
        """κ W of the rows that stay."""
        if self.weighting == "pair":
            return rest
        if self.weighting == "item":
            return 1.0
        weights = self.row_weights.copy()
        weights[rows] = 0.0
        pairs = float(self._pair_weight(weights)[0])
        if not pairs > 0:
            raise ValueError("Only one row with a weight would be left: nothing is left to compare.")
        return rest / pairs
