r"""(B + λ I)⁻¹ for several λ from one reduction B = Q A Qᵀ to a narrow band A.

The idea is that of the tridiagonal form, stopped earlier: products of matrices alone lead to a band, whereas half of a
reduction to tridiagonal form is bound by memory. A is kept as blocks on and below the diagonal, and A + λ I = L Lᵀ is
factorised block by block; L⁻¹ V for V of n columns then takes O(n² b) operations, again in products.

Whether that pays depends on n: on two busy cores one reduction and the diagonals of 31 inverses took 0.54 of the time
of the tridiagonal form for n = 4,000 (``python benchmarks/core.py --only band_form``), and about as long for n up to
3,000.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.linalg as la
from scipy.linalg import get_lapack_funcs
from scipy.sparse.linalg import LinearOperator, eigsh

from ..loops.threads import blas_at_rest, in_turns
from .problem import rounding_of_sums

# Rows of a block, and rows (or columns) of a large matrix that one thread works on at a time.
_BLOCK = 64
_STRIPE = 256


class BandForm:
    """Q and A of a symmetric positive semidefinite B; usable wherever `TridiagonalForm` is.

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
        with blas_at_rest():  # our own threads take the stripes
            panels = [_reduce_panel(B, start) for start in range(0, n - _BLOCK, _BLOCK)]
        edges = [*range(0, n, _BLOCK), n]
        self._parts = [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]
        self._diagonal = [_symmetric(B[part, part]) for part in self._parts]
        self._below = [B[b, a].copy() for a, b in zip(self._parts, self._parts[1:], strict=False)]
        with blas_at_rest():
            self.transposed = _transposed_product(panels, n, B)
        self._spectrum: tuple[np.ndarray, np.ndarray] | None = None
        self._factorised: tuple[float, _BlockSubstitution] | None = None

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
        """Of A + λ I; a lower bound where λ alone makes it large enough."""
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
            if self._factorised is not None and self._factorised[0] == alpha:
                return self._factorised[1]
            try:
                found = _BlockSubstitution(self._parts, self._diagonal, self._below, alpha)
            except np.linalg.LinAlgError:
                pass
            else:
                self._factorised = alpha, found
                return found
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
        with blas_at_rest():
            self._factorise(diagonal, below, alpha)

    def _factorise(self, diagonal, below, alpha: float) -> None:
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
        """The squared lengths of the columns of L⁻¹ V, with one block of some columns as temporary memory."""
        total = np.zeros(V.shape[1])

        def add(first: int) -> None:
            columns, last = slice(first, first + _STRIPE), None
            for number, part in enumerate(self._parts):
                last = self._forward(number, V[part, columns], last)
                total[columns] += np.einsum("ij,ij->j", last, last)

        _by_stripes(add, V.shape[1])
        return total

    def _forward(self, number: int, right: np.ndarray, last: np.ndarray | None) -> np.ndarray:
        if last is not None:
            right = right - self._below[number - 1] @ last
        return self._inverted[number] @ right


def _reduce_panel(B: np.ndarray, start: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Zero the columns of one block below the next block, in place: B ← Hᵀ B H with H = I - V T Vᵀ on the rows from the
    next block on."""
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
    Y = _product(S, V @ T)
    Z = Y - 0.5 * V @ (T.T @ (V.T @ Y))
    _subtract_product(S, np.concatenate([V, Z], axis=1), np.concatenate([Z, V], axis=1).T.copy())
    return first, V, T


def _transposed_product(panels, n: int, out: np.ndarray) -> np.ndarray:
    """(H_1 H_2 ...)ᵀ in the memory of ``out``."""
    out[...] = 0.0
    np.fill_diagonal(out, 1.0)
    for first, V, T in reversed(panels):
        part = out[first:, first:]
        _subtract_product(part, _product(part, V @ T.T), V.T.copy())
    return out


def _product(S: np.ndarray, right: np.ndarray) -> np.ndarray:
    out = np.empty((S.shape[0], right.shape[1]))

    def multiply(row: int) -> None:
        np.matmul(S[row : row + _STRIPE], right, out=out[row : row + _STRIPE])

    _by_stripes(multiply, S.shape[0])
    return out


def _subtract_product(S: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """S ← S - left right."""

    def subtract(row: int) -> None:
        S[row : row + _STRIPE] -= left[row : row + _STRIPE] @ right

    _by_stripes(subtract, S.shape[0])


def _by_stripes(work: Callable[[int], None], size: int) -> None:
    """Run ``work`` on each stripe in our own threads: those of BLAS would wait for each other in each of many small
    products."""
    with blas_at_rest():
        in_turns(work, [(first,) for first in range(0, size, _STRIPE)])


def _symmetric(block: np.ndarray) -> np.ndarray:
    return 0.5 * (block + block.T)
