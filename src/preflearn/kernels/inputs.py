"""Reading the items that a kernel is evaluated on, and the kernel's parameters from an estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from ..numerics.namespace import Home, is_device_array, refuse_repeated_columns, refuse_undispatched
from .functions import Kernel
from .registry import kernel_function, kernel_names

# Ends a refusal of device arrays; formatted with what to use instead.
DEVICE_REMEDY = "Use {}, or NumPy arrays (X.cpu().numpy() for a PyTorch tensor)."
# How far a precomputed kernel may be from symmetric, relative to its largest entry.
_ASYMMETRY = 1e-6
# The ratio of scales from which on a kernel of distances warns.
_WILD = 1000


class KernelParametersMixin:
    """The parameters ``kernel, gamma, degree, coef0, kernel_params`` of an estimator or a feature map."""

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    kernel_params: Any

    def _read_kernel(self) -> Kernel:
        """The kernel with its parameters, checked; once fitted, with the number that a rule for gamma has become."""
        return self._with_width(Kernel(self.kernel, self.gamma, self.degree, self.coef0, self.kernel_params))

    def _with_width(self, kernel: Kernel) -> Kernel:
        if kernel.needs_rows and hasattr(self, "gamma_"):
            kernel.use_width(self.gamma_)
        return kernel

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def read_items(estimator: Any, X: Any, kernel: Kernel, *, reset: bool) -> Any:
    """Validate X for a kernel: a float array, a CSR matrix, a kernel matrix, or a list of any objects.

    Parameters
    ----------
    estimator : BaseEstimator
        Receives ``n_features_in_`` and ``feature_names_in_`` when ``reset``, and is checked against them otherwise;
        and ``gamma_``, where the kernel's gamma is a rule.
    X : array-like, sparse matrix, data frame, or sequence of objects for a callable kernel
    kernel : Kernel
    reset : bool
        True in fit, False in predict and transform.
    """
    X = _validated(estimator, X, kernel, reset=reset)
    if reset:
        estimator.__dict__.pop("gamma_", None)
        if kernel.needs_rows:
            estimator.gamma_ = kernel.fit_width(X)
        learns_scales = getattr(estimator, "metric", None) is not None or kernel.metric is not None
        if kernel.is_of_distance and not learns_scales:
            _warn_of_scales(X)
    return X


def _warn_of_scales(X: Any) -> None:
    """Warn when the unit of one feature decides every distance; in constant words, so that it is shown once."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.shape[1] < 2:
        return
    with np.errstate(all="ignore"):
        spread = X.std(axis=0, dtype=np.float64)
    spread = spread[np.isfinite(spread) & (spread > 0)]
    if spread.size > 1 and spread.max() > _WILD * spread.min():
        warnings.warn(
            "The features have wildly different scales (standard deviations differ by a factor of more than "
            f"{_WILD:,}), and this kernel depends on distances: features of small scale have almost no influence. Put "
            "a StandardScaler in front: make_pipeline(StandardScaler(), ...).",
            UserWarning,
            stacklevel=4,
        )


def _validated(estimator: Any, X: Any, kernel: Kernel, *, reset: bool) -> Any:
    if is_device_array(X):
        return _read_device_items(estimator, X, reset)
    refuse_undispatched(X)
    refuse_repeated_columns(X)
    if kernel.takes_objects and not is_table(X):
        return read_objects(X)
    if kernel.is_precomputed and sp.issparse(X):
        raise TypeError(
            "A precomputed kernel must be a dense array: found a sparse matrix. Pass K.toarray()."
        )
    try:
        X = validate_data(
            estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", reset=reset
        )
    except ValueError as error:
        raise _pointing_to_tables(error, estimator) from None
    if kernel.is_precomputed and reset:
        check_kernel_matrix(X)
    return X


def _pointing_to_tables(error: ValueError, estimator: Any) -> ValueError:
    """The error of validation; for missing values and texts, with advice on what accepts them."""
    text = str(error)
    if "contains NaN" in text:
        text = f"{text.splitlines()[0]} {type(estimator).__name__} does not accept missing values encoded as NaN."
    elif "could not convert string" not in text:
        return error
    return ValueError(
        f"{text.rstrip('.')}. AutoRanker accepts missing values, texts, categories and dates as they are; for other "
        f"learners TableEncoder turns them into numbers: make_pipeline(TableEncoder(), "
        f"{type(estimator).__name__}())."
    )


def _read_device_items(estimator: Any, X: Any, reset: bool) -> Any:
    """Rows of numbers on a device, in float64 or float32; they stay there."""
    if getattr(X, "is_sparse", False) or getattr(X, "is_sparse_csr", False):
        raise TypeError(
            "Sparse arrays on a device are not supported: pass X.to_dense(), or a scipy.sparse matrix on the host."
        )
    xp = Home.of(X).xp
    return validate_data(estimator, X, dtype=[xp.float64, xp.float32], order=None, reset=reset)


def is_table(X: Any) -> bool:
    """Rows of numbers: an array, a sparse matrix or a data frame."""
    return sp.issparse(X) or getattr(X, "ndim", 0) == 2 or hasattr(X, "columns")


def read_objects(X: Any) -> list[Any]:
    if isinstance(X, (str, bytes)) or not hasattr(X, "__len__"):
        raise TypeError(
            f"A callable kernel takes a sequence of items: found a {type(X).__name__}. Pass a list of the items."
        )
    objects = list(X)
    if not objects:
        raise ValueError("Found 0 sample(s) while a minimum of 1 is required: X is empty.")
    return objects


def check_kernel_matrix(K: np.ndarray) -> None:
    """Refuse a precomputed training kernel that is not square or not symmetric. O(m²), in blocks."""
    n_rows, n_columns = K.shape
    if n_rows != n_columns:
        raise ValueError(
            f"A precomputed kernel must be square for fit, rows and columns both the training items: found {n_rows} × "
            f"{n_columns}. For prediction pass one row per new item and one column per training item."
        )
    scale = max(float(K.max()), -float(K.min()))
    step = max(1, (1 << 22) // n_rows)
    for start in range(0, n_rows, step):
        difference = np.abs(K[start : start + step] - K[:, start : start + step].T)
        if float(difference.max()) > _ASYMMETRY * scale:
            row, j = divmod(int(np.argmax(difference)), n_rows)
            i = row + start
            raise ValueError(
                f"The precomputed kernel is not symmetric: K[{i}, {j}] = {K[i, j]:.6g} but "
                f"K[{j}, {i}] = {K[j, i]:.6g}. Use (K + K.T) / 2 if the difference is rounding."
            )


def why_not_on_device(kernel: Any, solver: Any, cost: Any) -> str | None:
    """Which of an estimator's parameters are not supported on device arrays, or None."""
    entry = kernel_function(kernel)
    if entry is None or entry.block is None:
        names = ", ".join(map(repr, kernel_names(lambda one: one.block)))
        return f"kernel={kernel!r} is not available on device arrays. " + DEVICE_REMEDY.format(
            f"one of {names}"
        )
    if solver == "cg":
        return "solver='cg' works on NumPy arrays. " + DEVICE_REMEDY.format("solver='auto'")
    if cost == "relative":
        return (
            "cost='relative' has a dense Laplacian, which is computed on NumPy arrays. "
            + DEVICE_REMEDY.format("cost='magnitude' or 'unit'")
        )
    return None
