r"""Texts as hashed words, weighted by how rare they are.

The words of a text (runs of letters and digits, lower case) are hashed into a fixed number of buckets. With
z_b = Σ ±idf_b over the words of the text in bucket b, idf_b = 1 + log((1 + m) / (1 + texts with b)), a text becomes
z / ‖z‖. All words of all texts are hashed at once: with c_k the characters of the joined texts and p odd,

    S_k = Σ_{l < k} c_l p^l  (mod 2^64),    hash of the word in [a, b) = (S_b - S_a) p^{-a},

which is the same wherever the word stands. scikit-learn's `HashingVectorizer` and `TfidfTransformer` make features of
the same kind and take 5.2 times as long on the 10,662 sentences of film reviews of the sentence polarity data
(`benchmarks/tables.py`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import sparse as sp

from ...numerics.threads import blas_at_rest

# Characters that are hashed at a time: what is needed for them fits a cache.
_BLOCK = 1 << 17
# Vectors beyond those wanted, and iterations, in the search for leading directions.
_OVERSAMPLE, _ITERATIONS = 10, 3
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))


def hashed_words(texts: list[str], n_buckets: int) -> sp.csr_array:
    """Signed counts of the words of each text, shape (texts, n_buckets).

    O(characters), without a loop over texts or words.

    Examples
    --------
    >>> Z = hashed_words(["red wine", "Wine, white", ""], 64)
    >>> bool((Z[[0]].multiply(Z[[1]])).sum() == 1.0), Z[[2]].nnz
    (True, 0)
    """
    counts, hashes = [], []
    for first, last in _blocks(texts):
        found, words = _word_hashes(texts[first:last])
        counts.append(found)
        hashes.append(words)
    values = np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)
    starts = (
        np.concatenate([[0], np.cumsum(np.concatenate(counts))]) if counts else np.zeros(1, dtype=np.int64)
    )
    buckets = (values % np.uint64(n_buckets)).astype(np.int32)
    signs = np.where(values >> np.uint64(63), -1.0, 1.0)
    Z = sp.csr_array((signs, buckets, starts.astype(np.int32)), shape=(len(texts), n_buckets))
    Z.sum_duplicates()
    return Z


def rarity(Z: sp.csr_array) -> np.ndarray:
    """idf of each bucket: 1 + log((1 + m) / (1 + rows with the bucket)), shape (n_buckets,)."""
    return 1.0 + np.log((1.0 + Z.shape[0]) / (1.0 + np.bincount(Z.indices, minlength=Z.shape[1])))


def weighted(Z: sp.csr_array, idf: np.ndarray) -> sp.csr_array:
    """Counts times idf, rows of length 1 (or 0)."""
    data = Z.data * idf[Z.indices]
    W = sp.csr_array((data, Z.indices, Z.indptr), shape=Z.shape)
    norms = np.sqrt(W.multiply(W).sum(axis=1))
    # A row whose words cancel has length 0 and stays as it is.
    W.data /= np.repeat(np.where(norms > 0, norms, 1.0), np.diff(Z.indptr))
    return W


def leading_directions(Z: sp.csr_array, n_components: int) -> np.ndarray:
    """The leading right singular vectors of some texts, shape (n_buckets, at most n_components).

    By a few iterations on a block of vectors, which only multiply by Z: the space that they span is what matters, not
    each of its axes. Each vector points to where its largest entry is positive.
    """
    there, places = np.unique(Z.indices, return_inverse=True)
    n_buckets = Z.shape[1]
    # Buckets without a word in these texts have no part in any direction.
    Z = sp.csr_array((Z.data, places, Z.indptr), shape=(Z.shape[0], there.shape[0]))
    size = min(n_components + _OVERSAMPLE, Z.shape[0], n_buckets)
    with blas_at_rest():  # products of a few thousand rows and a few dozen columns
        Q = _orthonormal(Z.T @ np.random.default_rng(0).normal(size=(Z.shape[0], size)))
        for _ in range(_ITERATIONS):
            Q = _orthonormal(Z.T @ (Z @ Q))
        ZQ = Z @ Q
        values, axes = np.linalg.eigh(ZQ.T @ ZQ)
    found = np.flatnonzero(values > 1e-9 * values[-1])[::-1][:n_components]
    V = Q @ axes[:, found]
    directions = np.zeros((n_buckets, V.shape[1]))
    directions[there] = V * np.sign(V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])])
    return directions


def _orthonormal(Y: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the columns, through their small Gram matrix: two passes, for full precision."""
    for _ in range(2):
        values, axes = np.linalg.eigh(Y.T @ Y)
        kept = values > 1e-12 * values[-1]
        Y = Y @ (axes[:, kept] / np.sqrt(values[kept]))
    return Y


def _blocks(texts: list[str]) -> list[tuple[int, int]]:
    """Ranges of texts with about ``_BLOCK`` characters each."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    number = np.cumsum(lengths + 1) // _BLOCK
    edges = np.concatenate([[0], np.flatnonzero(np.diff(number)) + 1, [len(texts)]]) if len(texts) else [0]
    return list(zip(edges[:-1], edges[1:]))


def _word_hashes(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(number of words of each text, hash of each word in order)."""
    signs = _joined(texts)
    inside = np.zeros(signs.shape[0] + 2, dtype=bool)
    places = signs if signs.dtype == np.uint8 else np.minimum(signs, np.uint32(0xFFFF))
    np.take(_is_word_sign(), places, out=inside[1:-1], mode="clip")
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, ends = edges[::2], edges[1::2]
    powers, inverses = _powers(_round_up(signs.shape[0]))
    sums = np.zeros(signs.shape[0] + 1, dtype=np.uint64)
    np.multiply(powers[: signs.shape[0]], signs, out=sums[1:])
    np.cumsum(sums, out=sums)
    hashes = (sums[ends] - sums[starts]) * inverses[starts]
    for factor in _MIX:  # every bit of the result depends on every bit of the sum
        hashes ^= hashes >> np.uint64(33)
        hashes *= factor
    hashes ^= hashes >> np.uint64(33)
    line_ends = np.append(np.flatnonzero(signs == ord("\n")), signs.shape[0])
    return np.diff(np.searchsorted(starts, line_ends), prepend=0), hashes


def _joined(texts: list[str]) -> np.ndarray:
    """The characters of all texts in lower case, one text a line."""
    joined = "\n".join(texts).lower()
    if joined.count("\n") >= len(texts):
        joined = "\n".join(" ".join(text.split()) for text in texts).lower()
    return _code_points(joined)


def _code_points(text: str) -> np.ndarray:
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _round_up(size: int) -> int:
    """A length whose powers are kept for the next block."""
    return max(_BLOCK, 1 << (max(size, 1) - 1).bit_length())


@lru_cache(maxsize=1)
def _is_word_sign() -> np.ndarray:
    """Letters and digits of every script; what lies beyond the first 65,535 signs counts as a letter."""
    table = np.fromiter((chr(point).isalnum() for point in range(1 << 16)), dtype=bool, count=1 << 16)
    table[0xFFFF] = True
    return table


@lru_cache(maxsize=2)
def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """p^k and p^{-k} modulo 2^64 for k < size."""
    tables = []
    for base in (_BASE, _INVERSE):
        steps = np.full(size, base, dtype=np.uint64)
        steps[0] = 1
        tables.append(np.cumprod(steps))
    return tables[0], tables[1]
