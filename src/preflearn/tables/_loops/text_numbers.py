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
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...numerics.compiling import njit

SPACE, TAB, LF, CR = 32, 9, 10, 13

_SMALLEST_POWER, _LARGEST_POWER = -300, 300
_EXACT_POWERS = 10.0 ** np.arange(23)
# A byte in all places of a word of eight: the digit 0, what lifts bytes above 9 into the highest bit, that bit.
_ZEROS, _ABOVE_NINE = np.uint64(0x3030303030303030), np.uint64(0x7676767676767676)
_HIGHEST_BITS = np.uint64(0x8080808080808080)
# Every fourth byte: eight digits are read in one word.
_PAIRS = np.uint64(0x000000FF000000FF)
_SMALL_POWERS = 10 ** np.arange(9, dtype=np.uint64)
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
def _trailing_zeros(typing_context, word):
    """The number of zero bits behind the last that is set, 64 where none is."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def _product(typing_context, a, b):
    """a · b of two uint64 as (high, low) uint64."""

    def generate(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(one, wide) for one in arguments))
        high = builder.lshr(product, ir.Constant(wide, 64))
        halves = [builder.trunc(one, ir.IntType(64)) for one in (high, product)]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


# Helpers of the loops take the address of a text: to pass the array to a function that is called for every number would
# count its users up and down, which takes longer than to read the number. Whoever has the array keeps it alive.


@intrinsic
def address_of(typing_context, text):
    """Where the bytes of a text are; it must be kept as long as they are read."""
    if not (isinstance(text, types.Array) and text.dtype == types.uint8 and text.layout == "C"):
        return None

    def generate(context, builder, signature, arguments):
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(text), generate


def _load(builder, arguments, bits):
    place = builder.inttoptr(builder.add(*arguments), ir.IntType(bits).as_pointer())
    return builder.load(place, align=1)


@intrinsic
def byte_at(typing_context, address, at):
    """The byte at this place."""

    def generate(context, builder, signature, arguments):
        return _load(builder, arguments, 8)

    return types.uint8(types.int64, types.int64), generate


@intrinsic
def eight_bytes_at(typing_context, address, at):
    """The bytes from this place on as one word, the first of them in its lowest bits."""

    def generate(context, builder, signature, arguments):
        word = _load(builder, arguments, 64)
        return word if sys.byteorder == "little" else builder.bswap(word)

    return types.uint64(types.int64, types.int64), generate


@njit(cache=True, nogil=True, forceinline=True)
def _digits(address, size, at, w):
    """w followed by the digits from this place on, and the place behind them.

    Up to eight digits at a time, in three multiplications (Lemire, 2021). Fewer than eight are moved behind zeros, so
    that no branch depends on their number.
    """
    while at + 8 <= size:
        word = eight_bytes_at(address, at) ^ _ZEROS
        # The first byte that is no digit has its highest bit set here, and none before it has.
        n = _trailing_zeros(((word + _ABOVE_NINE) | word) & _HIGHEST_BITS) >> np.uint64(3)
        half = (np.uint64(8) - n) << np.uint64(2)
        word = (word << half) << half
        word = word * np.uint64(10) + (word >> np.uint64(8))
        pairs = (word & _PAIRS) * np.uint64(0x000F424000000064)
        other_pairs = ((word >> np.uint64(16)) & _PAIRS) * np.uint64(0x0000271000000001)
        w = w * _SMALL_POWERS[n] + ((pairs + other_pairs) >> np.uint64(32))
        at += np.int64(n)
        if n < np.uint64(8):
            return w, at
    while 48 <= byte_at(address, at) <= 57:
        w = w * np.uint64(10) + np.uint64(byte_at(address, at) - 48)
        at += 1
    return w, at


@njit(cache=True, nogil=True, forceinline=True)
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


@njit(cache=True, nogil=True, forceinline=True)
def scan_number_at(address, size, at):
    """Read the number that starts at this place of a text of ``size`` bytes.

    The text must hold a byte that is not part of a number (a line end) somewhere after ``at``.

    Returns
    -------
    value : float
    ok : bool
        False when there is no plain decimal number, or one that this loop leaves to Python.
    at : int
        The first byte after the number; unspecified inside the token when ``ok`` is false.
    """
    negative = byte_at(address, at) == 45
    at += negative | (byte_at(address, at) == 43)
    w = np.uint64(0)
    begin = first = at
    w, at = _digits(address, size, at, w)
    digits = at - first
    q = 0
    if byte_at(address, at) == 46:
        at += 1
        first = at
        w, at = _digits(address, size, at, w)
        q = first - at
        digits -= q
    if digits == 0:
        return 0.0, False, at
    if digits > 19:
        # Zeros in front do not count: 0.0012345678901234567 has 17 digits.
        while begin < at and (byte_at(address, begin) == 48 or byte_at(address, begin) == 46):
            digits -= byte_at(address, begin) == 48
            begin += 1
        if digits > 19:
            return 0.0, False, at
    if byte_at(address, at) == 101 or byte_at(address, at) == 69:
        at += 1
        minus = byte_at(address, at) == 45
        if minus or byte_at(address, at) == 43:
            at += 1
        first = at
        e = 0
        while 48 <= byte_at(address, at) <= 57:
            if e < 100000:
                e = 10 * e + (byte_at(address, at) - 48)
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


@njit(cache=True, nogil=True, forceinline=True)
def scan_number(text, at):
    """Read the number that starts at ``text[at]``; as `scan_number_at`."""
    return scan_number_at(address_of(text), text.shape[0], at)


@njit(cache=True, nogil=True)
def count_bytes(text, first, second):
    """How often each of two byte values occurs."""
    n_first = 0
    n_second = 0
    for byte in text:
        n_first += byte == first
        n_second += byte == second
    return n_first, n_second
