r"""Which rows become basis vectors of a reduced set.

``"uniform"`` draws rows at random. ``"diverse"`` draws a row with probability proportional to the part of it that the
rows drawn so far do not span, k(x, x) - k(x, R) K_RR⁻¹ k(R, x) (randomly pivoted Cholesky): rows that resemble others
are drawn once, and rare ones are not missed. Rows are proposed many at a time and accepted one by one, so that most of
the work is matrix products; the result is the same as drawing one by one. Reference: Chen, Epperly, Tropp and Webber,
"Randomly pivoted Cholesky: practical approximation of a kernel matrix with few entry evaluations", Communications on
Pure and Applied Mathematics 78 (2025).
"""

from __future__ import annotations

from math import ceil
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from .blocks import KernelBlocks
from .functions import Kernel, n_items, take_items

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
