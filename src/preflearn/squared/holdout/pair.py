r"""Every pair of rows held out of a global ranking or a regression, without refitting.

Without the rows H = {i, j}, the predictions are f_H = f̄ + β_H · v + (t_H + v - Σ v / m) / κ with v = -(R_HH)⁻¹ x_H.
There R = C (G + λ I)⁻¹ C, x = R t are the dual variables of the model trained on all rows, κ C = S, and β is the mean
of K over the rows, times S R (`holdout.dual`). Only 2 × 2 systems are left, so all m (m - 1) / 2 pairs cost O(m²).
For features Z with T = S Z the same holds with λ R = C - T D Tᵀ, block by block.

t_H + v is the difference of nearly equal numbers where λ is far above the spectrum of G. There, and always for
features, it is taken as (H t)_H + H_HH v with the hat matrix H = G R, which for features is T D Tᵀ.

With a reduced set, basis vectors among the two leave the model too; each adds a column to the small system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...comparisons import Comparisons, PointwiseComparisons, PreferenceComparisons
from ...kernels.functions import sparse_products
from ..centred_kernel import centre_both_sides, centred_form, half_of_means
from .base import STABLE, HoldOut, OnFold
from .dual import LARGE_ALPHA, DualHoldOut, explicit_resolvent
from .feature import FeatureHoldOut

# Entries of one block of R, or of the pairs that are solved together.
_BLOCK_ENTRIES = 1 << 22


def has_pair_form(comparisons: Comparisons) -> bool:
    """Whether pairs have a closed form: plain regression, or one global ranking with ties included."""
    if comparisons.is_one_block:
        return comparisons.n_rows > 3
    return comparisons.has_half and comparisons.queries is None


@dataclass(frozen=True)
class PairSystem:
    """What the held-out pairs are computed from; all outputs share R. R and x may have a common factor.

    Attributes
    ----------
    diagonal, mean_response : ndarray of shape (m,)
        Of R; and β, the mean prediction that one unit of each dual variable adds.
    x, t : ndarray of shape (m, v)
        R t and t.
    mean_f : ndarray of shape (v,)
    kappa : float
    share : float
        1 / m for a global ranking, 0 for plain regression.
    size, alpha : float
        The trace of G, or its largest eigenvalue, and λ of the training on m - 2 rows in the same unit.
    R, H : ndarray of shape (m, m) or None
        H where λ is so large that it had to be formed.
    fitted : ndarray of shape (m, v) or None
        H t, with H or with features.
    hat : ndarray of shape (m,) or None
        The diagonal of H, likewise.
    source : FeatureHoldOut or None
        Where R and H come from, block by block, when there are features.
    """

    diagonal: np.ndarray
    x: np.ndarray
    t: np.ndarray
    mean_response: np.ndarray
    mean_f: np.ndarray
    kappa: float
    share: float
    size: float
    alpha: float
    R: np.ndarray | None = None
    H: np.ndarray | None = None
    fitted: np.ndarray | None = None
    hat: np.ndarray | None = None
    source: FeatureHoldOut | None = None

    def counts(
        self,
        y: np.ndarray,
        rounding: float,
        twins: np.ndarray,
        repair: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """For each row its held-out pairs with lower and with higher y: right, tied and all; shape (m, 6).

        Parameters
        ----------
        y : ndarray of shape (m,)
            Of the only output.
        rounding : float
            Predictions that differ by no more than this are tied.
        twins : int64 array of shape (m,)
            Rows with the same number are equal, and hence tied regardless of rounding.
        repair : callable, optional
            Takes pairs whose small system is ill conditioned to their predictions, shape (p, 2).
        """
        columns = (self.diagonal, self.x[:, 0], self.t[:, 0], y, twins)
        tolerance = self.kappa * rounding
        if self._in_loop:
            from .._loops import pair_order

            return np.concatenate(
                [pair_order(R, first, *columns, tolerance) for first, R in self._row_blocks()]
            )
        parts, m = [], y.shape[0]
        for first in range(0, m, step := max(1, _BLOCK_ENTRIES // (8 * m))):
            rows = np.arange(first, min(first + step, m))
            i, j = np.nonzero(y[rows][:, None] != y)
            pairs = np.stack([rows[i], j], axis=1)
            f = tie_twins(self._repaired(pairs, repair), twins[pairs])
            parts.append(_count(y, pairs, f, rounding)[rows])
        return np.concatenate(parts)

    @property
    def _in_loop(self) -> bool:
        """Whether t_H + v is precise enough to be compared, for every pair."""
        if self.H is not None:
            return False
        if self.source is None:
            return True
        return self.alpha <= LARGE_ALPHA * self.size and float(self.diagonal.min()) > np.sqrt(STABLE)

    def _repaired(self, pairs: np.ndarray, repair: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
        """Predictions minus what they have in common, shape (p, 2)."""
        found = self.predictions(pairs)[:, :, 0]
        f, bad = found[:, :2] - found[:, 2:], self.unstable(pairs)
        if repair is not None and bad.any():
            f[bad] = repair(pairs[bad])
        return f

    def unstable(self, pairs: np.ndarray) -> np.ndarray:
        """Which pairs have a system that is too ill conditioned, where features can tell; shape (p,)."""
        if self.source is None:
            return np.zeros(pairs.shape[0], dtype=bool)
        R_ij = self._entries(pairs)[0]
        i, j = pairs[:, 0], pairs[:, 1]
        determinant = self.diagonal[i] * self.diagonal[j] - R_ij**2
        return np.minimum(determinant, np.minimum(self.diagonal[i], self.diagonal[j])) < STABLE

    def predictions(self, pairs: np.ndarray) -> np.ndarray:
        """Predictions for both rows of each pair and the mean over all rows, shape (p, 3, v)."""
        predict = self._predict_plainly if self.source is None and self.H is None else self._predict_by_hat
        v = self.t.shape[1]
        width = 16 * v if self.source is None else 4 * self.source.s.shape[0] + 16 * v
        step = max(1, _BLOCK_ENTRIES // width)
        parts = [predict(pairs[k : k + step]) for k in range(0, pairs.shape[0], step)]
        return np.concatenate(parts) if parts else np.empty((0, 3, v))

    def _row_blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        if self.R is not None:
            yield 0, self.R
            return
        assert self.source is not None and self.source.T is not None
        T, D = self.source.T, self.source.shrink(self.alpha)
        step = max(1, _BLOCK_ENTRIES // T.shape[0])
        for first in range(0, T.shape[0], step):
            R = -(T[first : first + step] * D) @ T.T - self.share
            R[np.arange(R.shape[0]), first + np.arange(R.shape[0])] += 1.0
            yield first, R

    def _entries(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R_ij and H_ij of each pair."""
        i, j = pairs[:, 0], pairs[:, 1]
        if self.source is None:
            assert self.R is not None and self.H is not None
            return self.R[i, j], self.H[i, j]
        assert self.source.T is not None
        T, D = self.source.T, self.source.shrink(self.alpha)
        H_ij = np.einsum("kc,kc,c->k", T[i], T[j], D)
        return -H_ij - self.share, H_ij

    def _predict_plainly(self, pairs: np.ndarray) -> np.ndarray:
        assert self.R is not None
        i, j = pairs[:, 0], pairs[:, 1]
        (R_ii, response_i), (R_jj, response_j) = (
            [values[k][:, None] for values in (self.diagonal, self.mean_response)] for k in (i, j)
        )
        v_i, v_j = solve_pairs(self.R[i, j][:, None], R_ii, R_jj, self.x[i], self.x[j])
        level = self.mean_f + response_i * v_i + response_j * v_j
        spread = self.share * (v_i + v_j)
        ends = [level + (self.t[k] + v - spread) / self.kappa for k, v in ((i, v_i), (j, v_j))]
        return np.stack([*ends, level], axis=1)

    def _predict_by_hat(self, pairs: np.ndarray) -> np.ndarray:
        assert self.fitted is not None and self.hat is not None
        i, j = pairs[:, 0], pairs[:, 1]
        R_ij, H_ij = (entries[:, None] for entries in self._entries(pairs))
        (R_ii, hat_i, response_i), (R_jj, hat_j, response_j) = (
            [values[k][:, None] for values in (self.diagonal, self.hat, self.mean_response)] for k in (i, j)
        )
        v_i, v_j = solve_pairs(R_ij, R_ii, R_jj, self.x[i], self.x[j])
        level = self.mean_f + response_i * v_i + response_j * v_j
        return np.stack(
            [
                level + (self.fitted[i] + hat_i * v_i + H_ij * v_j) / self.kappa,
                level + (self.fitted[j] + hat_j * v_j + H_ij * v_i) / self.kappa,
                level,
            ],
            axis=1,
        )


def solve_pairs(R_ij: Any, R_ii: Any, R_jj: Any, x_i: Any, x_j: Any) -> tuple[Any, Any]:
    """v = -(R_HH)⁻¹ x_H of many pairs; NaN where rounding leaves no positive determinant."""
    determinant = R_ii * R_jj - R_ij * R_ij
    determinant = np.where(determinant > 0, determinant, np.nan)
    return -(R_jj * x_i - R_ij * x_j) / determinant, -(R_ii * x_j - R_ij * x_i) / determinant


def tie_twins(f: np.ndarray, twins: np.ndarray) -> np.ndarray:
    """Predictions of pairs, shape (p, 2), with those of two equal rows made equal."""
    same = twins[:, 0] == twins[:, 1]
    f[same] = f[same].mean(axis=1, keepdims=True)
    return f


def _count(y: np.ndarray, pairs: np.ndarray, f: np.ndarray, rounding: float) -> np.ndarray:
    """Right, tied and all pairs of the first rows with lower y, then with higher y; shape (m, 6)."""
    i, j = pairs[:, 0], pairs[:, 1]
    difference, lower = f[:, 0] - f[:, 1], y[j] < y[i]
    tied = np.abs(difference) <= rounding
    above, below = ~tied & (difference > 0), ~tied & (difference < 0)
    columns = [lower & above, lower & tied, lower, ~lower & below, ~lower & tied, ~lower]
    found = [np.bincount(i, weights=column, minlength=y.shape[0]) for column in columns]
    return np.stack(found, axis=1).astype(np.int64)


def dual_pair_system(
    K: np.ndarray, comparisons: Comparisons, alpha: float, kernel_means: np.ndarray | None = None
) -> PairSystem:
    """From a kernel matrix, which is overwritten: one Cholesky factorisation and the inverse, m³ operations.

    Parameters
    ----------
    K : ndarray of shape (m, m), C-contiguous
    comparisons : Comparisons
    alpha : float
        λ of the estimator.
    kernel_means : ndarray of shape (1, m), optional
        As in `DualHoldOut`.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the kernel is too ill-conditioned for this alpha.
    """
    alpha, kappa, share = pair_scale(comparisons, alpha)
    mean = half_of_means(K, comparisons, kernel_means)
    unit, G = centred_form(K, comparisons)
    trace = float(np.trace(G))
    alpha /= unit
    large = alpha > LARGE_ALPHA * trace
    R = explicit_resolvent(G, alpha, comparisons.anchors(), trace, overwrite=not large)
    H = G @ R if large else None
    mean_kernel = None if mean is None else mean[0] / unit
    return pair_system_of(R, H, comparisons, mean_kernel, (alpha, kappa, share, trace))


def path_pair_system(source: DualHoldOut, alpha: float) -> PairSystem:
    """From the tridiagonal form that serves every alpha: m³ operations, thrice where λ is large.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the kernel is too ill-conditioned for this alpha.
    """
    alpha, kappa, share = pair_scale(source.comparisons, alpha)
    if not source.is_stable(alpha):
        raise np.linalg.LinAlgError("the resolvent is not precise enough at this alpha")
    alpha /= source.unit
    large = alpha > LARGE_ALPHA * source.trace
    R, H = source.explicit_resolvent(alpha), None
    if large:
        H = source.explicit_hat(alpha)
        if source.mean_kernel is not None:
            centre_both_sides(H)
    return pair_system_of(R, H, source.comparisons, source.mean_kernel, (alpha, kappa, share, source.trace))


def pair_system_of(
    R: np.ndarray,
    H: np.ndarray | None,
    comparisons: Comparisons,
    mean: np.ndarray | None,
    scales: tuple[float, float, float, float],
) -> PairSystem:
    """From R, which is symmetric and overwritten, and H = G R where λ is large.

    ``mean`` is (mean of K) S of a global ranking; ``scales`` are those of `pair_scale` and the trace of G.
    """
    alpha, kappa, share, trace = scales
    t = comparisons.half_target
    if H is not None:
        R *= alpha  # near the identity, so that no determinant vanishes
    x = R @ t
    mean_response, mean_f = np.zeros(t.shape[0]), np.zeros(t.shape[1])
    if mean is not None:
        factor = 1.0 if H is None else 1.0 / alpha
        centre_both_sides(R)
        mean_response, mean_f = factor * (R @ mean), factor * (mean @ x)
    return PairSystem(
        np.diagonal(R).copy(),
        x,
        t,
        mean_response,
        mean_f,
        kappa,
        share,
        trace,
        alpha,
        R=np.ascontiguousarray(R.T),
        H=H,
        fitted=None if H is None else H @ t,
        hat=None if H is None else np.diagonal(H),
    )


def feature_pair_system(source: FeatureHoldOut, alpha: float) -> PairSystem:
    """From features: no m × m array."""
    comparisons = source.comparisons
    alpha, kappa, share = pair_scale(comparisons, alpha)
    assert source.T is not None
    D = source.shrink(alpha)
    w = D[:, None] * source.c
    t = comparisons.half_target
    fitted = source.T @ w
    hat = np.square(source.T) @ D
    mean_response, mean_f = np.zeros(t.shape[0]), np.zeros(t.shape[1])
    if share:
        # β = (mean of Z) D Tᵀ: the mean prediction that one unit of each dual variable adds.
        mean_response, mean_f = source.T @ (D * source.mean), source.mean @ w
    return PairSystem(
        1.0 - share - hat,
        t - fitted,
        t,
        mean_response,
        mean_f,
        kappa,
        share,
        source.size,
        alpha,
        fitted=fitted,
        hat=hat,
        source=source,
    )


def pair_scale(comparisons: Comparisons, alpha: float) -> tuple[float, float, float]:
    """λ for training on m - 2 rows, κ, and 1 / m where rows are compared with each other."""
    if not comparisons.is_one_block:
        return alpha, 1.0, 0.0
    scale = comparisons.drop_half(np.array([0, 1])).scale
    return alpha / scale, comparisons.block_scale, 1.0 / comparisons.n_rows


def reduced_pair_predictions(source: FeatureHoldOut, pairs: np.ndarray, alpha: float) -> np.ndarray:
    """Predictions for both rows of each pair and their mean over all rows when basis vectors leave too; (p, 3, v).

    With y = κ (z - z̄) and the constraints e of the basis vectors among the pair, w' = w - D (Y a + E b) where
    [Yᵀ D Y - Γ, Yᵀ D E; Eᵀ D Y, Eᵀ D E] [a; b] = [Yᵀ w - Γ p; Eᵀ w], Γ = E_HᵀC E_H and Γ p = κ (s_H - s̄). The 4 × 4
    systems of many pairs are solved together; rows that are not basis vectors have a unit row and column in place of e.
    """
    comparisons = source.comparisons
    alpha, kappa, share = pair_scale(comparisons, alpha)
    D = source.shrink(alpha)
    w = D[:, None] * source.c
    assert source.removed_basis is not None
    out = np.empty((pairs.shape[0], 3, w.shape[1]))
    step = max(1, _BLOCK_ENTRIES // (4 * D.shape[0]))
    for start in range(0, pairs.shape[0], step):
        part = pairs[start : start + step]
        Z = source.Z[part]
        centre = source.mean if share else np.zeros_like(source.mean)
        number = source.removed_basis.numbers_of_folds(part)
        E = np.where((number >= 0)[:, :, None], source.E[np.maximum(number, 0)], 0.0)
        columns = np.concatenate([kappa * (Z - centre), E], axis=1)
        image = columns * D
        system = columns @ image.transpose(0, 2, 1)
        gamma = np.eye(2) - share
        system[:, :2, :2] -= gamma
        blank, corner = np.nonzero(number < 0)
        system[blank, 2 + corner, 2 + corner] = 1.0
        rhs = columns @ w
        rhs[:, :2] -= comparisons.half_target[part]
        solved = np.linalg.solve(system, rhs)
        wanted = np.concatenate([Z, np.broadcast_to(source.mean, (len(part), 1, D.shape[0]))], axis=1)
        out[start : start + step] = wanted @ w - (wanted @ image.transpose(0, 2, 1)) @ solved
    return out


# ----------------------------------------------------------------
# Preferences held out in the space of the pairs: l × l instead of m × m or n × n.
#
# With M the m × l incidence matrix of the preferences, columns √w_k (e_h - e_j), training minimises
# ‖t - Mᵀ f‖² + λ ‖f‖² with t = √w z. Seen through g = Mᵀ f that is plain regularised least squares over l rows with the
# kernel Mᵀ K M and the targets t, so a set of preferences leaves it as rows leave a regression (`DualHoldOut`).


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
