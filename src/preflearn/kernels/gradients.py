r"""Gradients of kernel expansions: ∇f(x) for f(x) = Σ_j β_j k(x, z_j), without an array of m × r × n.

With W the m × r matrix of derivatives below, every gradient is one or two products of the kernel's own shape, O(m r n):

==========  =======================================  ==========================================================
kernel      k(x, z)                                  ∇f(x_i)
==========  =======================================  ==========================================================
linear      x · z                                    Σ_j β_j z_j
poly        (γ x · z + c)^d                          Σ_j W_ij z_j,   W_ij = β_j d γ (γ x_i · z_j + c)^(d - 1)
sigmoid     tanh(γ x · z + c)                        Σ_j W_ij z_j,   W_ij = β_j γ (1 - k_ij²)
cosine      x · z / (‖x‖ ‖z‖)                        (Σ_j β_j z_j / ‖z_j‖ - f(x_i) x_i / ‖x_i‖) / ‖x_i‖
rbf         exp(-γ ‖x - z‖²)                         x_i Σ_j W_ij - Σ_j W_ij z_j,   W_ij = -2 γ β_j k_ij
laplacian   exp(-γ ‖x - z‖₁)                         -γ Σ_j β_j k_ij sign(x_i - z_j)
matern      as in `preflearn.kernels.matern`         x_i Σ_j W_ij - Σ_j W_ij z_j,   W_ij = -β_j w_ij
==========  =======================================  ==========================================================

The L1 distance of the Laplacian kernel has no derivative where a coordinate of x equals that of a basis vector: that
term is taken as 0, the mean of both sides. At x = 0 the gradient of the cosine kernel is taken as 0.

With a metric S (`Kernel.metric`) the kernel sees x S, and the chain rule multiplies the gradient by Sᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._engine.numerics.memory import require_memory
from .functions import Kernel, n_items
from .matern import matern_slopes

# Rows are taken in blocks such that a block of kernel values has at most this size.
_BLOCK_BYTES = 1 << 26


def expansion_gradient(kernel: Kernel, X: Any, basis: Any, coef: np.ndarray) -> np.ndarray:
    """The gradient of Σ_j coef_j k(x, basis_j) at every row of X.

    Parameters
    ----------
    kernel : Kernel
        One of `DIFFERENTIABLE`.
    X : ndarray or CSR matrix of shape (m, n)
    basis : ndarray or CSR matrix of shape (r, n)
    coef : ndarray of shape (r,) or (r, v)

    Returns
    -------
    ndarray of shape (m, n) or (m, n, v)

    Notes
    -----
    O(m r n v) operations, in blocks of rows: the result is the largest array.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.kernels.functions import Kernel
    >>> expansion_gradient(Kernel("rbf", gamma=0.5), np.array([[0.0], [1.0]]), np.array([[0.0]]), np.array([1.0]))
    array([[-0.        ],
           [-0.60653066]])
    """
    refuse_without_gradient(kernel)
    columns = coef[:, None] if coef.ndim == 1 else coef
    m, n, v = n_items(X), X.shape[1], columns.shape[1]
    require_memory(8 * m * n * v, f"the gradients of {m} rows with {n} features and {v} outputs")
    out = np.empty((m, n, v), dtype=np.result_type(X.dtype, np.float32))
    one_block = _BLOCKS[kernel.kernel]  # type: ignore[index]
    step = max(1, _BLOCK_BYTES // (8 * n_items(basis)))
    S = kernel.metric
    origin = None if sp.issparse(X) else kernel.origin(basis)
    seen_basis = kernel.seen(basis, origin)
    for start in range(0, m, step):
        rows = kernel.seen(X[start : start + step], origin)
        K = kernel.matrix_of_seen(rows, seen_basis)
        for k in range(v):
            gradient = one_block(kernel, rows, seen_basis, K, columns[:, k])
            out[start : start + step, :, k] = gradient if S is None else _through_metric(gradient, S)
    return out[:, :, 0] if coef.ndim == 1 else out


def refuse_without_gradient(kernel: Kernel) -> None:
    """Refuse a kernel whose gradient is not available, and name those that have one."""
    if isinstance(kernel.kernel, str) and kernel.kernel in _BLOCKS:
        return
    names = ", ".join(repr(name) for name in DIFFERENTIABLE)
    raise ValueError(f"kernel={kernel.kernel!r} has no gradient here: use one of {names}.")


def _through_metric(gradient: np.ndarray, S: np.ndarray) -> np.ndarray:
    return gradient * S if S.ndim == 1 else gradient @ S.T


def _linear(kernel: Kernel, X, Z, K, beta) -> np.ndarray:
    return np.broadcast_to(_times(beta[None, :], Z), (n_items(X), Z.shape[1]))


def _poly(kernel: Kernel, X, Z, K, beta) -> np.ndarray:
    gamma, degree = kernel.width(X.shape[1]), kernel.parameter("degree")
    if degree == 0:
        return np.zeros((n_items(X), Z.shape[1]))
    inner = gamma * _dense(X @ Z.T) + kernel.parameter("coef0")
    return _times(degree * gamma * inner ** (degree - 1) * beta, Z)


def _sigmoid(kernel: Kernel, X, Z, K, beta) -> np.ndarray:
    return _times(kernel.width(X.shape[1]) * (1.0 - K * K) * beta, Z)


def _cosine(kernel: Kernel, X, Z, K, beta) -> np.ndarray:
    norm_z = _norms(Z)
    toward = _times((beta / np.where(norm_z > 0, norm_z, 1.0))[None, :], Z)
    norm = _norms(X)[:, None]
    safe = np.where(norm > 0, norm, 1.0)
    gradient = (toward - _scaled_rows(X, (K @ beta)[:, None] / safe)) / safe
    return np.where(norm > 0, gradient, 0.0)


def _rbf(kernel: Kernel, X, Z, K, beta) -> np.ndarray:
    return _towards(X, Z, (-2.0 * kernel.width(X.shape[1])) * (K * beta))


def _matern(kernel: Kernel, X, Z, K, beta) -> np.ndarray:
    slopes = matern_slopes(
        X, Z, gamma=kernel.width(X.shape[1]), nu=(kernel.kernel_params or {}).get("nu", 0.5)
    )
    return _towards(X, Z, -slopes * beta)


def _towards(X: Any, Z: Any, W: np.ndarray) -> np.ndarray:
    """Σ_j W_ij (x_i - z_j)."""
    return _scaled_rows(X, W.sum(axis=1)[:, None]) - _times(W, Z)


def _laplacian(kernel: Kernel, X, Z, K, beta) -> np.ndarray:
    X, Z = _dense(X), _dense(Z)
    W = (-kernel.width(X.shape[1])) * (K * beta)
    gradient = np.empty_like(X)
    for feature in range(X.shape[1]):
        gradient[:, feature] = np.einsum("ij,ij->i", W, np.sign(X[:, feature, None] - Z[None, :, feature]))
    return gradient


_BLOCKS: dict[str, Callable[..., np.ndarray]] = {
    "linear": _linear,
    "poly": _poly,
    "polynomial": _poly,
    "sigmoid": _sigmoid,
    "cosine": _cosine,
    "rbf": _rbf,
    "laplacian": _laplacian,
    "matern": _matern,
}
DIFFERENTIABLE = tuple(_BLOCKS)


def _times(W: np.ndarray, Z: Any) -> np.ndarray:
    return np.asarray(W @ Z) if not sp.issparse(Z) else np.asarray((Z.T @ W.T).T)


def _dense(A: Any) -> np.ndarray:
    return A.toarray() if sp.issparse(A) else np.asarray(A)


def _scaled_rows(X: Any, scale: np.ndarray) -> np.ndarray:
    return _dense(X) * scale


def _norms(X: Any) -> np.ndarray:
    squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares, dtype=float)).ravel()
