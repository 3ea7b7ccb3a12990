r"""Every squared-loss learner as one ridge system (B + λ I) x = c.

* dual, when L = S S with S in closed form: B = S K S, c = t with S t = b, and the kernel coefficients are a = S x;
* primal, for features Φ: B = Φᵀ L Φ, c = Φᵀ b, and the weights are w = x.

One λ costs a Cholesky factorisation; a path of λ, and cross-validation, one symmetric eigendecomposition.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from ..comparisons import Comparisons
from ..numerics.linalg import (
    LEAST_CONDITION,
    add_gram,
    cholesky_in_place,
    cholesky_solve,
    eigh_in_place,
    mirror_lower,
    reciprocal_condition,
    restore_lower,
)
from ..numerics.memory import require_memory
from .centred_kernel import centred_form, fill_null_space

# One block of temporary rows: small enough for the cache when features are narrow; when they are wide, as tall as wide,
# so that the n × n result is read and written no more often than the block, and no larger than that result.
_BLOCK_BYTES = 1 << 23
_LEAST_BLOCK_ROWS = 1024
# Centred rows go straight into a product: they should still be in the cache of one core.
_CENTRED_BLOCK_BYTES = 1 << 19
# Rows from which the mean of a column is guessed.
_SAMPLE = 64
# Error of predictions, relative to the targets, above which another method is used.
_LEAST_DIGITS = 1e-7
# Up to this many numbers, differences of features are stored.
_MOST_ENTRIES = 1 << 22
# Rows of a least-squares problem that are smaller than the largest by this factor lose precision to its rounding.
_GRADED_ROWS = 1e-7


@dataclass
class SquaredLossFit:
    """What training returns.

    Attributes
    ----------
    solver : {"dual", "primal", "cg"}
    weights : ndarray of shape (n, v) or None
        Of the features of X, for the linear kernel without a reduced set.
    dual_coef : ndarray of shape (r, v) or None
        Of the basis vectors otherwise.
    basis_indices : ndarray of shape (r,) or None
    mean_prediction : ndarray of shape (v,) or None
        Mean of f over the training rows where it was asked for; an intercept follows from it.
    n_iter : int or None
    residual : float or None
        What conjugate gradients reached.
    converged : bool
    """

    solver: str
    weights: np.ndarray | None
    dual_coef: np.ndarray | None
    basis_indices: np.ndarray | None
    mean_prediction: np.ndarray | None
    n_iter: int | None = None
    residual: float | None = None
    converged: bool = True


@dataclass
class RidgeSystem:
    """(B + λ I) x = c for v right-hand sides.

    Attributes
    ----------
    matrix : ndarray of shape (n, n), Fortran order
        B, symmetric positive semidefinite, both triangles filled. `solve` and `spectrum` use its memory: a system
        can be solved once.
    rhs : ndarray of shape (n, v)
        c.
    recover : callable
        Takes x to the coefficients of the learner (a = S x, or w = x).
    unit : float
        What B has been divided by, a power of two; x is given for the original B.
    guarded : bool
        Whether c may lie outside the range of B. There x is c / λ, which at a small λ swamps the rest of x.
    """

    matrix: np.ndarray | None
    rhs: np.ndarray
    recover: Callable[[np.ndarray], np.ndarray]
    unit: float = 1.0
    guarded: bool = False

    def solve(self, alpha: float, *, strict: bool = False) -> np.ndarray:
        """The coefficients at one λ = alpha, shape (n, v). n³/3 operations, in the memory of B.

        A system that is singular up to rounding is solved by its eigendecomposition, or refused with ``strict``.

        Raises
        ------
        numpy.linalg.LinAlgError
            With ``guarded`` or ``strict``, if the predictions would have fewer than six correct digits.
        """
        B = self.matrix
        trace = 0.0 if B is None else float(np.trace(B))
        x = self._solve_ridge(alpha / self.unit, strict)
        if self.guarded and x.dtype == np.float64:
            with np.errstate(over="ignore", invalid="ignore"):
                error = np.finfo(float).eps * trace * np.abs(x).max(axis=0)
            if not (error <= _LEAST_DIGITS * np.abs(self.rhs).max(axis=0)).all():
                raise np.linalg.LinAlgError("the kernel is too ill-conditioned for this alpha")
        return self.recover(x / self.unit if self.unit != 1.0 else x)

    def _solve_ridge(self, alpha: float, strict: bool) -> np.ndarray:
        B = self._take_matrix()
        diagonal = np.diagonal(B).copy()
        np.fill_diagonal(B, diagonal + B.dtype.type(alpha))
        strict = strict and B.dtype == np.float64
        least = LEAST_CONDITION if strict else float(np.finfo(B.dtype).eps)
        in_doubt = alpha <= 10 * B.shape[0] * least * float(diagonal.max())
        norm = _scaled_norm(B) if in_doubt else 0.0
        try:
            factor = cholesky_in_place(B)
            if in_doubt:
                # Cholesky is as accurate as if every diagonal entry were one: features of different scales do no harm.
                _refuse_below(least, factor / np.sqrt(diagonal + alpha)[:, None], norm)
            return cholesky_solve(factor, self.rhs)
        except np.linalg.LinAlgError:
            if strict:
                raise
            # alpha is lost in the rounding of B. Cholesky has overwritten the lower triangle; the upper one still holds
            # B.
            restore_lower(B, diagonal)
            return _spectrum(B, self.rhs, self.recover).solve_ridge(alpha)

    def spectrum(self) -> Spectrum:
        """The eigendecomposition of B, from which every λ costs O(n²) per output."""
        found = _spectrum(self._take_matrix(), self.rhs, self.recover)
        return found if self.unit == 1.0 else replace(found, values=found.values * self.unit)

    def _take_matrix(self) -> np.ndarray:
        B, self.matrix = self.matrix, None
        if B is None:
            raise RuntimeError(
                "This RidgeSystem has been solved already: its matrix was used up. Build it again."
            )
        return B


@dataclass(frozen=True)
class Spectrum:
    """B = V diag(Λ) Vᵀ together with Vᵀ c.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Λ, ascending and not negative.
    vectors : ndarray of shape (n, n)
        V.
    projected : ndarray of shape (n, v)
        Vᵀ c.
    recover : callable
        As in `RidgeSystem`.
    """

    values: np.ndarray
    vectors: np.ndarray
    projected: np.ndarray
    recover: Callable[[np.ndarray], np.ndarray]

    def solve_ridge(self, alpha: float) -> np.ndarray:
        """x = V (Λ + λ)⁻¹ Vᵀ c, shape (n, v)."""
        return self.vectors @ self._shrink(alpha)

    def _shrink(self, alpha: float) -> np.ndarray:
        """(Λ + λ)⁻¹ Vᵀ c. Where λ is below rounding, so is what lies outside the range of B, which is left out."""
        largest = float(self.values[-1])
        rounding = rounding_of_sums(1, self.values.dtype, largest)
        inverse = 1.0 / np.maximum(self.values + alpha, np.finfo(self.values.dtype).tiny)
        if alpha <= rounding:
            inverse[self.values <= rounding * np.sqrt(self.values.shape[0])] = 0.0
        return self.projected * inverse[:, None]

    def path(self, alphas: Sequence[float]) -> np.ndarray:
        """The coefficients at every alpha, shape (len(alphas), n, v), by one matrix product."""
        shrunk = [self._shrink(alpha) for alpha in alphas]
        n_outputs = self.projected.shape[1]
        x = self.recover(self.vectors @ np.concatenate(shrunk, axis=1))
        return np.stack([x[:, i * n_outputs : (i + 1) * n_outputs] for i in range(len(alphas))])


def dual_problem(K: np.ndarray, comparisons: Comparisons, alpha: float = 0.0) -> RidgeSystem:
    """The dual system in the memory of K, to be solved for this alpha.

    At a small alpha, what the comparisons do not see is shifted out of its way; ``inf`` leaves the spectrum as it is.

    Parameters
    ----------
    K : ndarray of shape (m, m), C-contiguous
        The kernel matrix; overwritten.
    comparisons : Comparisons
        With a symmetric half in closed form.
    """
    unit, G = centred_form(K, comparisons)
    trace = float(np.trace(G))
    if alpha / unit < _LIFTED_BELOW * trace:
        fill_null_space(G, comparisons.anchors(), trace)
    rhs = comparisons.half_target.astype(K.dtype, copy=False)
    return RidgeSystem(G.T, rhs, comparisons.half, unit, guarded=True)


# Up to this share of the trace, alpha is small compared with the kernel.
_LIFTED_BELOW = 1e-4


def primal_problem(features, comparisons: Comparisons) -> RidgeSystem:
    """The primal system of features Φ, dense or sparse; Φ is not modified."""
    return RidgeSystem(*feature_moments(features, comparisons), unchanged)


def solve_primal(features, comparisons: Comparisons, alpha: float) -> np.ndarray:
    """The weights of features Φ at one λ, shape (n, v).

    By the primal system, whose condition is the square of that of S Φ; where that is not precise enough and S Φ can be
    formed, by the singular values of S Φ.
    """
    return solve_primal_path(features, comparisons, [alpha])[0]


def solve_primal_path(
    features, comparisons: Comparisons, alphas: Sequence[float], span: np.ndarray | None = None
) -> list[np.ndarray]:
    """The weights of `solve_primal` at several λ: one pass over Φ, one Cholesky factorisation each.

    As accurate at every λ as if it were the only one, which an eigendecomposition is not where features differ in
    scale.

    Parameters
    ----------
    span : ndarray of shape (n, k), optional
        Orthonormal columns; only weights that they span are allowed.
    """
    A, c = feature_moments(features, comparisons)
    if span is not None:
        A, c = np.asfortranarray(span.T @ A @ span), span.T @ c
    double = features.dtype == np.float64
    strict = not sp.issparse(features) and double
    smallest = _least_alpha(A, features, comparisons) if double else 0.0

    @cache
    def least_squares() -> _LeastSquares:
        seen = features if span is None else features @ span
        return _LeastSquares(*comparisons.least_squares(seen.toarray() if sp.issparse(seen) else seen))

    solutions = []
    for number, alpha in enumerate(alphas):
        if alpha < smallest:
            solutions.append(least_squares().solve(alpha))
            continue
        is_last = number == len(alphas) - 1
        problem = RidgeSystem(A if is_last else A.copy(order="F"), c, unchanged)
        try:
            solutions.append(problem.solve(alpha, strict=strict))
        except np.linalg.LinAlgError:
            if not strict:
                raise
            solutions.append(least_squares().solve(alpha))
    return solutions if span is None else [span @ w for w in solutions]


def _least_alpha(A: np.ndarray, features: Any, comparisons: Comparisons) -> float:
    """The λ below which the rounding of Φᵀ b is no longer small relative to λ w in directions hardly compared.

    With T and t, which a closed half or factor gives, these directions are small in the product as well. This is worth
    it only for a matrix T of moderate size.
    """
    dense = not sp.issparse(features)
    if comparisons.has_half or (dense and comparisons.has_factor):
        return 0.0
    n_rows = comparisons.n_rows if comparisons.has_factor else comparisons.n_comparisons
    if n_rows * features.shape[1] > _MOST_ENTRIES:
        return 0.0
    return LEAST_CONDITION * float(np.diagonal(A).max(initial=0.0))


class _LeastSquares:
    """The w that minimise ‖T w - t‖² + λ ‖w‖², without squares of T, at any λ.

    By singular values, or, where some rows are so much larger that others are lost in rounding, by `_solve_graded`.
    """

    def __init__(self, T: np.ndarray, t: np.ndarray):
        self.T, self.t = T, t

    @cached_property
    def _decomposition(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return la.svd(self.T, full_matrices=False, lapack_driver="gesvd")

    def solve(self, alpha: float) -> np.ndarray:
        if _is_graded(self.T, alpha):
            return _solve_graded(self.T, self.t, alpha)
        U, sigma, Vt = self._decomposition
        seen = sigma > 32 * max(self.T.shape) * np.finfo(float).eps * sigma.max(initial=0.0)
        root = np.sqrt(alpha)
        warn_if_collinear(sigma, root)
        size = np.maximum(sigma[seen], root)  # so that no square overflows or underflows
        shrunk = (sigma[seen] / size) / ((sigma[seen] / size) ** 2 + (root / size) ** 2) / size
        return Vt[seen].T @ (shrunk[:, None] * (U[:, seen].T @ self.t))


def warn_if_collinear(sigma: np.ndarray, root: float) -> None:
    """Warn about a direction that √λ does not determine, and which is hardly above the rounding of the others.

    ``sigma`` are the singular values of the features; those within rounding of the largest count as zero.
    """
    decided = sigma[sigma > max(root, 2 * np.finfo(float).eps * sigma.max(initial=0.0))]
    if decided.size and decided.min() * _LEAST_DIGITS < np.finfo(float).eps * decided.max():
        warnings.warn(
            f"Features are collinear up to {decided.min() / decided.max():.1g} of their size, and alpha is too small "
            "relative to them to matter: predictions may have fewer than six correct digits. Use a larger alpha, or "
            "leave out one of the columns.",
            UserWarning,
            stacklevel=2,
        )


def _is_graded(T: np.ndarray, alpha: float) -> bool:
    """Whether weights of comparisons make the rows of T so different in size that rounding of large ones hides others.

    Not where sqrt(λ) is below the rounding of the smaller half of the rows: directions that these rows do not see would
    then consist of rounding errors.
    """
    sizes = np.sort(np.abs(T).max(axis=1, initial=0.0))
    sizes = sizes[sizes > 0]
    if not sizes.size or sizes[0] > _GRADED_ROWS * sizes[-1]:
        return False
    return bool(np.sqrt(alpha) > 32 * max(T.shape) * np.finfo(float).eps * sizes[sizes.shape[0] // 2])


def _solve_graded(T: np.ndarray, t: np.ndarray, alpha: float) -> np.ndarray:
    """By a pivoted QR factorisation of T over √λ I, the largest rows first: each row is accurate relative to its size.

    Reference: Cox and Higham, "Stability of Householder QR factorization for weighted least squares problems",
    Numerical Analysis 1997.
    """
    n = T.shape[1]
    rows = np.concatenate([T, np.sqrt(alpha) * np.eye(n)])
    order = np.argsort(-np.abs(rows).max(axis=1), kind="stable")
    targets = np.concatenate([t, np.zeros((n, t.shape[1]))])[order]
    Q, R, pivots = la.qr(rows[order], mode="economic", pivoting=True)
    w = np.empty((n, t.shape[1]))
    w[pivots] = la.solve_triangular(R, Q.T @ targets)
    return w


def unchanged(x: np.ndarray) -> np.ndarray:
    return x


def _spectrum(B: np.ndarray, rhs: np.ndarray, recover) -> Spectrum:
    values, vectors = eigh_in_place(B)
    refuse_indefinite(float(values[0]), float(values[-1]), float(np.finfo(values.dtype).eps))
    return Spectrum(np.maximum(values, 0), vectors, vectors.T @ rhs, recover)


def refuse_indefinite(smallest: float, largest: float, eps: float = float(np.finfo(float).eps)) -> None:
    """Refuse a kernel with an eigenvalue that is negative by more than rounding, ``eps`` being that of its type."""
    if smallest < -np.sqrt(eps) * max(abs(largest), abs(smallest)):
        raise ValueError(
            f"The kernel is not positive semidefinite: an eigenvalue is {smallest:.3g}, the largest {largest:.3g}. "
            "Check a precomputed or callable kernel, for example with np.linalg.eigvalsh."
        )


def rounding_of_sums(n: int, dtype: np.dtype, largest: float) -> float:
    """Size of the rounding errors in n sums of numbers up to ``largest``."""
    return 10 * n * float(np.finfo(dtype).eps) * largest


def _scaled_norm(B: np.ndarray) -> float:
    """‖B‖₁ with rows and columns scaled so that the diagonal is one."""
    scale = 1.0 / np.sqrt(np.diagonal(B))
    step = max(1, (1 << 20) // B.shape[0])
    sums = [
        (np.abs(B.T[k : k + step]) * scale).sum(axis=1) * scale[k : k + step]
        for k in range(0, B.shape[0], step)
    ]
    return float(np.concatenate(sums).max())


def _refuse_below(least: float, factor: np.ndarray, norm: float) -> None:
    if reciprocal_condition(factor, norm) < least:
        raise np.linalg.LinAlgError("the system is too ill-conditioned for Cholesky factorisation")


def block_rows(n_columns: int, itemsize: int = 8, n_bytes: int = _BLOCK_BYTES) -> int:
    """Rows of a temporary block with this many columns."""
    return max(_LEAST_BLOCK_ROWS, n_columns, n_bytes // max(1, n_columns * itemsize))


def feature_gram(features, comparisons: Comparisons) -> np.ndarray:
    """A = Φᵀ L Φ, symmetric and Fortran-ordered, shape (n, n).

    Parameters
    ----------
    features : ndarray or sparse array of shape (m, n)
        Φ.
    comparisons : Comparisons
        L.

    Notes
    -----
    O(m n²) for dense features with one block of temporary memory; sparse features are never made dense.
    """
    width = features.shape[1]
    require_memory(width * width * 8, f"a matrix of {width} × {width} for the primal form")
    if sp.issparse(features):
        return _sparse_gram(features, comparisons)
    A = np.zeros((width, width), dtype=features.dtype, order="F")
    mirrored = True
    for left, right in comparisons.blocks(features, block_rows(width, features.itemsize)):
        mirrored = left is not right
        A = add_gram(A, left, right)
    return A if mirrored else mirror_lower(A)


def _sparse_gram(features, comparisons: Comparisons) -> np.ndarray:
    # In float64: the terms of different sign cancel where a column has a large mean.
    A = np.zeros((features.shape[1], features.shape[1]), order="F")
    for indicator, coefficients in comparisons.indicators():
        folded = sp.csr_array(indicator.T @ features)
        scaled = folded.multiply(coefficients[:, None])
        A += (folded.T @ scaled.tocsr()).toarray()
    return A.astype(features.dtype, copy=False)


def feature_gram_diagonal(features, comparisons: Comparisons) -> np.ndarray:
    """The diagonal of Φᵀ L Φ, shape (n,); O(nnz) for sparse features."""
    if sp.issparse(features):
        total = np.zeros(features.shape[1])
        for indicator, coefficients in comparisons.indicators():
            folded = sp.csr_array(indicator.T @ features)
            total += folded.multiply(folded).T @ coefficients
        return np.maximum(total, 0.0)
    total = np.zeros(features.shape[1])
    for left, right in comparisons.blocks(features, block_rows(features.shape[1], features.itemsize)):
        total += np.einsum("ij,ij->j", left, right)
    return np.maximum(total, 0.0)


def feature_moments(
    features, comparisons: Comparisons, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Φᵀ L Φ and Φᵀ b together; with dense features and a symmetric half in one pass over Φ.

    Parameters
    ----------
    features : ndarray or sparse array of shape (m, n), or of more rows with ``rows``
        Φ.
    comparisons : Comparisons
        L and b.
    rows : ndarray of shape (m,), optional
        The rows of Φ that are compared; all of them by default. No copy of them is made.

    Returns
    -------
    A : ndarray of shape (n, n), Fortran order
    c : ndarray of shape (n, v)
    """
    if sp.issparse(features) or not comparisons.has_half:
        features = features if rows is None else features[rows]
        if comparisons.has_factor and not sp.issparse(features):
            return _factored_moments(features, comparisons)
        return feature_gram(features, comparisons), target_moment(features, comparisons)
    # One product of [S Φ, t] with itself gives Φᵀ L Φ and Φᵀ b, and costs hardly more than that of S Φ.
    width = features.shape[1]
    total = width + comparisons.n_outputs
    require_memory(total * total * 8, f"a matrix of {width} × {width} for the primal form")
    A = np.zeros((total, total), dtype=features.dtype, order="F")
    n_rows = block_rows(total, features.itemsize, _CENTRED_BLOCK_BYTES)
    for block in comparisons.half_blocks(features, n_rows, rows):
        A = add_gram(A, block, block)
    return mirror_lower(np.asfortranarray(A[:width, :width])), A[width:, :width].T.copy()


def _factored_moments(features: np.ndarray, comparisons: Comparisons) -> tuple[np.ndarray, np.ndarray]:
    """The same by T and t of `Comparisons.least_squares`: both vanish in a direction that is hardly compared."""
    width = features.shape[1]
    require_memory(width * width * 8, f"a matrix of {width} × {width} for the primal form")
    A = np.zeros((width, width), dtype=features.dtype, order="F")
    c = np.zeros((width, comparisons.n_outputs), dtype=features.dtype)
    parts: Any = [comparisons.least_squares(features)] if not comparisons.factors_in_blocks else None
    n_rows = block_rows(width, features.itemsize, _CENTRED_BLOCK_BYTES)
    for T, t in parts or comparisons.factor_blocks(features.__getitem__, n_rows):
        A = add_gram(A, T, T)
        c += feature_moment(T, t)
    return mirror_lower(A), c


def gram_times(features, comparisons: Comparisons, w: np.ndarray) -> np.ndarray:
    """Φᵀ L Φ w without the n × n matrix, shape (n, v), from dense features.

    The blocks are those of `feature_gram`: what the rows of a query have in common is subtracted before the product, in
    which only its rounding would remain. O(m n v).
    """
    total = np.zeros(w.shape, dtype=features.dtype)
    for left, right in comparisons.blocks(features, block_rows(features.shape[1], features.itemsize)):
        total += left.T @ (right @ w)
    return total


def target_moment(features, comparisons: Comparisons) -> np.ndarray:
    """Φᵀ b as a dense array, shape (n, v).

    Where b sums to zero, dense rows are taken relative to a typical one, or within queries to the first one of their
    query, so that the size of what they share does not matter.
    """
    b = comparisons.target
    if sp.issparse(features) or not comparisons.ignores_constants:
        return feature_moment(features, b)
    b = b.astype(features.dtype, copy=False)
    queries, first_rows = comparisons.queries, None
    if queries is not None and queries.n_groups > 1:
        first_rows = queries.order[queries.starts[:-1]][queries.codes]
    # Any row that is typical of them will do for the mean.
    typical = features[:: max(1, features.shape[0] // _SAMPLE)].mean(axis=0)
    step = block_rows(features.shape[1], features.itemsize)
    total = np.zeros((features.shape[1], b.shape[1]), dtype=features.dtype)
    for start in range(0, features.shape[0], step):
        rows = slice(start, start + step)
        origin = typical if first_rows is None else features[first_rows[rows]]
        total += (features[rows] - origin).T @ b[rows]
    return total


def feature_moment(features, V: np.ndarray) -> np.ndarray:
    """Φᵀ V as a dense array, shape (n, v)."""
    return np.asarray(features.T @ V.astype(features.dtype, copy=False))
