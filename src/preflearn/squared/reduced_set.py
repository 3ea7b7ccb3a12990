r"""The reduced set without K_MR in memory: passes over the rows, one block of the kernel at a time.

The function on the basis vectors R minimises the loss where

    (K_RM L K_MR + λ K_RR) β = K_RM b,    with w = Cᵀ β, C Cᵀ = K_RR:   (Φᵀ L Φ + λ I) w = Φᵀ b,   Φ = K_MR C⁻ᵀ.

Two ways, both with O(r² + block) memory in addition to vectors of length m:

* `solve_streamed` sums the r × r matrix over blocks and factorises it: one pass, m r² operations, exact;
* `solve_iteratively` never forms it. An iteration of conjugate gradients is one pass, O(m r). The preconditioner is
  the same matrix estimated on a sample of whole queries (of rows for a global ranking), a few r rows, so that the
  number of passes depends on neither m nor r as long as the sample is representative.

Reference for the idea of the preconditioner: Rudi, Carratino and Rosasco, "FALKON: an optimal large scale kernel
method", NIPS 30 (2017); it samples rows where comparisons need whole queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ..comparisons import Comparisons
from ..kernels.blocks import KernelBlocks
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.maps import NystromMap
from ..numerics.linalg import (
    LEAST_CONDITION,
    KernelFactor,
    add_gram,
    cholesky_in_place,
    cholesky_solve,
    mirror_lower,
    one_norm,
    reciprocal_condition,
    solve_triangular_in_place,
)
from .conjugate_gradients import ConjugateGradientResult, iterate
from .problem import RidgeSystem, feature_gram, gram_times, target_moment, unchanged
from .row_blocks import HalfBlocks, RowBlock

# Rows of a block of the kernel: enough for the matrix product, few enough for the cache.
_BLOCK_BYTES = 1 << 23
# The preconditioner is estimated on this many rows per basis vector.
_SAMPLE_FACTOR = 10


class ReducedRows:
    """The rows of K_MR, formed on demand: R are the linearly independent basis vectors of a feature map.

    Attributes
    ----------
    n_rows, width : int
        m and r.
    basis_indices : ndarray of shape (r,)
        The rows that are R.
    factor : KernelFactor
        Of K_RR.
    dtype : numpy dtype
    """

    def __init__(self, X: Any, kernel: Kernel, feature_map: NystromMap):
        self.n_rows, self.width = n_items(X), feature_map.rank_
        self.factor = feature_map.factor_
        self.dtype = self.factor.C.dtype
        self._X = X
        pivots = self.factor.pivots
        self.basis_indices = feature_map.basis_indices_[pivots]
        if kernel.is_precomputed:
            basis = self.basis_indices
        elif pivots.shape[0] == feature_map.basis_indices_.shape[0]:
            basis = feature_map.basis_
        else:
            basis = take_items(feature_map.basis_, pivots)
        self._blocks = KernelBlocks(kernel, basis)

    def kernel(self, rows: Any) -> np.ndarray:
        """K_MR on some rows, shape (b, r)."""
        X = self._X[rows] if isinstance(rows, slice) else take_items(self._X, rows)
        return self._blocks(X).astype(self.dtype, copy=False)

    def features(self, rows: Any) -> np.ndarray:
        """Φ on some rows."""
        return solve_triangular_in_place(self.factor.C, self.kernel(rows))

    def mean(self) -> np.ndarray:
        """Column means of K_MR, in a pass of its own. Shape (r,)."""
        step = block_rows(self.width)
        total = np.zeros(self.width)
        for start in range(0, self.n_rows, step):
            total += self.kernel(slice(start, start + step)).sum(axis=0, dtype=np.float64)
        return total / self.n_rows


def block_rows(width: int) -> int:
    """Rows of a block of the kernel with this many columns; tall enough that moving the r × r sum does not dominate."""
    return max(64, width // 4, _BLOCK_BYTES // (8 * max(1, width)))


def solve_streamed(rows: ReducedRows, comparisons: Comparisons, alphas: Sequence[float]) -> list[np.ndarray]:
    """β on the independent basis vectors at every alpha, shape (r, v), by the r × r matrix summed over blocks of rows.

    Parameters
    ----------
    rows : ReducedRows
    comparisons : Comparisons
        With a symmetric half in closed form, or a factor in blocks.
    alphas : sequence of float
    """
    if len(alphas) == 1 and sums_may_do(rows.factor, comparisons, alphas[0]):
        try:
            return [_solve_on_kernel(rows, comparisons, alphas[0])]
        except np.linalg.LinAlgError:
            pass
    A, rhs = _moments(rows, comparisons, rows.features)
    solved = [RidgeSystem(A.copy(order="F"), rhs, unchanged).solve(alpha) for alpha in alphas]
    return [solve_triangular(rows.factor.C, w, lower=True, trans="T", check_finite=False) for w in solved]


def _solve_on_kernel(rows: ReducedRows, comparisons: Comparisons, alpha: float) -> np.ndarray:
    """β from the sums of kernel values; with a few more passes where these lack precision."""
    B, rhs = _moments(rows, comparisons, rows.kernel)

    def equation() -> BasisEquation:
        operator = _operator(rows, comparisons)
        return BasisEquation(operator.times, rows.factor.C, alpha, rows.factor.reciprocal_condition)

    return solve_penalised(B, rows.kernel(rows.basis_indices), rhs, equation, alpha)


def _moments(
    rows: ReducedRows, comparisons: Comparisons, form: Callable[[Any], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(V S)(S V) and V S t, summed over the blocks V that ``form`` makes.

    Threads share the tiles of the sum, block after block.
    """
    if comparisons.factors_in_blocks:
        return _factored_moments(rows, comparisons, form)
    r = rows.width
    A = np.zeros((r, r), dtype=rows.dtype, order="F")
    rhs = np.zeros((r, comparisons.n_outputs), dtype=rows.dtype)
    # With a block of r rows, the r × r sum is read and written no more often than the block.
    halves = HalfBlocks(comparisons, max(r, block_rows(r)), put=_as(rows.dtype))
    for block, P in halves.halves(lambda block: form(block.rows)):
        A = add_gram(A, P, P)
        rhs += P.T @ halves.target[block.start : block.stop]
    return mirror_lower(A), rhs


def _factored_moments(
    rows: ReducedRows, comparisons: Comparisons, form: Callable[[Any], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The same as Tᵀ T and Tᵀ t, whose blocks have to come in their order."""
    r = rows.width
    A, rhs = (
        np.zeros((r, r), dtype=rows.dtype, order="F"),
        np.zeros((r, comparisons.n_outputs), dtype=rows.dtype),
    )
    for T, t in comparisons.factor_blocks(form, max(r, block_rows(r))):
        A = add_gram(A, T, T)
        rhs += T.T @ t.astype(rows.dtype, copy=False)
    return mirror_lower(A), rhs


def solve_iteratively(
    rows: ReducedRows,
    comparisons: Comparisons,
    alpha: float,
    *,
    tol: float = 1e-6,
    max_iter: int | None = None,
    random_state: Any = 0,
    on_iteration: Callable[[int, float], None] | None = None,
) -> ConjugateGradientResult:
    """β by preconditioned conjugate gradients in w, with one pass over the rows for each iteration.

    Parameters
    ----------
    rows : ReducedRows
    comparisons : Comparisons
        Any; those without a half in closed form need two passes an iteration.
    alpha : float
    tol : float
        Error of the function, relative to the function, in the norm of the problem (loss and penalty together), as
        estimated by the preconditioner.
    max_iter : int, optional
        500 by default.
    random_state : int or Generator
        For the sample of the preconditioner.

    Returns
    -------
    ConjugateGradientResult
        ``weights`` is β on the independent basis vectors.
    """
    C, dtype = rows.factor.C, rows.dtype
    operator = _operator(rows, comparisons)
    factor = _preconditioner(rows, comparisons, alpha, np.random.default_rng(random_state))

    def system(w: np.ndarray) -> np.ndarray:
        image = operator.times(solve_triangular(C, w, lower=True, trans="T", check_finite=False))
        return solve_triangular(C, image, lower=True, check_finite=False) + dtype.type(alpha) * w

    result = iterate(
        system,
        lambda residual: cholesky_solve(factor, residual),
        solve_triangular(C, operator.right_side(), lower=True, check_finite=False),
        tol=tol,
        max_iter=500 if max_iter is None else max_iter,
        in_energy=True,
        on_iteration=on_iteration,
    )
    beta = solve_triangular(C, result.weights, lower=True, trans="T", check_finite=False)
    return ConjugateGradientResult(beta, result.n_iter, result.residual, result.converged)


def _operator(rows: ReducedRows, comparisons: Comparisons) -> _HalfOperator | _LaplacianOperator:
    return (_HalfOperator if comparisons.has_half else _LaplacianOperator)(rows, comparisons)


class _HalfOperator:
    """K_RM L K_MR β in one pass: S K_MR is formed a block at a time, used twice and discarded."""

    def __init__(self, rows: ReducedRows, comparisons: Comparisons):
        self._rows = rows
        self._halves = HalfBlocks(comparisons, block_rows(rows.width), put=_as(rows.dtype))
        self._halves.prepare(self._form)

    def _form(self, block: RowBlock) -> np.ndarray:
        return self._rows.kernel(block.rows)

    def times(self, beta: np.ndarray) -> np.ndarray:
        return self._sum(lambda P, block: P.T @ (P @ beta))

    def right_side(self) -> np.ndarray:
        return self._sum(lambda P, block: P.T @ self._halves.target[block.start : block.stop])

    def _sum(self, term: Callable[[np.ndarray, RowBlock], np.ndarray]) -> np.ndarray:
        return sum(term(self._halves.half(self._form(block), block), block) for block in self._halves.blocks)  # type: ignore[return-value]


class _LaplacianOperator:
    """The same for any comparisons, in two passes: K_MR β, then K_RM (L K_MR β)."""

    def __init__(self, rows: ReducedRows, comparisons: Comparisons):
        self._rows, self._comparisons = rows, comparisons
        step = block_rows(rows.width)
        self._blocks = [slice(start, min(start + step, rows.n_rows)) for start in range(0, rows.n_rows, step)]

    def times(self, beta: np.ndarray) -> np.ndarray:
        f = np.concatenate([self._rows.kernel(block) @ beta for block in self._blocks])
        return self._transposed(self._comparisons.laplacian(f))

    def right_side(self) -> np.ndarray:
        return self._transposed(self._comparisons.target.astype(self._rows.dtype, copy=False))

    def _transposed(self, V: np.ndarray) -> np.ndarray:
        return sum(self._rows.kernel(block).T @ V[block] for block in self._blocks)  # type: ignore[return-value]


def _preconditioner(
    rows: ReducedRows, comparisons: Comparisons, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """The lower factor of c Φ_Sᵀ L_S Φ_S + λ I for a sample S of rows; c makes up for the rows outside S."""
    chosen = sample_rows(comparisons, _SAMPLE_FACTOR * rows.width, rng)
    sample = comparisons.take(chosen)
    weight = float(sample.diagonal().sum())
    scale = float(comparisons.diagonal().sum()) / weight if weight > 0 else 0.0
    A = np.zeros((rows.width, rows.width), dtype=rows.dtype, order="F")
    if sample.has_half:
        halves = HalfBlocks(sample, max(rows.width, block_rows(rows.width)), put=_as(rows.dtype))
        for _, P in halves.halves(lambda block: rows.features(chosen[block.rows])):
            A = add_gram(A, P, P)
    else:
        features = rows.features(chosen)
        A = add_gram(A, features, sample.laplacian(features))
    A *= dtype_of(A)(scale)
    diagonal = np.einsum("ii->i", A)
    floor = float(np.finfo(rows.dtype).eps) * rows.width * float(diagonal.max(initial=0.0))
    diagonal += dtype_of(A)(max(alpha, floor))
    return cholesky_in_place(A)


def sample_rows(comparisons: Comparisons, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """About this many rows that are compared with each other: whole queries in random order, ascending row numbers.

    Rows of a query larger than the sample, and rows without queries, are drawn one by one.
    """
    m = comparisons.n_rows
    if n_rows >= m:
        return np.arange(m)
    queries = getattr(comparisons, "queries", None)
    if queries is None or queries.n_groups == 1:
        return np.sort(rng.choice(m, size=n_rows, replace=False))
    drawn = rng.permutation(queries.n_groups)
    n_queries = int(np.searchsorted(np.cumsum(queries.counts[drawn]), n_rows)) + 1
    chosen = np.zeros(queries.n_groups, dtype=bool)
    chosen[drawn[:n_queries]] = True
    rows = np.flatnonzero(chosen[queries.codes])
    if rows.shape[0] > 2 * n_rows:  # one of the queries is large: some of its rows stand for all
        rows = np.sort(rng.choice(rows, size=n_rows, replace=False))
    return rows


def dtype_of(A: np.ndarray) -> Any:
    return A.dtype.type


def _as(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values.astype(dtype, copy=False)


# ----------------------------------------------------------------
# The reduced set on kernel values: (K_RM L K_MR + λ K_RR) β = K_RM b, without its features Φ = K_MR C⁻ᵀ.
#
# Summing kernel values saves the m r² operations of the features, but the condition of the sum A is that of the
# features' system (Φᵀ L Φ + λ I) w = Φᵀ b times that of K_RR = C Cᵀ, and the precision that rounding costs grows with
# it. It is recovered without forming the features: by conjugate gradients on the system in w, every product through the
# rows of K_MR (O(m r)), preconditioned by Cᵀ A⁻¹ C, which differs from the inverse of that system by the rounding of A
# alone. One or two iterations are enough; the residual is then computed afresh, and decides.


# More iterations than this mean that rounding dominates.
_MAX_CORRECTIONS = 10


def sums_may_do(factor: KernelFactor, comparisons: Comparisons, alpha: float) -> bool:
    """Whether it is worth trying sums of kernel values before features.

    It is if K_RR keeps half of the precision, or if a lower bound of the condition of the sum says that its Cholesky
    factor will be of some use.
    """
    if factor.well_conditioned and comparisons.has_half:
        return True
    # The trace of K L bounds the largest eigenvalue of Φᵀ L Φ; the basis vectors stand for all rows.
    largest = (
        float(np.einsum("ij,ij->", factor.C, factor.C)) / factor.rank * float(comparisons.diagonal().sum())
    )
    if factor.well_conditioned:
        # Without a closed half the right-hand side has rounding errors of its own, which nothing corrects.
        return alpha > LEAST_CONDITION * largest
    return factor.reciprocal_condition * alpha > float(np.finfo(factor.C.dtype).eps) * (alpha + largest)


@dataclass(frozen=True)
class BasisEquation:
    """The equation of β that a summed-up matrix stands for.

    Attributes
    ----------
    times : callable
        β to K_RM L K_MR β, computed from the rows.
    C : ndarray of shape (r, r)
        The lower factor of K_RR.
    alpha : float
        λ.
    reciprocal_condition : float
        Of K_RR, or less.
    """

    times: Callable[[np.ndarray], np.ndarray]
    C: np.ndarray
    alpha: float
    reciprocal_condition: float

    def correct(self, factor: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """β as accurate as by features, from the Cholesky factor of the summed-up matrix and K_RM b.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the iteration does not converge.
        """
        eps = float(np.finfo(rhs.dtype).eps)
        enough = 0.1 * np.sqrt(eps)
        # Features have errors of this size, relative to the function, by the condition of C.
        tol = min(enough, 10 * eps / np.sqrt(max(self.reciprocal_condition, eps)))
        alpha = rhs.dtype.type(self.alpha)

        def system(w: np.ndarray) -> np.ndarray:
            return self._solve_C(self.times(self._solve_C(w, "T"))) + alpha * w

        def precondition(residual: np.ndarray) -> np.ndarray:
            return self.C.T @ cholesky_solve(factor, self.C @ residual)

        c, w = self._solve_C(rhs), self.C.T @ cholesky_solve(factor, rhs)
        for max_iter in (_MAX_CORRECTIONS, 0):
            # The second time only the residual of the result is computed: the one carried along may be inaccurate.
            result = iterate(system, precondition, c, tol=tol, max_iter=max_iter, start=w, in_energy=True)
            w = result.weights
            if not result.residual <= (tol if max_iter else enough):
                raise np.linalg.LinAlgError("rounding prevents a solution on sums of kernel values")
        # The energy is insensitive to directions that the comparisons do not see, such as the constant of a ranking:
        # there λ alone divides the rounding of c, which may become a share of the solution.
        if eps * np.linalg.norm(c) > np.cbrt(eps) * self.alpha * np.linalg.norm(w):
            raise np.linalg.LinAlgError("rounding of sums of kernel values is large compared with alpha")
        return self._solve_C(w, "T")

    def _solve_C(self, V: np.ndarray, trans: str = "N") -> np.ndarray:
        return solve_triangular(self.C, V, lower=True, trans=trans, check_finite=False)


def solve_on_basis(
    K_MR: np.ndarray, factor: KernelFactor, K_RR: np.ndarray, comparisons: Comparisons, alpha: float
) -> np.ndarray:
    """β of the reduced set at one λ from a stored K_MR, which is not modified.

    Parameters
    ----------
    K_MR : ndarray of shape (m, r)
        On the pivots of the factor.
    factor : KernelFactor
        Of K_RR.
    K_RR : ndarray of shape (r, r)
    comparisons : Comparisons
    alpha : float

    Returns
    -------
    ndarray of shape (r, v)

    Raises
    ------
    numpy.linalg.LinAlgError
        If rounding prevents it; the features give an accurate answer then.
    """
    rhs = target_moment(K_MR, comparisons)
    equation = BasisEquation(
        lambda beta: gram_times(K_MR, comparisons, beta),
        factor.C,
        alpha,
        factor.reciprocal_condition,
    )
    return solve_penalised(feature_gram(K_MR, comparisons), K_RR, rhs, lambda: equation, alpha)


def solve_penalised(
    B: np.ndarray, K_RR: np.ndarray, rhs: np.ndarray, equation: Callable[[], BasisEquation], alpha: float
) -> np.ndarray:
    """(B + λ K_RR)⁻¹ rhs in the memory of the Fortran-ordered B = K_RM L K_MR; corrected where it lacks precision.

    Parameters
    ----------
    B, K_RR : ndarray of shape (r, r)
    rhs : ndarray of shape (r, v)
    equation : callable
        Makes the equation that B represents, where less than half of the precision would be left without it.
    alpha : float

    Raises
    ------
    numpy.linalg.LinAlgError
        If B has overflowed, if rounding has made the sum indefinite, or if it cannot be corrected.
    """
    B += B.dtype.type(alpha) * K_RR.T  # symmetric, and laid out as B is
    norm = one_norm(B.T)
    if not np.isfinite(norm):
        raise np.linalg.LinAlgError("sums of products of kernel values overflow")
    factor = cholesky_in_place(B)
    if reciprocal_condition(factor, norm) > np.sqrt(np.finfo(B.dtype).eps):
        return cholesky_solve(factor, rhs)
    return equation().correct(factor, rhs)
