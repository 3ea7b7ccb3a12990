r"""(B + λ I)⁻¹ for several λ from one reduction B = Q A Qᵀ to a narrow band A.

The same idea as the tridiagonal form, stopped earlier: a band is reached by products of matrices alone, where half of a
reduction to tridiagonal form waits for memory. A is kept as blocks on and below the diagonal, and A + λ I = L Lᵀ is
factorised block by block; L⁻¹ V for V of n columns then takes O(n² b) operations, again in products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.linalg as la
from scipy.linalg import get_lapack_funcs
from scipy.sparse.linalg import LinearOperator, eigsh

from .problem import rounding_of_sums

# Rows of a block, and rows of the trailing matrix that are changed at a time.
_BLOCK = 64
_STRIPE = 256


class BandForm:
    """Q and A of a symmetric positive semidefinite B; serves where `TridiagonalForm` does.

    Parameters
    ----------
    B : ndarray of shape (n, n), Fortran order
        Both triangles; overwritten.

    Attributes
    ----------
    transposed : ndarray of shape (n, n), C-contiguous
        Qᵀ.
    largest : float
        The largest eigenvalue.
    """

    def __init__(self, B: np.ndarray):
        n, B = B.shape[0], B.T
        panels = [_reduce_panel(B, start) for start in range(0, n - _BLOCK, _BLOCK)]
        edges = [*range(0, n, _BLOCK), n]
        self._parts = [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]
        self._diagonal = [_symmetric(B[part, part]) for part in self._parts]
        self._below = [B[b, a].copy() for a, b in zip(self._parts, self._parts[1:], strict=False)]
        self.transposed = _transposed_product(panels, n, B)
        self._spectrum: tuple[np.ndarray, np.ndarray] | None = None

    @cached_property
    def largest(self) -> float:
        n = self.transposed.shape[0]
        if n <= 2 * _BLOCK:
            return float(np.linalg.eigvalsh(self._dense())[-1])
        band = LinearOperator((n, n), matvec=lambda v: self.multiply(v.reshape(-1, 1))[:, 0], dtype=float)
        return float(eigsh(band, 1, which="LA", v0=np.ones(n), return_eigenvectors=False)[0])

    @cached_property
    def smallest(self) -> float:
        n = self.transposed.shape[0]
        width = min(_BLOCK, n - 1)
        band = np.zeros((width + 1, n))
        dense = self._dense()
        for k in range(width + 1):
            band[k, : n - k] = np.diagonal(dense, -k)
        return float(la.eigvals_banded(band, lower=True, select="i", select_range=(0, 0))[0])

    def reciprocal_condition(self, alpha: float) -> float:
        """Of A + λ I; from below where λ alone makes it large enough."""
        bound = alpha / (self.largest + alpha)
        return bound if bound >= 2.0**-30 else (max(self.smallest, 0.0) + alpha) / (self.largest + alpha)

    def multiply(self, V: np.ndarray) -> np.ndarray:
        """A V for V of shape (n, k)."""
        out = np.empty(V.shape)
        for part, block in zip(self._parts, self._diagonal, strict=True):
            out[part] = block @ V[part]
        for a, b, block in zip(self._parts, self._parts[1:], self._below, strict=False):
            out[b] += block @ V[a]
            out[a] += block.T @ V[b]
        return out

    def inverse(self, alpha: float) -> Callable[[np.ndarray], np.ndarray]:
        """The function V → (A + λ I)⁻¹ V for V of shape (n, k), λ = alpha."""
        n = self.transposed.shape[0]
        if alpha > rounding_of_sums(n, np.dtype(float), self.largest):
            try:
                return _BlockSubstitution(self._parts, self._diagonal, self._below, alpha)
            except np.linalg.LinAlgError:
                pass
        if self._spectrum is None:
            values, vectors = np.linalg.eigh(self._dense())
            self._spectrum = np.maximum(values, 0.0), vectors
        values, vectors = self._spectrum
        factors = (1.0 / (values + alpha))[:, None]
        return lambda V: vectors @ (factors * (vectors.T @ V))

    def inverse_diagonal(self, alpha: float) -> np.ndarray:
        """The diagonal of (B + λ I)⁻¹: with A + λ I = L Lᵀ the squared lengths of the columns of L⁻¹ Qᵀ."""
        inverse = self.inverse(alpha)
        if isinstance(inverse, _BlockSubstitution):
            return inverse.squared_lengths(self.transposed)
        return np.einsum("ij,ij->j", self.transposed, inverse(self.transposed))

    def _dense(self) -> np.ndarray:
        n = self.transposed.shape[0]
        A = np.zeros((n, n))
        for part, block in zip(self._parts, self._diagonal, strict=True):
            A[part, part] = block
        for a, b, block in zip(self._parts, self._parts[1:], self._below, strict=False):
            A[b, a], A[a, b] = block, block.T
        return A


class _BlockSubstitution:
    """L of A + λ I = L Lᵀ, block by block; its diagonal blocks are kept inverted."""

    def __init__(self, parts, diagonal, below, alpha: float):
        self._parts = parts
        self._inverted: list[np.ndarray] = []
        self._below: list[np.ndarray] = []
        for number, block in enumerate(diagonal):
            shifted = block + alpha * np.eye(block.shape[0])
            if number:
                shifted -= self._below[-1] @ self._below[-1].T
            factor = np.linalg.cholesky(shifted)
            inverted = la.solve_triangular(factor, np.eye(factor.shape[0]), lower=True)
            self._inverted.append(inverted)
            if number < len(below):
                self._below.append(below[number] @ inverted.T)

    def __call__(self, V: np.ndarray) -> np.ndarray:
        out = np.empty(V.shape)
        for number, part in enumerate(self._parts):
            out[part] = self._forward(number, V[part], out[self._parts[number - 1]] if number else None)
        for number in range(len(self._parts) - 1, -1, -1):
            part = self._parts[number]
            right = out[part]
            if number + 1 < len(self._parts):
                right = right - self._below[number].T @ out[self._parts[number + 1]]
            out[part] = self._inverted[number].T @ right
        return out

    def squared_lengths(self, V: np.ndarray) -> np.ndarray:
        """The squared lengths of the columns of L⁻¹ V, with one block of temporary memory."""
        total, last = np.zeros(V.shape[1]), None
        for number, part in enumerate(self._parts):
            last = self._forward(number, V[part], last)
            total += np.einsum("ij,ij->j", last, last)
        return total

    def _forward(self, number: int, right: np.ndarray, last: np.ndarray | None) -> np.ndarray:
        if last is not None:
            right = right - self._below[number - 1] @ last
        return self._inverted[number] @ right


def _reduce_panel(B: np.ndarray, start: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Make the columns of one block zero below the next block, in place: B ← Hᵀ B H with H = I - V T Vᵀ on the rows
    from the next block on."""
    first = start + _BLOCK
    geqrf = get_lapack_funcs("geqrf", (B,))
    factor, scales, _, _ = geqrf(B[first:, start:first])
    k = scales.shape[0]
    V = np.tril(factor[:, :k], -1)
    V[np.arange(k), np.arange(k)] = 1.0
    V = np.ascontiguousarray(V)
    T = np.zeros((k, k))
    overlap = V.T @ V
    for j in range(k):
        T[:j, j] = -scales[j] * (T[:j, :j] @ overlap[:j, j])
        T[j, j] = scales[j]
    B[first:, start:first] = np.triu(factor)
    S = B[first:, first:]
    Y = S @ (V @ T)
    Z = Y - 0.5 * V @ (T.T @ (V.T @ Y))
    left, right = np.concatenate([V, Z], axis=1), np.concatenate([Z, V], axis=1).T.copy()
    for row in range(0, S.shape[0], _STRIPE):
        S[row : row + _STRIPE] -= left[row : row + _STRIPE] @ right
    return first, V, T


def _transposed_product(panels, n: int, out: np.ndarray) -> np.ndarray:
    """(H_1 H_2 ...)ᵀ in the memory of ``out``."""
    out[...] = 0.0
    np.fill_diagonal(out, 1.0)
    for first, V, T in reversed(panels):
        part = out[first:, first:]
        left, right = part @ (V @ T.T), V.T.copy()
        for row in range(0, part.shape[0], _STRIPE):
            part[row : row + _STRIPE] -= left[row : row + _STRIPE] @ right
    return out


def _symmetric(block: np.ndarray) -> np.ndarray:
    return 0.5 * (block + block.T)
