r"""Boards by category that borrow strength from the whole, and boards over time.

In category c item i has the strength f_ic = g_i + δ_ic with independent normal priors of g and δ, which is one kernel
on pairs of item and category: [i = i'] (1 + s² [c = c']). How much categories may differ, s, is chosen by held-out
battles; with s = 0 all boards are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from ..comparisons.answers import Answers
from ..losses.logistic import LogisticLoss
from ..losses.newton import Features, PairObjective, minimise_logistic
from ..numerics.linalg import inverse_in_place
from .battles import Battles
from .held_out import decayed, log_losses
from .ranks import effective_clusters, information_of
from .strengths import MOST_DENSE, Strengths, cluster_information, dense_covariance, fit_strengths, sandwich

_RATIOS = (0.0, 0.1, 0.2, 0.4, 0.8)
_FOLDS = 5


@dataclass(frozen=True)
class CategoryBoards:
    """Strengths of items in categories.

    Attributes
    ----------
    scores : ndarray of shape (m, k)
        Strengths in each category, with mean 0 in each.
    errors : ndarray of shape (m, k)
        Their standard errors.
    differences, difference_errors : ndarrays of shape (m, k)
        From the item's strength in all categories, and their standard errors.
    ratio : float
        s.
    freedom, difference_freedom : ndarrays of shape (m, k)
        Degrees of freedom of both kinds of standard errors; infinite without clusters.
    """

    scores: np.ndarray
    errors: np.ndarray
    differences: np.ndarray
    difference_errors: np.ndarray
    ratio: float
    freedom: np.ndarray
    difference_freedom: np.ndarray


def _by_category(battles: Battles, codes: np.ndarray, n_categories: int) -> Answers:
    pairs = battles.pairs * n_categories + codes[:, None]
    ones = np.ones(len(battles))
    return Answers(battles.n_items * n_categories, pairs, battles.weight, battles.share, ones)


def _design(n_items: int, n_categories: int, ratio: float) -> sp.csr_array:
    """Φ with f = Φ (g, δ / s), one row for each item and category."""
    common = sp.kron(sp.eye_array(n_items), np.ones((n_categories, 1)))
    own = ratio * sp.eye_array(n_items * n_categories)
    return sp.csr_array(sp.hstack([common, own]))


def _weights(answers: Answers, design: sp.csr_array, alpha: float) -> np.ndarray:
    return minimise_logistic(PairObjective(Features(design), answers), alpha).weights


def category_scores(
    battles: Battles, codes: np.ndarray, n_categories: int, alpha: float, ratio: float
) -> np.ndarray:
    """Strengths in each category with mean 0, shape (m, k), of any number of items: no covariances."""
    answers = _by_category(battles, codes, n_categories)
    design = _design(battles.n_items, n_categories, ratio)
    f = (design @ _weights(answers, design, alpha)).reshape(battles.n_items, n_categories)
    return f - f.mean(axis=0)


def fits_densely(n_items: int, n_categories: int) -> bool:
    """Whether covariances of all strengths are a matrix of moderate size."""
    return n_items * (n_categories + 1) <= MOST_DENSE


def category_boards(
    battles: Battles,
    codes: np.ndarray,
    n_categories: int,
    alpha: float,
    ratio: float | None = None,
    cluster: np.ndarray | None = None,
) -> CategoryBoards:
    """Fit all boards at once; s is chosen by held-out battles where it is not given.

    With the cluster of each battle, standard errors are those of the sandwich (`strengths`).
    """
    n = battles.n_items
    size = n * (n_categories + 1)
    if not fits_densely(n, n_categories):
        raise ValueError(
            f"Boards of {n:,} items in {n_categories:,} categories need a matrix of {size:,} rows, more than "
            f"{MOST_DENSE:,}: keep the items and categories that matter, or leave intervals out with intervals=False."
        )
    answers = _by_category(battles, codes, n_categories)
    ratio = choose_ratio(battles, codes, n_categories, alpha) if ratio is None else ratio
    design = _design(n, n_categories, ratio)
    w = _weights(answers, design, alpha)
    curvatures = LogisticLoss(answers, design @ w).curvatures
    H = np.asfortranarray((design.T @ answers.hessian(curvatures) @ design).toarray())
    H[np.diag_indices_from(H)] += 2.0 * alpha
    inverse = inverse_in_place(H)
    C = inverse
    if cluster is not None:
        pulls = answers.weight * (answers.share - expit(answers.differences(design @ w)))
        g = _signed_rows(answers, pulls, cluster, int(cluster.max()) + 1) @ design
        C = sandwich(inverse, g, 2.0 * alpha * np.eye(H.shape[0]))
    # Strengths relative to the mean of their category, and to the item's mean over categories.
    strengths = design.toarray().reshape(n, n_categories, -1)
    strengths = strengths - strengths.mean(axis=0)
    own = (strengths - strengths.mean(axis=1, keepdims=True)).reshape(n * n_categories, -1)
    Phi = strengths.reshape(n * n_categories, -1)
    shape, found = (n, n_categories), []
    for contrasts in (Phi, own):
        errors, freedom = _errors_of(contrasts, C), np.array(np.inf)
        if cluster is not None:
            which = np.arange(answers.n_pairs)
            rows = _signed_rows(answers, np.sqrt(curvatures), which, which.size) @ design
            freedom = effective_clusters(information_of(rows, cluster, inverse @ contrasts.T)) - 1.0
            # A single cluster says nothing of how clusters differ.
            errors = np.where(freedom < 1.0, np.maximum(errors, _errors_of(contrasts, inverse)), errors)
        found.append(
            ((contrasts @ w).reshape(shape), errors.reshape(shape), np.broadcast_to(freedom, errors.shape))
        )
    (scores, errors, df), (differences, own_errors, own_df) = found
    return CategoryBoards(
        scores, errors, differences, own_errors, ratio, df.reshape(shape), own_df.reshape(shape)
    )


def _signed_rows(answers: Answers, values: np.ndarray, rows: np.ndarray, n_rows: int) -> sp.csr_array:
    """Sums of values (e_a - e_b) over the answers of each row."""
    at = (np.concatenate([rows, rows]), answers.pairs.T.ravel())
    return sp.csr_array((np.concatenate([values, -values]), at), shape=(n_rows, answers.n_rows))


def _errors_of(contrasts: np.ndarray, C: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", contrasts @ C, contrasts))


def choose_ratio(battles: Battles, codes: np.ndarray, n_categories: int, alpha: float) -> float:
    """How much categories may differ, by held-out battles."""
    answers, n_items = _by_category(battles, codes, n_categories), battles.n_items
    fold = np.random.default_rng(0).permutation(answers.n_pairs) % _FOLDS
    losses = []
    for ratio in _RATIOS:
        design, loss = _design(n_items, n_categories, ratio), 0.0
        for k in range(_FOLDS):
            w = _weights(answers.take(np.flatnonzero(fold != k)), design, alpha)
            test = answers.take(np.flatnonzero(fold == k))
            p = expit(test.differences(design @ w))
            loss += float(test.weight @ log_losses(p, test.share))
        losses.append(loss)
    return _RATIOS[int(np.argmin(losses))]


def boards_over_time(
    battles: Battles,
    edges: np.ndarray,
    alpha: float,
    half_life: float | None,
    cluster: np.ndarray | None = None,
) -> list[tuple[float, np.ndarray, np.ndarray, np.ndarray, Any]]:
    """(time, which items have played, strengths, their standard errors, degrees of freedom) at each edge.

    From the battles before it; with clusters by the sandwich, as soon as there are two of them.
    """
    assert battles.time is not None
    found = []
    for edge in edges:
        rows = np.flatnonzero(battles.time < edge)
        past = battles.take(rows)
        if not len(past) or not (past.share != 0.5).any():
            continue
        if half_life is not None:
            past = decayed(past, half_life, float(edge))
        strengths = fit_strengths(past, alpha)
        codes = None
        if cluster is not None and np.ptp(cluster[rows]) > 0:
            codes = np.unique(cluster[rows], return_inverse=True)[1]
        errors, df = _errors_and_freedom(strengths, codes)
        found.append((float(edge), past.battles_of_items() > 0, strengths.scores, errors, df))
    return found


def _errors_and_freedom(strengths: Strengths, cluster: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """Standard errors of strengths, NaN for very many items, and their degrees of freedom."""
    n = strengths.battles.n_items
    if not strengths.is_dense:
        return np.full(n, np.nan), np.inf
    errors, own = (np.sqrt(dense_covariance(strengths, codes).diagonal()[:n]) for codes in (None, cluster))
    if cluster is None:
        return errors, np.inf
    df = effective_clusters(cluster_information(strengths, cluster)[:, :n]) - 1.0
    return np.where(df < 1.0, np.maximum(errors, own), own), df


def month_edges(days: np.ndarray) -> np.ndarray:
    """The first days of the months after the first battle, up to the one after the last, as days since 1970."""
    day, month = np.timedelta64(1, "D"), np.timedelta64(1, "M")
    ends = np.floor([days.min(), days.max()]).astype(np.int64) * day + np.datetime64("1970-01-01")
    first, last = ends.astype("datetime64[M]")
    return np.arange(first + month, last + 2 * month).astype("datetime64[D]").astype(np.int64).astype(float)


def dates_of(days: Any) -> list[str]:
    """ISO dates of days since 1970."""
    return [
        str(np.datetime64("1970-01-01") + np.timedelta64(int(np.floor(day)), "D"))
        for day in np.atleast_1d(days)
    ]
