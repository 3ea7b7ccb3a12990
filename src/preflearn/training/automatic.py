"""Candidates of different kinds instead of one learner: `AutoRanker` on rows with targets, and what is said about it.

The model is the one that the leaderboard shows to be best: where a linear ranker, or a single feature, orders held-out
rows better than everything else together, it is that one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.pipeline import Pipeline

from .. import AutoRanker, __version__
from ..comparisons import Groups, encode_queries
from ..model_selection.intervals import most_effective, placement_variance, wilson_interval
from ..report.contents import Baseline, Choice, Estimate, Influence, Roc, TrainingReport
from ..report.leaderboard import LeaderboardTable
from ..selection.tally import tally_scores
from .options import Learner, TrainingOptions
from .preparation import LINEAR_FEATURES
from .ranking import Division, HeldOutScores, RankingProblem
from .train import SHOWN_FEATURES, Chosen, Problem, Trained, shuffled_influence, train

# With fewer there is not enough held out to tell candidates apart.
_LEAST_ROWS = 50
_LEAST_QUERIES = 5
# Differences with a larger p-value may be chance.
_LEVEL = 0.05
# Half the width of an interval that leaves little to be said about other data.
_WIDE = 0.03


def train_automatically(
    problem: Problem, options: TrainingOptions, *, tell: Callable[[str], None] = lambda stage: None
) -> Trained:
    """Try candidates of different kinds where the data allow it, and RankRLS otherwise.

    Parameters
    ----------
    problem : RankingProblem or PreferenceProblem
    options : TrainingOptions
        With ``learner="auto"``. An option about a kernel asks for RankRLS with that kernel.
    tell : callable, optional
        Called with the name of each stage as it begins.

    Returns
    -------
    Trained

    Examples
    --------
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.io import RankingData
    >>> X, y, qid, names = load_demo()
    >>> options = TrainingOptions(learner=Learner.auto, time_limit=0.1)
    >>> found = train_automatically(RankingProblem(RankingData(X, y, qid, list(names)), options), options)
    >>> found.report.leaderboard.simplest, found.model.predict(X, qid=qid).shape
    ('linear', (719,))
    """
    why_not = _reason_against(problem, options)
    if why_not is not None or not isinstance(problem, RankingProblem):
        return _train_one(problem, options, tell, why_not)
    notes = problem.check()
    tell("trying candidates of different kinds")
    model: Any = AutoRanker(
        time_limit=options.time_limit, random_state=options.seed, verbose=int(options.verbose)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="best_score_ is NaN")
        model.fit(problem.X, problem.y, qid=problem.data.qid)
    if np.isnan(model.best_score_):
        return _train_one(problem, options, tell, "too few rows can be compared to choose among candidates")
    model.set_params(verbose=0)
    seen = _Seen.by(model, problem)
    tell("estimating the held-out concordance")
    estimate = seen.estimate(model)
    tell("measuring the influence of the features")
    influence, influence_note = _influence(model, problem, options.seed)
    board = LeaderboardTable.of(model.leaderboard_, seen.about_leaderboard())
    report = TrainingReport(
        title=problem.title,
        choices=_choices(model, options),
        alpha_path=None,
        estimate=estimate,
        roc=seen.roc,
        baselines=_baselines(board),
        baselines_note="Simple candidates, held out on the same folds.",
        influence=influence,
        influence_note=influence_note,
        importance=_importance(model, problem.feature_names),
        leaderboard=board,
        next_steps=_next_steps(board, estimate, seen),
        notes=(*notes, *seen.notes()),
        seed=options.seed,
        version=__version__,
        **problem.describe(seen.chosen),
    )
    # It need not carry what only this report was made of.
    for name in ("cv_predictions_", "cv_folds_"):
        delattr(model, name)
    return Trained(Pipeline([*problem.steps, ("learn", model)]) if problem.steps else model, report)


def _train_one(problem: Problem, options: TrainingOptions, tell: Any, reason: str | None) -> Trained:
    single = replace(options, learner=Learner.rankrls, time_limit=None)
    problem.options = single
    found = train(problem, single, tell=tell)
    return _with_reason(found, reason) if reason else found


def _reason_against(problem: Problem, options: TrainingOptions) -> str | None:
    """Why one learner is taken instead; empty where that goes without saying."""
    if not isinstance(problem, RankingProblem) or options.asks_for_a_kernel:
        if options.time_limit is not None:
            raise ValueError("a time limit would be ignored by a single learner: leave it out")
        return ""
    if problem.data.weight is not None:
        return "the candidates of auto take no weights of rows"
    n_rows, n_features = problem.X.shape
    n_queries = None if problem.data.qid is None else problem.data.n_queries
    if n_rows < _LEAST_ROWS:
        return f"{n_rows} rows are too few to choose among candidates of different kinds"
    if n_queries is not None and n_queries < _LEAST_QUERIES:
        return f"{n_queries} queries are too few to choose among candidates of different kinds"
    if n_features > LINEAR_FEATURES:
        return f"with {n_features:,} features a linear function is rich enough, and fast"
    if sp.issparse(problem.X) and problem.X.nnz < 0.1 * n_rows * n_features:
        return "the data are sparse: a linear function of many features is rich enough, and fast"
    return None


def _with_reason(found: Trained, reason: str) -> Trained:
    choices = tuple(
        replace(one, why=f"{one.why}; {reason}") if one.name == "learner" else one
        for one in found.report.choices
    )
    return Trained(found.model, replace(found.report, choices=choices))


@dataclass(frozen=True, eq=False)
class _Seen:
    """The held-out predictions of the rows that the candidates have seen, which may be a sample, and that are scored.

    Attributes
    ----------
    problem : RankingProblem
        With queries or folds as its division; rows that were not seen are a fold of their own.
    rows : ndarray of bool of shape (m,)
        Whether each row was seen and has a prediction that no choice flatters.
    held_out : HeldOutScores
        NaN in queries and folds that were not seen.
    """

    problem: RankingProblem
    rows: np.ndarray
    held_out: HeldOutScores

    @classmethod
    def by(cls, model: AutoRanker, problem: RankingProblem) -> _Seen:
        folds, qid = model.cv_folds_, problem.data.qid
        rows, n_folds = ~np.isnan(model.cv_predictions_), int(folds.max()) + 1
        if qid is None:
            codes = np.where(rows, folds, n_folds)
            units, unit, what = Groups(codes, int(codes.max()) + 1), "fold", "rows"
        else:
            units, unit, what = encode_queries(qid, folds.shape[0]), "query", "whole queries"
        method = f"{n_folds} folds of {what}, dealt at random, all choices made without it"
        problem.division = Division(units, None, unit, method, False)
        scores = np.where(rows, model.cv_predictions_, 0.0)
        values = problem.by_unit(scores)
        values[np.unique(units.codes[~rows])] = np.nan
        return cls(problem, rows, HeldOutScores(scores, values))

    @property
    def chosen(self) -> Chosen:
        return Chosen(None, None, self.held_out)

    @property
    def roc(self) -> Roc | None:
        return self.problem.roc_over_units(self.held_out) if self.rows.all() else None

    def estimate(self, model: AutoRanker) -> Estimate:
        if self.problem.division.unit == "query":
            fitted = model.predict(self.problem.X, qid=self.problem.data.qid)
            return self.problem.estimate_over_queries(self.held_out, fitted)
        y, n_folds = self.problem.y[self.rows], np.count_nonzero(~np.isnan(self.held_out.values))
        folds = encode_queries(self.problem.division.units.codes[self.rows], y.size)
        tally = tally_scores(y, self.held_out.scores[self.rows], folds)
        two_classes = np.unique(y).size == 2
        strata = (y == y.max()).astype(np.int64) if two_classes else np.zeros(y.size, dtype=np.int64)
        return Estimate(
            "AUC" if two_classes else "concordance",
            tally.share,
            wilson_interval(tally.share, placement_variance(tally, strata), most_effective(y)),
            f"How a new pair of rows would be ordered: {tally.n_pairs:,} pairs inside {n_folds} folds, each "
            "ordered by a model that was trained without its fold.",
            "from the placement values of the rows (DeLong), in Wilson's form. It takes the trained models as given "
            "and is too narrow where models vary much",
        )

    def about_leaderboard(self) -> str:
        units = self.problem.division.plural
        text = (
            "Every candidate was held out on the same folds, its settings chosen by the other folds. The model is "
            "their combination, or the best or simplest of them where that orders held-out rows better; its own figure "
            "is that of the whole procedure, choices included."
        )
        if units == "queries":
            text += (
                " p: Wilcoxon's signed ranks over queries against the simplest, corrected by Holm's method."
            )
        return text

    def notes(self) -> list[str]:
        if self.rows.all():
            return []
        n, m = np.count_nonzero(self.rows), self.rows.size
        what = "rows" if self.problem.data.qid is None else "whole queries"
        return [f"Learned from {n:,} of {m:,} rows, {what} drawn at random, since more would hardly help."]


def _choices(model: AutoRanker, options: TrainingOptions) -> tuple[Choice, ...]:
    board = model.leaderboard_
    parts = [
        f"{one.name} ({one.weight:.0%})" for one in sorted(board, key=lambda one: -one.weight) if one.weight
    ]
    tried = [one for one in board if not np.isnan(one.score)]
    limit = "" if options.time_limit is None else f" within {options.time_limit:g} s"
    if board.model.name == "combination":
        why = "their held-out predictions are combined with non-negative weights"
    else:
        why = (
            "orders held-out rows better than the candidates together"
            if len(tried) > 1
            else "the only one in time"
        )
    return (
        Choice(
            "learner",
            "AutoRanker",
            f"{len(tried)} candidates of different kinds{limit}, held out on the same folds",
        ),
        Choice("model", board.model.name, why),
        Choice("parts", ", ".join(parts), "share of each in the model"),
        Choice(
            "features",
            "as they are, standardised, as quantiles, relative to their query",
            "each candidate sees those that suit it",
        ),
    )


def _baselines(board: LeaderboardTable) -> tuple[Baseline, ...]:
    model = board.model
    rows = [
        Baseline(f"{model.name} (this model)", model.score or np.nan, is_model=True),
        Baseline("random order", 0.5),
    ]
    for row in board.rows[1:]:
        if row.name in (board.simplest, "best single feature") and row.score is not None:
            p = model.pvalue if row.name == board.simplest else None
            rows.append(Baseline(row.name, row.score, pvalue=p))
    return tuple(sorted(rows, key=lambda row: (-row.value, not row.is_model)))


def _importance(model: AutoRanker, names: list[str]) -> Influence:
    return Influence(
        list(names),
        model.feature_importances_,
        "share of the importance",
        "Where the parts of the model put their weight, before anything is shuffled: coefficients, the learned metric "
        "of the kernels (how steeply the score changes with a feature) and the gain of the splits of the trees, each "
        "adding up to 1 and weighted by the part's share.",
    )


def _influence(model: AutoRanker, problem: RankingProblem, seed: int) -> tuple[Influence, str]:
    largest = np.sort(np.argsort(-model.feature_importances_, kind="stable")[:SHOWN_FEATURES])
    found = shuffled_influence(
        model, problem, seed, "The model is not a weighted sum of the features", features=largest.tolist()
    )
    names = problem.feature_names
    note = f"The {SHOWN_FEATURES} most important of {len(names):,} features are shown."
    return found, note if len(names) > SHOWN_FEATURES else ""


def _next_steps(board: LeaderboardTable, estimate: Estimate, seen: _Seen) -> tuple[str, ...]:
    """What the figures ask for, as sentences."""
    steps, model = [], board.model
    left_out = [row.name for row in board.rows if row.score is None]
    if left_out:
        steps.append(f"Give it more time: there was none for {' and '.join(left_out)}.")
    if model.name == board.simplest or (model.pvalue is not None and model.pvalue > _LEVEL):
        steps.append(
            f"The {board.simplest} model is as good as anything that was tried, as far as these data can tell: "
            "--learner rankrls --kernel linear gives one with coefficients that can be read."
        )
    low, high = estimate.interval
    if high - low > 2 * _WIDE:
        unit = "queries" if seen.problem.division.unit == "query" else "rows"
        steps.append(
            f"The interval is {high - low:.2f} wide. Four times as many {unit} with known targets would halve it."
        )
    if seen.problem.division.unit == "query" and seen.held_out.defined.size > 1:
        worst = seen.problem.division.labels[int(np.nanargmin(seen.held_out.values))]
        steps.append(
            f"Look at the queries that come out worst, {worst} first: preflearn.inspection.explain shows which "
            "features put an item where it is."
        )
    steps.append("Measure the model on data that played no part here: preflearn evaluate.")
    return tuple(steps)


__all__ = ["train_automatically"]
