"""Predictions on device arrays."""

from __future__ import annotations

from typing import Any

from ...kernels.blocks import KernelBlocks
from ...kernels.functions import Kernel
from ...numerics.namespace import Home


def expand_on_device(X: Any, kernel: Kernel, basis: Any, coef: Any) -> Any:
    """k(X, basis) β, in blocks of rows."""
    home = Home.of(X)
    blocks = KernelBlocks(kernel, basis, home.xp)
    parts = [blocks(X[rows, :]) @ coef for rows in home.steps(X.shape[0], basis.shape[0])]
    return parts[0] if len(parts) == 1 else home.xp.concat(parts, axis=0)
