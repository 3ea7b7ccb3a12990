"""Which rows become basis vectors of a reduced set."""

from __future__ import annotations

from math import ceil
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def choose_basis(n_rows: int, n_basis: Any, basis: Any, random_state: Any) -> np.ndarray | None:
    """Row numbers of the basis vectors, or None for all rows.

    Parameters
    ----------
    n_rows : int
        Rows to choose from.
    n_basis : None, int or float
        How many; a float is a fraction of the rows (rounded up). None takes all rows, or all of a given `basis`.
    basis : "uniform" or array of int
        Draw them at random without replacement, or take these.
    random_state : int, RandomState or None
        For the draw.

    Returns
    -------
    ndarray of shape (r,) or None
        Ascending when drawn, in the given order when given.
    """
    if isinstance(basis, str):
        if basis != "uniform":
            raise ValueError(f"basis must be 'uniform' or an array of row numbers: found {basis!r}.")
        if n_basis is None:
            return None
        size = _basis_size(n_rows, n_basis)
        drawn = check_random_state(random_state).choice(n_rows, size=size, replace=False)
        return np.sort(drawn)
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
