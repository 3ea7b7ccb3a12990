"""Preferences: items, and which of them are preferred to which; single preferences are held out, and whole judges."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import expit

from ... import RankRLS, RankRLSCV
from ...comparisons import encode_queries
from ...errors import InputError
from ...metrics import calibration_of_preferences
from ...metrics.single_columns import best_feature_of_preferences
from ...model_selection import HeldOut
from ...model_selection._intervals import wilson_interval
from ...report.contents import BEST_FEATURE, AlphaPath, Baseline, Calibration, Choice, Estimate, Roc, SetSizes
from ...tables.data import PreferenceData
from .options import TrainingOptions
from .preparation import BASELINE_FEATURES, Chosen, Preparation, choose_learner

# Folds that the scale of the probabilities is fitted on, and the least number of preferences for that.
_CALIBRATION_FOLDS, _CALIBRATED_FROM = 5, 50


class PreferenceProblem:
    """Learn to order items from preferences between them.

    Parameters
    ----------
    data : PreferenceData
    options : TrainingOptions
    source : str
        Names of the files, for the report.
    lengths : ndarray of shape (m,), optional
        Lengths of texts: preferring the longer one is then a baseline.
    prompt : ndarray of shape (l,), optional
        What the texts of each preference answer: all preferences of a prompt are held out together.
    """

    rows_leave = False

    def __init__(
        self,
        data: PreferenceData,
        options: TrainingOptions,
        source: str = "memory",
        lengths: np.ndarray | None = None,
        prompt: np.ndarray | None = None,
    ):
        self.data, self.lengths = data, lengths
        self.prompts = None if prompt is None else encode_queries(prompt, len(data))
        self.options, self.why_single = choose_learner(options)
        self.X, self.feature_names = data.X, data.feature_names
        first = "table" if lengths is None else "texts"
        self.steps: list[tuple[str, Any]] = [] if data.encoder is None else [(first, data.encoder)]
        self.ready: Choice | None = None
        if lengths is not None and sp.issparse(data.X):
            why = "rare words have larger weights, and every text has unit norm: nothing to scale"
            self.ready = Choice("features", "words, weighted by tf-idf", why)
        self.title = f"Preference model from {source}"

    def check(self) -> list[str]:
        if len(self.data) < 2:
            raise InputError("one preference is too few to learn from and hold out: expected 2 or more")
        return []

    def hold_out(self, prepared: Preparation) -> str:
        return "exact leave-preference-out"

    def choose_alpha(self, prepared: Preparation) -> Chosen:
        search = RankRLSCV(self.options.alphas, keep_predictions=True, **prepared.kernel)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The best alpha")  # the report says so
            search.fit_pairs(
                prepared.X, self.data.pairs, magnitude=self.data.magnitude, weight=self.data.weight
            )
        best = int(np.flatnonzero(search.alphas_ == search.alpha_)[0])
        differences = np.asarray(search.__dict__.pop("cv_predictions_"))[best]
        search.set_params(keep_predictions=False)
        path = AlphaPath(search.alphas_, search.cv_scores_, search.alpha_)
        if self._by_prompt:
            assert self.prompts is not None
            differences = self._hold_out_groups(prepared, search.alpha_, self.prompts.codes).preferences()[0]
        return Chosen(search, path, differences)

    @property
    def _by_prompt(self) -> bool:
        """Whether prompts have several preferences, so that one would tell about another."""
        return self.prompts is not None and 1 < self.prompts.n_groups < len(self.data)

    def _hold_out_groups(self, prepared: Preparation, alpha: float, groups: np.ndarray) -> Any:
        learner = RankRLS(alpha, **prepared.kernel)
        data = self.data
        weights = {"magnitude": data.magnitude, "weight": data.weight}
        return HeldOut.of_pairs(learner, prepared.X, data.pairs, **weights, groups=groups)

    def estimate(self, prepared: Preparation, chosen: Chosen) -> tuple[Estimate, Roc | None]:
        checks = (*self._without_judges(prepared, chosen), *self._bias_to_length(chosen))
        if self._by_prompt:
            return self._estimate_by_prompt(chosen, checks), None
        share, n = float(chosen.path.scores.max()), len(self.data)
        held_out = (
            f"Each of {n:,} preferences was predicted by a model that was trained without it "
            "(leave-preference-out, identical to refitting); its items may occur in others."
        )
        method = (
            f"Wilson's interval of a share of {n:,}, taken as independent trials. Preferences that share "
            "items or judges are not independent, and the interval is then too narrow"
        )
        interval = wilson_interval(share, share * (1 - share) / n, n)
        return Estimate("concordance", share, interval, held_out, method, checks=checks), None

    def _estimate_by_prompt(self, chosen: Chosen, checks: tuple[Choice, ...]) -> Estimate:
        """Share in the right order with all preferences of a prompt held out together; prompts are the trials."""
        assert self.prompts is not None
        n, n_prompts = len(self.data), self.prompts.n_groups
        right = 0.5 + 0.5 * np.sign(chosen.held_out)
        share = float(right.mean())
        sums = np.bincount(self.prompts.codes, weights=right - share)
        variance = float((sums**2).sum()) / n**2 * n_prompts / (n_prompts - 1)
        held_out = (
            f"Each of {n:,} preferences was predicted by a model that was trained without any preference of its "
            f"prompt ({n_prompts:,} prompts): what to expect of a new prompt."
        )
        method = f"Wilson's interval with the {n_prompts:,} prompts as independent trials"
        interval = wilson_interval(share, variance, n_prompts)
        return Estimate("concordance", share, interval, held_out, method, checks=checks)

    def _without_judges(self, prepared: Preparation, chosen: Chosen) -> tuple[Choice, ...]:
        """Accuracy with all preferences of a judge held out together."""
        judge = self.data.judge
        if judge is None:
            return ()
        judges = encode_queries(judge, len(self.data))
        if judges.n_groups < 2:
            return ()
        held_out = self._hold_out_groups(prepared, chosen.path.chosen, np.asarray(judge))
        share = float(np.ravel(held_out.score())[0])
        return (
            Choice(
                "leave-judge-out",
                f"{share:.4f}",
                f"share in the right order when all preferences of a judge are held out together ({judges.n_groups} "
                "judges): what to expect of a new judge",
            ),
        )

    def _bias_to_length(self, chosen: Chosen) -> tuple[Choice, ...]:
        """How often the model prefers the longer text of a held-out pair, compared with the judges."""
        if self.lengths is None:
            return ()
        longer = np.sign(self.lengths[self.data.pairs[:, 0]] - self.lengths[self.data.pairs[:, 1]])
        differ = longer != 0
        if not differ.any():
            return ()
        judges = float(np.mean(longer[differ] > 0))
        agree = np.sign(chosen.held_out[differ]) * longer[differ]
        model = float(np.mean(0.5 + 0.5 * agree))
        return (
            Choice(
                "bias to length",
                f"{100 * model:.0f} % / {100 * judges:.0f} %",
                "held-out pairs in which the model, and in which the judges, prefer the longer text",
            ),
        )

    def calibration(self, chosen: Chosen) -> Calibration | None:
        """Held-out differences as probabilities, and whether these can be trusted.

        p = 1 / (1 + exp(-s d)) for the held-out difference d, with the slope s fitted on the other folds.
        """
        n = len(self.data)
        if n < _CALIBRATED_FROM:
            return None
        differences = chosen.held_out
        folds = np.random.default_rng(self.options.seed).permutation(n) % _CALIBRATION_FOLDS
        probability = np.empty(n)
        for fold in range(_CALIBRATION_FOLDS):
            test = folds == fold
            probability[test] = expit(_slope(differences[~test]) * differences[test])
        found = calibration_of_preferences(probability)
        return Calibration(
            found.confidence,
            found.won,
            found.weight,
            found.expected_calibration_error,
            f"Each of {n:,} held-out differences became a probability by one slope, fitted on four fifths of the other "
            "preferences. A point on the diagonal is perfectly calibrated.",
        )

    def sets(self, chosen: Chosen) -> SetSizes | None:
        return None  # there are no queries

    def baselines(self, name: str, prepared: Preparation, chosen: Chosen) -> tuple[list[Baseline], str]:
        right = 0.5 + 0.5 * np.sign(chosen.held_out)
        share = float(right.mean()) if self._by_prompt else float(chosen.path.scores.max())
        rows, notes = [Baseline(name, share, is_model=True)], []
        if self.lengths is not None:
            longer = np.sign(self.lengths[self.data.pairs[:, 0]] - self.lengths[self.data.pairs[:, 1]])
            rows.append(Baseline("the longer text", float(np.mean(0.5 + 0.5 * longer))))
        if self.X.shape[1] > BASELINE_FEATURES:
            notes.append(f"The best single feature was left out: there are more than {BASELINE_FEATURES:,}.")
        else:
            rows.append(Baseline(BEST_FEATURE, best_feature_of_preferences(self.X, self.data.pairs)))
            notes.append(
                "The single feature and its direction were chosen for each preference by the others."
            )
        return rows, " ".join(notes)

    def comparisons(self) -> dict[str, Any]:
        return {"pairs": self.data.pairs}

    def describe(self, chosen: Chosen) -> dict[str, Any]:
        what = "items" if self.lengths is None else "texts"
        counts = {"preferences": len(self.data), what: self.X.shape[0], "features": self.X.shape[1]}
        if self.data.judge is not None:
            counts["judges"] = encode_queries(self.data.judge, len(self.data)).n_groups
        return {
            "summary": self.data.in_brief(),
            "counts": counts,
            "data": {name: f"{count:,}" for name, count in counts.items()},
            "unit": "preference",
            "labels": np.empty(0),
            "values": np.empty(0),
            "sizes": np.empty(0),
            "calibration": self.calibration(chosen),
        }


def _slope(differences: np.ndarray) -> float:
    """The slope s > 0 of largest likelihood, Π 1 / (1 + exp(-s d))."""
    scale = float(np.abs(differences).mean())
    if scale == 0:
        return 0.0

    def loss(log_slope: float) -> float:
        return float(np.logaddexp(0.0, -np.exp(log_slope) * differences / scale).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded").x) / scale)
