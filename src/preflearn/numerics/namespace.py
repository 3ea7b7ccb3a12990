"""Arrays of other libraries, on other devices: PyTorch tensors and others that follow the array API standard.

They are used as such under ``sklearn.config_context(array_api_dispatch=True)``, as in scikit-learn. What is small
(scores, query labels, one number per row) is read on the host; what is large stays on the device of X.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from sklearn import get_config  # type: ignore[attr-defined]

from ..errors import InputError
from .memory import available_bytes

# Bytes of one block of temporary rows, on a separate device and on the processor.
_DEVICE_BLOCK_BYTES = 1 << 30
_HOST_BLOCK_BYTES = 1 << 25
_NUMPY = "NumPy arrays"


def is_device_array(X: Any) -> bool:
    """Whether X is an array of another library than NumPy, and dispatch to that library is on."""
    if isinstance(X, np.ndarray) or not get_config()["array_api_dispatch"] or not hasattr(X, "dtype"):
        return False
    compat = _compat()
    return bool(compat.is_array_api_obj(X)) and not compat.is_numpy_array(X)


def refuse_undispatched(X: Any) -> None:
    """Refuse an array on a device that NumPy cannot read while dispatch is off, and say how to turn it on."""
    if getattr(X, "is_cuda", False) or getattr(getattr(X, "device", None), "type", "cpu") != "cpu":
        raise TypeError(
            f"X is an array on {X.device}, and array API dispatch is off. Train and predict under "
            "sklearn.config_context(array_api_dispatch=True), with SCIPY_ARRAY_API=1 set before the first import; or "
            "pass a NumPy array (X.cpu().numpy() for a PyTorch tensor)."
        )


def refuse_repeated_columns(X: Any) -> None:
    """Refuse a table of pandas or Arrow in which two columns have the same name: which one is meant cannot be told."""
    names = getattr(X, "columns", None) if hasattr(X, "iloc") else getattr(X, "column_names", None)
    if names is None or getattr(names, "is_unique", False):
        return
    names = list(names)
    name = next((one for k, one in enumerate(names) if one in names[:k]), None)
    if name is not None:
        raise InputError(
            f"the table has {names.count(name)} columns with the name {name!r}: rename all but one"
        )


def _compat() -> Any:
    """array-api-compat, or scikit-learn's own copy of it."""
    try:
        return import_module("array_api_compat")
    except ImportError:
        return import_module("sklearn.externals.array_api_compat")


def as_host(values: Any) -> Any:
    """The same values as a NumPy array when they are an array of another library; anything else unchanged."""
    return to_host(values) if is_device_array(values) else values


def to_host(values: Any) -> np.ndarray:
    """An array of another library, whether dispatch is on or not, as a NumPy array."""
    xp = _compat().array_namespace(values)
    if hasattr(values, "detach"):  # PyTorch
        return values.detach().cpu().numpy()
    if hasattr(values, "get"):  # CuPy
        return values.get()
    if hasattr(xp, "Device"):  # array-api-strict
        return np.asarray(xp.asarray(values, device=xp.Device("CPU_DEVICE")))
    return np.asarray(values)


@dataclass(frozen=True)
class Home:
    """Where the arrays of one computation live.

    Attributes
    ----------
    xp : module
        The array API namespace.
    device : object
    dtype : object
        Floating type of the computation.
    """

    xp: Any
    device: Any
    dtype: Any

    @classmethod
    def of(cls, X: Any) -> Home:
        compat = _compat()
        return cls(compat.array_namespace(X), compat.device(X), X.dtype)

    @property
    def eps(self) -> float:
        return float(self.xp.finfo(self.dtype).eps)

    @property
    def itemsize(self) -> int:
        return 4 if self.dtype == self.xp.float32 else 8

    def put(self, values: np.ndarray) -> Any:
        """Numbers in the floating type of the computation."""
        return self.xp.asarray(np.ascontiguousarray(values), dtype=self.dtype, device=self.device)

    def put_as_is(self, values: np.ndarray) -> Any:
        """Numbers in the type that they have: row numbers, scores."""
        return self.xp.asarray(np.ascontiguousarray(values), device=self.device)

    def zeros(self, *shape: int) -> Any:
        return self.xp.zeros(shape, dtype=self.dtype, device=self.device)

    def eye(self, n: int) -> Any:
        return self.xp.eye(n, dtype=self.dtype, device=self.device)

    def rows(self, X: Any, rows: Any) -> Any:
        """Some rows of X: a view for a slice, a copy for row numbers."""
        return X[rows, :] if isinstance(rows, slice) else self.xp.take(X, self.put_as_is(rows), axis=0)

    def steps(self, n_rows: int, width: int) -> list[slice]:
        """All rows as slices of a temporary block's height."""
        step = self.block_rows(width)
        return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]

    def free_bytes(self) -> int | None:
        """Memory that is available on the device, or None where it does not say."""
        kind = getattr(self.device, "type", "cpu")
        if kind == "cuda":
            import torch

            cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            return int(torch.cuda.mem_get_info(self.device)[0]) + int(cached)
        return available_bytes() if kind == "cpu" else None

    def block_rows(self, width: int) -> int:
        """Rows of a temporary block with this many columns."""
        host = getattr(self.device, "type", "cpu") == "cpu"
        limit = _HOST_BLOCK_BYTES if host else _DEVICE_BLOCK_BYTES
        free = self.free_bytes()
        if free is not None:
            limit = min(limit, max(free // 16, 1 << 20))
        return max(1, limit // (self.itemsize * max(1, width)))


def check_same_home(model: Any, method: str, X: Any, fitted: Any) -> None:
    """Refuse to mix arrays of fit with those of another library or device.

    Raises
    ------
    ValueError
    """
    now, then = _describe(X) if is_device_array(X) else _NUMPY, _describe(fitted)
    if now != then:
        raise ValueError(
            f"Inputs passed to {type(model).__name__}.{method}() must use the same namespace and the same device as "
            f"those passed to fit(): found {now}, expected {then}. Move X there (under "
            "sklearn.config_context(array_api_dispatch=True)), or fit again."
        )


def _describe(X: Any) -> str:
    if isinstance(X, np.ndarray):
        return _NUMPY
    compat = _compat()
    name = compat.array_namespace(X).__name__.removeprefix("array_api_compat.").rpartition(".")[2]
    return f"{name} arrays on {compat.device(X)}"
