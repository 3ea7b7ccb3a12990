"""What runs on device arrays, and what that needs: basis vectors, factorisations, sums over blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...comparisons import Comparisons
from ...kernels.blocks import KernelBlocks
from ...kernels.functions import Kernel
from ...kernels.inputs import DEVICE_REMEDY, why_not_on_device
from ...kernels.maps import choose_basis
from ...numerics.namespace import Home
from ..holdout.base import LOST_IN_ROUNDING
from ..problem import refuse_indefinite
from ..row_blocks import HalfBlocks, RowBlock


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


# ----------------------------------------------------------------
# The few factorisations that the learners need, on any device.


# Columns of the symmetric sum that are updated together: with 8 panels 56 % of the operations of a full product.
_N_PANELS = 8


class GramSum:
    """Σ Pᵀ P over blocks P of rows; only the lower triangle is computed, in panels of columns.

    Parameters
    ----------
    width : int
        Columns of P.
    home : Home
    """

    def __init__(self, width: int, home: Home):
        step = max(64, -(-width // _N_PANELS))
        self._home, self._width = home, width
        self._starts = list(range(0, width, step))
        self._panels = [home.zeros(width - start, min(step, width - start)) for start in self._starts]

    def add(self, P: Any) -> None:
        for start, panel in zip(self._starts, self._panels, strict=True):
            panel += P[:, start:].T @ P[:, start : start + panel.shape[1]]

    def matrix(self) -> Any:
        """The sum as a full symmetric matrix; the panels are released."""
        A = self._home.zeros(self._width, self._width)
        for number, start in enumerate(self._starts):
            panel, self._panels[number] = self._panels[number], None
            stop = start + panel.shape[1]
            A[start:, start:stop] = panel
            A[start:stop, stop:] = panel[stop - start :, :].T
        return A


def cholesky(A: Any, home: Home) -> Any | None:
    """The lower factor of A, or None when A is not positive definite to working precision."""
    try:
        factor = home.xp.linalg.cholesky(A)
    except Exception as error:
        # Every library has its own exception for this, which must not be confused with running out of memory.
        if "LinAlgError" not in type(error).__name__:
            raise
        return None
    return factor if bool(home.xp.all(home.xp.isfinite(home.xp.linalg.diagonal(factor)))) else None


def cholesky_solve(factor: Any, B: Any, home: Home) -> Any:
    """(C Cᵀ)⁻¹ B for the lower factor C."""
    if hasattr(B, "cholesky_solve"):  # PyTorch
        return B.cholesky_solve(factor)
    # The standard has no triangular solve.
    return home.xp.linalg.solve(factor.T, home.xp.linalg.solve(factor, B))


def inverse_from_cholesky(factor: Any, home: Home) -> Any:
    """(C Cᵀ)⁻¹ as a full matrix."""
    if hasattr(factor, "exp_"):  # PyTorch
        import torch

        return torch.cholesky_inverse(factor)
    inverse = home.xp.linalg.inv(factor)
    return inverse.T @ inverse


def add_to_diagonal(A: Any, value: float, home: Home) -> Any:
    """A + value I, in place where a diagonal can be written to."""
    if hasattr(A, "fill_diagonal_"):  # PyTorch
        A.diagonal().add_(value)
        return A
    return A + value * home.eye(A.shape[0])


def solve_ridge(A: Any, rhs: Any, alpha: float, home: Home, *, overwrite: bool = False) -> Any:
    """(A + λ I)⁻¹ rhs for a positive semidefinite A; of least norm where λ is lost in the rounding of A."""
    xp = home.xp
    largest = float(xp.max(xp.linalg.diagonal(A)))
    if alpha > 10 * A.shape[0] * home.eps * largest:
        A = add_to_diagonal(A if overwrite else xp.asarray(A, copy=True), alpha, home)
        factor = cholesky(A, home)
        if factor is not None:
            return cholesky_solve(factor, rhs, home)
        A = add_to_diagonal(A, -alpha, home)
    values, vectors = eigh(A, home)
    return vectors @ (shrink(values, alpha, home)[:, None] * (vectors.T @ rhs))


def eigh(A: Any, home: Home) -> tuple[Any, Any]:
    """Eigenvalues (ascending, not negative) and vectors of a positive semidefinite A.

    Raises
    ------
    ValueError
        If A has an eigenvalue that is negative by more than rounding.
    """
    values, vectors = home.xp.linalg.eigh(A)
    refuse_indefinite(float(values[0]), float(values[-1]), home.eps)
    return home.xp.clip(values, min=0.0), vectors


def shrink(values: Any, alpha: float, home: Home) -> Any:
    """1 / (Λ + λ); zero outside the range of the matrix where λ itself is below rounding."""
    xp = home.xp
    rounding = 10 * home.eps * float(values[-1])
    inverse = 1.0 / xp.clip(values + alpha, min=float(xp.finfo(home.dtype).smallest_normal))
    return xp.where(values <= rounding, xp.zeros_like(inverse), inverse) if alpha <= rounding else inverse


def whitening(K: Any, home: Home) -> Any:
    """W of shape (r, rank) with Wᵀ K W = I on the range of K: features of rows are k(x, R) W."""
    values, vectors = eigh(K, home)
    keep = values > K.shape[0] * home.eps * float(values[-1])
    n_dropped = K.shape[0] - int(home.xp.sum(home.xp.astype(keep, home.xp.int64)))
    return vectors[:, n_dropped:] / home.xp.sqrt(values[n_dropped:])


# ----------------------------------------------------------------
# S V and sums of it, for a V that is formed block by block.


def half_blocks(task: Comparisons, width: int, home: Home) -> HalfBlocks:
    """Blocks of rows of a matrix with ``width`` columns on the device."""
    return HalfBlocks(task, home.block_rows(width), home.xp, home.put, home.put_as_is)


def sum_up(form: Any, halves: HalfBlocks, width: int, n_outputs: int, home: Home) -> tuple[Any, Any]:
    """(Vᵀ L V, Vᵀ b) for V formed block by block."""
    gram, cross = GramSum(width, home), home.zeros(width, n_outputs)
    for block, P in halves.halves(form):
        gram.add(P)
        cross += P.T @ halves.target[block.start : block.stop, :]
    return gram.matrix(), cross


def own_rows(X: Any, block: RowBlock, home: Home) -> Any:
    """The rows of a block, as an array that may be written to."""
    rows = home.rows(X, block.rows)
    return home.xp.asarray(rows, copy=True) if isinstance(block.rows, slice) else rows


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
