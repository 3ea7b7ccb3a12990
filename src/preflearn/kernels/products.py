"""Kernels of inner products (linear, polynomial, sigmoid, cosine), and those of histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .functions import dense, n_items, sparse_products, weighted_rows
from .registry import KernelFunction, register_kernel


@register_kernel
class Linear(KernelFunction):
    names = ("linear",)

    def matrix(self, kernel, X, Z=None):
        return sparse_products(X, Z) if sp.issparse(X) else super().matrix(kernel, X, Z)

    def block(self, kernel, Z, n_features, xp):
        return lambda rows: rows @ Z.T

    def gradient(self, kernel, X, Z, K, beta):
        return np.broadcast_to(weighted_rows(beta[None, :], Z), (n_items(X), Z.shape[1]))

    def nodes(self, kernel, X, Z):
        return X @ Z.T


@register_kernel
class Polynomial(KernelFunction):
    """(γ x · z + c)^d."""

    names = ("poly", "polynomial")
    parameters = {"gamma": None, "degree": 3, "coef0": 1}

    def block(self, kernel, Z, n_features, xp):
        gamma, constant, degree = (
            kernel.width(n_features),
            float(kernel.parameter("coef0")),
            kernel.parameter("degree"),
        )

        def values(rows: Any) -> Any:
            inner = rows @ Z.T
            inner *= gamma
            inner += constant
            if degree != int(degree) or not 1 <= degree <= 4:
                return inner**degree
            power = inner
            for _ in range(int(degree) - 1):  # products are faster, and exact for negative numbers
                power = power * inner
            return power

        return values

    def gradient(self, kernel, X, Z, K, beta):
        gamma, degree = kernel.width(X.shape[1]), kernel.parameter("degree")
        if degree == 0:
            return np.zeros((n_items(X), Z.shape[1]))
        inner = gamma * dense(X @ Z.T) + kernel.parameter("coef0")
        return weighted_rows(degree * gamma * inner ** (degree - 1) * beta, Z)

    def nodes(self, kernel, X, Z):
        return _inner_nodes(kernel, X, Z) ** float(kernel.parameter("degree"))


@register_kernel
class Sigmoid(KernelFunction):
    """tanh(γ x · z + c)."""

    names = ("sigmoid",)
    parameters = {"gamma": None, "coef0": 1}

    def gradient(self, kernel, X, Z, K, beta):
        return weighted_rows(kernel.width(X.shape[1]) * (1.0 - K * K) * beta, Z)

    def nodes(self, kernel, X, Z):
        return X.graph.apply("Tanh", _inner_nodes(kernel, X, Z))


@register_kernel
class Cosine(KernelFunction):
    """x · z / (‖x‖ ‖z‖); at x = 0 the gradient is taken as 0."""

    names = ("cosine",)

    def gradient(self, kernel, X, Z, K, beta):
        norm_z = _norms(Z)
        toward = weighted_rows((beta / np.where(norm_z > 0, norm_z, 1.0))[None, :], Z)
        norm = _norms(X)[:, None]
        safe = np.where(norm > 0, norm, 1.0)
        gradient = (toward - dense(X) * ((K @ beta)[:, None] / safe)) / safe
        return np.where(norm > 0, gradient, 0.0)

    def nodes(self, kernel, X, Z):
        norms = (X * X).reduce("Sum", 1).sqrt()
        lengths = np.linalg.norm(Z, axis=1, keepdims=True)
        return (X / X.graph.where(norms.equal(0.0), 1.0, norms)) @ (
            Z / np.where(lengths == 0, 1.0, lengths)
        ).T


@register_kernel
class AdditiveChi2(KernelFunction):
    """-Σ (x - z)² / (x + z)."""

    names = ("additive_chi2",)

    def nodes(self, kernel, X, Z):
        x = X.with_axis(1)
        total, difference = x + Z[None], x - Z[None]
        parts = difference * difference / X.graph.where(total.equal(0.0), 1.0, total)
        return -parts.reduce("Sum", 2, keep=False)


@register_kernel
class Chi2(AdditiveChi2):
    """exp(γ times the additive kernel)."""

    names = ("chi2",)
    parameters = {"gamma": None}

    def nodes(self, kernel, X, Z):
        gamma = kernel.parameter("gamma")
        return (super().nodes(kernel, X, Z) * (1.0 if gamma is None else float(gamma))).exp()


def _inner_nodes(kernel, X, Z):
    """γ x · z + c."""
    return X @ (kernel.width(Z.shape[1]) * Z.T) + float(kernel.parameter("coef0"))


def _norms(X: Any) -> np.ndarray:
    squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares, dtype=float)).ravel()
