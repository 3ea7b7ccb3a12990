r"""The complete graph over the members of each group, an edge (i, j) with the product w_i w_j of their weights.

Its Laplacian W diag(w) - w wᵀ is a small difference of large numbers where one weight is far above the others. So
nothing is subtracted from a total that it dominates: means are taken relative to the heaviest member of the group, and
the total of the others is summed without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from .grouping import Groups

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
