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

from .._engine.losses.logistic import LogisticLoss
from .._engine.numerics.linalg import inverse_in_place
from .._engine.solvers.newton import Features, PairObjective, minimise_logistic
from ..comparisons.answers import Answers
from .battles import Battles
from .choice import decayed, log_losses
from .strengths import MOST_DENSE, dense_covariance, fit_strengths, sandwich

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
    """

    scores: np.ndarray
    errors: np.ndarray
    differences: np.ndarray
    difference_errors: np.ndarray
    ratio: float


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
    L = answers.hessian(LogisticLoss(answers, design @ w).curvatures)
    H = np.asfortranarray((design.T @ L @ design).toarray())
    H[np.diag_indices_from(H)] += 2.0 * alpha
    C = inverse_in_place(H)
    if cluster is not None:
        pulls = answers.weight * (answers.share - expit(answers.differences(design @ w)))
        rows = (np.concatenate([cluster, cluster]), answers.pairs.T.ravel())
        g = sp.csr_array(
            (np.concatenate([pulls, -pulls]), rows), shape=(int(cluster.max()) + 1, design.shape[0])
        )
        C = sandwich(C, g @ design, 2.0 * alpha * np.eye(C.shape[0]))
    # Strengths relative to the mean of their category, and to the item's mean over categories.
    strengths = design.toarray().reshape(n, n_categories, -1)
    strengths = strengths - strengths.mean(axis=0)
    own = (strengths - strengths.mean(axis=1, keepdims=True)).reshape(n * n_categories, -1)
    Phi = strengths.reshape(n * n_categories, -1)
    errors = np.sqrt(np.einsum("ij,ij->i", own @ C, own))
    shape = (n, n_categories)
    return CategoryBoards(
        (Phi @ w).reshape(shape),
        np.sqrt(np.einsum("ij,ij->i", Phi @ C, Phi)).reshape(shape),
        (own @ w).reshape(shape),
        errors.reshape(shape),
        ratio,
    )


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
) -> list[tuple[float, np.ndarray, np.ndarray, np.ndarray, float]]:
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
        n = battles.n_items
        errors, df, codes = np.full(n, np.nan), np.inf, None
        if cluster is not None and np.ptp(cluster[rows]) > 0:
            codes = np.unique(cluster[rows], return_inverse=True)[1]
            df = float(codes.max())
        if strengths.is_dense:
            errors = np.sqrt(dense_covariance(strengths, codes).diagonal()[:n])
        found.append((float(edge), past.battles_of_items() > 0, strengths.scores, errors, df))
    return found


def month_edges(days: np.ndarray) -> np.ndarray:
    """The first days of the months after the first battle, up to the one after the last, as days since 1970."""
    first, last = (np.datetime64("1970-01-01") + np.floor([days.min(), days.max()]).astype(int)).astype(
        "datetime64[M]"
    )
    return np.arange(first + 1, last + 2).astype("datetime64[D]").astype(np.int64).astype(float)


def dates_of(days: Any) -> list[str]:
    """ISO dates of days since 1970."""
    return [str(np.datetime64("1970-01-01") + int(np.floor(day))) for day in np.atleast_1d(days)]
