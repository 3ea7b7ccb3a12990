"""Candidates of different kinds instead of one learner: `AutoRanker` on rows with targets, and the report about it.

The model is the one that the leaderboard shows to be best: where a linear ranker, or a single feature, orders held-out
rows better than everything else together, it is that one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ... import AutoRanker
from ...comparisons import encode_queries
from ...model_selection._tally import tally_scores
from ...model_selection.intervals import freedom_of, most_effective, placement_variance, wilson_interval
from ...report.contents import (
    BEST_FEATURE,
    Baseline,
    Choice,
    Estimate,
    Influence,
    LeaderboardTable,
    Roc,
    SetSizes,
    TrainingReport,
)
from ...report.inspection.rows import model_rows
from ...tables.data import RankingData
from .details import SHOWN_FEATURES, InputColumns, shuffled_influence
from .options import Learner, TrainingOptions
from .problem import Chosen
from .ranking import HeldOutScores, RankingProblem
from .train import describe

# Differences with a larger p-value may be due to chance.
_LEVEL = 0.05
# Half the width above which an interval says little about other data.
_WIDE = 0.03


class Candidates:
    """Candidates of different kinds, held out on the same folds; the questions of `preflearn.auto.training.train`.

    Attributes
    ----------
    seen : ndarray of bool of shape (m,)
        Whether each row has a held-out prediction that is not biased by a choice; of many rows only a sample has one.
    held_out : HeldOutScores
        NaN in queries and folds that were not seen.
    is_extended : bool
        Whether the members were chosen on a sample and then trained on all rows but a fifth of it.

    Examples
    --------
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.io import RankingData
    >>> from preflearn.auto.training.options import Learner, TrainingOptions
    >>> from preflearn.auto.training.train import train
    >>> X, y, qid, names = load_demo()
    >>> options = TrainingOptions(learner=Learner.auto, time_limit=0.1)
    >>> found = train(RankingProblem(RankingData(X, y, qid, list(names)), options))
    >>> found.report.leaderboard.simplest, found.model.predict(X, qid=qid).shape
    ('linear', (719,))
    """

    # How to get a linear model where it is as good as any.
    linear_advice = ": --learner rankrls --kernel linear gives one with coefficients that can be read"

    def __init__(self, problem: RankingProblem):
        self.problem = problem
        self.column_shares: dict[str, float] | None = None

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
        self.take(model)
        # Only this report needs these attributes.
        for name in ("cv_predictions_", "cv_folds_"):
            delattr(model, name)
        return model

    def take(self, model: AutoRanker) -> None:
        """Describe this model, fitted on the rows of the problem."""
        problem = self.problem
        self.seen = ~np.isnan(model.cv_predictions_)
        # Members that were extended beyond the sample were trained on more rows than have a fold.
        self.is_extended = model.n_training_rows_ > np.count_nonzero(model.cv_folds_ >= 0)
        problem.hold_out_folds(model.cv_folds_, self.seen, one_part=self.is_extended)
        scores = np.where(self.seen, model.cv_predictions_, 0.0)
        values = problem.by_unit(scores)
        values[np.unique(problem.division.units.codes[~self.seen])] = np.nan
        self.held_out = HeldOutScores(scores, values)
        self.model = model
        self.board = LeaderboardTable.of(model.leaderboard_, self._about_leaderboard())

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
        division, two_classes = self.problem.division, np.unique(y).size == 2
        what = f"inside {n_folds} folds, each ordered by a model that was trained without its fold."
        if division.one_part:
            what = f"inside {n_folds} folds of the held-out part. {division.sentence}."
        strata = (y == y.max()).astype(np.int64) if two_classes else np.zeros(y.size, dtype=np.int64)
        return Estimate(
            "AUC" if two_classes else "concordance",
            tally.share,
            wilson_interval(
                tally.share, placement_variance(tally, strata), most_effective(y), freedom=freedom_of(y)
            ),
            f"How a new pair of rows would be ordered: {tally.n_pairs:,} pairs {what}",
            "from the placement values of the rows (DeLong), in Wilson's form. It treats the trained models as fixed "
            "and is too narrow where models vary a lot",
        )

    def sets(self) -> SetSizes | None:
        return self.problem.sets_of(np.where(self.seen, self.held_out.scores, np.nan))

    def _about_leaderboard(self) -> str:
        text = (
            "Every candidate was scored on the same held-out folds, with settings chosen on the other folds. The model "
            "is their combination, or the best or simplest of them where that orders held-out rows better; its own "
            "figure is that of the whole procedure, choices included."
        )
        if self.is_extended:
            text = (
                f"{self.problem.division.one_part} was held out, and every score is that of these "
                f"{self._held_out_what}. Learned kernels and boosted trees with a share in the model were trained on "
                "all rows but the held-out ones, the other candidates on the rest of the sample. Settings, and which "
                "candidates have a share, were chosen on the whole sample. The model is their combination, or the best "
                "of them where that orders held-out rows better."
            )
        if self.problem.division.unit == "query":
            text += (
                " p: Wilcoxon's signed ranks over queries against the simplest, corrected by Holm's method."
            )
        return text

    @property
    def _held_out_what(self) -> str:
        return "queries" if self.problem.division.unit == "query" else "rows"

    def baselines(self) -> tuple[list[Baseline], str]:
        board, model = self.board, self.board.model
        rows = [Baseline(f"{model.name} (this model)", model.score or np.nan, is_model=True)]
        for row in board.rows[1:]:
            if row.name in (board.simplest, BEST_FEATURE) and row.score is not None:
                p = model.pvalue if row.name == board.simplest else None
                rows.append(Baseline(row.name, row.score, pvalue=p))
        where = f"measured on the same held-out {self._held_out_what}"
        return rows, f"Simple candidates, {where if self.is_extended else 'held out on the same folds'}."

    def influence(self) -> dict[str, Any]:
        found = self._importance()
        names = found.names
        largest = np.sort(np.argsort(-found.values, kind="stable")[:SHOWN_FEATURES])
        because = "The model is not a weighted sum of the features"
        shuffled = shuffled_influence(self.model, self.problem, because, features=largest.tolist())
        note = f"The {SHOWN_FEATURES} most important of {len(names):,} features are shown."
        return {
            "importance": found,
            "influence": shuffled,
            "influence_note": note if len(names) > SHOWN_FEATURES else "",
        }

    def _importance(self) -> Influence:
        columns, shares = InputColumns.of(self.problem), self.model.feature_importances_
        names = list(self.problem.feature_names) if columns is None else columns.names
        if self.column_shares is not None:
            names = [name for name in self.column_shares if columns is None or name in columns.names]
            shares = np.array([self.column_shares[name] for name in names])
        elif columns is not None:
            shares = columns.sums(shares)
        return Influence(
            names,
            shares,
            "share of the importance",
            "Where the parts of the model put their weight, before anything is shuffled: coefficients, the learned "
            "metric of the kernels (how steeply the score changes with a feature) and the gain of the splits of the "
            "trees, each adding up to 1 and weighted by the part's share.",
        )

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
                else "the only one that finished in time"
            )
        folds = "folds of a sample" if self.is_extended else "folds"
        return (
            Choice(
                "learner",
                "AutoRanker",
                f"{len(tried)} candidates of different kinds{limit}, held out on the same {folds}",
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
        if self.is_extended:
            return [
                f"Candidates were chosen on a sample of the {m:,} rows, the learned kernels and boosted trees among "
                f"them then trained on all rows but {n:,} ({what} drawn at random), which every figure here comes from."
            ]
        return [f"Learned from {n:,} of {m:,} rows, {what} drawn at random."]

    def describe(self) -> dict[str, Any]:
        return {
            "alpha_path": None,
            "leaderboard": self.board,
            "next_steps": self._next_steps(),
            **self.problem.describe(Chosen(None, None, self.held_out)),
        }

    def _next_steps(self) -> tuple[str, ...]:
        """What the figures suggest, as sentences."""
        steps, board, division = [], self.board, self.problem.division
        model = board.model
        left_out = [row.name for row in board.rows if row.out_of_time]
        if left_out:
            steps.append(f"Allow more time: there was not enough for {' and '.join(left_out)}.")
        if model.name == board.simplest or (model.pvalue is not None and model.pvalue > _LEVEL):
            text = f"The {board.simplest} model is as good as anything that was tried, as far as these data can tell"
            steps.append(f"{text}{self.linear_advice}.")
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
        steps.append("Evaluate the model on data that was not used here: preflearn evaluate.")
        return tuple(steps)


def report_of(model: AutoRanker, X: Any, y: Any, qid: Any, title: str) -> TrainingReport:
    """The report about a fitted `AutoRanker`, from the data that it was fitted on.

    Parameters
    ----------
    model : AutoRanker
    X, y, qid : as in its ``fit``
    title : str
    """
    if np.isnan(model.best_score_):
        raise ValueError(
            "There is no honest figure to report: best_score_ is NaN, which fit has warned about."
        )
    found = model_rows(model, X)
    encoder = model.encoder_
    names = found.names if encoder is None else [str(one) for one in encoder.get_feature_names_out()]
    columns = None
    if encoder is not None and hasattr(encoder, "feature_names_in_"):
        columns = {name: _column(X, name) for name in encoder.encoders_}
    data = RankingData(
        np.asarray(found.Z), np.asarray(y, dtype=np.float64), None if qid is None else np.asarray(qid), names,
        source="the training data", encoder=encoder, columns=columns,
    )  # fmt: skip
    problem = RankingProblem(data, TrainingOptions(learner=Learner.auto, time_limit=model.time_limit))
    problem.title = title
    notes = problem.check()
    search = Candidates(problem)
    inner = found.model
    if np.asarray(model.cv_predictions_).shape != problem.y.shape:
        raise ValueError(
            f"report needs the data that the model was trained on, {len(model.cv_predictions_):,} rows: found "
            f"{len(problem.y):,}."
        )
    search.take(inner)
    if encoder is not None:  # importances are those of the columns of the table, used or not
        search.column_shares = dict(zip(encoder.kinds_, model.feature_importances_.tolist()))
    return describe(problem, search, inner, notes)


def _column(X: Any, name: str) -> np.ndarray:
    """A column of a table as numbers, or as objects with "" where a value is missing."""
    if isinstance(X, Mapping):
        values = np.asarray(X[name])
    else:
        import narwhals as nw

        values = nw.from_native(X, eager_only=True)[name].to_numpy()
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if values.dtype != object:
        return values
    found = np.empty(values.shape, dtype=object)
    found[:] = ["" if one is None or one != one else one for one in values.tolist()]
    return found
