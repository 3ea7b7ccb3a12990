"""The Hessian of few items as its own preconditioner: conjugate gradients then take a step of Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..losses.newton import Preconditioner
from ..numerics.linalg import cholesky_in_place, cholesky_solve


class ExactHessian(Preconditioner):
    """Factorises the Hessian at every step.

    Parameters
    ----------
    hessian : function
        From a loss to its dense, Fortran-ordered Hessian, which is overwritten.
    alpha : float
    """

    def __init__(self, hessian: Callable[[Any], np.ndarray], alpha: float):
        self._hessian, self._ridge = hessian, 2.0 * alpha
        self._exact: np.ndarray | None = None

    def prepare(self, loss: Any) -> None:
        H = self._hessian(loss)
        # Rounding must not make the direction in which nothing is known look negative.
        H[np.diag_indices_from(H)] += self._ridge + 1e-13 * float(H.diagonal().max(initial=0.0))
        self._exact = cholesky_in_place(H)

    def spend(self, n_products: int) -> None:
        pass

    def solve(self, r: np.ndarray) -> np.ndarray:
        assert self._exact is not None
        return cholesky_solve(self._exact, r)
