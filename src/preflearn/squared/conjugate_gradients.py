r"""Conjugate gradients for (Φᵀ L Φ + λ I) w = Φᵀ b, without any square matrix.

One iteration costs Φ @ v, L @ u and Φᵀ @ u. The preconditioner is the diagonal of the system, exact, computed once in
O(nnz(Φ)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..comparisons import Comparisons
from .problem import feature_gram_diagonal, feature_moment


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

    def system(V: np.ndarray) -> np.ndarray:
        return transposed @ comparisons.laplacian(features @ V) + dtype.type(alpha) * V

    return iterate(
        system,
        lambda residual: inverse_diagonal * residual,
        rhs,
        tol=tol,
        max_iter=max(1000, 10 * features.shape[1]) if max_iter is None else max_iter,
        on_iteration=on_iteration,
    )


def largest_eigenvalue(features, comparisons: Comparisons, n_steps: int = 6) -> float:
    """A lower bound of that of Φᵀ L Φ, to a few per cent: some steps of the power method, each a pass over Φ."""
    transposed = features.T
    v = np.random.default_rng(0).normal(size=(features.shape[1], 1)).astype(features.dtype)
    value = 0.0
    for _ in range(n_steps):
        v /= max(float(np.linalg.norm(v)), np.finfo(v.dtype).tiny)
        v = np.asarray(transposed @ comparisons.laplacian(features @ v))
        value = float(np.linalg.norm(v))
    return value


def iterate(
    system: Callable[[Any], Any],
    precondition: Callable[[Any], Any],
    rhs: Any,
    *,
    tol: float,
    max_iter: int,
    start: Any = None,
    in_energy: bool = False,
    on_iteration: Callable[[int, float], None] | None = None,
    xp: Any = np,
) -> ConjugateGradientResult:
    """Preconditioned conjugate gradients for A w = rhs, all columns at once.

    Parameters
    ----------
    system, precondition : callable
        V to A V, and V to M⁻¹ V for a symmetric positive definite M near A.
    rhs : array of shape (n, v)
    tol : float
        Size of the residual relative to that of the right-hand side at which an output is done.
    max_iter : int
    start : array of shape (n, v), optional
        Zero by default.
    in_energy : bool
        Measure a residual ρ by (ρᵀ M⁻¹ ρ)^½, which for M near A is the error of w in the norm (wᵀ A w)^½ of the problem
        itself, instead of by its length.
    on_iteration : callable, optional
        Receives the iteration number and the largest relative size of a residual.
    xp : module
        NumPy, or the array API namespace of the arrays.
    """

    def size(residual: Any, energy: Any) -> Any:
        return xp.sqrt(energy if in_energy else xp.sum(residual * residual, axis=0))

    preconditioned = precondition(rhs)
    norm = size(rhs, xp.clip(xp.sum(rhs * preconditioned, axis=0), min=0.0))
    scale = xp.where(norm > 0, norm, xp.ones_like(norm))
    w = xp.zeros_like(rhs) if start is None else start
    residual = xp.asarray(rhs, copy=True) if start is None else rhs - system(start)
    direction = previous = None
    n_iter, reached = 0, float(xp.any(norm > 0))
    while True:
        preconditioned = precondition(residual)
        energy = xp.clip(xp.sum(residual * preconditioned, axis=0), min=0.0)
        if n_iter or start is not None:
            reached = float(xp.max(size(residual, energy) / scale))
            if on_iteration is not None and n_iter:
                on_iteration(n_iter, reached)
        if reached <= tol or n_iter == max_iter:
            return ConjugateGradientResult(w, n_iter, reached, reached <= tol)
        n_iter += 1
        direction = (
            preconditioned if n_iter == 1 else preconditioned + _ratio(energy, previous, xp) * direction
        )
        image = system(direction)
        step = _ratio(energy, xp.sum(direction * image, axis=0), xp)
        w = w + step * direction
        residual = residual - step * image
        previous = energy


def _ratio(numerator: Any, denominator: Any, xp: Any) -> Any:
    """Elementwise quotient; an output whose residual is exactly zero takes no further step."""
    positive = denominator > 0
    return xp.where(positive, numerator, xp.zeros_like(numerator)) / xp.where(
        positive, denominator, xp.ones_like(denominator)
    )
