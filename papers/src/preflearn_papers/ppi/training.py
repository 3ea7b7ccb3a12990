"""Learning from a kernel matrix of candidates: alpha and the decision threshold by leave-one-document-out.

The learner is sparse RLS or RankRLS: all candidates are learned from, but f(x) = Σ_{i in B} a_i k(x, x_i) uses at most
`n_basis` of them, drawn at random. For every alpha of a grid each document is predicted by the model learned without it
(and without its basis vectors). The alpha with the largest AUC over these predictions is chosen, and at that alpha the
threshold with the largest F. (AUC varies less with the sample than F at its best threshold does; the paper does not
say which of the two chose its alpha.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from preflearn.numerics.linalg import first_equal_items, independent_items

from .measures import area_under_curve, best_threshold

ALPHAS = tuple(2.0**power for power in range(-4, 5))
LEARNERS = ("rls", "rankrls")
# Squared distance from the span of the others, relative to the largest square, at which a basis vector is left out: far
# below the smallest alpha, and large enough for documents to be held out by algebra.
_NEAR_SPAN = 1e-6


@dataclass(frozen=True)
class Settings:
    """How to learn.

    Attributes
    ----------
    learner : {"rls", "rankrls"}
        Regularised least squares on ±1 without an intercept, as published, or RankRLS over all pairs of candidates.
    n_basis : int
        Maximum number of basis vectors; all candidates where there are fewer.
    alphas : tuple of float
        Regularisation values to choose from.
    random_state : int
        For the basis vectors.
    """

    learner: str = "rls"
    n_basis: int = 4000
    alphas: tuple[float, ...] = field(default=ALPHAS)
    random_state: int = 0

    def __post_init__(self) -> None:
        if self.learner not in LEARNERS:
            raise ValueError(f"learner must be one of {LEARNERS}; found {self.learner!r}.")
        if not isinstance(self.n_basis, Integral) or self.n_basis < 1:
            raise ValueError(f"n_basis must be an integer of at least 1; found {self.n_basis!r}.")
        if not self.alphas or not all(np.isfinite(alpha) and alpha > 0 for alpha in self.alphas):
            raise ValueError(f"alphas must be positive numbers; found {self.alphas!r}.")


@dataclass(frozen=True)
class Trained:
    """A function of the training candidates' kernel values, f(x) = Σ_i coef[i] k(x, x_i), and its threshold."""

    coef: np.ndarray
    alpha: float
    threshold: float
    held_out: np.ndarray  # each training candidate's score by the model without its document
    held_out_f: float


def train(K: np.ndarray, y: np.ndarray, documents: np.ndarray, settings: Settings) -> Trained:
    """Choose alpha and threshold, then learn from everything.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Kernel between the training candidates.
    y : ndarray of shape (m,)
        1 for an interaction, anything else for none.
    documents : ndarray of shape (m,)
        What leaves together.
    settings : Settings
    """
    targets = np.where(y == 1, 1.0, -1.0)
    if np.unique(targets).shape[0] < 2:
        raise ValueError(
            "Training candidates must include interactions and non-interactions; found only one kind."
        )
    if np.unique(documents).shape[0] < 2:
        raise ValueError("Leave-one-document-out needs candidates from at least two documents; found one.")
    basis = _draw_basis(K, settings)
    held_out = held_out_scores(K, targets, documents, basis, settings)
    best = int(np.argmax([area_under_curve(y, scores) for scores in held_out]))
    threshold, f = best_threshold(y, held_out[best])
    model = _learner(settings, settings.alphas[best], basis).fit(K, targets)
    coef = np.zeros(K.shape[0])
    coef[model.basis_indices_] = model.dual_coef_
    return Trained(coef, settings.alphas[best], threshold, held_out[best], f)


def _draw_basis(K: np.ndarray, settings: Settings) -> np.ndarray | None:
    """Rows of the basis vectors, or None for all rows.

    Some sentences occur twice, and a basis vector that repeats another adds nothing to the span: the draw is among
    distinct candidates. Of those drawn, one in the span of the others is left out: documents can be held out by algebra
    only where no basis vector replaces another.
    """
    if settings.n_basis >= K.shape[0]:
        return None
    drawn = np.unique(first_equal_items(K))
    if settings.n_basis < drawn.shape[0]:
        drawn = check_random_state(settings.random_state).choice(drawn, size=settings.n_basis, replace=False)
        drawn.sort()
    return drawn[independent_items(K[np.ix_(drawn, drawn)], _NEAR_SPAN)]


def _learner(settings: Settings, alpha: float, basis: np.ndarray | None) -> Any:
    from preflearn import RLS, RankRLS

    chosen = "uniform" if basis is None else basis
    if settings.learner == "rls":
        return RLS(alpha, kernel="precomputed", basis=chosen, fit_intercept=False)
    return RankRLS(alpha, kernel="precomputed", basis=chosen, weighting="item")


def held_out_scores(
    K: np.ndarray, targets: np.ndarray, documents: np.ndarray, basis: np.ndarray | None, settings: Settings
) -> np.ndarray:
    """Scores of each candidate by the models without its document, one row for each alpha; one factorisation."""
    from preflearn.model_selection import HeldOut

    learner = _learner(settings, settings.alphas[0], basis)
    return HeldOut(learner, K, targets, groups=documents).predict("leave-group-out", settings.alphas)
