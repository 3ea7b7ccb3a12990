"""Statistics over the margin-violating pairs of each query, in O(m log m).

With predictions p and utilities y, the pair (i, j) of one query violates the margin when

    y_i < y_j   and   p_j < p_i + margin,

and for every row the loops below give, exactly with ties in y and in p,

    c_i = #{j : (i, j) violates},   d_j = #{i : (i, j) violates},
    Q_i = sum of v_j over the partners j of i, in either role.

**The structure.** Rows lie in *slots*, ordered by query and then by utility. A tree over the slots of a query
splits each node into at most ``LANES`` children, never through a tie in y. A node holds its rows sorted by p,
and one sweep over them settles all pairs of rows from different children: row i "asks" once every j with
p_j < p_i + margin has "entered", and the running sums over children sit in ``LANES`` vector lanes, so that entering
and asking cost a few vector instructions. A stable partition then hands the rows, still sorted by p, to the
children. Nodes of at most ``BASE`` rows are settled by all their pairs in vectorised loops. That makes
log(m) / log(LANES) sequential sweeps instead of log2(m) random accesses to a search tree per row.

The functions are plain loops on arrays that release the interpreter lock: threads share the nodes of the tree
and the stretches of one large node.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LANES = 32
BASE = 48
INSERTION_SORT = 24

# One row on its way down the tree: prediction, sums gathered so far, slot, and either the two counts (statistics
# of p itself) or the vector v to sum (further products at the same p), which share their place. One record is
# one stream of memory for the partition into children: three times as fast as one array per field.
ROW = np.dtype(
    {
        "names": ["p", "q", "slot", "v", "c", "d"],
        "formats": ["f8", "f8", "i8", "f8", "i4", "i4"],
        "offsets": [0, 8, 16, 24, 24, 28],
        "itemsize": 32,
    }
)
SETTLED = np.dtype([("q", "f8"), ("c", "i4"), ("d", "i4")], align=True)

# What to compute: the counts, the counts and the sums of p, or the sums of another vector.
COUNTS, COUNTS_AND_SUMS, SUMS = 0, 1, 2

_OPTIONS = {"cache": True, "nogil": True}


# ---------------------------------------------------------------- the tree over utilities, built once


@njit(**_OPTIONS)
def _grown(array):
    larger = np.empty(2 * array.shape[0], array.dtype)
    larger[: array.shape[0]] = array
    return larger


@njit(**_OPTIONS)
def _cut_groups(group_starts, first, last, n_parts, cuts):
    """Cut tie groups first..last into runs of about equal size; how many, or -1 if more than ``LANES``."""
    target = -(-(group_starts[last] - group_starts[first]) // n_parts)
    n_cuts = 0
    cuts[0] = first
    for group in range(first + 1, last):
        if group_starts[group + 1] - group_starts[cuts[n_cuts]] > target:
            n_cuts += 1
            if n_cuts == LANES:
                return -1
            cuts[n_cuts] = group
    cuts[n_cuts + 1] = last
    return n_cuts + 1


@njit(**_OPTIONS)
def split_tree(group_starts, query_groups):
    """Nodes of the tree over slots, breadth first; the queries that have a pair come first.

    Parameters
    ----------
    group_starts : ndarray of shape (n_ties + 1,), int64
        Slot boundaries of the tie groups.
    query_groups : ndarray of shape (n_queries + 1,), int64
        Tie-group boundaries of the queries.

    Returns
    -------
    n_roots : int
        Number of queries with at least two distinct utilities; nodes 0 .. n_roots - 1.
    begin, end, level, first_bound, n_children : ndarrays of shape (n_nodes,), int64
        Slots of a node, its depth, where its children start in ``bounds`` and how many there are; none means
        that the node is settled by all pairs.
    bounds, child : ndarrays of shape (n_bounds,), int64
        Slot boundaries of the children, and the node number of each (-1: one tie group, nothing left to do).
    """
    first_group = np.empty(1024, np.int64)
    last_group = np.empty(1024, np.int64)
    level = np.empty(1024, np.int64)
    bounds = np.empty(1024, np.int64)
    child = np.empty(1024, np.int64)
    n_nodes = 0
    for q in range(query_groups.shape[0] - 1):
        if query_groups[q + 1] - query_groups[q] > 1:
            if n_nodes == first_group.shape[0]:
                first_group, last_group, level = _grown(first_group), _grown(last_group), _grown(level)
            first_group[n_nodes] = query_groups[q]
            last_group[n_nodes] = query_groups[q + 1]
            level[n_nodes] = 0
            n_nodes += 1
    n_roots = n_nodes
    first_bound = np.empty(first_group.shape[0], np.int64)
    n_children = np.empty(first_group.shape[0], np.int64)
    cuts = np.empty(LANES + 1, np.int64)
    n_bounds = 0
    node = 0
    while node < n_nodes:
        low, high = first_group[node], last_group[node]
        first_bound[node] = n_bounds
        n_children[node] = 0
        if group_starts[high] - group_starts[low] > BASE:
            n_parts = min(LANES, (3 * (group_starts[high] - group_starts[low])) // (2 * BASE) + 1)
            k = _cut_groups(group_starts, low, high, n_parts, cuts)
            if k < 0:
                # Two neighbouring runs together exceed the target, so this many parts always fit.
                k = _cut_groups(group_starts, low, high, LANES // 2 - 1, cuts)
            n_children[node] = k
            if n_bounds + LANES + 1 > bounds.shape[0]:
                bounds, child = _grown(bounds), _grown(child)
            if n_nodes + LANES > first_group.shape[0]:
                first_group, last_group, level = _grown(first_group), _grown(last_group), _grown(level)
                first_bound, n_children = _grown(first_bound), _grown(n_children)
            for c in range(k):
                bounds[n_bounds + c] = group_starts[cuts[c]]
                child[n_bounds + c] = -1
                if cuts[c + 1] - cuts[c] > 1:
                    child[n_bounds + c] = n_nodes
                    first_group[n_nodes] = cuts[c]
                    last_group[n_nodes] = cuts[c + 1]
                    level[n_nodes] = level[node] + 1
                    n_nodes += 1
            bounds[n_bounds + k] = group_starts[cuts[k]]
            child[n_bounds + k] = -1
            n_bounds += k + 1
        node += 1
    begin = group_starts[first_group[:n_nodes]]
    end = group_starts[last_group[:n_nodes]]
    return (
        n_roots,
        begin,
        end,
        level[:n_nodes].copy(),
        first_bound[:n_nodes].copy(),
        n_children[:n_nodes].copy(),
        bounds[:n_bounds].copy(),
        child[:n_bounds].copy(),
    )


@njit(**_OPTIONS)
def child_of_slot(level, first_bound, n_children, bounds, digits):
    """Fill digits[depth, slot] with the number of the child that owns the slot in its node of that depth."""
    for node in range(level.shape[0]):
        first = first_bound[node]
        for c in range(n_children[node]):
            digits[level[node], bounds[first + c] : bounds[first + c + 1]] = c


# ---------------------------------------------------------------- sorting by prediction


@njit(**_OPTIONS)
def pack_keys(p_bits, members, low, high, index_bits, keys):
    """Sortable integers for the members low..high: the leading bits of p, then the row.

    Sorting plain 64-bit integers is several times faster than sorting indices by float keys. Values that differ
    only in the bits cut off may come out in the wrong order; `mend_order` puts that right. ``p_bits``: the
    predictions, viewed as int64.
    """
    mask = (np.int64(1) << index_bits) - np.int64(1)
    for k in range(low, high):
        row = np.int64(members[k])
        bits = p_bits[row]
        bits ^= (bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)
        keys[k] = (bits & ~mask) | row


@njit(**_OPTIONS)
def unpack_keys(p, low, high, index_bits, keys, rows, sorted_p):
    """Rows in the order of the sorted keys, and their p."""
    mask = (np.int64(1) << index_bits) - np.int64(1)
    for k in range(low, high):
        row = keys[k] & mask
        rows[k] = row
        sorted_p[k] = p[row]


@njit(**_OPTIONS)
def mend_order(low, high, rows, sorted_p):
    """Insertion sort of an almost sorted stretch; False when it is too far from sorted to go on."""
    moves_left = 8 * (high - low)
    for k in range(low + 1, high):
        if sorted_p[k] < sorted_p[k - 1]:
            value, row, place = sorted_p[k], rows[k], k
            while place > low and sorted_p[place - 1] > value:
                sorted_p[place], rows[place] = sorted_p[place - 1], rows[place - 1]
                place -= 1
            sorted_p[place], rows[place] = value, row
            moves_left -= k - place
            if moves_left < 0:
                return False
    return True


@njit(**_OPTIONS)
def sort_queries(p, p_bits, members, begin, end, index_bits, start, stop, keys, rows, sorted_p):
    """Sort each of the short queries start..stop by prediction; the first one that failed, or -1."""
    for query in range(start, stop):
        low, high = begin[query], end[query]
        pack_keys(p_bits, members, low, high, index_bits, keys)
        if high - low <= INSERTION_SORT:
            for k in range(low + 1, high):
                key, place = keys[k], k
                while place > low and keys[place - 1] > key:
                    keys[place] = keys[place - 1]
                    place -= 1
                keys[place] = key
        else:
            keys[low:high].sort()
        unpack_keys(p, low, high, index_bits, keys, rows, sorted_p)
        if not mend_order(low, high, rows, sorted_p):
            return query
    return -1


# ---------------------------------------------------------------- one node: sweep and partition


@njit(**_OPTIONS)
def load_rows(order, sorted_p, slot_of, v, want, low, high, rows):
    """Records of the sorted rows low..high, nothing gathered yet."""
    for k in range(low, high):
        row = order[k]
        rows[k].p = sorted_p[k]
        rows[k].q = 0.0
        rows[k].slot = slot_of[row]
        if want == SUMS:
            rows[k].v = v[row]
        else:
            rows[k].c = 0
            rows[k].d = 0


@njit(**_OPTIONS)
def first_not_below(rows, low, high, threshold):
    """First place in low..high whose p is not below the threshold."""
    while low < high:
        middle = (low + high) // 2
        if rows[middle].p < threshold:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**_OPTIONS)
def read_digits(digits, rows, low, high, digit):
    """Child of each row of a node."""
    for k in range(low, high):
        digit[k] = digits[rows[k].slot]


@njit(**_OPTIONS)
def read_digits_and_totals(digits, rows, low, high, want, digit, totals):
    """Child of each row of a node, and the sum over the rows of each child."""
    for k in range(low, high):
        child = digits[rows[k].slot]
        digit[k] = child
        totals[child] += rows[k].v if want == SUMS else rows[k].p


@njit(**_OPTIONS)
def child_totals(rows, digit, low, high, want, totals, numbers):
    """Add up the sums and numbers of rows of each child over low..high."""
    for k in range(low, high):
        totals[digit[k]] += rows[k].v if want == SUMS else rows[k].p
        numbers[digit[k]] += 1


@njit(**_OPTIONS)
def sums_below(totals, numbers, width):
    """Totals per child, in place, to sums over the children before it."""
    total, number = 0.0, 0
    for k in range(width):
        total, totals[k] = total + totals[k], total
        number, numbers[k] = number + numbers[k], number


@njit(**_OPTIONS)
def sums_above(totals, numbers, width):
    """Totals per child, in place, to sums over the children after it."""
    total, number = 0.0, 0
    for k in range(width - 1, -1, -1):
        total, totals[k] = total + totals[k], total
        number, numbers[k] = number + numbers[k], number


@njit(**_OPTIONS)
def sweep(
    rows, digit, low, high, entering, last, width, margin, want, entered, above, n_above, below, n_below
):
    """Settle the pairs between children for the rows low..high that ask and the rows that enter meanwhile.

    ``above[k]`` sums over the entered rows of children > k, ``below[k]`` over the rows of children < k that
    have not asked yet; ``n_above``, ``n_below`` are their numbers. Rows from ``entering`` to ``last`` enter;
    what they gather goes to ``entered``, because another thread may be asking for the same row.
    """
    for i in range(low, high):
        threshold = rows[i].p + margin
        while entering < last and rows[entering].p < threshold:
            child = digit[entering]
            if want != SUMS:
                rows[entering].d += n_below[child]
                for k in range(width):
                    n_above[k] += np.int32(k < child)
            if want != COUNTS:
                value = rows[entering].v if want == SUMS else rows[entering].p
                entered[entering] = below[child]
                for k in range(width):
                    above[k] += value if k < child else 0.0
            entering += 1
        child = digit[i]
        if want != SUMS:
            rows[i].c += n_above[child]
            for k in range(width):
                n_below[k] -= np.int32(k > child)
        if want != COUNTS:
            value = rows[i].v if want == SUMS else rows[i].p
            rows[i].q += above[child]
            for k in range(width):
                below[k] -= value if k > child else 0.0
    # Rows that nobody let in violate no pair as the better row.
    entered[entering:last] = 0.0


@njit(**_OPTIONS)
def partition(source, target, digit, entered, low, high, places):
    """Move the rows low..high to their children, in order; ``places[k]``: where the next row of child k goes."""
    for k in range(low, high):
        place = places[digit[k]]
        places[digit[k]] = place + 1
        target[place].p = source[k].p
        target[place].q = source[k].q + entered[k]
        target[place].slot = source[k].slot
        target[place].v = source[k].v  # the two counts where there are any: they share the place


@njit(**_OPTIONS)
def write_out(rows, low, high, row_of, settled):
    """What the rows low..high gathered, to the rows of the data."""
    for k in range(low, high):
        row = row_of[rows[k].slot]
        settled[row].q = rows[k].q
        settled[row].c = rows[k].c
        settled[row].d = rows[k].d


# ---------------------------------------------------------------- whole subtrees


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def settle_all_pairs(p, v, group, n, margin, want, c, d, q):
    """Settle all pairs of n rows; numbers as floats, so that the loops use one kind of vector register."""
    for i in range(n):
        threshold, own, value = p[i] + margin, group[i], v[i]
        total, number = 0.0, 0.0
        if want == SUMS:
            for j in range(n):
                violates = 1.0 if (group[j] > own) & (p[j] < threshold) else 0.0
                total += violates * v[j]
                q[j] += violates * value
        elif want == COUNTS:
            for j in range(n):
                violates = 1.0 if (group[j] > own) & (p[j] < threshold) else 0.0
                number += violates
                d[j] += violates
        else:
            for j in range(n):
                violates = 1.0 if (group[j] > own) & (p[j] < threshold) else 0.0
                number += violates
                d[j] += violates
                total += violates * v[j]
                q[j] += violates * value
        c[i] += number
        q[i] += total


@njit(**_OPTIONS)
def settle_subtrees(nodes, tree, group_of, row_of, digits, even, odd, digit, entered, margin, want, settled):
    """Settle every pair below the given nodes, whose rows lie in the buffer of their level."""
    begin, end, level, first_bound, n_children, bounds, child = tree
    above, below = np.empty(LANES), np.empty(LANES)
    n_above, n_below = np.empty(LANES, np.int32), np.empty(LANES, np.int32)
    places = np.empty(LANES, np.int64)
    near_p, near_v, near_group = np.empty(BASE), np.empty(BASE), np.empty(BASE)
    near_c, near_d, near_q = np.empty(BASE), np.empty(BASE), np.empty(BASE)
    stack = np.empty(16 * LANES, np.int64)
    for top in nodes:
        stack[0] = top
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            low, high, width = begin[node], end[node], n_children[node]
            if level[node] % 2 == 0:
                source, target = even, odd
            else:
                source, target = odd, even
            if width == 0:
                n = high - low
                for k in range(n):
                    row = source[low + k]
                    near_p[k] = row.p
                    near_v[k] = row.v if want == SUMS else row.p
                    near_group[k] = group_of[row.slot]
                    near_q[k] = row.q
                    near_c[k] = 0.0 if want == SUMS else np.float64(row.c)
                    near_d[k] = 0.0 if want == SUMS else np.float64(row.d)
                settle_all_pairs(near_p, near_v, near_group, n, margin, want, near_c, near_d, near_q)
                for k in range(n):
                    out = row_of[source[low + k].slot]
                    settled[out].q = near_q[k]
                    settled[out].c = np.int32(near_c[k])
                    settled[out].d = np.int32(near_d[k])
                continue
            above[:] = 0.0
            below[:] = 0.0
            n_above[:] = 0
            first = first_bound[node]
            for k in range(width):
                places[k] = bounds[first + k]
                n_below[k] = bounds[first + k + 1] - bounds[first + k]
            if want == COUNTS:
                read_digits(digits[level[node]], source, low, high, digit)
            else:
                read_digits_and_totals(digits[level[node]], source, low, high, want, digit, below)
            sums_below(below, n_below, width)
            state = (entered, above, n_above, below, n_below)
            sweep(source, digit, low, high, low, high, width, margin, want, *state)
            partition(source, target, digit, entered, low, high, places)
            for k in range(width):
                if child[first + k] >= 0:
                    stack[depth] = child[first + k]
                    depth += 1
                else:
                    write_out(target, bounds[first + k], bounds[first + k + 1], row_of, settled)


# ---------------------------------------------------------------- back to the rows


@njit(**_OPTIONS)
def finish_counts(settled, weight, p, low, high, worse, better, laplacian_p):
    """Weighted counts and L p of the rows low..high."""
    for row in range(low, high):
        w = weight[row] if weight.shape[0] else 1.0
        c, d = settled[row].c, settled[row].d
        worse[row] = w * c
        better[row] = w * d
        laplacian_p[row] = w * ((c + d) * p[row] - settled[row].q)


@njit(**_OPTIONS)
def finish_product(settled, weight, worse, better, v, low, high, laplacian_v):
    """L v of the rows low..high."""
    for row in range(low, high):
        w = weight[row] if weight.shape[0] else 1.0
        laplacian_v[row] = (worse[row] + better[row]) * v[row] - w * settled[row].q
