"""Preferences: items, and which of them are preferred to which; single preferences are held out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .. import RankRLSCV
from ..errors import InputError
from ..io import PreferenceData
from ..model_selection.baselines import best_feature_of_preferences
from ..model_selection.intervals import wilson_interval
from ..report.contents import AlphaPath, Baseline, Estimate, Roc
from .options import TrainingOptions
from .preparation import Preparation
from .ranking import BASELINE_FEATURES
from .train import Chosen


class PreferenceProblem:
    """Learn to order items from preferences between them.

    Parameters
    ----------
    data : PreferenceData
    options : TrainingOptions
    source : str
        Names of the files, for the report.
    """

    rows_leave = False

    def __init__(self, data: PreferenceData, options: TrainingOptions, source: str = "memory"):
        self.data, self.options = data, options
        self.X, self.feature_names = data.X, data.feature_names
        self.title = f"Preference model from {source}"

    def check(self) -> list[str]:
        if len(self.data) < 2:
            raise InputError("one preference is too few to learn from and hold out: expected 2 or more")
        return []

    def hold_out(self, prepared: Preparation) -> str:
        return "exact leave-preference-out"

    def choose_alpha(self, prepared: Preparation) -> Chosen:
        search = RankRLSCV(self.options.alphas, **prepared.kernel)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The best alpha")  # the report says so
            search.fit_pairs(
                prepared.X, self.data.pairs, magnitude=self.data.magnitude, weight=self.data.weight
            )
        return Chosen(search, AlphaPath(search.alphas_, search.cv_scores_, search.alpha_), None)

    def estimate(self, prepared: Preparation, chosen: Chosen) -> tuple[Estimate, Roc | None]:
        share, n = float(chosen.path.scores.max()), len(self.data)
        held_out = (
            f"Every one of {n:,} preferences was predicted by a model that was trained without it "
            "(leave-preference-out, identical to refitting); its items may occur in others."
        )
        method = (
            f"Wilson's interval of a share of {n:,}, taken as independent trials. Preferences that share "
            "items or judges are not independent, and the interval is then too narrow"
        )
        return Estimate(
            "concordance", share, wilson_interval(share, share * (1 - share) / n, n), held_out, method
        ), None

    def baselines(self, name: str, prepared: Preparation, chosen: Chosen) -> tuple[list[Baseline], str]:
        rows = [Baseline(name, float(chosen.path.scores.max()), is_model=True)]
        if self.X.shape[1] > BASELINE_FEATURES:
            return rows, f"The best single feature was left out: there are more than {BASELINE_FEATURES:,}."
        rows.append(Baseline("best single feature", best_feature_of_preferences(self.X, self.data.pairs)))
        return rows, "The single feature and its direction were chosen for each preference by the others."

    def comparisons(self) -> dict[str, Any]:
        return {"pairs": self.data.pairs}

    def describe(self, chosen: Chosen) -> dict[str, Any]:
        counts = {"preferences": len(self.data), "items": self.X.shape[0], "features": self.X.shape[1]}
        return {
            "summary": self.data.in_brief(),
            "counts": counts,
            "data": {name: f"{count:,}" for name, count in counts.items()},
            "unit": "preference",
            "labels": np.empty(0),
            "values": np.empty(0),
            "sizes": np.empty(0),
        }
