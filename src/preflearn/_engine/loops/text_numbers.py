"""Decimal text to the nearest float64, as a compiled loop.

A number w · 10^q (w the digits read as a whole number) takes one of three paths, all of which give exactly what
Python's ``float(text)`` gives:

1. w ≤ 2^53 and |q| ≤ 22: w and 10^|q| are float64 values, so one multiplication or division rounds correctly.
2. w < 10^19: the leading 128 bits of w · 5^q decide the rounding (Lemire, Number parsing at a gigabyte per second,
   Software: Practice and Experience 51, 2021; Mushtak and Lemire, Fast number parsing without fallback, 2023).
3. Anything else (20 digits or more, results that are subnormal or overflow, words such as NaN) is handed back to
   the caller with ``ok`` false; the caller asks Python.
"""

from __future__ import annotations

import sys

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

SPACE, TAB, LF, CR = 32, 9, 10, 13

_SMALLEST_POWER, _LARGEST_POWER = -300, 300
_EXACT_POWERS = 10.0 ** np.arange(23)
_LOW_HALF = np.uint64(0xFFFFFFFF)
# The upper half of each byte, and every fourth byte: eight digits are read in one word.
_HIGH_HALVES, _PAIRS = np.uint64(0xF0F0F0F0F0F0F0F0), np.uint64(0x000000FF000000FF)
# 2^k for every k at which it is a float64, from the smallest.
_SMALLEST_POWER_OF_TWO = -1074
_POWERS_OF_TWO = np.ldexp(1.0, np.arange(_SMALLEST_POWER_OF_TWO, 1024))


def _leading_bits_of_powers_of_five() -> np.ndarray:
    """The 128 leading bits of 5^q as two uint64, rounded down for q ≥ 0 and up for q < 0."""
    table = np.empty((_LARGEST_POWER - _SMALLEST_POWER + 1, 2), dtype=np.uint64)
    for q in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        power = 5 ** abs(q)
        length = power.bit_length()
        if q >= 0:
            bits = power << (128 - length) if length <= 128 else power >> (length - 128)
        else:
            # 2^(length - 1) < 5^|q| < 2^length, so this quotient has exactly 128 bits.
            bits = (1 << (length + 127)) // power + 1
        table[q - _SMALLEST_POWER] = (bits >> 64, bits & 0xFFFFFFFFFFFFFFFF)
    return table


_FIVES = _leading_bits_of_powers_of_five()


@intrinsic
def _leading_zeros(typing_context, word):
    """The number of zero bits before the first that is set."""

    def generate(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def _eight_bytes(typing_context, text, at):
    """The bytes from this place on as one word, the first of them in its lowest bits."""
    if not (isinstance(text, types.Array) and text.dtype == types.uint8 and text.layout == "C"):
        return None

    def generate(context, builder, signature, arguments):
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        word = builder.load(place, align=1)
        return word if sys.byteorder == "little" else builder.bswap(word)

    return types.uint64(text, types.intp), generate


@njit(cache=True, nogil=True)
def _digits(text, at, w):
    """w followed by the digits from this place on, and the place behind them.

    Eight digits at a time as long as there are, in three multiplications (Lemire, 2021).
    """
    while at + 8 <= text.shape[0]:
        word = _eight_bytes(text, at)
        above = ((word + np.uint64(0x0606060606060606)) & _HIGH_HALVES) >> np.uint64(4)
        if (word & _HIGH_HALVES) | above != np.uint64(0x3333333333333333):
            break
        word -= np.uint64(0x3030303030303030)
        word = word * np.uint64(10) + (word >> np.uint64(8))
        pairs = (word & _PAIRS) * np.uint64(0x000F424000000064)
        other_pairs = ((word >> np.uint64(16)) & _PAIRS) * np.uint64(0x0000271000000001)
        w = w * np.uint64(100_000_000) + ((pairs + other_pairs) >> np.uint64(32))
        at += 8
    while 48 <= text[at] <= 57:
        w = w * np.uint64(10) + np.uint64(text[at] - 48)
        at += 1
    return w, at


@njit(cache=True, nogil=True)
def _product(a, b):
    """a · b of two uint64 as (high, low) uint64."""
    thirty_two = np.uint64(32)
    a_high, a_low = a >> thirty_two, a & _LOW_HALF
    b_high, b_low = b >> thirty_two, b & _LOW_HALF
    low_low = a_low * b_low
    high_low = a_high * b_low
    low_high = a_low * b_high
    middle = (low_low >> thirty_two) + (high_low & _LOW_HALF) + low_high
    high = a_high * b_high + (high_low >> thirty_two) + (middle >> thirty_two)
    low = (middle << thirty_two) | (low_low & _LOW_HALF)
    return high, low


@njit(cache=True, nogil=True)
def _nearest(w, q):
    """w · 10^q rounded to the nearest float64, with False where 128 bits or the normal range do not suffice."""
    if q < _SMALLEST_POWER or q > _LARGEST_POWER:
        return 0.0, False
    shift = np.int64(_leading_zeros(w))
    w <<= np.uint64(shift)
    high, low = _product(w, _FIVES[q - _SMALLEST_POWER, 0])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        # The bits under the 55 that are kept could still carry: bring in the second word of 5^q.
        second, _ = _product(w, _FIVES[q - _SMALLEST_POWER, 1])
        total = low + second
        if total < low:
            high += np.uint64(1)
        low = total
    upper = high >> np.uint64(63)
    drop = upper + np.uint64(9)
    mantissa = high >> drop  # 54 bits: the 53 of a float64 and one to round by
    exponent = ((217706 * q) >> 16) + 63 + np.int64(upper) - shift  # floor(q log2 10) = 217706 q / 2^16 here
    if exponent < -1021 or exponent > 1022:
        return 0.0, False
    if low <= np.uint64(1) and -4 <= q <= 23 and mantissa & np.uint64(3) == np.uint64(1):
        if mantissa << drop == high:
            mantissa &= ~np.uint64(1)  # exactly half way: to even
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    return np.float64(mantissa) * _POWERS_OF_TWO[exponent - 52 - _SMALLEST_POWER_OF_TWO], True


@njit(cache=True, nogil=True)
def scan_number(text, at):
    """Read the number that starts at ``text[at]``.

    The text must hold a byte that is not part of a number (a line end) somewhere after ``at``.

    Returns
    -------
    value : float
    ok : bool
        False when there is no plain decimal number, or one that this loop leaves to Python.
    at : int
        The first byte after the number; unspecified inside the token when ``ok`` is false.
    """
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    w = np.uint64(0)
    begin = first = at
    w, at = _digits(text, at, w)
    digits = at - first
    q = 0
    if text[at] == 46:
        at += 1
        first = at
        w, at = _digits(text, at, w)
        q = first - at
        digits -= q
    if digits == 0:
        return 0.0, False, at
    if digits > 19:
        # Zeros in front do not count: 0.0012345678901234567 has 17 digits.
        while begin < at and (text[begin] == 48 or text[begin] == 46):
            digits -= text[begin] == 48
            begin += 1
        if digits > 19:
            return 0.0, False, at
    if text[at] == 101 or text[at] == 69:
        at += 1
        minus = text[at] == 45
        if minus or text[at] == 43:
            at += 1
        first = at
        e = 0
        while 48 <= text[at] <= 57:
            if e < 100000:
                e = 10 * e + (text[at] - 48)
            at += 1
        if at == first:
            return 0.0, False, at
        q += -e if minus else e
    ok = True
    if w == 0:
        value = 0.0
    elif w <= np.uint64(1 << 53) and -22 <= q <= 22:
        value = np.float64(w)
        if q < 0:
            value /= _EXACT_POWERS[-q]
        else:
            value *= _EXACT_POWERS[q]
    else:
        value, ok = _nearest(w, q)
    return (-value if negative else value), ok, at


@njit(cache=True, nogil=True)
def count_bytes(text, first, second):
    """How often each of two byte values occurs."""
    n_first = 0
    n_second = 0
    for byte in text:
        n_first += byte == first
        n_second += byte == second
    return n_first, n_second
