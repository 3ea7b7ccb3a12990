r"""Finite feature maps of kernels, and the choice of their basis vectors.

With basis vectors R and C Cᵀ = K_RR, the features Φ = K_MR C⁻ᵀ satisfy Φ Φᵀ = K_MR K_RR⁻¹ K_RM, and a linear
model w on Φ is the kernel expansion β = C⁻ᵀ w on R with the same norm: βᵀ K_RR β = wᵀ w.
"""

from __future__ import annotations

from copy import copy
from math import ceil
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..numerics.linalg import KernelFactor, factor_kernel, solve_triangular_in_place
from ..numerics.onnx_graph import Graph, Value
from .blocks import KernelBlocks
from .functions import Kernel, n_items, take_items
from .inputs import KernelParametersMixin, read_items
from .onnx_nodes import kernel_nodes


class NystromMap(KernelParametersMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of a kernel on a reduced set of basis vectors: Φ = K_MR C⁻ᵀ with C Cᵀ = K_RR.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        As in ``sklearn.metrics.pairwise.pairwise_kernels``, or ``"precomputed"``.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel; one that the kernel does not take is refused.
    n_basis : None, int or float, default=None
        Number of basis vectors, or their fraction of the rows; None takes every row.
    basis : "uniform", "diverse" or array of int, default="uniform"
        How they are chosen from the rows of ``fit``: at random; at random among what the chosen ones do not yet span;
        or these rows. Row numbers refer to the X of ``fit``, and in the hold-outs of this library to the whole X in
        every fold, also inside a pipeline; in those of scikit-learn they would name other rows in each fold.
    random_state : int, RandomState or None
        For the draw.

    Attributes
    ----------
    basis_indices_ : ndarray of shape (r,)
        The rows of ``fit`` that are basis vectors.
    basis_ : array, sparse matrix or list of r items
        The basis vectors; None for a precomputed kernel.
    rank_ : int
        Width of the features. Less than r when basis vectors are linearly dependent to working precision:
        the dependent ones are set aside by pivoting (`factor_.pivots` names those kept).
    factor_ : KernelFactor
        The factor of K_RR.

    Notes
    -----
    ``fit`` costs r² kernel evaluations and O(r³), ``transform`` of m rows m r kernel evaluations and O(m r²).
    Reference: Williams and Seeger, "Using the Nyström method to speed up kernel machines", NIPS 13 (2001).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.kernels import NystromMap
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> NystromMap("rbf", n_basis=10, random_state=0).fit_transform(X).shape
    (100, 10)
    """

    def __init__(
        self, kernel="rbf", *, gamma=None, degree=3, coef0=1, kernel_params=None, n_basis=None,
        basis="uniform", random_state=None,
    ) -> None:  # fmt: skip
        self.kernel, self.gamma, self.degree, self.coef0 = kernel, gamma, degree, coef0
        self.kernel_params, self.n_basis, self.basis = kernel_params, n_basis, basis
        self.random_state = random_state

    def fit(self, X, y=None) -> Self:
        """Choose the basis vectors and factorise their kernel matrix.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), or sequence of objects
        y : ignored

        Returns
        -------
        self
        """
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        return self.fit_items(X, kernel)

    def fit_items(self, X: Any, kernel: Kernel) -> NystromMap:
        """`fit` for items that have been validated, and a kernel that has been read, by an estimator.

        Parameters
        ----------
        X : ndarray, sparse array or list of objects
        kernel : Kernel

        Returns
        -------
        self
        """
        chosen = select_basis(X, kernel, self.n_basis, self.basis, self.random_state)
        self.basis_indices_ = np.arange(n_items(X)) if chosen is None else chosen
        if kernel.is_precomputed:
            self.basis_ = None
            K_RR = X[np.ix_(self.basis_indices_, self.basis_indices_)]
        else:
            self.basis_ = X if chosen is None else take_items(X, chosen)
            if kernel.is_linear and isinstance(self.basis_, np.ndarray):
                _refuse_large_offsets(self.basis_)
            K_RR = kernel.matrix(self.basis_)
        self.factor_: KernelFactor = factor_kernel(K_RR, overwrite=True)
        self.rank_ = self.factor_.rank
        self._n_features_out = self.rank_
        return self

    def without(self, rows, *, features=None) -> Any:
        """The map without the basis vectors among some training rows, for a model that must not have seen them.

        Parameters
        ----------
        rows : array-like of int
            Row numbers of the X of ``fit``.
        features : ndarray of shape (b, rank_), optional
            Features of any rows by this map, such as all training rows.

        Returns
        -------
        map : NystromMap
            Fitted, as if the remaining rows of `basis_indices_` had been given as ``basis``; this one is unchanged.
        features : ndarray
            With ``features``: those of the same rows by the new map.

        Raises
        ------
        ValueError
            If no basis vector would be left.

        Notes
        -----
        The factor is updated instead of computed anew, in O(h r²) for h of r basis vectors, and so are features, in
        O(h r) for a row. (Where basis vectors are linearly dependent, O(r³) and O(r²).) Reference: theorem 1 of Airola,
        Pahikkala and Salakoski, "On learning and cross-validation with decomposed Nyström approximation of kernel
        matrix", Neural Processing Letters 33 (2011), here by orthogonal transformations.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn.kernels import NystromMap
        >>> X = np.random.default_rng(0).normal(size=(100, 3))
        >>> whole = NystromMap(basis=[2, 3, 50, 51]).fit(X)
        >>> part, features = whole.without(np.arange(10), features=whole.transform(X))
        >>> part.basis_indices_
        array([50, 51])
        >>> np.allclose(features, NystromMap(basis=[50, 51]).fit_transform(X))
        True
        """
        check_is_fitted(self)
        left = np.atleast_1d(np.asarray(rows))
        if left.ndim != 1 or (left.size and left.dtype.kind not in "iu"):
            raise ValueError(f"rows must be row numbers of the training rows: found {rows!r}.")
        leaves = np.isin(self.basis_indices_, left)
        if leaves.all():
            raise ValueError(
                f"No basis vector would be left: all {leaves.shape[0]} are among the rows. Use more basis vectors, or "
                "leave fewer rows out."
            )
        other = copy(self)
        other.basis_indices_ = self.basis_indices_[~leaves]
        if self.basis_ is not None:
            other.basis_ = take_items(self.basis_, np.flatnonzero(~leaves))
        other.factor_, rotate = self.factor_.without(np.flatnonzero(leaves))
        other.rank_ = other._n_features_out = other.factor_.rank
        return other if features is None else (other, rotate(np.asarray(features)))

    def transform(self, X) -> np.ndarray:
        """Φ = K_MR C⁻ᵀ.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m_fit), or sequence of objects

        Returns
        -------
        ndarray of shape (m, rank_)
        """
        check_is_fitted(self)
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=False)
        return self.map_items(X, kernel)

    def map_items(self, X: Any, kernel: Kernel) -> np.ndarray:
        """`transform` for validated items: Φ, shape (m, rank_)."""
        return solve_triangular_in_place(self.factor_.C, self.kernel_with_basis(X, kernel))

    def kernel_with_basis(self, X: Any, kernel: Kernel) -> np.ndarray:
        """K_MR for validated items, R being the linearly independent basis vectors; shape (m, rank_)."""
        pivots = self.factor_.pivots
        if kernel.is_precomputed:
            return np.ascontiguousarray(X[:, self.basis_indices_[pivots]])
        if self.rank_ == self.basis_indices_.shape[0]:
            return kernel.matrix(X, self.basis_)
        return kernel.matrix(X, take_items(self.basis_, pivots))

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `transform` computes, recorded (`numerics.graph`)."""
        pivots = self.factor_.pivots
        basis = None if self.basis_ is None else take_items(self.basis_, pivots)
        K = kernel_nodes(graph, self._read_kernel(), X, basis, self.basis_indices_[pivots])
        return K @ solve_triangular_in_place(self.factor_.C, np.eye(self.rank_))

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded map is checked for (`preflearn.tables.models.fitted`)."""
        if "factor_" not in vars(self):
            return {}
        factor = {"factor_.F": "r k", "factor_.C": "k k", "factor_.pivots": "k < r", "rank_": "= k"}
        if self._read_kernel().is_precomputed:
            return {**factor, "basis_indices_": "r < n"}
        return {**factor, "basis_indices_": "r <", "basis_": "r n"}

    def expand(self, w: np.ndarray) -> np.ndarray:
        """Coefficients of the basis vectors, β with f(x) = k(x, R) β, of a linear model w on the features.

        Parameters
        ----------
        w : ndarray of shape (rank_,) or (rank_, v)

        Returns
        -------
        ndarray of shape (r,) or (r, v)
            Zero for basis vectors that were set aside as linearly dependent.
        """
        check_is_fitted(self)
        return self.factor_.expand(w)


class EmpiricalKernelMap(NystromMap):
    """The features of a kernel on all rows of ``fit``: Φ Φᵀ = K exactly.

    A kernel method trained on these features is the kernel method itself; use it to give a kernel to a linear learner.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        As in `NystromMap`.

    Notes
    -----
    O(m³) for ``fit``; the width is the rank of K.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.kernels import EmpiricalKernelMap
    >>> X = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    >>> F = EmpiricalKernelMap("linear").fit_transform(X)
    >>> np.allclose(F @ F.T, X @ X.T)
    True
    """

    def __init__(self, kernel="rbf", *, gamma=None, degree=3, coef0=1, kernel_params=None) -> None:
        super().__init__(kernel, gamma=gamma, degree=degree, coef0=coef0, kernel_params=kernel_params)


# Share of the squares of the basis vectors that is left when their mean is subtracted.
_LEAST_SPREAD = 1e-7


def _refuse_large_offsets(rows: np.ndarray) -> None:
    """Refuse a linear kernel whose values differ by less than rounding allows."""
    unit = float(np.abs(rows).max(initial=0.0)) or 1.0
    rows = rows / unit
    # Relative to the first row the spread of equal rows is exactly 0, which the rounding of their mean would hide.
    moved = rows - rows[:1]
    spread = float(np.square(moved - moved.mean(axis=0)).sum())
    if 0 < spread < _LEAST_SPREAD * float(np.square(rows).sum()):
        raise ValueError(
            "The basis vectors have means so large that their differences vanish in rounding: the linear kernel of a "
            "reduced set would be lost. Centre or scale the features (StandardScaler), or leave out "
            "n_basis and basis."
        )


# ----------------------------------------------------------------
# Which rows become basis vectors of a reduced set.
#
# "uniform" draws rows at random. "diverse" draws a row with probability proportional to the part of it that the rows
# drawn so far do not span, k(x, x) - k(x, R) K_RR⁻¹ k(R, x) (randomly pivoted Cholesky): rows that resemble others are
# drawn once, and rare ones are not missed. Rows are proposed many at a time and accepted one by one, so that most of
# the work is matrix products; the result is the same as drawing one by one. Reference: Chen, Epperly, Tropp and Webber,
# "Randomly pivoted Cholesky: practical approximation of a kernel matrix with few entry evaluations", Communications on
# Pure and Applied Mathematics 78 (2025).

# Candidates that "diverse" considers, for each basis vector, and at least; all rows would cost m r² operations.
_CANDIDATES_PER_BASIS = 10
_LEAST_CANDIDATES = 2_000
# Rows that are proposed together.
_PROPOSED = 128


def select_basis(X: Any, kernel: Kernel, n_basis: Any, basis: Any, random_state: Any) -> np.ndarray | None:
    """Row numbers of the basis vectors of validated items, or None for all rows; parameters as in `choose_basis`.

    Notes
    -----
    "diverse" considers 10 r rows drawn at random (at least 2000) and costs 10 r² kernel evaluations and 10 r³
    operations.
    """
    n_rows = n_items(X)
    if not (isinstance(basis, str) and basis == "diverse"):
        return choose_basis(n_rows, n_basis, basis, random_state)
    if n_basis is None:
        raise ValueError("basis='diverse' needs the number of basis vectors: pass n_basis=...")
    size = _basis_size(n_rows, n_basis)
    rng = check_random_state(random_state)
    n_candidates = min(n_rows, max(_LEAST_CANDIDATES, _CANDIDATES_PER_BASIS * size))
    candidates = np.sort(rng.choice(n_rows, size=n_candidates, replace=False))
    return np.sort(candidates[_draw_diverse(X, kernel, candidates, size, rng)])


def _draw_diverse(X: Any, kernel: Kernel, candidates: np.ndarray, size: int, rng) -> np.ndarray:
    """Positions of ``size`` candidates (fewer if fewer are linearly independent), by randomly pivoted Cholesky."""
    n = candidates.shape[0]

    def block(places: np.ndarray) -> np.ndarray:
        if kernel.is_precomputed:
            return np.asarray(X[np.ix_(candidates, candidates[places])], dtype=float)
        return KernelBlocks(kernel, take_items(X, candidates[places]))(rows).astype(float, copy=False)

    rows = None if kernel.is_precomputed else take_items(X, candidates)
    left = _kernel_diagonal(X, kernel, candidates)
    floor = n * np.finfo(float).eps * float(left.max(initial=0.0))
    F = np.zeros((n, size))
    drawn: list[int] = []
    while len(drawn) < size and float(left.sum()) > n * floor:
        proposed = rng.choice(n, size=min(_PROPOSED, n), p=left / left.sum())
        K = block(proposed)
        H = K[proposed] - F[proposed, : len(drawn)] @ F[proposed, : len(drawn)].T
        accepted = _accept(H, left[proposed], size - len(drawn), floor, rng)
        if not accepted:
            continue
        new = proposed[accepted]
        columns = K[:, accepted] - F[:, : len(drawn)] @ F[new, : len(drawn)].T
        C = np.linalg.cholesky(columns[new] + floor * np.eye(len(new)))
        stop = len(drawn) + len(new)
        F[:, len(drawn) : stop] = solve_triangular(C, columns.T, lower=True, check_finite=False).T
        left = np.maximum(left - np.square(F[:, len(drawn) : stop]).sum(axis=1), 0.0)
        left[new] = 0.0
        drawn.extend(new.tolist())
    return np.array(drawn, dtype=np.int64)


def _accept(H: np.ndarray, proposed_with: np.ndarray, n_wanted: int, floor: float, rng) -> list[int]:
    """Which proposals drawing one by one would have accepted, from the share left of each; H is overwritten."""
    accepted: list[int] = []
    for i in range(H.shape[0]):
        if len(accepted) == n_wanted:
            break
        if H[i, i] <= floor or rng.uniform() * proposed_with[i] >= H[i, i]:
            continue
        accepted.append(i)
        column = H[:, i] / np.sqrt(H[i, i])
        H -= column[:, None] * column[None, :]
    return accepted


def _kernel_diagonal(X: Any, kernel: Kernel, rows: np.ndarray) -> np.ndarray:
    """k(x, x) for some rows."""
    if kernel.is_precomputed:
        return np.asarray(X[rows, rows], dtype=float).copy()
    if kernel.is_of_distance:
        return np.ones(rows.shape[0])
    step = 1 if kernel.takes_objects else 64  # a few rows squared are one call of a named kernel
    squares = [
        kernel.matrix(take_items(X, rows[start : start + step])) for start in range(0, rows.shape[0], step)
    ]
    return np.concatenate([np.diagonal(square) for square in squares]).astype(float)


def choose_basis(n_rows: int, n_basis: Any, basis: Any, random_state: Any) -> np.ndarray | None:
    """Row numbers of the basis vectors, or None for all rows.

    Parameters
    ----------
    n_rows : int
        Rows to choose from.
    n_basis : None, int or float
        How many; a float is a fraction of the rows (rounded up). None takes all rows, or all of a given `basis`.
    basis : "uniform" or array of int
        Draw them at random without replacement, or take these (`select_basis` also accepts "diverse").
    random_state : int, RandomState or None
        For the draw.

    Returns
    -------
    ndarray of shape (r,) or None
        Ascending when drawn, in the given order when given.
    """
    if isinstance(basis, str):
        if basis != "uniform":
            also = (
                " ('diverse' needs all rows in memory at once)"
                if basis == "diverse"
                else ", or 'diverse' in fit"
            )
            raise ValueError(f"basis must be 'uniform' or an array of row numbers{also}: found {basis!r}.")
        if n_basis is None:
            return None
        size = _basis_size(n_rows, n_basis)
        # Evenly along a permutation: folds that are shuffled with the same seed are runs of it, and its beginning alone
        # would leave with the first of them.
        order = check_random_state(random_state).permutation(n_rows)
        return np.sort(order[np.arange(size) * n_rows // size])
    rows = _given_rows(n_rows, basis)
    if n_basis is not None and _basis_size(n_rows, n_basis) != rows.shape[0]:
        raise ValueError(
            f"n_basis={n_basis!r} asks for another number than the {rows.shape[0]} rows given as basis: "
            "leave n_basis out when basis is an array."
        )
    return rows


def _basis_size(n_rows: int, n_basis: Any) -> int:
    if isinstance(n_basis, Integral) and not isinstance(n_basis, bool):
        size = int(n_basis)
        if size < 1:
            raise ValueError(f"n_basis must be at least 1: found {n_basis}.")
        if size > n_rows:
            raise ValueError(
                f"n_basis={n_basis} is larger than the number of rows, {n_rows}: use at most {n_rows}, "
                "or n_basis=None for the full kernel."
            )
        return size
    if isinstance(n_basis, Real) and not isinstance(n_basis, bool):
        fraction = float(n_basis)
        if not 0 < fraction <= 1:
            raise ValueError(f"A float n_basis is a fraction of the rows, in (0, 1]: found {n_basis}.")
        return ceil(fraction * n_rows)
    raise ValueError(f"n_basis must be None, an int or a float: found {n_basis!r}.")


def _given_rows(n_rows: int, basis: Any) -> np.ndarray:
    rows = np.asarray(basis)
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(
            "basis must be 'uniform' or a one-dimensional array of row numbers: "
            f"found an array of shape {rows.shape} and type {rows.dtype}."
        )
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(
            f"basis holds row {rows.min() if rows.min() < 0 else rows.max()}: expected 0 to {n_rows - 1}."
        )
    if np.unique(rows).shape[0] != rows.shape[0]:
        raise ValueError("basis names a row twice: each basis vector is needed once.")
    return rows.astype(np.int64)
