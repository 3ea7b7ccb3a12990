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
from numba import njit

from .text_numbers import CR, LF, SPACE, TAB, scan_number

_QUOTE, _COMMA, _COLON, _BACKSLASH, _MINUS, _POINT, _ZERO = 34, 44, 58, 92, 45, 46, 48
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = 91, 93, 123, 125
_ITEMS = np.frombuffer(b'"items"', np.uint8)
# A number takes at least these bytes: a quote, one letter, a quote, a colon, a digit, a comma.
_LEAST_BYTES = 5


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
        text = np.frombuffer(bytes(body) + b"\0", np.uint8)
        out = np.empty((1 + text.shape[0] // (n * _LEAST_BYTES), n))
        n_items = _parse_items(text, self._keys, self._starts, out)
        return out[:n_items] if n_items > 0 else None


@njit(cache=True, nogil=True)
def _behind_space(text, at):
    while text[at] == SPACE or text[at] == LF or text[at] == CR or text[at] == TAB:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _behind(text, at, byte):
    """Behind space, this byte and space; -1 where there is another byte, or before."""
    if at < 0:
        return -1
    at = _behind_space(text, at)
    return _behind_space(text, at + 1) if text[at] == byte else -1


@njit(cache=True, nogil=True)
def _has(text, at, word, first, last):
    """Whether these bytes of ``word`` are at this place; the text ends in a byte that no word has."""
    for k in range(first, last):
        if text[at + k - first] != word[k]:
            return False
    return True


@njit(cache=True, nogil=True)
def _is_number(text, at, end):
    """Whether these bytes are a number of JSON, which has neither 07 nor 1. nor +1."""
    if text[at] == _MINUS:
        at += 1
    first = at
    while 48 <= text[at] <= 57:
        at += 1
    if at == first or (text[first] == _ZERO and at > first + 1):
        return False
    if text[at] == _POINT and not 48 <= text[at + 1] <= 57:
        return False
    return at <= end


@njit(cache=True, nogil=True)
def _parse_items(text, keys, starts, out):
    """The number of items, or -1; ``text`` ends in a zero byte, at which everything here stops."""
    n = starts.shape[0] - 1
    order, seen = np.empty(n, np.int64), np.zeros(n, np.bool_)
    at = _behind(text, 0, _OPEN)
    if at < 0 or not _has(text, at, _ITEMS, 0, _ITEMS.shape[0]):
        return -1
    at = _behind(text, _behind(text, at + _ITEMS.shape[0], _COLON), _OPEN_LIST)
    if at < 0:
        return -1
    row = 0
    while True:
        at = _behind(text, at, _OPEN)
        for place in range(n):
            if at < 0:
                return -1
            if row == 0:
                # The first item says in which order the keys are to come.
                key = 0
                while key < n and not _has(text, at, keys, starts[key], starts[key + 1]):
                    key += 1
                if key == n or seen[key]:
                    return -1
                seen[key] = True
                order[place] = key
            key = order[place]
            if not _has(text, at, keys, starts[key], starts[key + 1]):
                return -1
            at = _behind(text, at + starts[key + 1] - starts[key], _COLON)
            if at < 0:
                return -1
            value, ok, end = scan_number(text, at)
            if not ok or not _is_number(text, at, end):
                return -1
            out[row, key] = value
            at = _behind(text, end, _COMMA if place < n - 1 else _CLOSE)
        if at < 0:
            return -1
        row += 1
        if text[at] == _CLOSE_LIST:
            at = _behind(text, at + 1, _CLOSE)
            return row if at == text.shape[0] - 1 else -1
        at = _behind(text, at, _COMMA)
        if at < 0 or row == out.shape[0]:
            return -1
