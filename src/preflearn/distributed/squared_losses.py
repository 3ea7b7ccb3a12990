"""RankRLS, RankRLSCV and RLS: one statistic per partition, summed in a tree."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from ..comparisons import encode_queries
from ..comparisons.inputs import read_alpha, read_scores
from ..kernels.functions import n_items, take_items
from ..kernels.inputs import read_items
from ..kernels.maps import choose_basis
from ..learners.streaming.basis import Basis, refuse_basis
from ..learners.streaming.models import FoldModels, MeasureTally, OnePassSearch, set_solution, tally_chunk
from ..learners.streaming.stream import basis_map
from ..metrics.registry import RankingScorer
from ..model_selection._learner import why_not_in_parts
from ..squared.statistics import Recipe, Statistics, label_keys, recipe_of
from .parts import Parts, as_plain, in_part, require_dask, tree_reduce


def fit_squared_losses(model: Any, parts: Parts, split_every: int) -> None:
    """Train a RankRLS or RLS."""
    alpha = read_alpha(model.alpha)
    statistics, recipe, info = _sum_up(model, parts, 1, split_every)
    set_solution(model, statistics, recipe, parts.single, alpha, info)


def search_squared_losses(search: Any, parts: Parts, split_every: int) -> None:
    """Choose alpha and train a RankRLSCV."""
    options = OnePassSearch(search, "distributed.fit")
    if parts.qid is None and options.needs_queries is not None:
        raise ValueError(options.needs_queries)
    plain = search._plain({})
    statistics, recipe, info = _sum_up(plain, parts, options.n_folds, split_every)
    models = options.models(statistics, recipe)
    tally = None
    if options.measure is not None:
        tally = _score(plain, parts, recipe, models, options.measure, split_every)
    options.choose(models, tally, statistics, recipe, parts.single, info, plain)


def _sum_up(
    model: Any, parts: Parts, n_folds: int, split_every: int
) -> tuple[Statistics, Recipe, dict[str, Any]]:
    dask = require_dask()
    reason = why_not_in_parts(model)
    if reason is not None:
        raise ValueError(f"{type(model).__name__} on partitions: {reason}")
    kernel = model._read_kernel()
    kernel.refuse_without_width()
    basis = choose_shared_basis(model, parts) if model._wants_reduced_set() else None
    recipe = recipe_of(
        model,
        kernel,
        None if basis is None else basis_map(model, kernel, basis),
        with_queries=parts.qid is not None,
        n_folds=n_folds,
        basis_keys=None if basis is None else basis.keys,
    )
    _refuse_what_does_not_add_up(recipe, parts)
    first_rows = np.zeros(len(parts), dtype=int)
    if n_folds > 1 and not recipe.with_queries:
        first_rows = np.cumsum([0, *parts.lengths()[:-1]])
    # One object in the graph, not one copy in every task.
    shared = dask.delayed((recipe, clone(model)), traverse=False)
    task, add = dask.delayed(_statistics), dask.delayed(_add)
    results = [
        task(number, shared, X, y, qid, int(first_rows[number]))
        for number, (X, y, qid) in enumerate(parts.triples())
    ]
    with model._more_stages()(f"statistics of {len(parts)} partitions"):
        statistics, n_features = dask.compute(tree_reduce(results, add, split_every))[0]
    model.n_features_in_ = n_features
    info = {
        "source": f"{len(parts)} Dask partitions",
        "rows": statistics.n_rows,
        "chunks": statistics.n_chunks,
        "queries": len(statistics.queries) if recipe.with_queries else 1,
        "resumed_at_row": 0,
        "basis": None if basis is None else basis.source,
    }
    return statistics, recipe, info


def _refuse_what_does_not_add_up(recipe: Recipe, parts: Parts) -> None:
    if recipe.one_chunk_only and (len(parts) > 1 or recipe.n_folds > 1):
        raise ValueError(
            "One global ranking in several partitions needs cost='magnitude' and ties='include': which pairs "
            "between partitions are tied cannot be known from each of them. Pass qid."
        )
    if parts.n_outputs > 1 and (recipe.cost != "magnitude" or recipe.ties != "include"):
        raise ValueError(
            "Several outputs need cost='magnitude' and ties='include': the pairs must not depend on the scores."
        )


def read_part(number: int, model: Any, X: Any, y: Any, qid: Any) -> tuple[Any, np.ndarray, Any] | None:
    """Checked rows of one partition, on its worker; None where it is empty."""
    X, y, qid = as_plain(X), as_plain(y), None if qid is None else as_plain(qid)
    if n_items(X) == 0:
        return None
    try:
        X = read_items(model, X, model._read_kernel(), reset=True)
        scores, _ = read_scores(y, n_items(X), estimator=model)
    except (TypeError, ValueError) as error:
        raise in_part(number, error) from error
    return X, scores, qid


def _statistics(
    number: int, shared: tuple[Recipe, Any], X: Any, y: Any, qid: Any, first_row: int
) -> tuple[Statistics, int]:
    recipe, model = shared
    rows = read_part(number, clone(model), X, y, qid)
    if rows is None:
        return Statistics([None] * recipe.n_folds), 0
    try:
        return recipe.statistics(*rows, first_row), rows[0].shape[1]
    except ValueError as error:
        raise in_part(number, error) from error


def _add(parts: list[tuple[Statistics, int]]) -> tuple[Statistics, int]:
    """The sum in new memory: what a worker holds may be needed again."""
    total = parts[0][0].copy()
    for part, _ in parts[1:]:
        total.add(part)
    return total, max(n_features for _, n_features in parts)


# ---------------------------------------------------------------------- reduced set


def choose_shared_basis(model: Any, parts: Parts) -> Basis:
    """The rows that `fit` would choose, fetched from where they are."""
    dask = require_dask()
    refuse_basis(model)
    lengths = parts.lengths()
    ends = np.cumsum(lengths)
    chosen = choose_basis(int(ends[-1]), model.n_basis, model.basis, model.random_state)
    assert chosen is not None
    owner = np.searchsorted(ends, chosen, side="right")
    fetch = dask.delayed(_fetch)
    tasks, places = [], []
    for number in np.unique(owner):
        mine = np.flatnonzero(owner == number)
        places.append(mine)
        X, y, qid = parts.triples()[number]
        rows = chosen[mine] - (ends[number] - lengths[number])
        tasks.append(fetch(int(number), clone(model), X, y, qid, rows))
    fetched = dask.compute(*tasks)
    order = np.argsort(np.concatenate(places))
    items = [item for item, _ in fetched]
    stacked = sp.vstack(items, format="csr") if sp.issparse(items[0]) else np.concatenate(items)
    keys = chosen
    if parts.qid is not None:
        keys = np.concatenate([key for _, key in fetched])[order]
    given = not isinstance(model.basis, str)
    source = "the rows given" if given else f"uniform sample of all {int(ends[-1])} rows"
    return Basis(stacked[order], chosen, keys, source)


def _fetch(number: int, model: Any, X: Any, y: Any, qid: Any, rows: np.ndarray) -> tuple[Any, Any]:
    part = read_part(number, model, X, y, qid)
    assert part is not None
    if part[2] is None:
        return take_items(part[0], rows), None
    queries = encode_queries(part[2], part[1].shape[0])
    assert queries.labels is not None
    return take_items(part[0], rows), label_keys(queries.labels[queries.codes[rows]])


# ---------------------------------------------------------------------- second pass


def _score(
    model: Any, parts: Parts, recipe: Recipe, models: FoldModels, measure: RankingScorer, split_every: int
) -> MeasureTally:
    dask = require_dask()
    shared = dask.delayed((recipe, clone(model), models), traverse=False)
    task, add = dask.delayed(_tally), dask.delayed(_add_tallies)
    results = [task(number, shared, measure, *triple) for number, triple in enumerate(parts.triples())]
    with model._more_stages()(f"{measure} of {len(parts)} partitions"):
        return dask.compute(tree_reduce(results, add, split_every))[0]


def _tally(
    number: int, shared: tuple[Recipe, Any, FoldModels], measure: RankingScorer, X: Any, y: Any, qid: Any
) -> Any:
    recipe, model, models = shared
    rows = read_part(number, clone(model), X, y, qid)
    if rows is None:
        empty = np.zeros((models.alphas.shape[0], 1))
        return MeasureTally(empty, empty)
    return tally_chunk(recipe, models, measure, *rows)


def _add_tallies(tallies: list[MeasureTally]) -> MeasureTally:
    return reduce(MeasureTally.plus, tallies)
