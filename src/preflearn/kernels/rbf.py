r"""The RBF kernel of dense rows as one matrix product and one exponential:

    exp(-γ |x - z|²) = exp([√(2γ) x, -γ |x|², 1] · [√(2γ) z, 1, -γ |z|²]),

with x and z taken relative to a row in their middle, so that large means cost no precision. NumPy arrays and arrays of
other libraries on their devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class RbfProducts:
    """Kernel values between changing rows x and fixed rows z, for which everything that depends on z is prepared.

    Parameters
    ----------
    rows : array of shape (r, n)
        z.
    centre : array of shape (n,)
        A row in their middle.
    gamma : float
    xp : module
        NumPy, or the array API namespace of ``rows``.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.array([[0.0], [1.0]])
    >>> np.allclose(RbfProducts(z, z.mean(axis=0), 0.5)(z)[0], [1.0, np.exp(-0.5)])
    True
    """

    def __init__(self, rows: Any, centre: Any, gamma: float, xp: Any = np) -> None:
        self._centre, self._gamma, self._xp = centre, gamma, xp
        z = rows - centre
        squares = -gamma * xp.sum(z * z, axis=1, keepdims=True)
        self._right = xp.concat([z * (2 * gamma) ** 0.5, xp.ones_like(squares), squares], axis=1)

    @property
    def width(self) -> int:
        """r."""
        return int(self._right.shape[0])

    @property
    def dtype(self) -> Any:
        return self._right.dtype

    def __call__(self, rows: Any, out: Any = None) -> Any:
        """Values with all z, shape (b, r); with ``out`` (NumPy) of shape (b, k), with the first k, in its memory."""
        xp = self._xp
        x = rows - self._centre
        squares = -self._gamma * xp.sum(x * x, axis=1, keepdims=True)
        x = xp.concat([x * (2 * self._gamma) ** 0.5, squares, xp.ones_like(squares)], axis=1)
        if out is None:
            products = x @ self._right.T
        else:
            products = np.matmul(x, self._right[: out.shape[1]].T, out=out)
        # With huge features, rounding must not produce a kernel value above 1.
        return exp_in_place(_at_most_zero(products, xp), xp)


def expansion_slopes(K: Any, x: Any, z: Any, beta: Any, gamma: float, xp: Any) -> Any:
    """∇f at the rows x for f = Σ_j β_j k(·, z_j), shape (b, n).

    It is x_i Σ_j W_ij - Σ_j W_ij z_j with W_ij = -2 γ β_j k_ij.
    """
    W = (-2.0 * gamma) * (K * beta[None, :])
    return x * xp.sum(W, axis=1, keepdims=True) - W @ z


def _at_most_zero(values: Any, xp: Any) -> Any:
    """min(value, 0) of every entry, in the memory of ``values`` where the library allows it."""
    if xp is np:
        return np.minimum(values, 0.0, out=values)
    if hasattr(values, "clamp_"):  # PyTorch
        return values.clamp_(max=0.0)
    return xp.minimum(values, xp.zeros_like(values[:1, :1]))


def exp_in_place(values: Any, xp: Any) -> Any:
    """exp of every entry, in the memory of ``values`` where the library allows it."""
    if xp is np:
        return np.exp(values, out=values)
    if hasattr(values, "exp_"):  # PyTorch
        return values.exp_()
    return xp.exp(values)
