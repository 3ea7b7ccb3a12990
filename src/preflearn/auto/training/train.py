"""The algorithm of ``preflearn train``, the same for rankings and preferences, and for one learner and several."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from ... import __version__
from ...report.contents import AlphaPath, Baseline, Choice, Estimate, Roc, SetSizes, TrainingReport
from .conclusions import Problem, conclude, influence_of, with_details
from .options import Learner
from .preparation import prepare

Tell = Callable[[str], None]


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
    from .automatic import Candidates
    from .ranking import RankingProblem

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
