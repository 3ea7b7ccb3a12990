r"""Weights of a sum of kernels, K = Σ_k w_k K_k with w_k >= 0 and Σ_k w_k = 1.

Every kernel first gets the same size, trace(C K C) / m = 1 with the centring C, so that weights can be compared.

* *Alignment*: the weights whose sum has the largest cosine with the kernel F Fᵀ of the labels,
  max ⟨K, F Fᵀ⟩ / ‖K‖, which is a small problem of nonnegative least squares: min wᵀ M w - 2 wᵀ b with
  M_kl = ⟨K_k, K_l⟩ and b_k = ⟨K_k, F Fᵀ⟩.
* *Cross-validation*: the weights with the best held-out score, by steps along one weight at a time from the best of
  the aligned weights, equal weights and single kernels.

Reference: Cortes, Mohri and Rostamizadeh, "Algorithms for learning kernels based on centered alignment", JMLR 13
(2012).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from ...relations.inputs import ObjectKernel

# A step multiplies or divides a weight; steps shrink until they change little.
_FIRST_STEP, _LAST_STEP = 4.0, 1.3
METHODS = ("cv", "alignment", "equal")


@dataclass
class KernelSum:
    """Kernels of one kind of object with their training matrices, all of one size.

    Attributes
    ----------
    names : list of str
    kernels : list of ObjectKernel
    scales : list of float
        What each kernel is divided by.
    """

    names: list[str]
    kernels: list[ObjectKernel]
    scales: list[float]

    @property
    def n(self) -> int:
        """Number of training objects."""
        return self.kernels[0].n

    def _fitted_arrays(self) -> dict[str, str]:
        """The values that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if not len(self.names) == len(self.kernels) == len(self.scales) > 0:
            raise ValueError("names, kernels and scales differ in number")
        if not all(isinstance(kernel, ObjectKernel) and kernel.n == self.n for kernel in self.kernels):
            raise ValueError("the kernels are not all of the same objects")
        if not all(isinstance(scale, float) and 0 < scale < np.inf for scale in self.scales):
            raise ValueError("scales are not positive numbers")
        return {}

    @classmethod
    def read(
        cls, objects: Any, kernels: Any, n: int, n_other: int, side: str
    ) -> tuple[KernelSum, np.ndarray]:
        """Validate kernels and their objects; the matrices of the training objects, shape (n_kernels, n, n)."""
        named = _named(kernels, "kernels")
        given = _named(objects, "objects")
        if list(given) != list(named):
            raise ValueError(
                f"Each kernel needs objects of its own: found kernels {list(named)} and objects {list(given)}."
            )
        read, matrices, scales = [], [], []
        for name, kernel in named.items():
            function, params = kernel if isinstance(kernel, tuple) else (kernel, None)
            reader, K = ObjectKernel.read(given[name], function, params, n, n_other, side)
            scale = float(np.trace(K) - K.sum() / n) / n
            if not scale > 0:
                raise ValueError(f"Kernel {name!r} is the same for all objects: leave it out.")
            read.append(reader)
            matrices.append(K / scale)
            scales.append(scale)
        return cls(list(named), read, scales), np.stack(matrices)

    def between(self, objects: Any, weights: np.ndarray) -> np.ndarray:
        """The weighted sum for new objects, shape (n', n)."""
        given = _named(objects, "objects")
        if list(given) != self.names:
            raise ValueError(f"Expected objects for the kernels {self.names}: found {list(given)}.")
        parts = zip(self.names, self.kernels, self.scales, weights, strict=True)
        return np.sum([w / scale * kernel.between(given[name]) for name, kernel, scale, w in parts], axis=0)


def _named(values: Any, what: str) -> dict[str, Any]:
    if isinstance(values, Mapping):
        named = {str(name): value for name, value in values.items()}
    elif isinstance(values, (list, tuple)):
        named = {str(number): value for number, value in enumerate(values)}
    else:
        raise TypeError(
            f"{what} must be a list or a dict, one entry per kernel: found {type(values).__name__}."
        )
    if not named:
        raise ValueError(f"{what} is empty: give at least one kernel.")
    return named


def aligned_weights(kernels: np.ndarray, F: np.ndarray) -> np.ndarray:
    """Weights of the best alignment with F Fᵀ; kernels and F have been centred.

    Parameters
    ----------
    kernels : ndarray of shape (n_kernels, m, m)
    F : ndarray of shape (m, v)

    Examples
    --------
    >>> import numpy as np
    >>> x, noise = np.array([[-1.0], [0.0], [1.0]]), np.array([[1.0], [-2.0], [1.0]])
    >>> aligned_weights(np.stack([x @ x.T, noise @ noise.T]), 3 * x)
    array([1., 0.])
    """
    flat = kernels.reshape(kernels.shape[0], -1)
    M = flat @ flat.T
    b = np.einsum("kij,iv,jv->k", kernels, F, F, optimize=True)
    values, vectors = np.linalg.eigh(M)
    kept = values > 1e-12 * values[-1]
    half = vectors[:, kept] * np.sqrt(values[kept])
    weights, _ = nnls(half.T, (vectors[:, kept] / np.sqrt(values[kept])).T @ b)
    return normalised(weights)


def normalised(weights: np.ndarray) -> np.ndarray:
    """Weights that sum to one; equal ones where all are zero."""
    total = float(weights.sum())
    return weights / total if total > 0 else np.full(weights.shape, 1 / weights.size)


def search_weights(
    score: Callable[[np.ndarray], float], starts: Sequence[np.ndarray], max_rounds: int
) -> tuple[np.ndarray, float]:
    """The weights with the best score, by steps along one weight at a time.

    Parameters
    ----------
    score : callable
        Greater is better.
    starts : sequence of ndarray of shape (n_kernels,)
    max_rounds : int
        Passes over the weights.
    """
    known: dict[tuple[float, ...], float] = {}

    def value(weights: np.ndarray) -> float:
        key = tuple(np.round(weights, 9))
        if key not in known:
            with warnings.catch_warnings():
                # The position of the best alpha in a trial does not matter.
                warnings.simplefilter("ignore", UserWarning)
                known[key] = score(weights)
        return known[key]

    best = max(starts, key=value)
    step = _FIRST_STEP
    for _ in range(max_rounds):
        before = value(best)
        for k in range(best.shape[0]):
            best = max([best, *_moved(best, k, step)], key=value)
        if value(best) <= before:
            step = np.sqrt(step)
            if step < _LAST_STEP:
                break
    return best, value(best)


def _moved(weights: np.ndarray, k: int, step: float) -> list[np.ndarray]:
    """The weights with one of them smaller, larger, and left out."""
    moved = []
    for value in (weights[k] / step, weights[k] * step if weights[k] > 0 else 0.1, 0.0):
        changed = weights.copy()
        changed[k] = value
        if changed.any():
            moved.append(normalised(changed))
    return moved


def starting_weights(aligned: np.ndarray) -> list[np.ndarray]:
    """Aligned, equal, and single kernels."""
    n = aligned.shape[0]
    return [aligned, np.full(n, 1 / n), *np.eye(n)]


def check_method(weights: Any) -> None:
    """Refuse an unknown way to choose the weights."""
    if not isinstance(weights, str) or weights not in METHODS:
        raise ValueError(f"weights must be one of {', '.join(map(repr, METHODS))}: found {weights!r}.")


def check_weights(kernels: Any, weights: Any) -> None:
    """Refuse a loaded sum of kernels whose weights are not those of its kernels."""
    if not isinstance(kernels, KernelSum) or not isinstance(weights, dict) or list(weights) != kernels.names:
        raise ValueError("the weights are not those of the kernels")
    if not all(isinstance(weight, float) and np.isfinite(weight) for weight in weights.values()):
        raise ValueError("the weights of the kernels are not finite")


def choose_weights(
    method: str,
    aligned: Callable[[], np.ndarray],
    n: int,
    score: Callable[[np.ndarray], float],
    max_rounds: int,
) -> np.ndarray:
    """The weights by one of the methods."""
    if method == "equal" or n == 1:
        return np.full(n, 1 / n)
    if method == "alignment":
        return aligned()
    return search_weights(score, starting_weights(aligned()), max_rounds)[0]
