"""LETOR (svmlight with query ids) text to arrays, as a compiled loop.

    <target> qid:<query> <index>:<value> <index>:<value> ... # comment

The loop sees one block of whole lines and knows nothing of files. It writes what is stored sparsely: a value of 0
takes no room, but counts for the width of its row. What it cannot read as a number (NULL, NaN, more than 19 digits)
it lists for the caller, who also turns a fault code into a sentence.
"""

from __future__ import annotations

import numpy as np

from ...numerics.compiling import njit
from .text_numbers import CR, LF, SPACE, TAB, scan_number

COLON, HASH = 58, 35
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
        value, ok, at = scan_number(text, at)
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
            value, ok, at = scan_number(text, at)
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
