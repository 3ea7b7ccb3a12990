r"""Expansions of the RBF kernel, f(x) = Σ_j β_j exp(-γ |x - z_j|²), for many rows x.

In units in which the exponent is -|x - z|² / 2 and relative to a row in the middle of the basis vectors z,

    f(x) = Σ_j β_j exp(x · z_j - |x|²/2 - |z_j|²/2),

so that a row costs one matrix product, which takes the time, and one sum of exponentials. Both are one loop
(`_loops.expansions`).

The product in single precision takes half of the time. Its rounding is blown up by coefficients that cancel each other:
f is often a thousandth of Σ_j |β_j|. But it is relative to the products, so it can be had where these are small. The
kernel does not see a rotation. After one to the principal axes of the basis vectors a few leading coordinates hold most
of x · z, and are multiplied in double precision; the many others, as x' and z', in single precision. Their rounding
errors are independent of each other, about u |x'| |z'_j| with u = 2⁻²⁴, so f(x) is off by about

    u |x'| √(Σ_j (β_j k(x, z_j) |z'_j|)²).

The exponentials are then quicker, too, with a relative error of up to 6e-11 each, which coefficients that cancel blow
up as well. The number of leading coordinates is the smallest for which the largest of both errors together, over some
of the basis vectors as x, is below a given share of the standard deviation of f; where there is none, all is in double
precision. What is done in double precision is exact to rounding.
"""

from __future__ import annotations

import numpy as np

from ._loops.expansions import PackedExpansion, packed, rough_errors
from .functions import Kernel
from .rows import middle_row

# Rows farther than this from all basis vectors have kernel values of 0: exp(-40²/2).
_FAR = 40.0
# Basis vectors at which the rounding is estimated, and as many that are farthest out.
_SAMPLE = 128
# Share of coordinates in double precision beyond which single precision of the others is not worth a second product.
_MOST_LEADING = 0.6
# Numbers of the basis vectors from which single precision is worth its trouble, and coordinates for each basis vector
# beyond which the rotation costs too much.
_LEAST_NUMBERS, _MOST_COORDINATES = 1 << 16, 0.25
_ROUNDING = 2.0**-24
# Multiplications that an exponential takes as long as.
_OF_EXPONENTIAL = 8


class RbfExpansion:
    """f(x) = Σ_j β_j k(x, z_j), with everything prepared that does not depend on x.

    Parameters
    ----------
    kernel : Kernel
        RBF with its width as a number; with or without a metric.
    basis : float64 array of shape (r, n)
        z.
    coefficients : float64 array of shape (r,)
        β.
    tolerance : float, default=0
        Error that single precision may make, relative to the standard deviation of f; 0 is double precision throughout.

    Attributes
    ----------
    n_leading : int or None
        Coordinates whose products are in double precision; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.kernels.functions import Kernel
    >>> z, beta = np.array([[0.0], [1.0]]), np.array([2.0, -1.0])
    >>> f = RbfExpansion(Kernel("rbf", gamma=0.5), z, beta)
    >>> np.allclose(f(z), [2 - np.exp(-0.5), 2 * np.exp(-0.5) - 1])
    True
    """

    def __init__(
        self, kernel: Kernel, basis: np.ndarray, coefficients: np.ndarray, tolerance: float = 0.0
    ) -> None:
        S = kernel.metric
        scale = (2.0 * kernel.width(basis.shape[1] if S is None else S.shape[-1])) ** 0.5
        factors = np.full(basis.shape[1], scale) if S is None else scale * S
        self._n_features = basis.shape[1]
        used = np.arange(basis.shape[1])
        if factors.ndim == 1 and not factors.all():
            used = np.flatnonzero(factors)
            factors, basis = factors[used], basis[:, used]
        middle = middle_row(basis)
        self._beta = np.ascontiguousarray(coefficients)
        z = _times(basis - middle, factors)
        self._basis_squares = 0.5 * np.einsum("jk,jk->j", z, z)
        self.n_leading = None
        if tolerance > 0 and z.size >= _LEAST_NUMBERS and z.shape[1] <= _MOST_COORDINATES * z.shape[0]:
            axes = _principal_axes(z)
            self.n_leading = self._fewest_leading(z @ axes, tolerance)
        if self.n_leading is not None:
            # The sum in single precision begins with its smallest terms.
            axes[:, self.n_leading :] = axes[:, : self.n_leading - 1 : -1]
            z = z @ axes
        # Rows are scaled, then turned where there are directions.
        turn: np.ndarray | None = None if factors.ndim == 1 else factors
        if self.n_leading is not None:
            turn = axes if turn is None else turn @ axes
        # With the squares as two more coordinates the product is the exponent: [x, -|x|²/2, 1] · [z, 1, -|z|²/2].
        leading, ones = z[:, : self.n_leading], np.ones((z.shape[0], 1))
        self._packed = PackedExpansion(
            used,
            middle,
            factors if factors.ndim == 1 else np.ones(used.shape[0]),
            None if turn is None else packed(turn),
            z.shape[1],
            packed(np.hstack([leading, ones, -self._basis_squares[:, None]]).T),
            packed(z[:, leading.shape[1] :].astype(np.float32).T),
            packed(self._beta[None])[:, 0],
            0.5 * (np.sqrt(2.0 * self._basis_squares.max()) + _FAR) ** 2,
        )

    @property
    def work(self) -> int:
        """Multiplications in double precision that a row takes as long as."""
        n_double, n_single = self._packed.leading.shape[1], self._packed.rest.shape[1]
        return self._beta.shape[0] * (_OF_EXPONENTIAL + n_double + n_single // 2)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """f of the rows of a float64 array of shape (m, n), by this thread. O(m r n)."""
        if rows.shape[1] != self._n_features:
            raise ValueError(f"found rows of {rows.shape[1]} features, expected {self._n_features}.")
        return self._packed(rows)

    def _fewest_leading(self, z: np.ndarray, tolerance: float) -> int | None:
        """The number of coordinates in double precision that keeps the error small; None where it is large."""
        # Some spread over all of them, and those that are farthest out, where products are largest.
        spread = np.arange(0, z.shape[0], -(-z.shape[0] // _SAMPLE))
        farthest = np.argsort(-self._basis_squares, kind="stable")[:_SAMPLE]
        x = z[np.r_[spread, farthest]]
        exponents = x @ z.T - 0.5 * np.einsum("ik,ik->i", x, x)[:, None] - self._basis_squares
        terms = np.exp(np.minimum(exponents, 0.0)) * self._beta
        allowed = tolerance * float(np.std(terms[: spread.shape[0]].sum(axis=1)))
        # |x'|² and |z'|² for every number of leading coordinates, from the last to the first.
        x_squares, z_squares = (np.cumsum((one * one)[:, ::-1], axis=1)[:, ::-1] for one in (x, z))
        errors = _ROUNDING * np.sqrt(x_squares * (np.square(terms) @ z_squares)).max(axis=0)
        of_exponentials = np.abs(rough_errors(np.minimum(exponents, 0.0)) @ self._beta).max()
        small = np.flatnonzero(np.hypot(errors, of_exponentials) <= allowed)
        if not small.size or small[0] > _MOST_LEADING * z.shape[1]:
            return None
        return max(1, int(small[0]))


def _times(rows: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return rows * factors if factors.ndim == 1 else rows @ factors


def _principal_axes(z: np.ndarray) -> np.ndarray:
    """Orthogonal directions, those in which the rows are large first, as columns; shape (n, n)."""
    return np.ascontiguousarray(np.linalg.eigh(z.T @ z)[1][:, ::-1])
