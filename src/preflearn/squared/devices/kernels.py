"""Which parts of the library run on device arrays, and the basis vectors of a reduced set there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...comparisons import Comparisons
from ...kernels.basis import choose_basis
from ...kernels.blocks import KernelBlocks
from ...kernels.functions import Kernel
from ...kernels.inputs import DEVICE_REMEDY, why_not_on_device
from ...numerics.namespace import Home
from ..holdout.base import LOST_IN_ROUNDING
from .linalg import cholesky


def refuse_unless_served(kernel: Kernel, solver: Any, tasks: Sequence[Comparisons]) -> None:
    """Refuse, before any work, what is not supported on device arrays.

    Raises
    ------
    ValueError
    """
    reason = why_not_on_device(kernel.kernel, solver, None)
    if reason is None and not all(task.has_half for task in tasks):
        reason = (
            "Preferences (pairs) and cost='relative' are computed on NumPy arrays. "
            + DEVICE_REMEDY.format("scores with qid and cost='magnitude' or 'unit'")
        )
    if reason is not None:
        raise ValueError(reason)


@dataclass(frozen=True)
class DeviceBasis:
    """Basis vectors on the device of X.

    Attributes
    ----------
    basis_indices_ : ndarray of shape (r,)
        Their rows.
    basis_ : array of shape (r, n)
    kernel : Kernel
    home : Home
    """

    basis_indices_: np.ndarray
    basis_: Any
    kernel: Kernel
    home: Home

    @classmethod
    def choose(cls, X: Any, kernel: Kernel, n_basis: Any, basis: Any, random_state: Any) -> DeviceBasis:
        home = Home.of(X)
        if isinstance(basis, str) and basis != "uniform":
            raise ValueError(
                f"basis={basis!r} is computed on NumPy arrays. Use basis='uniform', or choose the rows there and "
                "pass their numbers."
            )
        rows = choose_basis(X.shape[0], n_basis, basis, random_state)
        rows = np.arange(X.shape[0]) if rows is None else rows
        return cls(rows, home.rows(X, rows), kernel, home)

    @cached_property
    def blocks(self) -> KernelBlocks:
        return KernelBlocks(self.kernel, self.basis_, self.home.xp)

    @cached_property
    def K(self) -> Any:
        """K_RR."""
        K = self.blocks(self.basis_)
        return (K + K.T) / 2

    @cached_property
    def well_conditioned(self) -> bool:
        """Whether K_RR is well enough conditioned that what leaves with a basis vector has six correct digits."""
        factor = cholesky(self.K, self.home)
        if factor is None:
            return False
        xp = self.home.xp
        values = xp.linalg.eigvalsh(self.K)
        return bool(float(values[0]) > LOST_IN_ROUNDING * self.home.eps * float(values[-1]))


def expand_on_device(X: Any, kernel: Kernel, basis: Any, coef: Any) -> Any:
    """k(X, basis) β, in blocks of rows."""
    home = Home.of(X)
    blocks = KernelBlocks(kernel, basis, home.xp)
    parts = [blocks(X[rows, :]) @ coef for rows in home.steps(X.shape[0], basis.shape[0])]
    return parts[0] if len(parts) == 1 else home.xp.concat(parts, axis=0)
