"""Margin-violating pairs of censored times, in O(m log m).

Row i is the worse row of a pair only if its event was seen: with o_i and w_i the weights of `comparisons.censored` a
pair counts o_i w_j, and with sums over the partners that violate the margin, in one role each,

    c_i = o_i Σ_{j better} w_j,   d_j = w_j Σ_{i worse} o_i,   Q(v)_i = o_i Σ_{j better} w_j v_j + w_i Σ_{k worse} o_k
    v_k.
"""

from __future__ import annotations

import numpy as np

from ..comparisons import CensoredComparisons
from ..comparisons.censored import lived_longer
from .pairs import ScoredPairs, SortedViolations


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
