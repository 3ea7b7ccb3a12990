"""Train a squared-loss learner: representation of the inputs, comparisons, one solve.

`fit_squared_loss` reads as the algorithm; each branch is one row of the table in `routes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from ..comparisons import Comparisons, PreferenceComparisons, centred, offset_is_large, one_group
from ..core import dual_problem, solve_conjugate_gradients, solve_on_basis
from ..core.basis_system import sums_may_do
from ..core.conjugate_gradients import largest_eigenvalue
from ..core.preference_holdout import (
    kernel_of_differences,
    kernel_of_rows,
    regression_over_pairs,
    suits_pair_space,
    weighted_differences,
)
from ..core.problem import SquaredLossFit, refuse_indefinite, solve_primal, warn_if_collinear
from ..core.reduced_set import ReducedRows, solve_iteratively, solve_streamed
from ..kernels.blocks import DIRECT_KERNELS
from ..kernels.functions import Kernel, n_items, take_training_items
from ..kernels.maps import NystromMap
from ..numerics.linalg import factor_kernel, in_row_span, solve_triangular_in_place
from ..numerics.memory import fits_in_memory, require_memory
from ..numerics.namespace import is_device_array
from .choice import choose_solver
from .progress import Stages
from .routes import Workload, choose_route, warn_if_long

# A block K_MR up to this size is stored and used for every output; a larger one is formed again block by block.
_STORED_BYTES = 1 << 28
# A square matrix up to this size is factorised in a moment.
_QUICKLY_FACTORISED = 1000


def fit_squared_loss(
    X: Any,
    kernel: Kernel,
    tasks: Sequence[Comparisons],
    alpha: float,
    *,
    solver: str = "auto",
    feature_map: Any = None,
    tol: float | None = None,
    max_iter: int | None = None,
    with_mean: bool = True,
    stages: Stages | None = None,
) -> SquaredLossFit:
    """Minimise Σ over comparisons + alpha ‖f‖².

    Parameters
    ----------
    X : array, CSR matrix, kernel matrix, list of objects, or array on a device
        Validated items. Arrays of other libraries are handed on to `preflearn.arrays`.
    kernel : Kernel
    tasks : sequence of Comparisons
        One that all outputs share, or one per output where L depends on the scores.
    alpha : float
    solver : {"auto", "dual", "primal", "cg"}
    feature_map : NystromMap or DeviceBasis, optional
        Fitted on X: the reduced set.
    tol, max_iter : optional
        Of conjugate gradients (1e-8; 10 n and at least 1000; with a reduced set 1e-6 and 500).
    with_mean : bool
        Whether `mean_prediction` is needed.
    """
    stages = stages or Stages(None)
    if is_device_array(X):
        from ..arrays.squared_loss import fit_on_device

        return fit_on_device(
            X,
            kernel,
            tasks,
            alpha,
            solver=solver,
            basis=feature_map,
            tol=tol,
            max_iter=max_iter,
            with_mean=with_mean,
            stages=stages,
        )
    tasks = _that_count(tasks)
    if feature_map is None and not with_mean and (rows := _compared_rows(tasks)) is not None:
        return _fit_compared_rows(
            X, kernel, tasks[0], rows, alpha, solver=solver, tol=tol, max_iter=max_iter, stages=stages
        )
    workload = None
    if solver == "auto" and kernel.is_linear and feature_map is None:
        workload = _training(X, tasks, alpha, tol, stages)
    chosen = choose_solver(
        solver,
        linear=kernel.is_linear,
        reduced=feature_map is not None,
        n_rows=n_items(X),
        n_features=X.shape[1] if hasattr(X, "shape") else None,
        workload=workload,
        **_reduced_size(X, feature_map, tasks),
    )
    if feature_map is not None and chosen == "cg":
        return _fit_reduced_cg(X, kernel, feature_map, tasks, alpha, tol, max_iter, with_mean, stages)
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


def _that_count(tasks: Sequence[Comparisons]) -> Sequence[Comparisons]:
    """Preferences of weight zero say nothing."""
    task = tasks[0]
    if not isinstance(task, PreferenceComparisons) or not 0 < task.n_comparisons < task.pairs.shape[0]:
        return tasks
    return [task.without(np.flatnonzero(task.weight == 0))]


def _compared_rows(tasks: Sequence[Comparisons]) -> np.ndarray | None:
    """The rows that preferences name, ascending; None where these are all of them."""
    task = tasks[0]
    if not isinstance(task, PreferenceComparisons):
        return None
    rows = np.unique(task.pairs)
    return rows if rows.shape[0] < task.n_rows else None


def _fit_compared_rows(
    X: Any, kernel: Kernel, task: Comparisons, rows: np.ndarray, alpha: float, **options: Any
) -> SquaredLossFit:
    """Rows that are not compared have no part in the model: their coefficients are zero."""
    part = take_training_items(X, rows, kernel)
    fit = fit_squared_loss(part, kernel, [task.take(rows)], alpha, with_mean=False, **options)
    if fit.dual_coef is not None:
        coef = np.zeros((task.n_rows, fit.dual_coef.shape[1]), dtype=fit.dual_coef.dtype)
        coef[rows] = fit.dual_coef
        fit.dual_coef, fit.basis_indices = coef, np.arange(task.n_rows)
    return fit


def _training(
    X: Any, tasks: Sequence[Comparisons], alpha: float, tol: float | None, stages: Stages
) -> Workload:
    """What training on these rows takes; how many iterations is asked only where a square matrix costs something."""
    if min(X.shape) <= _QUICKLY_FACTORISED:
        return Workload("train", X.shape[0], X.shape[1], tol=tol)
    spread = 1.0 + max(largest_eigenvalue(X, task) for task in tasks) / alpha
    task = tasks[0]
    workload = Workload.of(
        X,
        "train",
        spread=spread,
        tol=tol,
        closed_half=task.has_half,
        n_pairs=task.pairs.shape[0] if _in_pair_space(task) else 0,
    )
    found = choose_route(workload)
    stages.note(str(found.chosen))
    warn_if_long(found)
    return workload


def _fit_linear(X, tasks, alpha, stages) -> SquaredLossFit:
    with stages(f"primal system {X.shape[1]} × {X.shape[1]}"):
        weights = _solve_each(lambda task: solve_primal(X, task, alpha), tasks)
    return SquaredLossFit("primal", weights, None, None, None)


def _reduced_size(X: Any, feature_map: NystromMap | None, tasks: Sequence[Comparisons]) -> dict[str, Any]:
    """What the choice of solver asks about a reduced set."""
    if feature_map is None:
        return {}
    return {
        "n_basis": feature_map.rank_,
        "fits": fits_in_memory(_block_bytes(X, feature_map)),
        "one_pass": all(task.has_half for task in tasks),
    }


def _block_bytes(X: Any, feature_map: NystromMap) -> int:
    return n_items(X) * feature_map.rank_ * feature_map.factor_.C.itemsize


def _fit_reduced(X, kernel, feature_map, tasks, alpha, with_mean, stages) -> SquaredLossFit:
    m, r = n_items(X), feature_map.rank_
    factor = feature_map.factor_
    if factor.C.dtype == np.float32 and not factor.well_conditioned:
        return _fit_reduced_in_double(X, kernel, feature_map, tasks, alpha, with_mean, stages)
    if _block_bytes(X, feature_map) > _STORED_BYTES and all(task.has_half for task in tasks):
        return _fit_reduced_in_blocks(X, kernel, feature_map, tasks, alpha, with_mean, stages)
    with stages(f"kernel block {m} × {r}"):
        block = feature_map.kernel_with_basis(X, kernel)
    means = _column_means(block) if with_mean else None
    with stages(f"primal system {r} × {r}"):
        coef = _solve_reduced(block, feature_map, tasks, alpha)
    mean_prediction = None if means is None else means @ coef[factor.pivots]
    return SquaredLossFit("primal", None, coef, feature_map.basis_indices_, mean_prediction)


def _fit_reduced_in_double(X, kernel, feature_map, tasks, alpha, with_mean, stages) -> SquaredLossFit:
    """Where single precision has not enough digits for the basis vectors; β comes back in single precision."""
    X = X.astype(np.float64)
    double = (
        clone(feature_map).set_params(basis=feature_map.basis_indices_, n_basis=None).fit_items(X, kernel)
    )
    fit = _fit_reduced(X, kernel, double, tasks, alpha, with_mean, stages)
    assert fit.dual_coef is not None
    fit.dual_coef = fit.dual_coef.astype(np.float32)
    return fit


def _fit_reduced_in_blocks(X, kernel, feature_map, tasks, alpha, with_mean, stages) -> SquaredLossFit:
    rows = ReducedRows(X, kernel, feature_map)
    with stages(f"primal system {rows.width} × {rows.width} over {rows.n_rows} rows"):
        beta = _solve_each(lambda task: solve_streamed(rows, task, alpha), tasks)
    return SquaredLossFit("primal", None, *_on_the_basis(rows, feature_map, beta, with_mean))


def _fit_reduced_cg(X, kernel, feature_map, tasks, alpha, tol, max_iter, with_mean, stages) -> SquaredLossFit:
    rows = ReducedRows(X, kernel, feature_map)
    tol = 1e-6 if tol is None else tol
    with stages(f"conjugate gradients over {rows.n_rows} rows, {rows.width} basis vectors") as stage:
        results = [
            solve_iteratively(rows, task, alpha, tol=tol, max_iter=max_iter, on_iteration=stage.iteration)
            for task in tasks
        ]
    beta = np.concatenate([result.weights for result in results], axis=1)
    return SquaredLossFit(
        "cg",
        None,
        *_on_the_basis(rows, feature_map, beta, with_mean),
        n_iter=max(result.n_iter for result in results),
        residual=max(result.residual for result in results),
        converged=all(result.converged for result in results),
    )


def _on_the_basis(
    rows: ReducedRows, feature_map: NystromMap, beta: np.ndarray, with_mean: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Coefficients of all basis vectors, their rows, and the mean prediction where it is asked for."""
    coef = np.zeros((feature_map.basis_indices_.shape[0], beta.shape[1]), dtype=beta.dtype)
    coef[rows.factor.pivots] = beta
    return coef, feature_map.basis_indices_, rows.mean() @ beta if with_mean else None


def _solve_reduced(
    block: np.ndarray, feature_map: NystromMap, tasks: Sequence[Comparisons], alpha: float
) -> np.ndarray:
    """β of all outputs: on sums of kernel values where rounding allows it, otherwise on the features.

    The features take the memory of the block.
    """
    factor = feature_map.factor_
    if all(sums_may_do(factor, task, alpha) for task in tasks):
        K_RR = block[feature_map.basis_indices_[factor.pivots]]  # basis vectors are training rows
        try:
            beta = _solve_each(lambda task: solve_on_basis(block, factor, K_RR, task, alpha), tasks)
            return factor.place(beta)
        except np.linalg.LinAlgError:
            del K_RR
    features = solve_triangular_in_place(factor.C, block)
    return factor.expand(_solve_each(lambda task: solve_primal(features, task, alpha), tasks))


def _fit_dual(X, kernel, tasks, alpha, with_mean, stages) -> SquaredLossFit:
    m = n_items(X)
    task = tasks[0]
    # Another kernel may not be positive definite, which a matrix of some differences does not tell.
    known = kernel.is_linear or kernel.kernel in DIRECT_KERNELS
    if known and not with_mean and _in_pair_space(task) and task.pairs.shape[0] <= m:
        try:
            return _fit_differences(X, kernel, task, alpha, stages)
        except np.linalg.LinAlgError:
            stages.note("too few digits at this alpha: the kernel of the rows instead")
    itemsize = 4 if getattr(X, "dtype", None) == np.float32 else 8
    # K itself; a second matrix where K has to survive the first output; three where K is factored.
    n_matrices = 3 if not tasks[0].has_half else min(len(tasks), 2)
    require_memory(n_matrices * m * m * itemsize, f"training with the full kernel of {m} rows")
    rows = _without_offsets(X, tasks[0]) if kernel.is_linear else X

    def kernel_matrix() -> np.ndarray:
        return X.copy() if kernel.is_precomputed else kernel.matrix(rows)

    with stages(f"kernel matrix {m} × {m}"):
        K = kernel_matrix()
    means = _column_means(K) if with_mean and not kernel.is_linear else None
    with stages("factorisation and solution"):
        if tasks[0].has_half:
            last = tasks[-1]
            try:
                coef = _solve_each(
                    lambda task: dual_problem(K if task is last else K.copy(), task, alpha).solve(
                        alpha, strict=True
                    ),
                    tasks,
                )
            except np.linalg.LinAlgError:
                if kernel.is_linear and not sp.issparse(X):
                    fit = _fit_in_span(X, tasks, alpha)
                    fit.mean_prediction = _column_means(X) @ fit.weights if with_mean else None
                    return fit
                values = np.linalg.eigvalsh(kernel_matrix())
                refuse_indefinite(float(values[0]), float(values[-1]))
                coef = _solve_through_factor(kernel_matrix(), tasks, alpha)
        elif kernel.is_linear and not K.any():
            coef = np.zeros((m, sum(task.n_outputs for task in tasks)), dtype=K.dtype)
        else:
            coef = _solve_through_factor(K, tasks, alpha)
    if not kernel.is_linear:
        return SquaredLossFit("dual", None, coef, np.arange(m), None if means is None else means @ coef)
    weights = np.asarray(rows.T @ coef)
    return SquaredLossFit("dual", weights, None, None, _column_means(X) @ weights if with_mean else None)


def _fit_in_span(X: np.ndarray, tasks, alpha: float) -> SquaredLossFit:
    """The linear kernel where K has too few digits: in an orthonormal basis Q of the rows, w = Q v."""
    X = _without_offsets(X, tasks[0])
    warn_if_collinear(np.linalg.svd(X, compute_uv=False), np.sqrt(alpha))
    rows, Q = in_row_span(X)
    weights = _solve_each(lambda task: solve_primal(rows, task, alpha), tasks)
    return SquaredLossFit("dual", Q @ weights, None, None, None)


def _without_offsets(X: Any, task: Comparisons) -> Any:
    """Dense rows less what those of a query have in common, where the comparisons do not see it."""
    if sp.issparse(X) or not task.ignores_constants:
        return X
    return centred(X, task.queries or one_group(X.shape[0]))[0]


def _in_pair_space(task: Comparisons) -> TypeGuard[PreferenceComparisons]:
    """Whether these are preferences, of weights that one matrix can hold."""
    return isinstance(task, PreferenceComparisons) and suits_pair_space(task)


def _fit_differences(X, kernel, task: PreferenceComparisons, alpha, stages) -> SquaredLossFit:
    """A regression over the l preferences, f = Σ c_k (k(·, x_h) - k(·, x_j)): the matrix is l × l.

    Raises
    ------
    numpy.linalg.LinAlgError
        If fewer than six digits of the differences would be right.
    """
    n_pairs, m = task.pairs.shape[0], task.n_rows
    dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
    beside = m * (m + n_pairs)
    if kernel.is_linear:
        beside = 0 if sp.issparse(X) else n_pairs * X.shape[1]
    require_memory(8 * (n_pairs**2 + beside), f"training on {n_pairs} preferences")
    differences = None
    with stages(f"kernel of differences {n_pairs} × {n_pairs}"):
        if kernel.is_linear:
            differences = weighted_differences(X, task)
            K = kernel_of_rows(differences)
        else:
            K = kernel_of_differences(kernel.matrix(X).astype(np.float64, copy=False), task)
    with stages("factorisation and solution"):
        c = dual_problem(K, regression_over_pairs(task), alpha).solve(alpha, strict=True)
    if differences is not None:
        return SquaredLossFit("dual", np.asarray(differences.T @ c, dtype=dtype), None, None, None)
    coef = np.asarray(task.incidence() @ c, dtype=dtype)
    return SquaredLossFit("dual", None, coef, np.arange(m), None)


def _solve_through_factor(K: np.ndarray, tasks: Sequence[Comparisons], alpha: float) -> np.ndarray:
    """Without a symmetric half: K = F Fᵀ, the primal form on F, and a = C⁻ᵀ w on the pivots of the factor.

    The factor takes the memory of K.
    """
    factor = factor_kernel(K, overwrite=True)
    F = np.ascontiguousarray(factor.F)
    w = _solve_each(lambda task: solve_primal(F, task, alpha), tasks)
    return factor.expand(w)


def _fit_cg(X, tasks, alpha, tol, max_iter, stages) -> SquaredLossFit:
    if not sp.issparse(X) and all(task.ignores_constants for task in tasks) and offset_is_large(X):
        X = centred(X, one_group(X.shape[0]))[0]
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
