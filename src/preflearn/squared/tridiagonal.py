r"""(B + λ I)⁻¹ for every λ from one reduction B = Q T Qᵀ to tridiagonal form.

T + λ I is solved in O(n) for each right-hand side, so the eigenvectors are never needed: the reduction costs less than
the eigendecomposition (which begins with it) and works in the memory of B, where that needs two more n × n arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg as la
from scipy.linalg import get_lapack_funcs

from ..numerics.linalg import add_gram, mirror_lower, tridiagonalise_in_place
from .problem import refuse_indefinite, rounding_of_sums

# Columns that are solved for at once where all are needed.
_COLUMNS = 512


class TridiagonalForm:
    """Q and T of a symmetric positive semidefinite B.

    Parameters
    ----------
    B : ndarray of shape (n, n), Fortran order
        Read from its lower triangle; overwritten.

    Attributes
    ----------
    transposed : ndarray of shape (n, n), C-contiguous
        Qᵀ.
    smallest, largest : float
        The extreme eigenvalues of B.
    """

    def __init__(self, B: np.ndarray):
        n = B.shape[0]
        Q, self._diagonal, self._off_diagonal = tridiagonalise_in_place(B)
        self.transposed = Q.T
        self.smallest, self.largest = (
            float(la.eigvalsh_tridiagonal(self._diagonal, self._off_diagonal, "i", (k, k))[0])
            for k in (0, n - 1)
        )
        refuse_indefinite(self.smallest, self.largest)
        self._spectrum: tuple[np.ndarray, np.ndarray] | None = None

    def reciprocal_condition(self, alpha: float) -> float:
        """Of T + λ I."""
        return (max(self.smallest, 0.0) + alpha) / (self.largest + alpha)

    def multiply(self, V: np.ndarray) -> np.ndarray:
        """T V for V of shape (n, k)."""
        out = self._diagonal[:, None] * V
        out[1:] += self._off_diagonal[:, None] * V[:-1]
        out[:-1] += self._off_diagonal[:, None] * V[1:]
        return out

    def inverse(self, alpha: float) -> Callable[[np.ndarray], np.ndarray]:
        """The function V → (T + λ I)⁻¹ V for V of shape (n, k), λ = alpha."""
        n = self._diagonal.shape[0]
        if alpha > rounding_of_sums(n, np.dtype(float), self.largest) and n > 1:
            pttrf = get_lapack_funcs("pttrf", (self._diagonal,))
            pivots, multipliers, info = pttrf(self._diagonal + alpha, self._off_diagonal)
            if info == 0:
                return Substitution(pivots, multipliers)
        return self._inverse_by_spectrum(alpha)

    def explicit_inverse(self, alpha: float) -> np.ndarray:
        """(B + λ I)⁻¹ as a full symmetric matrix in Fortran order. n³ operations, two n × n arrays.

        With T + λ I = L D Lᵀ it is Wᵀ W for W = D^(-1/2) L⁻¹ Qᵀ.
        """
        from ._loops import half_of_inverse

        inverse, n = self.inverse(alpha), self.transposed.shape[0]
        if not isinstance(inverse, Substitution):
            return np.asfortranarray(self.transposed.T @ inverse(self.transposed))
        W = half_of_inverse(inverse.pivots, inverse.multipliers, self.transposed)
        return mirror_lower(add_gram(np.zeros((n, n), order="F"), W, W))

    def inverse_diagonal(self, alpha: float) -> np.ndarray:
        """The diagonal of (B + λ I)⁻¹, shape (n,); O(n²)."""
        inverse, n = self.inverse(alpha), self.transposed.shape[0]
        diagonal = np.empty(n)
        for start in range(0, n, _COLUMNS):
            some = np.ascontiguousarray(self.transposed[:, start : start + _COLUMNS])
            diagonal[start : start + _COLUMNS] = np.einsum("ij,ij->j", some, inverse(some))
        return diagonal

    def _inverse_by_spectrum(self, alpha: float) -> Callable[[np.ndarray], np.ndarray]:
        """Where λ is lost in the rounding of T, negative eigenvalues are known to be zero."""
        if self._spectrum is None:
            values, vectors = la.eigh_tridiagonal(self._diagonal, self._off_diagonal)
            self._spectrum = np.maximum(values, 0.0), vectors
        values, vectors = self._spectrum
        factors = (1.0 / (values + alpha))[:, None]
        return lambda V: vectors @ (factors * (vectors.T @ V))


class Substitution:
    """(T + λ I)⁻¹ by its factors M diag(pivots) Mᵀ."""

    def __init__(self, pivots: np.ndarray, multipliers: np.ndarray):
        self.pivots, self.multipliers = pivots, multipliers

    def __call__(self, V: np.ndarray) -> np.ndarray:
        from ._loops import solve_tridiagonal

        return solve_tridiagonal(self.pivots, self.multipliers, np.ascontiguousarray(V))
