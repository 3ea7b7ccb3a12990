"""Compiled loops over pairs of objects."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..numerics.compiling import njit
from ..numerics.threads import in_turns

# ---------------------------------------------------------------- sampled
# Products with a kernel of pairs at some pairs only.
#
# For coefficients a of the pairs (s_e, t_e) the values
#
#     f_h = Σ_e K[r_h, s_e] G[c_h, t_e] a_e
#
# at the pairs (r_h, c_h) are entries of K A Gᵀ for a sparse A. The columns c are taken in blocks of T = A Gᵀ, which
# stay in the cache: each costs one pass over a, and each value one product of a row of K and a column of T, O(e q +
# h p) in all, and no array of the size of the relation.

_BLOCK = 128  # columns of T that a thread keeps

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


class SampledProduct:
    """a ↦ f for fixed pairs; K and G may change.

    Parameters
    ----------
    source_rows, source_columns : int arrays of shape (e,)
        s and t, the pairs that have coefficients.
    target_rows, target_columns : int arrays of shape (h,)
        r and c, the pairs whose values are wanted.
    n_rows, n_columns : int
        Numbers of objects that s and t are drawn from.

    Examples
    --------
    >>> import numpy as np
    >>> K, G = np.diag([1.0, 2.0]), np.diag([3.0, 4.0])
    >>> SampledProduct([0, 1], [0, 1], [0, 1], [0, 1], 2, 2)(K, G, np.ones(2))
    array([3., 8.])
    """

    def __init__(self, source_rows, source_columns, target_rows, target_columns, n_rows: int, n_columns: int):
        s, t = np.asarray(source_rows), np.asarray(source_columns)
        r, c = np.asarray(target_rows), np.asarray(target_columns)
        self._by_row = np.lexsort((t, s))
        self._columns = t[self._by_row].astype(np.int32)
        self._starts = np.searchsorted(s[self._by_row], np.arange(n_rows + 1))
        self._by_block = np.lexsort((c, r, c // _BLOCK))
        self._target_rows = r[self._by_block].astype(np.int32)
        self._target_columns = c[self._by_block].astype(np.int32)
        blocks = np.unique(c // _BLOCK)
        at = np.searchsorted(c[self._by_block] // _BLOCK, np.append(blocks, blocks[-1:] + 1))
        self._calls = list(zip((blocks * _BLOCK).tolist(), at[:-1].tolist(), at[1:].tolist(), strict=True))
        self._n_columns = n_columns

    def __call__(self, K: np.ndarray, G: np.ndarray, a: np.ndarray) -> np.ndarray:
        """f for coefficients a in the order of the source pairs, shape (h,).

        Parameters
        ----------
        K, G : C-contiguous float64 arrays of shape (n_target_rows, n_rows) and (n_target_columns, n_columns)
        a : ndarray of shape (e,)
        """
        values = np.asarray(a, dtype=np.float64)[self._by_row]
        shape = (self._starts.shape[0] - 1, G.shape[1])
        A = sp.csr_array((values, self._columns, self._starts), shape=shape)
        found = np.empty(self._by_block.shape[0])

        def block(first: int, start: int, stop: int) -> None:
            last = min(first + _BLOCK, G.shape[0])
            T = np.ascontiguousarray((A @ np.ascontiguousarray(G[first:last].T)).T)
            _values_of_block(K, T, self._target_rows, self._target_columns, first, start, stop, found)

        in_turns(block, self._calls)
        out = np.empty_like(found)
        out[self._by_block] = found
        return out


@_compiled
def _values_of_block(K, T, rows, columns, first, start, stop, found):
    for h in range(start, stop):
        row, column = K[rows[h]], T[columns[h] - first]
        total = 0.0
        for i in range(row.shape[0]):
            total += row[i] * column[i]
        found[h] = total
