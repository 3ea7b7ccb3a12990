r"""f on an array of a device: by its columns, a reduced set, or the full kernel (see `squared.representations`).

* Reduced set: B = K_RM L K_MR + λ K_RR and K_RM b are summed over blocks of rows, K_MR is never stored; one Cholesky
  factorisation of B. The result is then checked against the equation itself, in another pass over the rows, and
  corrected by conjugate gradients with B as preconditioner until its error is below the tolerance; where rounding
  prevents that, the same is done with orthogonalised features.
* Linear kernel: the same sums with the features themselves.
* Full kernel: S K S is formed in blocks of rows and factorised; where it does not fit on the device, conjugate
  gradients with the kernel formed again in every iteration and a Nyström preconditioner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...comparisons import Comparisons
from ...kernels.blocks import KernelBlocks
from ...numerics.namespace import Home, as_host
from ..base import Asked, Inputs, Representation
from ..conjugate_gradients import iterate
from ..holdout.base import HoldOut
from ..holdout.pair import PairSystem
from ..problem import SquaredLossFit
from ..representations import Linear
from ..row_blocks import HalfBlocks, RowBlock
from .holdout import DualDeviceHoldOut, FeatureDeviceHoldOut
from .kernels import (
    DeviceBasis,
    add_to_diagonal,
    apply_half,
    back_to_rows,
    centred_kernel,
    cholesky,
    cholesky_solve,
    half_blocks,
    own_rows,
    refuse_unless_served,
    solve_ridge,
    sum_up,
    whitening,
)


class DeviceRows(Representation):
    """Parameters as in `Representation`; what is not supported on devices is refused before any work.

    Parameters
    ----------
    solver : str
        The solver that was asked for.
    in_features : bool
        Whether the columns of X are used, and not the kernel of its rows.
    """

    needs = "a kernel that devices evaluate, comparisons with a symmetric half in closed form"

    def __init__(
        self, inputs: Inputs, tasks: Any, stages: Any, *, solver: str, in_features: bool, **options: Any
    ):
        refuse_unless_served(inputs.kernel, solver, tasks)
        super().__init__(inputs, tasks, stages, **options)
        self.home, self.in_features = Home.of(inputs.X), in_features

    def solve(self, alpha: float, *, with_mean: bool = True) -> SquaredLossFit:
        """The coefficients that come back are arrays of the device."""
        X, basis, home = self.inputs.X, self.inputs.feature_map, self.home
        if basis is not None:
            with self.stages(f"reduced set of {basis.basis_.shape[0]} on {home.device}"):
                coef = self._solve_each(lambda task: _solve_reduced(X, basis, task, alpha, home))
            means = _mean_rows(X, basis.blocks, home) if with_mean else None
            return SquaredLossFit("primal", None, coef, basis.basis_indices_, _host(means, coef))
        if not self.in_features:
            return self._solve_full_kernel(alpha, with_mean)
        with self.stages(f"primal system {X.shape[1]} × {X.shape[1]} on {home.device}"):
            weights = self._solve_each(lambda task: _solve_features(X, task, alpha, home))
        means = home.xp.mean(X, axis=0) if with_mean else None
        return SquaredLossFit("primal", weights, None, None, _host(means, weights))

    def _solve_each(self, solve: Callable[[Comparisons], Any]) -> Any:
        return self.home.xp.concat([solve(task) for task in self.tasks], axis=1)

    def _solve_full_kernel(self, alpha: float, with_mean: bool) -> SquaredLossFit:
        """On the kernel of the rows, by iterations where it does not fit on the device."""
        X, kernel, home, stages = self.inputs.X, self.inputs.kernel, self.home, self.stages
        m = X.shape[0]
        blocks = KernelBlocks(kernel, X, home.xp)
        free = home.free_bytes()
        stored = free is None or 2.2 * home.itemsize * m * m <= free
        coefs, n_iter, residual, converged = [], None, None, True
        for task in self.tasks:
            halves = half_blocks(task, m, home)
            if stored:
                with stages(f"kernel matrix {m} × {m} on {home.device}"):
                    G = centred_kernel(X, blocks, halves, home)
                with stages("factorisation and solution"):
                    x = solve_ridge(G, halves.target, alpha, home, overwrite=True)
                    del G
            else:
                with stages(f"conjugate gradients, kernel of {m} rows in blocks on {home.device}") as stage:
                    result = _iterate_dual(
                        X, kernel, blocks, halves, alpha, self.tol, self.max_iter, stage.iteration, home
                    )
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

    def hold_out(self, task: Comparisons, asked: Asked) -> HoldOut:
        X, kernel, basis = self.inputs.X, self.inputs.kernel, self.inputs.feature_map
        if basis is not None or self.in_features:
            return FeatureDeviceHoldOut(X, kernel, task, basis, asked.intercept, self.home)
        return DualDeviceHoldOut(X, kernel, task, asked.intercept, asked.many_alphas, self.home)

    def pair_systems(
        self, task: Comparisons, alphas: Sequence[float], asked: Asked, routine: Callable[[bool], Any]
    ) -> Iterator[PairSystem | None]:
        """The factorisation on the device; the pairs, small next to it, on the host."""
        X, kernel = self.inputs.X, self.inputs.kernel
        if self.inputs.feature_map is not None:
            yield from super().pair_systems(task, alphas, asked, routine)
        elif self.in_features:
            host = Linear(Inputs(as_host(X), kernel), self.tasks, self.stages)
            yield from host.pair_systems(task, alphas, asked, lambda many_alphas: host.hold_out(task, asked))
        else:
            source = DualDeviceHoldOut(X, kernel, task, False, False, self.home)
            for alpha in alphas:
                yield source.pair_system(float(alpha))


# Correction steps after the direct solution of the reduced set; more than a few mean that rounding dominates.
_MAX_CORRECTIONS = 12
# Basis vectors of the preconditioner for a full kernel that does not fit.
_PRECONDITIONER_ROWS = 2000


def _host(means: Any, coef: Any) -> np.ndarray | None:
    return None if means is None else as_host(means[None, :] @ coef)[0].astype(np.float64)


def _mean_rows(X: Any, blocks: KernelBlocks, home: Home) -> Any:
    """Column means of the kernel block of all rows, in a separate pass."""
    total = sum(home.xp.sum(blocks(X[rows, :]), axis=0) for rows in home.steps(X.shape[0], blocks.width))
    return total / X.shape[0]


def _solve_features(X: Any, task: Comparisons, alpha: float, home: Home) -> Any:
    halves = half_blocks(task, X.shape[1], home)
    A, c = sum_up(lambda block: own_rows(X, block, home), halves, X.shape[1], task.n_outputs, home)
    return solve_ridge(A, c, alpha, home)


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
