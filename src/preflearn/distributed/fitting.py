"""The entry point: which estimator is trained in which way on partitions."""

from __future__ import annotations

from functools import reduce
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from ..auto import AutoRanker
from ..auto.sample import Kept, QuerySample, read_chunk
from ..comparisons import encode_queries
from ..comparisons.inputs import read_alpha
from ..learners.rankrls import RankRLS
from ..learners.ranksvm import RankSVM
from ..learners.rls import RLS
from ..learners.search import RankRLSCV
from ..learners.streaming.models import FoldModels, MeasureTally, OnePassSearch, set_solution, tally_chunk
from ..learners.streaming.stream import basis_map
from ..metrics.registry import RankingScorer
from ..model_selection._learner import why_not_in_parts
from ..squared.statistics import Recipe, Statistics, recipe_of
from .pair_losses import fit_pair_losses
from .parts import (
    Parts,
    as_plain,
    choose_shared_basis,
    in_part,
    is_array,
    is_frame,
    read_part,
    read_parts,
    require_dask,
    tree_reduce,
)


def fit(estimator: Any, X: Any, y: Any = None, qid: Any = None, *, split_every: int = 8) -> Any:
    """Train an estimator on Dask collections; the result is that of training on one machine.

    Parameters
    ----------
    estimator : RankRLS, RankRLSCV, RLS, RankSVM or AutoRanker
        With the linear kernel or a reduced set (`n_basis` or `basis`). It is fitted in place.
    X : Dask array of shape (m, n) or data frame
        Features; a data frame may hold y and qid as columns.
    y : Dask array, series or frame, or str
        Scores, partitioned as X is, or the name of a column of X.
    qid : Dask array or series, or str, optional
        Query labels, given in the same way. Each partition must hold whole queries (`align_queries`); a query in two of
        them is refused. None is one global ranking (RankRLS) or regression (RLS).
    split_every : int, default=8
        Number of statistics that are added at a time in the tree.

    Returns
    -------
    estimator
        Fitted, with NumPy attributes.

    Notes
    -----
    Squared losses take one pass: each partition becomes an n × n statistic, summed in a tree, and one machine solves. A
    reduced set is drawn as in `fit`, from row numbers, in a separate pass before. RankRLSCV keeps one statistic per
    fold as in `RankRLSCV.fit_stream`, with the same folds and the same meaning of `cv` and `scoring`. RankSVM keeps the
    partitions in the memory of the workers and takes 10 to 60 evaluations; each sends n numbers to every partition and
    receives n.

    AutoRanker is trained on the calling machine: as in `AutoRanker.fit_stream`, up to 2,000,000 rows of whole queries
    come from the partitions.

    Work goes to the current Dask scheduler: the one of the last ``distributed.Client``, or threads of this process.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.distributed import fit
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    >>> y = X @ [1.0, -2.0, 0.5]
    >>> rows = {"chunks": 20}
    >>> model = fit(RankRLS(), da.from_array(X, chunks=(20, 3)), da.from_array(y, **rows), da.from_array(qid, **rows))
    >>> np.allclose(model.coef_, RankRLS().fit(X, y, qid=qid).coef_)
    True
    """
    trainers = {
        RankRLSCV: search_squared_losses,
        RankRLS: _fit_squared,
        RLS: _fit_squared,
        RankSVM: fit_pair_losses,
        AutoRanker: _fit_automatic,
    }
    train = next((function for kind, function in trainers.items() if isinstance(estimator, kind)), None)
    if train is None:
        raise TypeError(
            f"distributed.fit trains RankRLS, RankRLSCV, RLS, RankSVM and AutoRanker: found {type(estimator).__name__}."
        )
    if isinstance(split_every, bool) or not isinstance(split_every, Integral) or split_every < 2:
        raise ValueError(f"split_every must be an int of at least 2: found {split_every!r}.")
    if isinstance(estimator, RLS) and qid is not None:
        raise ValueError("A regression does not compare rows, so qid would be ignored: leave it out.")
    parts = read_parts(X, y, qid)
    train(estimator, parts, int(split_every))
    _set_features(estimator, parts)
    return estimator


def _fit_squared(estimator: Any, parts: Parts, split_every: int) -> None:
    fit_squared_losses(estimator, parts, split_every)


def _fit_automatic(model: AutoRanker, parts: Parts, split_every: int) -> None:
    """Every partition sends the queries that may be kept."""
    if parts.qid is None:
        raise ValueError(
            "AutoRanker on partitions samples whole queries, and there is no qid: pass it, or train RankRLSCV, which "
            "accepts a global ranking in parts."
        )
    dask, sample = require_dask(), QuerySample()
    calls = [dask.delayed(_sample)(number, *one) for number, one in enumerate(parts.triples())]
    for first in range(0, len(calls), split_every):
        for one in dask.compute(*calls[first : first + split_every]):
            sample.merge(one)
    model._fit_kept(Kept.of(sample))


def _sample(number: int, X: Any, y: Any, qid: Any) -> QuerySample:
    found = QuerySample()
    # The encoder reads a data frame with columns that are not numbers.
    is_table = hasattr(X, "columns") and any(one.kind not in "fiub" for one in X.dtypes)
    X, y, qid = X if is_table else as_plain(X), as_plain(y), as_plain(qid)
    if X.shape[0]:
        try:
            found.add(*read_chunk(X, y, qid))
        except (TypeError, ValueError) as error:
            raise in_part(number, error) from error
        found.shrink()
    return found


def _set_features(estimator: Any, parts: Parts) -> None:
    if parts.feature_names is not None:
        estimator.feature_names_in_ = np.array(parts.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


# ----------------------------------------------------------------
# Partitions that hold whole queries.
#
# A query that lies in several partitions goes to the first of them; everything else stays where it is. For rows sorted
# by query that is one piece for each border between partitions, and nothing else moves.


def align_queries(X: Any, y: Any = None, qid: Any = None) -> Any:
    """Move rows between partitions so that no query is in two of them.

    Parameters
    ----------
    X : Dask array or data frame
    y : Dask array, series or frame, optional
        Targets, partitioned as X is. Leave it out for a data frame that has them as a column.
    qid : Dask array or series, or str
        Query labels, partitioned as X is, or the name of a column of the data frame X.

    Returns
    -------
    collection or tuple
        For the name of a column: the data frame. Otherwise (X, y, qid). Rows keep their order inside a query and,
        except for those that move, inside a partition; numbers of rows become unknown to Dask.

    Notes
    -----
    Two passes: the labels of every partition are read now (one per query comes to this machine), and the rows move
    when the result is used.

    Examples
    --------
    >>> import dask.array as da
    >>> X, y = da.ones((6, 2), chunks=(4, 2)), da.arange(6, chunks=4)
    >>> qid = da.from_array([1, 1, 2, 2, 2, 3], chunks=4)
    >>> X, y, qid = align_queries(X, y, qid)
    >>> [part.compute().tolist() for part in qid.blocks]
    [[1, 1, 2, 2, 2], [3]]
    """
    dask = require_dask()
    if qid is None:
        raise ValueError("align_queries needs qid: the labels, or the name of a column of the data frame.")
    if isinstance(qid, str):
        if y is not None:
            raise ValueError("y is given as well as a column for qid: leave y as a column of the data frame.")
        if not is_frame(X):
            raise TypeError(
                f"qid={qid!r} names a column, but X is not a Dask data frame: found {type(X).__name__}."
            )
        if qid not in X.columns:
            raise ValueError(f"There is no column {qid!r}: found {', '.join(map(str, X.columns))}.")
        moved = _move(dask, [X.to_delayed()], list(X[qid].to_delayed()))[0]
        return _rebuild(X, moved)
    if y is None:
        raise ValueError("align_queries needs y as well as qid, so that rows and targets stay together.")
    parts = read_parts(X, y, qid)
    assert parts.qid is not None
    moved = _move(dask, [parts.X, parts.y, parts.qid], parts.qid)
    return tuple(_rebuild(old, new) for old, new in zip((X, y, qid), moved, strict=True))


def _move(dask: Any, columns: list[list[Any]], labels: list[Any]) -> list[list[Any]]:
    """The partitions of several collections with the rows moved, given the labels of the rows."""
    moves = _moves(dask.compute(*map(dask.delayed(_distinct), labels)))
    rows_to, join = dask.delayed(_rows_to), dask.delayed(_join)
    # For each new partition the old ones it takes rows from, and which; None is all of them.
    pieces: list[dict[int, Any]] = [{number: None} for number in range(len(labels))]
    for source, (leaving, targets) in moves.items():
        for target in {-1, *targets}:
            rows = rows_to(labels[source], leaving, targets, target)
            pieces[source if target < 0 else target][source] = rows
    return [
        [
            column[target]
            if len(piece) == 1 and piece[target] is None
            else join([(column[source], piece[source]) for source in sorted(piece)])
            for target, piece in enumerate(pieces)
        ]
        for column in columns
    ]


def _moves(labels: tuple[list[Any], ...]) -> dict[int, tuple[list[Any], list[int]]]:
    """For each partition that loses rows: the labels that leave it, and where each goes."""
    first: dict[Any, int] = {}
    moves: dict[int, tuple[list[Any], list[int]]] = {}
    for number, here in enumerate(labels):
        for label in here:
            owner = first.setdefault(label, number)
            if owner != number:
                leaving, targets = moves.setdefault(number, ([], []))
                leaving.append(label)
                targets.append(owner)
    return moves


def _distinct(qid: Any) -> list[Any]:
    labels = as_plain(qid)
    found = encode_queries(labels, labels.shape[0]).labels
    return [] if found is None else found.tolist()


def _rows_to(qid: Any, leaving: list[Any], targets: list[int], target: int) -> np.ndarray:
    """The rows whose query goes to a partition; those that stay for target -1."""
    labels = as_plain(qid)
    queries = encode_queries(labels, labels.shape[0])
    assert queries.labels is not None
    goes = dict(zip(leaving, targets, strict=True))
    to = np.array([goes.get(label, -1) for label in queries.labels.tolist()])
    return np.flatnonzero(to[queries.codes] == target)


def _join(pieces: list[tuple[Any, np.ndarray | None]]) -> Any:
    """Some rows of several partitions, one after the other."""
    parts = [part if rows is None else _take(part, rows) for part, rows in pieces]
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def _take(part: Any, rows: np.ndarray) -> Any:
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


def _rebuild(old: Any, parts: list[Any]) -> Any:
    if is_array(old):
        import dask.array as da

        shape = (np.nan, *old.shape[1:])
        return da.concatenate(
            [da.from_delayed(part, shape, dtype=old.dtype, meta=old._meta) for part in parts]
        )
    import dask.dataframe as dd

    return dd.from_delayed(parts, meta=old._meta, verify_meta=False)


# ----------------------------------------------------------------
# RankRLS, RankRLSCV and RLS: one statistic per partition, summed in a tree.


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
