"""Sums over very many answers "h rather than j": each reads two entries of a vector, or adds to two.

NumPy makes an array as long as the answers at every step; here they are read once. Each thread has its own answers and,
where it adds, its own vector.
"""

from __future__ import annotations

import numpy as np

from .compiling import njit
from .threads import over_ranges

_LEAST = 1 << 17  # answers that are worth a thread

_compiled = njit(cache=True, nogil=True, error_model="numpy")


def curvature_product(pairs: np.ndarray, curvatures: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Σ_k curvature_k (e_h - e_j)(e_h - e_j)ᵀ v for answers k about the items h and j, shape (m,). O(l).

    Examples
    --------
    >>> import numpy as np
    >>> curvature_product(np.array([[0, 1]]), np.array([2.0]), np.array([3.0, 1.0, 0.0]))
    array([ 4., -4.,  0.])
    """
    return np.sum(over_ranges(_curvature_product, pairs.shape[0], pairs, curvatures, v, least=_LEAST), axis=0)


def variances_by_draws(pairs, left, right, F, HF, out) -> None:
    """Add to ``out`` the mean square of f_h - f_j - left (Hf)_h - right (Hf)_j over draws f, for each pair. O(k d).

    A pair of an item with itself gets nothing. ``F`` and ``HF`` hold the draws and their products as columns, their
    rows contiguous.
    """
    over_ranges(_variances_by_draws, pairs.shape[0], pairs, left, right, F, HF, out, least=_LEAST)


@_compiled
def _curvature_product(pairs, curvatures, v, first, last):
    out = np.zeros(v.shape[0])
    for k in range(first, last):
        h, j = pairs[k, 0], pairs[k, 1]
        pull = curvatures[k] * (v[h] - v[j])
        out[h] += pull
        out[j] -= pull
    return out


@_compiled
def _variances_by_draws(pairs, left, right, F, HF, out, first, last):
    n_draws = F.shape[1]
    for k in range(first, last):
        h, j = pairs[k, 0], pairs[k, 1]
        if h == j:
            continue
        total = 0.0
        for d in range(n_draws):
            mean = F[h, d] - F[j, d] - left[k] * HF[h, d] - right[k] * HF[j, d]
            total += mean * mean
        out[k] += total / n_draws
