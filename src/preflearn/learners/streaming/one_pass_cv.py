r"""Every alpha tested on every fold from the statistics alone.

With A_k, c_k, z_k the statistics of fold k and A, c those of all rows, the model of fold k solves
(A - A_k + λ I) w = c - c_k, and its squared loss on the fold is z_k - 2 wᵀc_k + wᵀ A_k w: no row is read again. One
eigendecomposition per fold serves all λ: O(k n³) after the pass, whatever the number of rows.

Basis vectors of a reduced set leave the model with their fold. With K_RR = F Fᵀ, an expansion on the rows J of F that
stay has weights in the span of those rows, w = Q v with Q an orthonormal basis of it, and v solves the system of
Qᵀ (A - A_k) Q and Qᵀ (c - c_k).

A ranking measure such as the concordance depends on the order of the predictions, which the statistics do not hold; it
takes a second pass over the rows with the models of all folds and alphas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...comparisons import encode_queries
from ...kernels.functions import take_items
from ...metrics.registry import RankingScorer
from ...model_selection._choice import without_rounding
from ...squared.holdout.base import span_of_rows
from ...squared.problem import RidgeSystem
from ...squared.query_keys import folds_of, label_keys
from ...squared.statistics import Recipe, Statistics

# The score of a pass without predictions.
LOSS = "neg_mean_squared_pair_error"


@dataclass(frozen=True)
class FoldModels:
    """The models of all folds and alphas.

    Attributes
    ----------
    alphas : ndarray of shape (a,)
    weights : list of ndarray of shape (a, n, v), or None for an empty fold
    scores : ndarray of shape (a,)
        Minus the squared error of held-out pairs, averaged over pairs (weighted as in training).
    fold_scores : ndarray of shape (a, k)
        The same for each fold; NaN where nothing is compared.
    """

    alphas: np.ndarray
    weights: list[np.ndarray | None]
    scores: np.ndarray
    fold_scores: np.ndarray


def models_of_folds(statistics: Statistics, recipe: Recipe, alphas: np.ndarray) -> FoldModels:
    """Train without each fold and test on it, for every alpha.

    Raises
    ------
    ValueError
        If fewer than two folds have comparisons.
    """
    compared = [fold is not None and fold.n_comparisons > 0 for fold in statistics.folds]
    if sum(compared) < 2:
        raise ValueError(
            f"Cross-validation needs comparisons in at least two folds: of {len(compared)} folds "
            f"{sum(compared)} have any ({len(statistics.queries)} queries, {statistics.n_rows} rows). Use "
            "more data, or fit on all of them in memory."
        )
    total = statistics.total()
    weights: list[np.ndarray | None] = []
    losses = np.zeros((alphas.shape[0], len(compared)))
    sizes = np.zeros(len(compared))
    for number, fold in enumerate(statistics.folds):
        if fold is None or not compared[number]:
            weights.append(None)
            continue
        rest = total.copy()
        rest.subtract(fold)  # type: ignore[arg-type]
        found = _path(rest.problem(), _span_of_others(recipe, number), alphas)
        weights.append(found)
        losses[:, number], sizes[number] = fold.loss(found), fold.weight * found.shape[2]
    with np.errstate(invalid="ignore"):
        fold_scores = np.where(sizes > 0, -losses / np.where(sizes > 0, sizes, 1.0), np.nan)
    return FoldModels(alphas, weights, -losses.sum(axis=1) / sizes.sum(), fold_scores)


def _path(problem: RidgeSystem, span: np.ndarray | None, alphas: np.ndarray) -> np.ndarray:
    """The weights of every alpha, of all features or of those in a subspace."""
    if span is None:
        return problem.spectrum().path(alphas.tolist())
    assert problem.matrix is not None
    inside = np.asfortranarray(span.T @ problem.matrix @ span)
    found = RidgeSystem(inside, span.T @ problem.rhs, problem.recover).spectrum().path(alphas.tolist())
    return np.matmul(span, found)


def _span_of_others(recipe: Recipe, fold: int) -> np.ndarray | None:
    """Q: the weights that do without the basis vectors of a fold; None when none is in it."""
    if recipe.feature_map is None or recipe.basis_keys is None:
        return None
    stays = folds_of(recipe.basis_keys, recipe.n_folds) != fold
    if stays.all():
        return None
    if not stays.any():
        raise ValueError("A fold holds out every basis vector: use more basis vectors or more folds.")
    return span_of_rows(recipe.feature_map.factor_.F[stays])


@dataclass
class MeasureTally:
    """A measure of each alpha, summed over the queries where it is defined.

    Attributes
    ----------
    sums : ndarray of shape (a, v)
    counts : ndarray of shape (a, v)
    """

    sums: np.ndarray
    counts: np.ndarray

    def plus(self, other: MeasureTally) -> MeasureTally:
        return MeasureTally(self.sums + other.sums, self.counts + other.counts)

    def means(self) -> np.ndarray:
        """The mean over queries, then over outputs, shape (a,)."""
        with np.errstate(invalid="ignore"):
            return np.mean(self.sums / self.counts, axis=1)


def tally_chunk(
    recipe: Recipe, models: FoldModels, measure: RankingScorer, X: Any, y: np.ndarray, qid: Any
) -> MeasureTally:
    """The measure of held-out predictions in one chunk of whole queries."""
    queries = encode_queries(qid, y.shape[0])
    assert queries.labels is not None
    fold_of_row = folds_of(label_keys(queries.labels), recipe.n_folds)[queries.codes]
    n_alphas, v = models.alphas.shape[0], y.shape[1]
    tally = MeasureTally(np.zeros((n_alphas, v)), np.zeros((n_alphas, v)))
    for piece in recipe.pieces(queries):
        here = np.arange(y.shape[0]) if piece is None else piece
        features = recipe.features(X if piece is None else take_items(X, piece))
        for fold, weights in enumerate(models.weights):
            places = np.flatnonzero(fold_of_row[here] == fold)
            if weights is None or not places.size:
                continue
            rows = here[places]
            stacked = weights.transpose(1, 0, 2).reshape(weights.shape[1], -1)
            predictions = np.asarray(features[places] @ stacked).reshape(rows.shape[0], n_alphas, v)
            for output in range(v):
                truth = y[rows, output]
                settled = without_rounding(predictions[:, :, output].T)
                for k in range(n_alphas):
                    found = measure.per_query(truth, settled[k], queries.codes[rows])
                    defined = found.values[~np.isnan(found.values)]
                    tally.sums[k, output] += defined.sum()
                    tally.counts[k, output] += defined.shape[0]
    return tally
