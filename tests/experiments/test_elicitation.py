"""The experiment with simulated judges, and the calibration of preferences on real arguments."""

from __future__ import annotations

import numpy as np
import pytest

from preflearn import BradleyTerry
from preflearn.kernels import NystromMap
from preflearn.metrics import calibration_of_preferences
from preflearn_experiments.arguments import read_arguments, text_kernels
from preflearn_experiments.elicitation import METHODS, coverage, run, simulate


def test_questions_by_information_with_features_need_fewer_answers():
    def mean_needed(features, asked_by):
        curves = [simulate(30, 4.0, features, asked_by, seed, at_least=0, at_most=80) for seed in (0, 1)]
        return np.mean([curve.needed() or 80 for curve in curves])

    best = mean_needed("informative", "information")
    assert best < 0.6 * mean_needed("informative", "random")
    assert best < 0.6 * mean_needed(None, "random")


def test_elicitation_reports_and_resumes(tmp_path):
    options = {"sizes": (12,), "spreads": (4.0,), "trials": 1, "at_most": 20}
    report = run(**options, resume=tmp_path / "units.json")
    assert [row["method"] for row in report.rows] == list(METHODS)
    assert run(**options, resume=tmp_path / "units.json").rows == report.rows


@pytest.mark.parametrize("kernel", ["linear", "items"])
def test_intervals_cover_what_they_say(kernel):
    shares = [coverage(60, 300, seed, kernel=kernel) for seed in range(40)]
    assert 0.91 < np.mean(shares) < 0.98


def test_real_preferences_are_calibrated(real_data):
    """The default on arguments of topics that took no part in training."""
    arguments = read_arguments(real_data("ukp_convarg1").parent)
    K = sum(text_kernels(arguments.texts).values())
    X = NystromMap("precomputed", basis=np.arange(len(K))).fit_transform(K)
    test = np.isin(arguments.topics, np.unique(arguments.topics)[::4])
    model = BradleyTerry().fit_pairs(X, arguments.pairs[~test])
    h, j = arguments.pairs[test].T
    found = calibration_of_preferences(model.win_probability(X[h], X[j]))
    assert found.expected_calibration_error < 0.03 and found.accuracy > 0.75
