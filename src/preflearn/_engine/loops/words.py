"""Texts as counts of hashed words, and counts as leading directions, in one pass over each text.

The hash of a word c_0 c_1 ... is Σ c_k p^k modulo 2^64, its bits mixed; `preprocessing.words` has the same in array
arithmetic, for texts too short to be worth a compiler.
"""

from __future__ import annotations

import numpy as np

from .compiling import njit
from .threads import over_ranges

# Up to this many words of a text are sorted at once; and the number of letters of a word whose powers are stored.
_FEW = 64
# Texts that are worth a thread.
_WORTH_A_THREAD = 5000


def count_words(
    signs: np.ndarray,
    starts: np.ndarray,
    letters: np.ndarray,
    n_buckets: int,
    base: int,
    mix: tuple[np.uint64, np.uint64],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Signed counts of the words of each text as compressed rows. O(characters).

    Parameters
    ----------
    signs : uint8 or uint32 array
        Characters.
    starts : int64 array of shape (texts + 1,)
        Where each text starts.
    letters : uint32 array
        What a character counts as, 0 for one between words; the last entry stands for all higher ones, which are
        letters.

    Returns
    -------
    values, buckets, ends : ndarray
        Each bucket once a row.
    in_order : bool
        Whether the buckets of each row ascend.
    """
    powers = np.full(_FEW, base, dtype=np.uint64)
    powers[0] = 1
    powers = np.cumprod(powers)
    n_texts = starts.shape[0] - 1
    counts = np.zeros(n_texts, dtype=np.int32)

    def count(first: int, last: int) -> tuple[np.ndarray, np.ndarray, bool]:
        some = starts[first : last + 1]
        most = (some[-1] - some[0] + some.shape[0]) // 2 + 1
        values, buckets = np.empty(most), np.empty(most, dtype=np.int32)
        place = np.full(n_buckets, -1, dtype=np.int64)
        n, in_order = _count_words(
            signs, some, letters, powers, np.uint64(base), *mix, place, counts[first:last], buckets, values
        )
        return values[:n], buckets[:n], in_order

    parts = over_ranges(count, n_texts, least=_WORTH_A_THREAD) or [count(0, 0)]
    values, buckets = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    ends = np.zeros(n_texts + 1, dtype=np.int32)
    np.cumsum(counts, out=ends[1:])
    return values, buckets, ends, all(part[2] for part in parts)


@njit(cache=True, nogil=True)
def _count_words(signs, starts, letters, powers, base, mix_a, mix_b, place, counts, buckets, values):
    last = np.uint32(letters.shape[0] - 1)
    shift = np.uint64(33)
    n_buckets = np.uint64(place.shape[0])
    mask = n_buckets - np.uint64(1) if n_buckets & (n_buckets - np.uint64(1)) == 0 else np.uint64(0)
    n, in_order = 0, True
    # Up to _FEW words of a text wait here as 128 bucket + 2 (number of the word) + (1 for minus): numbers that differ.
    keys = np.empty(_FEW, dtype=np.int64)
    ordered = np.empty(_FEW, dtype=np.int64)
    for row in range(starts.shape[0] - 1):
        first, n_words = n, 0
        k, stop = starts[row], starts[row + 1]
        while k < stop:
            value, length = np.uint64(0), 0
            power = powers[0]
            while k < stop:
                sign = np.uint32(signs[k])
                letter = letters[sign] if sign < last else sign
                k += 1
                if letter == 0:
                    break
                # The table avoids a chain of products, each of which would wait for the one before.
                power = powers[length] if length < powers.shape[0] else power * base
                value += np.uint64(letter) * power
                length += 1
            if length == 0:
                continue
            value = (value ^ (value >> shift)) * mix_a
            value = (value ^ (value >> shift)) * mix_b
            value ^= value >> shift
            bucket = np.int64(value & mask if mask else value % n_buckets)
            minus = np.int64(value >> np.uint64(63))
            if n_words < _FEW:
                keys[n_words] = 128 * bucket + 2 * n_words + minus
            else:
                if n_words == _FEW:
                    n = _add_one_by_one(keys, place, first, n, buckets, values)
                n = _add_word(bucket, minus, place, first, n, buckets, values)
            n_words += 1
        if n_words <= _FEW:
            n = _add_in_order(keys, ordered, n_words, n, buckets, values)
        else:
            in_order = False
        counts[row] = n - first
    return n, in_order


@njit(cache=True, nogil=True)
def _add_in_order(keys, ordered, n_words, n, buckets, values):
    """Append the words of a short text by bucket. The position of each is the number of smaller ones: no branches."""
    for k in range(n_words):
        key, rank = keys[k], 0
        for other in range(n_words):
            rank += keys[other] < key
        ordered[rank] = key
    previous = np.int64(-1)
    for k in range(n_words):
        bucket = ordered[k] >> 7
        signed = 1.0 - 2.0 * (ordered[k] & 1)
        if bucket == previous:
            values[n - 1] += signed
        else:
            buckets[n], values[n] = bucket, signed
            n += 1
        previous = bucket
    return n


@njit(cache=True, nogil=True)
def _add_one_by_one(keys, place, first, n, buckets, values):
    """Append the collected words in the order in which they came."""
    for key in keys:
        n = _add_word(key >> 7, key & 1, place, first, n, buckets, values)
    return n


@njit(cache=True, nogil=True)
def _add_word(bucket, minus, place, first, n, buckets, values):
    signed = 1.0 - 2.0 * minus
    if place[bucket] >= first:
        values[place[bucket]] += signed
        return n
    place[bucket] = n
    buckets[n] = bucket
    values[n] = signed
    return n + 1


@njit(cache=True, nogil=True)
def write_directions(starts, buckets, values, idf, directions, first, last, out):
    """out ← rows first ... last - 1 of W V, W the rows of Z diag(idf) scaled to length 1 (or 0), V the directions.

    O(nnz columns); Z is given as compressed rows.
    """
    n = directions.shape[1]
    flat = directions.reshape(-1)
    total = np.empty(n)
    for row in range(first, last):
        square = 0.0
        for k in range(starts[row], starts[row + 1]):
            square += (values[k] * idf[buckets[k]]) ** 2
        # A row whose words cancel has length 0 and stays as it is.
        length = np.sqrt(square) if square > 0.0 else 1.0
        for j in range(n):
            total[j] = 0.0
        for k in range(starts[row], starts[row + 1]):
            weight = values[k] * idf[buckets[k]] / length
            # With unsigned positions, no test for indices that count from the end is needed.
            at = np.uint64(buckets[k]) * np.uint64(n)
            for j in range(n):
                total[j] += weight * flat[at + np.uint64(j)]
        for j in range(n):
            out[row - first, j] = total[j]
