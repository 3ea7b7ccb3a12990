"""Explicit preferences: row h is preferred to row j, with a magnitude and a weight.

One preference adds the four entries of w (e_h - e_j)(e_h - e_j)ᵀ to L and w z (e_h - e_j) to b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp

from .base import Comparisons, Removal
from .grouping import centred, offset_is_large, one_group


class PreferenceComparisons(Comparisons):
    """Σ_k w_k (z_k - (f_{h_k} - f_{j_k}))² over the preferences k.

    Parameters
    ----------
    n_rows : int
    pairs : ndarray of shape (l, 2)
        Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``.
    magnitude : ndarray of shape (l,), optional
        z, by how much; 1 by default.
    weight : ndarray of shape (l,), optional
        w, the factor of the squared error; 1 by default.

    Notes
    -----
    O(l) memory and O(l) per column of L @ V.
    """

    def __init__(
        self,
        n_rows: int,
        pairs: np.ndarray,
        magnitude: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ):
        n_pairs = pairs.shape[0]
        self.n_rows = n_rows
        self.pairs = pairs
        self.magnitude = np.ones(n_pairs) if magnitude is None else magnitude
        self.weight = np.ones(n_pairs) if weight is None else weight
        self.n_comparisons = int(np.count_nonzero(self.weight))
        self._L = _sparse_laplacian(n_rows, pairs, self.weight)
        weighted = self.weight * self.magnitude
        self.target = (
            np.bincount(pairs[:, 0], weighted, minlength=n_rows)
            - np.bincount(pairs[:, 1], weighted, minlength=n_rows)
        )[:, None]

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        return (self._L @ V).astype(V.dtype, copy=False)

    def sparse(self) -> sp.csr_array:
        """L itself."""
        return self._L

    def blocks(self, V: np.ndarray, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if offset_is_large(V):
            V = centred(V, one_group(self.n_rows))[0]
        for start in range(0, self.n_rows, n_rows):
            rows = slice(start, start + n_rows)
            yield V[rows], (self._L[rows] @ V).astype(V.dtype, copy=False)

    def least_squares(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = np.sqrt(self.weight)[:, None]
        return root * (V[self.pairs[:, 0]] - V[self.pairs[:, 1]]), root * self.magnitude[:, None]

    def diagonal(self) -> np.ndarray:
        return self._L.diagonal()

    def incidence(self) -> sp.csr_array:
        """M with L = M Mᵀ: the columns √w_k (e_h - e_j), shape (m, l)."""
        root = np.sqrt(self.weight)
        edge = np.arange(self.pairs.shape[0])
        return sp.csr_array(
            (
                np.concatenate([root, -root]),
                (np.concatenate([self.pairs[:, 0], self.pairs[:, 1]]), np.concatenate([edge, edge])),
            ),
            shape=(self.n_rows, edge.shape[0]),
        )

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        return [(self.incidence(), np.ones(self.pairs.shape[0]))]

    def take(self, rows: np.ndarray) -> PreferenceComparisons:
        position = np.full(self.n_rows, -1)
        position[rows] = np.arange(rows.shape[0])
        kept = np.flatnonzero((position[self.pairs] >= 0).all(axis=1))
        return PreferenceComparisons(
            rows.shape[0], position[self.pairs[kept]], self.magnitude[kept], self.weight[kept]
        )

    def drop(self, rows: np.ndarray) -> Removal:
        leaving = np.zeros(self.n_rows, dtype=bool)
        leaving[rows] = True
        return self.drop_preferences(np.flatnonzero(leaving[self.pairs].any(axis=1)))

    def without(self, preferences: np.ndarray) -> PreferenceComparisons:
        """The other preferences, on the same rows."""
        kept = np.delete(np.arange(self.pairs.shape[0]), preferences)
        return PreferenceComparisons(self.n_rows, self.pairs[kept], self.magnitude[kept], self.weight[kept])

    def drop_preferences(self, preferences: np.ndarray) -> Removal:
        """The removal of some preferences: their columns of M and their targets."""
        pairs = self.pairs[preferences]
        rows, position = np.unique(pairs, return_inverse=True)
        position = position.reshape(pairs.shape)
        root = np.sqrt(self.weight[preferences])
        columns = np.zeros((rows.shape[0], pairs.shape[0]))
        edge = np.arange(pairs.shape[0])
        columns[position[:, 0], edge] += root
        columns[position[:, 1], edge] -= root
        change = columns @ (root * self.magnitude[preferences])[:, None]
        return Removal(rows, columns, np.ones(pairs.shape[0]), change)


def _sparse_laplacian(n_rows: int, pairs: np.ndarray, weight: np.ndarray) -> sp.csr_array:
    better, worse = pairs[:, 0], pairs[:, 1]
    values = np.concatenate([weight, weight, -weight, -weight])
    i = np.concatenate([better, worse, better, worse])
    j = np.concatenate([better, worse, worse, better])
    return sp.csr_array((values, (i, j)), shape=(n_rows, n_rows))


# ----------------------------------------------------------------
# Sums of comparisons: L = Σ P_t L_t P_tᵀ and b = Σ P_t b_t, where P_t places the rows of term t among all rows.
#
# Squared losses add up, so labels and preferences can be learned from together: one term compares the labelled rows,
# another any rows.


class SumComparisons(Comparisons):
    """The sum of several sets of comparisons, each on all rows or on some of them.

    Parameters
    ----------
    n_rows : int
        m.
    terms : sequence of (Comparisons, rows)
        Row i of the comparisons is row ``rows[i]`` of the sum; None stands for all rows in order. A term with one
        output serves every output of the others.

    Notes
    -----
    Costs as much as its terms together. There is no symmetric half in closed form.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import PointwiseComparisons, PreferenceComparisons
    >>> labels = PointwiseComparisons(np.array([[2.0], [3.0]]))
    >>> order = PreferenceComparisons(3, np.array([[2, 0]]))
    >>> SumComparisons(3, [(labels, np.array([0, 1])), (order, None)]).to_dense()
    array([[ 2.,  0., -1.],
           [ 0.,  1.,  0.],
           [-1.,  0.,  1.]])
    """

    def __init__(self, n_rows: int, terms: Sequence[tuple[Comparisons, np.ndarray | None]]):
        self.n_rows = n_rows
        self.terms = [(term, np.arange(n_rows) if rows is None else rows) for term, rows in terms]
        self.ignores_constants = all(term.ignores_constants for term, _ in self.terms)
        self.n_comparisons = sum(term.n_comparisons for term, _ in self.terms)
        self.target = np.zeros((n_rows, max(term.n_outputs for term, _ in self.terms)))
        for term, rows in self.terms:
            self.target[rows] += term.target

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        out = np.zeros_like(V)
        for term, rows in self.terms:
            out[rows] += term.laplacian(V[rows])
        return out

    def diagonal(self) -> np.ndarray:
        out = np.zeros(self.n_rows)
        for term, rows in self.terms:
            out[rows] += term.diagonal()
        return out

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        return [
            (sp.csr_array(_placement(rows, self.n_rows) @ indicator), coefficients)
            for term, rows in self.terms
            for indicator, coefficients in term.indicators()
        ]

    def take(self, rows: np.ndarray) -> SumComparisons:
        position = np.full(self.n_rows, -1)
        position[rows] = np.arange(rows.shape[0])
        terms = []
        for term, where in self.terms:
            kept = np.flatnonzero(position[where] >= 0)
            terms.append((term.take(kept), position[where[kept]]))
        return SumComparisons(rows.shape[0], terms)

    def drop(self, rows: np.ndarray) -> Removal:
        parts = []
        for term, where in self.terms:
            leaving = np.flatnonzero(np.isin(where, rows))
            if leaving.size:
                parts.append(_placed_removal(term, leaving, where))
        n_columns = sum(columns.shape[1] for _, columns, _, _ in parts)
        N, change = np.zeros((self.n_rows, n_columns)), np.zeros_like(self.target)
        start = 0
        for where, columns, _, lost in parts:
            N[where, start : start + columns.shape[1]] = columns
            change[where] += lost
            start += columns.shape[1]
        touched = np.flatnonzero(N.any(axis=1) | change.any(axis=1))
        signs = np.concatenate([signs for _, _, signs, _ in parts])
        return Removal(touched, N[touched], signs, change[touched])


def _placed_removal(
    term: Comparisons, leaving: np.ndarray, where: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The removal of rows from one term: rows of the sum, N, signs and change on them."""
    removal = term.drop(leaving)
    if removal.scale != 1.0:
        raise ValueError(
            "Holding out rows of a global ranking changes the weights of its other rows, which is not supported in a "
            "sum with other comparisons. Use weighting='item', or refit without the rows."
        )
    if not removal.centred:
        return where[removal.rows], removal.columns, removal.signs, removal.change
    columns = np.zeros((term.n_rows, removal.columns.shape[1]))
    change = np.zeros((term.n_rows, removal.change.shape[1]))
    columns[removal.rows], change[removal.rows] = removal.columns, removal.change
    return where, columns - columns.mean(axis=0), removal.signs, change - change.mean(axis=0)


def _placement(rows: np.ndarray, n_rows: int) -> sp.csr_array:
    """P: ones at (rows[i], i)."""
    n = rows.shape[0]
    return sp.csr_array((np.ones(n), (rows, np.arange(n))), shape=(n_rows, n))
