r"""Kernel expansions from sums of kernel values: quick trainings for the rounds of a learned metric.

With R the basis vectors, the sums over whole queries

    A = K_RM L K_MR,    c = K_RM b

add up block by block, and f(x) = k(x, R) β with

    (A + λ K_RR + ν I) β = c

costs m r² operations for all λ together and r³/3 for each, without features Φ = K_MR C⁻ᵀ and their eigendecomposition.
The price is the nugget ν, a small multiple of the rounding of A: directions of R that are lost in rounding are left out
instead of being amplified. Directions that are only weak, with an eigenvalue σ, are shrunk by ν / (σ + ν), which s
steps of refinement reduce to its power of s + 1, while rounding is amplified by s + 1 at most. On 40 rows with 15 basis
vectors predictions differ from those of `RankRLS` by less than 1e-6 · max(1, 1/λ) of the largest. Where a single model
is asked for, `basis_system` corrects that to full precision; here the score of held-out rows decides which of many is
kept.

Curves of single features (`curves`) are further columns of K_MR beside the kernel values, with a diagonal block in
K_RR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from ..comparisons import Groups, encode_queries
from ..comparisons.queries import QueryComparisons
from ..kernels.blocks import KernelBlocks
from ..kernels.functions import Kernel
from ..kernels.gradients import expansion_gradient
from ..numerics.linalg import cholesky_in_place, cholesky_solve
from ..numerics.threads import blas_at_rest, in_turns
from .curves import STIFFNESS, Curves
from .moments import GlobalMoments, QueryMoments
from .problem import block_rows

# Sums are formed in this many parts side by side; a fixed number, so that rounding is the same on every machine.
_PARTS = 8
# ν relative to the trace of A and to K_RR: the first that Cholesky accepts.
NUGGETS = (3e-11, 1e-9, 1e-7)
_REFINEMENTS = 3

Moments = QueryMoments | GlobalMoments


@dataclass(frozen=True)
class Expansion:
    """f(x) = k(x, R) β at several λ, with curves where there are any.

    Attributes
    ----------
    kernel : Kernel
        With its metric and its width as a number.
    basis : ndarray of shape (r, n)
        R.
    alphas : ndarray of shape (a,)
    betas : ndarray of shape (r + c, a)
        Those of the basis vectors before those of the curves.
    curves : Curves or None
    """

    kernel: Kernel
    basis: np.ndarray
    alphas: np.ndarray
    betas: np.ndarray
    curves: Curves | None = None

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Scores at every λ, shape (a, m)."""
        out = np.empty((self.alphas.shape[0], X.shape[0]))
        step, values = block_rows(self.betas.shape[0]), _columns(self.kernel, self.basis, self.curves)

        def fill(start: int) -> None:
            out[:, start : start + step] = (values(X[start : start + step]) @ self.betas).T

        with blas_at_rest():
            in_turns(fill, [(start,) for start in range(0, X.shape[0], step)])
        return out

    def gradients(self, X: np.ndarray, place: int) -> np.ndarray:
        """∇f at one of the λ, shape (m, n)."""
        of_kernel, of_curves = np.split(self.betas[:, place], [self.basis.shape[0]])
        out = expansion_gradient(self.kernel, X, self.basis, of_kernel)
        return out if self.curves is None else out + self.curves.gradients(X, of_curves)


def kernel_moments(
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
    """(K_RM L K_MR, K_RM b) over some rows, every query weighted by 1 / n_q; O(m r²) with blocks of memory.

    Parameters
    ----------
    kernel : Kernel
    basis : ndarray of shape (r, n)
    read : callable
        From row numbers, those of a query together, to the rows themselves.
    scores : ndarray of shape (m,)
    queries : Groups
        Of all rows.
    rows : ndarray of int
        Whole queries; any rows of a global ranking.
    is_global : bool, default=False
        Whether all rows, those of other calls included, form one ranking. A single query alone does not tell.
    curves : Curves or None
        Further columns of K_MR.
    """
    values = _columns(kernel, basis, curves)
    width = basis.shape[0] + (0 if curves is None else curves.size)
    blocks = _blocks_of_rows(rows, queries, block_rows(width), is_global)

    def comparisons(block: np.ndarray) -> QueryComparisons:
        within = encode_queries(queries.codes[block], block.shape[0])
        return QueryComparisons(scores[block, None], within, weighting="item")

    def add_up(part: Sequence[np.ndarray]) -> Moments:
        def of(block: np.ndarray) -> Moments:
            columns = values(read(block))
            if is_global:
                return GlobalMoments.of(columns, scores[block, None], "item")
            return QueryMoments.of(columns, comparisons(block))

        found: Any = map(of, part)
        total = next(found)
        for one in found:
            total.add(one)
        return total

    bounds = np.linspace(0, len(blocks), min(_PARTS, len(blocks)) + 1).astype(int)
    parts = [blocks[first:last] for first, last in zip(bounds[:-1], bounds[1:], strict=True)]
    with blas_at_rest():
        sums = in_turns(add_up, [(part,) for part in parts])
    for other in sums[1:]:
        sums[0].add(other)
    return sums[0]


def solve_expansion(
    kernel: Kernel, basis: np.ndarray, moments: Moments, alphas: np.ndarray, curves: Curves | None = None
) -> Expansion:
    """β at every λ; the moments stay as they are. O(r³) for each."""
    A, c = _sums(moments)
    K_RR = kernel.matrix(basis)
    if curves is not None:
        K_RR = block_diag(K_RR, STIFFNESS * np.eye(curves.size))
    betas = [_solve(A, K_RR, c, float(alpha)) for alpha in alphas]
    return Expansion(kernel, basis, alphas, np.column_stack(betas), curves)


def _columns(kernel: Kernel, basis: np.ndarray, curves: Curves | None) -> Callable[[np.ndarray], np.ndarray]:
    """From rows to their kernel values, and beside them their curves."""
    values, r = KernelBlocks(kernel, basis), basis.shape[0]
    if curves is None:
        return values

    def both(rows: np.ndarray) -> np.ndarray:
        out = np.empty((rows.shape[0], r + curves.size))
        values(rows, out=out[:, :r])
        out[:, r:] = curves.values(rows)
        return out

    return both


def _sums(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    gram = moments.gram if isinstance(moments, QueryMoments) else moments.scatter
    return gram, moments.cross[:, 0]


def _solve(A: np.ndarray, K_RR: np.ndarray, c: np.ndarray, alpha: float) -> np.ndarray:
    M = A + alpha * K_RR
    size = float(np.trace(M))
    for nugget in NUGGETS:
        B = np.array(M, order="F")
        B[np.diag_indices_from(B)] += nugget * size
        try:
            factor = cholesky_in_place(B)
        except np.linalg.LinAlgError:
            continue
        return refined(partial(cholesky_solve, factor), M.__matmul__, c[:, None])[:, 0]
    return np.zeros(c.shape)  # only rounding is left: a constant


def refined(solve: Callable[[Any], Any], apply: Callable[[Any], Any], c: Any) -> Any:
    """B⁻¹ c from solutions of a system that is B plus a nugget; arrays of the host or of a device."""
    found = solve(c)
    for _ in range(_REFINEMENTS):
        found = found + solve(c - apply(found))
    return found


def _blocks_of_rows(rows: np.ndarray, queries: Groups, step: int, is_global: bool) -> list[np.ndarray]:
    """The rows in blocks of whole queries of about ``step`` rows; of a global ranking any rows."""
    if is_global:
        return [rows[start : start + step] for start in range(0, rows.shape[0], step)]
    rows = rows[np.argsort(queries.codes[rows], kind="stable")]
    starts = np.flatnonzero(np.r_[True, np.diff(queries.codes[rows]) != 0])
    ends = np.append(starts[1:], rows.shape[0])
    blocks, first = [], 0
    for start, end in zip(starts, ends, strict=True):
        if end - first > step and start > first:
            blocks.append(rows[first:start])
            first = int(start)
    blocks.append(rows[first:])
    return blocks
