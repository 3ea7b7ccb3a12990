"""AutoRanker: trees as plain arrays, weights, nested choice, an honest figure, tables, time limits, refusals."""

from __future__ import annotations

import pickle
import re
import warnings
from copy import copy
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.preprocessing import QuantileTransformer
from sklearn.tree import ExtraTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracles
from preflearn import AutoRanker, RankRLS, RankRLSCV
from preflearn.auto import _loops, candidates, combination, extension, fitting, kernels
from preflearn.auto import trees as trees_module
from preflearn.auto._loops import TreeOptions, grow_trees, in_blocks, normal_quantiles, shares_below
from preflearn.auto.candidates import Pace, Preset
from preflearn.auto.combination import FoldScores, centred, choose_combination, combine, nested
from preflearn.auto.extension import MoreRows
from preflearn.auto.features import Features
from preflearn.auto.kernels import KernelAndCurves, as_estimator, described
from preflearn.auto.tasks import Task
from preflearn.auto.trees import Bins, TreeSum
from preflearn.comparisons import encode_queries
from preflearn.comparisons.queries import QueryComparisons
from preflearn.io import load_model, save_model, to_onnx
from preflearn.kernels.functions import Kernel
from preflearn.metrics import concordance, ndcg_scorer
from preflearn.model_selection import QueryKFold
from preflearn.model_selection._choice import read_scoring
from preflearn.model_selection._folds import order_by_content
from preflearn.squared import expansion
from preflearn.squared.expansion import Curves, kernel_moments, solve_expansion
from preflearn.tables.models.files import model_to_bytes

KERNEL = "learned kernel, quantiles and query"


def make_data(m=120, n=5, size=10, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(m, n)), np.repeat(np.arange(m // size), size)
    utility = np.sin(2 * X[:, 0]) + (X[:, 1] > 0.3) + 0.3 * rng.normal(size=m)
    return X, np.digitize(utility, [0.0, 1.0, 1.5]).astype(float), qid


@pytest.fixture(scope="module")
def fitted():
    X, y, qid = make_data(300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_REFITTED_CELLS", 0)
        return AutoRanker(random_state=0).fit(X, y, qid=qid), X, y, qid


@pytest.fixture(autouse=True)
def without_refitting(request, monkeypatch):
    """Repeating the procedure for each fold takes six times as long: only where that is what is tested."""
    if "refitting" not in request.fixturenames:
        monkeypatch.setattr(fitting, "_REFITTED_CELLS", 0)


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
    quantiles = normal_quantiles(scale * new, scale * transformer.quantiles_, transformer.references_, 3.0)
    np.testing.assert_allclose(quantiles, np.clip(ndtri(found), -3.0, 3.0), rtol=1e-14, atol=1e-15)


def test_normal_quantiles_far_into_the_tails():
    shares = np.r_[
        0.0, 10.0 ** -np.arange(300.0, 0.0, -1.0), np.linspace(0.1, 0.9, 999), 1 - 2.0 ** -np.arange(4, 54), 1
    ]
    found = normal_quantiles(shares[:, None], np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), 50.0)[:, 0]
    np.testing.assert_allclose(found, np.clip(ndtri(shares), -50.0, 50.0), rtol=1e-14, atol=1e-15)


# Trees --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [3, 60, 400])
def test_trees_in_arrays_predict_as_scikit_learn_does(m):
    rng = np.random.default_rng(m)
    X = np.round(rng.normal(size=(m, 4)), 1).astype(np.float32)  # ties at thresholds
    y = X[:, 0] * X[:, 1] + rng.normal(size=m)
    model = ExtraTreesRegressor(15, random_state=0).fit(X, y)
    found, expected = TreeSum.of_mean(model.estimators_), model.predict(X)
    np.testing.assert_allclose(found.predict(X), expected, atol=1e-6)
    assert found.feature_importances_.sum() == pytest.approx(1.0)


def walk(trees, x):
    """The score of one row, node after node."""
    total = 0.0
    for root in trees.roots_:
        node = root
        while trees.left_[node] > 0:
            goes_left = x[trees.feature_[node]] <= trees.threshold_[node]
            node = trees.left_[node] if goes_left else trees.right_[node]
        total += trees.value_[node]
    return total


@pytest.mark.parametrize("leaves", [1, 2, 8, 64, 65, 90])
def test_trees_predict_as_walks_do(leaves, monkeypatch):
    rng = np.random.default_rng(leaves)
    X = np.round(rng.normal(size=(300, 5)), 1).astype(np.float32)
    y = X[:, 0] * X[:, 1] + rng.normal(size=300)
    grown = [ExtraTreeRegressor(max_leaf_nodes=max(2, leaves), random_state=k) for k in range(4)]
    sums = TreeSum.of_mean([one.fit(X, y if leaves > 1 else 0 * y) for one in grown])
    assert (sums.threshold_ == sums.threshold_.astype(np.float32)).all()
    # Values on thresholds, next to them, and those that are not numbers go the same way.
    rows = np.tile(X, (2, 1))
    rows[:200] = rng.choice(sums.threshold_, size=(200, 5)).astype(np.float32)
    rows[200:230, 2], rows[230:260, 1], rows[260:290, 0] = np.nan, np.inf, -np.inf
    expected = np.array([walk(sums, x) for x in rows])
    for n in (1, 2, 9, 64, 65, 600):
        np.testing.assert_allclose(sums.predict(rows[:n]), expected[:n], rtol=1e-12, atol=1e-14)
    # scikit-learn compares with thresholds that are not float32 numbers.
    np.testing.assert_allclose(
        sums.predict(rows[:200]), np.mean([one.predict(rows[:200]) for one in grown], axis=0), atol=1e-9
    )


def test_a_long_tree_is_walked_to_its_end():
    n = 256
    left = np.r_[np.arange(1, n), 0, 0]
    nodes = (
        np.array([0]),
        np.zeros(n + 1, int),
        np.linspace(-1, 1, n + 1),
        left,
        left.copy(),
        np.arange(n + 1.0),
    )
    assert (_loops.add_up_trees(np.zeros((20, 1), np.float32), *nodes) == n - 1).all()


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
    codes = Bins(X, 63).codes_of(X)
    assert (codes[:10] != codes[10:20]).all()


def boost(
    codes,
    t,
    qid,
    n_trees,
    leaves,
    rate=0.1,
    least=1,
    ridge=1.0,
    share=1.0,
    test=None,
    n_threads=1,
    n_bins=64,
    n_blocks=99,
    begun=None,
):
    queries, blocks, n = encode_queries(qid, len(t)), in_blocks(codes), codes.shape[1]
    scores, test = np.zeros(len(t)) if begun is None else begun.copy(), codes[:0] if test is None else test
    predicted = np.zeros(len(test))
    how = TreeOptions(n_bins, leaves, least, rate, ridge, share, n_blocks)
    new = in_blocks(test)
    grown = grow_trees(blocks, n, t, queries.starts, scores, new, predicted, n_trees, how, 0, n_threads)
    return grown, scores, predicted


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_boosted_trees_equal_the_slow_version(data):
    """Ties between codes, queries of any size, leaves too small to be divided, and rows that are only predicted."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    m, n = data.draw(st.integers(2, 30)), data.draw(st.integers(1, 3))
    leaves, least = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 4))
    n_codes = data.draw(st.sampled_from([2, 6, 255]))
    codes = rng.integers(0, n_codes, size=(m, n)).astype(np.uint8)
    qid = np.sort(rng.integers(0, data.draw(st.integers(1, 4)), size=m))
    t = rng.normal(size=m)
    _, found, again = boost(codes, t, qid, 3, leaves, 0.3, least, 0.5, test=codes, n_bins=max(64, n_codes))
    np.testing.assert_allclose(
        found, oracles.boosted_scores(codes, t, qid, 3, leaves, 0.3, least, 0.5), atol=1e-9
    )
    np.testing.assert_allclose(again, found, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_trees_that_look_at_some_blocks_of_features_equal_the_slow_version(data):
    """Each tree looks at blocks of its own, the last of which may be narrow, and adds to scores that are there."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    m, n = data.draw(st.integers(10, 40)), data.draw(st.integers(17, 50))
    n_blocks = data.draw(st.integers(1, -(-n // 16)))
    codes = rng.integers(0, 4, size=(m, n)).astype(np.uint8)
    qid, t, begun = np.sort(rng.integers(0, 3, size=m)), rng.normal(size=m), rng.normal(size=m)
    how = TreeOptions(64, 4, 2, 0.3, 0.5, 1.0, n_blocks)
    growth = _loops._start(m, n, how, 0)
    looked_at = []
    for _ in range(3):
        _loops._draw_blocks(growth, n_blocks)
        assert np.count_nonzero(growth.active) == n_blocks
        looked_at.append(np.flatnonzero(np.repeat(growth.active, 16)[:n]))
    _, found, _ = boost(codes, t, qid, 3, 4, 0.3, 2, 0.5, n_blocks=n_blocks, begun=begun)
    expected = oracles.boosted_scores(codes, t, qid, 3, 4, 0.3, 2, 0.5, looked_at, begun)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("has_queries", [True, False])
@pytest.mark.parametrize("chunk_rows", [7, 500])
def test_trees_see_all_rows_and_kernels_a_part_of_them(has_queries, chunk_rows, monkeypatch):
    """Chunks do not matter; kernels learn from whole queries, or rows of a single one."""
    monkeypatch.setattr(extension, "CHUNK_ROWS", chunk_rows)
    X, y, qid = make_data(600, n=3, size=6)
    qid = np.where(np.arange(600) < 30, 1_000 + np.arange(600), qid) if has_queries else 0 * qid
    order, queries = order_by_content(X, y[:, None], encode_queries(qid, 600))
    held = np.flatnonzero(queries.codes < 3) if has_queries else np.arange(0, 600, 9)
    features, view = Features().fit(X), ("quantiles", "relative") if has_queries else ("quantiles",)
    more = MoreRows.without(held, features, X, y, order, queries, 0)
    rows = np.delete(order, held)
    V, within = (
        features.views(X[rows], encode_queries(qid[rows], len(rows)))[view],
        encode_queries(qid[rows], len(rows)),
    )
    bins = Bins(V, 64)
    starts = more.queries.starts
    np.testing.assert_array_equal(more.binned(bins, view), in_blocks(bins.codes_of(V)))
    np.testing.assert_array_equal(more.targets, y[rows])
    assert (np.diff(qid[rows])[starts[1:-1] - 1] != 0).all() and len(starts) == within.n_groups + 1
    kernel, basis = Kernel("rbf", 0.3), V[::100]
    for most in (10_000, 200):
        monkeypatch.setattr(extension, "MOST_KERNEL_ROWS", most)
        taken = more.queries.sample(most)
        assert len(taken) == len(rows) if most > 600 else 150 < len(taken) <= 200
        found = more.kernel_moments(kernel, basis, None, view)
        L = QueryComparisons(
            y[rows[taken], None], encode_queries(qid[rows[taken]], len(taken)), weighting="item"
        ).to_dense()
        K = kernel.matrix(V[taken], basis)
        gram = found.gram if has_queries else found.scatter
        np.testing.assert_allclose(gram, K.T @ L @ K, atol=1e-10 * np.abs(gram).max())


def test_several_threads_grow_the_same_trees_as_one(monkeypatch):
    rng = np.random.default_rng(0)
    codes, qid = rng.integers(0, 64, size=(900, 37)).astype(np.uint8), np.repeat(np.arange(90), 10)
    t = np.sin(codes[:, 3] / 9.0) + (codes[:, 20] > 30) * (codes[:, 36] > 20) + rng.normal(size=900)
    monkeypatch.setattr(_loops, "_WORTH_THREADS", 0)
    for share, n_blocks in ((1.0, 99), (0.5, 99), (1.0, 2)):
        how = {"share": share, "n_blocks": n_blocks, "test": codes}
        alone, together = (boost(codes, t, qid, 5, 9, n_threads=n, **how) for n in (1, 3))
        for one, other in zip((*alone[0], *alone[1:]), (*together[0], *together[1:]), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n_bins", [64, 255])
@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_trees_grown_on_bins_compare_the_features_themselves(decimals, n_bins):
    rng = np.random.default_rng(decimals)
    X = np.round(rng.normal(size=(500, 4)), decimals).astype(np.float32)  # ties, and more values than bins
    t = X[:, 0] * X[:, 1] + rng.normal(size=500)
    bins = Bins(X, n_bins)
    codes, qid = bins.codes_of(X), np.repeat(np.arange(50), 10)
    grown, scores, _ = boost(codes, t.astype(float), qid, 20, 6, n_bins=n_bins)
    found = TreeSum.of_boosting([grown], bins)
    np.testing.assert_allclose(found.predict(X), scores, atol=1e-9)
    assert found.feature_importances_.sum() == pytest.approx(1.0)
    assert set(np.argsort(found.feature_importances_)[-2:]) == {0, 1}


def test_half_of_the_features_are_looked_at():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 64, size=(200, 20)).astype(np.uint8)
    (feature, _, left, *_), _, _ = boost(codes, codes[:, 0] / 64.0, np.zeros(200), 40, 2, share=0.5)
    share = np.mean(feature[:, 0][left[:, 0] > 0] == 0)
    assert 0.25 < share < 0.75


def test_trees_put_skewed_features_in_relation_to_their_query_in_two_ways(monkeypatch):
    """One large value of a skewed feature decides about the scale of its query, unless quantiles are standardised."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(40), 20)
    Z = rng.normal(size=(800, 4))
    y = np.digitize(Z[:, 0] - Z[:, 1] ** 2 + 0.3 * rng.normal(size=800), [-1.0, 0.0, 0.8]).astype(float)
    X = np.sinh(3.0 * (Z + rng.normal(size=(40, 4))[qid]))

    def best_score(view):
        options = candidates.candidates(800, 40)
        trees = next(one for one in options if one.name == "boosted trees")
        chosen = [replace(trees, view=view or trees.view), *(one for one in options if one.is_simple)]
        monkeypatch.setattr(fitting, "candidates", lambda *_: chosen)
        return AutoRanker(preset="fast", random_state=0).fit(X, y, qid=qid).best_score_

    assert best_score(None) > best_score(("plain", "relative")) + 0.02


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
    np.testing.assert_allclose(views["standardised",], (kept - kept.mean(0)) / kept.std(0))
    np.testing.assert_allclose(
        views["quantiles", "relative"][:, 5:], oracles.relative_to_query(kept, qid, "standardise"), atol=1e-9
    )
    assert np.abs(views["quantiles",]).max() <= 3.0
    np.testing.assert_array_equal(np.argsort(views["quantiles",][:, 0]), np.argsort(kept[:, 0]))
    np.testing.assert_allclose(
        views["relative quantiles",],
        oracles.relative_to_query(views["quantiles",], qid, "standardise"),
        atol=1e-9,
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


def folds_of(y, qid, n_folds=5, scoring="concordance"):
    tests = [test for _, test in QueryKFold(n_folds).split(np.empty((len(y), 0)), qid=qid)]
    return FoldScores.of_folds(tests, y, encode_queries(qid, len(y)), read_scoring(scoring))


def last_of(y, f, qid):
    """A measure that is not a mean over queries."""
    return float(np.corrcoef(y, f)[0, 1])


@pytest.mark.parametrize("scoring", ["concordance", "ndcg@3", "auc", last_of])
def test_scores_of_folds_are_those_of_their_rows(scoring):
    """All settings at once, or one by one, with a query that has nothing to order."""
    _, y, qid = make_data(60, size=6)
    y = (y > 1).astype(float) if scoring == "auc" else y
    y[:12] = 1.0
    folds, measure = folds_of(y, qid, 4, scoring), read_scoring(scoring).measure
    predictions = np.random.default_rng(0).normal(size=(3, 60)).round(1)
    expected = []
    for one, test in product(predictions, folds.tests):
        try:
            within = encode_queries(qid[test], len(test))
            expected.append(measure(y[test, None], one[test, None], within))
        except ValueError:
            expected.append(np.nan)
    np.testing.assert_allclose(folds.of(predictions), np.reshape(expected, (3, 4)), rtol=1e-12)
    np.testing.assert_array_equal(folds.of(predictions[1]), folds.of(predictions)[1])


def test_the_setting_of_a_fold_is_chosen_by_the_others():
    X, y, qid = make_data()
    folds = folds_of(y, qid)
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(7, len(y)))
    scores = folds.of(predictions)
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
    assert (found.weights > 0).all()
    assert folds.mean(folds.of(found.nested)) > folds.mean(folds.of(two.T)).max() + 0.02
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
    model.views_ = [("plain", "other")] * len(model.views_)
    save_model(model, tmp_path / "auto.preflearn")
    with pytest.raises(ValueError, match="views_"):
        load_model(tmp_path / "auto.preflearn")


@pytest.fixture
def small_trees(monkeypatch):
    """The choice among members is what is tested, not the members."""
    monkeypatch.setattr(trees_module, "_STAGES", (5, 10))
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


@pytest.mark.parametrize(
    ("n_rows", "n_queries", "informative"),
    [(3, 1, 1), (4, 1, 1), (12, 3, 3), (60, 12, 1), (60, 12, 2)],
    ids=["three rows", "four rows", "three queries", "one query to order", "two queries to order"],
)
def test_no_figure_or_an_honest_one(n_rows, n_queries, informative, small_trees):
    """On next to no data the figure is NaN, with a warning, or one half on average; never the best of several."""
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, qid = rng.normal(size=(n_rows, 3)), np.arange(n_rows) * n_queries // n_rows
        y = np.where(qid < informative, rng.normal(size=n_rows), 0.0)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found.append(AutoRanker(random_state=seed).fit(X, y, qid=qid).best_score_)
        except ValueError as error:
            assert "no fold has two rows" in str(error)
            continue
        assert any("best_score_ is NaN" in str(one.message) for one in said) == np.isnan(found[-1])
    if n_rows <= 4 or informative == 1:
        assert np.isnan(found).all()
    else:
        # Some thirty pairs in each of twelve sets: a standard error of about .06.
        assert abs(np.nanmean(found) - 0.5) < 0.15


@pytest.mark.parametrize("n_queries", [1, 2, 6, 9])
def test_the_order_of_the_rows_and_the_names_of_queries_do_not_matter(n_queries, small_trees):
    """Also with rows and whole queries that are there twice, ties and a limit on the rows to learn from."""
    rng = np.random.default_rng(n_queries)
    X = rng.normal(size=(54, 3)).round(1)
    qid = np.arange(54) * n_queries // 54
    y = np.round(X[:, 0] + rng.normal(size=54))
    X[1], y[1] = X[0], y[0]  # a row that is there twice
    if n_queries == 9:
        X[6:12], y[6:12] = X[:6], y[:6]  # and a query
    model = AutoRanker(random_state=3).fit(X, y, qid=qid)
    expected = model.predict(X, qid=qid)
    for _ in range(2):
        order = rng.permutation(54)
        names = np.array([f"query {k}" for k in rng.permutation(n_queries)])[qid]
        other = AutoRanker(random_state=3).fit(X[order], y[order], qid=names[order])
        np.testing.assert_allclose(
            other.predict(X, qid=qid), expected, atol=1e-6 * np.abs(expected).max(), rtol=0
        )
        assert other.best_score_ == pytest.approx(model.best_score_, abs=1e-12, nan_ok=True)
        np.testing.assert_allclose(other.feature_importances_, model.feature_importances_, atol=1e-9)


def test_the_scale_of_the_targets_does_not_matter(small_trees):
    X, y, qid = make_data(60)
    expected = AutoRanker(random_state=0).fit(X, y, qid=qid)
    for scale in (2.0**-1060, 2.0**-500, 2.0**531, 2.0**1000):
        found = AutoRanker(random_state=0).fit(X, y * scale, qid=qid)
        np.testing.assert_array_equal(found.predict(X, qid=qid), expected.predict(X, qid=qid))
        assert found.best_score_ == expected.best_score_
    for extreme, message in ((1e160, "Feature 0 goes from"), (1e-160, "Multiply the column")):
        with pytest.raises(ValueError, match=message):
            AutoRanker().fit(X * extreme, y, qid=qid)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_tiny_tables_are_ranked_or_refused(data):
    """One clear refusal, or finite scores that depend on neither the order of the rows nor the names of queries."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    m, n = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    X = rng.integers(0, 3, size=(m, n)) + data.draw(st.sampled_from([0.0, 0.5])) * rng.normal(size=(m, n))
    if data.draw(st.booleans()):
        X[:, rng.integers(n)] = 1.0
    kinds = [rng.normal(size=m), rng.integers(0, 3, size=m).astype(float), np.ones(m)]
    y = kinds[data.draw(st.integers(0, 2))] * data.draw(st.sampled_from([1.0, 1e-310, 1e160, 1e300]))
    X = X * data.draw(st.sampled_from([1.0, 1.0, 1e-300, 1e30, 1e300]))
    qid = [np.zeros(m, dtype=int), np.arange(m), rng.integers(0, 3, size=m)][data.draw(st.integers(0, 2))]
    order = rng.permutation(m)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(trees_module, "_STAGES", (5,))
        patch.setattr(candidates, "_RANDOM", 4)
        try:
            found = AutoRanker(random_state=0).fit(X, y, qid=qid).predict(X, qid=qid)
        except ValueError as error:
            assert type(error) is ValueError  # a LinAlgError is a ValueError, too
            said = (
                "no fold has two rows|not defined|minimum of 2|Every feature is constant|Feature . goes from"
            )
            assert re.search(said, str(error))
            return
        other = AutoRanker(random_state=0).fit(X[order], y[order], qid=9 - qid[order])
        again = other.predict(X, qid=qid)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(again, found, atol=1e-6 * np.abs(found).max(), rtol=0)


@pytest.mark.parametrize("refitting", [True])
def test_the_figure_is_that_of_the_procedure_without_the_fold(refitting, small_trees):
    """Identical to fitting anew without a fold, and predicting it."""
    X, y, qid = make_data(100)
    model = AutoRanker(random_state=0).fit(X, y, qid=qid)
    order, queries = order_by_content(X, y[:, None], encode_queries(qid, 100))
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    for fold in range(5):
        kept, test = order[model.cv_folds_[order] != fold], np.flatnonzero(model.cv_folds_ == fold)
        codes = queries.codes[model.cv_folds_[order] != fold]
        task = encode_queries(codes, len(kept))
        how = fitting.Settings(read_scoring("concordance"), seed=seed, n_folds=3)
        trial, features = fitting.choose(X[kept], y[kept], task, how)
        again = fitting.Combination.of(trial, features)
        within = encode_queries(qid[test], len(test))
        np.testing.assert_allclose(model.cv_predictions_[test], again.scores(X[test], within), atol=1e-8)


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
        ({"n_jobs": 0}, "n_jobs must be a number of threads, -1 or None: found 0"),
        ({"scoring": "best"}, "scoring must be one of"),
    ],
)
def test_parameters_are_refused(options, message):
    X, y, qid = make_data()
    with pytest.raises(ValueError, match=message):
        AutoRanker(**options).fit(X, y, qid=qid)


@pytest.mark.parametrize("values", [(1e-35, 1e-35 + 1e-37), (-4e-38, 4e-38), (-2e37, 0.0), (0.0, 2e37)])
def test_features_beyond_single_precision_are_refused(values):
    X, y, qid = make_data(100)
    X[:, 2] = np.where(X[:, 2] > 0, *values)
    with pytest.raises(ValueError, match="Feature 2 goes from"):
        AutoRanker().fit(X, y, qid=qid)


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


# More rows than the choice looks at ----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_queries", [True, False])
def test_chosen_on_a_sample_trained_on_everything(monkeypatch, small_trees, with_queries):
    """All rows but a fold of the sample are learned from, and the figure is that of this fold."""
    monkeypatch.setattr(fitting, "_MOST_ROWS", 200)
    monkeypatch.setattr(extension, "CHUNK_ROWS", 70)
    monkeypatch.setattr(kernels, "RACE_FROM", 100)
    X, y, qid = make_data(600)
    qid = qid if with_queries else None
    model = AutoRanker(random_state=0).fit(X, y, qid=qid)
    held = ~np.isnan(model.cv_predictions_)
    assert 20 <= held.sum() <= 60 and model.n_training_rows_ == 600 - held.sum()
    within = encode_queries(qid, 600).codes[held] if with_queries else model.cv_folds_[held]
    assert model.best_score_ == pytest.approx(concordance(y[held], model.cv_predictions_[held], within))
    assert any("on 5" in one.detail for one in model.leaderboard_)
    # The sum of its members, each of which predicts the rows that stayed out.
    views = model.features_.views(X, encode_queries(qid, 600))
    parts = [
        w * one.predict(views[view]) for one, view, w in zip(model.members_, model.views_, model.weights_)
    ]
    np.testing.assert_allclose(model.predict(X, qid=np.zeros(600) if qid is None else qid), sum(parts))
    order = np.random.default_rng(1).permutation(600)
    other = AutoRanker(random_state=0).fit(X[order], y[order], qid=None if qid is None else -qid[order])
    np.testing.assert_allclose(
        other.predict(X, qid=np.zeros(600) if qid is None else qid), sum(parts), atol=1e-6
    )


def test_a_sample_is_never_all_that_is_learned_from(monkeypatch, small_trees):
    """Also where the table is small enough for the procedure to be repeated without each fold."""
    monkeypatch.setattr(fitting, "_MOST_ROWS", 200)
    monkeypatch.setattr(fitting, "_REFITTED_CELLS", 50_000)
    X, y, qid = make_data(600)
    assert AutoRanker(random_state=0).fit(X, y, qid=qid).n_training_rows_ > 500


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000), n_queries=st.sampled_from([1, 5]), alpha=st.sampled_from([0.01, 1.0, 100.0])
)
def test_expansions_from_sums_of_kernel_values_equal_the_learner(seed, n_queries, alpha):
    rng = np.random.default_rng(seed)
    X, y, qid = rng.normal(size=(40, 3)), rng.normal(size=40), rng.integers(0, n_queries, 40)
    metric = rng.uniform(0.1, 1.0, 3)
    kernel = Kernel("rbf", 0.3, kernel_params={"metric": metric})
    queries = encode_queries(qid, 40)
    is_global = n_queries == 1
    moments = kernel_moments(kernel, X[:15], X.__getitem__, y, queries, np.arange(40), is_global=is_global)
    found = solve_expansion(kernel, X[:15], moments, np.array([alpha]))
    params = {"kernel": "rbf", "gamma": 0.3, "kernel_params": {"metric": metric}}
    learner = RankRLS(alpha, **params, basis=np.arange(15), weighting="item").fit(X, y, qid=qid)
    # What all rows of a query share is not compared, and rounding decides about it.
    both = centred(np.column_stack([found.predict(X)[0], learner.predict(X)]), queries)
    tol = 1e-6 * max(1.0, 1.0 / alpha)  # the nugget of the sums matters more with a small alpha
    np.testing.assert_allclose(both[:, 0], both[:, 1], atol=tol * np.abs(both).max())
    slopes = learner.gradient(X)
    np.testing.assert_allclose(found.gradients(X, 0), slopes, atol=3 * tol * np.abs(slopes).max())


def searched(X, y, qid, n_folds, n_metrics=None):
    """A task in which every so-many-th query, or row of a single ranking, is held out; and its search."""
    queries = encode_queries(qid, X.shape[0])
    owner = queries.codes if queries.n_groups > 1 else np.arange(X.shape[0])
    tests = [np.flatnonzero(owner % n_folds == fold) for fold in range(n_folds)]
    folds = FoldScores.of_folds(tests, y, queries, read_scoring(None))
    task = Task(Features().fit(X).views(X, queries), y, queries, folds, None, 0)
    return task, kernels.Search(task, ("standardised",), n_metrics)


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("n_folds", [2, 5])
@pytest.mark.parametrize("n_metrics", [None, 3])
def test_metrics_are_learned_without_the_folds_that_they_serve(is_global, n_folds, n_metrics):
    X, y, qid = make_data(120)
    task, search = searched(X, y, None if is_global else qid, n_folds, n_metrics)
    search.advance(3)
    assert len(search.parts) == min(n_folds, n_metrics or n_folds)
    assert sorted(np.concatenate([part.folds for part in search.parts])) == list(range(n_folds))
    for part in search.parts:
        assert not np.isin(part.rows, np.concatenate([task.folds.tests[fold] for fold in part.folds])).any()


@pytest.mark.parametrize("helps", [False, True])
def test_a_fold_is_predicted_from_all_other_rows_with_its_own_metric(helps, monkeypatch):
    """With and without curves and directions."""
    monkeypatch.setattr(kernels, "clearly_positive", lambda *_: helps)
    monkeypatch.setattr(kernels, "_ROUNDS", 3)
    X, y, qid = make_data(120)
    task, search = searched(X, y, qid, 4)
    search.advance()
    assert (search.has_curves, search.has_directions) == (helps, helps)
    member = kernels._train_members(task, search)
    alphas = search.alphas[task.folds.best(np.array(search.scores))] * kernels._BESIDE
    settings = np.empty((3, 120))
    for part, test in zip(search.parts, task.folds.tests, strict=True):
        rest, metric = np.setdiff1d(np.arange(120), test), part.metrics[search.round_without(part)]
        kernel, basis, curves = kernels._functions(search.X, rest, metric, 120, helps, 0)
        assert basis.shape[0] == 90 and (metric is None or metric.ndim == 1 + helps)
        moments = kernel_moments(kernel, basis, search.X.__getitem__, y, task.queries, rest, curves=curves)
        settings[:, test] = solve_expansion(kernel, basis, moments, alphas, curves).predict(search.X[test])
    both = [centred(one.T, task.queries) for one in (settings, np.tile(member.held_out, (3, 1)))]
    assert np.abs(both[0] - both[1]).max(axis=0).min() < 1e-6 * np.abs(both[1]).max()


def test_the_model_has_the_mean_metric_also_of_directions():
    X, y, qid = make_data(60)
    _, search = searched(X, y, qid, 3)
    rng = np.random.default_rng(0)
    factors, directions = rng.uniform(size=(3, 5)), [rng.normal(size=(5, k)) for k in (2, 5, 3)]
    for part, one, some in zip(search.parts, factors, directions, strict=True):
        part.metrics += [one, some]
    assert search.mean_metric(0) is None
    np.testing.assert_allclose(search.mean_metric(1), factors.mean(axis=0))
    found, expected = search.mean_metric(2), np.mean([one @ one.T for one in directions], axis=0)
    outer = found @ found.T
    np.testing.assert_allclose(outer / np.trace(outer), expected / np.trace(expected), atol=1e-7)


@pytest.mark.parametrize("is_mixed", [True, False])
def test_directions_are_found_where_features_measure_the_same(is_mixed, tmp_path):
    """20 noisy mixtures of six things, three of which matter; or the things themselves beside 14 others."""
    rng = np.random.default_rng(0)
    hidden, qid = rng.normal(size=(600, 6)), np.repeat(np.arange(60), 10)
    y, noise = np.abs(hidden[:, 0]) * hidden[:, 1] + hidden[:, 2], rng.normal(size=(600, 20))
    X = hidden @ rng.normal(size=(6, 20)) + 0.5 * noise if is_mixed else np.hstack([hidden, noise[:, 6:]])
    model = AutoRanker(random_state=0, preset=Preset(frozenset({"linear", KERNEL}), 0)).fit(X, y, qid=qid)
    (entry,) = [one for one in model.leaderboard_ if one.name == KERNEL]
    assert ("directions" in entry.detail) == is_mixed
    first = qid == 0
    expected = model.predict(X[first], qid=qid[first])
    model.preset = None
    save_model(model, tmp_path / "model.preflearn")
    loaded = load_model(tmp_path / "model.preflearn")
    np.testing.assert_array_equal(loaded.predict(X[first], qid=qid[first]), expected)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(model, one_query=True).SerializeToString())
    (scores,) = session.run(None, {session.get_inputs()[0].name: X[first]})[:1]
    np.testing.assert_allclose(np.ravel(scores), expected, atol=1e-4 * np.ptp(expected))


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_queries=st.sampled_from([2, 8, 150]),  # most of 150 have one row
    step=st.sampled_from([1, 7, 1000]),
    curved=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_sums_of_kernel_values_over_blocks_equal_the_dense_laplacian(seed, n_queries, step, curved, dtype):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(90, 3)).astype(dtype), rng.integers(0, n_queries, 90)
    y, queries, rows = np.round(rng.normal(size=90)), encode_queries(qid, 90), np.arange(90)  # ties
    kernel = Kernel("rbf", 0.3)
    curves = Curves.along(X.astype(float), np.array([1.0, 0.0, 0.4])) if curved else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expansion, "block_rows", lambda width: step)
        found = kernel_moments(kernel, X[:15], X.__getitem__, y, queries, rows, curves=curves)
    task = QueryComparisons(y[:, None], queries, weighting="item")
    K = kernel.matrix(X.astype(float), X[:15].astype(float))
    K = np.hstack([K, curves.values(X)]) if curved else K
    tol = (1e-5 if dtype == np.float32 else 1e-12) * np.abs(K).max() ** 2 * 90
    np.testing.assert_allclose(found.gram, K.T @ task.to_dense() @ K, atol=tol)
    np.testing.assert_allclose(found.cross, K.T @ task.target, atol=tol * np.abs(y).max())
    assert (found.n_rows, found.n_comparisons) == (90, task.n_comparisons)
    np.testing.assert_allclose([*found.squares, found.weight], [*task.squared_targets(), task.total_weight()])


def curved_expansion(X, y, queries, alphas, metric):
    kernel, curves = Kernel("rbf", 2.0, kernel_params={"metric": metric}), Curves.along(X, metric)
    rows, is_global = np.arange(X.shape[0]), queries.n_groups == 1
    moments = kernel_moments(
        kernel, X[:15], X.__getitem__, y, queries, rows, is_global=is_global, curves=curves
    )
    return solve_expansion(kernel, X[:15], moments, alphas, curves)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_queries=st.sampled_from([1, 5, 60]),  # queries of one row too
    alpha=st.sampled_from([0.01, 1.0, 100.0]),
    ties=st.booleans(),
)
@example(seed=1412, n_queries=1, alpha=1.0, ties=False)  # two basis vectors that are nearly the same
def test_curves_beside_a_kernel_equal_dense_normal_equations(seed, n_queries, alpha, ties):
    rng = np.random.default_rng(seed)
    X, y, qid = rng.normal(size=(60, 3)), rng.normal(size=60), rng.integers(0, n_queries, 60)
    if ties:
        X[:, 0], X[:, 2] = np.round(X[:, 0]), 0.0  # a constant feature has no curve
    metric, queries = np.array([1.0, 0.0, 0.4]), encode_queries(qid, 60)
    found = curved_expansion(X, y, queries, np.array([alpha]), metric)
    assert found.curves.features.tolist() == ([0] if ties else [0, 2])
    Phi, penalty = oracles.kernel_and_curves(X, X[:15], 2.0, metric, found.curves.features)
    Phi_c, t = centred(Phi, queries), centred(y[:, None], queries)
    w = np.linalg.lstsq(Phi_c.T @ Phi_c + alpha * penalty, Phi_c.T @ t, rcond=1e-15)[0]
    both = centred(np.column_stack([found.predict(X)[0], Phi @ w]), queries)
    tol = 1e-6 * max(1.0, 1.0 / alpha)
    np.testing.assert_allclose(both[:, 0], both[:, 1], atol=tol * max(1e-9, np.abs(both).max()))


def test_gradients_of_curves_are_those_of_differences():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    model = curved_expansion(
        X, y, encode_queries(np.arange(60) // 10, 60), np.array([0.1, 1.0]), np.array([1.0, 0.0, 0.4])
    )
    step = 1e-5 * np.eye(3)
    for place in (0, 1):
        slopes = [(model.predict(X + one)[place] - model.predict(X - one)[place]) / 2e-5 for one in step]
        np.testing.assert_allclose(model.gradients(X, place), np.transpose(slopes), atol=1e-6)


def test_at_most_30_features_have_curves():
    X, factors = np.random.default_rng(0).normal(size=(30, 80)), np.linspace(0.0, 1.0, 80)
    np.testing.assert_array_equal(Curves.along(X, factors).features, np.arange(50, 80))
    assert Curves.along(X, np.zeros(80)).values(X).shape == (30, 0)


def test_a_kernel_with_curves_is_saved_and_exported_as_it_predicts(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    queries = encode_queries(np.arange(60) // 10, 60)
    expansion = curved_expansion(X, y, queries, np.array([0.1, 1.0]), np.array([1.0, 0.0, 0.4]))
    model, new = as_estimator(expansion, 1, 2, 6), rng.normal(size=(7, 3))
    assert isinstance(model, KernelAndCurves)
    assert described(model) == "alpha 1, round 2, 15 basis vectors, 2 curves"
    np.testing.assert_allclose(model.predict(new), expansion.predict(new)[1], atol=1e-12)
    assert model.feature_importances_.sum() == pytest.approx(1.0) and model.feature_importances_[1] == 0
    save_model(model, tmp_path / "model.preflearn")
    np.testing.assert_array_equal(load_model(tmp_path / "model.preflearn").predict(new), model.predict(new))
    narrow = as_estimator(
        curved_expansion(X[:, :2], y, queries, np.array([1.0]), np.array([1.0, 0.4])), 0, 2, 6
    )
    damages = {"widths_": model.widths_ * [1.0, 0.0], "knots_": model.knots_[:1], "coef_": model.coef_[:, :3]}
    for name, value in {**damages, "kernel_": narrow.kernel_}.items():
        damaged = copy(model)
        setattr(damaged, name, value)
        (tmp_path / "damaged.preflearn").write_bytes(model_to_bytes(damaged, {}, check=False))
        with pytest.raises(ValueError, match=name):
            load_model(tmp_path / "damaged.preflearn")
    for value in (None, "x", narrow):
        damaged = copy(model)
        damaged.kernel_ = value
        (tmp_path / "damaged.preflearn").write_bytes(model_to_bytes(damaged, {}, check=False))
        with pytest.raises(ValueError, match="kernel_"):
            load_model(tmp_path / "damaged.preflearn")


@pytest.mark.parametrize(("additive", "expected"), [(True, True), (False, False)])
def test_features_have_curves_where_held_out_rows_gain_by_it(small_trees, additive, expected):
    rng = np.random.default_rng(3)
    X, qid = rng.normal(size=(1200, 6)), np.repeat(np.arange(60), 20)
    f = np.sin(3 * X).sum(axis=1) if additive else 2 * np.sign(X[:, 0] * X[:, 1]) * np.exp(X[:, 2])
    y = np.digitize(f + 0.3 * rng.normal(size=1200), np.quantile(f, [0.5, 0.8, 0.95])).astype(float)
    model = AutoRanker(random_state=0, preset=Preset(frozenset({"linear", KERNEL}), 0)).fit(X, y, qid=qid)
    found = dict(zip(model.member_names_, model.members_, strict=True))[KERNEL]
    assert isinstance(found, KernelAndCurves) == expected
    (entry,) = [one for one in model.leaderboard_ if one.name == KERNEL]
    assert ("curves" in entry.detail) == expected
    first = qid == 0
    expected = model.predict(X[first], qid=qid[first])
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(model, one_query=True).SerializeToString())
    (scores,) = session.run(None, {session.get_inputs()[0].name: X[first]})[:1]
    np.testing.assert_allclose(np.ravel(scores), expected, atol=1e-4 * np.ptp(expected))


def test_a_view_that_is_clearly_behind_is_left_out(monkeypatch, small_trees):
    monkeypatch.setattr(kernels, "RACE_FROM", 100)
    X, y, qid = make_data(600, seed=2)
    X[:, :2] = np.sign(X[:, :2]) * np.exp(4 * np.abs(X[:, :2]))  # heavy tails: quantiles are far ahead
    board = AutoRanker(random_state=0).fit(X, y, qid=qid).leaderboard_
    behind = [one for one in board if one.detail == "left out: behind after the first rounds"]
    assert "learned kernel, query" in [one.name for one in behind]
    assert all(np.isnan(one.score) and one.weight == 0 for one in behind)
    raced = [one for one in board if one.name.startswith("learned kernel")]
    assert len(raced) == 5 and 1 <= len(raced) - len(behind) <= 2


def test_a_race_tells_how_long_its_winner_will_take(monkeypatch):
    """The first kernel has to wait for the rounds of all rivals; they count as what they are, not as its training."""
    monkeypatch.setattr(candidates, "n_threads", lambda: 2)
    views = [("quantiles", "relative"), ("relative",)]
    first, second = (
        candidates.Candidate(" ".join(one), one, kernels.cost, kernels.learned_kernel) for one in views
    )
    trees = candidates.Candidate("trees", ("plain",), trees_module.cost_of_trees, trees_module.boosted_trees)
    folds = SimpleNamespace(tests=range(5))
    task = SimpleNamespace(n_rows=5_000, n_jobs=None, rivals=tuple(views), searches={}, folds=folds)
    pace = Pace(task, 40)
    work, alone = pace.work(first), pace.work(trees)
    assert work.rest == pytest.approx(
        kernels.cost(5_000, 80) / (2 * candidates._RATES[kernels.learned_kernel])
    )
    assert work.race == pytest.approx(
        kernels.cost_of_race(5_000, [80, 40]) / (2 * candidates._RATES[kernels.learned_kernel])
    )
    assert pace.seconds(work) == pytest.approx(work.race + work.rest) and alone.race == 0.0
    # Behind after a race that took as long as expected: what is left takes what it would have.
    pace.note(first, work, None, work.race)
    # Once only.
    assert pace.work(second).race == 0.0
    assert pace.seconds(pace.work(second)) == pytest.approx(pace.work(second).rest)
    # On a machine that is slow or busy, everything is expected to take longer.
    pace.note(trees, alone, candidates.Member(None, None, None, None, "", None), 10 * alone.rest)
    assert pace.seconds(pace.work(second)) > 2 * pace.work(second).rest
    assert Pace(SimpleNamespace(**vars(task) | {"n_jobs": 1}), 40).work(trees).rest == 2 * alone.rest


@pytest.mark.parametrize(("name", "best"), [("trees", 0), ("kernel", 2)])
def test_what_ends_early_does_not_make_others_look_fast(name, best, monkeypatch):
    """Of trees or rounds that held-out rows did not ask for nothing is learned about the machine."""
    monkeypatch.setattr(candidates, "n_threads", lambda: 2)
    cost, train = {
        "trees": (trees_module.cost_of_trees, trees_module.boosted_trees),
        "kernel": (kernels.cost, kernels.learned_kernel),
    }[name]
    one = candidates.Candidate(name, ("plain",), cost, train)
    other = candidates.Candidate("random", ("plain",), candidates._cost_of_forest, candidates.random_trees)
    folds = SimpleNamespace(tests=range(5))
    pace = Pace(SimpleNamespace(n_rows=5_000, n_jobs=None, rivals=(), folds=folds), 40)
    work, before = pace.work(one), pace.seconds(pace.work(other))
    member = candidates.Member(None, None, None, None, "", cost(5_000, 40, best))
    done = cost(5_000, 40, best) / cost(5_000, 40) * work.rest
    assert done < 0.8 * work.rest
    pace.note(one, work, member, done)
    assert pace.seconds(pace.work(other)) == pytest.approx(before)
    pace.note(one, work, member, 3 * done)
    assert pace.seconds(pace.work(other)) > 1.1 * before


@pytest.mark.parametrize("limit", [0.5, 2.0])
def test_candidates_that_would_exceed_the_time_limit_are_left_out(limit, monkeypatch):
    """5,000 rows of 40 features on two slow processors: a kernel and its rivals take more than two seconds."""
    fitting._compile()
    monkeypatch.setattr(candidates, "n_threads", lambda: 2)
    monkeypatch.setitem(candidates._RATES, kernels.learned_kernel, 3e9)

    def too_long(*_):
        raise AssertionError("this takes longer than the limit")

    monkeypatch.setattr(kernels.Search, "advance", too_long)
    if limit < 1:  # trees take about a second
        monkeypatch.setattr(trees_module, "_grow_in_stages", too_long)
    X, y, qid = make_data(5_000, n=40, size=20)
    board = AutoRanker(random_state=0, time_limit=limit).fit(X, y, qid=qid).leaderboard_
    left_out = [one.name for one in board if one.detail == "left out: time limit"]
    assert {KERNEL, "learned kernel, query"} <= set(left_out) and "linear" not in left_out


def in_chunks(X, y, qid, size):
    bounds = np.searchsorted(qid, np.arange(0, qid.max() + 1 + size, size))
    return [(X[a:b], y[a:b], qid[a:b]) for a, b in zip(bounds[:-1], bounds[1:], strict=True) if b > a]


def in_other_order(X, y, qid):
    frame, half = pd.DataFrame(X), qid < 3
    return [(frame[half], y[half], qid[half]), (frame[~half][frame.columns[::-1]], y[~half], qid[~half])]


def test_a_stream_that_fits_gives_the_model_of_fit(small_trees):
    X, y, qid = make_data(100)
    found = AutoRanker(random_state=0).fit_stream(in_chunks(X, y, qid, 3))
    expected = AutoRanker(random_state=0).fit(X, y, qid=qid)
    np.testing.assert_allclose(found.predict(X, qid=qid), expected.predict(X, qid=qid), atol=1e-9)
    assert found.best_score_ == pytest.approx(expected.best_score_) and found.n_queries_ == 10


def test_options_are_refused_before_a_stream_is_read():
    def unread():
        raise AssertionError("the stream was read")

    for options, message in (
        ({"preset": "quick"}, "preset"),
        ({"scoring": "no"}, "scoring"),
        ({"time_limit": 0}, "time"),
    ):
        with pytest.raises(ValueError, match=message):
            AutoRanker(**options).fit_stream(unread)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (lambda X, y, qid: [(X, y)], "Chunk 1 .*there is no qid"),
        (lambda X, y, qid: [(X, y, qid), (X, y, qid)], "is in an earlier chunk already"),
        (lambda X, y, qid: [], "no rows to learn from"),
        (
            lambda X, y, qid: [(X[:30], y[:30], qid[:30]), (X[30:, :2], y[30:], qid[30:])],
            "X has 2 columns, but earlier chunks had 5: expected the same number",
        ),
        (lambda X, y, qid: [(X + np.inf, y, qid)], "Chunk 1 .*infinity"),
        (
            lambda X, y, qid: in_other_order(X, y, qid),
            "Chunk 2 .*but earlier chunks had .*: expected the same columns in the same order",
        ),
    ],
)
def test_streams_that_are_refused(chunks, message):
    with pytest.raises(ValueError, match=message):
        AutoRanker().fit_stream(chunks(*make_data(60)))


@pytest.mark.parametrize("scoring", ["ndcg@10", "map", ndcg_scorer(k=5, gain="linear")])
def test_measures_of_rankings_report_on_the_same_model(scoring, small_trees):
    """Choices are made by the concordance, which varies least; the figures are those of the measure."""
    X, y, qid = make_data(200)
    model, default = (AutoRanker(scoring=one, random_state=0).fit(X, y, qid=qid) for one in (scoring, None))
    np.testing.assert_array_equal(model.predict(X, qid=qid), default.predict(X, qid=qid))
    np.testing.assert_array_equal(model.cv_predictions_, default.cv_predictions_)
    measured = read_scoring(scoring)
    folds = [np.flatnonzero(model.cv_folds_ == fold) for fold in range(5)]
    parts = [measured(y[rows, None], model.cv_predictions_[rows, None], qid[rows]) for rows in folds]
    assert model.best_score_ == pytest.approx(np.mean(parts)) != default.best_score_


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error"])
def test_measures_that_do_not_compare_rows_are_refused(scoring):
    X, y, qid = make_data(60)
    for fit in (lambda model: model.fit(X, y, qid=qid), lambda model: model.fit_stream([(X, y, qid)])):
        with pytest.raises(
            ValueError, match=f"scoring='{scoring}' compares scores with y.*such as 'concordance'"
        ):
            fit(AutoRanker(scoring=scoring))


def test_predictions_of_all_folds_are_on_one_scale(monkeypatch):
    """Also where one member alone is chosen for some of the folds."""
    rng = np.random.default_rng(0)
    y, qid = rng.normal(size=200), np.repeat(np.arange(20), 10)
    queries = encode_queries(qid, 200)
    members = np.column_stack([y + 0.4 * rng.normal(size=200), y + 0.5 * rng.normal(size=200)]) * [
        0.01,
        100.0,
    ]
    tests = [np.flatnonzero(qid % 5 == fold) for fold in range(5)]
    folds = FoldScores.of_folds(tests, y, queries, read_scoring(None))
    plain = choose_combination(members, members, y, queries, folds).nested
    monkeypatch.setattr(
        combination, "clearly_positive", lambda gain, without=None, errors=1: without in (1, 3)
    )
    mixed = choose_combination(members, members, y, queries, folds).nested
    spreads = [[one[test].std() for test in tests] for one in (plain, mixed)]
    np.testing.assert_allclose(spreads[1], spreads[0], rtol=0.3)
    assert (plain[tests[1]] != mixed[tests[1]]).all() and (plain[tests[0]] == mixed[tests[0]]).all()


def test_other_measures_choose_by_themselves(small_trees):
    """A function that prefers the reverse order: the model is the member that it likes best."""
    X, y, qid = make_data(200)

    def reversed_order(y, scores, qid):
        return -concordance(y, scores, qid)

    model = AutoRanker(scoring=reversed_order, random_state=0).fit(X, y, qid=qid)
    scores = {one.name: one.score for one in model.leaderboard_}
    assert scores[model.member_names_[0]] == max(scores.values())
    assert AutoRanker(random_state=0).fit(X, y, qid=qid).leaderboard_.model.score > -max(scores.values())


@pytest.mark.parametrize(
    "members",
    [["best single feature"], ["boosted trees"], ["learned kernel, quantiles in query"], []],
)
def test_learning_curves_of_any_members(monkeypatch, small_trees, members):
    """Members that cannot be combined, or that few rows do not have."""
    X, y, qid = make_data(120)
    model = AutoRanker(random_state=0, scoring="ndcg@5", preset="fast").fit(X, y, qid=qid)
    monkeypatch.setattr(model, "member_names_", members)
    assert np.isfinite(model.learning_curve(X, y, qid=qid, n_splits=2).scores).all()
    with pytest.raises(ValueError, match="n_splits must be an int of at least 2: found 1"):
        model.learning_curve(X, y, qid=qid, n_splits=1)
    model.set_params(scoring=lambda y, scores: 0.5)
    with pytest.raises(ValueError, match="needs a value for each query"):
        model.learning_curve(X, y, qid=qid)


def test_what_there_was_no_time_for_has_no_part_in_the_figure(monkeypatch, small_trees):
    """The procedure is repeated without each fold with the candidates that were tried, not with all of them."""
    X, y, qid = make_data(200)
    seen = []
    train = fitting.hold_out

    def remember(*arguments):
        found = train(*arguments)
        seen.append({one.candidate.name for one in found if one.member is not None})
        if len(seen) == 1:
            for one in found[3:]:
                one.member = None
        return found

    monkeypatch.setattr(fitting, "hold_out", remember)
    monkeypatch.setattr(fitting, "_REFITTED_CELLS", 50_000)
    AutoRanker(random_state=0).fit(X, y, qid=qid)
    kept = {"linear", "best single feature", "boosted trees"}
    assert len(seen) == 8 and all(one == kept for one in seen[1:])  # five folds and two more runs


def test_few_rows_of_many_features_are_repeated(monkeypatch):
    """They are more cells than those for which it is done otherwise, and flatter themselves no less."""
    rng, n_repeats = np.random.default_rng(0), []
    X, y, qid = rng.normal(size=(60, 900)), rng.normal(size=60), np.repeat(np.arange(6), 10)
    train = fitting.hold_out
    monkeypatch.setattr(fitting, "hold_out", lambda *given: n_repeats.append(1) or train(*given))
    monkeypatch.setattr(fitting, "_REFITTED_CELLS", 50_000)
    AutoRanker(random_state=0).fit(X, y, qid=qid)
    assert sum(n_repeats) >= 6  # of all rows, and without each of five folds
    AutoRanker(random_state=0, preset="fast").fit(X, y, qid=qid)
    assert sum(n_repeats) <= 9  # which never is


def test_the_learning_curve_of_a_ranker(fitted):
    model, X, y, qid = fitted
    curve = model.learning_curve(X, y, qid=qid, n_splits=2)
    assert curve.n_queries.tolist() == [2, 4, 8, 15]
    assert curve.scores[-1] > curve.scores[0]
    assert (
        model.learning_curve(n_splits=2).scores.tolist() == curve.scores.tolist()
    )  # the data are remembered
    with pytest.raises(ValueError, match="both X and y, or neither of them: found only one"):
        model.learning_curve(X)
    with pytest.raises(ValueError, match="without qid"):
        model.learning_curve(X, y)
