r"""A learned metric on device arrays: trainings of the rounds, their predictions and gradients.

The rounds are those of `squared.learned_metric`. With R the basis vectors, the sums A = K_RM L K_MR and c = K_RM b are
formed block by block on the device, and for each λ

    (A + λ K_RR + ν I) β = c

is solved by one Cholesky factorisation there: an eigendecomposition takes several times as long on such devices as all
λ together. ν is a small multiple of rounding (`squared.expansion`); the final training, by `RankRLS`, does without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from ...kernels.blocks import KernelBlocks
from ...kernels.distances import expansion_slopes
from ...kernels.functions import Kernel
from ...numerics.namespace import Home, as_host
from ..expansion import NUGGETS, refined
from ..learned_metric import TrainingSet
from ..row_blocks import RowBlock
from .kernels import DeviceBasis
from .linalg import add_to_diagonal, cholesky, cholesky_solve
from .squared_loss import half_blocks, sum_up

# Power iterations for the largest eigenvalue, from which the grid of alphas starts.
_POWER_ITERATIONS = 30


class DeviceTrainingSet(TrainingSet):
    """A `TrainingSet` whose items are an array of a device."""

    def train(self, X: Any, kernel: Kernel) -> DeviceMetricModel:  # type: ignore[override]
        """One training with the present metric; sums that every alpha is solved from. O(m r²)."""
        home = Home.of(X)
        mine = home.rows(X, self.rows)
        seen = kernel.with_metric(self.metric).fitted_to(mine)
        basis = DeviceBasis(self.basis, home.rows(X, self.basis), seen, home)
        halves = half_blocks(self.task, basis.blocks.width, home)

        def form(block: RowBlock) -> Any:
            return basis.blocks(home.rows(mine, block.rows))

        return DeviceMetricModel(basis, *sum_up(form, halves, basis.blocks.width, self.task.n_outputs, home))


class DeviceMetricModel:
    """A reduced set with one metric, to be solved at any alpha; as `MetricModel`.

    Parameters
    ----------
    basis : DeviceBasis
        With a kernel whose metric is set and whose width is a number.
    A, c : arrays of shape (r, r) and (r, v)
        K_RM L K_MR and K_RM b.
    """

    def __init__(self, basis: DeviceBasis, A: Any, c: Any):
        self.kernel, self.basis, self._home = basis.kernel, basis.basis_, basis.home
        self._of_basis, self._A, self._c = basis, A, c
        self._solved: dict[float, Any] = {}

    @cached_property
    def largest_eigenvalue(self) -> float:
        """The largest μ with A v = μ K v, approximately."""
        home, xp, K, r = self._home, self._home.xp, self._of_basis.K, self.basis.shape[0]
        trace = float(xp.sum(xp.linalg.diagonal(K)))
        factor = _factor(lambda nugget: K + (nugget * trace) * home.eye(r), home)
        v = home.put(np.random.default_rng(0).standard_normal((r, 1)))
        for _ in range(_POWER_ITERATIONS):
            v = cholesky_solve(factor, self._A @ v, home)
            v = v / xp.max(xp.abs(v))
        return float(xp.sum(v * (self._A @ v)) / xp.sum(v * (K @ v)))

    def coefficients(self, alpha: float) -> Any:
        """Of the basis vectors, shape (r, v)."""
        if alpha not in self._solved:
            home, xp, K = self._home, self._home.xp, self._of_basis.K
            size = float(xp.sum(xp.linalg.diagonal(self._A)) + alpha * xp.sum(xp.linalg.diagonal(K)))
            factor = _factor(lambda nugget: add_to_diagonal(self._A + alpha * K, nugget * size, home), home)
            self._solved[alpha] = refined(
                lambda rest: cholesky_solve(factor, rest, home),
                lambda beta: self._A @ beta + alpha * (K @ beta),
                self._c,
            )
        return self._solved[alpha]

    def predict(self, X: Any, alphas: Iterable[float]) -> np.ndarray:
        """Scores of validated items at every alpha on the host, shape (a, m, v)."""
        home, xp = self._home, self._home.xp
        betas = xp.concat([self.coefficients(float(alpha)) for alpha in alphas], axis=1)
        blocks = self._of_basis.blocks
        parts = [as_host(blocks(X[rows, :]) @ betas) for rows in home.steps(X.shape[0], blocks.width)]
        scores = np.concatenate(parts)
        return scores.reshape(scores.shape[0], -1, self._c.shape[1]).transpose(1, 0, 2)

    def gradients(self, X: Any, alpha: float) -> np.ndarray:
        """∇f at validated items, on the host, shape (m, n, v)."""
        return gradients_on_device(self.kernel, X, self.basis, self.coefficients(alpha))


def gradients_on_device(kernel: Kernel, X: Any, basis: Any, coef: Any) -> np.ndarray:
    """∇f of an expansion of the RBF kernel at every row of X, on the host, shape (m, n, v).

    As in `kernels.gradients`, through the metric.
    """
    home = Home.of(X)
    xp, blocks, S = home.xp, KernelBlocks(kernel, basis, home.xp), kernel.metric
    origin = xp.mean(basis, axis=0)
    Z = kernel.seen(basis - origin)
    gamma = kernel.width(Z.shape[1])
    out = []
    for rows in home.steps(X.shape[0], basis.shape[0]):
        K, x = blocks(X[rows, :]), kernel.seen(X[rows, :] - origin)
        of_outputs = []
        for k in range(coef.shape[1]):
            gradient = expansion_slopes(K, x, Z, coef[:, k], gamma, xp)
            if S is not None:
                gradient = gradient * home.put(S) if S.ndim == 1 else gradient @ home.put(S).T
            of_outputs.append(as_host(gradient))
        out.append(np.stack(of_outputs, axis=2))
    return np.concatenate(out)


def _factor(form: Any, home: Home) -> Any:
    """The lower factor of the matrix with the first ν that Cholesky accepts."""
    for nugget in NUGGETS:
        factor = cholesky(form(nugget), home)
        if factor is not None:
            return factor
    raise ValueError(
        "The kernel matrix on this device is not positive semidefinite up to rounding: check X for extreme values, or "
        "scale its columns."
    )


def in_double(X: Any, rows: np.ndarray) -> Any:
    """Some rows of a device array in double precision."""
    home = Home.of(X)
    return home.xp.astype(home.rows(X, rows), home.xp.float64)
