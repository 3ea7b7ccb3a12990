"""Delimited text (CSV, TSV) to arrays, as a compiled loop.

Cells are bare, or enclosed in double quotes, within which a doubled quote means one quote, and delimiters and line ends
are text (RFC 4180). The loop sees one block of whole records and knows nothing about files or column names: ``kinds``
says which columns are numbers and which are text.
"""

from __future__ import annotations

import numpy as np

from ...numerics.compiling import njit
from .text_numbers import CR, LF, SPACE, TAB, scan_number

QUOTE = 34
FINE, TOO_FEW_CELLS, TOO_MANY_CELLS, STRAY_QUOTE, TEXT_AFTER_QUOTE, OPEN_QUOTE, STRAY_RETURN = range(7)


# Long: one state machine over the bytes of a block; its state would have to be passed through every call.
@njit(cache=True, nogil=True)
def parse_delimited(text, delimiter, kinds, lines, numbers, spans, odd):
    """Parse a block of whole records that ends in a line end.

    Parameters
    ----------
    text : uint8 array
    delimiter : int
    kinds : int64 array of shape (columns,)
        k ≥ 0: the column is column k of ``numbers``; -1: left out; -2 - k: the column is column k of ``spans``.
    lines : int64 array of shape (rows,)
        Written: the line (from 0) on which the record starts.
    numbers : float64 array of shape (rows, n)
        Written: the numbers.
    spans : int64 array of shape (rows, t, 2)
        Written: where a text cell starts and ends in ``text``, quotes included.
    odd : int64 array of shape (cells, 5)
        Written: number cells left to the caller as (row, column of the file, start, end, line), quotes left out.

    Returns
    -------
    n_rows, n_lines, n_odd, fault, column, at : int
        The fault lies at ``at``, in that column of line ``n_lines``.
    """
    n_columns = kinds.shape[0]
    row = 0
    line = 0
    n_odd = 0
    at = 0
    while at < text.shape[0]:
        if text[at] == LF:
            at += 1
            line += 1
            continue
        if text[at] == CR and text[at + 1] == LF:
            at += 2
            line += 1
            continue
        lines[row] = line
        column = 0
        while True:
            cell = at
            cell_line = line
            quoted = text[at] == QUOTE
            if quoted:
                at += 1
                while True:
                    if at >= text.shape[0] - 1:
                        # The last byte is the line end that closes the block.
                        return row, cell_line, n_odd, OPEN_QUOTE, column, cell
                    if text[at] == QUOTE:
                        at += 1
                        if text[at] != QUOTE:
                            break
                    elif text[at] == LF:
                        line += 1
                    at += 1
                if not (text[at] == delimiter or text[at] == LF or (text[at] == CR and text[at + 1] == LF)):
                    return row, line, n_odd, TEXT_AFTER_QUOTE, column, at
                first, last = cell + 1, at - 1
            else:
                while not (text[at] == delimiter or text[at] == LF):
                    if text[at] == QUOTE:
                        return row, line, n_odd, STRAY_QUOTE, column, at
                    if text[at] == CR:
                        if text[at + 1] == LF:
                            break
                        return row, line, n_odd, STRAY_RETURN, column, at
                    at += 1
                first, last = cell, at
            if column >= n_columns:
                return row, lines[row], n_odd, TOO_MANY_CELLS, column, cell
            kind = kinds[column]
            if kind >= 0:
                while first < last and (text[first] == SPACE or text[first] == TAB):
                    first += 1
                while first < last and (text[last - 1] == SPACE or text[last - 1] == TAB):
                    last -= 1
                value, ok, end = scan_number(text, first)
                if not ok or end != last:
                    odd[n_odd, 0] = row
                    odd[n_odd, 1] = column
                    odd[n_odd, 2] = first
                    odd[n_odd, 3] = last
                    odd[n_odd, 4] = cell_line
                    n_odd += 1
                numbers[row, kind] = value
            elif kind <= -2:
                spans[row, -2 - kind, 0] = cell
                spans[row, -2 - kind, 1] = at
            column += 1
            if text[at] == delimiter:
                at += 1
                continue
            break
        if column < n_columns:
            return row, lines[row], n_odd, TOO_FEW_CELLS, column, at
        if text[at] == CR:
            at += 1
        at += 1
        line += 1
        row += 1
    return row, line, n_odd, FINE, 0, at


@njit(cache=True, nogil=True)
def find_distinct(text, spans, most, codes, firsts):
    """Number the distinct cells of a column in the order of their first rows.

    Parameters
    ----------
    text : uint8 array
    spans : int64 array of shape (rows, 2)
        Where each cell starts and ends.
    most : int
        The number of distinct cells above which the rest is not examined.
    codes : int64 array of shape (rows,)
        Written: the number of each cell.
    firsts : int64 array of shape (most,)
        Written: the first row with each.

    Returns
    -------
    n_distinct : int
        Or -1 where there are more than ``most``.
    """
    size = 1
    while size < 2 * most:
        size *= 2
    slots = np.full(size, -1, dtype=np.int64)
    n = 0
    for row in range(spans.shape[0]):
        start, end = spans[row, 0], spans[row, 1]
        value = np.uint64(14695981039346656037)
        for k in range(start, end):
            value = (value ^ np.uint64(text[k])) * np.uint64(1099511628211)
        slot = np.int64((value ^ (value >> np.uint64(32))) & np.uint64(size - 1))
        while True:
            code = slots[slot]
            if code < 0:
                if n == most:
                    return -1
                slots[slot] = n
                firsts[n] = row
                code = n
                n += 1
                break
            first = spans[firsts[code], 0]
            if spans[firsts[code], 1] - first == end - start:
                k = 0
                while k < end - start and text[first + k] == text[start + k]:
                    k += 1
                if k == end - start:
                    break
            slot = (slot + 1) & (size - 1)
        codes[row] = code
    return n
