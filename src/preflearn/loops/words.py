"""Texts as counts of hashed words, and counts as leading directions, in one pass over each text.

The hash of a word c_0 c_1 ... is Σ c_k p^k modulo 2^64, its bits mixed; `preprocessing.words` has the same in array
arithmetic, for texts too short to wait for a compiler.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import over_ranges

# Words of a text up to which they are sorted as they come, and letters of a word whose powers are kept.
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
        What a character counts as, 0 for one between words; the last one stands for all beyond, which are letters.

    Returns
    -------
    values, buckets, ends : ndarray
        Each bucket once a row.
    in_order : bool
        Whether the buckets of each row ascend.
    """
    most = (starts[-1] - starts[0] + starts.shape[0]) // 2 + 1
    buckets, values = np.empty(most, dtype=np.int32), np.empty(most)
    ends = np.zeros(starts.shape[0], dtype=np.int32)
    place = np.full(n_buckets, -1, dtype=np.int64)
    powers = np.full(_FEW, base, dtype=np.uint64)
    powers[0] = 1
    n, in_order = _count_words(
        signs,
        starts,
        letters,
        np.cumprod(powers),
        np.uint64(base),
        mix[0],
        mix[1],
        place,
        ends,
        buckets,
        values,
    )
    return values[:n].copy(), buckets[:n].copy(), ends, in_order


@njit(cache=True, nogil=True)
def _count_words(signs, starts, letters, powers, base, mix_a, mix_b, place, ends, buckets, values):
    last = np.uint32(letters.shape[0] - 1)
    shift = np.uint64(33)
    n_buckets = np.uint64(place.shape[0])
    mask = n_buckets - np.uint64(1) if n_buckets & (n_buckets - np.uint64(1)) == 0 else np.uint64(0)
    n, in_order = 0, True
    for row in range(starts.shape[0] - 1):
        first = n
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
                # The table saves a chain of products, each of which would wait for the one before.
                power = powers[length] if length < powers.shape[0] else power * base
                value += np.uint64(letter) * power
                length += 1
            if length == 0:
                continue
            value = (value ^ (value >> shift)) * mix_a
            value = (value ^ (value >> shift)) * mix_b
            value ^= value >> shift
            bucket = np.int64(value & mask if mask else value % n_buckets)
            signed = -1.0 if value >> np.uint64(63) else 1.0
            if place[bucket] >= first:
                values[place[bucket]] += signed
            else:
                place[bucket] = n
                buckets[n] = bucket
                values[n] = signed
                n += 1
        ends[row + 1] = n
        if n - first > _FEW:
            in_order = False
            continue
        for k in range(first + 1, n):
            bucket, count = buckets[k], values[k]
            at = k
            while at > first and buckets[at - 1] > bucket:
                buckets[at], values[at] = buckets[at - 1], values[at - 1]
                at -= 1
            buckets[at], values[at] = bucket, count
    return n, in_order


def write_directions(Z, idf: np.ndarray, directions: np.ndarray, out: np.ndarray) -> None:
    """out ← W V for W the rows of Z diag(idf) scaled to length 1 (or 0) and V the directions. O(nnz columns)."""
    over_ranges(
        _write_directions,
        Z.shape[0],
        Z.indptr,
        Z.indices,
        Z.data,
        idf,
        directions,
        out,
        least=_WORTH_A_THREAD,
    )


@njit(cache=True, nogil=True)
def _write_directions(starts, buckets, values, idf, directions, out, first, last):
    total = np.empty(directions.shape[1])
    for row in range(first, last):
        square = 0.0
        for k in range(starts[row], starts[row + 1]):
            square += (values[k] * idf[buckets[k]]) ** 2
        # A row whose words cancel has length 0 and stays as it is.
        length = np.sqrt(square) if square > 0.0 else 1.0
        total[:] = 0.0
        for k in range(starts[row], starts[row + 1]):
            weight = values[k] * idf[buckets[k]] / length
            direction = directions[buckets[k]]
            for j in range(total.shape[0]):
                total[j] += weight * direction[j]
        for j in range(total.shape[0]):
            out[row, j] = total[j]
