"""Hashes of the words of joined texts, in one pass over the characters.

The hash of a word c_0 c_1 ... is Σ c_k p^k modulo 2^64, its bits mixed; `preprocessing.words` has the same in array
arithmetic, for texts too short to wait for a compiler.
"""

from __future__ import annotations

import numpy as np
from numba import njit


def hash_lines(
    signs: np.ndarray, is_word_sign: np.ndarray, n_lines: int, base: int, mix: tuple[np.uint64, np.uint64]
) -> tuple[np.ndarray, np.ndarray]:
    """(words in each line, hash of each word in order) of characters that are given as numbers. O(characters)."""
    counts = np.zeros(n_lines, dtype=np.int64)
    hashes = np.empty(signs.shape[0] // 2 + 1, dtype=np.uint64)
    n_words = _hash_lines(signs, is_word_sign, np.uint64(base), mix[0], mix[1], counts, hashes)
    return counts, hashes[:n_words]


@njit(cache=True, nogil=True)
def _hash_lines(signs, is_word_sign, base, mix_a, mix_b, counts, hashes):
    last = np.uint32(is_word_sign.shape[0] - 1)
    shift = np.uint64(33)
    value, power = np.uint64(0), np.uint64(1)
    inside = False
    line = 0
    n_words = 0
    for k in range(signs.shape[0] + 1):
        sign = np.uint32(signs[k]) if k < signs.shape[0] else np.uint32(10)
        if is_word_sign[min(sign, last)]:
            value += np.uint64(sign) * power
            power *= base
            inside = True
            continue
        if inside:
            value = (value ^ (value >> shift)) * mix_a
            value = (value ^ (value >> shift)) * mix_b
            hashes[n_words] = value ^ (value >> shift)
            n_words += 1
            counts[line] += 1
            value, power = np.uint64(0), np.uint64(1)
            inside = False
        if sign == 10:
            line += 1
    return n_words
