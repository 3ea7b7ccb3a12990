"""From statistics to fitted models, for streams and for clusters alike."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ...metrics.registry import RankingScorer
from ...model_selection._choice import auto_grid, choose, read_grid, read_scoring, warn_at_edge
from ...squared.statistics import Recipe, Statistics
from .one_pass_cv import LOSS, FoldModels, MeasureTally, models_of_folds, tally_chunk
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
        warn_at_edge(search.alphas_, search.cv_scores_, choice, stacklevel=5)
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
