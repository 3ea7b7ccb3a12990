"""Held-out accuracy, calibration, leave-judge-out and length bias of models of preferences."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from preflearn import BradleyTerry, BradleyTerryCV, RankRLS, RankSVM
from preflearn.metrics import calibration_of_preferences
from preflearn.model_selection import evaluate_preferences, length_bias


def judged(n_pairs=240, n_items=40, seed=0, noise=1.0):
    """Items, preferences with the winner first, and the judge of each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_items, 4))
    pairs = np.array([rng.choice(n_items, 2, replace=False) for _ in range(n_pairs)])
    f = 2.0 * X[:, 0] / noise
    won = rng.random(n_pairs) < 1 / (1 + np.exp(f[pairs[:, 1]] - f[pairs[:, 0]]))
    return (
        X,
        np.where(won[:, None], pairs, pairs[:, ::-1]),
        np.array(["ann", "bob", "cy"])[np.arange(n_pairs) % 3],
    )


def refitted(model, X, pairs, tests, **arguments):
    """The obvious version: one fit for each set."""
    p = np.full(len(pairs), np.nan)
    for test in tests:
        stay = ~np.isin(np.arange(len(pairs)), test)
        part = {name: np.asarray(values)[stay] for name, values in arguments.items()}
        fitted = clone(model).fit_pairs(X, pairs[stay], **part)
        for k in test:
            p[k] = fitted.win_probability(X[[pairs[k, 0]]], X[[pairs[k, 1]]])[0]
    return p


def test_every_preference_is_predicted_by_a_model_without_it():
    X, pairs, judge = judged()
    ties = np.arange(len(pairs)) % 7 == 0
    tests = np.array_split(np.random.default_rng(1).permutation(len(pairs)), 4)
    model = BradleyTerry(0.3)
    found = evaluate_preferences(model, X, pairs, ties=ties, judge=judge, cv=tests)
    p = refitted(model, X, pairs, tests, ties=ties, judge=judge)
    np.testing.assert_allclose(found.probability, p, atol=1e-7)
    assert found.accuracy.share == pytest.approx(np.where(ties, 0.5, p > 0.5).mean())
    assert found.accuracy.n_pairs == len(pairs)
    expected = calibration_of_preferences(p, np.where(ties, 0.5, 1.0))
    assert found.calibration.expected_calibration_error == pytest.approx(
        expected.expected_calibration_error, abs=1e-6
    )
    by_judge = refitted(
        model, X, pairs, [np.flatnonzero(judge == name) for name in np.unique(judge)], ties=ties, judge=judge
    )
    right = np.where(ties, 0.5, by_judge > 0.5)
    assert found.new_judges.share == pytest.approx(right.mean())
    assert {label: share.share for label, share in found.by_judge.items()} == pytest.approx(
        {label: right[judge == label].mean() for label in ("ann", "bob", "cy")}
    )
    assert not hasattr(model, "answers_")  # the model passed is not fitted


def test_two_judges_are_enough_to_hold_one_out():
    X, pairs, _ = judged(80)
    judge = np.array(["ann", "bob"])[np.arange(80) % 2]
    found = evaluate_preferences(BradleyTerry(0.3), X, pairs, judge=judge, cv=2)
    p = refitted(BradleyTerry(0.3), X, pairs, [np.flatnonzero(judge == name) for name in ("ann", "bob")])
    assert found.new_judges.share == pytest.approx((p > 0.5).mean())


def test_groups_leave_together_and_widen_the_interval():
    # Each preference is asked five times: without groups, a copy of it stays in the training set.
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 40))
    pairs = np.repeat(np.arange(60).reshape(30, 2), 5, axis=0)
    groups = np.repeat(np.arange(30), 5)
    alone = evaluate_preferences(BradleyTerry(0.1), X, pairs)
    together = evaluate_preferences(BradleyTerry(0.1), X, pairs, groups=groups)
    assert alone.accuracy.share > 0.95 > 0.8 > together.accuracy.share
    width = np.diff(together.accuracy.interval)[0]
    assert width > 1.5 * 2 * 1.96 * np.sqrt(0.25 / 150)
    assert "30 groups" in str(together)


def test_the_calibration_of_the_right_model_is_good():
    X, pairs, _ = judged(3000, 200)
    found = evaluate_preferences(BradleyTerryCV(), X, pairs, cv=5)
    assert found.calibration.expected_calibration_error < 0.04
    low, high = found.accuracy.interval
    assert low < found.accuracy.share < high < low + 0.05


@pytest.mark.parametrize("model", [RankRLS(), RankSVM(kernel="rbf", gamma=0.1)])
def test_learners_without_probabilities_have_an_accuracy(model):
    X, pairs, judge = judged(120)
    tests = np.array_split(np.arange(120), 3)
    found = evaluate_preferences(model, X, pairs, judge=judge, cv=tests, texts=np.arange(40.0))
    right = []
    for test in tests:
        f = clone(model).fit_pairs(X, np.delete(pairs, test, axis=0)).predict(X)
        right += (f[pairs[test, 0]] > f[pairs[test, 1]]).tolist()
    assert found.accuracy.share == pytest.approx(np.mean(right))
    assert found.calibration is None and found.probability is None and found.new_judges_calibration is None
    assert len(found.by_judge) == 3 and found.length_bias.by_model is not None
    with pytest.raises(ValueError, match="does not take ties"):
        evaluate_preferences(model, X, pairs, ties=np.zeros(120, dtype=bool))


def test_a_pipeline_and_a_data_frame():
    X, pairs, _ = judged(100)
    frame = pd.DataFrame(1000.0 * X + 5.0, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), BradleyTerry(0.3))
    found = evaluate_preferences(pipeline, frame, pairs, cv=4)
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_allclose(
        found.probability, evaluate_preferences(BradleyTerry(0.3), scaled, pairs, cv=4).probability, atol=1e-7
    )


def test_items_without_features_and_search_in_each_training_set():
    _, pairs, _ = judged(100)
    labels = [f"item {k}" for k in range(40)]
    found = evaluate_preferences(
        BradleyTerryCV([0.1, 1.0], kernel="items"), labels, pairs, cv=3, texts=labels
    )
    assert 0.4 < found.accuracy.share < 1.0
    assert found.length_bias.n_equal > 0


def test_it_prints_itself_and_becomes_json():
    X, pairs, judge = judged()
    texts = ["x" * (k + 1) for k in range(40)]
    found = evaluate_preferences(BradleyTerry(), X, pairs, judge=judge, texts=texts)
    text = str(found)
    for part in (
        "240 preferences",
        "held-out preferences",
        "judges not seen before",
        "the longer one",
        "ann: ",
    ):
        assert part in text
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["accuracy"]["share"] == found.accuracy.share
    assert set(plain["by_judge"]) == {"ann", "bob", "cy"}


def test_length_bias_counts_as_by_hand():
    texts = ["a", "bbb", "cc", "dd"]
    pairs = [[1, 0], [1, 2], [0, 2], [2, 3], [1, 3]]
    found = length_bias(texts, pairs, ties=[False, False, False, False, True])
    assert found.longer.share == pytest.approx((1 + 1 + 0 + 0.5 + 0.5) / 5)
    assert found.n_equal == 1 and found.by_model is None
    assert found.median_ratio == pytest.approx(np.median([3, 1.5, 2, 1.5]))
    low, high = found.longer.interval
    assert low < 0.6 < high
    assert length_bias([1, 3, 2, 2], pairs).longer.share == pytest.approx(3.5 / 5)


def test_a_model_of_length_is_found_out():
    rng = np.random.default_rng(3)
    lengths = rng.permutation(np.arange(1, 81)).astype(float)
    pairs = np.array([rng.choice(80, 2, replace=False) for _ in range(300)])
    longer_first = lengths[pairs[:, 0]] > lengths[pairs[:, 1]]
    pairs = np.where(longer_first[:, None], pairs, pairs[:, ::-1])
    pairs[:60] = pairs[:60, ::-1]  # in a fifth, the shorter one was preferred
    found = evaluate_preferences(BradleyTerry(0.1), lengths[:, None] / 40, pairs, texts=lengths)
    assert found.length_bias.longer.share == pytest.approx(0.8)
    assert found.length_bias.by_model > 0.98
    assert found.length_bias.longer_right > 0.98 and found.length_bias.shorter_right < 0.02


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": StandardScaler()}, "fit_pairs"),
        ({"judge": ["ann"] * 5}, "one judge per pair"),
        ({"judge": ["ann"] * 60}, "at least two judges"),
        ({"judge": ["ann", None] * 30}, "group"),
        ({"groups": [0] * 60}, "one group"),
        ({"groups": [0] * 5}, "groups must hold"),
        ({"ties": [1] * 60}, "as booleans"),
        ({"texts": "abc"}, "a single text"),
        ({"texts": ["abc"]}, "one text per row"),
        ({"texts": [1.0] * 39 + ["a"]}, "found both"),
        ({"texts": [-1.0] * 40}, "at least 0"),
        ({"pairs": [[0, 1]]}, "at least two preferences"),
        ({"pairs": [[0, 40], [1, 2]]}, "row"),
        ({"cv": [[0, 1], [2, 3]]}, "every preference"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, message):
    X, pairs, _ = judged(60)
    arguments = {"model": BradleyTerry(), "pairs": pairs, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        evaluate_preferences(arguments.pop("model"), X, arguments.pop("pairs"), **arguments)


def test_the_weight_of_a_pair_counts_as_that_many_pairs():
    rng = np.random.default_rng(0)
    p, y, w = rng.uniform(0.3, 0.95, 40), rng.integers(0, 2, 40), rng.integers(1, 4, 40)
    weighted = calibration_of_preferences(p, y, weight=w, n_bins=1)
    repeated = calibration_of_preferences(np.repeat(p, w), np.repeat(y, w), n_bins=1)
    assert weighted.n_pairs == 40 and repeated.n_pairs == w.sum()
    for name in vars(weighted).keys() - {"n_pairs"}:
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-12)
