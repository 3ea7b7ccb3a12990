"""Kernel functions by scikit-learn's names, precomputed matrices, and callables on any objects.

`Kernel` reads the parameters once, refuses those that the chosen kernel would ignore, and evaluates blocks of the
kernel matrix.

A squared distance is |x|² - 2 x · z + |z|²: where rows differ by 1 and lie near 1e7, it has only the precision of the
squares. The RBF, Laplacian and Matérn kernels are invariant to shifts, so a row near the others (`middle_row`) is
subtracted first, before a metric rounds anything. The choice of that row affects only rounding; it is computed from the
basis vectors, which a model holds anyway, so that a saved model predicts the same. Sparse rows are not shifted, which
would make them dense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..numerics.linalg import mirror_lower
from ..numerics.memory import require_memory
from ..numerics.namespace import Home, as_host, is_device_array
from ..numerics.threads import blas_at_rest, in_turns
from .registry import KernelFunction, kernel_function, kernel_names

# scikit-learn's own defaults: a value that differs was given by the user.
_DEFAULTS = {"gamma": None, "degree": 3, "coef0": 1}
GAMMA_RULES = ("median", "scale")
# Numbers of rows that are shifted at a time: no second copy of a large X.
_MOVED_AT_ONCE = 1 << 24
# Pairs of rows from which the median distance is taken.
_MEDIAN_PAIRS = 4000


@dataclass(frozen=True)
class Kernel:
    """A kernel function with its parameters.

    Parameters
    ----------
    kernel : str or callable
        A name of ``sklearn.metrics.pairwise.pairwise_kernels``, ``"matern"`` (its ``nu`` in kernel_params, 1/2 by
        default), a name of `register_kernel`, ``"precomputed"``, or a function of two items that returns a number; the
        items may be rows of an array or any objects.
    gamma, degree, coef0
        Parameters of the named kernels, with scikit-learn's meaning and defaults.
    kernel_params : mapping, optional
        Further parameters of a named kernel, or keyword arguments of a callable. The kernels on distances take
        ``"metric"``: one factor per feature, or a matrix S of shape (n, k); the kernel is then evaluated on X S.

    Raises
    ------
    ValueError
        If the name is unknown, or a parameter is not one of that kernel.

    Examples
    --------
    >>> import numpy as np
    >>> Kernel("rbf", gamma=0.5).matrix(np.array([[0.0], [1.0]])).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    kernel: str | Callable[..., float] = "linear"
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: Mapping[str, Any] | None = None
    metric: np.ndarray | None = field(init=False, repr=False, compare=False, default=None)
    _params: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._params.update(_read_parameters(self))
        if not callable(self.kernel) and "metric" in self._params:
            object.__setattr__(self, "metric", _read_metric(self._params.pop("metric")))

    def __getstate__(self) -> dict[str, Any]:
        # What follows from the parameters is not stored with them, except for a width that was computed from rows.
        state = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        width = self._params.get("gamma") if self.needs_rows else None
        return {**state, "_width": width} if isinstance(width, float) else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        parameters = {name: value for name, value in state.items() if name != "_width"}
        self.__init__(**parameters)  # type: ignore[misc]
        if "_width" in state:
            self.use_width(state["_width"])

    @property
    def function(self) -> KernelFunction | None:
        """The entry of a named kernel; None for precomputed ones and callables."""
        return kernel_function(self.kernel)

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters that were given, and a width that was computed from rows."""
        return dict(self._params)

    @property
    def is_of_distance(self) -> bool:
        """Whether it depends on rows only through a distance, so that a metric can be given and learned."""
        return self.function is not None and self.function.distance is not None

    @property
    def has_blocks(self) -> bool:
        """Whether dense rows are evaluated by `KernelBlocks` in any array namespace, devices included."""
        return self.function is not None and self.function.block is not None

    @property
    def is_linear(self) -> bool:
        return self.kernel == "linear"

    @property
    def is_precomputed(self) -> bool:
        return self.kernel == "precomputed"

    @property
    def takes_objects(self) -> bool:
        """Whether items may be any objects rather than rows of numbers."""
        return callable(self.kernel)

    def origin(self, basis: Any) -> np.ndarray | None:
        """A row to measure from where this kernel is invariant to shifts and these rows lie far from 0; else None."""
        if not self.is_of_distance:
            return None
        if self.function.distance == "absolute" and self.metric is None:  # type: ignore[union-attr]
            return None  # sums of differences lose no precision
        return large_offset(basis)

    def seen(self, X: Any, origin: np.ndarray | None = None) -> Any:
        """The rows as the kernel sees them, measured from `origin` of the basis vectors: (X - origin) S."""
        if origin is not None and not sp.issparse(X):
            X = X - origin.astype(X.dtype, copy=False)
        return self.apply_metric(X)

    def apply_metric(self, X: Any) -> Any:
        """X S: X itself without a metric."""
        S = self.metric
        if S is None or X is None:
            return X
        if X.shape[1] != S.shape[0]:
            raise ValueError(
                f"The metric of the kernel is for {S.shape[0]} features: found X with {X.shape[1]}."
            )
        if is_device_array(X):
            home = Home.of(X)
            factors = home.put(S)
            return X * factors if S.ndim == 1 else X @ factors
        S = S.astype(X.dtype, copy=False)
        if S.ndim == 1:
            return sp.csr_array(X.multiply(S[None, :])) if sp.issparse(X) else X * S
        return np.asarray(X @ S)

    def with_metric(self, metric: np.ndarray | None) -> Kernel:
        """The same kernel with this metric, or without one."""
        params = {key: value for key, value in (self.kernel_params or {}).items() if key != "metric"}
        if metric is not None:
            params["metric"] = metric
        return replace(self, kernel_params=params or None)

    def of_columns(self, used: np.ndarray) -> Kernel:
        """The same kernel of some columns, where its diagonal metric gives no weight to the others."""
        metric: Any = self.metric
        known = self.function is not None and "gamma" in self.function.parameters
        gamma = self.width(metric.shape[0]) if known else self.gamma
        return replace(self, gamma=gamma).with_metric(metric[used])

    def width(self, n_features: int) -> float:
        """γ as a number: scikit-learn's default is one over the number of features that the kernel sees."""
        self.refuse_without_width()
        gamma = self._params.get("gamma")
        return 1.0 / n_features if gamma is None else float(gamma)

    def parameter(self, name: str) -> Any:
        """A parameter of a named kernel, wherever it was given."""
        return self._params[name] if name in self._params else self.function.parameters[name]  # type: ignore[union-attr]

    def refuse_without_width(self) -> None:
        """Refuse a rule for gamma that has not become a number: it needs all rows, and here they come in parts."""
        if isinstance(self._params.get("gamma"), str):
            raise ValueError(
                f"gamma={self.gamma!r} is computed from all rows together, and here they come in parts: pass a "
                "number, for example gamma_ of a model that was fitted on some of them."
            )

    @property
    def needs_rows(self) -> bool:
        """Whether gamma is a rule ("median", "scale") that the rows of ``fit`` turn into a number."""
        return isinstance(self.gamma, str)

    def fit_width(self, X: Any) -> float:
        """Compute the number that the rule stands for from the rows of ``fit``, and use it from now on."""
        return self.use_width(automatic_gamma(self, X))

    def use_width(self, gamma: float) -> float:
        """Use a number that was computed before instead of the rule."""
        self._params["gamma"] = gamma
        return gamma

    def fitted_to(self, X: Any) -> Kernel:
        """The same kernel with gamma as a number, computed from the rows that it is trained on."""
        return replace(self, gamma=automatic_gamma(self, X)) if self.needs_rows else self

    def matrix(self, X: Any, Y: Any = None) -> np.ndarray:
        """K[i, j] = k(X[i], Y[j]) as a C-contiguous array; Y defaults to X.

        A precomputed kernel cannot be evaluated: its blocks are taken from the matrix that the user passes.
        """
        n_rows, n_columns = n_items(X), n_items(X if Y is None else Y)
        itemsize = 4 if getattr(X, "dtype", None) == np.float32 else 8
        require_memory(n_rows * n_columns * itemsize, f"a kernel matrix of {n_rows} × {n_columns}")
        if callable(self.kernel):
            return _refuse_not_finite(_call_for_pairs(self.kernel, self._params, X, Y))
        origin = self.origin(X if Y is None else Y)
        if sp.issparse(X):
            origin = None
        if origin is None or Y is None or n_rows * X.shape[1] <= _MOVED_AT_ONCE:
            return self.matrix_of_seen(self.seen(X, origin), None if Y is None else self.seen(Y, origin))
        basis, step = self.seen(Y, origin), max(1, _MOVED_AT_ONCE // X.shape[1])
        parts = (self.seen(X[start : start + step], origin) for start in range(0, n_rows, step))
        return np.concatenate([self.matrix_of_seen(part, basis) for part in parts])

    def matrix_of_seen(self, X: Any, Y: Any = None) -> np.ndarray:
        """`matrix` of a named kernel for rows that have been through `seen`."""
        self.refuse_without_width()
        K = self._evaluated(X, Y)
        if Y is None and self.is_of_distance:
            _refuse_constant(K, X, self._params.get("gamma"))
        return K

    def _evaluated(self, X: Any, Y: Any) -> np.ndarray:
        function: Any = self.function
        n_rows, n_columns = X.shape[0], (X if Y is None else Y).shape[0]
        if sp.issparse(X) or sp.issparse(Y) or n_rows * n_columns <= _ONE_BLOCK:
            K = function.matrix(self, X, Y)
            return np.ascontiguousarray(K.toarray() if sp.issparse(K) else K)
        return self._in_blocks(function, X, Y)

    def _in_blocks(self, function: Any, X: np.ndarray, Y: np.ndarray | None) -> np.ndarray:
        """The same for dense rows, some rows per thread; of a symmetric matrix only the lower triangle."""
        columns = X if Y is None else Y
        K = np.empty((X.shape[0], columns.shape[0]), dtype=np.result_type(X, columns))
        block = None
        if self.is_of_distance and self.has_blocks and K.dtype == np.float64:
            # Several times as fast; in single precision scikit-learn computes distances in double precision.
            block = function.block(self, columns, X.shape[1], np)

        def fill(start: int, stop: int) -> None:
            last = stop if Y is None else columns.shape[0]
            if block is not None:
                block(X[start:stop], out=K[start:stop, :last])
            else:
                K[start:stop, :last] = function.matrix(self, X[start:stop], columns[:last])

        step = max(16, _ONE_BLOCK // columns.shape[0])
        starts = range(0, X.shape[0], step)
        with blas_at_rest():
            # The longest rows first, so that no thread is left with one of them at the end.
            in_turns(fill, [(start, min(start + step, X.shape[0])) for start in reversed(starts)])
        if Y is not None:
            return K
        if self.is_of_distance:
            np.fill_diagonal(K, 1.0)  # the exact value at distance 0, without rounding
        return mirror_lower(K)


# Kernel values that one thread evaluates at a time.
_ONE_BLOCK = 1 << 18


def _call_for_pairs(function: Callable[..., float], params: dict[str, Any], X: Any, Y: Any) -> np.ndarray:
    rows = list(items(X))
    if Y is not None:
        columns = list(items(Y))
        K = np.empty((len(rows), len(columns)))
        for i, x in enumerate(rows):
            for j, y in enumerate(columns):
                K[i, j] = function(x, y, **params)
        return K
    # The kernel is symmetric: half of the calls are enough.
    K = np.empty((len(rows), len(rows)))
    for i, x in enumerate(rows):
        for j in range(i + 1):
            K[i, j] = K[j, i] = function(x, rows[j], **params)
    return K


# From here on the kernel has less than half of the precision of a distance.
_CONSTANT = 2.0**-30


def _refuse_constant(K: np.ndarray, X: Any, gamma: float | None) -> None:
    """Refuse a width that makes different rows look equal."""
    if K.shape[0] < 2 or K.dtype != np.float64 or K[0].min() < 1 - _CONSTANT or K.min() < 1 - _CONSTANT:
        return
    if sp.issparse(X):
        first = sp.csr_array(np.ones((X.shape[0], 1))) @ sp.csr_array(X[[0]])
        differ = abs(sp.csr_array(X) - first).max()
    else:
        differ = np.abs(X - X[0]).max()
    if differ > 1e-12 * abs(X).max():
        raise ValueError(
            f"gamma = {gamma} is so small that the kernel is constant up to rounding (smallest value "
            f"1 - {1 - K.min():.1g}) although rows differ: use a larger gamma, or scale the features up."
        )


def _refuse_not_finite(K: np.ndarray) -> np.ndarray:
    bad = np.argwhere(~np.isfinite(K))
    if bad.size:
        i, j = bad[0].tolist()
        raise ValueError(
            f"The callable kernel returned {K[i, j]} for items {i} and {j}: expected a finite number."
        )
    return K


def _read_parameters(kernel: Kernel) -> dict[str, Any]:
    given = {name: getattr(kernel, name) for name in _DEFAULTS}
    changed = {name for name, value in given.items() if not _same(value, _DEFAULTS[name])}
    extra = dict(kernel.kernel_params or {})
    name, function = kernel.kernel, kernel.function
    if callable(name):
        if changed:
            raise ValueError(
                f"{', '.join(sorted(changed))} would be ignored by a callable kernel: "
                "pass its arguments in kernel_params."
            )
        return extra
    if name == "precomputed":
        known: frozenset[str] = frozenset()
    elif function is not None:
        known = frozenset(function.parameters) | ({"metric"} if function.distance else set())
    else:
        names = ", ".join(map(repr, sorted(kernel_names())))
        raise ValueError(f"kernel must be one of {names}, 'precomputed' or a callable: found {name!r}.")
    unknown = sorted((changed | set(extra)) - known)
    if unknown:
        takes = ", ".join(sorted(known)) or "none"
        raise ValueError(
            f"kernel={name!r} does not take {', '.join(unknown)} (its parameters: {takes}). "
            "Remove it, or choose the kernel that it belongs to."
        )
    # None is scikit-learn's own default, which is not None inside every kernel.
    params = {key: value for key, value in given.items() if key in known and value is not None}
    clash = sorted(changed & set(extra))
    if clash:
        raise ValueError(
            f"{', '.join(clash)} is given twice: as an argument and in kernel_params. Keep one of them."
        )
    if isinstance(extra.get("gamma"), str):
        raise ValueError("A rule for gamma is given as the argument gamma, not in kernel_params.")
    params.update(extra)
    if function is not None:
        _check_gamma(name, function, params.get("gamma"))
        function.check(params)
    return params


def _check_gamma(name: str, function: KernelFunction, gamma: Any) -> None:
    if gamma is None:
        return
    if isinstance(gamma, Real) and not isinstance(gamma, bool):
        if function.distance and not 0 <= float(gamma) < np.inf:
            raise ValueError(
                f"gamma of kernel={name!r} must be a finite number that is not negative: found {gamma!r}."
            )
        return
    rules = GAMMA_RULES if function.distance else ("scale",)
    if not isinstance(gamma, str) or gamma not in rules:
        choices = " or ".join(map(repr, rules))
        raise ValueError(f"gamma of kernel={name!r} must be a number, None or {choices}: found {gamma!r}.")


def automatic_gamma(kernel: Kernel, X: Any) -> float:
    """The number that ``gamma="median"`` or ``gamma="scale"`` stands for.

    "median" is one over the median squared distance of two rows (over the median distance for the Laplacian and the
    Matérn kernels), from a fixed random sample of pairs; "scale" is 1 / (n Var(X)), as in scikit-learn's support vector
    machines, and its root for the Matérn kernels. Where all rows are equal both are 1 / n.
    """
    n_features = X.shape[1] if kernel.metric is None or kernel.metric.ndim == 1 else kernel.metric.shape[1]
    spread = _median_distance(kernel, X) if kernel.gamma == "median" else n_features * _variance(kernel, X)
    if kernel.function is not None and kernel.function.distance == "euclidean":
        spread = spread**0.5
    return 1.0 / spread if spread > 0 and np.isfinite(spread) else 1.0 / n_features


def _median_distance(kernel: Kernel, X: Any) -> float:
    first, second = np.random.default_rng(0).integers(0, X.shape[0], (2, _MEDIAN_PAIRS))
    apart = first != second
    ends = (_on_host(take_items(X, rows[apart])) for rows in (first, second))
    difference = kernel.apply_metric(next(ends) - next(ends))
    if sp.issparse(difference):
        difference = sp.csr_array(difference)  # of a matrix, `*` is the matrix product
    absolute = kernel.function is not None and kernel.function.distance == "absolute"
    size = abs(difference) if absolute else difference * difference
    distances = np.asarray(size.sum(axis=1), dtype=float).ravel()
    if not distances.any():
        return 0.0
    # Where most rows are equal the median distance is 0: then the scale is that of the different ones.
    median = float(np.median(distances))
    return median if median > 0 else float(np.median(distances[distances > 0]))


def _variance(kernel: Kernel, X: Any) -> float:
    rows = kernel.apply_metric(_on_host(X))
    if sp.issparse(rows):
        size = rows.shape[0] * rows.shape[1]
        mean = rows.sum() / size
        return float((rows.multiply(rows)).sum() / size - mean**2)
    return float(np.var(rows, dtype=np.float64))


def _on_host(X: Any) -> Any:
    return as_host(X) if is_device_array(X) else X


def _read_metric(metric: Any) -> np.ndarray:
    S = np.asarray(metric, dtype=np.float64)
    if S.ndim not in (1, 2) or S.size == 0 or not np.isfinite(S).all():
        raise ValueError(
            "metric must be one finite factor per feature, shape (n,), or a matrix of shape (n, k): found shape "
            f"{S.shape}."
        )
    return S


def _same(value: Any, default: Any) -> bool:
    return value is default or (default is not None and value is not None and value == default)


def take_training_items(X: Any, rows: np.ndarray, kernel: Kernel, among: np.ndarray | None = None) -> Any:
    """Some of the items; of a kernel matrix also only the columns ``among``, by default the same rows."""
    items = take_items(X, rows)
    return items[:, rows if among is None else among] if kernel.is_precomputed else items


# ----------------------------------------------------------------
# Items of any container, and what kernels share that work on rows of numbers.


# Rows from which the middle is taken.
_SAMPLE = 65
# Differences stay precise enough where squares of rows are at most this many times those of the differences.
_HARMLESS = 16.0


def n_items(X: Any) -> int:
    """Number of items of an array, a sparse matrix or any sequence."""
    shape = getattr(X, "shape", None)
    if shape is None and not hasattr(X, "__len__") and hasattr(X, "__array__"):
        shape = np.asarray(X).shape
    return int(shape[0]) if shape else len(X)


def items(X: Any):
    """The items one by one; rows of a sparse matrix stay sparse."""
    if sp.issparse(X):
        return (X[[i]] for i in range(X.shape[0]))
    return iter(X)


def take_items(X: Any, rows: np.ndarray) -> Any:
    """Some of the items, in the container that came in (a list for other sequences)."""
    if is_device_array(X):
        return Home.of(X).rows(X, rows)
    if hasattr(X, "shape"):
        return X[rows]
    return [X[i] for i in rows]


def middle_row(rows: np.ndarray) -> np.ndarray:
    """The median of each column over some of the rows: close to most rows, regardless of outliers. Shape (n,)."""
    sample = rows[:: -(-rows.shape[0] // _SAMPLE)]
    return np.median(sample, axis=0).astype(rows.dtype, copy=False)


def large_offset(basis: Any) -> np.ndarray | None:
    """The middle of dense rows where it is so far from 0 that squares of rows lose precision to it, or None. O(n).

    Examples
    --------
    >>> import numpy as np
    >>> large_offset(np.array([[1e6, 1.0], [1e6 + 1.0, 2.0], [1e6 - 1.0, 3.0]]))
    array([1.e+06, 2.e+00])
    >>> large_offset(np.array([[0.0, 1.0], [1.0, 2.0]])) is None
    True
    """
    if not hasattr(basis, "shape") or sp.issparse(basis) or is_device_array(basis) or not basis.shape[0]:
        return None
    middle = middle_row(basis)
    sample = basis[:: -(-basis.shape[0] // _SAMPLE)]
    unit = float(np.abs(middle).max(initial=0.0))
    if not unit > 0 or not np.isfinite(unit):
        return None
    spread = float(np.median(np.square((sample - middle) / unit).sum(axis=1)))
    return middle if float(np.square(middle / unit).sum()) > _HARMLESS * spread else None


def dense(A: Any) -> np.ndarray:
    """The array that a matrix stands for."""
    return A.toarray() if sp.issparse(A) else np.asarray(A)


def weighted_rows(W: np.ndarray, Z: Any) -> np.ndarray:
    """W Z as a dense array."""
    return np.asarray(W @ Z) if not sp.issparse(Z) else np.asarray((Z.T @ W.T).T)


def weighted_differences(X: Any, Z: Any, W: np.ndarray) -> np.ndarray:
    """Σ_j W_ij (x_i - z_j), shape (m, n)."""
    return dense(X) * W.sum(axis=1)[:, None] - weighted_rows(W, Z)


# ----------------------------------------------------------------
# The linear kernel of sparse rows, as a dense matrix.


# Numbers of a block of rows of a product of sparse matrices, before it is made dense.
_SPARSE_BLOCK = 1 << 22
# From this many rows on, a compiled loop is worth its compilation.
_COMPILED_ROWS = 1000


def sparse_products(A: Any, B: Any = None) -> np.ndarray:
    """A Bᵀ of a sparse A as a dense C-contiguous array; B defaults to A.

    Some rows at a time: the sparse form of a product that is nearly dense takes more memory than the dense one.
    """
    if B is None and A.shape[0] < _COMPILED_ROWS:
        B = A
    if B is None:
        from ._loops import products_of_rows

        return products_of_rows(sp.csr_array(A))
    transposed = sp.csr_array(B.T) if sp.issparse(B) else np.ascontiguousarray(np.asarray(B).T)
    out = np.empty((A.shape[0], B.shape[0]), dtype=np.result_type(A.dtype, B.dtype))
    step = max(1, _SPARSE_BLOCK // max(1, B.shape[0]))
    for start in range(0, A.shape[0], step):
        block = A[start : start + step] @ transposed
        if sp.issparse(block):
            block.toarray(out=out[start : start + step])
        else:
            out[start : start + step] = block
    return out
