r"""Texts as hashed words, weighted by how rare they are.

The words of a text (runs of letters and digits, lower case) are hashed into a fixed number of buckets. With
z_b = Σ ±idf_b over the words of the text in bucket b, idf_b = 1 + log((1 + m) / (1 + texts with b)), a text becomes
z / ‖z‖. The hash of a word with the characters c_k, p odd, is that of every version of the library, since model files
hold the idf of its buckets (scikit-learn's `HashingVectorizer` has another one):

    Σ_k c_k p^k  (mod 2^64), its bits mixed.
"""

from __future__ import annotations

import re
from array import array
from functools import lru_cache

import numpy as np
from scipy import sparse as sp
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from ...numerics.threads import blas_at_rest

# Letters and digits of every script; what lies beyond the first 65,535 signs counts as a letter.
_WORD = re.compile(r"(?:[^\W_]|[\uffff-\U0010ffff])+")
_BASE, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def hashed_words(texts: list[str], n_buckets: int) -> sp.csr_array:
    """Signed counts of the words of each text, shape (texts, n_buckets).

    Examples
    --------
    >>> Z = hashed_words(["red wine", "Wine, white", ""], 64)
    >>> bool((Z[[0]].multiply(Z[[1]])).sum() == 1.0), Z[[2]].nnz
    (True, 0)
    """
    hashes = array("Q")
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    for row, text in enumerate(texts, start=1):
        hashes.extend(map(_hash, _WORD.findall(text.lower())))
        starts[row] = len(hashes)
    values = np.array(hashes, dtype=np.uint64)
    buckets = (values % np.uint64(n_buckets)).astype(np.int32)
    signs = np.where(values >> np.uint64(63), -1.0, 1.0)
    Z = sp.csr_array((signs, buckets, starts.astype(np.int32)), shape=(len(texts), n_buckets))
    Z.sum_duplicates()
    return Z


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    value = 0
    for sign in reversed(word):
        value = (value * _BASE + ord(sign)) & _BITS
    for factor in _MIX:  # every bit of the result depends on every bit of the sum
        value = (value ^ value >> 33) * factor & _BITS
    return value ^ value >> 33


def rarity(Z: sp.csr_array) -> np.ndarray:
    """idf of each bucket: 1 + log((1 + m) / (1 + rows with the bucket)), shape (n_buckets,)."""
    return 1.0 + np.log((1.0 + Z.shape[0]) / (1.0 + np.bincount(Z.indices, minlength=Z.shape[1])))


def weighted(Z: sp.csr_array, idf: np.ndarray) -> sp.csr_array:
    """Counts times idf, rows of length 1 (or 0)."""
    W = sp.csr_array((Z.data * idf[Z.indices], Z.indices, Z.indptr), shape=Z.shape)
    return normalize(W, copy=False)


def leading_directions(Z: sp.csr_array, n_components: int) -> np.ndarray:
    """The leading right singular vectors of some texts, shape (n_buckets, at most n_components).

    Each vector points to where its largest entry is positive.
    """
    there, places = np.unique(Z.indices, return_inverse=True)
    n_buckets = Z.shape[1]
    # Buckets without a word in these texts have no part in any direction.
    Z = sp.csr_array((Z.data, places, Z.indptr), shape=(Z.shape[0], there.shape[0]))
    with blas_at_rest():  # products of a few thousand rows and a few dozen columns
        _, values, V = randomized_svd(Z, min(n_components, *Z.shape), n_iter=4, random_state=0)
    V = V[values > 3e-5 * values[0]].T
    directions = np.zeros((n_buckets, V.shape[1]))
    directions[there] = V * np.sign(V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])])
    return directions
