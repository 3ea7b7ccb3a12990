"""An order of the rows that depends on their contents, not on their positions or the names of their queries.

Folds, samples and basis vectors are drawn by row numbers. Drawn from rows in this order, they are the same for the same
data in any order: the result of a search then depends only on the data and the seed.

Every row gets the rank of (y, x) among all rows, compared column after column until all rows differ; a hash of the
ranks spreads them out, so that the first row for a value of y is not special, and the sum of the hashes of its rows
represents a query. Rows that are equal in everything may change places, which changes nothing. Ranks do not change
when a column is scaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse as sp

from ..comparisons import Groups

# A larger sparse matrix is not made dense: its order is not that of the same rows as an array.
_DENSE_CELLS = 10_000_000


def order_by_content(X: Any, y: np.ndarray | None, queries: Groups) -> tuple[np.ndarray, Groups]:
    """Row numbers in the order of their contents, query after query, and the queries of the rows in this order.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (m, n)
        Without missing values.
    y : ndarray of shape (m, v), optional
    queries : Groups

    Notes
    -----
    O(m log m) for each column that is needed to distinguish most rows (only y, if that has no ties); after that only
    rows that are still tied are compared.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import encode_queries
    >>> X, y, qid = np.arange(4.0)[:, None], np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0, 0, 1, 1])
    >>> order, queries = order_by_content(X, y, encode_queries(qid, 4))
    >>> other = np.array([3, 0, 2, 1])  # the same rows in another order, queries with other names
    >>> again, _ = order_by_content(X[other], y[other], encode_queries(-qid[other], 4))
    >>> bool((other[again] == order).all())
    True
    """
    hashes = _mixed(_ranks(X, y, queries.n_rows))
    with np.errstate(over="ignore"):
        of_query = np.add.reduceat(hashes[queries.order], queries.starts[:-1])
    place = np.empty(queries.n_groups, dtype=np.int64)
    place[np.argsort(of_query, kind="stable")] = np.arange(queries.n_groups)
    order = np.lexsort((hashes, place[queries.codes]))
    return order, Groups(place[queries.codes[order]], queries.n_groups)


def _ranks(X: Any, y: np.ndarray | None, n_rows: int) -> np.ndarray:
    """How many rows come before each one in lexicographic order, shape (m,); the same for equal rows."""
    ranks, tied = np.zeros(n_rows, dtype=np.int64), np.arange(n_rows)
    for column in _columns(X, y):
        if tied.size < 2:
            break
        values = np.unique(column[tied], return_inverse=True)[1]
        n_values = int(values.max()) + 1
        keys, place, counts = np.unique(
            ranks[tied] * n_values + values, return_inverse=True, return_counts=True
        )
        before = np.cumsum(counts) - counts
        _, first, block = np.unique(keys // n_values, return_index=True, return_inverse=True)
        ranks[tied] = (keys // n_values + before - before[first][block])[place]
        tied = tied[counts[place] > 1]
    return ranks


def _columns(X: Any, y: np.ndarray | None) -> Iterator[np.ndarray]:
    if y is not None:
        yield from y.T
    if not sp.issparse(X):
        yield from X.T
    elif X.shape[0] * X.shape[1] <= _DENSE_CELLS:
        yield from X.toarray().T
    else:
        # One number for each row; different rows have different numbers, except with negligible probability.
        yield X.tocsr() @ np.random.default_rng(0).normal(size=X.shape[1])


def _mixed(ranks: np.ndarray) -> np.ndarray:
    """Whole numbers that look random, one for each rank (the mixing steps of splitmix64)."""
    with np.errstate(over="ignore"):
        z = (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
