"""Statistics over the margin-violating pairs of each query, in O(m log m).

With predictions p and utilities y, the pair (i, j) of one query violates the margin when

    y_i < y_j   and   p_j < p_i + margin,

and for every row the loops below give, exactly with ties in y and in p,

    c_i = #{j : (i, j) violates},   d_j = #{i : (i, j) violates},
    Q_i = sum of v_j over the partners j of i, in either role.

**The structure.** Rows lie in *slots*, ordered by query and then by utility. A tree over the slots of a query
splits each node into up to ``FANOUT`` children, never through a tie in y; the children of a leaf are its tie groups.
A node holds its rows sorted by p, and one sweep over them settles all pairs of rows from different children: row i
"asks" once every j with p_j < p_i + margin has "entered". The running sums over the children sit in `lanes`: blocks
of ``BLOCK`` children with sums inside the block, and one block of sums over whole blocks, so that a row enters with
two short vector additions and asks with two look-ups. A stable partition then hands the rows, still sorted by p, to
the children. Two sweeps settle a million distinct utilities, both in memory that the nearest cache holds.

The functions are plain loops on arrays that release the interpreter lock: threads share the nodes of the tree
and the stretches of one large node.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BLOCK_BITS = 5
BLOCK = 1 << BLOCK_BITS
FANOUT = BLOCK * BLOCK
INSERTION_SORT = 24

# One row on its way down the tree: prediction, sums gathered so far, either the two counts (statistics of p itself)
# or the vector v to sum (further products at the same p), which share their place, slot, and child of the present
# node. One record is one stream of memory for the partition into children: three times as fast as one array per
# field.
ROW = np.dtype(
    {
        "names": ["p", "q", "v", "c", "d", "slot", "child"],
        "formats": ["f8", "f8", "f8", "i4", "i4", "i4", "u4"],
        "offsets": [0, 8, 16, 16, 20, 24, 28],
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
    first_group : ndarray of shape (n_nodes + 1,), int64
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
            # Children just small enough to be leaves, where so many children are allowed.
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
def count_parts(keys, low, high, splitters, numbers):
    """How many of the keys low..high lie between two neighbouring splitters."""
    for k in range(low, high):
        part = 0
        for splitter in splitters:
            part += keys[k] >= splitter
        numbers[part] += 1


@njit(**_OPTIONS)
def move_to_parts(keys, low, high, splitters, places, parted):
    """Bring the keys between two neighbouring splitters together; ``places``: where the next key of a part goes."""
    for k in range(low, high):
        part = 0
        for splitter in splitters:
            part += keys[k] >= splitter
        parted[places[part]] = keys[k]
        places[part] += 1


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


# ---------------------------------------------------------------- running sums over the children of a node
#
# lanes[1 + b, k]: sum over the children of block b that come before (or after) child k of the block;
# lanes[0, b]: sum over all children of the blocks before (or after) block b.
#
# Children are unsigned numbers, which need no test for indices that count from the end.
#
# The loops run over the whole block, with a zero for the children that get nothing: two vector additions without a
# branch. The bound of the loop is read from the array and masked because a constant would be unrolled into scalar
# additions, and the compiler would otherwise prepare for a remainder.


@njit(**_OPTIONS)
def new_lanes(like):
    return np.zeros((1 + BLOCK, BLOCK), like.dtype)


@njit(**_OPTIONS)
def look_up(lanes, child):
    block, place = child >> np.uint32(BLOCK_BITS), child & np.uint32(BLOCK - 1)
    return lanes[np.uint32(0), block] + lanes[block + np.uint32(1), place]


@njit(**_OPTIONS)
def add_before(lanes, child, n_blocks, value):
    """Add the value of a row of ``child`` to the sums of all children before it."""
    nothing = value - value
    block, place = np.int32(child >> BLOCK_BITS), np.int32(child & (BLOCK - 1))
    width = lanes.shape[1] & -BLOCK
    for k in range(width):
        lanes[1 + block, k] += value if np.int32(k) < place else nothing
    if n_blocks > 1:
        for k in range(width):
            lanes[0, k] += value if np.int32(k) < block else nothing


@njit(**_OPTIONS)
def subtract_after(lanes, child, n_blocks, value):
    """Subtract the value of a row of ``child`` from the sums of all children after it."""
    nothing = value - value
    block, place = np.int32(child >> BLOCK_BITS), np.int32(child & (BLOCK - 1))
    width = lanes.shape[1] & -BLOCK
    for k in range(width):
        lanes[1 + block, k] -= value if np.int32(k) > place else nothing
    if n_blocks > 1:
        for k in range(width):
            lanes[0, k] -= value if np.int32(k) > block else nothing


@njit(**_OPTIONS)
def fill_before(lanes, totals, n_children):
    """Sums over the children before each one, from the totals of the children."""
    over_blocks = totals[0] - totals[0]
    for block in range(-(-n_children // BLOCK)):
        lanes[0, block] = over_blocks
        inside = over_blocks - over_blocks
        for k in range(BLOCK):
            lanes[1 + block, k] = inside
            if block * BLOCK + k < n_children:
                inside += totals[block * BLOCK + k]
        over_blocks += inside


@njit(**_OPTIONS)
def fill_after(lanes, totals, n_children):
    """Sums over the children after each one, from the totals of the children."""
    over_blocks = totals[0] - totals[0]
    for block in range(-(-n_children // BLOCK) - 1, -1, -1):
        lanes[0, block] = over_blocks
        inside = over_blocks - over_blocks
        for k in range(BLOCK - 1, -1, -1):
            lanes[1 + block, k] = inside
            if block * BLOCK + k < n_children:
                inside += totals[block * BLOCK + k]
        over_blocks += inside


# ---------------------------------------------------------------- one node: sweep and partition


@njit(**_OPTIONS)
def look_up_places(order, place_of, low, high, slots, children):
    """Slots of the sorted rows low..high, and the child of the root that owns each."""
    for k in range(low, high):
        place = place_of[order[k]]
        slots[k] = place & 0xFFFFFFFF
        children[k] = place >> 32


@njit(**_OPTIONS)
def load_rows(order, sorted_p, slots, children, v, want, low, high, rows):
    """Records of the sorted rows low..high, nothing gathered yet."""
    for k in range(low, high):
        rows[k].p = sorted_p[k]
        rows[k].q = 0.0
        rows[k].slot = slots[k]
        rows[k].child = children[k]
        if want == SUMS:
            rows[k].v = v[order[k]]
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
def find_children(child_of, rows, low, high):
    """Note the child of each row of a node below the root."""
    for k in range(low, high):
        rows[k].child = child_of[rows[k].slot]


@njit(**_OPTIONS)
def child_totals(rows, low, high, want, totals, numbers):
    """Add up the sums and numbers of rows of each child over low..high."""
    if want == SUMS:
        for k in range(low, high):
            numbers[rows[k].child] += 1
            totals[rows[k].child] += rows[k].v
    elif want == COUNTS_AND_SUMS:
        for k in range(low, high):
            numbers[rows[k].child] += 1
            totals[rows[k].child] += rows[k].p
    else:
        for k in range(low, high):
            numbers[rows[k].child] += 1


@njit(**_OPTIONS)
def sweep(rows, low, high, entering, last, n_children, margin, want, entered, above, n_above, below, n_below):
    """Settle the pairs between children for the rows low..high that ask and the rows that enter meanwhile.

    ``above`` sums over the entered rows of the children after each child, ``below`` over the rows of the children
    before it that have not asked yet; ``n_above``, ``n_below`` are their numbers. Rows from ``entering`` to ``last``
    enter; what they gather goes to ``entered``, because another thread may be asking for the same row.
    """
    n_blocks, one = -(-n_children // BLOCK), np.int32(1)
    for i in range(low, high):
        threshold = rows[i].p + margin
        while entering < last and rows[entering].p < threshold:
            child = rows[entering].child
            if want != SUMS:
                rows[entering].d += look_up(n_below, child)
                add_before(n_above, child, n_blocks, one)
            if want != COUNTS:
                entered[entering] = look_up(below, child)
                add_before(above, child, n_blocks, rows[entering].v if want == SUMS else rows[entering].p)
            entering += 1
        child = rows[i].child
        if want != SUMS:
            rows[i].c += look_up(n_above, child)
            subtract_after(n_below, child, n_blocks, one)
        if want != COUNTS:
            rows[i].q += look_up(above, child)
            subtract_after(below, child, n_blocks, rows[i].v if want == SUMS else rows[i].p)
    # Rows that nobody let in violate no pair as the better row.
    entered[entering:last] = 0.0


@njit(**_OPTIONS)
def sweep_stretch(
    rows, low, high, entering, last, n_children, margin, want, entered, before, n_before, ahead, n_ahead
):
    """`sweep` over one stretch of a large node.

    Per child: ``before`` and ``n_before`` total the rows that entered before the stretch, ``ahead`` and ``n_ahead``
    those that have not asked when it starts.
    """
    above, below = new_lanes(before), new_lanes(before)
    n_above, n_below = new_lanes(n_before), new_lanes(n_before)
    fill_after(above, before, n_children)
    fill_after(n_above, n_before, n_children)
    fill_before(below, ahead, n_children)
    fill_before(n_below, n_ahead, n_children)
    state = (entered, above, n_above, below, n_below)
    sweep(rows, low, high, entering, last, n_children, margin, want, *state)


@njit(**_OPTIONS)
def partition(source, target, entered, want, low, high, places):
    """Move the rows low..high to their children, in order; ``places[k]``: where the next row of child k goes."""
    for k in range(low, high):
        child = source[k].child
        place = places[child]
        places[child] = place + 1
        target[place].p = source[k].p
        target[place].q = source[k].q + entered[k] if want != COUNTS else 0.0
        target[place].v = source[k].v  # the two counts where there are any: they share the place
        target[place].slot = source[k].slot


@njit(**_OPTIONS)
def write_out(rows, low, high, settled):
    """What the rows low..high gathered, to their slots: near each other, as the rows of the data are not."""
    for k in range(low, high):
        slot = rows[k].slot
        settled[slot].q = rows[k].q
        settled[slot].c = rows[k].c
        settled[slot].d = rows[k].d


@njit(**_OPTIONS)
def write_out_leaf(rows, entered, want, low, high, settled):
    """`write_out` for rows that have just been swept."""
    if want != COUNTS:
        for k in range(low, high):
            rows[k].q += entered[k]
    write_out(rows, low, high, settled)


# ---------------------------------------------------------------- whole subtrees


@njit(**_OPTIONS)
def settle_subtrees(nodes, tree, children, even, odd, entered, margin, want, settled):
    """Settle every pair below the given nodes, whose rows lie in the buffer of their level."""
    begin, end, level, first_bound, n_children, bounds, child = tree
    totals, numbers = np.empty(FANOUT), np.empty(FANOUT, np.int32)
    above, below = new_lanes(totals), new_lanes(totals)
    n_above, n_below = new_lanes(numbers), new_lanes(numbers)
    places = np.empty(FANOUT, np.int64)
    stack = np.empty(children.shape[0] * FANOUT + 1, np.int64)
    for top in nodes:
        stack[0] = top
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            low, high = begin[node], end[node]
            if level[node] % 2 == 0:
                source, target = even, odd
            else:
                source, target = odd, even
            child_of = children[level[node]]
            width = np.int64(child_of[high - 1]) + 1
            totals[:width] = 0.0
            numbers[:width] = 0
            if level[node] > 0:
                find_children(child_of, source, low, high)
            child_totals(source, low, high, want, totals, numbers)
            if want != SUMS:
                n_above[:] = 0
                fill_before(n_below, numbers, width)
            if want != COUNTS:
                above[:] = 0.0
                fill_before(below, totals, width)
            state = (entered, above, n_above, below, n_below)
            sweep(source, low, high, low, high, width, margin, want, *state)
            if n_children[node] == 0:
                write_out_leaf(source, entered, want, low, high, settled)
                continue
            first = first_bound[node]
            for k in range(width):
                places[k] = bounds[first + k]
            partition(source, target, entered, want, low, high, places)
            for k in range(width):
                if child[first + k] >= 0:
                    stack[depth] = child[first + k]
                    depth += 1
                else:
                    write_out(target, bounds[first + k], bounds[first + k + 1], settled)


# ---------------------------------------------------------------- back to the rows


@njit(**_OPTIONS)
def finish_counts(settled, slot_of, weight, p, low, high, worse, better, laplacian_p):
    """Weighted counts and L p of the rows low..high."""
    for row in range(low, high):
        w = weight[row] if weight.shape[0] else 1.0
        slot = slot_of[row]
        c, d = settled[slot].c, settled[slot].d
        worse[row] = w * c
        better[row] = w * d
        laplacian_p[row] = w * ((c + d) * p[row] - settled[slot].q)


@njit(**_OPTIONS)
def finish_product(settled, slot_of, weight, worse, better, v, low, high, laplacian_v):
    """L v of the rows low..high."""
    for row in range(low, high):
        w = weight[row] if weight.shape[0] else 1.0
        laplacian_v[row] = (worse[row] + better[row]) * v[row] - w * settled[slot_of[row]].q
