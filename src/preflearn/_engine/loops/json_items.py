"""Requests of the plainest form, JSON objects of numbers that all have the same keys, to a matrix.

    {"items": [{"price": 3.5, "stars": 4}, {"price": 2, "stars": 5}]}

The parser of the standard library makes a dictionary of each item and an object of each number, which takes longer than
to score them. Whatever is not of this form (other keys, another order of keys in a later item, missing values, texts,
escapes, numbers that only Python reads, anything that is not JSON) is left to it: the loop says so and writes nothing
that counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .compiling import njit
from .text_numbers import CR, LF, SPACE, TAB, address_of, byte_at, eight_bytes_at, scan_number_at

_QUOTE, _COMMA, _COLON, _BACKSLASH, _MINUS, _POINT, _ZERO = 34, 44, 58, 92, 45, 46, 48
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = 91, 93, 123, 125
_ITEMS = np.frombuffer(b'"items"', np.uint8)
# A number takes at least these bytes: two quotes, a colon, a digit, and a comma or a brace.
_LEAST_BYTES = 5
# Zero bytes behind a text, so that a word can be read at each of its bytes.
_PADDING = 8


class ItemReader:
    """Reads requests for some keys.

    Parameters
    ----------
    keys : sequence of str

    Examples
    --------
    >>> read = ItemReader(["a", "b"])
    >>> read(b'{"items": [{"b": 1, "a": 2.5}, {"b": -3e2, "a": 0}]}')
    array([[   2.5,    1. ],
           [   0. , -300. ]])
    >>> read(b'{"items": [{"a": 1, "b": null}]}') is None
    True
    """

    def __init__(self, keys: Sequence[str]) -> None:
        texts = [f'"{key}"'.encode("utf-8", "backslashreplace") for key in keys]
        self._keys = np.frombuffer(b"".join(texts), np.uint8)
        self._starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        # Keys that JSON writes with escapes are not looked for.
        self._plain = bool(keys) and all(key.isprintable() and not set(key) & {'"', "\\"} for key in keys)

    def __call__(self, body: bytes | bytearray) -> np.ndarray | None:
        """The numbers of all items, one row each and columns in the order of the keys; None for any other request."""
        if not self._plain:
            return None
        n = self._starts.shape[0] - 1
        text = np.frombuffer(b"".join((body, bytes(_PADDING))), np.uint8)
        out = np.empty((1 + len(body) // (n * _LEAST_BYTES), n))
        n_items = _parse_items(text, self._keys, self._starts, out)
        return out[:n_items] if n_items > 0 else None


# Texts are given by their address (`text_numbers`).


@njit(cache=True, nogil=True)
def _behind_space(text, at):
    byte = byte_at(text, at)
    while byte == SPACE or byte == LF or byte == CR or byte == TAB:
        at += 1
        byte = byte_at(text, at)
    return at


@njit(cache=True, nogil=True)
def _behind(text, at, byte):
    """Behind space, this byte and space; -1 where there is another byte, or before."""
    if at < 0:
        return -1
    at = _behind_space(text, at)
    return _behind_space(text, at + 1) if byte_at(text, at) == byte else -1


@njit(cache=True, nogil=True)
def _has(text, at, word, first, last):
    """Whether these bytes of ``word`` are at this place; the text ends in a byte that no word has."""
    for k in range(first, last):
        if byte_at(text, at + k - first) != byte_at(word, k):
            return False
    return True


@njit(cache=True, nogil=True)
def _repeats(text, at, first, last):
    """Whether the text has the same bytes at this place as from ``first`` to ``last``, none of which is zero."""
    while last - first >= 8:
        if eight_bytes_at(text, at) != eight_bytes_at(text, first):
            return False
        at += 8
        first += 8
    if first == last:
        return True
    beyond = np.uint64(8 * (8 - (last - first)))
    return (eight_bytes_at(text, at) ^ eight_bytes_at(text, first)) << beyond == np.uint64(0)


@njit(cache=True, nogil=True)
def _is_number(text, at, end):
    """Whether these bytes are a number of JSON, which has neither 07 nor 1. nor +1."""
    at += byte_at(text, at) == _MINUS
    first = at
    while 48 <= byte_at(text, at) <= 57:
        at += 1
    if at == first or (byte_at(text, first) == _ZERO and at > first + 1):
        return False
    if byte_at(text, at) == _POINT and not 48 <= byte_at(text, at + 1) <= 57:
        return False
    return at <= end


@njit(cache=True, nogil=True)
def _behind_key(text, at, place, keys, starts, order, seen):
    """Behind what stands before a number: a comma unless it is the first of its item, its key and a colon; or -1.

    The first item says in which order the keys are to come: -1 in ``order`` where it has not yet.
    """
    if place > 0:
        at = _behind(text, at, _COMMA)
    if at < 0:
        return -1
    n = starts.shape[0] - 1
    if order[place] < 0:
        key = 0
        while key < n and not _has(text, at, keys, starts[key], starts[key + 1]):
            key += 1
        if key == n or seen[key]:
            return -1
        seen[key], order[place] = True, key
    first, last = starts[order[place]], starts[order[place] + 1]
    return _behind(text, at + last - first, _COLON) if _has(text, at, keys, first, last) else -1


@njit(cache=True, nogil=True)
def _parse_items(bytes_of_text, bytes_of_keys, starts, out):
    """The number of items, or -1; the text ends in zero bytes, at which everything here stops."""
    text, size, keys = address_of(bytes_of_text), bytes_of_text.shape[0], address_of(bytes_of_keys)
    n = starts.shape[0] - 1
    order, seen = np.full(n, -1), np.zeros(n, np.bool_)
    # Where the first item has what stands before each of its numbers: others mostly have the same bytes there.
    before = np.zeros((n, 2), np.int64)
    at = _behind(text, 0, _OPEN)
    if at < 0 or not _has(text, at, address_of(_ITEMS), 0, _ITEMS.shape[0]):
        return -1
    at = _behind(text, _behind(text, at + _ITEMS.shape[0], _COLON), _OPEN_LIST)
    row = 0
    while True:
        at = _behind(text, at, _OPEN)
        if at < 0 or row == out.shape[0]:
            return -1
        for place in range(n):
            first, last = before[place]
            if row > 0 and _repeats(text, at, first, last):
                at = _behind_space(text, at + last - first)
            else:
                begin = at
                at = _behind_key(text, at, place, keys, starts, order, seen)
                if at < 0:
                    return -1
                if row == 0:
                    before[place] = begin, at
            value, ok, end = scan_number_at(text, size, at)
            if not ok or not _is_number(text, at, end):
                return -1
            out[row, order[place]] = value
            at = end
        at = _behind(text, at, _CLOSE)
        if at < 0:
            return -1
        row += 1
        if byte_at(text, at) == _CLOSE_LIST:
            at = _behind(text, at + 1, _CLOSE)
            return row if at == size - _PADDING else -1
        at = _behind(text, at, _COMMA)
