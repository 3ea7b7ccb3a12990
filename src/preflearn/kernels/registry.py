"""The register of named kernels: everything that the library knows of a kernel by name is one `KernelFunction`.

    from preflearn.kernels import KernelFunction, register_kernel

    @register_kernel
    class Cauchy(KernelFunction):
        names = ("cauchy",)
        parameters = {"gamma": None}
        distance = "squared"

        def matrix(self, kernel, X, Z=None):
            return 1.0 / (1.0 + kernel.width(X.shape[1]) * euclidean_distances(X, Z, squared=True))

From then on every learner takes ``kernel="cauchy"`` and knows its parameters. `preflearn.testing.check_kernel` compares
what an entry offers with its own values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.metrics.pairwise import pairwise_kernels

if TYPE_CHECKING:
    from ..numerics.onnx_graph import Value
    from .functions import Kernel


class KernelFunction:
    """A named kernel. Only `names` and, where scikit-learn does not know the name, `matrix` are needed.

    Attributes
    ----------
    names : tuple of str
        What users pass as ``kernel``; all names mean the same.
    parameters : mapping
        Names of its parameters with their defaults. gamma, degree and coef0 are arguments of every learner, others are
        given in ``kernel_params``. A gamma of None is one over the number of features.
    distance : {None, "squared", "absolute", "euclidean"}
        A kernel that depends on the rows only through a distance between them takes a metric, can learn one, and has
        gamma in units of this distance (``gamma="median"``). Rows far from 0 are shifted before it sees them.
    gradient : callable or None
        ``gradient(kernel, X, Z, K, beta)``: the gradient of Σ_j β_j k(x, z_j) at the rows of X, shape (m, n), given K.
    nodes : callable or None
        ``nodes(kernel, X, Z)``: the kernel matrix in operators of ONNX (`Value`), for dense Z.
    block : callable or None
        ``block(kernel, Z, n_features, xp)``: a function of dense rows, with ``out`` optional, that gives their kernel
        values with Z in the array namespace ``xp``, several times as fast as `matrix`. It runs on devices, too.
    """

    names: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = {}
    distance: str | None = None
    gradient: Callable[[Kernel, Any, Any, np.ndarray, np.ndarray], np.ndarray] | None = None
    nodes: Callable[[Kernel, Value, np.ndarray], Value] | None = None
    block: Callable[[Kernel, Any, int, Any], Callable[..., Any]] | None = None

    def matrix(self, kernel: Kernel, X: Any, Z: Any = None) -> Any:
        """k(x, z) of dense or CSR rows, shape (m, r); of X with itself without Z."""
        return pairwise_kernels(X, Z, metric=kernel.kernel, **kernel.arguments)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse values of its own parameters, with a ValueError."""


_FUNCTIONS: dict[str, KernelFunction] = {}
_Class = TypeVar("_Class", bound=type[KernelFunction])


def register_kernel(function: _Class) -> _Class:
    """Make a kernel known by its names to every learner; a class decorator.

    Raises
    ------
    ValueError
        If one of the names is taken, or it has none.
    """
    entry = function()
    if not entry.names:
        raise ValueError(f"{function.__name__} has no names: set names = ('...',).")
    taken = sorted(set(entry.names) & (set(_FUNCTIONS) | {"precomputed", "items"}))
    if taken:
        raise ValueError(
            f"There is a kernel named {', '.join(map(repr, taken))} already: choose another name."
        )
    _FUNCTIONS.update(dict.fromkeys(entry.names, entry))
    return function


def kernel_function(name: Any) -> KernelFunction | None:
    """The entry of a name; None for callables, precomputed kernels and unknown names."""
    return _FUNCTIONS.get(name) if isinstance(name, str) else None


def kernel_names(offering: Callable[[KernelFunction], Any] = lambda entry: True) -> list[str]:
    """The registered names, or those whose entries offer something."""
    return [name for name, entry in _FUNCTIONS.items() if offering(entry)]
