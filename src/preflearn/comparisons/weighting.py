"""How much each query counts.

`"pair"` counts every pair once, `"item"` scales the block of a query by 1 / n_q, `"query"` divides it by its number of
counted pairs, so that every query has the same total.
"""

from __future__ import annotations

import numpy as np

WEIGHTINGS = ("pair", "item", "query")


def query_weights(weighting: str, counts: np.ndarray, n_pairs: np.ndarray) -> np.ndarray:
    """The factor of each query's block, shape (n_queries,); 0 for a query without a counted pair.

    Parameters
    ----------
    weighting : {"pair", "item", "query"}
    counts : ndarray of shape (n_queries,)
        Rows of each query, or their total weight.
    n_pairs : ndarray of shape (n_queries,)
        Counted pairs of each query, or their total weight.
    """
    if weighting == "pair":
        return np.ones(counts.shape[0])
    if weighting == "item":
        return np.divide(1.0, counts, out=np.zeros(counts.shape[0]), where=counts > 0)
    return np.divide(1.0, n_pairs, out=np.zeros(counts.shape[0]), where=n_pairs > 0)
