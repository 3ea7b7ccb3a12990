r"""One side of a relation: a kernel matrix with its eigendecomposition.

For objects with kernel K,

    K = V diag(σ) Vᵀ          without comparison,
    C K C = V diag(σ) Vᵀ      where the objects are compared with each other, C = I - 1 1ᵀ / p,

with the constant vector left out of V in the second case. Dual coefficients are V times something, and predictions are
the images K V times the same: both are Vσ and V without comparison, but otherwise K V keeps the level of the
predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..numerics.linalg import eigh_in_place, unit_of
from ..numerics.memory import require_memory
from ..squared.holdout.base import rows_outside
from ..squared.problem import refuse_indefinite


@dataclass(frozen=True)
class Side:
    """A kernel of n objects and its decomposition into k modes.

    Examples
    --------
    >>> import numpy as np
    >>> side = Side.decompose(np.diag([2.0, 1.0]), compared=False)
    >>> side.values
    array([1., 2.])
    """

    # The original kernel matrix, shape (n, n).
    K: np.ndarray
    # σ, not negative, ascending, shape (k,); k is n, or n - 1 where the objects are compared.
    values: np.ndarray
    # V, orthonormal, shape (n, k); orthogonal to the constant vector where the objects are compared.
    vectors: np.ndarray
    compared: bool

    @classmethod
    def decompose(cls, K: np.ndarray, *, compared: bool) -> Side:
        """Factorise a symmetric K, which is not modified. About 9 n³ operations."""
        n = K.shape[0]
        require_memory(3 * 8 * n * n, f"the eigendecomposition of a kernel of {n} objects")
        unit = unit_of(
            float(np.abs(np.diagonal(K)).max(initial=0.0))
        )  # no square leaves the range of float64
        work = np.array(K, dtype=np.float64, order="F")
        if unit != 1.0:
            work /= unit
        if compared:
            # The constant vector gets the largest value, so that no other vector is mixed with it.
            means = work.mean(axis=0)
            work -= means
            work -= (means - means.mean())[:, None]
            work += (2 * float(np.trace(work)) or 1.0) / n
        values, vectors = eigh_in_place(work)
        if compared:
            values, vectors = values[:-1], vectors[:, :-1]
        if values.size:
            refuse_indefinite(float(values[0]), float(values[-1]))
            # Eigenvalues below the rounding of K count as zero: K v = 0 for such a vector, for new objects too.
            values[values <= n * np.finfo(float).eps * values[-1]] = 0.0
        return cls(K, values * unit, vectors, compared)

    @property
    def n(self) -> int:
        """Number of objects."""
        return self.K.shape[0]

    @property
    def largest(self) -> float:
        return float(self.values[-1]) if self.values.size else 0.0

    def images(self) -> np.ndarray:
        """K V: predictions at the objects from coefficients of the modes, shape (n, k)."""
        return self.images_of(self.K) if self.compared else self.vectors * self.values

    def images_of(self, K: np.ndarray) -> np.ndarray:
        """The same for rows of kernel values of any objects, shape (m, n) to (m, k)."""
        images = K @ self.vectors
        images[:, self.values == 0] = 0.0
        return images

    def without(self, left: np.ndarray) -> tuple[Side, np.ndarray]:
        """The side trained without some objects, and the images of those: K[left, rest] V, shape (len(left), k)."""
        rest = rows_outside(self.n, left)
        if rest.shape[0] == 0:
            raise ValueError("A fold holds out every object of one side: nothing is left to train on.")
        side = Side.decompose(self.K[np.ix_(rest, rest)], compared=self.compared)
        return side, side.images_of(self.K[np.ix_(left, rest)])
