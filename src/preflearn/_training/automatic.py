"""Candidates of different kinds instead of one learner: `AutoRanker` on rows with targets, and the report about it.

The model is the one that the leaderboard shows to be best: where a linear ranker, or a single feature, orders held-out
rows better than everything else together, it is that one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import AutoRanker
from ..comparisons import encode_queries
from ..model_selection._tally import tally_scores
from ..model_selection.intervals import most_effective, placement_variance, wilson_interval
from ..report.contents import Baseline, Choice, Estimate, Influence, Roc
from ..report.leaderboard import LeaderboardTable
from .conclusions import SHOWN_FEATURES, shuffled_influence
from .problem import Chosen
from .ranking import HeldOutScores, RankingProblem

# Differences with a larger p-value may be chance.
_LEVEL = 0.05
# Half the width of an interval that leaves little to be said about other data.
_WIDE = 0.03


class Candidates:
    """Candidates of different kinds, held out on the same folds; the questions of `preflearn._training.train`.

    Attributes
    ----------
    seen : ndarray of bool of shape (m,)
        Whether each row was seen by the candidates, which see a sample of many rows, and has a held-out prediction
        that no choice flatters.
    held_out : HeldOutScores
        NaN in queries and folds that were not seen.

    Examples
    --------
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.io import RankingData
    >>> from preflearn._training.options import Learner, TrainingOptions
    >>> from preflearn._training.train import train
    >>> X, y, qid, names = load_demo()
    >>> options = TrainingOptions(learner=Learner.auto, time_limit=0.1)
    >>> found = train(RankingProblem(RankingData(X, y, qid, list(names)), options))
    >>> found.report.leaderboard.simplest, found.model.predict(X, qid=qid).shape
    ('linear', (719,))
    """

    def __init__(self, problem: RankingProblem):
        self.problem = problem

    def fit(self, tell: Callable[[str], None]) -> AutoRanker | None:
        """The model; None where too few rows can be compared for an honest choice among candidates."""
        problem, options = self.problem, self.problem.options
        tell("trying candidates of different kinds")
        model: Any = AutoRanker(
            time_limit=options.time_limit, random_state=options.seed, verbose=int(options.verbose)
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="best_score_ is NaN")
            model.fit(problem.X, problem.y, qid=problem.data.qid).set_params(verbose=0)
        if np.isnan(model.best_score_):
            return None
        self.seen = ~np.isnan(model.cv_predictions_)
        problem.hold_out_folds(model.cv_folds_, self.seen)
        scores = np.where(self.seen, model.cv_predictions_, 0.0)
        values = problem.by_unit(scores)
        values[np.unique(problem.division.units.codes[~self.seen])] = np.nan
        self.held_out = HeldOutScores(scores, values)
        # The model need not carry what only this report is made of.
        for name in ("cv_predictions_", "cv_folds_"):
            delattr(model, name)
        self.model = model
        self.board = LeaderboardTable.of(model.leaderboard_, self._about_leaderboard())
        return model

    def estimate(self) -> tuple[Estimate, Roc | None]:
        problem = self.problem
        roc = problem.roc_over_units(self.held_out) if self.seen.all() else None
        if problem.division.unit == "query":
            fitted = self.model.predict(problem.X, qid=problem.data.qid)
            self._estimate = problem.estimate_over_queries(self.held_out, fitted)
        else:
            self._estimate = self._estimate_over_folds()
        return self._estimate, roc

    def _estimate_over_folds(self) -> Estimate:
        y, n_folds = self.problem.y[self.seen], np.count_nonzero(~np.isnan(self.held_out.values))
        folds = encode_queries(self.problem.division.units.codes[self.seen], y.size)
        tally = tally_scores(y, self.held_out.scores[self.seen], folds)
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

    def _about_leaderboard(self) -> str:
        text = (
            "Every candidate was held out on the same folds, its settings chosen by the other folds. The model is "
            "their combination, or the best or simplest of them where that orders held-out rows better; its own figure "
            "is that of the whole procedure, choices included."
        )
        if self.problem.division.unit == "query":
            text += (
                " p: Wilcoxon's signed ranks over queries against the simplest, corrected by Holm's method."
            )
        return text

    def baselines(self) -> tuple[list[Baseline], str]:
        board, model = self.board, self.board.model
        rows = [Baseline(f"{model.name} (this model)", model.score or np.nan, is_model=True)]
        for row in board.rows[1:]:
            if row.name in (board.simplest, "best single feature") and row.score is not None:
                p = model.pvalue if row.name == board.simplest else None
                rows.append(Baseline(row.name, row.score, pvalue=p))
        return rows, "Simple candidates, held out on the same folds."

    def influence(self) -> tuple[Influence, str]:
        model, names = self.model, self.problem.feature_names
        largest = np.sort(np.argsort(-model.feature_importances_, kind="stable")[:SHOWN_FEATURES])
        because = "The model is not a weighted sum of the features"
        found = shuffled_influence(model, self.problem, because, features=largest.tolist())
        note = f"The {SHOWN_FEATURES} most important of {len(names):,} features are shown."
        return found, note if len(names) > SHOWN_FEATURES else ""

    def choices(self) -> tuple[Choice, ...]:
        board, time_limit = self.model.leaderboard_, self.problem.options.time_limit
        parts = [
            f"{one.name} ({one.weight:.0%})"
            for one in sorted(board, key=lambda one: -one.weight)
            if one.weight
        ]
        tried = [one for one in board if not np.isnan(one.score)]
        limit = "" if time_limit is None else f" within {time_limit:g} s"
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

    def notes(self) -> list[str]:
        if self.seen.all():
            return []
        n, m = np.count_nonzero(self.seen), self.seen.size
        what = "rows" if self.problem.data.qid is None else "whole queries"
        return [f"Learned from {n:,} of {m:,} rows, {what} drawn at random, since more would hardly help."]

    def describe(self) -> dict[str, Any]:
        return {
            "alpha_path": None,
            "importance": _importance(self.model, self.problem.feature_names),
            "leaderboard": self.board,
            "next_steps": self._next_steps(),
            **self.problem.describe(Chosen(None, None, self.held_out)),
        }

    def _next_steps(self) -> tuple[str, ...]:
        """What the figures suggest, as sentences."""
        steps, board, division = [], self.board, self.problem.division
        model = board.model
        left_out = [row.name for row in board.rows if row.score is None]
        if left_out:
            steps.append(f"Allow more time: there was none for {' and '.join(left_out)}.")
        if model.name == board.simplest or (model.pvalue is not None and model.pvalue > _LEVEL):
            steps.append(
                f"The {board.simplest} model is as good as anything that was tried, as far as these data can tell: "
                "--learner rankrls --kernel linear gives one with coefficients that can be read."
            )
        low, high = self._estimate.interval
        if high - low > 2 * _WIDE:
            unit = "queries" if division.unit == "query" else "rows"
            steps.append(
                f"The interval is {high - low:.2f} wide. Four times as many {unit} with known targets would halve it."
            )
        if division.unit == "query" and self.held_out.defined.size > 1:
            worst = division.labels[int(np.nanargmin(self.held_out.values))]
            steps.append(
                f"Look at the queries that come out worst, {worst} first: preflearn.inspection.explain shows which "
                "features put an item where it is."
            )
        steps.append("Evaluate the model on data that played no part here: preflearn evaluate.")
        return tuple(steps)


def _importance(model: AutoRanker, names: list[str]) -> Influence:
    return Influence(
        list(names),
        model.feature_importances_,
        "share of the importance",
        "Where the parts of the model put their weight, before anything is shuffled: coefficients, the learned metric "
        "of the kernels (how steeply the score changes with a feature) and the gain of the splits of the trees, each "
        "adding up to 1 and weighted by the part's share.",
    )
