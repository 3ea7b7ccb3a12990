"""Compiled loops over labelled graphs: walk sums, label pairs, products of sparse rows.

Plain functions on arrays; they release the GIL, so blocks of graphs run in parallel threads. The walk sums are

    W = A + A² + A³ + ... = (I - A)⁻¹ - I          (non-negative weights, spectral radius of A under 1)
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ...numerics.compiling import njit


@njit(cache=True, nogil=True)
def sum_walks(weights: np.ndarray) -> bool:
    """Replace A by W = A + A² + ... in place; False where the series has no limit.

    Kleene's elimination: vertex by vertex, walks through k are added to those that avoid it, with
    1 / (1 - W[k, k]) standing for any number of rounds at k. For non-negative A the pivots 1 - W[k, k] are those
    of the LU factorisation of I - A, and they are all positive exactly when the spectral radius of A is under 1.
    Nothing but the pivot is ever subtracted, so even tiny weights keep their precision. Zeros are skipped: O(n³)
    for a dense graph, close to the number of connected vertex pairs times the degree for a parse.
    """
    n = weights.shape[0]
    inward = np.empty(n, np.int64)
    outward = np.empty(n, np.int64)
    to_k = np.empty(n)
    from_k = np.empty(n)
    for k in range(n):
        pivot = 1.0 - weights[k, k]
        if pivot <= 0.0:
            return False
        n_in = 0
        n_out = 0
        for i in range(n):
            if weights[i, k] != 0.0:
                inward[n_in] = i
                to_k[n_in] = weights[i, k] / pivot
                n_in += 1
            if weights[k, i] != 0.0:
                outward[n_out] = i
                from_k[n_out] = weights[k, i]
                n_out += 1
        for a in range(n_in):
            i = inward[a]
            for b in range(n_out):
                weights[i, outward[b]] += to_k[a] * from_k[b]
    return True


@njit(cache=True, nogil=True)
def sum_short_walks(weights: np.ndarray, max_length: int) -> None:
    """Replace A by A + A² + ... + A^max_length in place, by Horner's rule W ← A (I + W); zeros of A are skipped."""
    n = weights.shape[0]
    edges = weights.copy()
    shorter = weights.copy()
    for _ in range(max_length - 1):
        for i in range(n):
            for j in range(n):
                weights[i, j] = edges[i, j]
            for k in range(n):
                weight = edges[i, k]
                if weight != 0.0:
                    for j in range(n):
                        weights[i, j] += weight * shorter[k, j]
        for i in range(n):
            for j in range(n):
                shorter[i, j] = weights[i, j]


@njit(cache=True, nogil=True)
def label_pairs(
    vertex_starts: np.ndarray,
    label_starts: np.ndarray,
    local_labels: np.ndarray,
    own_starts: np.ndarray,
    own_labels: np.ndarray,
    edge_starts: np.ndarray,
    sources: np.ndarray,
    targets: np.ndarray,
    edge_weights: np.ndarray,
    max_length: int,
    min_weight: float,
    take_maximum: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Label-pair weights of a block of graphs.

    Graph g owns the vertices ``vertex_starts[g]:vertex_starts[g + 1]``, the distinct labels ``own_labels`` (ascending,
    not negative) and the edges of the same kind of slices; vertices of an edge are numbered inside the graph. Vertex v
    has the labels ``local_labels[label_starts[v]:label_starts[v + 1]]``, places in its graph's own labels.
    ``max_length = 0`` stands for walks of every length.

    Returns
    -------
    converged : ndarray of bool
        False for a graph whose series has no limit; its row is empty.
    row_starts, keys, values : ndarray
        CSR-like: graph g has the pairs ``keys[row_starts[g]:row_starts[g + 1]]``, ascending, a pair (a, b) of
        labels being ``a << 32 | b``.
    """
    n_graphs = vertex_starts.shape[0] - 1
    converged = np.ones(n_graphs, np.bool_)
    row_starts = np.zeros(n_graphs + 1, np.int64)
    keys = np.empty(4096, np.int64)
    values = np.empty(4096)
    size = 0
    for graph in range(n_graphs):
        first, end = vertex_starts[graph], vertex_starts[graph + 1]
        n = end - first
        weights = np.zeros((n, n))
        for edge in range(edge_starts[graph], edge_starts[graph + 1]):
            weights[sources[edge], targets[edge]] += edge_weights[edge]
        if max_length > 0:
            sum_short_walks(weights, max_length)
        elif not sum_walks(weights):
            converged[graph] = False
            row_starts[graph + 1] = size
            continue

        labels = own_labels[own_starts[graph] : own_starts[graph + 1]]
        starts = label_starts[first : end + 1]
        pairs = _aggregate(weights, local_labels, starts, labels.shape[0], min_weight, take_maximum)

        needed = size + labels.shape[0] * labels.shape[0]
        if needed > keys.shape[0]:
            grown_keys = np.empty(2 * needed, np.int64)
            grown_values = np.empty(2 * needed)
            for place in range(size):
                grown_keys[place] = keys[place]
                grown_values[place] = values[place]
            keys, values = grown_keys, grown_values
        for a in range(labels.shape[0]):
            for b in range(labels.shape[0]):
                if pairs[a, b] > 0.0:
                    keys[size] = (labels[a] << 32) | labels[b]
                    values[size] = pairs[a, b]
                    size += 1
        row_starts[graph + 1] = size
    return converged, row_starts, keys[:size].copy(), values[:size].copy()


@njit(cache=True, nogil=True)
def _aggregate(
    weights: np.ndarray,
    local: np.ndarray,
    starts: np.ndarray,
    n_labels: int,
    min_weight: float,
    take_maximum: bool,
) -> np.ndarray:
    """Sum or largest weight of every pair of the graph's own labels; weights up to min_weight are left out."""
    pairs = np.zeros((n_labels, n_labels))
    for i in range(weights.shape[0]):
        if starts[i] == starts[i + 1]:
            continue
        for j in range(weights.shape[0]):
            weight = weights[i, j]
            if weight <= min_weight:
                continue
            for p in range(starts[i], starts[i + 1]):
                for q in range(starts[j], starts[j + 1]):
                    if not take_maximum:
                        pairs[local[p], local[q]] += weight
                    elif weight > pairs[local[p], local[q]]:
                        pairs[local[p], local[q]] = weight
    return pairs


@njit(cache=True, parallel=True)
def sparse_products(
    row_starts: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    column_starts: np.ndarray,
    rows: np.ndarray,
    column_values: np.ndarray,
    symmetric: bool,
    out: np.ndarray,
) -> None:
    """out = X Yᵀ, X in compressed rows, Y in compressed columns, out dense and zero on entry.

    One row of the result stays in cache while the columns that the row of X touches stream by. With
    ``symmetric`` (X = Y, rows ascending inside a column) only j <= i is computed, then mirrored.
    """
    for i in prange(row_starts.shape[0] - 1):
        result = out[i]
        for p in range(row_starts[i], row_starts[i + 1]):
            column = columns[p]
            value = values[p]
            for q in range(column_starts[column], column_starts[column + 1]):
                j = rows[q]
                if symmetric and j > i:
                    break
                result[j] += value * column_values[q]
    if symmetric:
        for i in prange(out.shape[0]):
            for j in range(i + 1, out.shape[0]):
                out[i, j] = out[j, i]
