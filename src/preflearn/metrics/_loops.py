"""Compiled loops behind the ranking metrics: sort each query, count its pairs, read it from the top.

Every loop works on rows *grouped by query* (query q owns the rows starts[q] .. starts[q + 1] - 1) and on the
queries first .. last - 1 only, and releases the GIL: threads share out the queries.

Of the pairs of one query, each weighing w_i w_j, `count_pairs` gives

    D    discordant: ordered one way by y, the other way by the scores
    H    tied in the scores, not in y
    U_y  not tied in y                   concordance = 1 - (D + H / 2) / U_y
    U_s  not tied in the scores          tau-b = (U_y - H - 2 D) / √(U_y U_s)

in O(n log n): sort by (score, y), then count the inversions of y while merge sorting it. Sums only ever grow, so
weights of very different sizes lose no precision to cancellation.

Where predictions are tied, the listwise loops give the expected value over a random order of the tied rows.
"""

from __future__ import annotations

import numpy as np

from ..numerics.compiling import njit

# No test for division by zero: the loops never divide by it.
compiled = njit(cache=True, nogil=True, error_model="numpy")

# Runs of this length are sorted by insertion before merging starts.
_RUN = 12

# A reader who continues with a smaller probability than this adds nothing that float64 could hold.
_NEVER = 1e-17


@compiled
def _sort_rows(
    key: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    key_spare: np.ndarray,
    y_spare: np.ndarray,
    w_spare: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Sort rows by (key, y) ascending. Gives (key, y, w) sorted and the spare (y, w); merges swap their roles."""
    n = key.shape[0]
    for low in range(0, n, _RUN):
        for i in range(low + 1, min(low + _RUN, n)):
            key_i, y_i, w_i = key[i], y[i], w[i]
            j = i
            while j > low and (key[j - 1] > key_i or (key[j - 1] == key_i and y[j - 1] > y_i)):
                key[j], y[j], w[j] = key[j - 1], y[j - 1], w[j - 1]
                j -= 1
            key[j], y[j], w[j] = key_i, y_i, w_i
    width = _RUN
    while width < n:
        for low in range(0, n, 2 * width):
            middle = min(low + width, n)
            high = min(low + 2 * width, n)
            i, j = low, middle
            for k in range(low, high):
                if j >= high or (i < middle and (key[i] < key[j] or (key[i] == key[j] and y[i] <= y[j]))):
                    key_spare[k], y_spare[k], w_spare[k] = key[i], y[i], w[i]
                    i += 1
                else:
                    key_spare[k], y_spare[k], w_spare[k] = key[j], y[j], w[j]
                    j += 1
        key, key_spare = key_spare, key
        y, y_spare = y_spare, y
        w, w_spare = w_spare, w
        width *= 2
    return key, y, w, y_spare, w_spare


@compiled
def _sort_counting_inversions(
    y: np.ndarray, w: np.ndarray, y_spare: np.ndarray, w_spare: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Sort (y, w) by y ascending; also Σ w_i w_j over the pairs i before j with y_i > y_j."""
    n = y.shape[0]
    inversions = 0.0
    for low in range(0, n, _RUN):
        for i in range(low + 1, min(low + _RUN, n)):
            y_i, w_i = y[i], w[i]
            passed = 0.0
            j = i
            while j > low and y[j - 1] > y_i:
                y[j], w[j] = y[j - 1], w[j - 1]
                passed += w[j]
                j -= 1
            y[j], w[j] = y_i, w_i
            inversions += w_i * passed
    width = _RUN
    while width < n:
        for low in range(0, n, 2 * width):
            middle = min(low + width, n)
            high = min(low + 2 * width, n)
            # From the top down: `passed` is the weight of the left rows above the next right row. Growing from
            # nothing, it needs no subtraction.
            i, j = middle - 1, high - 1
            passed = 0.0
            for k in range(high - 1, low - 1, -1):
                if j < middle or (i >= low and y[i] > y[j]):
                    y_spare[k], w_spare[k] = y[i], w[i]
                    passed += w[i]
                    i -= 1
                else:
                    y_spare[k], w_spare[k] = y[j], w[j]
                    inversions += w[j] * passed
                    j -= 1
        y, y_spare = y_spare, y
        w, w_spare = w_spare, w
        width *= 2
    return y, w, inversions


@compiled
def _untied_pairs(ascending: np.ndarray, w: np.ndarray, low: int, high: int) -> float:
    """Σ w_i w_j over the pairs of rows low .. high - 1 whose values differ."""
    pairs = 0.0
    below = 0.0
    level = 0.0
    for i in range(low, high):
        if i > low and ascending[i] != ascending[i - 1]:
            pairs += below * level
            below += level
            level = 0.0
        level += w[i]
    return pairs + below * level


@compiled
def _end_of_tie(values: np.ndarray, start: int, stop: int) -> int:
    """First row after ``start`` whose value differs."""
    end = start + 1
    while end < stop and values[end] == values[start]:
        end += 1
    return end


@compiled
def _total(values: np.ndarray, low: int, high: int) -> float:
    """Σ values[low:high]; a plain loop compiles in a third of the time of an array expression."""
    total = 0.0
    for i in range(low, high):
        total += values[i]
    return total


@compiled
def _longest(starts: np.ndarray, first: int, last: int) -> int:
    longest = 0
    for query in range(first, last):
        longest = max(longest, starts[query + 1] - starts[query])
    return longest


@compiled
def _scaled_weights(weights: np.ndarray, low: int, high: int, scaled: np.ndarray) -> None:
    """Weights of rows low .. high - 1 divided by the largest of them; 1 where there are no weights."""
    largest = 0.0
    if weights.shape[0] > 0:
        for i in range(low, high):
            largest = max(largest, weights[i])
    for i in range(high - low):
        if weights.shape[0] == 0:
            scaled[i] = 1.0
        elif largest > 0.0:
            scaled[i] = weights[low + i] / largest
        else:
            scaled[i] = 0.0


# Up to this many rows every pair is looked at: a processor compares several at once, and sorts one by one.
_FEW_ROWS = 128


@compiled
def _look_at_every_pair(s: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """The four counts of one query without weights. O(n²), without branches."""
    discordant, tied, untied_y, untied_s = 0, 0, 0, 0
    for i in range(1, s.shape[0]):
        s_i, y_i = s[i], y[i]
        for j in range(i):
            lower, higher = s[j] < s_i, s[j] > s_i
            worse, better = y[j] < y_i, y[j] > y_i
            discordant += (lower & better) | (higher & worse)
            untied_y += worse | better
            untied_s += lower | higher
            tied += (worse | better) & ~(lower | higher)
    out[0], out[1], out[2], out[3] = discordant, tied, untied_y, untied_s


@compiled
def count_pairs(
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    out: np.ndarray,
    starts: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[q] = (D, H, U_y, U_s) of each query. May sort ``scores`` and ``y`` in place. No ``weights``: all 1.

    The weights of a query are divided by the largest of them, so that no product of two under- or overflows:
    the ratios of the four sums are what is wanted.
    """
    longest = _longest(starts, first, last)
    scores_spare = np.empty(longest)
    y_spare = np.empty(longest)
    w_first = np.empty(longest)
    w_second = np.empty(longest)
    for query in range(first, last):
        low, high = starts[query], starts[query + 1]
        n = high - low
        if n <= _FEW_ROWS and weights.shape[0] == 0:
            _look_at_every_pair(scores[low:high], y[low:high], out[query])
            continue
        _scaled_weights(weights, low, high, w_first)
        s, u, w, u_spare, w_spare = _sort_rows(
            scores[low:high], y[low:high], w_first[:n], scores_spare[:n], y_spare[:n], w_second[:n]
        )
        tied = 0.0
        untied_scores = 0.0
        below = 0.0
        i = 0
        while i < n:
            end = _end_of_tie(s, i, n)
            level = _total(w, i, end)
            untied_scores += below * level
            below += level
            if end > i + 1:
                tied += _untied_pairs(u, w, i, end)
            i = end
        u, w, discordant = _sort_counting_inversions(u, w, u_spare, w_spare)
        out[query, 0] = discordant
        out[query, 1] = tied
        out[query, 2] = _untied_pairs(u, w, 0, n)
        out[query, 3] = untied_scores


@compiled
def discounted_gain(
    key: np.ndarray,
    gain: np.ndarray,
    discount: np.ndarray,
    out: np.ndarray,
    starts: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[q] = Σ_p discount[p] gain of the row at position p; positions past the end of ``discount`` weigh 0."""
    for query in range(first, last):
        low = starts[query]
        top = min(starts[query + 1], low + discount.shape[0])
        total = 0.0
        i = low
        while i < top:
            end = _end_of_tie(key, i, starts[query + 1])
            total += _total(gain, i, end) / (end - i) * _total(discount, i - low, min(end, top) - low)
            i = end
        out[query] = total


@compiled
def precision(
    key: np.ndarray, relevant: np.ndarray, k: int, out: np.ndarray, starts: np.ndarray, first: int, last: int
) -> None:
    """out[q] = expected number of relevant rows among the first k, divided by k."""
    for query in range(first, last):
        top = min(starts[query + 1], starts[query] + k)
        found = 0.0
        i = starts[query]
        while i < top:
            end = _end_of_tie(key, i, starts[query + 1])
            found += _total(relevant, i, end) * (min(end, top) - i) / (end - i)
            i = end
        out[query] = found / k


@compiled
def average_precision(
    key: np.ndarray, relevant: np.ndarray, out: np.ndarray, starts: np.ndarray, first: int, last: int
) -> None:
    """out[q] = expected mean over the relevant rows of the precision at their positions; NaN where none is.

    Place j of a tie of t rows, r of them relevant, after p rows of which f were relevant: the row there is
    relevant with probability r / t, and then f + 1 + (j - 1)(r - 1)/(t - 1) of the p + j rows read so far are.
    """
    for query in range(first, last):
        low, high = starts[query], starts[query + 1]
        total = 0.0
        found = 0.0
        i = low
        while i < high:
            end = _end_of_tie(key, i, high)
            size = end - i
            hits = _total(relevant, i, end)
            rate = (hits - 1.0) / (size - 1.0) if size > 1 else 0.0
            for j in range(size if hits > 0.0 else 0):
                total += hits / size * (found + 1.0 + j * rate) / (i - low + j + 1.0)
            found += hits
            i = end
        out[query] = total / found if found > 0.0 else np.nan


@compiled
def reciprocal_rank(
    key: np.ndarray, relevant: np.ndarray, k: int, out: np.ndarray, starts: np.ndarray, first: int, last: int
) -> None:
    """out[q] = expected 1 / position of the first relevant row, 0 where it is past k; NaN where none is."""
    for query in range(first, last):
        low, high = starts[query], starts[query + 1]
        out[query] = np.nan
        i = low
        while i < high:
            end = _end_of_tie(key, i, high)
            hits = _total(relevant, i, end)
            if hits > 0.0:
                total = 0.0
                missed = 1.0  # probability that no relevant row was read yet
                for j in range(i, min(end, low + k)):
                    total += missed * hits / (end - j) / (j - low + 1.0)
                    missed *= max(0.0, 1.0 - hits / (end - j))
                out[query] = total
                break
            i = end


@compiled
def expected_reciprocal_rank(
    key: np.ndarray, stop: np.ndarray, k: int, out: np.ndarray, starts: np.ndarray, first: int, last: int
) -> None:
    """out[q] = Σ_p 1/p P(the reader stops at position p), who stops at a row with probability ``stop``.

    In a tie the reader is still reading after j of its t rows, in random order, with probability

        S_j = mean of Π (1 - stop_i) over the subsets of j rows,      S_j <= (1 - mean stop)ʲ   (Maclaurin)

    built up row by row: S_j ← ((t - j) S_j + j (1 - stop_t) S_{j-1}) / t. The bound says where to end.
    """
    reading = np.empty(_longest(starts, first, last) + 1)
    for query in range(first, last):
        low = starts[query]
        high = starts[query + 1]
        top = min(high, low + k)
        total = 0.0
        reads_on = 1.0
        i = low
        while i < top and reads_on > _NEVER:
            end = _end_of_tie(key, i, high)
            mean_stop = _total(stop, i, end) / (end - i)
            if mean_stop > 0.0:
                depth = min(end, top) - i
                if mean_stop < 1.0:
                    depth = int(min(depth, np.ceil(np.log(_NEVER) / np.log1p(-mean_stop))))
                reading[0] = 1.0
                for j in range(1, depth + 1):
                    reading[j] = 0.0
                for t in range(1, end - i + 1):
                    on = 1.0 - stop[i + t - 1]
                    for j in range(min(t, depth), 0, -1):
                        reading[j] = ((t - j) * reading[j] + j * on * reading[j - 1]) / t
                for j in range(1, depth + 1):
                    total += reads_on * (reading[j - 1] - reading[j]) / (i - low + j)
                reads_on *= reading[depth]
            i = end
        out[query] = total


@compiled
def count_outlived(
    ranks: np.ndarray,
    event: np.ndarray,
    w: np.ndarray,
    last: np.ndarray,
    out: np.ndarray,
    starts: np.ndarray,
    first_query: int,
    last_query: int,
) -> None:
    """D, H and U of the pairs of censored times of each query, weighing event[i] w[j]: see `metrics.pairwise`.

    Rows are sorted by query and time; row i is compared with those of its query from last[i] on. ``ranks``: 1 for the
    lowest score of a query, equal for ties. Fenwick's tree over the ranks, O(n log n) for a query of n rows.
    """
    longest = _longest(starts, first_query, last_query)
    tree, at = np.empty(longest + 1), np.empty(longest + 1)
    for query in range(first_query, last_query):
        low, high = starts[query], starts[query + 1]
        n = high - low
        tree[: n + 1] = 0.0
        at[: n + 1] = 0.0
        entered, total = high, 0.0
        for i in range(high - 1, low - 1, -1):
            if event[i] == 0.0:
                continue
            while entered > last[i]:
                entered -= 1
                at[ranks[entered]] += w[entered]
                total += w[entered]
                place = ranks[entered]
                while place <= n:
                    tree[place] += w[entered]
                    place += place & -place
            below = 0.0
            place = ranks[i] - 1
            while place > 0:
                below += tree[place]
                place -= place & -place
            out[query, 0] += event[i] * below
            out[query, 1] += event[i] * at[ranks[i]]
            out[query, 2] += event[i] * total


@compiled
def ordered_tuples(
    scores: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    out: np.ndarray,
    starts: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[q] = share of the tuples of one row of each class whose scores ascend; rows of a query in order of score.

    ``below[c]`` sums over the tuples of the first c classes among the rows so far, each row with weight 1 / n_class. A
    tie of rows of t successive classes adds the product of their weights, divided by t!.
    """
    below = np.empty(n_classes + 1)
    count = np.empty(n_classes)
    tied = np.empty(n_classes)
    for query in range(first, last):
        low, high = starts[query], starts[query + 1]
        out[query] = np.nan
        if high - low < n_classes:
            continue
        count[:] = 0.0
        for i in range(low, high):
            count[codes[i]] += 1.0
        if count.min() == 0.0:
            continue
        below[:] = 0.0
        below[0] = 1.0
        while low < high:
            end = _end_of_tie(scores, low, high)
            if end == low + 1:
                below[codes[low] + 1] += below[codes[low]] / count[codes[low]]
            else:
                tied[:] = 0.0
                for i in range(low, end):
                    tied[codes[i]] += 1.0 / count[codes[i]]
                for c in range(n_classes, 0, -1):
                    weight = 1.0
                    for t in range(1, c + 1):
                        weight *= tied[c - t] / t
                        if weight == 0.0:
                            break
                        below[c] += weight * below[c - t]
            low = end
        out[query] = below[n_classes]
