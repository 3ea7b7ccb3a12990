"""The training itself, the same for rankings and preferences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.pipeline import Pipeline

from .. import __version__
from ..inspection import feature_influence
from ..report.contents import AlphaPath, Baseline, Choice, Estimate, Influence, Roc, TrainingReport
from .options import Learner, TrainingOptions
from .preparation import Preparation, prepare

# Shuffling a feature costs a prediction of the sampled rows.
SHUFFLED_ROWS = 1000
_SHUFFLED_FEATURES = 100
_SHUFFLES = 5
SHOWN_FEATURES = 15


class Chosen(NamedTuple):
    """A learner fitted with the best alpha, and what was held out on the way.

    Attributes
    ----------
    learner : fitted estimator or None
    path : AlphaPath or None
    held_out : object
        What the problem needs for its estimate and its baselines.
    """

    learner: Any
    path: Any
    held_out: Any


class Problem(Protocol):
    """What can be learned: a ranking or preferences.

    Attributes
    ----------
    X : features; feature_names : their names
    steps : list of (name, fitted transformer)
        What makes the features of what users have: the first steps of the saved pipeline.
    ready : Choice or None
        Why the features are not to be scaled, where they are not.
    title : str
        For the report.
    rows_leave : bool
        Whether whole rows are held out, or only comparisons between rows that stay.
    """

    X: Any
    feature_names: list[str]
    steps: list[tuple[str, Any]]
    ready: Choice | None
    title: str
    rows_leave: bool
    options: TrainingOptions

    def check(self) -> list[str]:
        """Refuse data that nothing can be learned from; what is worth knowing comes back as notes."""

    def hold_out(self, prepared: Preparation) -> str:
        """Settle what is held out as one; the cross-validation in words."""

    def choose_alpha(self, prepared: Preparation) -> Chosen:
        """Fit with the alpha that orders what is held out best."""

    def estimate(self, prepared: Preparation, chosen: Chosen) -> tuple[Estimate, Roc | None]:
        """How well new data would be ordered."""

    def baselines(self, name: str, prepared: Preparation, chosen: Chosen) -> tuple[list[Baseline], str]:
        """Simpler ways to order the same held-out data, and how they were measured."""

    def comparisons(self) -> dict[str, Any]:
        """What is known, as `feature_influence` takes it."""

    def describe(self, chosen: Chosen) -> dict[str, Any]:
        """Fields of the report about the data and what was held out."""


class Trained(NamedTuple):
    """A pipeline, and what is said about it."""

    model: Pipeline
    report: TrainingReport


def train(
    problem: Problem, options: TrainingOptions, *, tell: Callable[[str], None] = lambda stage: None
) -> Trained:
    """Choose alpha by cross-validation, fit, estimate, compare with baselines, and ask what the model looks at.

    Parameters
    ----------
    problem : RankingProblem or PreferenceProblem
    options : TrainingOptions
    tell : callable, optional
        Called with the name of each stage as it begins.

    Returns
    -------
    Trained
        The report lacks what only the caller knows: files, command, time.

    Examples
    --------
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.io import RankingData
    >>> from preflearn.training.options import KernelName
    >>> from preflearn.training.ranking import RankingProblem
    >>> X, y, qid, names = load_demo()
    >>> options = TrainingOptions(kernel=KernelName.linear)
    >>> found = train(RankingProblem(RankingData(X, y, qid, list(names)), options), options)
    >>> round(found.report.estimate.value, 2), found.model.predict(X).shape
    (0.77, (719,))
    """
    if options.learner is Learner.auto:
        from .automatic import train_automatically

        found = train_automatically(problem, options, tell=tell)
        return _conclude(found, problem, options.seed, tell)
    notes = problem.check()
    tell("scaling, kernel and basis vectors")
    prepared = prepare(problem.X, options, rows_leave=problem.rows_leave, ready=problem.ready)
    method = problem.hold_out(prepared)
    tell(f"choosing alpha by {method}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The best alpha")  # a note says so
        chosen = problem.choose_alpha(prepared)
    learned = Pipeline([*prepared.steps, ("learn", chosen.learner)])
    tell("estimating the held-out concordance")
    estimate, roc = problem.estimate(prepared, chosen)
    tell("comparing with baselines")
    name = f"{prepared.choices[0].value}, {prepared.title} (this model)"
    baselines, baselines_note = problem.baselines(name, prepared, chosen)
    tell("measuring the influence of the features")
    influence, influence_note = _influence(learned, prepared, problem, options.seed)
    report = TrainingReport(
        title=problem.title,
        choices=(*prepared.choices, _choice_of_alpha(chosen.path, method)),
        alpha_path=chosen.path,
        estimate=estimate,
        roc=roc,
        baselines=tuple(sorted([*baselines, Baseline("random order", 0.5)], key=lambda row: -row.value)),
        baselines_note=baselines_note,
        influence=influence,
        influence_note=influence_note,
        notes=(*notes, *_note_at_edge(chosen.path)),
        seed=options.seed,
        version=__version__,
        **problem.describe(chosen),
    )
    return _conclude(Trained(Pipeline([*problem.steps, *learned.steps]), report), problem, options.seed, tell)


def _conclude(found: Trained, problem: Problem, seed: int, tell: Callable[[str], None]) -> Trained:
    from .conclusions import concluded

    tell("drawing conclusions")
    learned = found.model[len(problem.steps) :] if problem.steps else found.model
    return concluded(found, problem, learned, seed)


def _choice_of_alpha(path: AlphaPath, method: str) -> Choice:
    why = f"best of {len(path.alphas)} by {method}" if len(path.alphas) > 1 else "as asked"
    return Choice("alpha", f"{path.chosen:.4g}", why)


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
                f"The best alpha, {path.chosen:.3g}, is the {end} of the grid: try {other} ones to be sure."
            ]
    return []


def _influence(
    model: Pipeline, prepared: Preparation, problem: Problem, seed: int
) -> tuple[Influence | None, str]:
    """Coefficients of a linear model; for other kernels what shuffling a feature costs."""
    names = problem.feature_names
    shown = (
        f"The {SHOWN_FEATURES} largest of {len(names):,} features are shown."
        if len(names) > SHOWN_FEATURES
        else ""
    )
    coef = getattr(model[-1], "coef_", None)
    if prepared.is_linear and coef is not None:
        return _coefficients(list(names), np.asarray(coef), scaled=bool(prepared.steps)), shown
    if len(names) > _SHUFFLED_FEATURES:
        return None, (
            f"Left out: the kernel is not linear, and shuffling each of {len(names):,} features in turn would "
            "take long. A linear kernel shows coefficients."
        )
    return shuffled_influence(model, problem, seed, "The kernel is not linear"), shown


def shuffled_influence(
    model: Any, problem: Problem, seed: int, because: str, *, features: list[int] | None = None
) -> Influence:
    """What shuffling a feature costs.

    Parameters
    ----------
    because : str
        Why there are no coefficients, as the beginning of a sentence.
    features : list of int or None
        Only these columns.
    """
    names = problem.feature_names
    found = feature_influence(
        model,
        problem.X,
        n_repeats=_SHUFFLES,
        features=features,
        feature_names=names,
        random_state=seed,
        **problem.comparisons(),
    )
    among = "rows of a query" if found.over == "queries" else "rows"
    text = (
        f"{because}, so there are no coefficients. A bar shows how much concordance falls when the "
        f"values of that feature are shuffled among the {among} (mean of {found.n_repeats} shuffles; line: 95 % "
        f"interval over {found.over}). It is measured on {found.n_rows:,} rows of the training data: it says what "
        "the model uses, not what is worth collecting. Features that stand in for each other both look small."
    )
    errors = found.intervals[:, 1] - found.values
    return Influence(found.names, found.values, "loss of concordance when shuffled", text, errors)


def _coefficients(names: list[str], coef: np.ndarray, scaled: bool) -> Influence:
    if scaled:
        text = (
            "The score is a weighted sum of the scaled features: a bar to the right means that higher values "
            "rank higher. Bars can be compared with each other, since every feature has variance 1; "
            "correlated features share their influence."
        )
        return Influence(names, coef, "coefficient of the scaled feature", text)
    text = (
        "The score is a weighted sum of the features: a bar to the right means that higher values rank higher. "
        "Features that occur together share their influence."
    )
    return Influence(names, coef, "coefficient of the feature", text)
