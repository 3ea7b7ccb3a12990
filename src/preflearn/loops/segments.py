"""Sums and means over groups of rows that need not be adjacent.

The operators of a query block, L = w (n I - 1 1ᵀ) and its symmetric half, are "take the row, subtract the mean of
its group, scale". These loops do that for a whole matrix without a second copy of it.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

# Columns handled by one thread at a time: one cache line of float64.
_STRIPE = 8


@njit(cache=True, parallel=True, nogil=True)
def segment_sums(V, codes, n_groups):
    """Sum of the rows of each group in float64: out[g] = Σ_{i: codes[i] = g} V[i]; O(m v).

    Threads share out the columns rather than the rows, so that no thread needs a table of its own.
    """
    n_rows, n_columns = V.shape
    out = np.zeros((n_groups, n_columns))
    n_stripes = (n_columns + _STRIPE - 1) // _STRIPE
    for stripe in prange(n_stripes):
        first = stripe * _STRIPE
        last = min(first + _STRIPE, n_columns)
        for i in range(n_rows):
            g = codes[i]
            for j in range(first, last):
                out[g, j] += V[i, j]
    return out


@njit(cache=True, parallel=True, nogil=True)
def centre_rows(V, codes, means, scale, out):
    """out[i] = scale[i] (V[i] - means[codes[i]]); ``out`` may be ``V``. O(m v)."""
    n_rows, n_columns = V.shape
    for i in prange(n_rows):
        g = codes[i]
        s = scale[i]
        for j in range(n_columns):
            out[i, j] = s * (V[i, j] - means[g, j])


@njit(cache=True, parallel=True, nogil=True)
def centre_rows_with_ties(V, codes, means, ties, tie_means, inner, outer, out):
    """out[i] = inner[i] (V[i] - tie mean) + outer[i] (tie mean - query mean); ``out`` may be ``V``. O(m v)."""
    n_rows, n_columns = V.shape
    for i in prange(n_rows):
        g = codes[i]
        t = ties[i]
        a = inner[i]
        b = outer[i]
        for j in range(n_columns):
            mean = tie_means[t, j]
            out[i, j] = a * (V[i, j] - mean) + b * (mean - means[g, j])


@njit(cache=True, parallel=True, nogil=True)
def centre_along_rows(K, codes, counts, ties, tie_counts, inner, outer):
    """Apply the same map to every row of a square matrix in place: K ← K S. O(m²), no second matrix.

    ``ties`` is empty when every row is its own tie group.
    """
    n_rows, n_columns = K.shape
    has_ties = ties.shape[0] > 0
    for i in prange(n_rows):
        row = K[i]
        means = np.zeros(counts.shape[0])
        for j in range(n_columns):
            means[codes[j]] += row[j]
        for g in range(means.shape[0]):
            means[g] /= counts[g]
        if has_ties:
            tie_means = np.zeros(tie_counts.shape[0])
            for j in range(n_columns):
                tie_means[ties[j]] += row[j]
            for t in range(tie_means.shape[0]):
                tie_means[t] /= tie_counts[t]
            for j in range(n_columns):
                mean = tie_means[ties[j]]
                row[j] = inner[j] * (row[j] - mean) + outer[j] * (mean - means[codes[j]])
        else:
            for j in range(n_columns):
                row[j] = outer[j] * (row[j] - means[codes[j]])


@njit(cache=True, parallel=True, nogil=True)
def transpose_in_place(K):
    """K ← Kᵀ for a square matrix, tile by tile. O(m²)."""
    n = K.shape[0]
    tile = 64
    n_tiles = (n + tile - 1) // tile
    for a in prange(n_tiles):
        for b in range(a, n_tiles):
            for i in range(a * tile, min((a + 1) * tile, n)):
                first = max(b * tile, i + 1)
                for j in range(first, min((b + 1) * tile, n)):
                    K[i, j], K[j, i] = K[j, i], K[i, j]
