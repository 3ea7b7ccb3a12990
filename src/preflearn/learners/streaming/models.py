"""From statistics to fitted models, for streams and for clusters alike."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ...comparisons import encode_queries
from ...kernels.functions import take_items
from ...metrics.registry import RankingScorer
from ...model_selection._choice import (
    auto_grid,
    choose,
    read_grid,
    read_scoring,
    warn_at_edge,
    without_rounding,
)
from ...squared.holdout.base import span_of_rows
from ...squared.problem import RidgeSystem
from ...squared.statistics import Recipe, Statistics, folds_of, label_keys
from .stream import Stream, StreamFit

_DEFAULT_FOLDS = 5


def set_solution(
    model: Any, statistics: Statistics, recipe: Recipe, single: bool, alpha: float, info: dict[str, Any]
) -> None:
    """Solve at one alpha and set what `fit` would have set."""
    total = statistics.total()
    is_ranker = not recipe.kind.startswith("regression")
    n_queries = len(statistics.queries) if recipe.with_queries else 1
    if is_ranker and total.n_comparisons == 0:
        raise ValueError(
            f"No pair can be compared in {statistics.n_rows} rows of {n_queries} queries: check y and qid. "
            "Rows of a query must carry the same label, and differ in score where ties are left out."
        )
    weights = total.problem().solve(alpha)
    feature_map = recipe.feature_map
    if feature_map is None:
        model._set_function(weights, None, None, None, single)
    else:
        coefficients = feature_map.expand(weights)
        model._set_function(None, coefficients, feature_map.basis_indices_, feature_map.basis_, single)
    model.solver_, model.n_iter_, model.residual_ = "primal", 1, None
    model.stream_ = info
    if is_ranker:
        model._incremental = None
        model.n_queries_, model.n_comparisons_ = n_queries, total.n_comparisons
    else:
        model._set_intercept(total.intercept(weights) if recipe.kind == "regression" else None)  # type: ignore[union-attr]


def fit_stream(
    model: Any, chunks: Any, alpha: float, *, checkpoint, checkpoint_every, verbose, reading
) -> None:
    """Train a RankRLS or RLS in one pass."""
    fit = Stream(
        model,
        chunks,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        verbose=model.verbose if verbose is None else verbose,
        reading=reading,
    ).run()
    set_solution(model, fit.statistics, fit.recipe, fit.single, alpha, fit.info)


class OnePassSearch:
    """The options of a RankRLSCV, read for folds that are summed rather than listed.

    Parameters
    ----------
    search : RankRLSCV
    where : str
        The caller, for messages.
    """

    def __init__(self, search: Any, where: str):
        self.n_folds = _read_folds(search.cv, where)
        self.measure = _read_measure(search.scoring, where)
        if search.keep_predictions:
            raise ValueError(
                f"{where} keeps no rows, so keep_predictions=True would be ignored: leave it out."
            )
        if search.alpha_per_output:
            raise ValueError(
                f"{where} chooses one alpha for all outputs: use alpha_per_output=False, or fit on rows in memory."
            )
        if search.kernel_grid:
            raise ValueError(
                f"{where} takes one kernel, so kernel_grid={search.kernel_grid!r} would be ignored: search "
                "kernels by several calls."
            )
        self.search = search

    @property
    def needs_queries(self) -> str | None:
        """The refusal of data without queries."""
        if self.measure is None:
            return None
        return (
            f"scoring={self.search.scoring!r} is a mean over queries, and there is no qid: use scoring=None, the "
            "squared error of held-out pairs."
        )

    def grid(self, statistics: Statistics) -> np.ndarray:
        """The alphas, those of `RankRLSCV.fit` when they are chosen automatically."""

        def automatic() -> np.ndarray:
            return auto_grid(float(statistics.total().problem().spectrum().values[-1]))

        return read_grid(self.search.alphas, automatic)

    def models(self, statistics: Statistics, recipe: Recipe) -> FoldModels:
        """The models of every fold and alpha, with their losses."""
        return models_of_folds(statistics, recipe, self.grid(statistics))

    def choose(
        self,
        models: FoldModels,
        tally: MeasureTally | None,
        statistics: Statistics,
        recipe: Recipe,
        single: bool,
        info: dict[str, Any],
        plain: Any,
    ) -> None:
        """Set the attributes of the search, and fit the chosen model on everything."""
        search = self.search
        search.alphas_ = models.alphas
        search.scoring_ = LOSS if tally is None else search.scoring
        search.cv_scores_ = models.scores if tally is None else tally.means()
        search.loss_scores_, search.fold_scores_ = models.scores, models.fold_scores
        (choice,) = choose(search.cv_scores_, search.alphas_)
        search.best_kernel_, search.kernel_scores_ = {}, None
        search.alpha_, search.best_score_ = float(search.alphas_[choice]), float(search.cv_scores_[choice])
        search.__dict__.pop("cv_predictions_", None)
        search._forget_choice(
            "training in parts keeps sums instead of held-out predictions. Leave whole queries out of the parts and "
            "use preflearn.model_selection.evaluate_scores on them."
        )
        warn_at_edge(search.alphas_, search.cv_scores_, choice)
        set_solution(plain, statistics, recipe, single, search.alpha_, {**info, "folds": self.n_folds})
        search._adopt(plain)


def search_stream(search: Any, chunks: Any, *, checkpoint, checkpoint_every, verbose, reading) -> None:
    """Choose alpha and train a RankRLSCV in one pass (two with a ranking measure)."""
    options = OnePassSearch(search, "fit_stream")
    plain = search._plain({})
    stream = Stream(
        plain,
        chunks,
        n_folds=options.n_folds,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        verbose=search.verbose if verbose is None else verbose,
        reading=reading,
        needs_queries=options.needs_queries,
    )
    if options.measure is not None and not stream.source.again:
        raise ValueError(
            f"scoring={search.scoring!r} needs a second pass over the rows, and {stream.source.name}. Pass a path, a "
            "list, or a function that returns a fresh iterator; or use scoring=None, the squared error of held-out "
            "pairs, which needs none."
        )
    fit = stream.run()
    models = options.models(fit.statistics, fit.recipe)
    tally = None if options.measure is None else _second_pass(stream, fit, models, options.measure)
    options.choose(models, tally, fit.statistics, fit.recipe, fit.single, fit.info, plain)


def _second_pass(stream: Stream, fit: StreamFit, models: FoldModels, measure: RankingScorer) -> MeasureTally:
    tally: MeasureTally | None = None
    for X, scores, qid, _ in stream.chunks():
        part = tally_chunk(fit.recipe, models, measure, X, scores, qid)
        tally = part if tally is None else tally.plus(part)
    assert tally is not None
    return tally


def _read_folds(cv: Any, where: str) -> int:
    if cv is None:
        return _DEFAULT_FOLDS
    if isinstance(cv, bool) or not isinstance(cv, Integral) or cv < 2:
        raise ValueError(
            f"{where} keeps one statistic per fold, so cv must be a number of folds of at least 2 (or None "
            f"for {_DEFAULT_FOLDS}): found {cv!r}."
        )
    return int(cv)


def _read_measure(scoring: Any, where: str) -> RankingScorer | None:
    """A measure that is a mean over queries, so that chunks of whole queries add up; None for the loss."""
    if scoring is None or (isinstance(scoring, str) and scoring == LOSS):
        return None
    scorer = read_scoring(scoring).scorer
    if scorer is None or not scorer.has_per_query:
        raise ValueError(
            f"{where} scores by the squared error of held-out pairs (scoring=None), or in a second pass by a measure "
            f"that is a mean over queries, such as 'concordance', 'kendall_tau' or 'ndcg@10': found {scoring!r}."
        )
    return scorer


# ----------------------------------------------------------------
# Every alpha tested on every fold from the statistics alone.
#
# With A_k, c_k, z_k the statistics of fold k and A, c those of all rows, the model of fold k solves
# (A - A_k + λ I) w = c - c_k, and its squared loss on the fold is z_k - 2 wᵀc_k + wᵀ A_k w: no row is read again. One
# eigendecomposition per fold serves all λ: O(k n³) after the pass, whatever the number of rows.
#
# Basis vectors of a reduced set leave the model with their fold. With K_RR = F Fᵀ, an expansion on the rows J of F that
# stay has weights in the span of those rows, w = Q v with Q an orthonormal basis of it, and v solves the system of
# Qᵀ (A - A_k) Q and Qᵀ (c - c_k).
#
# A ranking measure such as the concordance depends on the order of the predictions, which the statistics do not hold;
# it takes a second pass over the rows with the models of all folds and alphas.


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
