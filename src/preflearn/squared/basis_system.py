r"""The reduced set on kernel values: (K_RM L K_MR + λ K_RR) β = K_RM b, without its features Φ = K_MR C⁻ᵀ.

Summing kernel values saves the m r² operations of the features, but the condition of the sum A is that of the features'
system (Φᵀ L Φ + λ I) w = Φᵀ b times that of K_RR = C Cᵀ, and the precision that rounding costs grows with it. It is
recovered without forming the features: by conjugate gradients on the system in w, every product through the rows of
K_MR (O(m r)), preconditioned by Cᵀ A⁻¹ C, which differs from the inverse of that system by the rounding of A alone. One
or two iterations are enough; the residual is then computed afresh, and decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from ..comparisons import Comparisons
from ..numerics.linalg import KernelFactor, cholesky_in_place, cholesky_solve, one_norm, reciprocal_condition
from .conjugate_gradients import iterate
from .holdout.base import LEAST_CONDITION
from .problem import feature_gram, gram_times, target_moment

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
