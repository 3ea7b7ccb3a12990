"""Compiled loops over pairs: sums for hinge losses, gradients of answers."""

from __future__ import annotations

import numpy as np

from ..numerics.compiling import njit
from ..numerics.threads import over_ranges

# ---------------------------------------------------------------- running sums
# Running sums over up to 1024 numbered children, for loops that change and read them a million times.
#
# A child is in a group of 8, and that in a block of 64. One array of ``N_LANES`` numbers holds, for sums over the
# children *after* each child (and likewise *before*):
#
#     lanes[block]          all children of the blocks after this one
#     lanes[16 + group]     all children of the groups after this one in its block
#     lanes[144 + child]    the children after this one in its group
#
# so that a sum is read with three look-ups, and changed with additions to one run of 16 and two of 8 numbers,
# those that get nothing included (fewer runs where there are few children).

FANOUT = 1024
_GROUPS, _CHILDREN = 16, 144
N_LANES = _CHILDREN + FANOUT
_CACHE_LINE = 64

_OPTIONS = {"cache": True, "nogil": True}


@njit(**_OPTIONS)
def new_lanes(like):
    """Zeros of the type of an array, from the start of a cache line on."""
    lanes = np.zeros(N_LANES + _CACHE_LINE // like.itemsize, like.dtype)
    start = (-lanes.ctypes.data % _CACHE_LINE) // like.itemsize
    return lanes[start : start + N_LANES]


@njit(**_OPTIONS)
def look_up(lanes, child):
    """The sum of a child; unsigned numbers need no test for indices that count from the end."""
    return (
        lanes[child >> np.uint32(6)]
        + lanes[np.uint32(_GROUPS) + (child >> np.uint32(3))]
        + lanes[np.uint32(_CHILDREN) + child]
    )


@njit(**_OPTIONS)
def _add_below(lanes, start, width, place, value):
    """lanes[start + k] += value for k < place; the length is fixed, so that no jump depends on the place."""
    nothing = value - value
    for k in range(width):
        lanes[start + k] += value if k < place else nothing


@njit(**_OPTIONS)
def _add_above(lanes, start, width, place, value):
    """The same for place < k < width."""
    nothing = value - value
    for k in range(width):
        lanes[start + k] += value if k > place else nothing


@njit(**_OPTIONS)
def add_before(lanes, child, n_children, value):
    """Add to the sums of all children before one."""
    c = np.int64(child)
    _add_below(lanes, _CHILDREN + (c & -8), 8, c & 7, value)
    if n_children > 8:
        _add_below(lanes, _GROUPS + ((c >> 3) & -8), 8, (c >> 3) & 7, value)
    if n_children > 64:
        _add_below(lanes, 0, 16, c >> 6, value)


@njit(**_OPTIONS)
def add_after(lanes, child, n_children, value):
    """Add to the sums of all children after one."""
    c = np.int64(child)
    _add_above(lanes, _CHILDREN + (c & -8), 8, c & 7, value)
    if n_children > 8:
        _add_above(lanes, _GROUPS + ((c >> 3) & -8), 8, (c >> 3) & 7, value)
    if n_children > 64:
        _add_above(lanes, 0, 16, c >> 6, value)


@njit(**_OPTIONS)
def clear(lanes, n_children):
    """Zero sums for this many children."""
    lanes[: ((n_children - 1) >> 6) + 1] = 0
    lanes[_GROUPS : _GROUPS + ((n_children - 1) >> 3) + 1] = 0
    lanes[_CHILDREN : _CHILDREN + n_children] = 0


@njit(**_OPTIONS)
def fill_before(lanes, totals, n_children):
    """The sums over the children before each one, from the totals of the children."""
    zero = totals[0] - totals[0]
    over_blocks, over_groups, inside = zero, zero, zero
    for child in range(n_children):
        if child % 64 == 0:
            over_blocks += over_groups + inside
            over_groups, inside = zero, zero
            lanes[child >> 6] = over_blocks
        if child % 8 == 0:
            over_groups += inside
            inside = zero
            lanes[_GROUPS + (child >> 3)] = over_groups
        lanes[_CHILDREN + child] = inside
        inside += totals[child]


# ---------------------------------------------------------------- pairstats
# Statistics over the margin-violating pairs of each query, in O(m log m).
#
# With predictions p and utilities y, the pair (i, j) of one query violates the margin when
#
#     y_i < y_j   and   p_j < p_i + margin,
#
# and for every row the loops below give, exactly with ties in y and in p,
#
#     c_i = #{j : (i, j) violates},   d_j = #{i : (i, j) violates},
#     Q_i = sum of v_j over the partners j of i, in either role or in one.
#
# **The structure.** Rows lie in *slots*, ordered by query and then by utility. A tree over the slots of a query
# splits each node into up to ``FANOUT`` children, never through a tie in y; the children of a leaf are its tie groups.
# A node holds its rows sorted by p, and one sweep over them settles all pairs of rows from different children: row i
# "asks" once every j with p_j < p_i + margin has "entered". The running sums over the children (above) let a row
# enter with three short vector additions and ask with three look-ups. A stable partition then hands the rows, still
# sorted by p, to the children. Two sweeps settle a million distinct utilities, both in memory that the nearest cache
# holds.
#
# The functions are plain loops on arrays that release the interpreter lock: threads share the nodes of the tree.

# One row on its way down the tree: prediction, sums gathered so far, either the two counts (statistics of p itself)
# or the vector v to sum (further products at the same p), which share their place, and slot. One record is one stream
# of memory for the partition into children: three times as fast as one array per field.
ROW = np.dtype(
    {
        "names": ["p", "q", "v", "c", "d", "slot"],
        "formats": ["f8", "f8", "f8", "i4", "i4", "i4"],
        "offsets": [0, 8, 16, 16, 20, 24],
        "itemsize": 32,
    }
)
SETTLED = np.dtype([("q", "f8"), ("c", "i4"), ("d", "i4")], align=True)

# What to compute: the counts, the counts and the sums of p, or the sums of another vector: over all partners of a row,
# over those of the pairs that it is the worse row of, or over those of the pairs that it is the better row of.
COUNTS, COUNTS_AND_SUMS, SUMS, SUMS_AS_WORSE, SUMS_AS_BETTER = 0, 1, 2, 3, 4


# ---------------------------------------------------------------- the tree over utilities, built once


@njit(**_OPTIONS)
def _grown(array):
    larger = np.empty(2 * array.shape[0], array.dtype)
    larger[: array.shape[0]] = array
    return larger


@njit(**_OPTIONS)
def _cut_groups(group_starts, first, last, n_parts, cuts):
    """Cut tie groups first..last into runs of about equal size; how many, or -1 if ``cuts`` cannot hold them."""
    target = -(-(group_starts[last] - group_starts[first]) // n_parts)
    n_cuts = 0
    cuts[0] = first
    for group in range(first + 1, last):
        if group_starts[group + 1] - group_starts[cuts[n_cuts]] > target:
            n_cuts += 1
            if n_cuts == cuts.shape[0] - 1:
                return -1
            cuts[n_cuts] = group
    cuts[n_cuts + 1] = last
    return n_cuts + 1


# Long: one compiled pass whose running values a function would have to take and return.
@njit(**_OPTIONS)
def split_tree(group_starts, query_groups, fanout):
    """Nodes of the tree over slots, breadth first; the queries that have a pair come first.

    Parameters
    ----------
    group_starts : ndarray of shape (n_ties + 1,), int64
        Slot boundaries of the tie groups.
    query_groups : ndarray of shape (n_queries + 1,), int64
        Tie-group boundaries of the queries.
    fanout : int
        Most children of a node, 6 to ``FANOUT``.

    Returns
    -------
    n_roots : int
        Number of queries with at least two distinct utilities; nodes 0 .. n_roots - 1.
    begin, end, level, first_bound, n_children : ndarrays of shape (n_nodes,), int64
        Slots of a node, its depth, where its children start in ``bounds`` and how many there are; none means
        a leaf, whose tie groups stand for children.
    bounds, child : ndarrays of shape (n_bounds,), int64
        Slot boundaries of the children, and the node number of each (-1: one tie group, nothing left to do).
    first_group : ndarray of shape (n_nodes,), int64
        First tie group of each node.
    """
    first_group = np.empty(1024, np.int64)
    last_group = np.empty(1024, np.int64)
    level = np.empty(1024, np.int64)
    bounds = np.empty(2 * FANOUT, np.int64)
    child = np.empty(2 * FANOUT, np.int64)
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
    cuts = np.empty(fanout + 1, np.int64)
    n_bounds = 0
    node = 0
    while node < n_nodes:
        low, high = first_group[node], last_group[node]
        first_bound[node] = n_bounds
        n_children[node] = 0
        if high - low > fanout:
            # Children just small enough to be leaves, where that many children are allowed.
            n_parts = min(fanout, -(-(group_starts[high] - group_starts[low]) // fanout))
            k = _cut_groups(group_starts, low, high, n_parts, cuts)
            if k < 0:
                # Two neighbouring runs together exceed the target, so this many parts always fit.
                k = _cut_groups(group_starts, low, high, fanout // 2 - 1, cuts)
            n_children[node] = k
            if n_bounds + fanout + 1 > bounds.shape[0]:
                bounds, child = _grown(bounds), _grown(child)
            while n_nodes + fanout > first_group.shape[0]:
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
        first_group[:n_nodes].copy(),
    )


@njit(**_OPTIONS)
def child_of_slot(group_starts, first_group, end, level, first_bound, n_children, bounds, children):
    """Fill children[depth, slot] with the number of the child that owns the slot in its node of that depth."""
    for node in range(level.shape[0]):
        of_slot = children[level[node]]
        for c in range(n_children[node]):
            of_slot[bounds[first_bound[node] + c] : bounds[first_bound[node] + c + 1]] = c
        if n_children[node] == 0:
            c, group = 0, first_group[node]
            while group_starts[group] < end[node]:
                of_slot[group_starts[group] : group_starts[group + 1]] = c
                c, group = c + 1, group + 1


# ---------------------------------------------------------------- sorting by prediction


@njit(**_OPTIONS)
def sort_into_queries(p, by_p, slot_of, query_of_slot, child_of, places, order, sorted_p, slots, children):
    """From all rows in the order of p: the rows of each query in this order, from ``places`` on.

    With their p, slot and child of the root. Rows that make no pair are left out.
    """
    for row in by_p:
        slot = slot_of[row]
        if slot == query_of_slot.shape[0]:
            continue
        query = query_of_slot[slot]
        k = places[query]
        places[query] = k + 1
        order[k], sorted_p[k], slots[k], children[k] = row, p[row], slot, child_of[slot]


# ---------------------------------------------------------------- one node: sweep and partition


@njit(**_OPTIONS)
def read_records(records, child_of, p, v, slots, children):
    """The arrays of a node below the root for its records."""
    for k in range(np.uint64(records.shape[0])):
        p[k] = records[k].p
        v[k] = records[k].v
        slots[k] = records[k].slot
        children[k] = child_of[np.uint32(records[k].slot)]


@njit(**_OPTIONS)
def child_totals(v, children, want, totals, numbers):
    """Add up the sums of v and the numbers of rows of each child."""
    for k in range(np.uint64(children.shape[0])):
        numbers[children[k]] += 1
        if want != COUNTS:
            totals[children[k]] += v[k]


@njit(**_OPTIONS)
def sweep(
    p, v, children, n_children, margin, want, c, d, q, entered, above, n_above, below, n_below,
):  # fmt: skip
    """Settle the pairs between children: every row asks, and enters when the first row asks that it violates with.

    ``above`` sums over the entered rows of the children after each child, ``below`` over the rows of the children
    before it that have not asked yet; ``n_above``, ``n_below`` are their numbers. Entering rows gather ``d`` and
    ``entered``; asking rows gather ``c`` and ``q``.
    """
    one = np.int32(1)
    entering, last = np.uint64(0), np.uint64(p.shape[0])
    for i in range(last):
        threshold = p[i] + margin
        while entering < last and p[entering] < threshold:
            child = children[entering]
            if want < SUMS:
                d[entering] = look_up(n_below, child)
                add_before(n_above, child, n_children, one)
            if want != COUNTS:
                entered[entering] = look_up(below, child)
                add_before(above, child, n_children, v[entering])
            entering += np.uint64(1)
        child = children[i]
        if want < SUMS:
            c[i] = look_up(n_above, child)
            add_after(n_below, child, n_children, -one)
        if want != COUNTS:
            q[i] = look_up(above, child)
            add_after(below, child, n_children, -v[i])
    # Rows that nobody let in violate no pair as the better row.
    if want < SUMS:
        d[entering:last] = 0
    if want != COUNTS:
        entered[entering:last] = 0.0
    # Sums of the other role are cleared afterwards: the loop above needs no further test.
    if want == SUMS_AS_WORSE:
        entered[:] = 0.0
    if want == SUMS_AS_BETTER:
        q[:] = 0.0


@njit(**_OPTIONS)
def partition(p, v, slots, children, c, d, q, entered, carried, want, places, records):
    """Move the rows to their children, in order; ``places[k]``: where the next row of child k goes.

    ``carried``: the records that brought them here, with what they gathered before; empty at the root.
    """
    below_root = carried.shape[0] > 0
    for k in range(np.uint64(p.shape[0])):
        place = np.uint64(places[children[k]])
        places[children[k]] = place + np.uint64(1)
        records[place].p = p[k]
        records[place].slot = slots[k]
        if want != COUNTS:
            records[place].q = q[k] + entered[k] + (carried[k].q if below_root else 0.0)
        if want >= SUMS:
            records[place].v = v[k]
        else:
            records[place].c = c[k] + (carried[k].c if below_root else 0)
            records[place].d = d[k] + (carried[k].d if below_root else 0)


@njit(**_OPTIONS)
def write_out_leaf(p, slots, c, d, q, entered, carried, row_of, want, settled):
    """What the rows of a leaf gathered, to their rows: L p, or the sums, beside the counts."""
    below_root = carried.shape[0] > 0
    for k in range(np.uint64(p.shape[0])):
        row = np.uint32(row_of[np.uint32(slots[k])])
        total = 0.0
        if want != COUNTS:
            total = q[k] + entered[k] + (carried[k].q if below_root else 0.0)
        if want < SUMS:
            n_c = c[k] + (carried[k].c if below_root else 0)
            n_d = d[k] + (carried[k].d if below_root else 0)
            total = (n_c + n_d) * p[k] - total
            settled[row].c = n_c
            settled[row].d = n_d
        settled[row].q = total


@njit(**_OPTIONS)
def write_out(records, row_of, want, low, high, settled):
    """The same for records whose child is one tie group: nothing is left to gather."""
    for k in range(np.uint64(low), np.uint64(high)):
        row = np.uint32(row_of[np.uint32(records[k].slot)])
        total = records[k].q
        if want < SUMS:
            total = (records[k].c + records[k].d) * records[k].p - total
            settled[row].c = records[k].c
            settled[row].d = records[k].d
        settled[row].q = total


# ---------------------------------------------------------------- whole subtrees


@njit(**_OPTIONS)
def _node_rows(size):
    """Room for the rows of a node below the root: p, v, slots, children."""
    return np.empty(size), np.empty(size), np.empty(size, np.int32), np.empty(size, np.uint16)


# Long: one compiled pass whose running values a function would have to take and return.
@njit(**_OPTIONS)
def settle_subtrees(
    nodes,
    tree,
    child_of_slots,
    row_of,
    p,
    v,
    slots,
    children,
    c,
    d,
    q,
    entered,
    records,
    margin,
    want,
    settled,
):
    """Settle the pairs of queries, whose rows lie in sorted arrays; or all those of subtrees, whose rows are records.

    The subtrees below a query are left for other calls, which threads share.
    """
    begin, end, level, first_bound, n_children, bounds, child = tree
    totals, numbers = np.empty(FANOUT), np.empty(FANOUT, np.int32)
    above, below = new_lanes(totals), new_lanes(totals)
    n_above, n_below = new_lanes(numbers), new_lanes(numbers)
    places = np.empty(FANOUT, np.int64)
    stack = np.empty(child_of_slots.shape[0] * FANOUT + 1, np.int64)
    own_rows = _node_rows(FANOUT)
    for top in nodes:
        stack[0] = top
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            low, high = begin[node], end[node]
            n = high - low
            child_of = child_of_slots[level[node]]
            width = np.int64(child_of[high - 1]) + 1
            gathered = (c[low:high], d[low:high], q[low:high], entered[low:high])
            carried = records[low:high]
            if level[node] == 0:
                rows = (p[low:high], v[low:high], slots[low:high], children[low:high])
                carried = records[:0]
            else:
                if n > own_rows[0].shape[0]:
                    own_rows = _node_rows(n)
                rows = (own_rows[0][:n], own_rows[1][:n], own_rows[2][:n], own_rows[3][:n])
                read_records(carried, child_of, *rows)
            in_p, in_v, in_slots, in_children = rows
            if want == COUNTS_AND_SUMS:
                in_v = in_p
            totals[:width] = 0.0
            numbers[:width] = 0
            child_totals(in_v, in_children, want, totals, numbers)
            if want < SUMS:
                clear(n_above, width)
                fill_before(n_below, numbers, width)
            if want != COUNTS:
                clear(above, width)
                fill_before(below, totals, width)
            state = (above, n_above, below, n_below)
            sweep(in_p, in_v, in_children, width, margin, want, *gathered, *state)
            if n_children[node] == 0:
                write_out_leaf(in_p, in_slots, *gathered, carried, row_of, want, settled)
                continue
            first = first_bound[node]
            for k in range(width):
                places[k] = bounds[first + k]
            if level[node] > 0:
                carried = carried.copy()
            partition(in_p, in_v, in_slots, in_children, *gathered, carried, want, places, records)
            for k in range(width):
                if child[first + k] < 0:
                    write_out(records, row_of, want, bounds[first + k], bounds[first + k + 1], settled)
                elif level[node] > 0:
                    stack[depth] = child[first + k]
                    depth += 1


# ---------------------------------------------------------------- weights, and degrees


@njit(**_OPTIONS)
def weigh(settled, weight, low, high, worse, better, laplacian_p):
    """Weighted counts and L p of the rows low..high."""
    for row in range(low, high):
        worse[row] = weight[row] * settled[row].c
        better[row] = weight[row] * settled[row].d
        laplacian_p[row] = weight[row] * settled[row].q


@njit(**_OPTIONS)
def finish_product(settled, weight, worse, better, v, low, high, laplacian_v):
    """L v of the rows low..high."""
    for row in range(low, high):
        w = weight[row] if weight.shape[0] else 1.0
        laplacian_v[row] = (worse[row] + better[row]) * v[row] - w * settled[row].q


# ---------------------------------------------------------------- answers
# Sums over very many answers "h rather than j": each reads two entries of a vector, or adds to two.
#
# NumPy makes an array as long as the answers at every step; here they are read once. Each thread has its own answers
# and, where it adds, its own vector.

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
