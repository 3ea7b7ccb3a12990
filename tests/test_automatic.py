"""AutoRanker: trees as plain arrays, weights, nested choice, an honest figure, tables, time limits, refusals."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.preprocessing import QuantileTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracles
from preflearn import AutoRanker, RankRLSCV
from preflearn.automatic import candidates, ranker
from preflearn.automatic.combination import FoldScores, choose_combination, combine, nested
from preflearn.automatic.features import Features
from preflearn.automatic.trees import Bins, TreeSum
from preflearn.comparisons import encode_queries
from preflearn.io import load_model, save_model
from preflearn.loops.quantiles import shares_below
from preflearn.metrics import concordance
from preflearn.model_selection import QueryKFold
from preflearn.selection.scoring import read_scoring


def make_data(m=120, n=5, size=10, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(m, n)), np.repeat(np.arange(m // size), size)
    utility = np.sin(2 * X[:, 0]) + (X[:, 1] > 0.3) + 0.3 * rng.normal(size=m)
    return X, np.digitize(utility, [0.0, 1.0, 1.5]).astype(float), qid


@pytest.fixture(scope="module")
def fitted():
    X, y, qid = make_data(300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranker, "_REFITTED_CELLS", 0)
        return AutoRanker(random_state=0).fit(X, y, qid=qid), X, y, qid


@pytest.fixture(autouse=True)
def without_refitting(request, monkeypatch):
    """Repeating the procedure for each fold takes six times as long: only where that is what is tested."""
    if "refitting" not in request.fixturenames:
        monkeypatch.setattr(ranker, "_REFITTED_CELLS", 0)


@parametrize_with_checks(
    [AutoRanker(random_state=0, time_limit=1e-9)],
    expected_failed_checks=lambda estimator: {
        "check_dtype_object": "columns of objects are read as a table, whose refusal names the column"
    },
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(2, 200),
    decimals=st.integers(0, 6),
    scale=st.sampled_from([2.0**-60, 2.0**-10, 1.0, 2.0**60]),
)
def test_shares_below_are_those_of_scikit_learn(seed, m, decimals, scale):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(m, 3)), decimals)
    new = np.r_[X, np.round(2 * rng.normal(size=(50, 3)), decimals)]
    transformer = QuantileTransformer(n_quantiles=min(m, 50)).fit(X)
    # scikit-learn takes values within 1e-7 of the ends as beyond them, which is all of them at a small scale.
    found = shares_below(scale * new, scale * transformer.quantiles_, transformer.references_)
    np.testing.assert_allclose(found, transformer.transform(new), atol=1e-9)


# Trees --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["boosting", "forest"])
@pytest.mark.parametrize("m", [3, 60, 400])
def test_trees_in_arrays_predict_as_scikit_learn_does(kind, m):
    rng = np.random.default_rng(m)
    X = np.round(rng.normal(size=(m, 4)), 1).astype(np.float32)  # ties at thresholds
    y = X[:, 0] * X[:, 1] + rng.normal(size=m)
    if kind == "boosting":
        model = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=3, random_state=0).fit(X, y)
        found = TreeSum.of_boosting(model)
        expected = model.predict(X) - model._baseline_prediction.item()
    else:
        model = ExtraTreesRegressor(15, random_state=0).fit(X, y)
        found, expected = TreeSum.of_mean(model.estimators_), model.predict(X)
    np.testing.assert_allclose(found.predict(X), expected, atol=1e-6)
    assert found.feature_importances_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("m", [1, 16, 17, 300])
def test_mean_of_sums_of_trees(m):
    rng = np.random.default_rng(m)
    X, y = rng.normal(size=(200, 5)).astype(np.float32), rng.normal(size=200)
    sums = [
        TreeSum.of_mean(ExtraTreesRegressor(n_trees, random_state=n_trees).fit(X, y).estimators_)
        for n_trees in (1, 4, 7)
    ]
    found, new = TreeSum.mean(sums), rng.normal(size=(m, 5))
    expected = np.mean([one.predict(new) for one in sums], axis=0)
    np.testing.assert_allclose(found.predict(new), expected, rtol=1e-12, atol=1e-14)
    assert found.feature_importances_.sum() == pytest.approx(1.0)


def test_bins_tell_rare_values_apart():
    X = np.ones((1000, 2), dtype=np.float32)
    X[:10, 0], X[:10, 1] = 0.0, 2.0
    codes = Bins(X, 63).codes
    assert (codes[:10] != codes[10:20]).all()


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_trees_grown_on_bins_compare_the_features_themselves(decimals):
    rng = np.random.default_rng(decimals)
    X = np.round(rng.normal(size=(500, 4)), decimals).astype(np.float32)  # ties, and more values than bins
    y = X[:, 0] * X[:, 1] + rng.normal(size=500)
    bins = Bins(X, 31)
    model = HistGradientBoostingRegressor(max_iter=20, max_bins=31, random_state=0).fit(bins.codes, y)
    expected = model.predict(bins.codes) - model._baseline_prediction.item()
    np.testing.assert_allclose(TreeSum.of_boosting(model, bins).predict(X), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "left_",
            0,
        ),  # of an inner node: its right child would never be looked at, but a child before its parent
        ("right_", 0),
        ("left_", 10**6),
        ("right_", 10**6),
        ("feature_", 99),
        ("feature_", -1),
        ("roots_", 10**6),
        ("threshold_", np.nan),
        ("value_", np.inf),
    ],
)
def test_damaged_trees_are_not_loaded(tmp_path, name, value):
    X, y, _ = make_data()
    trees = TreeSum.of_mean(ExtraTreesRegressor(3, random_state=0).fit(X, y).estimators_)
    inner = int(np.flatnonzero(trees.left_)[1])
    array = getattr(trees, name).copy()
    array[min(inner, array.shape[0] - 1)] = value
    setattr(trees, name, array)
    if name == "left_" and value == 0:
        trees.left_[inner] = inner  # a walk that never ends
    save_model(trees, tmp_path / "trees.preflearn")
    with pytest.raises(ValueError):
        load_model(tmp_path / "trees.preflearn")


# Features -----------------------------------------------------------------------------------------------------------


def test_views_are_what_they_say():
    X, _, qid = make_data()
    X = np.c_[X, np.full(len(X), 3.0)]
    features = Features().fit(X)
    views = features.views(X, encode_queries(qid, len(X)))
    kept = X[:, :5]
    np.testing.assert_array_equal(features.kept_, np.arange(5))
    np.testing.assert_allclose(views["s"], (kept - kept.mean(0)) / kept.std(0))
    np.testing.assert_allclose(
        views["qr"][:, 5:], oracles.relative_to_query(kept, qid, "standardise"), atol=1e-9
    )
    assert np.abs(views["q"]).max() <= 3.0
    np.testing.assert_array_equal(np.argsort(views["q"][:, 0]), np.argsort(kept[:, 0]))
    np.testing.assert_allclose(
        views["p"], oracles.relative_to_query(views["q"], qid, "standardise"), atol=1e-9
    )
    np.testing.assert_allclose(features.to_inputs(np.arange(10.0)), [5, 7, 9, 11, 13, 0])


# Combination --------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4), shrinkage=st.sampled_from([0.01, 0.1, 1.0, 10.0]))
def test_weights_equal_the_slow_version(seed, k, shrinkage):
    rng = np.random.default_rng(seed)
    t = rng.normal(size=40)
    H = np.outer(t, rng.normal(size=k)) + rng.normal(size=(40, k))
    expected = oracles.shrunk_weights(H, t, shrinkage)
    found = combine(H, t, shrinkage)
    np.testing.assert_allclose(found, expected if expected.any() else np.full(k, 1 / k), atol=1e-8)


def folds_of(y, qid, n_folds=5):
    codes = np.unique(qid, return_inverse=True)[1]
    tests = [np.flatnonzero(codes % n_folds == fold) for fold in range(n_folds)]
    sizes = np.array([np.unique(codes[test]).size for test in tests], dtype=float)
    return FoldScores(tests, lambda rows, f: concordance(y[rows], f, qid[rows]), sizes)


def test_the_setting_of_a_fold_is_chosen_by_the_others():
    X, y, qid = make_data()
    folds = folds_of(y, qid)
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(7, len(y)))
    scores = np.stack([folds.of(one) for one in predictions])
    found = nested(folds, predictions, scores)
    for test in folds.tests:
        others = np.setdiff1d(np.arange(len(y)), test)
        by_hand = [concordance(y[others], one[others], qid[others]) for one in predictions]
        np.testing.assert_array_equal(found[test], predictions[int(np.argmax(by_hand)), test])


def test_useless_members_get_little_and_one_good_member_wins():
    rng = np.random.default_rng(0)
    y, qid = rng.normal(size=500), np.repeat(np.arange(50), 10)
    folds, queries = folds_of(y, qid), encode_queries(qid, 500)
    good = y + 0.5 * rng.normal(size=500)
    H = np.c_[good, rng.normal(size=(500, 3))]
    found = choose_combination(H, H, y, queries, folds)
    assert found.weights[0] / found.weights.sum() > 0.8
    two = np.c_[good, y + 0.5 * rng.normal(size=500)]
    found = choose_combination(two, two, y, queries, folds)
    assert found.shrinkage is not None
    assert folds.mean(found.combined) > folds.mean(found.alone) + 0.02
    assert found.weights[0] == pytest.approx(found.weights[1], rel=0.2)


# The ranker ---------------------------------------------------------------------------------------------------------


def test_it_learns_what_a_linear_model_cannot(fitted):
    model, *_ = fitted
    X, y, qid = make_data(600, seed=1)
    linear = RankRLSCV().fit(*make_data(300)[:2], qid=make_data(300)[2])
    assert model.score(X, y, qid=qid) > linear.score(X, y, qid=qid) + 0.03
    assert model.score(X, y, qid=qid) == pytest.approx(model.best_score_, abs=0.06)
    assert set(np.argsort(model.feature_importances_)[-2:]) == {0, 1}
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(model.rank(X, qid=qid), oracles.positions(model.predict(X, qid=qid), qid))


def test_the_leaderboard_tells_what_was_tried(fitted):
    model, X, y, qid = fitted
    assert len(model.leaderboard_) == 7
    scores = [one.score for one in model.leaderboard_]
    assert scores == sorted(scores, reverse=True)
    assert sum(one.weight for one in model.leaderboard_) == pytest.approx(1.0)
    text = str(model.leaderboard_)
    assert "boosted trees" in text and "seconds" in text and f"{model.best_score_:.4f}" in text
    assert model.best_score_ == pytest.approx(concordance(y, model.cv_predictions_, qid))


def test_predictions_depend_on_the_query_and_not_on_the_order_of_rows(fitted):
    model, X, y, qid = fitted
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(
        model.predict(X[order], qid=qid[order]), model.predict(X, qid=qid)[order], atol=1e-9
    )
    with pytest.warns(UserWarning, match="fitted with 30 queries and predicts without qid"):
        model.predict(X[:10])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(
            model.predict(X[:10], qid=np.zeros(10)), model.predict(X, qid=qid)[:10], atol=1e-9
        )


def test_saved_and_loaded(fitted, tmp_path):
    model, X, _, qid = fitted
    save_model(model, tmp_path / "auto.preflearn")
    again = load_model(tmp_path / "auto.preflearn")
    np.testing.assert_array_equal(again.predict(X, qid=qid), model.predict(X, qid=qid))
    assert str(again.leaderboard_) == str(model.leaderboard_)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(X, qid=qid), model.predict(X, qid=qid)
    )


def test_a_damaged_ranker_is_not_loaded(fitted, tmp_path):
    model = pickle.loads(pickle.dumps(fitted[0]))
    model.views_ = ["zz"] * len(model.views_)
    save_model(model, tmp_path / "auto.preflearn")
    with pytest.raises(ValueError, match="views_"):
        load_model(tmp_path / "auto.preflearn")


@pytest.fixture
def small_trees(monkeypatch):
    """The choice among members is what is tested, not the members."""
    monkeypatch.setattr(candidates, "_BOOSTED", 10)
    monkeypatch.setattr(candidates, "_RANDOM", 8)


@pytest.mark.parametrize("refitting", [True])
def test_the_figure_is_not_flattered_by_the_choice(refitting, small_trees):
    """Targets that have nothing to do with the features: about one half, though the best of many was chosen."""
    scores = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, qid = rng.normal(size=(150, 8)), np.repeat(np.arange(15), 10)
        scores.append(AutoRanker(random_state=seed).fit(X, rng.normal(size=150), qid=qid).best_score_)
    # 675 pairs each: the mean of four has a standard error of about .01.
    assert np.mean(scores) == pytest.approx(0.5, abs=0.025)


@pytest.mark.parametrize("refitting", [True])
def test_the_figure_is_that_of_the_procedure_without_the_fold(refitting, small_trees):
    """Identical to fitting anew without a fold, and predicting it."""
    X, y, qid = make_data(100)
    model = AutoRanker(random_state=0).fit(X, y, qid=qid)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    for _, test in QueryKFold(5, shuffle=True, random_state=seed).split(X, qid=qid):
        rest = np.setdiff1d(np.arange(100), test)
        task = encode_queries(qid[rest], len(rest))
        again = AutoRanker()
        again.encoder_, again.n_features_in_ = None, 5
        again._fit_rows(X[rest], y[rest], task, read_scoring("concordance"), seed, 0.0, np.inf, n_folds=3)
        np.testing.assert_allclose(
            model.cv_predictions_[test], again._predict_rows(X[test], qid[test]), atol=1e-8
        )


def test_data_frames():
    X, y, qid = make_data(200)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame.loc[::7, "a"] = np.nan
    frame["colour"] = np.where(X[:, 2] > 0, "red", "blue")
    frame["always"] = 1
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(200) % 31, unit="D")
    model = AutoRanker(random_state=0).fit(frame, y, qid=qid)
    assert model.feature_importances_.shape == (5,)
    assert model.feature_importances_[3] == 0.0
    assert model.feature_names_in_.tolist() == ["a", "b", "colour", "always", "day"]
    shuffled = frame[["day", "colour", "b", "a", "always"]]
    np.testing.assert_allclose(model.predict(shuffled, qid=qid), model.predict(frame, qid=qid))
    with_holes = X.copy()
    with_holes[::5, 1] = np.nan
    assert AutoRanker(random_state=0, time_limit=1e-9).fit(with_holes, y, qid=qid).predict(
        X, qid=qid
    ).shape == (200,)


def test_sparse_input_equals_dense():
    X, y, qid = make_data(100)
    X[np.abs(X) < 0.5] = 0.0
    options = {"random_state": 0, "time_limit": 1e-9}
    dense = AutoRanker(**options).fit(X, y, qid=qid).predict(X, qid=qid)
    sparse = AutoRanker(**options).fit(sp.csr_array(X), y, qid=qid).predict(sp.csr_array(X), qid=qid)
    np.testing.assert_array_equal(sparse, dense)
    with pytest.raises(ValueError, match="2,001 columns. Use RankRLSCV"):
        AutoRanker().fit(sp.random_array((20, 2001), density=0.1, format="csr"), np.arange(20.0))


def test_a_time_limit_shorter_than_the_first_candidate_returns_that_one():
    X, y, qid = make_data()
    model = AutoRanker(time_limit=1e-9, random_state=0).fit(X, y, qid=qid)
    assert len(model.members_) == 1
    left_out = [one for one in model.leaderboard_ if "time limit" in one.detail]
    assert len(left_out) == 6 and all(np.isnan(one.score) for one in left_out)
    assert "left out: time limit" in str(model.leaderboard_)


def test_few_queries_and_one_query():
    X, y, _ = make_data(60)
    for qid in (None, np.zeros(60), np.arange(60) % 2, np.arange(60) % 3):
        model = AutoRanker(random_state=0, time_limit=1e-9).fit(X, y, qid=qid)
        assert 0.4 < model.best_score_ <= 1.0
        assert model.predict(X, qid=qid).shape == (60,)


def test_reproducible_and_other_measures():
    X, y, qid = make_data(100)
    first, second = (AutoRanker(scoring="ndcg@5", random_state=3).fit(X, y, qid=qid) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X, qid=qid), second.predict(X, qid=qid))
    assert "ndcg@5" in str(first.leaderboard_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 0}, "time_limit must be a positive number of seconds or None: found 0"),
        ({"time_limit": "long"}, "time_limit must be a positive number"),
        ({"scoring": "best"}, "scoring must be one of"),
    ],
)
def test_parameters_are_refused(options, message):
    X, y, qid = make_data()
    with pytest.raises(ValueError, match=message):
        AutoRanker(**options).fit(X, y, qid=qid)


def test_data_that_nothing_can_be_learned_from_are_refused():
    X, y, qid = make_data()
    with pytest.raises(ValueError, match="no query has two rows with different y"):
        AutoRanker().fit(X, qid, qid=qid)
    with pytest.raises(ValueError, match="Every feature is constant"):
        AutoRanker().fit(np.ones_like(X), y, qid=qid)
    with pytest.raises(ValueError, match="one ranking: found y with 2 columns"):
        AutoRanker().fit(X, np.c_[y, y], qid=qid)
    with pytest.raises(ValueError, match="5000, which is not a grade"):
        AutoRanker(scoring="ndcg").fit(X, np.where(y > 1, 5000.0, 0.0), qid=qid)
