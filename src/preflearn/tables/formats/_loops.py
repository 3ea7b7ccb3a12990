"""LETOR (svmlight with query ids) text to arrays, as a compiled loop, and decimal text to the nearest float64.

    <target> qid:<query> <index>:<value> <index>:<value> ... # comment

The loop sees one block of whole lines and knows nothing of files. It writes what is stored sparsely: a value of 0
takes no room, but counts for the width of its row. What it cannot read as a number it lists for the caller, who also
turns a fault code into a sentence.

A number w · 10^q (w the digits read as a whole number) takes one of three paths, all of which give exactly what
Python's ``float(text)`` gives:

1. w ≤ 2^53 and |q| ≤ 22: w and 10^|q| are float64 values, so one multiplication or division rounds correctly.
2. w < 10^19: the leading 128 bits of w · 5^q decide the rounding (Lemire, Number parsing at a gigabyte per second,
   Software: Practice and Experience 51, 2021; Mushtak and Lemire, Fast number parsing without fallback, 2023).
3. Anything else (20 digits or more, results that are subnormal or overflow, words such as NaN) is the caller's, who
   asks Python.
"""

from __future__ import annotations

import numpy as np

from ...numerics.compiling import njit

SPACE, TAB, LF, CR, HASH, COLON = 32, 9, 10, 13, 35, 58
LARGEST_INDEX = 2**31 - 2

# Faults. The first free number is the caller's.
(
    FINE,
    BAD_QUERY,
    QUERY_TOO_LARGE,
    NOT_A_PAIR,
    INDEX_BELOW_ONE,
    INDEX_NOT_ASCENDING,
    INDEX_TOO_LARGE,
    STRAY_RETURN,
    QUERY_OUT_OF_PLACE,
) = range(9)

_SMALLEST_POWER, _LARGEST_POWER = -300, 300
_EXACT_POWERS = 10.0 ** np.arange(23)
_LOW_HALF, _HALF, _HIGHEST_BIT = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1 << 63)
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


@njit(cache=True, nogil=True)
def _product(a, b):
    """a · b of two uint64 as (high, low) uint64."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _LOW_HALF, b >> _HALF, b & _LOW_HALF
    middle = a_high * b_low + ((a_low * b_low) >> _HALF)
    other = a_low * b_high + (middle & _LOW_HALF)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF), a * b


@njit(cache=True, nogil=True)
def _digits(text, at, w):
    """w followed by the digits from this place on, and the place behind them."""
    while 48 <= text[at] <= 57:
        w = w * np.uint64(10) + np.uint64(text[at] - 48)
        at += 1
    return w, at


@njit(cache=True, nogil=True)
def _nearest(w, q):
    """w · 10^q rounded to the nearest float64, with False where 128 bits or the normal range do not suffice."""
    if q < _SMALLEST_POWER or q > _LARGEST_POWER:
        return 0.0, False
    shift = 0
    while not w & _HIGHEST_BIT:
        w <<= np.uint64(1)
        shift += 1
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
def _scan_number(text, at):
    """Read the number that starts at this place of a text.

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
    at += negative | (text[at] == 43)
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


@njit(cache=True, nogil=True)
def _skip_blanks(text, at):
    while text[at] == SPACE or text[at] == TAB:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _token_end(text, at):
    while not (text[at] == SPACE or text[at] == TAB or text[at] == LF or text[at] == CR or text[at] == HASH):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _ends_token(byte):
    return byte == SPACE or byte == LF or byte == CR or byte == TAB or byte == HASH


@njit(cache=True, nogil=True)
def _starts_query(text, at):
    return text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == COLON


@njit(cache=True, nogil=True)
def _list(odd, n_odd, slot, token, end, line):
    odd[n_odd, 0] = slot
    odd[n_odd, 1] = token
    odd[n_odd, 2] = end
    odd[n_odd, 3] = line
    return n_odd + 1


# Long: one state machine over the bytes of a block; its state would have to be passed through every call.
@njit(cache=True, nogil=True)
def parse_letor(text, y, qid, has_qid, lines, n_pairs, widths, comments, starts, columns, values, odd):
    """Parse a block that ends in a line end.

    Parameters
    ----------
    text : uint8 array
        Whole lines.
    y, qid, has_qid, lines, n_pairs, widths : arrays of shape (rows,)
        Written: target, query, whether a query was given, line (from 0), number of pairs, largest index.
    comments : int64 array of shape (rows, 2)
        Written: where the comment starts and ends in ``text``; 0, 0 where there is none.
    starts, columns, values : arrays of shape (rows + 1,), (pairs,), (pairs,)
        Written: the row in compressed sparse form, columns from 0.
    odd : int64 array of shape (rows + pairs, 4)
        Written: tokens left to the caller as (slot in ``values``, or -1 - row for a target; start; end; line).

    Returns
    -------
    n_rows, n_lines, n_values, n_odd, fault, at : int
        ``at`` is where the fault lies, on line ``n_lines``.
    """
    row = 0
    line = 0
    n_values = 0
    n_odd = 0
    at = 0
    starts[0] = 0
    while at < text.shape[0]:
        at = _skip_blanks(text, at)
        if text[at] == CR and text[at + 1] == LF:
            at += 1
        if text[at] == LF:
            at += 1
            line += 1
            continue
        if text[at] == HASH:
            while text[at] != LF:
                at += 1
            continue

        lines[row] = line
        token = at
        value, ok, at = _scan_number(text, at)
        if not ok or not _ends_token(text[at]):
            at = _token_end(text, token)
            n_odd = _list(odd, n_odd, -1 - row, token, at, line)
        y[row] = value

        at = _skip_blanks(text, at)
        has_qid[row] = _starts_query(text, at)
        qid[row] = 0
        if has_qid[row]:
            token = at
            at += 4
            negative = text[at] == 45
            if negative:
                at += 1
            first = at
            query = np.uint64(0)
            while 48 <= text[at] <= 57:
                query = query * np.uint64(10) + np.uint64(text[at] - 48)
                at += 1
            if at == first or not _ends_token(text[at]):
                return row, line, n_values, n_odd, BAD_QUERY, token
            if at - first > 18:
                return row, line, n_values, n_odd, QUERY_TOO_LARGE, token
            qid[row] = -np.int64(query) if negative else np.int64(query)

        previous = 0
        pairs = 0
        while True:
            at = _skip_blanks(text, at)
            if text[at] == LF or text[at] == HASH:
                break
            if text[at] == CR:
                if text[at + 1] == LF:
                    at += 1
                    break
                return row, line, n_values, n_odd, STRAY_RETURN, at
            token = at
            index = 0
            while 48 <= text[at] <= 57:
                if index <= LARGEST_INDEX:
                    index = 10 * index + (text[at] - 48)
                at += 1
            if at == token or text[at] != COLON:
                fault = QUERY_OUT_OF_PLACE if _starts_query(text, token) else NOT_A_PAIR
                return row, line, n_values, n_odd, fault, token
            if index < 1:
                return row, line, n_values, n_odd, INDEX_BELOW_ONE, token
            if index <= previous:
                return row, line, n_values, n_odd, INDEX_NOT_ASCENDING, token
            if index > LARGEST_INDEX:
                return row, line, n_values, n_odd, INDEX_TOO_LARGE, token
            previous = index
            pairs += 1
            at += 1
            token = at
            value, ok, at = _scan_number(text, at)
            if not ok or not _ends_token(text[at]):
                at = _token_end(text, token)
                n_odd = _list(odd, n_odd, n_values, token, at, line)
                value = 1.0
            if value != 0.0:
                columns[n_values] = index - 1
                values[n_values] = value
                n_values += 1

        comments[row, 0] = 0
        comments[row, 1] = 0
        if text[at] == HASH:
            comments[row, 0] = at + 1
            while text[at] != LF:
                at += 1
            comments[row, 1] = at
        n_pairs[row] = pairs
        widths[row] = previous
        row += 1
        starts[row] = n_values
        line += 1
        at += 1
    return row, line, n_values, n_odd, FINE, at
