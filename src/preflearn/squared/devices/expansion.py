r"""Kernel expansions of `squared.expansion` with their sums, predictions and gradients on a device.

The rows stay on the host and are sent to the device block by block; what comes back is small: the r × r sums, scores,
gradients of some rows. So the table may be larger than the memory of the device, and no other module has to know about
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...comparisons import Groups, encode_queries
from ...comparisons.queries import QueryComparisons
from ...errors import missing_extra
from ...kernels.distances import RbfProducts, expansion_slopes
from ...kernels.functions import Kernel
from ...kernels.rows import middle_row
from ...numerics.namespace import Home, to_host
from ..curves import Curves
from ..expansion import Expansion, Moments
from ..moments import GlobalMoments, QueryMoments
from ..row_blocks import RowBlock
from .squared_loss import half_blocks, sum_up


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
