r"""Kernels of a distance between rows: RBF, Laplacian and Matérn.

The RBF kernel of dense rows is one matrix product and one exponential,

    exp(-γ |x - z|²) = exp([√(2γ) x, -γ |x|², 1] · [√(2γ) z, 1, -γ |z|²]),

with x and z taken relative to a row in their middle, so that large means cost no precision; for NumPy arrays and
arrays of other libraries on their devices.

The Matérn kernels are functions of the Euclidean distance that are rougher. With d = γ ‖x - z‖,

====  =================================================  ==========================================
ν     k(x, z)                                            ∇_x k(x, z) = -w (x - z), w as follows
====  =================================================  ==========================================
1/2   exp(-d)                                            γ² exp(-d) / d
3/2   (1 + √3 d) exp(-√3 d)                              3 γ² exp(-√3 d)
5/2   (1 + √5 d + 5 d² / 3) exp(-√5 d)                   5/3 γ² (1 + √5 d) exp(-√5 d)
====  =================================================  ==========================================

ν = 1/2 has a kink at x = z, where its gradient is taken as 0. Unlike the Laplacian kernel, whose distance is L1, they
do not depend on the axes, so that a learned metric may rotate them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.extmath import row_norms

from .functions import dense, middle_row, weighted_differences
from .registry import KernelFunction, register_kernel

_SMOOTHNESS = (0.5, 1.5, 2.5)
_ROUNDING = 8 * np.finfo(np.float64).eps
# Half of the square of a basis vector, in units of the kernel, whose rounding is worth a bound.
_HUGE = 1e6


@register_kernel
class RBF(KernelFunction):
    """exp(-γ ‖x - z‖²)."""

    names = ("rbf",)
    parameters = {"gamma": None}
    distance = "squared"

    def block(self, kernel, Z, n_features, xp):
        centre = middle_row(Z) if xp is np else xp.mean(Z, axis=0)
        return RbfProducts(Z, centre, kernel.width(n_features), xp)

    def gradient(self, kernel, X, Z, K, beta):
        return weighted_differences(X, Z, (-2.0 * kernel.width(X.shape[1])) * (K * beta))

    def nodes(self, kernel, X, Z):
        """exp(x · z - |x|²/2 - |z|²/2) in suitable units, with as few passes over all values as there can be."""
        graph, middle, unit = X.graph, middle_row(Z), (2.0 * kernel.width(Z.shape[1])) ** 0.5
        x, z = (X - middle) * unit, (Z - middle) * unit
        squares = -0.5 * (z * z).sum(axis=1)
        left = graph.concatenate([x, (x * x).reduce("Sum", 1) * -0.5])
        right = np.concatenate([z.T, np.ones((1, z.shape[0]))])
        exponents = graph.apply("Gemm", left, right, squares)
        # Only rounding beside huge basis vectors makes a kernel value of more than 1 by more than rounding.
        return (exponents.at_most(0.0) if squares.min() < -_HUGE else exponents).exp()


@register_kernel
class Laplacian(KernelFunction):
    """exp(-γ ‖x - z‖₁). Where coordinates of x and z are equal the derivative is taken as 0, the mean of both sides."""

    names = ("laplacian",)
    parameters = {"gamma": None}
    distance = "absolute"

    def matrix(self, kernel, X, Z=None):
        return super().matrix(kernel, _short_indices(X), _short_indices(Z))

    def gradient(self, kernel, X, Z, K, beta):
        X, Z = dense(X), dense(Z)
        W = (-kernel.width(X.shape[1])) * (K * beta)
        gradient = np.empty_like(X)
        for feature in range(X.shape[1]):
            gradient[:, feature] = np.einsum(
                "ij,ij->i", W, np.sign(X[:, feature, None] - Z[None, :, feature])
            )
        return gradient

    def nodes(self, kernel, X, Z):
        distances = (X.with_axis(1) - Z[None]).abs().reduce("Sum", 2, keep=False)
        return (distances * -kernel.width(Z.shape[1])).exp()


@register_kernel
class Matern(KernelFunction):
    """The table above."""

    names = ("matern",)
    parameters = {"gamma": None, "nu": 0.5}
    distance = "euclidean"

    def check(self, arguments):
        if arguments.get("nu", 0.5) not in _SMOOTHNESS:
            raise ValueError(
                f"nu of kernel='matern' must be one of {', '.join(map(str, _SMOOTHNESS))}: found {arguments['nu']!r}."
            )

    def matrix(self, kernel, X, Z=None):
        d, nu = _scaled_distances(kernel, X, Z), kernel.parameter("nu")
        exponential = np.exp(-d)
        if nu == 0.5:
            return exponential
        polynomial = 1.0 + d if nu == 1.5 else 1.0 + d + d * d / 3.0
        return polynomial * exponential

    def gradient(self, kernel, X, Z, K, beta):
        d, nu, gamma = _scaled_distances(kernel, X, Z), kernel.parameter("nu"), kernel.width(X.shape[1])
        slopes = np.exp(-d)
        if nu == 0.5:
            slopes = gamma**2 * np.divide(slopes, d, out=np.zeros_like(d), where=d > 0)
        elif nu == 1.5:
            slopes = 3.0 * gamma**2 * slopes
        else:
            slopes = 5.0 / 3.0 * gamma**2 * (1.0 + d) * slopes
        return weighted_differences(X, Z, -slopes * beta)

    def nodes(self, kernel, X, Z):
        nu, centre = float(kernel.parameter("nu")), middle_row(Z)  # large means must not cost precision
        x, z = X - centre, Z - centre
        squares = ((x * x).reduce("Sum", 1) + (z * z).sum(axis=1) - (x @ z.T) * 2.0).at_least(0.0)
        d = squares.sqrt() * (kernel.width(Z.shape[1]) * (2.0 * nu) ** 0.5)
        exponential = (d * -1.0).exp()
        if nu == 0.5:
            return exponential
        return (d + 1.0 if nu == 1.5 else d * d * (1.0 / 3.0) + d + 1.0) * exponential


def _scaled_distances(kernel: Any, X: Any, Z: Any) -> np.ndarray:
    """√(2ν) γ ‖x - z‖, the argument of all exponentials.

    Squared distances are differences of squares: one that does not exceed their rounding belongs to equal rows, and its
    square root would have lost half of its precision.
    """
    d = euclidean_distances(X, Z, squared=True)
    squares = row_norms(X, squared=True)
    others = squares if Z is None else row_norms(Z, squared=True)
    d[d <= _ROUNDING * (squares[:, None] + others[None, :])] = 0.0
    np.sqrt(d, out=d)
    d *= kernel.width(X.shape[1]) * np.sqrt(2.0 * kernel.parameter("nu"))
    return d


def _short_indices(X: Any) -> Any:
    """The same sparse rows with 32-bit indices, the only ones that scikit-learn's sparse L1 distance takes."""
    if not sp.issparse(X) or X.indices.dtype == np.int32 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    short = sp.csr_array(X.shape, dtype=X.dtype)
    short.data, short.indices, short.indptr = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return short


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
