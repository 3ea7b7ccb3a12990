"""The few factorisations that the library uses, in place and on one triangle.

Arrays are C-contiguous for the rest of the library; LAPACK reads the transpose of such a symmetric array without a
copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import get_blas_funcs, get_lapack_funcs, qr, solve_triangular

from . import tiles
from .threads import blas_at_rest, over_small_ranges

# Where a matrix has a smaller reciprocal condition number, its inverse has fewer than seven correct digits.
LEAST_CONDITION = 2.0**-30
# From this many rows on, a matrix is factored in short steps by our own threads; below, by LAPACK in one thread. BLAS
# wakes no threads for fewer rows than the second number.
LARGE = 512
_TINY = 64
# Entries of a block of rows, and multiplications of a product, that are not worth a second thread.
_SMALL_BLOCK = 1 << 14
_SMALL_PRODUCT = 1 << 20


def _in_one_thread(n: int):
    """For LAPACK on n rows: its threads cost more than they save, far more where the processors are busy."""
    return blas_at_rest(_TINY < n)


def _is_large(A: np.ndarray) -> bool:
    return A.shape[0] >= LARGE and _suits_tiles(A)


def _suits_tiles(A: np.ndarray) -> bool:
    return bool(A.flags.f_contiguous) and A.dtype.char in "fd"


def dot_without_blas(a: np.ndarray, b: np.ndarray) -> float:
    """aᵀb without BLAS, whose threads cost more than such a short computation where the processors are busy."""
    return float(np.einsum("i,i->", a, b))


# Sizes between these can be squared, and their squares multiplied, without leaving the range of float64.
_ORDINARY = (2.0**-200, 2.0**200)


def unit_of(size: float) -> float:
    """The power of two to use as a unit for numbers of this size; 1 unless their squares might over- or underflow."""
    if size == 0 or _ORDINARY[0] <= size <= _ORDINARY[1]:
        return 1.0
    return float(2.0 ** np.round(np.log2(size)))


def add_gram(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """C ← C + Aᵀ B in the memory of the Fortran-ordered C.

    When A is B only the lower triangle is updated (half of the work).
    """
    if A.size * C.shape[1] > _SMALL_PRODUCT and _suits_tiles(C) and A.dtype == B.dtype == C.dtype:
        left = np.ascontiguousarray(A)
        tiles.add_product(C, left, left if A is B else np.ascontiguousarray(B))
        return C
    if A is B:
        syrk = get_blas_funcs("syrk", (A, C))
        return syrk(1.0, A.T, beta=1.0, c=C, overwrite_c=True, lower=True)
    gemm = get_blas_funcs("gemm", (A, C))
    return gemm(1.0, A.T, B, beta=1.0, c=C, overwrite_c=True)


def subtract_gram(C: np.ndarray, Y: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """C ← C - Y diag(σ) Yᵀ in the lower triangle of the Fortran-ordered C, σ being 1 or -1."""
    syrk = get_blas_funcs("syrk", (Y, C))
    for sign in (1.0, -1.0):
        columns = Y if (signs == sign).all() else Y[:, signs == sign]
        if not columns.shape[1]:
            continue
        if columns.size * C.shape[1] > _SMALL_PRODUCT and _suits_tiles(C) and Y.dtype == C.dtype:
            transposed = np.ascontiguousarray(columns.T)
            tiles.add_product(C, transposed, transposed, -sign)
        else:
            # Row-major Y is Yᵀ for BLAS.
            C = syrk(
                -sign, np.ascontiguousarray(columns).T, beta=1.0, c=C, trans=1, overwrite_c=True, lower=True
            )
    return C


def cholesky_in_place(A: np.ndarray, *, clean: bool = False) -> np.ndarray:
    """The lower factor C with A = C Cᵀ in the memory of the Fortran-ordered A.

    The upper triangle is left as it is, or set to zero with ``clean``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.
    """
    if _is_large(A):
        factor, info = A, tiles.cholesky(A)
        if clean:
            _clear_upper(factor)
    else:
        potrf = get_lapack_funcs("potrf", (A,))
        with _in_one_thread(A.shape[0]):
            factor, info = potrf(A, lower=True, overwrite_a=True, clean=clean)
    if info != 0:
        raise np.linalg.LinAlgError(f"leading minor {info} is not positive")
    return factor


def reciprocal_condition(factor: np.ndarray, norm: float) -> float:
    """An estimate of 1 / (‖A‖₁ ‖A⁻¹‖₁) from the lower factor of A and its norm ‖A‖₁. O(n²)."""
    pocon = get_lapack_funcs("pocon", (factor,))
    return float(pocon(factor, norm, uplo="L")[0])


def restore_lower(A: np.ndarray, diagonal: np.ndarray) -> None:
    """Undo `cholesky_in_place` without ``clean``: the upper triangle still holds A."""
    mirror_lower(A.T)
    np.fill_diagonal(A, diagonal)


def cholesky_solve(factor: np.ndarray, B: np.ndarray) -> np.ndarray:
    """(C Cᵀ)⁻¹ B for the lower factor C."""
    if B.ndim == 2 and B.dtype == factor.dtype and _is_large(factor):
        solution = np.array(B, order="F")
        tiles.solve_with_factor(factor, solution)
        return solution
    potrs = get_lapack_funcs("potrs", (factor, B))
    with _in_one_thread(factor.shape[0]):
        return potrs(factor, B, lower=True)[0]


def eigh_in_place(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (ascending) and vectors of the symmetric Fortran-ordered A, from its lower triangle.

    LAPACK's divide and conquer; A may be overwritten.
    """
    if _is_large(A):
        return tiles.eigh(A)
    with _in_one_thread(A.shape[0]):
        values, vectors = np.linalg.eigh(A)  # without the interpreter lock: many small ones run side by side
    return values, vectors


def tridiagonalise_in_place(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, the diagonal and the off-diagonal of T with A = Q T Qᵀ, from the lower triangle of the Fortran-ordered A.

    Q takes the memory of A.
    """
    n = A.shape[0]
    if n == 1:
        return np.ones((1, 1), order="F"), A[0].copy(), np.empty(0, dtype=A.dtype)
    if _is_large(A):
        return tiles.tridiagonalise(A)
    # The reflectors are stored as those of a Hessenberg form.
    sytrd, sytrd_lwork, orghr, orghr_lwork = get_lapack_funcs(
        ("sytrd", "sytrd_lwork", "orghr", "orghr_lwork"), (A,)
    )
    lwork, _ = sytrd_lwork(n, lower=True)
    lwork_Q, _ = orghr_lwork(n, 0, n - 1)
    with _in_one_thread(n):
        reflectors, diagonal, off_diagonal, scales, _ = sytrd(
            A, lower=True, lwork=int(lwork), overwrite_a=True
        )
        Q, _ = orghr(reflectors, scales, lo=0, hi=n - 1, lwork=int(lwork_Q), overwrite_a=True)
    return Q, diagonal, off_diagonal


@dataclass(frozen=True)
class KernelFactor:
    """A factor of a kernel matrix of r items: K ≈ F Fᵀ with F of full column rank.

    Attributes
    ----------
    F : ndarray of shape (r, rank)
        Rows in the order of the items; the rows `pivots` form the lower triangular `C`.
    pivots : ndarray of shape (rank,)
        Linearly independent items that span all others up to rounding.
    C : ndarray of shape (rank, rank), Fortran order
        Lower triangular, K[pivots][:, pivots] = C Cᵀ.
    reciprocal_condition : float
        An estimate of 1 / (‖K‖₁ ‖K⁻¹‖₁) for the pivots; 0 where items other than copies were set aside.
    pivot_of : ndarray of shape (r,) or None
        For each item the pivot that it equals; None where items were set aside that equal no pivot.
    """

    F: np.ndarray
    pivots: np.ndarray
    C: np.ndarray
    reciprocal_condition: float = 0.0
    pivot_of: np.ndarray | None = None

    @property
    def rank(self) -> int:
        return self.pivots.shape[0]

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded factor is checked for, besides its shapes (`preflearn.tables.models.fitted`)."""
        if not np.all(np.diagonal(self.C)):
            raise ValueError("C is singular")
        return {} if self.pivot_of is None else {"pivot_of": "r < k"}

    def condition_of_pivots(self) -> float:
        """`reciprocal_condition`; where items other than copies were set aside, a lower bound of that of the pivots."""
        if self.pivot_of is not None:
            return self.reciprocal_condition
        size = np.abs(self.C)
        return reciprocal_condition(self.C, float(size.sum(axis=0).max() * size.sum(axis=1).max()))

    @property
    def well_conditioned(self) -> bool:
        """Whether the condition of K leaves half of the precision, so that systems in K itself may be tried."""
        return bool(self.reciprocal_condition > np.sqrt(np.finfo(self.C.dtype).eps))

    def expand(self, w: np.ndarray) -> np.ndarray:
        """β of shape (r, v) with K β = F w on all items: C⁻ᵀ w on the pivots, zero on the items set aside."""
        return self.place(solve_triangular(self.C, w, lower=True, trans="T", check_finite=False))

    def without(self, items: np.ndarray) -> tuple[KernelFactor, Callable[[np.ndarray], np.ndarray]]:
        """The factor of K without some items, and what takes rows of F, or features Φ = K C⁻ᵀ, to those of the result.

        O(|items| rank²), and O(|items| rank) for a row; O(rank³) and O(rank²) where an item that was set aside may now
        be a pivot.
        """
        stays = np.setdiff1d(np.arange(self.F.shape[0]), items)
        F = self.F[stays]
        if self.pivot_of is not None:
            kept, pivots, pivot_of = np.unique(self.pivot_of[stays], return_index=True, return_inverse=True)
            if (np.diff(pivots) > 0).all():  # no later copy of an item takes its place
                C, rotate = without_rows(self.C, np.setdiff1d(np.arange(self.rank), kept))
                rows = C if C.shape[0] == stays.shape[0] else C[pivot_of]
                # K⁻¹ of some items is no larger than that of all.
                return KernelFactor(rows, pivots, C, self.reciprocal_condition, pivot_of), rotate
        factor = factor_kernel(F @ F.T, overwrite=True)
        Q = solve_triangular(factor.C, F[factor.pivots], lower=True, check_finite=False).T
        return factor, lambda features: features @ Q

    def place(self, values: np.ndarray) -> np.ndarray:
        """Values of the pivots as values of all items, zero on those set aside."""
        out = np.zeros((self.F.shape[0], *values.shape[1:]), dtype=values.dtype)
        out[self.pivots] = values
        return out


def factor_kernel(K: np.ndarray, *, overwrite: bool = False) -> KernelFactor:
    """Factor a positive semidefinite kernel matrix; linearly dependent items are set aside instead of raising an error.

    Plain Cholesky first (a third of r³ at full BLAS speed); when K is singular to working precision, the same on one of
    each set of equal items, and when that does not help, Cholesky with diagonal pivoting, which stops at the numerical
    rank and costs O(r rank²).

    Parameters
    ----------
    K : ndarray of shape (r, r)
        Symmetric; not modified, unless ``overwrite`` allows the factor to take its memory.

    Raises
    ------
    ValueError
        If K is not positive semidefinite up to rounding.
    """
    diagonal = np.diagonal(K)
    largest = float(diagonal.max(initial=0.0))
    if not largest > 0:
        raise ValueError(
            "The kernel matrix has no positive diagonal entry: the kernel of these items is zero."
        )
    diagonal = diagonal.copy()
    eps = float(np.finfo(K.dtype).eps)
    tolerance = K.shape[0] * eps * largest
    norm = one_norm(K)
    A = K.T if overwrite and K.flags.c_contiguous else np.array(K.T, order="F")
    try:
        C = cholesky_in_place(A)
        if np.min(np.diagonal(C)) ** 2 <= tolerance:
            raise np.linalg.LinAlgError("singular to working precision")
    except np.linalg.LinAlgError:
        restore_lower(A, diagonal)
        first_of = first_equal_items(A.T)
        distinct, pivot_of = np.unique(first_of, return_inverse=True)
        if distinct.shape[0] < K.shape[0]:
            factor = factor_kernel(np.ascontiguousarray(A.T[np.ix_(distinct, distinct)]), overwrite=True)
            return _with_copies(factor, distinct, pivot_of)
        return _factor_with_pivots(A, diagonal, tolerance)
    reciprocal = reciprocal_condition(C, norm)
    _clear_upper(C)
    every = np.arange(K.shape[0])
    return KernelFactor(F=C, pivots=every, C=C, reciprocal_condition=reciprocal, pivot_of=every)


# Rows that are made triangular together, and rows of features that stay in the cache meanwhile.
_PANEL, _CACHED = 16, 128


def without_rows(C: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """C' lower triangular with C' C'ᵀ = C Cᵀ without some rows and columns, and V ↦ V Q with C' = C[the rest] Q.

    Q, of n rows and orthonormal columns, is a product of reflections of few columns each: O(n² h) for h rows that leave
    a C of n, and O(n h) for a row of V.
    """
    rest = np.setdiff1d(np.arange(C.shape[0]), rows)
    A = np.asfortranarray(C[rest]).T  # what follows works on columns
    reflections = []
    with blas_at_rest():
        for start in range(int(rows.min(initial=C.shape[0])), rest.shape[0], _PANEL):
            stop = min(start + _PANEL, rest.shape[0])
            own = slice(start, int(rest[stop - 1]) + 1)  # up to the last entry of the last of these rows of C
            (packed, tau), _ = qr(A[own, start:stop], mode="raw", check_finite=False)
            V = np.tril(packed, -1)
            np.fill_diagonal(V, 1.0)
            V[:, tau == 0] = 0.0
            # The product of the reflections I - τ v vᵀ is I - V T Vᵀ.
            inverse = np.triu(V.T @ V, 1) + np.diag(1.0 / np.where(tau == 0, 1.0, tau))
            TV = solve_triangular(inverse, V.T, trans="T", check_finite=False).astype(C.dtype, copy=False)
            V = V.astype(C.dtype, copy=False)
            A[own, start:] -= V @ (TV @ A[own, start:])
            reflections.append((own, V, TV))
    A = A[: rest.shape[0]]
    signs = np.where(np.diagonal(A) < 0, -1.0, 1.0).astype(C.dtype)[:, None]

    def rotate(features: np.ndarray) -> np.ndarray:
        out = np.empty((features.shape[0], rest.shape[0]), features.dtype)

        def some(first: int, last: int) -> None:
            part = np.ascontiguousarray(features[first:last].T)
            for own, V, TV in reflections:
                part[own] -= V @ (TV @ part[own])
            out[first:last] = (part[: rest.shape[0]] * signs).T

        with blas_at_rest():
            over_small_ranges(some, features.shape[0], _CACHED)
        return out

    return np.asfortranarray(np.tril((A * signs).T)), rotate


def first_equal_items(K: np.ndarray) -> np.ndarray:
    """For each item the first one that equals it, at distance K_ii + K_jj - 2 K_ij = 0 up to rounding. Shape (r,).

    Equal items have equal rows of K, and so equal products with any vector: one sort finds them. O(r²).
    """
    r = K.shape[0]
    mark = K @ np.asarray(np.random.default_rng(0).standard_normal(r), dtype=K.dtype)
    order = np.argsort(mark)
    before, item = order[:-1], order[1:]
    diagonal = np.diagonal(K)
    size = diagonal[item] + diagonal[before]
    equal = np.abs(size - 2 * K[item, before]) <= 16 * np.finfo(K.dtype).eps * np.abs(size)
    run = np.cumsum(np.append(True, ~equal)) - 1
    first = np.full(int(run[-1]) + 1, r)
    np.minimum.at(first, run, order)
    out = np.empty(r, dtype=np.int64)
    out[order] = first[run]
    # Distances lose half of the precision, and neighbours of neighbours need not be equal: the rows of K decide.
    for copy in np.flatnonzero(out != np.arange(r)):
        if np.abs(K[copy] - K[out[copy]]).max() > 16 * np.finfo(K.dtype).eps * diagonal.max():
            out[copy] = copy
    return out


def independent_items(K: np.ndarray, tolerance: float) -> np.ndarray:
    """Items, ascending, none of which is near the span of the others, while all omitted items are.

    Near means a squared distance of at most ``tolerance`` times the largest K_ii. Cholesky with pivoting, O(r³).
    """
    A = np.array(K.T, order="F")
    pstrf = get_lapack_funcs("pstrf", (A,))
    _, order, rank, _ = pstrf(A, lower=True, tol=tolerance * float(np.diagonal(K).max()), overwrite_a=True)
    return np.sort(order[:rank] - 1)


def in_row_span(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of X in an orthonormal basis Q of their span, X = rows Qᵀ; directions below rounding are left out.

    Returns
    -------
    rows : ndarray of shape (m, rank)
    Q : ndarray of shape (n, rank)
    """
    Q, R, order = qr(X.T, mode="economic", pivoting=True, check_finite=False)
    size = np.abs(np.diagonal(R))
    rank = max(1, int(np.count_nonzero(size > 32 * max(X.shape) * np.finfo(X.dtype).eps * size[0])))
    rows = np.empty((X.shape[0], rank), dtype=X.dtype)
    rows[order] = R[:rank].T
    return rows, Q[:, :rank]


def first_equal_rows(X) -> np.ndarray:
    """For each row of an array or CSR matrix the first one that equals it in every entry. Shape (m,).

    Rows with the same sum of hashed entries are compared with the first of them. O(m n), O(stored values) for CSR.
    """
    if sp.issparse(X):
        X = X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        sums = np.append(np.uint64(0), np.cumsum(_hashed(X.data) * _column_factors(X.shape[1])[X.indices]))
        marks = sums[X.indptr[1:]] - sums[X.indptr[:-1]]
    else:
        X = np.asarray(X)
        marks = _row_marks(X)
    _, first, run = np.unique(marks, return_index=True, return_inverse=True)
    out = first[run]
    copies = np.flatnonzero(out != np.arange(X.shape[0]))
    if copies.size:
        differ = X[copies] != X[out[copies]]
        apart = copies[np.asarray(differ.sum(axis=1)).ravel() > 0]
        out[apart] = apart  # the same sum by coincidence
    return out


def _row_marks(X: np.ndarray) -> np.ndarray:
    """A number for each row that equal rows share; in blocks of rows."""
    factors = _column_factors(X.shape[1])
    marks = np.empty(X.shape[0], dtype=np.uint64)
    step = max(1, (1 << 18) // max(1, X.shape[1]))
    for start in range(0, X.shape[0], step):
        marks[start : start + step] = _hashed(X[start : start + step]) @ factors
    return marks


def _hashed(values: np.ndarray) -> np.ndarray:
    """The mixed bits of floating-point numbers; 0 for a zero of either sign. Sums of them wrap around and are exact."""
    bits = (values + 0.0).astype(np.float64, copy=False).view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return bits ^ (bits >> np.uint64(29))


def _column_factors(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1 << 63, size=n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _with_copies(factor: KernelFactor, distinct: np.ndarray, pivot_of: np.ndarray) -> KernelFactor:
    """The factor of distinct items for all items."""
    return KernelFactor(
        F=factor.F[pivot_of],
        pivots=distinct[factor.pivots],
        C=factor.C,
        reciprocal_condition=factor.reciprocal_condition,
        pivot_of=None if factor.pivot_of is None else factor.pivot_of[pivot_of],
    )


def one_norm(K: np.ndarray) -> float:
    """‖K‖₁ of a symmetric C-contiguous K: the largest sum of absolute values in a row, in blocks of rows."""
    step = max(1, (1 << 20) // K.shape[0])
    return max(
        float(np.abs(K[start : start + step]).sum(axis=1).max()) for start in range(0, K.shape[0], step)
    )


def _clear_upper(C: np.ndarray) -> None:
    for j in range(1, C.shape[0]):
        C[:j, j] = 0


def _factor_with_pivots(A: np.ndarray, diagonal: np.ndarray, tolerance: float) -> KernelFactor:
    """The same with diagonal pivoting, in the memory of the Fortran-ordered A."""
    pstrf = get_lapack_funcs("pstrf", (A,))
    packed, order, rank, _ = pstrf(A, lower=True, tol=tolerance, overwrite_a=True)
    order = order - 1
    rank = int(rank)
    F = np.zeros((A.shape[0], rank), dtype=A.dtype)
    F[order] = np.tril(packed[:, :rank])
    left = diagonal - np.einsum("ij,ij->i", F, F)
    worst = float(left.min())
    if worst < -np.sqrt(np.finfo(A.dtype).eps) * float(diagonal.max()):
        raise ValueError(_not_positive(worst))
    pivots = order[:rank]
    return KernelFactor(F=F, pivots=pivots, C=np.asfortranarray(F[pivots]))


def _not_positive(worst: float) -> str:
    return (
        f"The kernel matrix is not positive semidefinite (a diagonal entry becomes {worst:.3g} during elimination). "
        "Check a precomputed or callable kernel for symmetry and positive definiteness, "
        "for example with np.linalg.eigvalsh."
    )


def solve_triangular_in_place(C: np.ndarray, B: np.ndarray) -> np.ndarray:
    """B ← B C⁻ᵀ in the memory of the C-contiguous B, for the lower triangular C."""
    C = np.asfortranarray(C, dtype=B.dtype)
    if B.dtype.char in "fd" and B.flags.c_contiguous and B.size > _SMALL_BLOCK:
        tiles.divide_rows(B, C)
        return B
    trsm = get_blas_funcs("trsm", (B,))
    # Row-major B is Bᵀ for BLAS: C⁻¹ Bᵀ = (B C⁻ᵀ)ᵀ.
    return trsm(1.0, C, B.T, lower=True, overwrite_b=True).T


def mirror_lower(A: np.ndarray) -> np.ndarray:
    """Copy the lower triangle of a square array onto the upper one, in place and in tiles."""
    n, tile = A.shape[0], 128
    for start in range(0, n, tile):
        stop = min(start + tile, n)
        A[start:stop, stop:] = A[stop:, start:stop].T
        square = A[start:stop, start:stop]
        square[...] = np.tril(square) + np.tril(square, -1).T
    return A


def inverse_in_place(A: np.ndarray) -> np.ndarray:
    """The inverse of the positive definite Fortran-ordered A in its memory, both triangles filled. n³ operations.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.
    """
    factor = cholesky_in_place(A)
    if _is_large(factor):
        inverse, info = factor, tiles.inverse_from_factor(factor)
    else:
        with _in_one_thread(A.shape[0]):
            inverse, info = get_lapack_funcs("potri", (A,))(factor, lower=True, overwrite_c=True)
    if info != 0:
        raise np.linalg.LinAlgError(f"diagonal entry {info} of the factor is zero")
    return mirror_lower(inverse)


def solve_positive(A: np.ndarray, B: np.ndarray, *, overwrite_b: bool = False) -> np.ndarray:
    """A⁻¹ B for a small positive definite A, by Cholesky; by LU where rounding has made A indefinite.

    With ``overwrite_b`` the memory of a C-contiguous B may be used.
    """
    potrf, gesv = get_lapack_funcs(("potrf", "gesv"), (A, B))
    factor, info = potrf(A, lower=True)
    if info > 0:
        _, _, solution, info = gesv(A, B)
        if info > 0:
            raise np.linalg.LinAlgError(f"pivot {info} is zero")
        return solution
    # A row-major B is Bᵀ for BLAS, and Bᵀ A⁻¹ needs no copy in another layout.
    trsm = get_blas_funcs("trsm", (factor, B))
    transposed = np.ascontiguousarray(B).T
    for trans in (1, 0):
        overwrite = overwrite_b or trans == 0
        transposed = trsm(1.0, factor, transposed, side=1, lower=1, trans_a=trans, overwrite_b=overwrite)
    return transposed.T


def inverses_checked(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverses of matrices of shape (a, n, n) and their reciprocal condition numbers, 0 for singular ones."""
    if A.shape[1] == 0:
        return A, np.ones(A.shape[0])
    try:
        inverses = np.linalg.inv(A)
    except np.linalg.LinAlgError:  # one of them is exactly singular
        inverses = np.stack([_inverse_or_zero(one) for one in A])
    norms = np.abs(A).sum(axis=1).max(axis=1) * np.abs(inverses).sum(axis=1).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return inverses, np.where(np.isfinite(norms) & (norms > 0), 1.0 / norms, 0.0)


def _inverse_or_zero(A: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.inv(A)
    except np.linalg.LinAlgError:
        return np.zeros_like(A)


def solve_checked(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, float]:
    """A⁻¹ B by LU with the estimated reciprocal condition number of A (0 when A is singular)."""
    if A.shape[0] == 0:
        return B, 1.0
    getrf, gecon, getrs = get_lapack_funcs(("getrf", "gecon", "getrs"), (A, B))
    norm = float(np.abs(A).sum(axis=0).max(initial=0.0))
    factor, pivots, info = getrf(A)
    if info > 0:
        return np.zeros_like(B), 0.0
    reciprocal, _ = gecon(factor, norm)
    return getrs(factor, pivots, B)[0], float(reciprocal)
