"""The procedure of `AutoRanker`, from rows of numbers to a combination: candidates, members, combination, estimate.

`learn` is all of it. Up to 60,000 rows `choose` sees all rows, and for small tables is repeated without each fold for
the figure that is reported; beyond, it sees a sample, and `extension` trains the members with a share on the others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import label_columns
from ..model_selection._choice import Scoring, read_scoring
from ..model_selection._folds import Folds, order_by_content, part_of, read_folds, shuffled_folds
from ..model_selection._nested import RowJudge
from ..model_selection._performance import PerformanceEstimate
from ..model_selection._splitters import QueryKFold
from ..numerics.threads import threads_limited
from ..progress import Stage, Stages
from ..squared.devices.expansion import DeviceExpansions
from ..squared.holdout.base import rows_outside
from .candidates import Candidate, Pace, Preset, Work, candidates, rivals
from .combination import FoldScores, clearly_positive
from .extension import MoreRows, can_extend, extend
from .features import Features, weighted_scores
from .leaderboard import BEHIND, TIME_LIMIT, Attempt, Trial, weigh
from .sample import MOST_ROWS
from .tasks import Task, UnitScale, targets_of

_N_FOLDS = 5
# Folds to choose by where the whole procedure is repeated without one of those.
_INNER_FOLDS = 3
# Maximum number of rows that candidates learn from.
_MOST_ROWS = 60_000
# Up to this number of cells of the table, the whole procedure is repeated without each fold for the reported figure.
_REFITTED_CELLS = 50_000
# Likewise up to this number of rows, of which runs are averaged as well: which folds few rows fall into decides about
# much. 2,400 rows took twice the time for .0008 ± .0007 in the C-index.
_FEW_ROWS, _RUNS = 1_000, 3


@dataclass(frozen=True)
class Settings:
    """The parameters of an `AutoRanker`, read.

    Attributes
    ----------
    scoring : Scoring
    limit : float
        Seconds; infinite without a limit.
    preset : Preset
    n_jobs : int or None
    seed : int
    device : DeviceExpansions or None
        Where kernels are evaluated; None for the processor.
    stages : Stages
        Where the steps are announced.
    n_folds : int
    """

    scoring: Scoring
    limit: float = np.inf
    preset: Preset = Preset()
    n_jobs: int | None = None
    seed: int = 0
    device: DeviceExpansions | None = None
    stages: Stages = Stages(None)
    n_folds: int = _N_FOLDS


@dataclass(frozen=True)
class Combination:
    """Members with the factors of their predictions, and the features that they see.

    Attributes
    ----------
    features : Features
    members : list of fitted models
    names : list of str
        The candidates that they are.
    views : list of tuple of str
    weights : ndarray of shape (k,)
    importances : ndarray of shape (n,)
        Of the features; they sum to 1.
    """

    features: Features
    members: list[Any]
    names: list[str]
    views: list[tuple[str, ...]]
    weights: np.ndarray
    importances: np.ndarray

    @classmethod
    def of(cls, trial: Trial, features: Features) -> Combination:
        """The members that have a share."""
        kept = trial.kept
        shares = np.array([one.share for one, _ in kept])
        importances = np.stack([features.to_inputs(member.importances) for _, member in kept])
        return cls(
            features,
            [member.model for _, member in kept],
            [one.candidate.name for one, _ in kept],
            [one.candidate.view for one, _ in kept],
            np.array([one.factor for one, _ in kept]),
            shares @ importances / shares.sum(),
        )

    def averaged_with(self, other: Combination, n_before: int) -> Combination:
        """The mean of ``n_before`` runs, which this is, and another one."""
        old, new = n_before / (n_before + 1), 1 / (n_before + 1)
        return Combination(
            self.features,
            self.members + other.members,
            self.names + other.names,
            self.views + other.views,
            np.r_[old * self.weights, new * other.weights],
            old * self.importances + new * other.importances,
        )

    def scores(self, rows: np.ndarray, queries: Groups) -> np.ndarray:
        """Scores of rows, shape (m,)."""
        return weighted_scores(self.features, self.members, self.views, self.weights, rows, queries)


@dataclass(frozen=True)
class Learned:
    """What `learn` has found.

    Attributes
    ----------
    trial : Trial
    combination : Combination
    rows : ndarray of int of shape (k,)
        Those that the trial is about.
    queries : Groups
        Of these.
    n_training_rows : int
    units : Groups or None
        Of these rows, those that are held out together.
    """

    trial: Trial
    combination: Combination
    rows: np.ndarray
    queries: Groups
    n_training_rows: int
    units: Groups | None = None

    def estimate(self, rows: np.ndarray, y: np.ndarray, scoring: Scoring) -> PerformanceEstimate:
        """The held-out score with its interval, from all encoded rows and their targets."""
        tests = [
            test for test, scored in zip(self.trial.folds.tests, self.trial.scored, strict=True) if scored
        ]
        judge = RowJudge(
            scoring if y.dtype.names is None else scoring.of_times(),
            Folds(tests, tests),
            self.queries,
            label_columns(y[self.rows]),
            groups=self.units,
            choices="with all choices made without it",
        )
        predictions = [self.trial.held_out[None, test, None] for test in tests]
        return judge.estimate(predictions, self.combination.scores(rows[self.rows], self.queries))

    def in_order(self, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Held-out predictions of all rows, NaN for those without one, and their folds, -1 for those without one."""
        predictions, folds = np.full(n_rows, np.nan), np.full(n_rows, -1)
        predictions[self.rows] = np.where(self.trial.scored_rows, self.trial.held_out, np.nan)
        for fold, test in enumerate(self.trial.folds.tests):
            folds[self.rows[test]] = fold
        return predictions, folds


def learn(
    rows: np.ndarray, y: np.ndarray, queries: Groups, settings: Settings, units: Groups | None = None
) -> Learned:
    """Try the candidates, combine them, and estimate how good the whole is.

    Parameters
    ----------
    rows : ndarray of shape (m, n)
    y : ndarray of shape (m,)
        Grades or scores, or censored times as of `comparisons.inputs.surv`.
    queries : Groups
    settings : Settings
    units : Groups or None
        Rows that no split divides: whole queries and groups. None where these are the queries, or the single rows of
        one ranking.
    """
    if settings.limit < np.inf:
        _compile()
    start = time.perf_counter()
    order, queries, units = _in_order(rows, y, queries, units)
    if queries.n_rows > MOST_ROWS:  # whole queries without groups are drawn before
        taken = (units or queries).sample(MOST_ROWS)
        order, queries = order[taken], encode_queries(queries.codes[taken], taken.shape[0])
        units = part_of(units, taken)
    with nullcontext() if settings.n_jobs is None else threads_limited(settings.n_jobs):
        places = (units or queries).sample(_MOST_ROWS)
        if places.shape[0] < order.shape[0]:
            found = _learn_from_sample(rows, y, order, queries, units, places, settings, start)
        else:
            found = _learn_from_all(rows, y, order, queries, units, settings, start)
        return _add_runs(found, rows, y, settings, start)


def _in_order(
    rows: np.ndarray, y: np.ndarray, queries: Groups, units: Groups | None
) -> tuple[np.ndarray, Groups, Groups | None]:
    """The rows in the order of their contents, query after query, and unit after unit where there are units."""
    if units is None:
        return (*order_by_content(rows, label_columns(y), queries), None)
    order, units = order_by_content(rows, label_columns(y), units)
    _, first, query = np.unique(queries.codes[order], return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[query]  # queries in the order in which they appear
    by_query = np.argsort(codes, kind="stable")
    return order[by_query], Groups(codes[by_query], queries.n_groups), part_of(units, by_query)


def _learn_from_all(
    rows: np.ndarray,
    y: np.ndarray,
    order: np.ndarray,
    queries: Groups,
    units: Groups | None,
    settings: Settings,
    start: float,
) -> Learned:
    rows, y = rows[order], y[order]
    trial, features = choose(rows, y, queries, settings, start, units=units)
    spent = time.perf_counter() - start
    n_folds = len(trial.folds.tests)
    if _is_repeated(len(rows), rows.shape[1], settings) and (1 + n_folds) * spent <= settings.limit:
        with settings.stages("the same without each fold", left=lambda: n_folds * spent) as stage:
            trial = _without_folds(rows, y, queries, units, _repeated(settings, trial), trial, stage)
        trial = _prefer_simple(trial, is_refitted=True)
    return Learned(trial, Combination.of(trial, features), order, queries, order.shape[0], units)


def _is_repeated(n_rows: int, n_features: int, settings: Settings) -> bool:
    """Whether there are so few rows or cells that the whole procedure is repeated without each fold."""
    most = settings.preset.refitted * _REFITTED_CELLS
    return n_rows * n_features <= most or (n_rows <= _FEW_ROWS and most > 0)


def _learn_from_sample(
    rows: np.ndarray,
    y: np.ndarray,
    order: np.ndarray,
    queries: Groups,
    units: Groups | None,
    places: np.ndarray,
    settings: Settings,
    start: float,
) -> Learned:
    """Choose on a sample, the rows at some places of the order; then train on all rows but a fold of it."""
    sample, part = order[places], encode_queries(queries.codes[places], places.shape[0])
    together = part_of(units, places)
    # Under a time limit there may be no time for more rows.
    trial, features = choose(
        rows[sample], y[sample], part, settings, start, units=together, is_sample=settings.limit == np.inf
    )
    # The fold with the most queries to compare stays out.
    n_learned, fold = sample.shape[0], int(np.argmax(trial.folds.sizes))
    held = places[trial.folds.tests[fold]]
    # The weights are chosen by parts of the fold, which is none where it is one group.
    is_divisible = units is None or np.unique(units.codes[held]).size > 1
    if is_divisible and can_extend(trial, order.shape[0], settings.limit - (time.perf_counter() - start)):
        targets = np.zeros(y.shape[0])
        targets[order] = targets_of(y[order], queries)
        targets = UnitScale(targets[sample])(targets)
        more = MoreRows.without(held, features, rows, targets, order, queries, fold, settings.device)
        sample, part = order[held], encode_queries(queries.codes[held], held.shape[0])
        together = part_of(units, held)
        folds = _folds(y[sample], part, settings, together)
        trial = extend(trial, more, rows[sample], targets[sample], part, folds, settings.stages)
        n_learned = more.n_rows
    return Learned(trial, Combination.of(trial, features), sample, part, n_learned, together)


def _add_runs(found: Learned, rows: np.ndarray, y: np.ndarray, settings: Settings, start: float) -> Learned:
    """The mean of several runs with other folds and seeds, where there are few rows or a preset asks for it.

    A simple model stays simple. Runs on a sample would only dilute members that have learned from more rows.
    """
    n_rows, n_features = rows.shape
    is_few = n_rows <= _FEW_ROWS and _is_repeated(n_rows, n_features, settings)
    n_runs = _RUNS if is_few else settings.preset.n_runs
    is_simple = all(one.candidate.is_simple for one, _ in found.trial.kept)
    if is_simple or found.n_training_rows != found.rows.shape[0]:
        return found
    combination, n_averaged = found.combination, 1
    seconds = sum(one.seconds for one in found.trial.attempts)
    for number in range(1, n_runs):
        if time.perf_counter() - start + seconds > settings.limit:
            break
        again = replace(_repeated(settings, found.trial), seed=settings.seed + number)

        def left(to_go: int = n_runs - number) -> float:
            return to_go * seconds

        with settings.stages(f"run {number + 1} of {n_runs}", left=left), suppress(ValueError):
            # Of very few rows, other folds may have nothing to compare.
            trial, features = choose(rows[found.rows], y[found.rows], found.queries, again, units=found.units)
            combination = combination.averaged_with(Combination.of(trial, features), n_averaged)
            n_averaged += 1
    return replace(found, combination=combination)


# Candidates and members -----------------------------------------------------------------------------------------------


def choose(
    rows: np.ndarray,
    y: np.ndarray,
    queries: Groups,
    settings: Settings,
    start: float = 0.0,
    *,
    units: Groups | None = None,
    is_sample: bool = False,
) -> tuple[Trial, Features]:
    """Train the candidates and combine them.

    Of a sample they are trained as far as the choice needs it: the members will learn from more rows.
    """
    folds, features = _folds(y, queries, settings, units), Features().fit(rows)
    targets = targets_of(y, queries)
    options, names = candidates(rows.shape[0], queries.n_groups), settings.preset.candidates
    options = options if names is None else [one for one in options if one.name in names]
    task = Task(
        features.views(rows, queries),
        UnitScale(targets)(targets),
        queries,
        folds.by_concordance,
        settings.n_jobs,
        settings.seed,
        rivals(options, rows.shape[0]),
        settings.device,
        is_sample=is_sample,
        units=units,
    )
    attempts = hold_out(options, task, features.kept_.size, settings, start)
    joining = [one for one in attempts if one.member is not None and one.candidate.joins]
    return _prefer_simple(weigh(attempts, joining, task.y, queries, folds)), features


def hold_out(
    options: Sequence[Candidate], task: Task, n_features: int, settings: Settings, start: float = 0.0
) -> list[Attempt]:
    """Candidate after candidate, as long as time allows."""
    attempts: list[Attempt] = []
    pace = Pace(task, n_features)
    repeats = 1 + len(task.folds.tests) if _is_repeated(task.n_rows, n_features, settings) else 1
    for place, candidate in enumerate(options):
        work, begun = pace.work(candidate), time.perf_counter()
        if attempts and begun - start + pace.seconds(work) > settings.limit:
            attempts.append(Attempt(candidate))
            continue

        def left(ahead: Sequence[Candidate] = options[place:], first: Work = work) -> float:
            return repeats * (pace.seconds(first) + sum(pace.seconds(pace.work(one)) for one in ahead[1:]))

        with settings.stages(candidate.name, left=left), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="All gradients")  # the leaderboard says which round
            member = candidate.train(task, candidate.view)
        seconds = time.perf_counter() - begun
        attempts.append(Attempt(candidate, member, seconds, reason=BEHIND if member is None else TIME_LIMIT))
        pace.note(candidate, work, member, seconds)
    return attempts


def _folds(y: np.ndarray, queries: Groups, settings: Settings, units: Groups | None = None) -> FoldScores:
    n_rows, scoring = y.shape[0], settings.scoring
    together = queries if units is None else units
    if units is not None and units.n_groups < 2:
        raise ValueError("One group is left, which no fold divides.")
    if together.n_groups > 1:
        n_folds = min(settings.n_folds, together.n_groups)
        cv: Any = QueryKFold(n_folds, shuffle=True, random_state=settings.seed)
        folds = read_folds(cv, np.empty((n_rows, 0)), y, n_rows, qid=together.codes)
    else:
        folds = read_folds(
            shuffled_folds(n_rows, settings.n_folds, settings.seed), np.empty((n_rows, 0)), y, n_rows
        )
    scoring.measure(y[:, None], targets_of(y, queries)[:, None], queries)  # refuses nothing to order
    found = FoldScores.of_folds(folds.tests, y, queries, scoring)
    if found.n_scored == 0:
        raise ValueError(
            "AutoRanker compares candidates on held-out rows, but no fold has two rows of a query with different "
            f"y: found {n_rows} rows in {queries.n_groups} {'query' if queries.n_groups == 1 else 'queries'}"
            f"{'' if units is None else f' and {units.n_groups} groups'}. Add rows, or fit RankRLS, which holds "
            "nothing out."
        )
    return found


def _prefer_simple(trial: Trial, *, is_refitted: bool = False) -> Trial:
    """A simple candidate instead, where it orders held-out rows clearly better than the whole procedure does.

    The best of several scores flatters itself: for each fold the choice that the other folds make is reported. Where
    the whole procedure has been repeated without each fold, its score is, whichever model is kept.
    """
    simple = [
        (one, one.member) for one in trial.attempts if one.member is not None and one.candidate.is_simple
    ]
    options = np.stack([trial.held_out, *(member.unbiased for _, member in simple)])
    by = trial.folds.choosing
    scores = by.of(options)
    if not is_refitted:
        held_out = np.empty_like(trial.held_out)
        for fold, test in enumerate(by.tests):
            held_out[test] = options[_simple_enough(by, scores, fold), test]
        trial = replace(trial, held_out=held_out)
    place = _simple_enough(by, scores)
    if place == 0:
        return trial
    best = simple[place - 1][0]
    for one in trial.attempts:
        one.share, one.factor = float(one is best), float(one is best)
    return replace(trial, name=best.candidate.name)


def _simple_enough(by: FoldScores, scores: np.ndarray, without: int | None = None) -> int:
    """The place of the whole, or of the linear ranker or then the single feature where it is clearly better.

    On few rows a simple candidate is often ahead by chance, and the single feature is the best of many.
    """
    place = 0
    for simple in range(1, len(scores)):
        if clearly_positive(scores[simple] - scores[place], without):
            place = simple
    return place


# The estimate ---------------------------------------------------------------------------------------------------------


def _without_folds(
    rows: np.ndarray,
    y: np.ndarray,
    queries: Groups,
    units: Groups | None,
    settings: Settings,
    trial: Trial,
    stage: Stage,
) -> Trial:
    """Predictions of each fold by the whole procedure on the others: what a choice by folds cannot quite give.

    A model that predicts another fold has been trained on this one, so that even a choice by the other folds knows
    a little of its labels. On few rows that is seen, in the candidates as in the whole: both are predicted again.
    Fewer folds are enough to choose by there; if anything, the figure is a little too low for it.
    """
    held_out, scored = trial.held_out.copy(), trial.folds.sizes > 0
    tried = [(one, one.member) for one in trial.attempts if one.member is not None]
    unbiased = {one.candidate.name: member.unbiased.copy() for one, member in tried}
    for fold, test in enumerate(trial.folds.tests):
        stage.count(fold, len(trial.folds.tests), "folds")
        rest = rows_outside(rows.shape[0], test)
        part, within = (encode_queries(queries.codes[some], some.shape[0]) for some in (rest, test))
        try:
            inner = replace(settings, n_folds=_INNER_FOLDS)
            without, features = choose(rows[rest], y[rest], part, inner, units=part_of(units, rest))
        except ValueError:  # too little is left to choose by
            scored[fold] = False
            continue
        held_out[test] = Combination.of(without, features).scores(rows[test], within)
        views = features.views(rows[test], within)
        for one in without.attempts:
            if one.member is not None and one.candidate.name in unbiased:
                unbiased[one.candidate.name][test] = one.member.model.predict(views[one.candidate.view])
    for one, member in tried:
        one.member = replace(member, unbiased=unbiased[one.candidate.name])
    return replace(trial, held_out=held_out, scored=scored)


def _repeated(settings: Settings, trial: Trial) -> Settings:
    """The same once more: silently, without a limit, and without what there was no time for."""
    tried = {one.candidate.name for one in trial.attempts if one.member or one.reason != TIME_LIMIT}
    return replace(settings, limit=np.inf, preset=Preset(frozenset(tried)), stages=Stages(None))


@cache
def _compile() -> None:
    """Run every candidate once on next to nothing, so that Numba has compiled what a time limit is not meant for."""
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(120, 3)), rng.normal(size=120), np.repeat(np.arange(30), 4)
    choose(X, y, encode_queries(qid, 120), Settings(read_scoring(None)))
