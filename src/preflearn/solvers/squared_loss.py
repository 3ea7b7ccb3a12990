"""Train a squared-loss learner: representation of the inputs, comparisons, one solve.

`fit_squared_loss` reads as the algorithm; each branch is one row of the table in `choice`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..comparisons import Comparisons
from ..core import dual_problem, primal_problem, solve_conjugate_gradients, solve_on_basis
from ..kernels.functions import Kernel, n_items
from ..kernels.maps import NystromMap
from ..numerics.linalg import factor_kernel, solve_triangular_in_place
from ..numerics.memory import require_memory
from .choice import choose_solver
from .progress import Stages


@dataclass
class SquaredLossFit:
    """What training returns.

    Attributes
    ----------
    solver : {"dual", "primal", "cg"}
    weights : ndarray of shape (n, v) or None
        Of the features of X, for the linear kernel without a reduced set.
    dual_coef : ndarray of shape (r, v) or None
        Of the basis vectors otherwise.
    basis_indices : ndarray of shape (r,) or None
    mean_prediction : ndarray of shape (v,) or None
        Mean of f over the training rows where it was asked for; an intercept follows from it.
    n_iter : int or None
    residual : float or None
        What conjugate gradients reached.
    converged : bool
    """

    solver: str
    weights: np.ndarray | None
    dual_coef: np.ndarray | None
    basis_indices: np.ndarray | None
    mean_prediction: np.ndarray | None
    n_iter: int | None = None
    residual: float | None = None
    converged: bool = True


def fit_squared_loss(
    X: Any,
    kernel: Kernel,
    tasks: Sequence[Comparisons],
    alpha: float,
    *,
    solver: str = "auto",
    feature_map: NystromMap | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    with_mean: bool = True,
    stages: Stages | None = None,
) -> SquaredLossFit:
    """Minimise Σ over comparisons + alpha ‖f‖².

    Parameters
    ----------
    X : array, CSR matrix, kernel matrix, or list of objects
        Validated items.
    kernel : Kernel
    tasks : sequence of Comparisons
        One that all outputs share, or one per output where L depends on the scores.
    alpha : float
    solver : {"auto", "dual", "primal", "cg"}
    feature_map : NystromMap, optional
        Fitted on X: the reduced set.
    tol, max_iter : optional
        Of conjugate gradients (1e-8; 10 n and at least 1000).
    with_mean : bool
        Whether `mean_prediction` is needed.
    """
    stages = stages or Stages(None)
    sparse = sp.issparse(X)
    chosen = choose_solver(
        solver,
        linear=kernel.is_linear,
        reduced=feature_map is not None,
        sparse=sparse,
        n_rows=n_items(X),
        n_features=X.shape[1] if hasattr(X, "shape") else None,
    )
    if chosen == "cg":
        fit = _fit_cg(X, tasks, alpha, 1e-8 if tol is None else tol, max_iter, stages)
    elif feature_map is not None:
        return _fit_reduced(X, kernel, feature_map, tasks, alpha, with_mean, stages)
    elif chosen == "dual":
        return _fit_dual(X, kernel, tasks, alpha, with_mean, stages)
    else:
        fit = _fit_linear(X, tasks, alpha, stages)
    if with_mean:
        fit.mean_prediction = _column_means(X) @ fit.weights
    return fit


def _fit_linear(X, tasks, alpha, stages) -> SquaredLossFit:
    with stages(f"primal system {X.shape[1]} × {X.shape[1]}"):
        weights = _solve_each(lambda task: primal_problem(X, task).solve(alpha), tasks)
    return SquaredLossFit("primal", weights, None, None, None)


def _fit_reduced(X, kernel, feature_map, tasks, alpha, with_mean, stages) -> SquaredLossFit:
    m, r = n_items(X), feature_map.rank_
    factor = feature_map.factor_
    with stages(f"kernel block {m} × {r}"):
        block = feature_map._kernel_block(X, kernel)
    means = _column_means(block) if with_mean else None
    with stages(f"primal system {r} × {r}"):
        coef = _solve_reduced(block, feature_map, tasks, alpha)
    mean_prediction = None if means is None else means @ coef[factor.pivots]
    return SquaredLossFit("primal", None, coef, feature_map.basis_indices_, mean_prediction)


def _solve_reduced(
    block: np.ndarray, feature_map: NystromMap, tasks: Sequence[Comparisons], alpha: float
) -> np.ndarray:
    """β of all outputs: on the basis vectors where that is accurate, otherwise on the features.

    The features take the memory of the block.
    """
    factor = feature_map.factor_
    if factor.well_conditioned:
        K_RR = block[feature_map.basis_indices_]  # basis vectors are training rows
        try:
            return _solve_each(lambda task: solve_on_basis(block, K_RR, task, alpha), tasks)
        except np.linalg.LinAlgError:
            del K_RR
    features = solve_triangular_in_place(factor.C, block)
    return factor.expand(_solve_each(lambda task: primal_problem(features, task).solve(alpha), tasks))


def _fit_dual(X, kernel, tasks, alpha, with_mean, stages) -> SquaredLossFit:
    m = n_items(X)
    itemsize = 4 if getattr(X, "dtype", None) == np.float32 else 8
    # K itself; a second matrix where K has to survive the first output; three where K is factored.
    n_matrices = 3 if not tasks[0].has_half else min(len(tasks), 2)
    require_memory(n_matrices * m * m * itemsize, f"training with the full kernel of {m} rows")
    with stages(f"kernel matrix {m} × {m}"):
        K = X.copy() if kernel.is_precomputed else kernel.matrix(X)
    means = _column_means(K) if with_mean else None
    with stages("factorisation and solution"):
        if tasks[0].has_half:
            last = tasks[-1]
            coef = _solve_each(
                lambda task: dual_problem(K if task is last else K.copy(), task).solve(alpha), tasks
            )
        else:
            coef = _solve_through_factor(K, tasks, alpha)
    mean_prediction = None if means is None else means @ coef
    if kernel.is_linear:
        return SquaredLossFit("dual", np.asarray(X.T @ coef), None, None, mean_prediction)
    return SquaredLossFit("dual", None, coef, np.arange(m), mean_prediction)


def _solve_through_factor(K: np.ndarray, tasks: Sequence[Comparisons], alpha: float) -> np.ndarray:
    """Without a symmetric half: K = F Fᵀ, the primal form on F, and a = C⁻ᵀ w on the pivots of the factor.

    The factor takes the memory of K.
    """
    factor = factor_kernel(K, overwrite=True)
    F = np.ascontiguousarray(factor.F)
    w = _solve_each(lambda task: primal_problem(F, task).solve(alpha), tasks)
    return factor.expand(w)


def _fit_cg(X, tasks, alpha, tol, max_iter, stages) -> SquaredLossFit:
    with stages("conjugate gradients") as stage:
        results = [
            solve_conjugate_gradients(
                X, task, alpha, tol=tol, max_iter=max_iter, on_iteration=stage.iteration
            )
            for task in tasks
        ]
    weights = np.concatenate([result.weights for result in results], axis=1)
    return SquaredLossFit(
        "cg",
        weights,
        None,
        None,
        None,
        n_iter=max(result.n_iter for result in results),
        residual=max(result.residual for result in results),
        converged=all(result.converged for result in results),
    )


def _solve_each(solve, tasks: Sequence[Comparisons]) -> np.ndarray:
    return np.concatenate([solve(task) for task in tasks], axis=1)


def _column_means(X) -> np.ndarray:
    """In float64: a sum of many rows loses the digits of float32."""
    return np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
