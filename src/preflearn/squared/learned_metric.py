r"""A kernel that learns its metric: train, average the gradients of f, train again with the metric that they give.

For a kernel on distances, k(x, z) = φ(‖(x - z) S‖), the average gradient outer product of the trained f,

    M = mean over rows of ∇f(x) ∇f(x)ᵀ,    S ← M^(1/2) (diagonal: S_j ← root mean square of ∂f/∂x_j),

stretches the directions that f uses and shrinks those that it ignores. Gradients of a ranker do not see what is
constant inside a query, so features that only tell queries apart are forgotten.

The metric is learned from labels. A model that is to predict held-out rows must not have seen theirs, so every fold has
a metric of its own: `TrainingSet` carries it from round to round.

Reference: Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", Science 383 (2024), for regression and classification.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..comparisons import Comparisons
from ..kernels.functions import Kernel, take_items
from ..kernels.gradients import expansion_gradient
from ..kernels.maps import NystromMap
from .problem import Spectrum, primal_problem

# Gradients are averaged over at most this many rows.
GRADIENT_ROWS = 2000
# Directions of a full metric that are shorter than this, relative to the longest, are left out.
_SHORTEST_DIRECTION = 1e-4


@dataclass(frozen=True)
class MetricModel:
    """A reduced set trained at every alpha with one metric.

    Attributes
    ----------
    kernel : Kernel
        With its metric and its width as a number.
    features : NystromMap
    spectrum : Spectrum
    """

    kernel: Kernel
    features: NystromMap
    spectrum: Spectrum

    @property
    def basis(self) -> Any:
        """The basis vectors."""
        return self.features.basis_

    @property
    def largest_eigenvalue(self) -> float:
        return float(self.spectrum.values[-1])

    def predict(self, X: Any, alphas: Iterable[float]) -> np.ndarray:
        """Scores of validated items at every alpha, shape (a, m, v)."""
        weights = self.spectrum.path([float(alpha) for alpha in alphas])
        n_alphas, rank, v = weights.shape
        columns = weights.transpose(1, 0, 2).reshape(rank, n_alphas * v)  # one product for all of them
        scores = self.features.map_items(X, self.kernel) @ columns
        return scores.reshape(-1, n_alphas, v).transpose(1, 0, 2)

    def coefficients(self, alpha: float) -> np.ndarray:
        """Of the basis vectors, shape (r, v)."""
        return self.features.expand(self.spectrum.path([alpha])[0])

    def gradients(self, X: Any, alpha: float) -> np.ndarray:
        """∇f at validated items, shape (m, n, v)."""
        return expansion_gradient(self.kernel, X, self.basis, self.coefficients(alpha))


@dataclass
class TrainingSet:
    """Rows to train on, and the metric learned on them so far.

    Attributes
    ----------
    rows : ndarray of shape (m,)
        Row numbers of the training items.
    basis : ndarray of shape (r,)
        Row numbers of the basis vectors.
    task : Comparisons
        Of the rows, in their order.
    metric : ndarray of shape (n,) or (n, k), or None
        None before the first round: the features as they are.
    """

    rows: np.ndarray
    basis: np.ndarray
    task: Comparisons
    metric: np.ndarray | None = None

    def train(self, X: Any, kernel: Kernel) -> MetricModel:
        """One training with the present metric; all alphas follow from it. O(m r²)."""
        mine = take_items(X, self.rows)
        seen = kernel.with_metric(self.metric).fitted_to(mine)
        features = NystromMap().fit_items(take_items(X, self.basis), seen)
        Phi = features.map_items(mine, seen).astype(np.float64, copy=False)
        return MetricModel(seen, features, primal_problem(Phi, self.task).spectrum())

    def update_metric(self, X: Any, model: MetricModel, alpha: float, *, full: bool) -> bool:
        """Take the metric from the gradients of a model; False where they are all zero and it stays as it is."""
        rows = self.rows
        if rows.shape[0] > GRADIENT_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, GRADIENT_ROWS, replace=False))
        metric = average_gradient_metric(model.gradients(take_items(X, rows), alpha), full=full)
        if metric is not None:
            self.metric = metric
        return metric is not None


def average_gradient_metric(gradients: np.ndarray, *, full: bool) -> np.ndarray | None:
    """S with S Sᵀ = mean ∇f ∇fᵀ, scaled to a largest entry of 1; None where all gradients are zero.

    Parameters
    ----------
    gradients : ndarray of shape (m, n, v)
        The mean is taken over rows and outputs.
    full : bool
        A matrix of shape (n, k), its columns the k longest principal directions, instead of one factor per feature.

    Examples
    --------
    >>> import numpy as np
    >>> average_gradient_metric(np.array([[[3.0], [0.0]], [[3.0], [4.0]]]), full=False).round(3)
    array([1.   , 0.943])
    """
    m, n, v = gradients.shape
    rows = gradients.transpose(0, 2, 1).reshape(m * v, n)
    largest = float(np.abs(rows).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return None
    rows = rows / largest  # squares of tiny gradients must not underflow
    if not full:
        S = np.sqrt(np.einsum("ij,ij->j", rows, rows) / rows.shape[0])
        return S / S.max()
    _, lengths, directions = np.linalg.svd(rows, full_matrices=False) if m * v < n else _principal(rows)
    kept = lengths > _SHORTEST_DIRECTION * lengths[0]
    S = (directions[kept] * lengths[kept, None]).T
    return S / np.abs(S).max()


def _principal(rows: np.ndarray) -> tuple[None, np.ndarray, np.ndarray]:
    """Lengths and directions of the singular vectors, longest first, from the n × n product."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    return None, np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1].T
