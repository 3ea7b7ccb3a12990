"""Reading what users pass: two kinds of objects, their kernels, and the labels of their pairs; one side decomposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from ..kernels.functions import Kernel, n_items
from ..kernels.inputs import check_kernel_matrix, is_table, read_objects
from ..numerics.linalg import eigh_in_place, unit_of
from ..numerics.memory import require_memory
from ..numerics.namespace import refuse_repeated_columns
from ..squared.holdout.base import rows_outside
from ..squared.problem import refuse_indefinite
from .pairwise import PairwiseKernel


@dataclass
class ObjectKernel:
    """The kernel of one side with the objects that it was trained on.

    Attributes
    ----------
    kernel : Kernel
    objects : validated items, or the matrix itself for a precomputed kernel
        None for a precomputed kernel that predictions do not need.
    n : int
        Number of training objects.
    side : {"row", "column"}
    """

    kernel: Kernel
    objects: Any
    n: int
    side: str

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        shapes = {"kernel": "a Kernel", "n": "a int", "side": "a str"}
        if self.kernel.is_precomputed:
            return shapes if self.objects is None else {**shapes, "objects": "n n", "n": "= n"}
        return {**shapes, "objects": "n k", "n": "= n"}

    @classmethod
    def read(
        cls, objects: Any, kernel: Any, params: Any, n_labels: int, n_other: int, side: str
    ) -> tuple[ObjectKernel, np.ndarray]:
        """Validate the objects of a side, and evaluate their kernel matrix.

        Parameters
        ----------
        n_labels, n_other : int
            Number of objects that the labels have on this side, and on the other.
        """
        function = read_kernel(kernel, params)
        items = _read(objects, function, side)
        n = n_items(items)
        if n != n_labels:
            hint = " They would fit the other side: are rows and columns exchanged?" if n == n_other else ""
            what = "kernel" if function.is_precomputed else "objects"
            raise ValueError(f"{n} {side} {what} but the labels have {n_labels} {side}s.{hint}")
        if function.is_precomputed:
            try:
                check_kernel_matrix(items)
            except ValueError as error:
                raise ValueError(f"{side}_kernel='precomputed': {error}") from None
            return cls(function, None, n, side), items
        # The caller may change the objects after fit; the model must not change with them.
        kept = items.copy()
        function = function.fitted_to(kept)
        return cls(function, kept, n, side), function.matrix(kept).astype(np.float64, copy=False)

    def training_matrix(self) -> np.ndarray:
        """The kernel matrix of the training objects, shape (n, n)."""
        if self.kernel.is_precomputed:
            return self.objects
        return self.kernel.matrix(self.objects).astype(np.float64, copy=False)

    def between(self, objects: Any) -> np.ndarray:
        """Kernel values of new objects with the training objects, shape (n', n)."""
        items = _read(objects, self.kernel, self.side)
        if not self.kernel.is_precomputed:
            self._refuse_other_features(items)
            return self.kernel.matrix(items, self.objects).astype(np.float64, copy=False)
        if items.shape[1] != self.n:
            raise ValueError(
                f"{self.side}_kernel='precomputed': expected one row per new {self.side} and {self.n} columns, the "
                f"training {self.side}s; found {items.shape[0]} × {items.shape[1]}."
            )
        return items

    def _refuse_other_features(self, items: Any) -> None:
        found, expected = getattr(items, "shape", None), getattr(self.objects, "shape", None)
        if found is not None and expected is not None and found[1] != expected[1]:
            raise ValueError(
                f"The {self.side} objects have {found[1]} features, the training {self.side}s had {expected[1]}. "
                "Rows come first, columns second."
            )


def read_kernel(kernel: Any, params: Any) -> Kernel:
    """A `Kernel` with the parameters of its side."""
    if isinstance(kernel, Kernel):
        if params:
            raise ValueError(
                "A Kernel object has its parameters already: leave row_params and column_params out."
            )
        return kernel
    params = dict(params or {})
    rule = params.pop("gamma") if isinstance(params.get("gamma"), str) else None
    return Kernel(kernel, rule, kernel_params=params or None)


def _read(objects: Any, kernel: Kernel, side: str) -> Any:
    if kernel.takes_objects and not is_table(objects):
        return read_objects(objects)
    if objects is None:
        raise ValueError(f"The {side} objects are missing: pass rows, then columns.")
    if kernel.is_precomputed and sp.issparse(objects):
        raise TypeError(f"{side}_kernel='precomputed' must be a dense array: pass K.toarray().")
    refuse_repeated_columns(objects)
    return check_array(
        objects, accept_sparse="csr", dtype=np.float64, order="C", input_name=f"{side} objects"
    )


def read_labels(Y: Any) -> np.ndarray:
    """Y as a float64 matrix; NaN where unknown, otherwise finite."""
    Y = check_array(Y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="Y", order="C")
    if np.isinf(Y).any():
        raise ValueError("Y holds infinity: mark unknown labels by NaN.")
    if np.isnan(Y).all():
        raise ValueError("Y is NaN everywhere: no label is known.")
    return Y


def refuse_unlabelled(counts: np.ndarray, side: str) -> None:
    """Refuse objects without a known label."""
    empty = np.flatnonzero(counts == 0)
    if empty.size:
        more = f" (and {empty.size - 1} more)" if empty.size > 1 else ""
        raise ValueError(
            f"{side.capitalize()} {int(empty[0])}{more} has no known label: leave it out of the training "
            "and predict it afterwards."
        )


def read_pair_list(
    row_index: Any, column_index: Any, y: Any, duplicates: str, *, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the row and column objects of each pair, and its label; equal pairs joined or refused."""
    p, q = shape
    rows, columns = read_index(row_index, p, "row"), read_index(column_index, q, "column")
    y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    if not rows.shape == columns.shape == y.shape:
        raise ValueError(
            f"row_index, column_index and y must have one entry per pair: found {rows.shape[0]}, "
            f"{columns.shape[0]} and shape {y.shape}."
        )
    if duplicates not in ("refuse", "mean"):
        raise ValueError(f"duplicates must be 'refuse' or 'mean': found {duplicates!r}.")
    position = rows * q + columns
    unique, inverse, counts = np.unique(position, return_inverse=True, return_counts=True)
    if unique.shape[0] < position.shape[0]:
        if duplicates == "refuse":
            i, j = divmod(int(unique[np.argmax(counts > 1)]), q)
            raise ValueError(
                f"Pair (row {i}, column {j}) is listed {int(counts.max())} times or more: pass "
                "duplicates='mean' to learn from the mean of its labels, or list it once."
            )
        y = np.bincount(inverse, weights=y) / counts
        rows, columns = np.divmod(unique, q)
    return rows, columns, y


def read_index(index: Any, n: int, side: str) -> np.ndarray:
    """Positions of objects of one side."""
    index = np.asarray(index)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise ValueError(
            f"{side}_index must be a list of {side} numbers: found shape {index.shape}, type {index.dtype}. "
            "Translate labels of objects into their positions first."
        )
    outside = np.flatnonzero((index < 0) | (index >= n))
    if outside.size:
        raise ValueError(
            f"{side}_index[{int(outside[0])}] = {int(index[outside[0]])} does not name a {side}: there are {n}, "
            "numbered from 0."
        )
    return index.astype(np.int64, copy=False)


def check_one_kind(model: Any, pairwise: PairwiseKernel, rows: Any, columns: Any) -> Any:
    """The columns of a relation between objects of one kind: the rows themselves; refuse anything else."""
    name = next(name for name in pairwise.weights if name in ("symmetric", "antisymmetric"))
    if _differ(model.row_kernel, model.column_kernel) or (model.row_params or {}) != (
        model.column_params or {}
    ):
        raise ValueError(
            f"pairwise={name!r} is for pairs of one kind of object: row_kernel and column_kernel must be "
            f"the same, found {model.row_kernel!r} with {model.row_params} and {model.column_kernel!r} with "
            f"{model.column_params}."
        )
    if columns is None or columns is rows:
        return rows
    same = n_items(rows) == n_items(columns)
    if same and sp.issparse(rows) and sp.issparse(columns):
        same = rows.shape == columns.shape and (rows != columns).nnz == 0
    elif same:
        same = bool(np.array_equal(np.asarray(rows), np.asarray(columns)))
    if not same:
        raise ValueError(
            f"pairwise={name!r} is for pairs of one kind of object: pass the same objects as rows and columns."
        )
    return rows


def _differ(a: Any, b: Any) -> bool:
    return a is not b and a != b


def check_symmetry(Y: np.ndarray, sign: int) -> None:
    """Refuse labels that no symmetric (sign 1) or antisymmetric (-1) function can have; NaN agrees with anything."""
    if Y.shape[0] != Y.shape[1]:
        raise ValueError(
            f"A relation between objects of one kind is square: found labels of {Y.shape[0]} × {Y.shape[1]}."
        )
    scale = 1e-8 * float(np.nanmax(np.abs(Y)))
    wrong = np.argwhere(np.abs(Y - sign * Y.T) > scale)
    if wrong.size:
        i, j = wrong[0].tolist()
        name, sense = ("symmetric", "equal") if sign > 0 else ("antisymmetric", "opposite")
        raise ValueError(
            f"pairwise={name!r} needs {sense} labels for both orders of a pair: found Y[{i}, {j}] = "
            f"{Y[i, j]:.6g} and Y[{j}, {i}] = {Y[j, i]:.6g}. Use pairwise='kronecker', or "
            f"(Y {'+' if sign > 0 else '-'} Y.T) / 2."
        )


@dataclass(frozen=True)
class Side:
    r"""A kernel of n objects and its decomposition into k modes.

    For objects with kernel K,

        K = V diag(σ) Vᵀ          without comparison,
        C K C = V diag(σ) Vᵀ      where the objects are compared with each other, C = I - 1 1ᵀ / p,

    with the constant vector left out of V in the second case. Dual coefficients are V times something, and predictions
    are the images K V times the same: both are Vσ and V without comparison, but otherwise K V keeps the level of the
    predictions.

    Examples
    --------
    >>> import numpy as np
    >>> side = Side.decompose(np.diag([2.0, 1.0]), compared=False)
    >>> side.values
    array([1., 2.])
    """

    # The original kernel matrix, shape (n, n).
    K: np.ndarray
    # σ, not negative, ascending, shape (k,); k is n, or n - 1 where the objects are compared.
    values: np.ndarray
    # V, orthonormal, shape (n, k); orthogonal to the constant vector where the objects are compared.
    vectors: np.ndarray
    compared: bool

    @classmethod
    def decompose(cls, K: np.ndarray, *, compared: bool) -> Side:
        """Factorise a symmetric K, which is not modified. About 9 n³ operations."""
        n = K.shape[0]
        require_memory(3 * 8 * n * n, f"the eigendecomposition of a kernel of {n} objects")
        unit = unit_of(
            float(np.abs(np.diagonal(K)).max(initial=0.0))
        )  # no square leaves the range of float64
        work = np.array(K, dtype=np.float64, order="F")
        if unit != 1.0:
            work /= unit
        if compared:
            # The constant vector gets the largest value, so that no other vector is mixed with it.
            means = work.mean(axis=0)
            work -= means
            work -= (means - means.mean())[:, None]
            work += (2 * float(np.trace(work)) or 1.0) / n
        values, vectors = eigh_in_place(work)
        if compared:
            values, vectors = values[:-1], vectors[:, :-1]
        if values.size:
            refuse_indefinite(float(values[0]), float(values[-1]))
            # Eigenvalues below the rounding of K count as zero: K v = 0 for such a vector, for new objects too.
            values[values <= n * np.finfo(float).eps * values[-1]] = 0.0
        return cls(K, values * unit, vectors, compared)

    @property
    def n(self) -> int:
        """Number of objects."""
        return self.K.shape[0]

    @property
    def largest(self) -> float:
        return float(self.values[-1]) if self.values.size else 0.0

    def images(self) -> np.ndarray:
        """K V: predictions at the objects from coefficients of the modes, shape (n, k)."""
        return self.images_of(self.K) if self.compared else self.vectors * self.values

    def images_of(self, K: np.ndarray) -> np.ndarray:
        """The same for rows of kernel values of any objects, shape (m, n) to (m, k)."""
        images = K @ self.vectors
        images[:, self.values == 0] = 0.0
        return images

    def without(self, left: np.ndarray) -> tuple[Side, np.ndarray]:
        """The side trained without some objects, and the images of those: K[left, rest] V, shape (len(left), k)."""
        rest = rows_outside(self.n, left)
        if rest.shape[0] == 0:
            raise ValueError("A fold holds out every object of one side: nothing is left to train on.")
        side = Side.decompose(self.K[np.ix_(rest, rest)], compared=self.compared)
        return side, side.images_of(self.K[np.ix_(left, rest)])
