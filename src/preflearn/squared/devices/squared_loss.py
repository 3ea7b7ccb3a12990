r"""Training on device arrays.

* Reduced set: B = K_RM L K_MR + λ K_RR and K_RM b are summed over blocks of rows, K_MR is never stored; one Cholesky
  factorisation of B. The result is then checked against the equation itself, in another pass over the rows, and
  corrected by conjugate gradients with B as preconditioner until its error is below the tolerance; where rounding
  prevents that, the same is done with orthogonalised features.
* Linear kernel: the same sums with the features themselves.
* Full kernel: S K S is formed in blocks of rows and factorised; where it does not fit on the device, conjugate
  gradients with the kernel formed again in every iteration and a Nyström preconditioner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...comparisons import Comparisons
from ...kernels.blocks import KernelBlocks
from ...kernels.functions import Kernel
from ...numerics.namespace import Home, as_host
from ..conjugate_gradients import iterate
from ..problem import SquaredLossFit
from ..row_blocks import HalfBlocks, RowBlock
from .kernels import DeviceBasis, GramSum, add_to_diagonal, cholesky, cholesky_solve, solve_ridge, whitening

# Correction steps after the direct solution of the reduced set; more than a few mean that rounding dominates.
_MAX_CORRECTIONS = 12
# Basis vectors of the preconditioner for a full kernel that does not fit.
_PRECONDITIONER_ROWS = 2000


def fit_reduced(
    X: Any,
    basis: DeviceBasis,
    tasks: Sequence[Comparisons],
    alpha: float,
    *,
    with_mean: bool,
    stages: Any,
    home: Home,
) -> SquaredLossFit:
    """On the basis vectors; the coefficients are arrays of the device, as in the functions below."""
    with stages(f"reduced set of {basis.basis_.shape[0]} on {home.device}"):
        coef = _solve_each(lambda task: _solve_reduced(X, basis, task, alpha, home), tasks, home)
    means = _mean_rows(X, basis.blocks, home) if with_mean else None
    return SquaredLossFit("primal", None, coef, basis.basis_indices_, _host(means, coef))


def fit_features(
    X: Any, tasks: Sequence[Comparisons], alpha: float, *, with_mean: bool, stages: Any, home: Home
) -> SquaredLossFit:
    """On the columns of X."""
    with stages(f"primal system {X.shape[1]} × {X.shape[1]} on {home.device}"):
        weights = _solve_each(lambda task: _solve_features(X, task, alpha, home), tasks, home)
    means = home.xp.mean(X, axis=0) if with_mean else None
    return SquaredLossFit("primal", weights, None, None, _host(means, weights))


def half_blocks(task: Comparisons, width: int, home: Home) -> HalfBlocks:
    """Blocks of rows of a matrix with ``width`` columns on the device."""
    return HalfBlocks(task, home.block_rows(width), home.xp, home.put, home.put_as_is)


def _solve_each(solve: Any, tasks: Sequence[Comparisons], home: Home) -> Any:
    return home.xp.concat([solve(task) for task in tasks], axis=1)


def _host(means: Any, coef: Any) -> np.ndarray | None:
    return None if means is None else as_host(means[None, :] @ coef)[0].astype(np.float64)


def _mean_rows(X: Any, blocks: KernelBlocks, home: Home) -> Any:
    """Column means of the kernel block of all rows, in a separate pass."""
    total = sum(home.xp.sum(blocks(X[rows, :]), axis=0) for rows in home.steps(X.shape[0], blocks.width))
    return total / X.shape[0]


def sum_up(form: Any, halves: HalfBlocks, width: int, n_outputs: int, home: Home) -> tuple[Any, Any]:
    """(Vᵀ L V, Vᵀ b) for V formed block by block."""
    gram, cross = GramSum(width, home), home.zeros(width, n_outputs)
    for block, P in halves.halves(form):
        gram.add(P)
        cross += P.T @ halves.target[block.start : block.stop, :]
    return gram.matrix(), cross


def _solve_features(X: Any, task: Comparisons, alpha: float, home: Home) -> Any:
    halves = half_blocks(task, X.shape[1], home)
    A, c = sum_up(lambda block: own_rows(X, block, home), halves, X.shape[1], task.n_outputs, home)
    return solve_ridge(A, c, alpha, home)


def own_rows(X: Any, block: RowBlock, home: Home) -> Any:
    """The rows of a block, as an array that may be written to."""
    rows = home.rows(X, block.rows)
    return home.xp.asarray(rows, copy=True) if isinstance(block.rows, slice) else rows


# Reduced set


def _solve_reduced(X: Any, basis: DeviceBasis, task: Comparisons, alpha: float, home: Home) -> Any:
    """β of shape (r, v)."""
    r = basis.basis_.shape[0]
    halves = half_blocks(task, r, home)

    def form(block: RowBlock) -> Any:
        return basis.blocks(home.rows(X, block.rows))

    A, c = sum_up(form, halves, r, task.n_outputs, home)
    A += alpha * basis.K
    factor = cholesky(A, home)
    del A
    if factor is not None:
        beta = _correct(form, halves, basis.K, c, alpha, factor, home)
        if beta is not None:
            return beta
    if home.itemsize == 4:
        return _solve_reduced_in_double(X, basis, task, alpha, home)
    W = whitening(basis.K, home)
    A, c = sum_up(lambda block: form(block) @ W, halves, W.shape[1], task.n_outputs, home)
    return W @ solve_ridge(A, c, alpha, home)


def _solve_reduced_in_double(X: Any, basis: DeviceBasis, task: Comparisons, alpha: float, home: Home) -> Any:
    """Where single precision is not enough for the basis vectors; β is returned in single precision."""
    xp = home.xp
    X = xp.astype(X, xp.float64)
    double = DeviceBasis(basis.basis_indices_, xp.astype(basis.basis_, xp.float64), basis.kernel, Home.of(X))
    return xp.astype(_solve_reduced(X, double, task, alpha, Home.of(X)), xp.float32)


def _correct(
    form: Any, halves: HalfBlocks, K: Any, c: Any, alpha: float, factor: Any, home: Home
) -> Any | None:
    """β that satisfies the equation itself and not only its rounded sum; None where that cannot be reached."""
    halves.prepare(form)

    def system(beta: Any) -> Any:
        image = alpha * (K @ beta)
        for block in halves.blocks:
            P = halves.half(form(block), block)
            image += P.T @ (P @ beta)
        return image

    result = iterate(
        system,
        lambda residual: cholesky_solve(factor, residual, home),
        c,
        tol=10 * home.eps**0.5 if home.itemsize == 4 else home.eps**0.5,
        max_iter=_MAX_CORRECTIONS,
        start=cholesky_solve(factor, c, home),
        in_energy=True,
        xp=home.xp,
    )
    return result.weights if result.converged else None


# Full kernel


def fit_full_kernel(
    X: Any,
    kernel: Kernel,
    tasks: Sequence[Comparisons],
    alpha: float,
    *,
    tol: float | None,
    max_iter: int | None,
    with_mean: bool,
    stages: Any,
    home: Home,
) -> SquaredLossFit:
    """On the kernel of the rows, by iterations where it does not fit on the device."""
    m = X.shape[0]
    blocks = KernelBlocks(kernel, X, home.xp)
    free = home.free_bytes()
    stored = free is None or 2.2 * home.itemsize * m * m <= free
    coefs, n_iter, residual, converged = [], None, None, True
    for task in tasks:
        halves = half_blocks(task, m, home)
        if stored:
            with stages(f"kernel matrix {m} × {m} on {home.device}"):
                G = centred_kernel(X, blocks, halves, home)
            with stages("factorisation and solution"):
                x = solve_ridge(G, halves.target, alpha, home, overwrite=True)
                del G
        else:
            with stages(f"conjugate gradients, kernel of {m} rows in blocks on {home.device}") as stage:
                result = _iterate_dual(X, kernel, blocks, halves, alpha, tol, max_iter, stage.iteration, home)
            x = result.weights
            n_iter, residual = max(n_iter or 0, result.n_iter), max(residual or 0.0, result.residual)
            converged = converged and result.converged
        coefs.append(back_to_rows(apply_half(x, halves, home), halves, home))
    coef = home.xp.concat(coefs, axis=1)
    mean = _host(_mean_rows(X, blocks, home), coef) if with_mean else None
    name = "dual" if stored else "cg"
    if kernel.is_linear:
        return SquaredLossFit(name, X.T @ coef, None, None, mean, n_iter, residual, converged)
    return SquaredLossFit(name, None, coef, np.arange(m), mean, n_iter, residual, converged)


def centred_kernel(X: Any, blocks: KernelBlocks, halves: HalfBlocks, home: Home, on_block: Any = None) -> Any:
    """S K S in the sorted order of the rows, one m × m array.

    ``on_block`` receives each block of rows of K (columns in the order of X) before S is applied.
    """
    m = X.shape[0]

    def form(block: RowBlock) -> Any:
        K = blocks(home.rows(X, block.rows))
        if on_block is not None:
            on_block(block, K)
        return K

    halves.prepare(lambda block: blocks(home.rows(X, block.rows)))
    G = home.zeros(m, m)
    for block in halves.blocks:
        P = halves.half(form(block), block)
        G[block.start : block.stop, :] = (
            P if halves.order is None else home.xp.take(P, home.put_as_is(halves.order), axis=1)
        )
    for block in halves.blocks:
        G[block.start : block.stop, :] = apply_half(G[block.start : block.stop, :].T, halves, home).T
    return G


def apply_half(V: Any, halves: HalfBlocks, home: Home, *, inverse: bool = False) -> Any:
    """S V (or S⁺ V) for V in memory, rows in sorted order; V is not modified."""

    def form(block: RowBlock) -> Any:
        return home.xp.asarray(V[block.start : block.stop, :], copy=True)

    return halves.separately(form, inverse=inverse)


def back_to_rows(V: Any, halves: HalfBlocks, home: Home) -> Any:
    """Rows from sorted order to the order of X."""
    if halves.order is None:
        return V
    return home.xp.take(V, home.put_as_is(np.argsort(halves.order)), axis=0)


def _iterate_dual(X, kernel, blocks, halves, alpha, tol, max_iter, on_iteration, home):
    """(S K S + λ I) x = t with K formed again in every iteration."""
    xp, m = home.xp, X.shape[0]
    steps = home.steps(m, m)

    def system(x: Any) -> Any:
        a = back_to_rows(apply_half(x, halves, home), halves, home)
        f = xp.concat([blocks(X[rows, :]) @ a for rows in steps], axis=0)
        f = f if halves.order is None else xp.take(f, home.put_as_is(halves.order), axis=0)
        return apply_half(f, halves, home) + alpha * x

    rows = np.sort(np.random.default_rng(0).choice(m, size=min(m, _PRECONDITIONER_ROWS), replace=False))
    basis = DeviceBasis(rows, home.rows(X, rows), kernel, home)
    W = whitening(basis.K, home)
    Z = halves.separately(lambda block: basis.blocks(home.rows(X, block.rows)) @ W)
    factor = cholesky(add_to_diagonal(Z.T @ Z, max(alpha, home.eps * float(xp.sum(Z * Z))), home), home)

    def precondition(residual: Any) -> Any:
        return (residual - Z @ cholesky_solve(factor, Z.T @ residual, home)) / alpha

    return iterate(
        system,
        precondition,
        halves.target,
        tol=max(1e-8, 10 * home.eps) if tol is None else tol,
        max_iter=1000 if max_iter is None else max_iter,
        on_iteration=on_iteration,
        xp=xp,
    )
