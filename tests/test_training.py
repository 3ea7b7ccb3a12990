"""Parts of a training: baselines held out as models are, checks of intervals, errors that are composed from fields."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse as sp

from preflearn.auto.training.options import KernelName, Learner, TrainingOptions
from preflearn.auto.training.preference import PreferenceProblem
from preflearn.auto.training.preparation import prepare
from preflearn.auto.training.ranking import HeldOutScores, RankingProblem
from preflearn.auto.training.train import train
from preflearn.cli.settings import as_option, option_name
from preflearn.comparisons import encode_queries
from preflearn.errors import InputError, Remedy
from preflearn.io import PreferenceData, RankingData
from preflearn.metrics import concordance
from preflearn.metrics.single_columns import best_feature_of_preferences, best_feature_scores
from preflearn.model_selection._intervals import check_mean_interval
from strategies import examples


@given(seed=st.integers(0, 2**31), sparse=st.booleans())
@examples(20)
def test_the_best_feature_is_chosen_by_the_other_queries(seed, sparse):
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(5), 6))
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    X[np.abs(X) < 0.3] = 0
    found = best_feature_scores(sp.csr_array(X) if sparse else X, y, encode_queries(qid, 30))
    for query in range(5):
        others, own = qid != query, qid == query
        candidates = [(k, sign) for k in range(4) for sign in (1, -1)]
        shares = [concordance(y[others], s * X[others, k], qid[others]) for k, s in candidates]
        tied = [c for c, share in zip(candidates, shares) if share >= max(shares) - 1e-12]
        assert any(np.array_equal(found[own], s * X[own, k]) for k, s in tied)


@given(seed=st.integers(0, 2**31))
@examples(20)
def test_the_best_feature_is_chosen_by_the_other_preferences(seed):
    rng = np.random.default_rng(seed)
    X, pairs = rng.integers(0, 4, size=(8, 3)).astype(float), rng.integers(0, 8, size=(7, 2))
    won = np.sign(X[pairs[:, 0]] - X[pairs[:, 1]])
    shares = []
    for k in range(7):
        others = np.delete(won, k, axis=0).sum(axis=0)
        best = int(np.abs(others).argmax())
        shares.append(0.5 + 0.5 * won[k, best] * (1 if others[best] >= 0 else -1))
    assert best_feature_of_preferences(X, pairs) == pytest.approx(np.mean(shares))
    assert best_feature_of_preferences(sp.csr_array(X), pairs) == pytest.approx(np.mean(shares))


def test_intervals_of_normal_values_are_confirmed_and_of_others_not():
    rng = np.random.default_rng(0)
    good = check_mean_interval(np.clip(rng.normal(0.7, 0.05, size=200), 0, 1), random_state=0)
    assert good.width_ratio == pytest.approx(1, abs=0.05) and good.coverage == pytest.approx(0.95, abs=0.02)
    odd = check_mean_interval(np.r_[np.full(9, 0.5), 1.0], random_state=0)
    assert odd.coverage < 0.9 or odd.width_ratio < 0.9
    with pytest.raises(ValueError, match="at least four"):
        check_mean_interval([0.5, 0.6, 0.7])


def test_alpha_chosen_by_the_other_queries():
    by_alpha = np.random.default_rng(0).random((4, 6))
    held_out = HeldOutScores(np.empty(0), by_alpha[0], by_alpha)
    slow = [by_alpha[np.delete(by_alpha, q, axis=1).mean(axis=1).argmax(), q] for q in range(6)]
    assert held_out.mean_without_choice == pytest.approx(np.mean(slow))


def test_both_problems_take_one_path():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(10), 6)
    y = X[:, 0] ** 3 + 0.1 * rng.normal(size=60)
    names, options = ["a", "b", "c"], TrainingOptions(kernel=KernelName.rbf, alphas=[0.1, 1.0])
    stages: list[str] = []
    ranking = train(RankingProblem(RankingData(X, y, qid, names), options), tell=stages.append)
    pairs = np.array([(i, j) for i in range(60) for j in range(0, 60, 4) if y[i] > y[j]])
    items = PreferenceData(X, pairs, np.arange(60).astype(str), names)
    preference = train(PreferenceProblem(items, options), tell=stages.append)
    assert len(stages) == 12 and stages[0] == stages[6]
    for found in (ranking, preference):
        report = found.report
        assert report.estimate.value > 0.8 and report.influence is not None
        assert report.influence.names[int(np.argmax(report.influence.values))] == "a"
        assert [row.is_model for row in report.baselines].count(True) == 1
        assert found.model.predict(X).shape == (60,)
        assert "alpha" in report.notes[-1] and "grid" in report.notes[-1]
    assert ranking.report.counts == {"rows": 60, "queries": 10, "features": 3}


def test_an_option_that_the_kernel_would_ignore_is_refused():
    options = TrainingOptions(kernel=KernelName.linear, gamma=1.0)
    with pytest.raises(InputError, match=r"gamma would be ignored by the linear kernel.*Pass kernel='rbf'"):
        prepare(np.eye(5), options, rows_leave=True)
    with pytest.raises(InputError, match="6 basis vectors are more than the 5 rows"):
        prepare(np.eye(5), TrainingOptions(n_basis=6), rows_leave=True)
    assert TrainingOptions().learner is Learner.rankrls


@pytest.mark.parametrize(
    ("remedy", "python", "option"),
    [
        (Remedy("encode", {"a": "words"}, "for text"), "encode={'a': 'words'} for text", "--encode a=words for text"),
        (Remedy("drop", ["a"]), "drop=['a']", "--drop a"),
        (Remedy("missing", 0.0, "to fill it in"), "missing=0.0 to fill it in", "--read missing=0 to fill it in"),
        (Remedy("missing", float("nan")), "missing=nan", None),
        (Remedy("delimiter", ";"), "delimiter=';'", "--read delimiter=';'"),
        (Remedy("query", None), "query=None", "--no-query"),
        (Remedy("target", None), "target=None", None),
        (Remedy("n_basis", 5, "or fewer"), "n_basis=5 or fewer", "--set n_basis=5 or fewer"),
        (Remedy("item", purpose="with a column"), "item=... with a column", "--read item=... with a column"),
        (Remedy("allow_unknown", True), "allow_unknown=True", None),
    ],
)  # fmt: skip
def test_remedies_as_arguments_and_as_options(remedy, python, option):
    assert str(remedy) == python and as_option(remedy) == option


def test_an_error_survives_another_process():
    error = InputError("{argument}: 'x' is no number", Remedy("drop", ["a"]), argument="n_basis")
    assert error.worded(as_option, option_name) == "--set n_basis: 'x' is no number. Pass --drop a."
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.remedies == error.remedies
