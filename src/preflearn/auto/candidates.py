r"""The candidates: preparations × {linear RankRLS, learned kernels, boosted trees, random trees}, most promising first.

All are held out on the same folds: the linear one by algebra, the kernels with a metric of their own for each fold, the
trees grown without each fold, whose mean is the model. Several settings of one candidate (alpha, round) are compared
by the score of each fold.

The cost of a candidate is a rough count of operations, from which `Pace` estimates seconds for a time limit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..learners.rankrls import RankRLS
from ..model_selection._choice import choose
from ..model_selection._held_out import HeldOut
from ..numerics.threads import in_turns, n_threads, threads_limited
from ..squared.holdout.base import rows_outside
from . import kernels
from .combination import centred, nested
from .tasks import LARGE_TABLE, Member, Task
from .trees import TreeSum, boosted_trees, cost_of_trees

# Random trees without a fold.
_RANDOM = 16
# Features that a node of a random tree looks at: 30 percent, up to this number.
_LOOKED_AT = 80
# Number of parts in which the random trees of a fold are grown, to be shared by the processors.
_RANDOM_PARTS = 2
# Multiplications that one comparison of a node with a feature is worth, seen from the time that it takes.
_TREE_FACTOR = 20.0


@dataclass(frozen=True)
class Candidate:
    """A way to learn.

    Attributes
    ----------
    name : str
    view : tuple of str
        As in `preflearn.auto.features`.
    cost : callable
        From rows and columns of the view to a count of operations.
    train : callable
        From a task and the view to a `Member`; None where another candidate is ahead.
    is_simple : bool
        Whether people can read it: where it orders clearly better than the whole, it is the model.
    joins : bool
        Whether it may be part of a combination.
    """

    name: str
    view: tuple[str, ...]
    cost: Callable[[int, int], float]
    train: Callable[[Task, tuple[str, ...]], Member | None]
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
    importances = size / size.sum() if size.any() else np.full(size.shape, 1.0 / size.shape[0])
    return Member(
        model,
        settings[choice],
        nested(task.folds, settings, scores),
        importances,
        f"alpha {alphas[choice]:.3g}",
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

    X = np.ascontiguousarray(task.views[view], dtype=np.float32)  # as they are compared with thresholds
    return _trees(task, X, grow, _RANDOM_PARTS, f"mean of {_RANDOM} trees per fold")


def _trees(
    task: Task,
    X: np.ndarray,
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
            return grow(X[rest], t[rest], task.seed + n_parts * fold + part)

    calls = [(fold, part) for fold in range(len(tests)) for part in range(n_parts)]
    with warnings.catch_warnings(record=True):  # scikit-learn changes the filters in every thread
        parts = in_turns(grow_without, calls, task.n_jobs)
    by_fold = [TreeSum.mean(parts[k : k + n_parts]) for k in range(0, len(parts), n_parts)]
    held_out = np.empty(task.n_rows)
    for test, trees in zip(tests, by_fold, strict=True):
        held_out[test] = trees.predict(X[test])
    model = TreeSum.mean(by_fold)
    return Member(model, held_out, held_out, model.feature_importances_, detail)


def candidates(n_rows: int, n_queries: int) -> list[Candidate]:
    """Most promising first; the first one is fast. Without queries there is nothing to be relative to.

    A kernel on quantiles alone helps where there are few rows; with many, random trees take longer than they help.
    """
    relative: tuple[str, ...] = ("relative",) if n_queries > 1 else ()
    # Two ways of being relative: the tail of a skewed feature decides about the scale of its query in the first.
    both_relative: tuple[str, ...] = ("relative", "relative quantiles") if n_queries > 1 else ()
    plain, standardised, quantiles = ("plain",), ("standardised",), ("quantiles",)
    beside = " and query" if n_queries > 1 else ""
    found = [
        Candidate("linear", standardised + relative, _cost_of_linear, linear, is_simple=True),
        Candidate(
            "best single feature", standardised, _cost_of_sorting, single_feature, is_simple=True, joins=False
        ),
        # Before the kernels: under a time limit, a race could use up the time and leave no member.
        Candidate("boosted trees", plain + both_relative, cost_of_trees, boosted_trees),
        _kernel(f"learned kernel, quantiles{beside}", quantiles + relative),
    ]
    if n_rows >= kernels.RACE_FROM:  # small tables are to be quick
        found.append(_kernel(f"learned kernel, standardised{beside}", standardised + relative))
        if n_queries > 1:
            found.append(_kernel("learned kernel, query", relative))
            found.append(_kernel("learned kernel, quantiles in query", ("relative quantiles",)))
    if n_rows < LARGE_TABLE:  # in larger ones they are behind
        if n_queries > 1:
            found.append(_kernel("learned kernel, quantiles", quantiles))
        found.append(Candidate("random trees", plain + relative, _cost_of_forest, random_trees))
    view = ("quantiles", "relative quantiles") if n_queries > 1 else quantiles
    return [*found, Candidate(f"linear, quantiles{beside}", view, _cost_of_linear, linear)]


def rivals(found: list[Candidate], n_rows: int) -> tuple[tuple[str, ...], ...]:
    """The views of the learned kernels, which race where there are many rows."""
    if n_rows < kernels.RACE_FROM:
        return ()
    return tuple(one.view for one in found if one.train is kernels.learned_kernel)


def _kernel(name: str, view: tuple[str, ...]) -> Candidate:
    return Candidate(name, view, kernels.cost, kernels.learned_kernel)


def _cost_of_linear(m: int, n: int) -> float:
    return 2.0 * m * n**2 + 50.0 * m * n


def _cost_of_sorting(m: int, n: int) -> float:
    return 200.0 * m * n


def _cost_of_forest(m: int, n: int) -> float:
    looked_at = min(0.3 * n, _LOOKED_AT)
    return _RANDOM * _TREE_FACTOR * m * looked_at * max(1.0, np.log2(m / 10.0))


# Presets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """What a preset changes.

    Attributes
    ----------
    candidates : frozenset of str or None
        The only ones that are tried; all where None.
    refitted : int
        How many times as large as usual a table may be for the whole procedure to be repeated without each fold, which
        the reported figure then comes from.
    n_runs : int
        Runs with other folds and seeds, whose predictions are averaged; few rows have three anyway.
    """

    candidates: frozenset[str] | None = None
    refitted: int = 1
    n_runs: int = 1


PRESETS = {
    None: Preset(),
    "fast": Preset(frozenset({"linear", "best single feature", "boosted trees"}), 0),
    "best": Preset(refitted=10, n_runs=3),
}


def read_preset(name: Any) -> Preset:
    """The preset of this name; a `Preset` is one itself, for the library's own use.

    Raises
    ------
    ValueError
        For another name.
    """
    if isinstance(name, Preset):
        return name
    if not isinstance(name, str | None) or name not in PRESETS:
        raise ValueError(f"preset must be None, 'fast' or 'best': found {name!r}.")
    return PRESETS[name]


# Time ----------------------------------------------------------------------------------------------------------------

# Operations in a second of one processor, measured on 2,000 to 30,000 rows of 40 to 100 features: products of matrices
# are many times as fast as what looks up its operands. A machine that is slower shows it by the first candidates.
_RATES: dict[Any, float] = {
    linear: 5e9,
    single_feature: 5e9,
    kernels.learned_kernel: 1.8e10,
    boosted_trees: 8e8,
    random_trees: 8e8,
}
# Weight of the estimate, in seconds of measured time.
_TRUST = 0.3


class Work(NamedTuple):
    """Seconds that a candidate is expected to take on an idle machine.

    Attributes
    ----------
    race : float
        The rounds of all rivals, where these have not been run.
    rest : float
        What follows unless it is behind in the race.
    """

    race: float
    rest: float


class Pace:
    """How long candidates take, relative to what was expected of those before.

    Parameters
    ----------
    task : Task
    n_features : int
        Columns of one part of a view.
    """

    def __init__(self, task: Task, n_features: int):
        self._task, self._n_features = task, n_features
        jobs = n_threads() if task.n_jobs is None or task.n_jobs < 1 else min(task.n_jobs, n_threads())
        self._n_threads = min(jobs, len(task.folds.tests))  # the folds keep no more of them busy
        self._expected = self._taken = 0.0
        self._has_raced = False

    def work(self, candidate: Candidate) -> Work:
        """What lies before a candidate."""
        task, race = self._task, 0.0
        if (
            candidate.train is kernels.learned_kernel
            and candidate.view in task.rivals
            and not self._has_raced
        ):
            race = kernels.cost_of_race(task.n_rows, [self._n_features * len(view) for view in task.rivals])
        rate = self._rate(candidate)
        return Work(race / rate, candidate.cost(task.n_rows, self._columns(candidate)) / rate)

    def seconds(self, work: Work) -> float:
        """About how long this will take."""
        return sum(work) * (self._taken + _TRUST) / (self._expected + _TRUST)

    def note(self, candidate: Candidate, work: Work, member: Member | None, seconds: float) -> None:
        """A candidate has taken this long, or, where it was behind and there is no member, the race has.

        What counts is the work that was done: trees and rounds that end early say nothing about how fast others are.
        """
        self._taken += seconds
        self._has_raced |= work.race > 0
        done = 0.0
        if member is not None:
            done = work.rest if member.work is None else member.work / self._rate(candidate)
        self._expected += work.race + done

    def _rate(self, candidate: Candidate) -> float:
        return _RATES[candidate.train] * self._n_threads

    def _columns(self, candidate: Candidate) -> int:
        return self._n_features * len(candidate.view)
