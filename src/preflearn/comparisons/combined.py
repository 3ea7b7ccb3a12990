"""Sums of comparisons: L = Σ P_t L_t P_tᵀ and b = Σ P_t b_t, where P_t places the rows of term t among all rows.

Squared losses add up, so labels and preferences can be learned from together: one term compares the labelled rows,
another any rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from .base import Comparisons, Removal


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
