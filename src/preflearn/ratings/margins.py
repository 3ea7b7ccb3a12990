r"""By how much battles were won: strengths by least squares on margins.

A margin d (a's score minus b's) is τ (f_a - f_b) / c plus normal noise of standard deviation τ, so that a wins, d > 0,
with the probability Φ((f_a - f_b) / c). With c = 1.702 this is the logistic function of f_a - f_b to within .01: the
strengths are those of Bradley and Terry's model, learned from more than who won. In units of z = c d / τ,

    min  Σ_k w_k (z_k - x_k · θ)² / 2 c² + alpha ‖θ‖²,      H = Σ_k w_k x_k x_kᵀ / c² + 2 alpha I

(alpha θᵀ K⁻¹ θ and 2 alpha K⁻¹ where features say how similar items are), one linear system, whose residuals in units
of d do not depend on τ: τ² is their mean square, with degrees of freedom taken off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..comparisons.answers import Answers
from ..losses.labels import LabelPosterior
from ..numerics.linalg import cholesky_in_place, cholesky_solve, inverse_in_place
from .battles import Battles

# The logistic function is closest to the normal distribution with this standard deviation.
LOGISTIC_WIDTH = 1.702
_MOST_FACTORED = 3000
# At least this share of the battles is taken as degrees of freedom of the noise.
_LEAST_FREE = 0.1


def curvatures_of(answers: Answers) -> np.ndarray:
    """w / c² of each answer."""
    return answers.weight / LOGISTIC_WIDTH**2


def posterior_of_margins(answers: Answers, alpha: float, theta: np.ndarray) -> LabelPosterior:
    """Covariances of very many items, without a matrix of them."""
    return LabelPosterior(answers, alpha, theta, curvatures_of(answers))


def fit_margins(battles: Battles, alpha: float) -> tuple[np.ndarray, float]:
    """θ and τ for battles whose covariates are scaled."""
    assert battles.margin is not None
    w, d = battles.weight, battles.margin
    size, total = battles.n_items + battles.covariates.shape[1], float(w.sum())
    if total == 0:
        return np.zeros(size), 1.0
    # Seen from the other side a share y is 1 - y, a margin d is -d.
    counted = replace(battles, share=0.5 + d).counted()
    in_margins = _solver(counted, alpha, battles.similarity)(
        counted.spread(curvatures_of(counted) * (counted.share - 0.5))
    )
    residual = d - battles.answers().differences(in_margins)
    # Weights that are not counts say how much battles count relative to each other: their scale must not matter.
    n = total if battles.are_counts else total**2 / float(w @ w)
    freedom = max(n - (size - 1), _LEAST_FREE * n) / n
    noise = float(np.sqrt((w @ residual**2) / (total * freedom)))
    # Margins without any noise would make strengths infinite.
    noise = max(noise, 1e-6 * float(np.abs(d).max()), np.finfo(float).tiny)
    return in_margins * (LOGISTIC_WIDTH / noise), noise


def _solver(
    counted: Answers, alpha: float, similarity: np.ndarray | None
) -> Callable[[np.ndarray], np.ndarray]:
    if similarity is None and counted.n_rows > _MOST_FACTORED:
        posterior = posterior_of_margins(counted, alpha, np.zeros(counted.n_rows))
        return lambda r: posterior.solve(r[:, None])[:, 0]
    H = counted.dense_hessian(curvatures_of(counted))
    prior = np.eye(counted.n_rows)
    if similarity is not None:
        n = similarity.shape[0]
        prior[:n, :n] = inverse_in_place(np.array(similarity, order="F"))
    H += 2.0 * alpha * prior
    H[np.diag_indices_from(H)] += 1e-13 * float(H.diagonal().max(initial=0.0))
    factor = cholesky_in_place(H)
    return lambda r: cholesky_solve(factor, r)
