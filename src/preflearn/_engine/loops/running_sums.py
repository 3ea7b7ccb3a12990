"""Running sums over up to 1024 numbered children, for loops that change and read them a million times.

A child is in a group of 8, and that in a block of 64. One array of ``N_LANES`` numbers holds, for sums over the
children *after* each child (and likewise *before*):

    lanes[block]          all children of the blocks after this one
    lanes[16 + group]     all children of the groups after this one in its block
    lanes[144 + child]    the children after this one in its group

so that a sum is read with three look-ups, and changed with vector additions to one run of 16 and two of 8 numbers, the
lanes that get nothing included (fewer runs where there are few children).
"""

from __future__ import annotations

import numpy as np

from .compiling import njit
from .vectors import add_where

FANOUT = 1024
_GROUPS, _CHILDREN = 16, 144
N_LANES = _CHILDREN + FANOUT
_CACHE_LINE = 64

_OPTIONS = {"cache": True, "nogil": True}


_add_before_8, _add_before_16 = add_where(8, "<"), add_where(16, "<")
_add_after_8, _add_after_16 = add_where(8, ">"), add_where(16, ">")


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
def add_before(lanes, child, n_children, value):
    """Add to the sums of all children before one."""
    c = np.int32(child)
    _add_before_8(lanes, _CHILDREN + (c & -8), c & 7, value)
    if n_children > 8:
        _add_before_8(lanes, _GROUPS + ((c >> 3) & -8), (c >> 3) & 7, value)
    if n_children > 64:
        _add_before_16(lanes, 0, c >> 6, value)


@njit(**_OPTIONS)
def add_after(lanes, child, n_children, value):
    """Add to the sums of all children after one."""
    c = np.int32(child)
    _add_after_8(lanes, _CHILDREN + (c & -8), c & 7, value)
    if n_children > 8:
        _add_after_8(lanes, _GROUPS + ((c >> 3) & -8), (c >> 3) & 7, value)
    if n_children > 64:
        _add_after_16(lanes, 0, c >> 6, value)


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


@njit(**_OPTIONS)
def fill_after(lanes, totals, n_children):
    """The sums over the children after each one, from the totals of the children."""
    zero = totals[0] - totals[0]
    over_blocks, over_groups, inside = zero, zero, zero
    for child in range(n_children - 1, -1, -1):
        last = child == n_children - 1
        if child % 64 == 63 or last:
            over_blocks += over_groups + inside
            over_groups, inside = zero, zero
            lanes[child >> 6] = over_blocks
        if child % 8 == 7 or last:
            over_groups += inside
            inside = zero
            lanes[_GROUPS + (child >> 3)] = over_groups
        lanes[_CHILDREN + child] = inside
        inside += totals[child]
