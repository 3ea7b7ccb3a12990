r"""Squared-loss learners as Gaussian processes: how certain a score, or the difference of two, is.

With features Φ of the training rows, A = Φᵀ L Φ + λ I and noise σ², the loss over comparisons is minus twice σ² times
the logarithm of a likelihood, and λ ‖f‖² that of a prior f ~ N(0, σ² / λ k). The weights have the posterior covariance
σ² A⁻¹, and the difference of two scores, with d = φ(x) - φ(z), the variance

    σ² (dᵀ A⁻¹ d + (k(d, d) - dᵀ d) / λ),        k(d, d) = k(x, x) - 2 k(x, z) + k(z, z),

the second term being what the features of the training rows do not span, about which nothing was learned. Pairs of a
query share their rows: L counts a row of a query of n rows n times. Rows with independent noise of variance τ² then
have

    σ² = τ² tr L² / tr L,        τ² = Σ_q ‖C e_q‖² / Σ_q (n_q - 1),

with e_q the residuals of query q by the model trained without it, and C the centring. With weights of the rows both
sums are weighted, those of squares by w and n_q - 1 by Σ w - Σ w² / Σ w. τ² includes the error of the model, which
makes it slightly too large rather than too small.

Reference: C. E. Rasmussen, C. K. I. Williams. Gaussian Processes for Machine Learning (2006), chapter 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..comparisons import CensoredComparisons, Comparisons, Groups
from ..kernels.functions import Kernel, n_items
from ..kernels.maps import NystromMap
from ..numerics.linalg import cholesky_in_place, solve_triangular_in_place
from ..numerics.namespace import is_device_array
from ..squared.problem import feature_moments

if TYPE_CHECKING:
    from .base import TrainingRows


class FunctionPosterior:
    """The posterior of f for σ = 1.

    Parameters
    ----------
    rows : TrainingRows
    feature_map : NystromMap or None
        Of all rows or of a reduced set; None where the features are the columns of X.
    with_intercept : bool
        Whether a constant without a prior is added, known as well as the mean of all rows.

    Notes
    -----
    O(m r² + r³) for r features or basis vectors, once.
    """

    def __init__(self, rows: TrainingRows, feature_map: NystromMap | None, with_intercept: bool) -> None:
        self._kernel, self._feature_map, self._alpha = rows.kernel, feature_map, rows.alpha
        features = self._features(rows.X)
        A = np.asfortranarray(feature_moments(features, rows.tasks[0])[0])
        np.fill_diagonal(A, A.diagonal() + rows.alpha)
        self._factor = cholesky_in_place(A, clean=True)
        weights = rows.tasks[0].row_weights
        weights = np.ones(n_items(rows.X)) if weights is None else weights
        self._total = float(weights.sum())
        self._centre = features.T @ weights / self._total if with_intercept else None

    def variances(self, X: Any) -> np.ndarray:
        """Of the scores of validated items, shape (m,)."""
        d = self._features(X)
        d = d.toarray() if sp.issparse(d) else d
        unseen = self._unseen(d, X)
        if self._centre is None:
            return self._of(d) + unseen
        return self._of(d - self._centre) + unseen + 1.0 / self._total

    def variances_of_differences(self, X: Any, Z: Any) -> np.ndarray:
        """Of f(x) - f(z) for validated items row by row, shape (m,)."""
        d = self._features(X) - self._features(Z)
        d = d.toarray() if sp.issparse(d) else d
        return self._of(d) + self._unseen(d, X, Z)

    def _features(self, X: Any) -> Any:
        if self._feature_map is None:
            return X if X.dtype == np.float64 else X.astype(np.float64)
        return self._feature_map.map_items(X, self._kernel).astype(np.float64, copy=False)

    def _of(self, d: np.ndarray) -> np.ndarray:
        z = solve_triangular_in_place(self._factor, np.array(d, order="C"))
        return np.einsum("ij,ij->i", z, z)

    def _unseen(self, d: np.ndarray, X: Any, Z: Any = None) -> np.ndarray | float:
        """(k(d, d) - dᵀ d) / λ: zero for a linear function of the columns."""
        if self._feature_map is None:
            return 0.0
        length = _diagonal(self._kernel, X, X)
        if Z is not None:
            length = length - 2 * _diagonal(self._kernel, X, Z) + _diagonal(self._kernel, Z, Z)
        return np.maximum(length - np.einsum("ij,ij->i", d, d), 0.0) / self._alpha


def _diagonal(kernel: Kernel, X: Any, Z: Any, size: int = 64) -> np.ndarray:
    """k(x_i, z_i) for every i, read from blocks of this many rows."""
    blocks = [slice(start, start + size) for start in range(0, n_items(X), size)]
    return np.concatenate([np.diagonal(kernel.matrix(X[block], Z[block])) for block in blocks])


def row_noise(residuals: np.ndarray, queries: Groups, weights: np.ndarray | None = None) -> np.ndarray:
    """τ² of each output from held-out residuals of shape (m, v); rows without weight do not contribute."""
    w = np.ones(queries.n_rows) if weights is None else weights
    total, squares = (
        np.bincount(queries.codes, weights=one, minlength=queries.n_groups) for one in (w, w**2)
    )
    known = np.where(total > 0, total, 1.0)
    means = np.stack([np.bincount(queries.codes, weights=w * column) for column in residuals.T], axis=1)
    centred = residuals - (means / known[:, None])[queries.codes]
    free = float((total - squares / known).sum())
    return (w[:, None] * centred**2).sum(axis=0) / (free if free > 0 else 1.0)


def noise_of_comparisons(task: Comparisons, n_probes: int = 32) -> float:
    """tr L² / tr L, how many times a row counts on average; the trace of the square is estimated from random signs."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(task.n_rows, n_probes))
    return float(np.mean(np.sum(task.laplacian(signs) ** 2, axis=0)) / np.sum(task.diagonal()))


def refuse_without_posterior(model: Any, rows: TrainingRows | None) -> TrainingRows:
    """Refuse, with the reason, where there is no standard deviation."""
    name = type(model).__name__
    if rows is None:
        raise ValueError(
            f"Standard deviations need the training rows, which this {name} does not have: it was loaded, copied, or "
            "trained in parts. Call fit on rows in memory."
        )
    if is_device_array(rows.X):
        raise ValueError("Standard deviations are for NumPy and SciPy arrays: train on the host.")
    if np.ndim(rows.alpha):
        raise ValueError(
            f"Standard deviations are those of one alpha: this {name} chose one for each output "
            "(alpha_per_output=True). Use alpha_per_output=False."
        )
    if len(rows.tasks) != 1 or getattr(model, "cost", "magnitude") != "magnitude":
        raise ValueError(
            "Standard deviations are on the scale of y and for outputs that share their pairs: use cost='magnitude', "
            "and ties='include' for several outputs."
        )
    if isinstance(rows.tasks[0], CensoredComparisons):
        raise ValueError(
            f"Standard deviations need the residuals of known scores: this {name} learned from censored times."
        )
    if not hasattr(rows.tasks[0], "scores"):
        raise ValueError(
            f"Standard deviations need scores, whose held-out residuals give the noise: this {name} learned from "
            "preferences. BradleyTerry has a posterior of those."
        )
    if n_items(rows.X) < 2:
        raise ValueError(f"Standard deviations need held-out rows: this {name} was trained on one row.")
    if rows.kernel.is_precomputed:
        raise ValueError(
            "Standard deviations need k(x, x) of new items: pass a kernel instead of its matrix."
        )
    if not rows.are_unchanged():
        raise ValueError("The training rows have been changed since fit: fit again, or pass fit a copy.")
    return rows
