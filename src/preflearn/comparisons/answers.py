"""Answers to "which of these two?": who won, how much the answer counts, who gave it.

An answer k says that item h is better than item j. It has the weight w_k, its share y_k is 1 for a win and 1/2 for a
tie (half a win each way), and its scale r_k multiplies the difference f_h - f_j (the reliability of the judge).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from .grouping import Groups, one_group
from .preferences import PreferenceComparisons


@dataclass(frozen=True)
class Answers:
    """l answers about m items.

    Attributes
    ----------
    n_rows : int
        m.
    pairs : ndarray of shape (l, 2)
        Item ``pairs[k, 0]`` was preferred to item ``pairs[k, 1]``; either order for a tie.
    weight : ndarray of shape (l,)
        w.
    share : ndarray of shape (l,)
        y, 1 for a win and 0.5 for a tie.
    scale : ndarray of shape (l,)
        r, the reliability of the answer's judge.
    judges : ndarray of shape (l,) or None
        Number of the judge.

    Examples
    --------
    >>> import numpy as np
    >>> answers = Answers.read(3, np.array([[2, 0], [2, 1]]))
    >>> answers.differences(np.array([0.0, 1.0, 3.0]))
    array([3., 2.])
    """

    n_rows: int
    pairs: np.ndarray
    weight: np.ndarray
    share: np.ndarray
    scale: np.ndarray
    judges: np.ndarray | None = None

    @classmethod
    def read(
        cls,
        n_rows: int,
        pairs: np.ndarray,
        weight: np.ndarray | None = None,
        ties: np.ndarray | None = None,
        judges: np.ndarray | None = None,
    ) -> Answers:
        """Answers with defaults for everything that was not given."""
        ones = np.ones(pairs.shape[0])
        share = ones if ties is None else np.where(ties, 0.5, 1.0)
        return cls(n_rows, pairs, ones if weight is None else weight, share, ones, judges)

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that loaded answers are checked for (`preflearn.tables.models.fitted`)."""
        judges = {} if self.judges is None else {"judges": "l <"}
        items = {"n_rows": "a int", "pairs": f"l 2 < {self.n_rows}"}
        return {**items, "weight": "l", "share": "l", "scale": "l", **judges}

    @property
    def n_pairs(self) -> int:
        """l."""
        return self.pairs.shape[0]

    @property
    def groups(self) -> Groups:
        """All items are one group: any two may be compared."""
        return one_group(self.n_rows)

    def differences(self, f: np.ndarray) -> np.ndarray:
        """f_h - f_j of each answer, not scaled."""
        return f[self.pairs[:, 0]] - f[self.pairs[:, 1]]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Σ_k values_k (e_h - e_j), shape (m,): the transpose of `differences`."""
        better, worse = self.pairs[:, 0], self.pairs[:, 1]
        return np.bincount(better, values, self.n_rows) - np.bincount(worse, values, self.n_rows)

    def sums(self, f: np.ndarray) -> np.ndarray:
        """f_h + f_j of each answer: the effect that errors of size f can have on `differences`."""
        return f[self.pairs[:, 0]] + f[self.pairs[:, 1]]

    def spread_sizes(self, values: np.ndarray) -> np.ndarray:
        """Σ_k values_k (e_h + e_j), shape (m,)."""
        better, worse = self.pairs[:, 0], self.pairs[:, 1]
        return np.bincount(better, values, self.n_rows) + np.bincount(worse, values, self.n_rows)

    def components(self) -> np.ndarray:
        """The connected component of each item, where answers connect the items that they compare, shape (m,)."""
        better, worse = self.pairs.T
        edges = sp.coo_array((np.ones(self.n_pairs), (better, worse)), shape=(self.n_rows, self.n_rows))
        return connected_components(edges, directed=False)[1]

    def distinct_pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pairs without repetition, of shape (k, 2), and which of them each answer is about, and its sign."""
        low, high = self.pairs.min(axis=1, initial=self.n_rows), self.pairs.max(axis=1, initial=0)
        codes, which = np.unique(low * self.n_rows + high, return_inverse=True)
        pairs = np.stack(np.divmod(codes, self.n_rows), axis=1)
        return pairs, which, np.where(self.pairs[:, 0] == low, 1.0, -1.0)

    def laplacian(self, curvature: np.ndarray) -> PreferenceComparisons:
        """The comparisons whose Laplacian is Σ_k curvature_k (e_h - e_j)(e_h - e_j)ᵀ."""
        return PreferenceComparisons(self.n_rows, self.pairs, weight=curvature)

    def hessian(self, curvature: np.ndarray) -> sp.csr_array:
        """Σ_k curvature_k x_k x_kᵀ, x_k the gradient of the difference that answer k is about; sparse."""
        return sp.csr_array(self.laplacian(curvature).sparse())

    def dense_hessian(self, curvature: np.ndarray) -> np.ndarray:
        """The same as a Fortran-ordered array: faster for many answers about few items. O(l + m²)."""
        n = self.n_rows
        better, worse = self.pairs.T
        # Without any answer, counts would be whole numbers.
        W = np.bincount(better * n + worse, curvature, n * n).astype(np.float64, copy=False).reshape(n, n)
        H = -(W + W.T)
        H[np.diag_indices(n)] -= H.sum(axis=0)
        return np.asfortranarray(H)

    def take(self, kept: np.ndarray) -> Answers:
        """Some of the answers, about the same items."""
        judges = None if self.judges is None else self.judges[kept]
        return Answers(
            self.n_rows, self.pairs[kept], self.weight[kept], self.share[kept], self.scale[kept], judges
        )

    def followed_by(self, more: Answers) -> Answers:
        """These answers, then more about the same items and perhaps new ones."""
        both = {
            name: np.concatenate([getattr(self, name), getattr(more, name)])
            for name in ("pairs", "weight", "share", "scale")
        }
        judges = None if more.judges is None else more.judges
        if self.judges is not None and judges is not None:
            judges = np.concatenate([self.judges, judges])
        return Answers(max(self.n_rows, more.n_rows), judges=judges, **both)

    def scaled(self, reliability: np.ndarray) -> Answers:
        """The same with each judge's reliability as the scale of the answers."""
        assert self.judges is not None
        return replace(self, scale=reliability[self.judges])


@dataclass(frozen=True)
class DifferenceAnswers(Answers):
    """The same answers in terms of differences d = f_h - f_j of distinct pairs in place of the scores f.

    Attributes
    ----------
    n_rows : int
        Number of distinct pairs.
    which : ndarray of shape (l,)
        The pair of each answer.
    sign : ndarray of shape (l,)
        1 where the first item of the pair was preferred, -1 where the second was.
    """

    which: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    sign: np.ndarray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, answers: Answers) -> tuple[DifferenceAnswers, np.ndarray]:
        """Answers about differences, and the pairs whose differences these are."""
        pairs, which, sign = answers.distinct_pairs()
        columns = (answers.pairs, answers.weight, answers.share, answers.scale, answers.judges)
        return cls(pairs.shape[0], *columns, which, sign), pairs

    def differences(self, f: np.ndarray) -> np.ndarray:
        return self.sign * f[self.which]

    def spread(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.which, self.sign * values, self.n_rows)

    def sums(self, f: np.ndarray) -> np.ndarray:
        return f[self.which]

    def spread_sizes(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.which, values, self.n_rows)


@dataclass(frozen=True)
class AdjustedAnswers(Answers):
    """Answers that depend on more than the two items: the difference is f_h - f_j + z_k · β.

    The coordinates are the scores of the items followed by the coefficients β, so that ``n_rows`` is m + p.

    Attributes
    ----------
    covariates : ndarray of shape (l, p)
        z, seen from the side of the item that comes first in the pair.

    Examples
    --------
    >>> import numpy as np
    >>> plain = Answers.read(2, np.array([[0, 1]]))
    >>> adjusted = AdjustedAnswers.of(plain, np.array([[2.0]]))
    >>> adjusted.differences(np.array([1.0, 0.0, 0.5]))
    array([2.])
    """

    covariates: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def of(cls, answers: Answers, covariates: np.ndarray) -> AdjustedAnswers:
        """The same answers with covariates."""
        columns = (answers.pairs, answers.weight, answers.share, answers.scale, answers.judges)
        return cls(answers.n_rows + covariates.shape[1], *columns, covariates)

    @property
    def _n_items(self) -> int:
        return self.n_rows - self.covariates.shape[1]

    def differences(self, f: np.ndarray) -> np.ndarray:
        return super().differences(f) + self.covariates @ f[self._n_items :]

    def spread(self, values: np.ndarray) -> np.ndarray:
        out = super().spread(values)
        out[self._n_items :] = self.covariates.T @ values
        return out

    def sums(self, f: np.ndarray) -> np.ndarray:
        return super().sums(f) + np.abs(self.covariates) @ f[self._n_items :]

    def spread_sizes(self, values: np.ndarray) -> np.ndarray:
        out = super().spread_sizes(values)
        out[self._n_items :] = np.square(self.covariates).T @ values
        return out

    def hessian(self, curvature: np.ndarray) -> sp.csr_array:
        n, (cross, own) = self._n_items, self._effects(curvature)
        laplacian = PreferenceComparisons(n, self.pairs, weight=curvature).sparse()
        return sp.csr_array(sp.block_array([[laplacian, cross], [cross.T, own]]))

    def dense_hessian(self, curvature: np.ndarray) -> np.ndarray:
        H, n = super().dense_hessian(curvature), self._n_items
        H[:n, n:], H[n:, n:] = self._effects(curvature)
        H[n:, :n] = H[:n, n:].T
        return H

    def _effects(self, curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The columns of the Hessian that belong to β: rows of items, and of β."""
        n, (better, worse) = self._n_items, self.pairs.T
        weighted = (self.covariates.T * curvature).T
        cross = [np.bincount(better, z, n) - np.bincount(worse, z, n) for z in weighted.T]
        return np.stack(cross, axis=1), self.covariates.T @ weighted

    def take(self, kept: np.ndarray) -> AdjustedAnswers:
        n_effects = self.covariates.shape[1]
        plain = replace(super().take(kept), n_rows=self.n_rows - n_effects)
        return AdjustedAnswers.of(plain, self.covariates[kept])
