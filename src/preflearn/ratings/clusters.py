r"""How many clusters a standard error rests on.

With a_i = H⁻¹ times the contrast that is strength i relative to the mean, cluster c tells

    s_ci = Σ_{k in c} v_k (x_k · a_i)²

about it, and N_i = (Σ_c s_ci)² / Σ_c s_ci² is the effective number of clusters: G where all tell the same, 1 where one
cluster tells everything. The sandwich then has about N_i - 1 degrees of freedom, fewer than G - 1 where clusters differ
in size, or where few of them know the item (Satterthwaite's approximation without the terms of second order). Of a
difference of two strengths, s_ci + s_cj takes the place of s_ci.

Where s would be too large an array, x_k · a_i is taken as that of a diagonal H, which needs O(l) numbers.

References
----------
Carter, Schnepel and Steigerwald, "Asymptotic behavior of a t-test robust to cluster heterogeneity", Review of Economics
and Statistics 99 (2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

# Numbers of x_k · a_i at a time, and the most of them altogether; the most numbers s_ci.
_AT_ONCE, MOST_PRODUCTS, MOST_INFORMATION = 4_000_000, 300_000_000, 20_000_000


def information_of(rows: sp.csr_array, cluster: np.ndarray, A: np.ndarray) -> np.ndarray:
    """s of shape (G, q).

    Parameters
    ----------
    rows : sparse array of shape (l, size)
        √v_k x_k.
    cluster : int ndarray of shape (l,)
    A : ndarray of shape (size, q)
        Columns a_i.
    """
    n_clusters = int(cluster.max()) + 1
    s = np.zeros((n_clusters, A.shape[1]))
    step = max(1, _AT_ONCE // max(A.shape[1], 1))
    for start in range(0, rows.shape[0], step):
        some = cluster[start : start + step]
        squares = np.square(rows[start : start + step] @ A)
        which = np.arange(some.size)
        s += sp.csr_array((np.ones(some.size), (some, which)), shape=(n_clusters, some.size)) @ squares
    return s


def diagonal_information(rows: sp.csr_array, cluster: np.ndarray) -> sp.csr_array:
    """s of shape (G, size) as if H were diagonal: sparse, in O(l)."""
    n_clusters, size = int(cluster.max()) + 1, rows.shape[1]
    of_rows = (np.ones(cluster.size), (cluster, np.arange(cluster.size)))
    information = sp.csr_array(sp.csr_array(of_rows, shape=(n_clusters, cluster.size)) @ rows.power(2))
    total = np.asarray(information.sum(axis=0)).ravel()
    scale = np.divide(1.0, np.square(total), out=np.zeros(size), where=total > 0)
    return sp.csr_array(information @ sp.diags_array(scale))


def effective_clusters(s: Any) -> np.ndarray:
    """N_i of each column of s, 0 where no cluster tells anything."""
    return _ratio(np.square(_totals(s)), _totals(s * s))


def effective_clusters_of_differences(s: Any) -> np.ndarray:
    """N_ij of the differences of all columns of s, shape (n, n)."""
    products = s.T @ s
    products = products.toarray() if sp.issparse(products) else products
    squares, total = products.diagonal(), _totals(s)
    return _ratio(
        np.square(total[:, None] + total[None, :]), squares[:, None] + squares[None, :] + 2.0 * products
    )


def _totals(s: Any) -> np.ndarray:
    return np.asarray(s.sum(axis=0)).ravel()


def _ratio(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.divide(one, other, out=np.zeros_like(other), where=other > 0)
