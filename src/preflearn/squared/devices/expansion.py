r"""Kernel expansions of `squared.expansion` with their sums, predictions and gradients on a device.

The rows stay on the host and are sent to the device block by block; what comes back is small: the r × r sums, scores,
gradients of some rows. So the table may be larger than the memory of the device, and no other module has to know about
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...comparisons import Groups, encode_queries
from ...comparisons.queries import QueryComparisons
from ...errors import missing_extra
from ...kernels.blocks import KernelBlocks
from ...kernels.distances import RbfProducts, expansion_slopes
from ...kernels.functions import Kernel, middle_row
from ...numerics.namespace import Home, as_host, to_host
from ..expansion import NUGGETS, Curves, Expansion, Moments, TrainingSet, refined
from ..moments import GlobalMoments, QueryMoments
from ..row_blocks import RowBlock
from .kernels import DeviceBasis, add_to_diagonal, cholesky, cholesky_solve, half_blocks, sum_up


class _Rows:
    """The RBF kernel between rows on the host and basis vectors on the device; curves beside it where there are any."""

    def __init__(self, kernel: Kernel, basis: np.ndarray, curves: Curves | None, home: Home) -> None:
        self._curves = curves
        self._kernel, self._origin, self.home = kernel, kernel.origin(basis), home
        # Columns that the metric ignores are not sent.
        self._used = slice(None) if kernel.metric is None or kernel.metric.ndim > 1 else kernel.metric != 0
        seen = kernel.seen(basis, self._origin)
        self.gamma = kernel.width(seen.shape[1])
        z = seen[:, self._used]
        centre = middle_row(z)
        self.width, self.z = basis.shape[0] + (0 if curves is None else curves.size), home.put(z)
        self._products = RbfProducts(self.z, home.put(centre), self.gamma, home.xp)

    def seen(self, rows: np.ndarray) -> Any:
        return self.home.put(self._kernel.seen(rows, self._origin)[:, self._used])

    def values(self, rows: np.ndarray) -> Any:
        """Kernel values of some rows and what the curves add, on the device."""
        values = self.kernel_values(rows)
        if self._curves is None:
            return values
        return self.home.xp.concat([values, self.home.put(self._curves.values(rows))], axis=1)

    def kernel_values(self, rows: np.ndarray) -> Any:
        """Kernel values of some rows, on the device."""
        return self._products(self.seen(rows))

    def blocks(self, X: np.ndarray) -> Iterator[slice]:
        """The rows of a block, block after block."""
        return iter(self.home.steps(X.shape[0], self.width))

    def spread_gradient(self, gradient: np.ndarray, n_features: int) -> np.ndarray:
        """From the columns that the kernel sees to all features, through the metric."""
        S = self._kernel.metric
        if S is None:
            return gradient
        if S.ndim > 1:
            return gradient @ S.T
        out = np.zeros((gradient.shape[0], n_features))
        out[:, self._used] = gradient * S[self._used]
        return out


@dataclass(frozen=True)
class DeviceExpansion(Expansion):
    """An expansion that is evaluated on a device.

    Attributes
    ----------
    home : Home
        The device, in addition to the attributes of `Expansion`, which are on the host.
    """

    home: Home = field(kw_only=True)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Scores at every λ, shape (a, m)."""
        out = np.empty((self.alphas.shape[0], X.shape[0]))
        betas = self.home.put(self.betas)
        of_rows = _Rows(self.kernel, self.basis, self.curves, self.home)
        for rows in of_rows.blocks(X):
            out[:, rows] = to_host(of_rows.values(X[rows]) @ betas).T
        return out

    def gradients(self, X: np.ndarray, place: int) -> np.ndarray:
        """∇f at one of the λ, shape (m, n)."""
        xp, of_rows = self.home.xp, _Rows(self.kernel, self.basis, self.curves, self.home)
        of_kernel, of_curves = np.split(self.betas[:, place], [self.basis.shape[0]])
        beta, out = self.home.put(of_kernel), np.empty(X.shape)
        for rows in of_rows.blocks(X):
            K = of_rows.kernel_values(X[rows])
            gradient = expansion_slopes(K, of_rows.seen(X[rows]), of_rows.z, beta, of_rows.gamma, xp)
            out[rows] = of_rows.spread_gradient(to_host(gradient), X.shape[1])
        return out if self.curves is None else out + self.curves.gradients(X, of_curves)


@dataclass(frozen=True)
class DeviceExpansions:
    """Trains expansions on a device.

    Attributes
    ----------
    home : Home
        In double precision.

    Examples
    --------
    >>> DeviceExpansions.on("cuda")  # doctest: +SKIP
    """

    home: Home

    @classmethod
    def on(cls, device: str) -> DeviceExpansions:
        """On a device of PyTorch.

        Raises
        ------
        ImportError
            If PyTorch is not installed.
        ValueError
            If there is no such device.
        """
        try:
            import torch
        except ImportError:
            raise missing_extra(f"device={device!r}", "PyTorch", "gpu") from None
        try:
            found = torch.zeros(1, dtype=torch.float64, device=device)
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"device={device!r} cannot be used: {reason}. Expected a device of PyTorch that computes in double "
                "precision, such as 'cuda', or None for the processor."
            ) from None
        return cls(Home.of(found))

    def kernel_moments(
        self,
        kernel: Kernel,
        basis: np.ndarray,
        read: Callable[[np.ndarray], np.ndarray],
        scores: np.ndarray,
        queries: Groups,
        rows: np.ndarray,
        *,
        is_global: bool = False,
        curves: Curves | None = None,
    ) -> Moments:
        """As `squared.expansion.kernel_moments`."""
        of_rows = _Rows(kernel, basis, curves, self.home)
        within = encode_queries(queries.codes[rows], rows.shape[0])
        task = QueryComparisons(scores[rows, None], within, weighting="item")

        def form(block: RowBlock) -> Any:
            return of_rows.values(read(rows[block.rows]))

        halves = half_blocks(task, of_rows.width, self.home)
        gram, cross = (to_host(one) for one in sum_up(form, halves, of_rows.width, 1, self.home))
        if not is_global:
            return QueryMoments(
                np.asfortranarray(gram),
                cross,
                task.n_rows,
                task.n_comparisons,
                task.squared_targets(),
                task.total_weight(),
            )
        total = sum(to_host(self.home.xp.sum(form(block), axis=0)) for block in halves.blocks)
        return GlobalMoments(
            np.asfortranarray(gram),
            cross,
            np.asarray(total) / task.n_rows,
            scores[rows, None].mean(axis=0),
            task.n_rows,
            "item",
            task.squared_targets(),
        )

    def take(self, model: Expansion) -> DeviceExpansion:
        """The same expansion, evaluated here."""
        return DeviceExpansion(
            model.kernel, model.basis, model.alphas, model.betas, model.curves, home=self.home
        )


# ----------------------------------------------------------------
# A learned metric on device arrays: trainings of the rounds, their predictions and gradients.
#
# The rounds are those of `squared.learned_metric`. With R the basis vectors, the sums A = K_RM L K_MR and c = K_RM b
# are formed block by block on the device, and for each λ
#
#     (A + λ K_RR + ν I) β = c
#
# is solved by one Cholesky factorisation there: an eigendecomposition takes several times as long on such devices as
# all λ together. ν is a small multiple of rounding (`squared.expansion`); the final training, by `RankRLS`, does
# without it.


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
