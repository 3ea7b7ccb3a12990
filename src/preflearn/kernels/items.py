"""Kernels that know the identity of items: k(x, x') + ρ [x = x'].

ρ gives every item a free offset in addition to what its features say. Alone, on labels, [x = x'] is the identity
kernel: every item has its own score, as in the classical Bradley-Terry model.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .functions import Kernel, n_items


@dataclass(frozen=True)
class ItemKernel:
    """k(x, x') + offset [x = x'].

    Parameters
    ----------
    base : Kernel or None
        k; None for items that are labels.
    offset : float
        ρ.

    Examples
    --------
    >>> import numpy as np
    >>> ItemKernel(Kernel("linear"), 0.5).matrix(np.array([[1.0], [2.0]]))
    array([[1.5, 2. ],
           [2. , 4.5]])
    """

    base: Kernel | None
    offset: float

    @property
    def is_linear(self) -> bool:
        return False

    @property
    def is_precomputed(self) -> bool:
        return False

    @property
    def takes_objects(self) -> bool:
        return self.base is not None and self.base.takes_objects

    def matrix(self, X: Any, Y: Any = None) -> np.ndarray:
        """The kernel between all items of X and of Y, which defaults to X."""
        codes = number_items(X)
        others = codes if Y is None else number_items(Y, X)
        same = codes[:, None] == others[None, :]
        if self.base is None:
            return self.offset * same
        K = np.array(self.base.matrix(X, Y), dtype=np.float64)
        K[same] += self.offset
        return K


def number_items(X: Any, known: Any = None) -> np.ndarray:
    """Equal items get equal numbers: that of the first equal row of ``known`` (X by default), -1 if there is none."""
    first: dict[Hashable, int] = {}
    keys = item_keys(X)
    for number, key in enumerate(keys if known is None else item_keys(known)):
        first.setdefault(key, number)
    return np.array([first.get(key, -1) for key in keys], dtype=np.int64)


def item_keys(X: Any) -> list[Hashable]:
    """A hashable value for each item that is equal for equal items."""
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        bounds = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        indices = X.indices.astype(np.int64, copy=False)
        data = X.data.astype(np.float64, copy=False)
        return [(indices[a:b].tobytes(), data[a:b].tobytes()) for a, b in bounds]
    if isinstance(X, np.ndarray) and X.ndim == 2:
        # 0.0 and -0.0 are equal, but their bytes are not.
        return [row.tobytes() for row in np.ascontiguousarray(X, dtype=np.float64) + 0.0]
    if isinstance(X, np.ndarray):
        return X.tolist()
    return [_hashable(item) for item in X]


def _hashable(item: Any) -> Hashable:
    try:
        hash(item)
    except TypeError:
        return pickle.dumps(item)
    return item


def read_labels(X: Any) -> np.ndarray:
    """Item numbers or labels as a one-dimensional array.

    Raises
    ------
    ValueError
        If there is more than one column, no column at all, or a missing label.
    """
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    X = X if isinstance(X, np.ndarray) else np.array(list(X), dtype=None if _uniform(X) else object)
    if X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    if X.ndim != 1:
        raise ValueError(
            f"kernel='items' takes one number or label for each item: found shape {X.shape}. For features choose "
            "another kernel, with item_offsets to give each item a free offset as well."
        )
    if n_items(X) == 0:
        raise ValueError("Found 0 sample(s) while a minimum of 1 is required: X is empty.")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise ValueError("An item's number is NaN or infinite: give every item a number or label.")
    if X.dtype == object and all(isinstance(label, str) for label in X):
        X = X.astype(str)
    if X.dtype.kind == "f" and (X == np.round(X)).all():
        X = X.astype(np.int64)
    return X.copy()


def _uniform(X: Any) -> bool:
    return len({type(label) for label in X}) <= 1
