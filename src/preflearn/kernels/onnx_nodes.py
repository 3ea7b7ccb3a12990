"""Kernels and expansions of them as recorded operators (`numerics.graph`), for `preflearn.io.to_onnx`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .._engine.numerics.graph import ExportError, Graph, Value
from .functions import Kernel, middle_row

# Half of the square of a basis vector, in units of the kernel, whose rounding is worth a bound.
_HUGE = 1e6


def kernel_nodes(graph: Graph, kernel: Any, X: Value, basis: Any, basis_indices: np.ndarray) -> Value:
    """k(x, z) between the recorded rows and the basis vectors, shape (m, r).

    Kernels of differences (laplacian, chi2) form an array of m × r × n numbers.

    Raises
    ------
    ExportError
        For callables and kernels that identify items by their labels.
    """
    if not isinstance(kernel, Kernel):
        raise ExportError(
            "Kernels that identify items (kernel='items', item_offsets) have no counterpart in ONNX, which "
            "sees only features: fit without them to export."
        )
    if kernel.is_precomputed:
        return graph.columns(X, basis_indices)
    if callable(kernel.kernel):
        raise ExportError("A callable kernel is Python code and cannot be exported: choose a named kernel.")
    if kernel.kernel == "rbf":
        return _rbf(graph, kernel, X, _dense(basis))
    origin = kernel.origin(basis)
    X = X if origin is None else X - np.asarray(origin, dtype=np.float64)
    X, Z = _with_metric(kernel, X), _dense(kernel.seen(basis, origin))
    return _BLOCKS[kernel.kernel](kernel, X, Z)


def linear_nodes(X: Value, coef: np.ndarray) -> Value:
    """X w, shape (m,) or (m, v)."""
    weights = np.asarray(coef, dtype=np.float64)
    return products_nodes(X, weights if weights.ndim == 1 else weights.T)


def products_nodes(X: Value, weights: np.ndarray) -> Value:
    """X w for a vector or a matrix. As a matrix of one column, a vector takes onnxruntime an eighth of the time."""
    return X @ weights if weights.ndim == 2 else (X @ weights[:, None]).without_axis(1)


def _with_metric(kernel: Kernel, X: Value) -> Value:
    if kernel.metric is None:
        return X
    return X * kernel.metric if kernel.metric.ndim == 1 else X @ kernel.metric


def _dense(Z: Any) -> np.ndarray:
    return np.asarray(Z.toarray() if sp.issparse(Z) else Z, dtype=np.float64)


def _squares(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    """|x - z|², relative to the middle of the basis so that large means cost no precision."""
    centre = middle_row(Z)
    x, z = X - centre, Z - centre
    squares = (x * x).reduce("Sum", 1)
    return (squares + (z * z).sum(axis=1) - (x @ z.T) * 2.0).at_least(0.0)


def _products(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    """γ x · z + c."""
    return X @ (kernel.width(Z.shape[1]) * Z.T) + float(kernel.parameter("coef0"))


def _rbf(graph: Graph, kernel: Kernel, X: Value, basis: np.ndarray) -> Value:
    """exp(x · z - |x|²/2 - |z|²/2) in suitable units, with as few passes over all values as there can be."""
    S = np.ones(basis.shape[1]) if kernel.metric is None else kernel.metric
    if S.ndim == 1 and not S.all() and S.any():
        used = np.flatnonzero(S)
        X, basis, S = graph.columns(X, used), basis[:, used], S[used]
    middle = middle_row(basis)
    width = basis.shape[1] if kernel.metric is None else kernel.metric.shape[-1]
    factors = S * (2.0 * kernel.width(width)) ** 0.5
    moved, z = X - middle, basis - middle
    x, z = (moved * factors, z * factors) if S.ndim == 1 else (moved @ factors, z @ factors)
    squares = -0.5 * (z * z).sum(axis=1)
    left = graph.concatenate([x, (x * x).reduce("Sum", 1) * -0.5])
    right = np.concatenate([z.T, np.ones((1, z.shape[0]))])
    exponents = graph.apply("Gemm", left, right, squares)
    # Only rounding beside huge basis vectors makes a kernel value of more than 1 by more than rounding.
    return (exponents.at_most(0.0) if squares.min() < -_HUGE else exponents).exp()


def _laplacian(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    distances = (X.with_axis(1) - Z[None]).abs().reduce("Sum", 2, keep=False)
    return (distances * -kernel.width(Z.shape[1])).exp()


def _matern(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    nu = float((kernel.kernel_params or {}).get("nu", 0.5))
    d = _squares(kernel, X, Z).sqrt() * (kernel.width(Z.shape[1]) * (2.0 * nu) ** 0.5)
    exponential = (d * -1.0).exp()
    if nu == 0.5:
        return exponential
    return (d + 1.0 if nu == 1.5 else d * d * (1.0 / 3.0) + d + 1.0) * exponential


def _poly(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    return _products(kernel, X, Z) ** float(kernel.parameter("degree"))


def _sigmoid(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    return X.graph.apply("Tanh", _products(kernel, X, Z))


def _cosine(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    norms = (X * X).reduce("Sum", 1).sqrt()
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    return (X / X.graph.where(norms.equal(0.0), 1.0, norms)) @ (Z / np.where(lengths == 0, 1.0, lengths)).T


def _additive_chi2(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    x = X.with_axis(1)
    total, difference = x + Z[None], x - Z[None]
    parts = difference * difference / X.graph.where(total.equal(0.0), 1.0, total)
    return -parts.reduce("Sum", 2, keep=False)


def _chi2(kernel: Kernel, X: Value, Z: np.ndarray) -> Value:
    gamma = kernel.parameter("gamma")
    return (_additive_chi2(kernel, X, Z) * (1.0 if gamma is None else float(gamma))).exp()


_BLOCKS = {
    "additive_chi2": _additive_chi2,
    "chi2": _chi2,
    "cosine": _cosine,
    "laplacian": _laplacian,
    "linear": lambda kernel, X, Z: X @ Z.T,
    "matern": _matern,
    "poly": _poly,
    "polynomial": _poly,
    "sigmoid": _sigmoid,
}
