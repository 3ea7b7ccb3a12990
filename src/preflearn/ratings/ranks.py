"""Which differences are certain: ranks that hold together, and letters of groups that cannot be told apart.

T_ij = (f_i - f_j) / se_ij for all pairs. With f* ~ N(0, C) and t the quantile of max |f*_i - f*_j| / se_ij, all
differences with |T_ij| > t have the right sign with the stated probability, all of them together. Item i is then
behind those with T_ij < -t and ahead of those with T_ij > t, which bounds its rank. Where standard errors come from G
clusters, C has at most the rank G - 1 and says nothing of how differences depend on each other: each then has its own
t, the quantile of Student's distribution at (1 - level) / n (n - 1) to either side (Bonferroni) with the degrees of
freedom that are its own.

Of very many items, thousands of which have hardly played, nobody is certain to be ahead of all of these, though few of
them can be anywhere near the top. The ranks of the best are therefore drawn from the posterior: with R_i the rank of
item i in a draw and u_i = -Φ⁻¹((R_i - 1/2) / n) its normal score, the interval is that of mean u_i ± q sd u_i, q the
quantile of max |u_i - mean u_i| / sd u_i over the best. The quantile is that of a fifth of the error that is allowed,
since the posterior is an approximation (checked by simulation, also with strengths whose tails are heavier than the
prior's). All others get intervals f_i ± t se_i with t from Šidák's inequality and the rest of the error, and are
compared where these do not touch: wider, and without a matrix of all pairs.

**Clusters.** How many a standard error rests on: with a_i = H⁻¹ times the contrast that is strength i relative to the
mean, cluster c tells

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

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr, ndtri
from scipy.stats import norm
from scipy.stats import t as student

# Numbers of x_k · a_i at a time, and the most of them altogether; the most numbers s_ci.
_AT_ONCE, MOST_PRODUCTS, MOST_INFORMATION = 4_000_000, 300_000_000, 20_000_000
# Items all pairs of which are compared.
MOST_COMPARED = 1000
# Differences that are drawn.
_MOST_DRAWN = 4e7
# Draws that ranks are counted in, the most items whose ranks are found so, and their share of the error.
RANK_DRAWS, MOST_RANKED, DRAWN_SHARE = 512, 100, 0.2
# Of normal scores of ranks, where all draws agree, and what rounding may take from a bound.
_LEAST_SPREAD, _ROUNDING = 0.02, 1e-9
# Degrees of freedom that stand for infinitely many in draws.
_LARGE = 1e9


def standard_errors_of_differences(C: np.ndarray) -> np.ndarray:
    """se_ij, shape (n, n)."""
    diagonal = C.diagonal()
    return np.sqrt(np.maximum(diagonal[:, None] + diagonal[None, :] - 2.0 * C, 0.0))


def simultaneous_threshold(C: np.ndarray, level: float) -> float:
    """The quantile t of the largest standardised difference.

    Parameters
    ----------
    C : ndarray of shape (n, n)
        Covariance of the strengths.
    level : float

    Notes
    -----
    O(draws · n²), by 2,000 to 10,000 draws with a fixed seed; no array of more than draws × n numbers.
    """
    n = C.shape[0]
    se = standard_errors_of_differences(C)
    inverse = np.divide(1.0, se, out=np.zeros_like(se), where=se > 0).astype(np.float32)
    n_draws = int(np.clip(_MOST_DRAWN / max(n * (n - 1) / 2, 1), 2000, 10000))
    # Single precision suffices: the quantile of draws is known to about three significant digits.
    columns = drawn_normal(C, n_draws).astype(np.float32)
    largest = np.zeros(n_draws, dtype=np.float32)
    for i in range(n - 1):
        gaps = columns[i + 1 :] - columns[i]
        np.abs(gaps, out=gaps)
        gaps *= inverse[i, i + 1 :, None]
        np.maximum(largest, gaps.max(axis=0), out=largest)
    return float(np.quantile(largest, level))


def bonferroni_thresholds(df: np.ndarray | float, n: int, level: float) -> Any:
    """How many standard errors each difference of n items must have, with its own degrees of freedom.

    Parameters
    ----------
    df : ndarray of shape (n, n) or float
        Below 1 nothing can be said: the threshold is infinite.
    n : int
    level : float
    """
    t = student.isf((1.0 - level) / (n * (n - 1.0)), np.clip(df, 1.0, _LARGE))
    return np.where(np.asarray(df) < 1.0, np.inf, t)[()]


def drawn_normal(C: np.ndarray, n_draws: int, rng: np.random.Generator | None = None) -> np.ndarray:
    """Draws of N(0, C) as columns."""
    rng = np.random.default_rng(0) if rng is None else rng
    values, vectors = np.linalg.eigh(C)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ rng.standard_normal((C.shape[0], n_draws))


def significant_signs(scores: np.ndarray, C: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
    """1 where item i is significantly ahead of item j, -1 where it is behind, else 0; shape (n, n)."""
    gaps = scores[:, None] - scores[None, :]
    with np.errstate(invalid="ignore"):  # of an item against itself, at an infinite threshold
        least = threshold * standard_errors_of_differences(C)
    return np.where(np.abs(gaps) > least, np.sign(gaps), 0.0)


def rank_bounds(apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best and the worst possible rank of each item."""
    return 1 + (apart < 0).sum(axis=1), apart.shape[0] - (apart > 0).sum(axis=1)


def many_rank_bounds(
    scores: np.ndarray, se: np.ndarray, level: float, df: np.ndarray | float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """The same of very many items, by intervals that hold together."""
    n = scores.shape[0]
    width = np.where(np.asarray(df) < 1.0, np.inf, quantile_of(level ** (1.0 / n), df) * se)
    low, high = scores - width, scores + width
    ahead = n - np.searchsorted(np.sort(low), high, side="right")
    behind = np.searchsorted(np.sort(high), low, side="left")
    return 1 + ahead, n - behind


def drawn_ranks(
    scores: np.ndarray, errors: Iterable[np.ndarray], some: np.ndarray, df: np.ndarray | float = np.inf
) -> np.ndarray:
    """Ranks of some items among all, with drawn errors as blocks of columns; shape (k, draws).

    With degrees of freedom every item's error is divided by a draw of its own for the standard error: those of
    different items come from different scores of the clusters.
    """
    rng, n, out = np.random.default_rng(1), scores.shape[0], []
    freedom = np.broadcast_to(np.clip(df, 1.0, _LARGE), n)[:, None]
    for block in errors:
        if np.isfinite(df).any():
            block = block / np.sqrt(rng.chisquare(freedom, block.shape) / freedom)
        drawn = scores[:, None] + block
        out += [n - np.searchsorted(np.sort(f), f[some], side="right") + 1 for f in drawn.T]
    return np.stack(out, axis=1)


def drawn_rank_bounds(drawn: np.ndarray, n: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of ranks that hold together, from draws of these ranks.

    Parameters
    ----------
    drawn : ndarray of shape (k, draws)
        Ranks of k among n items.
    n : int
    level : float
    """
    u = -ndtri((drawn - 0.5) / n)
    centre, spread = u.mean(axis=1), np.maximum(u.std(axis=1), _LEAST_SPREAD)
    largest = (np.abs(u - centre[:, None]) / spread[:, None]).max(axis=0)
    width = float(np.quantile(largest, level)) * spread
    # Back from normal scores; a rank is inside the interval if its own score is.
    best = np.ceil(n * ndtr(-(centre + width)) + 0.5 - _ROUNDING)
    worst = np.floor(n * ndtr(-(centre - width)) + 0.5 + _ROUNDING)
    at_most = np.round(n * ndtr(-centre) + 0.5)
    return np.clip(np.minimum(best, at_most), 1, n).astype(int), np.clip(
        np.maximum(worst, at_most), 1, n
    ).astype(int)


def quantile_of(level: float, df: Any) -> Any:
    """The two-sided quantile of one interval; degrees of freedom below 1 count as 1."""
    if np.ndim(df) == 0 and np.isinf(df):
        return float(norm.ppf(0.5 + 0.5 * level))
    return student.ppf(0.5 + 0.5 * level, np.maximum(df, 1.0))


def group_letters(apart: np.ndarray) -> list[str]:
    """Letters such that two items share one exactly if they cannot be told apart; in the order of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> group_letters(np.array([[0, 0, 1], [0, 0, 0], [-1, 0, 0]]))
    ['a', 'ab', 'b']

    References
    ----------
    Piepho, "An algorithm for a letter-based representation of all-pairwise comparisons", Journal of Computational and
    Graphical Statistics 13 (2004).
    """
    n = apart.shape[0]
    different = apart != 0
    groups = [frozenset(range(n))]
    for i in range(n):
        for j in np.flatnonzero(different[i, i + 1 :]) + i + 1:
            groups = _split(groups, i, int(j))
    groups.sort(key=lambda group: (min(group), sorted(group)))
    letters = [""] * n
    for k, group in enumerate(groups):
        for item in group:
            letters[item] += _letter(k)
    return letters


def _split(groups: list[frozenset[int]], i: int, j: int) -> list[frozenset[int]]:
    """No group with both of two items that are told apart; groups inside of others are dropped."""
    both = [group for group in groups if i in group and j in group]
    if not both:
        return groups
    kept = [group for group in groups if not (i in group and j in group)]
    for group in both:
        for out in (i, j):
            part = group - {out}
            if not any(part <= other for other in kept):
                kept = [other for other in kept if not other <= part]
                kept.append(part)
    return kept


def _letter(k: int) -> str:
    """a to z, then (27), (28), ..."""
    return chr(ord("a") + k) if k < 26 else f"({k + 1})"


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
