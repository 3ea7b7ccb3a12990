r"""Conjugate gradients for (Φᵀ L Φ + λ I) w = Φᵀ b, without any square matrix.

One iteration costs Φ @ v, L @ u and Φᵀ @ u. The preconditioner is the diagonal of the system, exact, computed once in
O(nnz(Φ)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..comparisons import Comparisons
from .gram import feature_gram_diagonal, feature_moment


@dataclass(frozen=True)
class ConjugateGradientResult:
    """What the iteration reached.

    Attributes
    ----------
    weights : ndarray of shape (n, v)
    n_iter : int
    residual : float
        Largest ‖rhs - A w‖ / ‖rhs‖ over the outputs.
    converged : bool
        Whether the residual fell under the tolerance.
    """

    weights: np.ndarray
    n_iter: int
    residual: float
    converged: bool


def solve_conjugate_gradients(
    features,
    comparisons: Comparisons,
    alpha: float,
    *,
    tol: float = 1e-8,
    max_iter: int | None = None,
    on_iteration: Callable[[int, float], None] | None = None,
) -> ConjugateGradientResult:
    """Solve the primal system for all outputs at once.

    Parameters
    ----------
    features : ndarray or sparse array of shape (m, n)
        Φ.
    comparisons : Comparisons
    alpha : float
    tol : float
        Relative residual at which an output is done.
    max_iter : int, optional
        10 n, and at least 1000, by default.
    on_iteration : callable, optional
        Receives the iteration number and the largest relative residual.
    """
    transposed = features.T
    dtype = features.dtype
    rhs = feature_moment(features, comparisons.target)
    inverse_diagonal = (1.0 / (feature_gram_diagonal(features, comparisons) + alpha)).astype(dtype)[:, None]
    limit = max(1000, 10 * features.shape[1]) if max_iter is None else max_iter

    def system(V: np.ndarray) -> np.ndarray:
        return transposed @ comparisons.laplacian(features @ V) + dtype.type(alpha) * V

    norm = np.linalg.norm(rhs, axis=0)
    scale = np.where(norm > 0, norm, 1.0)
    w = np.zeros_like(rhs)
    residual = rhs.copy()
    direction = np.zeros_like(rhs)
    previous = np.ones(rhs.shape[1], dtype=dtype)
    n_iter, reached = 0, float((norm > 0).any())
    for n_iter in range(1, limit + 1):
        if reached <= tol:
            n_iter -= 1
            break
        preconditioned = inverse_diagonal * residual
        energy = np.einsum("ij,ij->j", residual, preconditioned)
        direction *= _ratio(energy, previous) if n_iter > 1 else 0
        direction += preconditioned
        image = system(direction)
        step = _ratio(energy, np.einsum("ij,ij->j", direction, image))
        w += step * direction
        residual -= step * image
        previous = energy
        reached = float(np.max(np.linalg.norm(residual, axis=0) / scale))
        if on_iteration is not None:
            on_iteration(n_iter, reached)
    return ConjugateGradientResult(w, n_iter, reached, reached <= tol)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Elementwise quotient; an output whose residual is exactly zero takes no further step."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
