r"""The candidates: preparations × {linear RankRLS, RankRFM, boosted trees, random trees}, most promising first.

All are held out on the same folds: the linear one by algebra, the kernels with a metric of their own for each fold, the
trees grown without each fold, whose mean is the model. Several settings of one candidate (alpha, round) are told apart
by the score of each fold.

The cost of a candidate is a rough count of operations; what the first ones take gives the seconds that the next will.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._engine.core.holdout import rows_outside
from .._engine.loops.threads import in_turns, threads_limited
from ..comparisons import Groups
from ..estimators.rankrfm import RankRFM, TrainedRound
from ..estimators.rankrls import RankRLS
from ..model_selection._alphas import choose
from ..model_selection._held_out import HeldOut
from .combination import FoldScores, centred, nested
from .features import Views
from .trees import Bins, TreeSum

# Rounds of a metric that a candidate may learn; more hardly ever pay.
_ROUNDS = 2
# Basis vectors: a twentieth of the rows within these limits, fewer with many rows so that a round stays within this
# count of rows · basis².
_MOST_BASIS = 600
_LEAST_BASIS = 300
_ROUND_WORK = 6e9
# Trees of each kind without a fold.
_BOOSTED = 60
_RANDOM = 32
# Features that a node of a random tree looks at: 30 percent, but at most so many.
_LOOKED_AT = 80
# Random trees of a fold are grown in so many parts, which processors share.
_RANDOM_PARTS = 2
# Leaves, learning rate and share of the features that a node looks at, of boosted trees on fewer rows than this and on
# more.
_FEW_ROWS = 20_000
_FEW_ROWS_TREES = (8, 0.1, 0.5)
_MANY_ROWS_TREES = (15, 0.15, 1.0)
# Values that boosted trees tell apart in a feature.
_BINS = 63
# Multiplications that one comparison of a node with a feature is worth, seen from the time that it takes.
_TREE_FACTOR = 20.0


@dataclass(frozen=True)
class Task:
    """What all candidates learn from.

    Attributes
    ----------
    views : Views
    y : ndarray of shape (m,)
    queries : Groups
    folds : FoldScores
    n_jobs : int or None
    seed : int
    """

    views: Views
    y: np.ndarray
    queries: Groups
    folds: FoldScores
    n_jobs: int | None
    seed: int

    @property
    def n_rows(self) -> int:
        return self.y.shape[0]


@dataclass(frozen=True)
class Member:
    """A trained candidate.

    Attributes
    ----------
    model : fitted estimator
        On a view of the features.
    held_out : ndarray of shape (m,)
        Held-out predictions at the chosen setting.
    unbiased : ndarray of shape (m,)
        With the setting chosen by the other folds.
    importances : ndarray
        Of the columns of the view; they sum to 1.
    detail : str
        What was chosen.
    """

    model: Any
    held_out: np.ndarray
    unbiased: np.ndarray
    importances: np.ndarray
    detail: str


@dataclass(frozen=True)
class Candidate:
    """A way to learn.

    Attributes
    ----------
    name : str
    view : tuple of str
        As in `preflearn.automatic.features`.
    cost : callable
        From rows and columns of the view to a count of operations.
    train : callable
        From a task and the view to a `Member`.
    is_simple : bool
        Whether people can read it: the model is never one that orders worse than this.
    joins : bool
        Whether it may be part of a combination.
    """

    name: str
    view: tuple[str, ...]
    cost: Callable[[int, int], float]
    train: Callable[[Task, tuple[str, ...]], Member]
    is_simple: bool = False
    joins: bool = True


def linear(task: Task, view: tuple[str, ...]) -> Member:
    """RankRLS with a linear kernel; all alphas and folds by algebra."""
    X = task.views[view]
    learner = RankRLS(weighting="item")
    held_out = HeldOut(learner, X, task.y, qid=task.queries.codes)
    alphas = held_out.alphas("auto")
    settings = held_out.predict(task.folds.tests, alphas)
    scores = task.folds.of(settings)
    choice = choose(task.folds.mean(scores), alphas)[0]
    model = RankRLS(float(alphas[choice]), weighting="item").fit(X, task.y, qid=task.queries.codes)
    size = np.abs(model.coef_) * X.std(axis=0)
    importances = _shares(size)
    return Member(
        model, settings[choice], nested(task.folds, settings, scores), importances, _about(alphas[choice])
    )


def single_feature(task: Task, view: tuple[str, ...]) -> Member:
    """The feature, up or down, that orders best; in each fold the one that orders the others best."""
    X = task.views[view]
    n = X.shape[1]
    ups = task.folds.of(X.T) - 0.5
    signed = np.r_[ups, -ups]  # features upwards, then downwards

    def scores(place: int, rows: Any) -> np.ndarray:
        return X[rows, place % n] * (1.0 if place < n else -1.0)

    unbiased = np.empty(task.n_rows)
    for fold, test in enumerate(task.folds.tests):
        unbiased[test] = scores(task.folds.best(signed, without=fold), test)
    best = task.folds.best(signed)
    alone = np.zeros_like(X)
    alone[:, best % n] = scores(best, slice(None))
    model = RankRLS(weighting="item").fit(alone, task.y, qid=task.queries.codes)
    # Its direction is the chosen one, also where the slope of a straight line says otherwise.
    model.coef_ = np.where(np.arange(n) == best % n, 1.0 if best < n else -1.0, 0.0)
    return Member(model, scores(best, slice(None)), unbiased, np.abs(model.coef_), "")


def learned_kernel(task: Task, view: tuple[str, ...], kernel_name: str = "rbf") -> Member:
    """RankRFM: rounds until one does not help; every fold with a metric of its own."""
    X = task.views[view]
    size = n_basis(task.n_rows)
    learner = RankRFM(kernel=kernel_name, n_basis=size, max_rounds=_ROUNDS, random_state=task.seed)
    kernel, X = learner._read(X)
    search = learner._search_rows(
        X, task.y[:, None], task.queries.codes, None, has_queries=False, cv=task.folds.tests
    )
    rounds: list[TrainedRound] = []
    tables: list[np.ndarray] = []

    def score(predictions: list[np.ndarray]) -> np.ndarray:
        settings = _by_row(predictions, search.tests, task.n_rows)
        tables.append(task.folds.of(settings))
        return task.folds.mean(tables[-1])

    search.score = score
    for one in learner._walk(search, kernel, patience=1):
        rounds.append(one)
    settings = np.concatenate([_by_row(one.held_out, search.tests, task.n_rows) for one in rounds])
    scores = np.concatenate(tables)
    best = max(rounds, key=lambda one: one.score)
    learner.alpha_, learner.best_round_ = best.alpha, best.number
    learner._keep(best.models[-1], search.sets[-1].basis, single=True)
    learner.n_queries_ = task.queries.n_groups
    place = sum(len(one.alphas) for one in rounds[: best.number]) + best.choice
    unbiased = nested(task.folds, settings, scores)
    detail = f"{_about(best.alpha)}, round {best.number}, {learner.dual_coef_.shape[0]} basis vectors"
    return Member(learner, settings[place], unbiased, learner.feature_importances_, detail)


def boosted_trees(task: Task, view: tuple[str, ...]) -> Member:
    """scikit-learn's histogram boosting on targets that are centred inside queries."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    leaves, rate, share = _FEW_ROWS_TREES if task.n_rows < _FEW_ROWS else _MANY_ROWS_TREES

    def grow(X: np.ndarray, t: np.ndarray, seed: int) -> TreeSum:
        model = HistGradientBoostingRegressor(
            max_iter=_BOOSTED,
            learning_rate=rate,
            max_leaf_nodes=leaves,
            max_features=share,
            min_samples_leaf=min(50, max(5, task.n_rows // 50)),
            max_bins=_BINS,
            l2_regularization=1.0,
            early_stopping=False,
            random_state=seed,
        )
        return TreeSum.of_boosting(model.fit(X, t), bins)

    X = _compared_with_thresholds(task, view)
    bins = Bins(X, _BINS)
    return _trees(task, X, bins.codes, grow, 1, f"{_BOOSTED} trees of {leaves} leaves without each fold")


def random_trees(task: Task, view: tuple[str, ...]) -> Member:
    """scikit-learn's extremely randomised trees on the same targets."""
    from sklearn.tree import ExtraTreeRegressor

    leaf = max(3, min(20, task.n_rows // 100), task.n_rows // 1000)

    def grow(X: np.ndarray, t: np.ndarray, seed: int) -> TreeSum:
        seeds = np.random.default_rng(seed).integers(2**31 - 1, size=_RANDOM // _RANDOM_PARTS)
        trees = [
            ExtraTreeRegressor(
                min_samples_leaf=leaf, max_features=min(0.3, _LOOKED_AT / X.shape[1]), random_state=int(one)
            )
            for one in seeds
        ]
        return TreeSum.of_mean([tree.fit(X, t, check_input=False) for tree in trees])

    X = _compared_with_thresholds(task, view)
    return _trees(task, X, X, grow, _RANDOM_PARTS, f"mean of {_RANDOM} trees without each fold")


def _compared_with_thresholds(task: Task, view: tuple[str, ...]) -> np.ndarray:
    return np.ascontiguousarray(task.views[view], dtype=np.float32)


def _trees(
    task: Task,
    X: np.ndarray,
    grown_on: np.ndarray,
    grow: Callable[[np.ndarray, np.ndarray, int], TreeSum],
    n_parts: int,
    detail: str,
) -> Member:
    """The mean of the trees that were grown without each fold; each fold is predicted by those that have not seen it.

    Nothing is grown on all rows: five sets of trees on four fifths of them are as good, and have been paid for. All
    are grown side by side, each part on one thread, so that none waits for others at every node.
    """
    t = centred(task.y[:, None], task.queries)[:, 0]
    tests = task.folds.tests

    def grow_without(fold: int, part: int) -> TreeSum:
        rest = rows_outside(task.n_rows, tests[fold])
        with threads_limited(1, "openmp"):
            return grow(grown_on[rest], t[rest], task.seed + n_parts * fold + part)

    calls = [(fold, part) for fold in range(len(tests)) for part in range(n_parts)]
    with warnings.catch_warnings(record=True):  # scikit-learn changes the filters in every thread
        parts = in_turns(grow_without, calls, task.n_jobs)
    by_fold = [TreeSum.mean(parts[k : k + n_parts]) for k in range(0, len(parts), n_parts)]
    held_out = np.empty(task.n_rows)
    for test, trees in zip(tests, by_fold, strict=True):
        held_out[test] = trees.predict(X[test])
    model = TreeSum.mean(by_fold)
    return Member(model, held_out, held_out, model.feature_importances_, detail)


def candidates(n_queries: int) -> list[Candidate]:
    """Most promising first; the first one is fast. Without queries there is nothing to be relative to."""
    relative: tuple[str, ...] = ("relative",) if n_queries > 1 else ()
    plain, standardised, quantiles = ("plain",), ("standardised",), ("quantiles",)
    first = [
        Candidate("linear", standardised + relative, _cost_of_linear, linear, is_simple=True),
        Candidate(
            "best single feature", standardised, _cost_of_sorting, single_feature, is_simple=True, joins=False
        ),
    ]
    on_quantiles = Candidate("learned kernel, quantiles", quantiles, _cost_of_kernel, learned_kernel)
    boosted = Candidate("boosted trees", plain + relative, _cost_of_boosting, boosted_trees)
    forest = Candidate("random trees", plain + relative, _cost_of_forest, random_trees)
    if n_queries == 1:
        last = Candidate("linear, quantiles", quantiles, _cost_of_linear, linear)
        return [*first, on_quantiles, boosted, forest, last]
    name = "learned kernel, quantiles and query"
    both = Candidate(name, quantiles + relative, _cost_of_kernel, learned_kernel)
    view = ("quantiles", "relative quantiles")
    last = Candidate("linear, quantiles and query", view, _cost_of_linear, linear)
    return [*first, both, boosted, on_quantiles, forest, last]


def n_basis(n_rows: int) -> int:
    """Basis vectors for this many rows."""
    most = min(_MOST_BASIS, n_rows // 20, int((_ROUND_WORK / n_rows) ** 0.5))
    return min(n_rows, max(_LEAST_BASIS, most))


def _cost_of_linear(m: int, n: int) -> float:
    return 2.0 * m * n**2 + 50.0 * m * n


def _cost_of_sorting(m: int, n: int) -> float:
    return 200.0 * m * n


def _cost_of_kernel(m: int, n: int) -> float:
    r = n_basis(m)
    return (_ROUNDS + 1) * 6 * (2.0 * m * r**2 + 4.0 * m * r * n + 10.0 * r**3)


def _cost_of_boosting(m: int, n: int) -> float:
    return 4 * _BOOSTED * _TREE_FACTOR * m * n


def _cost_of_forest(m: int, n: int) -> float:
    looked_at = min(0.3 * n, _LOOKED_AT)
    return _RANDOM * _TREE_FACTOR * m * looked_at * max(1.0, np.log2(m / 10.0))


def _by_row(predictions: list[np.ndarray], tests: list[np.ndarray], n_rows: int) -> np.ndarray:
    """Predictions of each fold, (a, n_test, 1), in the order of the rows, (a, m)."""
    out = np.empty((predictions[0].shape[0], n_rows))
    for test, values in zip(tests, predictions, strict=True):
        out[:, test] = values[:, :, 0]
    return out


def _shares(size: np.ndarray) -> np.ndarray:
    total = float(size.sum())
    return size / total if total > 0 else np.full(size.shape, 1.0 / size.shape[0])


def _about(alpha: float) -> str:
    return f"alpha {alpha:.3g}"


__all__ = ["Candidate", "Member", "Task", "candidates"]
