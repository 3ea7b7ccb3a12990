r"""Preferences held out in the space of the pairs: l × l instead of m × m or n × n.

With M the m × l incidence matrix of the preferences, columns √w_k (e_h - e_j), training minimises
‖t - Mᵀ f‖² + λ ‖f‖² with t = √w z. Seen through g = Mᵀ f that is plain regularised least squares over l rows with the
kernel Mᵀ K M and the targets t, so a set of preferences leaves it as rows leave a regression (`DualHoldOut`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ...comparisons import PointwiseComparisons, PreferenceComparisons
from ...kernels.sparse import sparse_products
from .base import HoldOut, OnFold
from .feature import FeatureHoldOut

# Where weights differ by more than this, the light ones are lost in the rounding of the heavy ones in one matrix.
_LARGEST_RATIO = 1e6


def suits_pair_space(comparisons: PreferenceComparisons) -> bool:
    """Whether the weights are of one order of magnitude, and none is zero."""
    return float(comparisons.weight.max()) <= _LARGEST_RATIO * float(comparisons.weight.min())


def kernel_of_differences(K: np.ndarray, comparisons: PreferenceComparisons) -> np.ndarray:
    """Mᵀ K M, C-contiguous, shape (l, l)."""
    across = comparisons.incidence().T.tocsr()
    return np.ascontiguousarray((across @ np.ascontiguousarray((across @ K).T)).T)


def linear_kernel_of_differences(X, comparisons: PreferenceComparisons) -> np.ndarray:
    """(Mᵀ X)(Mᵀ X)ᵀ for dense or sparse rows X, in double precision, C-contiguous."""
    return kernel_of_rows(weighted_differences(X, comparisons))


def kernel_of_rows(D) -> np.ndarray:
    """D Dᵀ for dense or sparse rows, C-contiguous."""
    return sparse_products(D) if sp.issparse(D) else D @ D.T


def weighted_differences(X, comparisons: PreferenceComparisons):
    """Mᵀ X: the rows √w_k (x_h - x_j), dense or sparse as X is, in double precision."""
    better, worse = comparisons.pairs.T
    root = np.sqrt(comparisons.weight)
    if sp.issparse(X):
        return sp.csr_array(sp.diags_array(root) @ (X[better].astype(np.float64) - X[worse]))
    D = X[better].astype(np.float64, copy=False)
    D -= X[worse]
    D *= root[:, None]
    return D


def regression_over_pairs(comparisons: PreferenceComparisons) -> PointwiseComparisons:
    """The targets t = √w z of the l rows of a regression."""
    return PointwiseComparisons((np.sqrt(comparisons.weight) * comparisons.magnitude)[:, None])


class PreferenceHoldOut:
    """Exact hold-out of preferences through a regression over the pairs.

    Parameters
    ----------
    regression : HoldOut
        Over the l pairs, with the targets of `regression_over_pairs`.
    comparisons : PreferenceComparisons
        That `suits_pair_space`.

    Notes
    -----
    With `DualHoldOut` O(l³) once, then O(l) for each preference and alpha, O(l k²) for a set of k.
    """

    def __init__(self, regression: HoldOut, comparisons: PreferenceComparisons):
        self.regression, self.comparisons = regression, comparisons
        self.iterates = regression.iterates

    def warn_unless_converged(self) -> None:
        """Warn where iterations ran out before the tolerance was reached."""
        self.regression.warn_unless_converged()

    @property
    def largest_eigenvalue(self) -> float:
        return self.regression.largest_eigenvalue

    @property
    def size(self) -> float:
        return self.regression.size

    def predict_without_preferences(
        self, sets: Sequence[np.ndarray], alphas: Sequence[float], *, on_fold: OnFold = None
    ) -> list[np.ndarray]:
        """For each set of preferences their predicted differences when the set leaves, shape (len(alphas), k)."""
        root = np.sqrt(self.comparisons.weight)
        found = self.regression.predict(sets, alphas, on_fold=on_fold)
        return [one[:, :, 0] / root[left] for one, left in zip(found, sets, strict=True)]


class PairsByRows(HoldOut):
    """The regression over the pairs, computed in the space of the rows: accurate at any alpha, but slower.

    Parameters
    ----------
    routine : FeatureHoldOut
        Of the preferences.
    """

    intercept = False

    def __init__(self, routine: FeatureHoldOut):
        assert isinstance(routine.comparisons, PreferenceComparisons)
        self.comparisons, self._routine = regression_over_pairs(routine.comparisons), routine
        self._root = np.sqrt(routine.comparisons.weight)

    @property
    def largest_eigenvalue(self) -> float:
        return self._routine.largest_eigenvalue

    def predict(self, folds, alphas, *, on_fold=None) -> list[np.ndarray]:
        found = self._routine.predict_without_preferences(folds, alphas, on_fold=on_fold)
        return [(one * self._root[left])[:, :, None] for one, left in zip(found, folds, strict=True)]
