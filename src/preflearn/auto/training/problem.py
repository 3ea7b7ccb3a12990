"""What a ranking and a set of preferences have in common: the questions that a training asks of its data."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...report.contents import Baseline, Choice, Estimate, Roc, SetSizes
from .options import TrainingOptions
from .preparation import Preparation

# Shuffling a feature costs a prediction of the sampled rows.
SHUFFLED_ROWS = 1000
# With more features the search for the best single one is left out.
BASELINE_FEATURES = 2000


class Chosen(NamedTuple):
    """A learner fitted with the best alpha, and its held-out predictions.

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
        Steps that compute the features from the columns of the file: the first steps of the saved pipeline.
    ready : Choice or None
        Why the features are not scaled, where they are not.
    title : str
        For the report.
    rows_leave : bool
        Whether whole rows are held out, or only comparisons between rows that stay.
    options : TrainingOptions
        With the learner settled: "auto" only where candidates of different kinds are compared.
    why_single : str
        Why "auto" became a single learner; empty where that goes without saying.
    """

    X: Any
    feature_names: list[str]
    steps: list[tuple[str, Any]]
    ready: Choice | None
    title: str
    rows_leave: bool
    options: TrainingOptions
    why_single: str

    def check(self) -> list[str]:
        """Raise InputError for data without anything to learn; return notes about the rest."""

    def hold_out(self, prepared: Preparation) -> str:
        """Decide what is held out together; return a description of the cross-validation."""

    def choose_alpha(self, prepared: Preparation) -> Chosen:
        """Fit with the alpha that orders the held-out data best."""

    def estimate(self, prepared: Preparation, chosen: Chosen) -> tuple[Estimate, Roc | None]:
        """Estimate how well new data would be ordered."""

    def baselines(self, name: str, prepared: Preparation, chosen: Chosen) -> tuple[list[Baseline], str]:
        """Order the same held-out data in simpler ways; return the results and how they were measured."""

    def sets(self, chosen: Chosen) -> SetSizes | None:
        """How many items of a new query to show; None where nothing can be said."""

    def comparisons(self) -> dict[str, Any]:
        """Return the targets as arguments of `feature_influence`."""

    def describe(self, chosen: Chosen) -> dict[str, Any]:
        """Return the fields of the report about the data and what was held out."""
