"""Sums and means over groups of rows that need not be adjacent.

The operators of a query block, L = w (n I - 1 1ᵀ) and its symmetric half, are "take the row, subtract the mean of
its group, scale". These loops do that for a whole matrix without a second copy of it.
"""

from __future__ import annotations

import numpy as np

from ..numerics.compiling import njit
from ..numerics.threads import over_ranges

# Columns in a cache line of float64.
_STRIPE = 8
# Entries that are worth a thread of their own.
_LEAST = 1 << 16
_LEAST_CENTRED = 1 << 19


def segment_sums(V: np.ndarray, codes: np.ndarray, n_groups: int) -> np.ndarray:
    """Sum of the rows of each group in float64: out[g] = Σ_{i: codes[i] = g} V[i]; O(m v).

    Threads share out the columns rather than the rows, so that no thread needs a table of its own.
    """
    out = np.zeros((n_groups, V.shape[1]))
    over_ranges(_add_columns, V.shape[1], V, codes, out, least=_least(V.shape[0]), align=_STRIPE)
    return out


def centre_rows(V, codes, means, scale, out) -> None:
    """out[i] = scale[i] (V[i] - means[codes[i]]); ``out`` may be ``V``. O(m v)."""
    over_ranges(_centre_rows, V.shape[0], V, codes, means, scale, out, least=_least(V.shape[1]))


def centre_rows_with_ties(V, codes, means, ties, tie_means, inner, outer, out) -> None:
    """out[i] = inner[i] (V[i] - tie mean) + outer[i] (tie mean - query mean); ``out`` may be ``V``. O(m v)."""
    arguments = (V, codes, means, ties, tie_means, inner, outer, out)
    over_ranges(_centre_rows_with_ties, V.shape[0], *arguments, least=_least(V.shape[1]))


def centre_queries(V, order, starts, scale, out) -> None:
    """Rows grouped by query, centred and scaled, in one pass: out[k] = scale[k] (V[order[k]] - mean of its query).

    Query q owns the places ``starts[q]`` to ``starts[q + 1]`` of ``order``. A query is read twice in a row, the second
    time from the cache, so that a matrix too large for it is fetched once. Rows are taken relative to the first one of
    their query, so that a column that is constant there is exactly zero. O(m v).
    """
    least = _least_queries(order.shape[0], V.shape[1], starts.shape[0] - 1)
    over_ranges(_centre_queries, starts.shape[0] - 1, V, order, starts, scale, out, least=least)


def centre_queries_with_ties(V, order, starts, tie_starts, first_tie, inner, outer, out) -> None:
    """The same with tie groups: out[k] = inner[k] (V[order[k]] - tie mean) + outer[k] (tie mean - query mean).

    Tie group t owns the places ``tie_starts[t]`` to ``tie_starts[t + 1]``, query q the tie groups ``first_tie[q]`` to
    ``first_tie[q + 1]``. O(m v).
    """
    least = _least_queries(order.shape[0], V.shape[1], starts.shape[0] - 1)
    arguments = (V, order, starts, tie_starts, first_tie, inner, outer, out)
    over_ranges(_centre_queries_with_ties, starts.shape[0] - 1, *arguments, least=least)


def standardise_queries(V, order, starts, rounding, out) -> None:
    """out[i] = (V[i] - mean of its query) / standard deviation there; 0 for columns that are constant up to rounding.

    Queries as in `centre_queries`. Values are taken in units of the range of their query first, so that squares neither
    overflow nor vanish. A range below ``rounding`` times the largest value is none. O(m v).
    """
    least = _least_queries(order.shape[0], V.shape[1], starts.shape[0] - 1)
    over_ranges(_standardise_queries, starts.shape[0] - 1, V, order, starts, rounding, out, least=least)


def about_later_means(V, w, after, main, extra, apart, is_last, state, out) -> None:
    """Rows V[k] minus the means of the rows behind them, from the last row to the first; see `comparisons.censored`.

    ``out`` begins with main[k] (V[k] - mean of the rows behind k in its query), then has a row extra[k] (V[k] - mean
    of the rows behind its ties) for each k where extra[k] > 0. ``apart`` says where there are ties behind a row;
    ``state`` holds both means between blocks. O(m v).
    """
    arguments = (V, w, after, main, extra, apart, is_last, state, out)
    over_ranges(_about_later_means, V.shape[1], *arguments, least=_least(V.shape[0]), align=_STRIPE)


def centre_along_rows(K, codes, counts, ties, tie_counts, inner, outer) -> None:
    """Apply the same map to every row of a square matrix in place: K ← K S. O(m²), no second matrix.

    ``ties`` is empty when every row is its own tie group.
    """
    arguments = (K, codes, counts, ties, tie_counts, inner, outer)
    over_ranges(_centre_along_rows, K.shape[0], *arguments, least=_least(K.shape[1]))


def sums_beside(values, starts) -> tuple[np.ndarray, np.ndarray]:
    """For each number the sums of those before and of those after it in its segment; O(m), nothing is subtracted.

    Segment q owns the places ``starts[q]`` to ``starts[q + 1]``.
    """
    before, after = np.empty(values.shape[0]), np.empty(values.shape[0])
    _sums_beside(values, starts, before, after)
    return before, after


def _least(entries_each: int) -> int:
    return max(1, _LEAST // max(1, entries_each))


def _least_queries(n_rows: int, width: int, n_queries: int) -> int:
    """Queries that are worth a thread: blocks that fit the cache are centred faster than threads start."""
    return max(1, (_LEAST_CENTRED * n_queries) // max(1, n_rows * width))


@njit(cache=True, nogil=True)
def _add_columns(V, codes, out, first, last):
    for i in range(V.shape[0]):
        g = codes[i]
        for j in range(first, last):
            out[g, j] += V[i, j]


@njit(cache=True, nogil=True)
def _centre_rows(V, codes, means, scale, out, first, last):
    for i in range(first, last):
        g = codes[i]
        s = scale[i]
        for j in range(V.shape[1]):
            out[i, j] = s * (V[i, j] - means[g, j])


@njit(cache=True, nogil=True)
def _centre_rows_with_ties(V, codes, means, ties, tie_means, inner, outer, out, first, last):
    for i in range(first, last):
        g = codes[i]
        t = ties[i]
        a = inner[i]
        b = outer[i]
        for j in range(V.shape[1]):
            mean = tie_means[t, j]
            out[i, j] = a * (V[i, j] - mean) + b * (mean - means[g, j])


@njit(cache=True, nogil=True)
def _centre_queries(V, order, starts, scale, out, first, last):
    width = V.shape[1]
    mean = np.empty(width)
    for q in range(first, last):
        a, b = starts[q], starts[q + 1]
        if a == b:
            continue
        origin = V[order[a]]
        mean[:] = 0.0
        for k in range(a, b):
            i = order[k]
            for j in range(width):
                mean[j] += V[i, j] - origin[j]
        share = 1.0 / (b - a)
        for j in range(width):
            mean[j] *= share
        for k in range(a, b):
            i = order[k]
            s = scale[k]
            for j in range(width):
                out[k, j] = s * ((V[i, j] - origin[j]) - mean[j])


@njit(cache=True, nogil=True)
def _centre_queries_with_ties(V, order, starts, tie_starts, first_tie, inner, outer, out, first, last):
    width = V.shape[1]
    mean = np.empty(width)
    tie_mean = np.empty(width)
    for q in range(first, last):
        if starts[q] == starts[q + 1]:
            continue
        origin = V[order[starts[q]]]
        mean[:] = 0.0
        for k in range(starts[q], starts[q + 1]):
            for j in range(width):
                mean[j] += V[order[k], j] - origin[j]
        share = 1.0 / (starts[q + 1] - starts[q])
        for j in range(width):
            mean[j] *= share
        for t in range(first_tie[q], first_tie[q + 1]):
            a, b = tie_starts[t], tie_starts[t + 1]
            tie_mean[:] = 0.0
            for k in range(a, b):
                for j in range(width):
                    tie_mean[j] += V[order[k], j] - origin[j]
            for j in range(width):
                tie_mean[j] /= b - a
            for k in range(a, b):
                i = order[k]
                x, z = inner[k], outer[k]
                for j in range(width):
                    out[k, j] = x * ((V[i, j] - origin[j]) - tie_mean[j]) + z * (tie_mean[j] - mean[j])


@njit(cache=True, nogil=True, error_model="numpy")
def _standardise_queries(V, order, starts, rounding, out, first, last):
    width = V.shape[1]
    low, high, unit = np.empty(width), np.empty(width), np.empty(width)
    mean, factor = np.empty(width), np.empty(width)
    for query in range(first, last):
        rows = order[starts[query] : starts[query + 1]]
        low[:] = V[rows[0]]
        high[:] = V[rows[0]]
        for i in rows:
            for j in range(width):
                low[j], high[j] = min(low[j], V[i, j]), max(high[j], V[i, j])
        for j in range(width):
            alike = high[j] - low[j] <= rounding * max(abs(low[j]), abs(high[j]))
            unit[j] = 1.0 if alike else high[j] - low[j]
            mean[j], factor[j] = 0.0, 0.0
        for i in rows:
            for j in range(width):
                out[i, j] = (V[i, j] - low[j]) / unit[j]
                mean[j] += out[i, j]
        for j in range(width):
            mean[j] /= rows.shape[0]
        for i in rows:
            for j in range(width):
                out[i, j] -= mean[j]
                factor[j] += out[i, j] * out[i, j]
        for j in range(width):
            alike = high[j] - low[j] <= rounding * max(abs(low[j]), abs(high[j]))
            factor[j] = 0.0 if alike else 1.0 / np.sqrt(factor[j] / rows.shape[0])
        for i in rows:
            for j in range(width):
                out[i, j] *= factor[j]


@njit(cache=True, nogil=True)
def _centre_along_rows(K, codes, counts, ties, tie_counts, inner, outer, first, last):
    n_columns = K.shape[1]
    has_ties = ties.shape[0] > 0
    means = np.empty(counts.shape[0])
    tie_means = np.empty(tie_counts.shape[0])
    for i in range(first, last):
        row = K[i]
        means[:] = 0.0
        for j in range(n_columns):
            means[codes[j]] += row[j]
        for g in range(means.shape[0]):
            means[g] /= counts[g]
        if has_ties:
            tie_means[:] = 0.0
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


@njit(cache=True, nogil=True)
def _sums_beside(values, starts, before, after):
    for q in range(starts.shape[0] - 1):
        total = 0.0
        for i in range(starts[q], starts[q + 1]):
            before[i] = total
            total += values[i]
        total = 0.0
        for i in range(starts[q + 1] - 1, starts[q] - 1, -1):
            after[i] = total
            total += values[i]


@njit(cache=True, nogil=True)
def _about_later_means(V, w, after, main, extra, apart, is_last, state, out, first, last):
    place = out.shape[0]
    for k in range(V.shape[0] - 1, -1, -1):
        if is_last[k]:
            state[:, first:last] = 0.0
        place -= extra[k] > 0.0
        total = w[k] + after[k]
        share = w[k] / total if total > 0.0 else 0.0
        for c in range(first, last):
            v = V[k, c]
            out[k, c] = main[k] * (v - state[0, c])
            if not apart[k]:
                # Of the last of its ties: the mean of the rows that outlived them.
                state[1, c] = state[0, c]
            if extra[k] > 0.0:
                out[place, c] = extra[k] * (v - state[1, c])
            state[0, c] += share * (v - state[0, c])
