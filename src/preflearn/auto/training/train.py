"""The algorithm of ``preflearn train``, the same for rankings and preferences, and for one learner and several."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from ... import AutoRanker, __version__
from ...comparisons import encode_queries
from ...comparisons.inputs import read_times
from ...model_selection._folds import part_of
from ...model_selection._intervals import (
    interval_inside_folds,
    placement_values,
)
from ...progress import Stages
from ...report.contents import (
    BEST_FEATURE,
    AlphaPath,
    Baseline,
    Choice,
    Estimate,
    Influence,
    LeaderboardTable,
    Roc,
    SetSizes,
    TrainingReport,
)
from ...report.inspection.explanation import model_rows
from ...shown_tables import clipped
from ...tables.data import RankingData
from .conclusions import (
    LEVEL,
    LONGEST_NAME,
    SHOWN_FEATURES,
    InputColumns,
    Problem,
    conclude,
    influence_of,
    shuffled_influence,
    with_details,
)
from .options import Learner, TrainingOptions
from .preparation import Chosen, prepare
from .ranking import HeldOutScores, RankingProblem

Tell = Callable[[str], None]
# Half the width above which an interval says little about other data.
_WIDE = 0.03


class Trained(NamedTuple):
    """A fitted model, and the report about it."""

    model: Any
    report: TrainingReport


def train(problem: Problem, *, tell: Tell = lambda stage: None, details: bool = True) -> Trained:
    """Fit a model, estimate how good it is, compare it with baselines, and describe what it uses.

    Parameters
    ----------
    problem : RankingProblem or PreferenceProblem
        The data, and the options with the learner already settled.
    tell : callable, optional
        Called with the name of each stage as it begins.
    details : bool, default=True
        Whether the report has what only a page shows: the influence of the features, example queries.

    Returns
    -------
    Trained
        The report lacks what only the caller knows: files, command, time.

    Examples
    --------
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.io import RankingData
    >>> from preflearn.auto.training.options import KernelName, TrainingOptions
    >>> from preflearn.auto.training.ranking import RankingProblem
    >>> X, y, qid, names = load_demo()
    >>> options = TrainingOptions(kernel=KernelName.linear)
    >>> found = train(RankingProblem(RankingData(X, y, qid, list(names)), options))
    >>> round(found.report.estimate.value, 2), found.model.predict(X).shape
    (0.77, (719,))
    """
    notes = problem.check()
    search = _search(problem)
    learned = search.fit(tell)
    if learned is None:
        problem.options = replace(problem.options, learner=Learner.rankrls, time_limit=None)
        problem.why_single = "too few rows can be compared to choose among candidates"
        search = SingleLearner(problem)
        learned = search.fit(tell)
    report = describe(problem, search, learned, notes, tell, details=details)
    return Trained(after_steps(problem.steps, learned), report)


def describe(
    problem: Problem,
    search: Any,
    learned: Any,
    notes: list[str],
    tell: Tell = lambda stage: None,
    *,
    details: bool = True,
) -> TrainingReport:
    """The report about what a search has learned: how good it is, better than what, what it uses."""
    tell("estimating the held-out concordance")
    estimate, roc = search.estimate()
    tell("comparing with baselines")
    baselines, baselines_note = search.baselines()
    report = TrainingReport(
        title=problem.title,
        choices=search.choices(),
        estimate=estimate,
        roc=roc,
        baselines=_ordered([*baselines, Baseline("random order", 0.5)]),
        baselines_note=baselines_note,
        notes=(*notes, *search.notes()),
        seed=problem.options.seed,
        version=__version__,
        sets=search.sets(),
        **search.describe(),
    )
    if details:
        tell("measuring the influence of the features")
        report = with_details(replace(report, **search.influence()), problem, learned)
    tell("drawing conclusions")
    return conclude(report, problem, learned)


def _search(problem: Problem) -> Any:
    """One learner with the best alpha, or candidates of different kinds."""
    if problem.options.learner is not Learner.auto:
        return SingleLearner(problem)
    assert isinstance(problem, RankingProblem)  # preferences have a learner by now
    return Candidates(problem)


def _ordered(rows: list[Baseline]) -> tuple[Baseline, ...]:
    """Best first, the model before its equals."""
    return tuple(sorted(rows, key=lambda row: (-row.value, not row.is_model)))


def after_steps(steps: list[tuple[str, Any]], learned: Any) -> Any:
    """The model that is saved: what makes the features, then what was learned from them."""
    if isinstance(learned, Pipeline):
        return Pipeline([*steps, *learned.steps])
    return Pipeline([*steps, ("learn", learned)]) if steps else learned


class SingleLearner:
    """One learner whose alpha is chosen by cross-validation."""

    def __init__(self, problem: Problem):
        self.problem = problem

    def fit(self, tell: Tell) -> Pipeline:
        problem = self.problem
        tell("scaling, kernel and basis vectors")
        self.prepared = prepare(
            problem.X, problem.options, rows_leave=problem.rows_leave, ready=problem.ready
        )
        self.method = problem.hold_out(self.prepared)
        tell(f"choosing alpha by {self.method}")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The best alpha")  # a note says so
            self.chosen = problem.choose_alpha(self.prepared)
        self.learned = Pipeline([*self.prepared.steps, ("learn", self.chosen.learner)])
        return self.learned

    def estimate(self) -> tuple[Estimate, Roc | None]:
        return self.problem.estimate(self.prepared, self.chosen)

    def baselines(self) -> tuple[list[Baseline], str]:
        name = f"{self.prepared.choices[0].value}, {self.prepared.title} (this model)"
        return self.problem.baselines(name, self.prepared, self.chosen)

    def influence(self) -> dict[str, Any]:
        found, note = influence_of(self.learned, self.prepared, self.problem)
        return {"influence": found, "influence_note": note}

    def choices(self) -> tuple[Choice, ...]:
        learner, *others = self.prepared.choices
        if self.problem.why_single:
            learner = replace(learner, why=f"{learner.why}; {self.problem.why_single}")
        path = self.chosen.path
        why = f"best of {len(path.alphas)} by {self.method}" if len(path.alphas) > 1 else "as asked"
        return (learner, *others, Choice("alpha", f"{path.chosen:.4g}", why))

    def sets(self) -> SetSizes | None:
        return self.problem.sets(self.chosen)

    def notes(self) -> list[str]:
        return _note_at_edge(self.chosen.path)

    def describe(self) -> dict[str, Any]:
        return {"alpha_path": self.chosen.path, **self.problem.describe(self.chosen)}


def _note_at_edge(path: AlphaPath) -> list[str]:
    """The best alpha may lie beyond the grid."""
    if len(path.alphas) < 2 or np.ptp(path.scores) == 0:
        return []
    for end, other, edge in (
        ("smallest", "smaller", path.alphas.min()),
        ("largest", "larger", path.alphas.max()),
    ):
        if path.chosen == edge:
            return [
                f"The best alpha, {path.chosen:.3g}, is the {end} of the grid: try {other} values to be sure."
            ]
    return []


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

    def __init__(self, problem: RankingProblem):
        self.problem = problem
        self.column_shares: dict[str, float] | None = None

    def fit(self, tell: Callable[[str], None]) -> AutoRanker | None:
        """The model; None where too few rows can be compared for an honest choice among candidates."""
        problem, options = self.problem, self.problem.options
        stage = "trying candidates of different kinds"
        tell(stage)
        model: Any = AutoRanker(
            time_limit=options.time_limit, random_state=options.seed, verbose=int(options.verbose)
        )
        told = nullcontext() if options.verbose else Stages.told_to(lambda text: tell(f"{stage}: {text}"))
        with warnings.catch_warnings(), told:
            warnings.filterwarnings("ignore", message="best_score_ is NaN")
            model.fit(problem.X, problem.y, qid=problem.data.qid, groups=problem.units)
        model.set_params(verbose=0)
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
        self.is_extended = model.n_training_rows_ > int(np.count_nonzero(model.cv_folds_ >= 0))
        problem.hold_out_folds(model.cv_folds_, self.seen, one_part=self.is_extended)
        scores = np.where(self.seen, model.cv_predictions_, 0.0)
        values = problem.by_unit(scores)
        values[np.unique(problem.division.units.codes[~self.seen])] = np.nan
        self.held_out = HeldOutScores(scores, values)
        self.model = model
        self.board = LeaderboardTable.of(model.leaderboard_, self._about_leaderboard())
        if problem.data.events is not None:
            self.board = replace(self.board, scoring=problem.measure)

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
        order, events = self.problem.order[self.seen], self.problem.data.events
        events = None if events is None else events[self.seen]
        n_folds, division = np.count_nonzero(~np.isnan(self.held_out.values)), self.problem.division
        folds = encode_queries(division.units.codes[self.seen], order.size)
        what = f"inside {n_folds} folds, each ordered by a model that was trained without its fold."
        if division.one_part:
            what = f"inside {n_folds} folds of the held-out part. {division.sentence}."
        owners = part_of(self.problem.units, np.flatnonzero(self.seen))
        fitted = self.model.predict(self.problem.X)[self.seen]
        tally, _, interval = interval_inside_folds(
            order, self.held_out.scores[self.seen], fitted, folds, owners, events
        )
        if owners is not None:
            what += (
                f" {self.problem.counted_groups}, {len(self.problem.data):,} rows: no fold divides a group."
            )
        return Estimate(
            self.problem.measure,
            tally.share,
            interval,
            f"How a new pair of rows would be ordered: {tally.n_pairs:,} pairs {what}",
            placement_values(owners, inside_folds=True),
        )

    def sets(self) -> SetSizes | None:
        return self.problem.sets_of(np.where(self.seen, self.held_out.scores, np.nan))

    def _about_leaderboard(self) -> str:
        ahead = self.model.leaderboard_.ahead
        here = f" (here by {ahead})" if ahead else ""
        text = (
            "Every candidate was scored on the same held-out folds, with settings chosen on the other folds. The model "
            "is their combination, unless the best of them is ahead by more than one standard error over the folds"
            f"{here}, or the linear one or a single feature is ahead at all. The figure of the model is that of this "
            "whole procedure, choices included, so that a candidate may stand above it."
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
        if model.name == board.simplest or (model.pvalue is not None and model.pvalue > LEVEL):
            text = f"The {board.simplest} model is as good as anything that was tried, as far as these data can tell"
            # A single learner would read all rows of a table at once.
            advice = ": --learner rankrls --kernel linear gives one with coefficients that can be read"
            steps.append(f"{text}{'' if self.problem.note_on_parts else advice}.")
        low, high = self._estimate.interval
        if high - low > 2 * _WIDE:
            unit = "queries" if division.unit == "query" else "rows"
            unit = unit if self.problem.units is None else "groups"
            steps.append(
                f"The interval is {high - low:.2f} wide. Four times as many {unit} with known targets would halve it."
            )
        if division.unit == "query" and self.held_out.defined.size > 1:
            worst = clipped(str(division.labels[int(np.nanargmin(self.held_out.values))]), LONGEST_NAME)
            steps.append(
                f"Look at the queries that come out worst, {worst} first: preflearn.inspection.explain shows which "
                "features put an item where it is."
            )
        steps.append("Evaluate the model on data that was not used here: preflearn evaluate.")
        return tuple(steps)


def report_of(model: AutoRanker, X: Any, y: Any, qid: Any, groups: Any, title: str) -> TrainingReport:
    """The report about a fitted `AutoRanker`, from the data that it was fitted on.

    Parameters
    ----------
    model : AutoRanker
    X, y, qid, groups : as in its ``fit``
    title : str
    """
    if np.isnan(model.best_score_):
        raise ValueError(
            "There is no honest figure to report: best_score_ is NaN, which fit has warned about."
        )
    found = model_rows(model, X)
    encoder, (times, events) = model.encoder_, read_times(y, None)
    names = found.names if encoder is None else [str(one) for one in encoder.get_feature_names_out()]
    columns = None
    if encoder is not None and hasattr(encoder, "feature_names_in_"):
        columns = {name: _column(X, name) for name in encoder.encoders_}
    data = RankingData(
        np.asarray(found.Z), np.asarray(times, dtype=np.float64), None if qid is None else np.asarray(qid), names,
        source="the training data", encoder=encoder, columns=columns,
        clusters=None if groups is None else np.asarray(groups), events=events,
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
