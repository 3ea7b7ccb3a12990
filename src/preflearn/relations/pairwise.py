r"""Kernels of pairs, built from the kernel k of the row objects and g of the column objects.

| name          | q((u, v), (u', v'))                              | what it can express                               |
|---------------|--------------------------------------------------|---------------------------------------------------|
| kronecker     | k(u, u') g(v, v')                                | any interaction                                   |
| symmetric     | ½ (k(u, u') k(v, v') + k(u, v') k(v, u'))        | f(u, v) = f(v, u), objects of one kind            |
| antisymmetric | ½ (k(u, u') k(v, v') - k(u, v') k(v, u'))        | f(u, v) = -f(v, u): who beats whom, cycles too    |
| cartesian     | k(u, u') δ(v, v') + δ(u, u') g(v, v')            | a separate function for each known object         |
| sum           | k(u, u') + g(v, v')                              | f(u, v) = a(u) + b(v), no interaction             |

Each is a short sum of terms X ⊗ Z, the second of a symmetric kernel followed by an exchange of the two objects, so one
product serves them all: f = Σ_t w_t X_t A Z_t (or its transpose).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..numerics.linalg import first_equal_items

NAMES = ("kronecker", "symmetric", "antisymmetric", "cartesian", "sum")
_ONE_KIND = ("symmetric", "antisymmetric")


@dataclass(frozen=True)
class Term:
    """weight · X ⊗ Z, where X and Z are the kernel, the identity or all ones; ``exchanged`` swaps u' and v'."""

    weight: float
    row: str
    column: str
    exchanged: bool = False


_TERMS = {
    "kronecker": (Term(1.0, "kernel", "kernel"),),
    "symmetric": (Term(0.5, "kernel", "kernel"), Term(0.5, "kernel", "kernel", exchanged=True)),
    "antisymmetric": (Term(0.5, "kernel", "kernel"), Term(-0.5, "kernel", "kernel", exchanged=True)),
    "cartesian": (Term(1.0, "kernel", "identity"), Term(1.0, "identity", "kernel")),
    "sum": (Term(1.0, "kernel", "ones"), Term(1.0, "ones", "kernel")),
}


@dataclass(frozen=True)
class PairwiseKernel:
    """A weighted sum of pairwise kernels.

    Attributes
    ----------
    weights : dict from name to float
        All positive.

    Examples
    --------
    >>> PairwiseKernel.read({"kronecker": 1.0, "sum": 0.5}).weights
    {'kronecker': 1.0, 'sum': 0.5}
    """

    weights: dict[str, float]

    @classmethod
    def read(cls, pairwise: Any) -> PairwiseKernel:
        """From a name, or a mapping from names to weights."""
        given = dict(pairwise) if isinstance(pairwise, Mapping) else {pairwise: 1.0}
        unknown = [name for name in given if name not in NAMES]
        if unknown or not given:
            raise ValueError(
                f"pairwise must be one of {', '.join(map(repr, NAMES))}, or a dict from such names to weights: "
                f"found {pairwise!r}."
            )
        weights = {}
        for name, weight in given.items():
            try:
                value = float(weight)
            except (TypeError, ValueError):
                value = np.nan
            if not 0 < value < np.inf:
                raise ValueError(
                    f"pairwise: the weight of {name!r} must be a positive number, found {weight!r}."
                )
            weights[str(name)] = value
        return cls(weights)

    @property
    def sign(self) -> int:
        """1 if every function of the kernel has f(u, v) = f(v, u), -1 if f(u, v) = -f(v, u), else 0."""
        names = set(self.weights)
        return 1 if names == {"symmetric"} else -1 if names == {"antisymmetric"} else 0

    @property
    def one_kind(self) -> bool:
        """Whether rows and columns must be the same objects."""
        return any(name in _ONE_KIND for name in self.weights)

    @property
    def by_identity(self) -> bool:
        """Whether the kernel distinguishes objects by identity, not only by their kernel values."""
        return "cartesian" in self.weights

    @property
    def product(self) -> float:
        """Weight of K ⊗ G for labels of the symmetry that the kernel has."""
        return self.weights.get("kronecker", 0.0) + sum(self.weights.get(name, 0.0) for name in _ONE_KIND)

    @property
    def cartesian(self) -> float:
        return self.weights.get("cartesian", 0.0)

    @property
    def has_closed_form(self) -> bool:
        """Whether the eigenvectors of the two sides are those of the pairwise kernel on complete labels."""
        return set(self.weights) <= {"kronecker", "cartesian"} or self.sign != 0

    def spectrum(self, row_values: np.ndarray, column_values: np.ndarray) -> np.ndarray:
        """Eigenvalues for each pair of modes, shape (k, l)."""
        values = self.product * np.multiply.outer(row_values, column_values)
        return values + self.cartesian * np.add.outer(row_values, column_values) if self.cartesian else values

    def terms(self) -> list[Term]:
        """The sum written out."""
        return [
            Term(weight * term.weight, term.row, term.column, term.exchanged)
            for name, weight in self.weights.items()
            for term in _TERMS[name]
        ]

    def predict(
        self, A: Any, K: np.ndarray, G: np.ndarray, same_row: Any = None, same_column: Any = None
    ) -> np.ndarray:
        """Σ_t w_t X_t A Z_tᵀ for dual coefficients A of the training pairs.

        Parameters
        ----------
        A : ndarray or sparse array of shape (p, q)
        K, G : ndarray of shape (p', p) and (q', q)
            Kernels between the pairs to predict and the training objects.
        same_row, same_column : ndarray of shape (p', p) and (q', q), optional
            1 where the object to predict is that training object; needed by "cartesian".
        """
        out = np.zeros((K.shape[0], G.shape[0]))
        for term in self.terms():
            left = same_row if term.row == "identity" else K
            right = same_column if term.column == "identity" else G
            coefficients = A.T if term.exchanged else A
            if term.row == "ones":
                out += term.weight * (right @ coefficients.sum(axis=0))[None, :]
            elif term.column == "ones":
                out += term.weight * (left @ coefficients.sum(axis=1))[:, None]
            else:
                out += term.weight * (left @ coefficients @ right.T)
        return out


def same_objects(K_new: np.ndarray, K_train: np.ndarray) -> np.ndarray:
    """δ(u', u) for new and training objects: 1 where their kernel values with all training objects are equal."""
    rounding = 1e-10 * float(np.abs(K_train).max(initial=0.0))
    mark = np.random.default_rng(0).standard_normal(K_train.shape[1])
    old, new = K_train @ mark, K_new @ mark
    order = np.argsort(old)
    place = np.searchsorted(old[order], new)
    same = np.zeros(K_new.shape)
    for shift in (-1, 0):  # the neighbours of its sorted position
        candidate = order[np.clip(place + shift, 0, old.shape[0] - 1)]
        equal = (np.abs(K_train[candidate] - K_new) <= rounding).all(axis=1)
        same[np.flatnonzero(equal), candidate[equal]] = 1.0
    return same


def refuse_equal_objects(K: np.ndarray, side: str) -> None:
    """Refuse training objects that the Cartesian kernel could not distinguish in a prediction."""
    first = first_equal_items(K)
    copies = np.flatnonzero(first != np.arange(K.shape[0]))
    if copies.size:
        copy = int(copies[0])
        raise ValueError(
            f"pairwise='cartesian' learns a separate function for each object, and {side}s {int(first[copy])} and "
            f"{copy} have equal kernel values. Keep one of them, or use pairwise='kronecker'."
        )
