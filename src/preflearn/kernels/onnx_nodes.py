"""Kernels and expansions of them as recorded operators (`numerics.graph`), for `preflearn.io.to_onnx`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.onnx_graph import ExportError, Graph, Value
from .functions import Kernel, dense


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
    if kernel.function is None or kernel.function.nodes is None:
        raise ExportError(
            f"kernel={kernel.kernel!r} has no counterpart in ONNX: choose another kernel to export."
        )
    Z, S = dense(basis).astype(np.float64, copy=False), kernel.metric
    if S is not None and S.ndim == 1 and S.any() and not S.all():
        used = np.flatnonzero(S)
        kernel, X, Z = kernel.of_columns(used), graph.columns(X, used), Z[:, used]
    origin = kernel.origin(Z)
    if origin is not None:
        X = X - origin
    if kernel.metric is not None:
        X = X * kernel.metric if kernel.metric.ndim == 1 else X @ kernel.metric
    return kernel.function.nodes(kernel, X, kernel.seen(Z, origin))


def linear_nodes(X: Value, coef: np.ndarray) -> Value:
    """X w, shape (m,) or (m, v)."""
    weights = np.asarray(coef, dtype=np.float64)
    return products_nodes(X, weights if weights.ndim == 1 else weights.T)


def products_nodes(X: Value, weights: np.ndarray) -> Value:
    """X w for a vector or a matrix. As a matrix of one column, a vector takes onnxruntime an eighth of the time."""
    return X @ weights if weights.ndim == 2 else (X @ weights[:, None]).without_axis(1)
