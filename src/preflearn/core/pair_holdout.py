r"""Every pair of rows held out of a global ranking or a regression, without refitting.

Without the rows H = {i, j} the predictions are f_H = f̄ + β_H · v + (t_H + v - Σ v / m) / κ with v = -(R_HH)⁻¹ x_H.
There R = C (G + λ I)⁻¹ C, x = R t are the dual variables of the model trained on all rows, κ C = S, and β is the mean
of K over the rows, times S R (`dual_holdout`). Only 2 × 2 systems are left, so all m (m - 1) / 2 pairs cost O(m²).
For features Z with T = S Z the same holds with λ R = C - T D Tᵀ, block by block.

With a reduced set, basis vectors among the two leave the model too, which adds a column each to the small system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..comparisons import Comparisons
from .dual_holdout import DualHoldOut, _group_means, explicit_resolvent
from .feature_holdout import FeatureHoldOut

# Entries of one block of R, or of the pairs that are solved together.
_BLOCK_ENTRIES = 1 << 22


def has_pair_form(comparisons: Comparisons) -> bool:
    """Whether pairs leave in the closed form: plain regression, or one global ranking with ties included."""
    if getattr(comparisons, "is_one_block", False):
        return comparisons.n_rows > 3
    return comparisons.has_half and getattr(comparisons, "queries", None) is None


@dataclass(frozen=True)
class PairSystem:
    """What the held-out pairs of one output are computed from.

    Attributes
    ----------
    diagonal : ndarray of shape (m,)
        Of R.
    x, t, pull : ndarray of shape (m,)
        R t, t, and β.
    mean_f : float
    kappa : float
    share : float
        1 / m for a global ranking, 0 for plain regression.
    R : ndarray of shape (m, m) or None
    source : FeatureHoldOut or None
        Where R comes from, block by block, when there are features.
    alpha : float
        λ of the training on m - 2 rows.
    """

    diagonal: np.ndarray
    x: np.ndarray
    t: np.ndarray
    pull: np.ndarray
    mean_f: float
    kappa: float
    share: float
    alpha: float
    R: np.ndarray | None = None
    source: FeatureHoldOut | None = None

    def counts(self, y: np.ndarray, rounding: float) -> np.ndarray:
        """For each row its held-out pairs with lower and with higher y: right, tied and all; shape (m, 6).

        Predictions that differ by no more than ``rounding`` are tied: those of equal rows are equal only up to that.
        """
        from ..loops.holdout import pair_order

        tolerance = self.kappa * rounding
        parts = [
            pair_order(R, first, self.diagonal, self.x, self.t, y, tolerance)
            for first, R in self._row_blocks()
        ]
        return np.concatenate(parts)

    def predictions(self, pairs: np.ndarray) -> np.ndarray:
        """Predictions for both rows of each pair and the mean over all rows, shape (p, 3)."""
        if self.R is not None:
            from ..loops.holdout import pair_predictions

            return pair_predictions(
                pairs, self.R, self.x, self.t, self.pull, self.mean_f, self.kappa, self.share
            )
        assert self.source is not None
        step = max(1, _BLOCK_ENTRIES // self.source._s.shape[0])
        return np.concatenate(
            [self._from_features(pairs[start : start + step]) for start in range(0, pairs.shape[0], step)]
        )

    def _row_blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        if self.R is not None:
            yield 0, self.R
            return
        assert self.source is not None and self.source._T is not None
        T, D = self.source._T, 1.0 / (self.source._s + self.alpha)
        step = max(1, _BLOCK_ENTRIES // T.shape[0])
        for first in range(0, T.shape[0], step):
            R = -(T[first : first + step] * D) @ T.T - self.share
            R[np.arange(R.shape[0]), first + np.arange(R.shape[0])] += 1.0
            R /= self.alpha
            yield first, R

    def _from_features(self, pairs: np.ndarray) -> np.ndarray:
        source = self.source
        assert source is not None and source._T is not None
        D = 1.0 / (source._s + self.alpha)
        i, j = pairs[:, 0], pairs[:, 1]
        R_ij = -(np.einsum("kc,kc,c->k", source._T[i], source._T[j], D) + self.share) / self.alpha
        R_ii, R_jj = self.diagonal[i], self.diagonal[j]
        determinant = R_ii * R_jj - R_ij**2
        v_i = -(R_jj * self.x[i] - R_ij * self.x[j]) / determinant
        v_j = -(R_ii * self.x[j] - R_ij * self.x[i]) / determinant
        level = self.mean_f + self.pull[i] * v_i + self.pull[j] * v_j
        spread = self.share * (v_i + v_j)
        return np.stack(
            [
                level + (self.t[i] + v_i - spread) / self.kappa,
                level + (self.t[j] + v_j - spread) / self.kappa,
                level,
            ],
            axis=1,
        )


def dual_pair_system(K: np.ndarray, comparisons: Comparisons, alpha: float) -> PairSystem:
    """From a kernel matrix, which is overwritten: one Cholesky factorisation and the inverse, m³ operations.

    Parameters
    ----------
    K : ndarray of shape (m, m), C-contiguous
    comparisons : Comparisons
        Of one output.
    alpha : float
        λ of the estimator.
    """
    alpha, kappa, share = _pair_scale(comparisons, alpha)
    anchors = comparisons.anchors()
    mean = None if anchors is None else comparisons.half(_group_means(K, anchors).T)[:, 0]
    G = comparisons.half_both_sides(K)
    R = explicit_resolvent(G, alpha, overwrite=True)
    return _from_resolvent(R, comparisons, mean, alpha, kappa, share)


def path_pair_system(source: DualHoldOut, alpha: float) -> PairSystem:
    """From the tridiagonal form that serves every alpha: one product of a matrix with itself, m³ operations."""
    alpha, kappa, share = _pair_scale(source.comparisons, alpha)
    mean = None if source._pull is None else source._pull[0]
    return _from_resolvent(source.explicit_resolvent(alpha), source.comparisons, mean, alpha, kappa, share)


def _from_resolvent(
    R: np.ndarray, comparisons: Comparisons, mean: np.ndarray | None, alpha: float, kappa: float, share: float
) -> PairSystem:
    """The system of the first output; R is symmetric, and overwritten."""
    t = comparisons.half_target[:, 0]
    x = R @ t
    pull, mean_f = np.zeros(t.shape[0]), 0.0
    if mean is not None:
        _centre_in_place(R)
        pull, mean_f = R @ mean, float(mean @ x)
    return PairSystem(
        np.diagonal(R).copy(), x, t, pull, mean_f, kappa, share, alpha, R=np.ascontiguousarray(R.T)
    )


def feature_pair_system(source: FeatureHoldOut, alpha: float) -> PairSystem:
    """From features: no m × m array."""
    comparisons = source.comparisons
    alpha, kappa, share = _pair_scale(comparisons, alpha)
    assert source._T is not None
    D = 1.0 / (source._s + alpha)
    w = D * source._c[:, 0]
    t = comparisons.half_target[:, 0]
    x = (t - source._T @ w) / alpha
    diagonal = (1.0 - share - np.square(source._T) @ D) / alpha
    pull, mean_f = np.zeros(t.shape[0]), 0.0
    if share:
        # β = (mean of Z) D Tᵀ: the mean prediction that one unit of each dual variable adds.
        pull, mean_f = source._T @ (D * source._mean), float(source._mean @ w)
    return PairSystem(diagonal, x, t, pull, mean_f, kappa, share, alpha, source=source)


def _pair_scale(comparisons: Comparisons, alpha: float) -> tuple[float, float, float]:
    """λ for training on m - 2 rows, κ, and 1 / m where rows are compared with each other."""
    if not getattr(comparisons, "is_one_block", False):
        return alpha, 1.0, 0.0
    scale = comparisons.drop_half(np.array([0, 1])).scale
    return alpha / scale, float(np.sqrt(comparisons._outer[0])), 1.0 / comparisons.n_rows  # type: ignore[attr-defined]


def _centre_in_place(R: np.ndarray) -> None:
    means = R.mean(axis=0)
    R -= means
    R -= (means - means.mean())[:, None]


def reduced_pair_predictions(source: FeatureHoldOut, pairs: np.ndarray, alpha: float) -> np.ndarray:
    """Predictions for both rows of each pair, and the mean over all rows, when basis vectors leave too; shape (p, 3).

    With y = κ (z - z̄) and the constraints e of the basis vectors among the pair, w' = w - D (Y a + E b) where
    [Yᵀ D Y - Γ, Yᵀ D E; Eᵀ D Y, Eᵀ D E] [a; b] = [Yᵀ w - Γ p; Eᵀ w], Γ = E_HᵀC E_H and Γ p = κ (s_H - s̄). The 4 × 4
    systems of many pairs are solved together; rows that are no basis vectors have a unit row and column in place of e.
    """
    comparisons = source.comparisons
    alpha, kappa, share = _pair_scale(comparisons, alpha)
    D = 1.0 / (source._s + alpha)
    w = D * source._c[:, 0]
    assert source._leaving_basis is not None
    out = np.empty((pairs.shape[0], 3))
    step = max(1, _BLOCK_ENTRIES // (4 * D.shape[0]))
    for start in range(0, pairs.shape[0], step):
        part = pairs[start : start + step]
        Z = source._Z[part]
        centre = source._mean if share else np.zeros_like(source._mean)
        number = source._leaving_basis.numbers_of_pairs(part)
        E = np.where((number >= 0)[:, :, None], source._E[np.maximum(number, 0)], 0.0)
        columns = np.concatenate([kappa * (Z - centre), E], axis=1)
        image = columns * D
        system = columns @ image.transpose(0, 2, 1)
        gamma = np.eye(2) - share
        system[:, :2, :2] -= gamma
        blank, corner = np.nonzero(number < 0)
        system[blank, 2 + corner, 2 + corner] = 1.0
        rhs = columns @ w
        rhs[:, :2] -= comparisons.half_target[part, 0]
        solved = np.linalg.solve(system, rhs[:, :, None])
        weights = w - (image.transpose(0, 2, 1) @ solved)[:, :, 0]
        out[start : start + step, :2] = np.einsum("khc,kc->kh", Z, weights)
        out[start : start + step, 2] = weights @ source._mean
    return out
