"""Ordered classes: thresholds against all thresholds, the volume under the surface against all tuples."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import oracles
from preflearn import RLS, OrdinalRanker, RankRLS, RankRLSCV, RankSVM
from preflearn.metrics import auc, concordance, get_scorer, volume_under_surface
from preflearn.model_selection import HeldOut, QueryKFold
from preflearn.model_selection.ordinal import least_cost_thresholds
from strategies import examples

COSTS = ("absolute", "zero-one")


@st.composite
def scored_classes(draw, max_rows=16, max_classes=4):
    """(classes from 0 on, scores, queries), with few or many ties; each class at least once."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k = draw(st.integers(2, max_classes))
    y = np.concatenate([np.arange(k), rng.integers(0, k, draw(st.integers(0, max_rows - k)))])
    levels = draw(st.sampled_from([1, 2, 4, 1000]))
    scores = rng.integers(0, levels, y.shape[0]) / 8 + draw(st.sampled_from([0.0, 0.1])) * y
    order = rng.permutation(y.shape[0])
    return y[order], scores[order], rng.integers(0, draw(st.sampled_from([1, 2, 3])), y.shape[0])


# The volume under the ROC surface -----------------------------------------------------------------------------------


@given(scored_classes())
@examples(150)
def test_volume_is_the_share_of_tuples_in_order(rows):
    y, scores, qid = rows
    expected = [oracles.volume_of_query(y[qid == q], scores[qid == q], np.unique(y)) for q in np.unique(qid)]
    if np.isnan(expected).all():
        with pytest.raises(ValueError, match="no query has rows of all"):
            volume_under_surface(y, scores, qid)
        return
    labels, values = volume_under_surface(y, scores, qid, per_query=True)
    np.testing.assert_array_equal(labels, np.unique(qid))
    np.testing.assert_allclose(values, expected, atol=1e-12)
    np.testing.assert_allclose(volume_under_surface(y, scores, qid), np.nanmean(expected), atol=1e-12)


@given(scored_classes(max_rows=40, max_classes=2))
def test_volume_of_two_classes_is_the_auc(rows):
    y, scores, _ = rows
    np.testing.assert_allclose(volume_under_surface(y, scores), auc(y, scores), atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_volume_at_the_ends(k):
    y = np.repeat(np.arange(k), 4)
    assert volume_under_surface(y, y) == pytest.approx(1.0)
    assert volume_under_surface(y, -y) == 0.0
    constant = volume_under_surface(y, np.zeros(4 * k))
    assert constant == pytest.approx(1 / np.prod(np.arange(1.0, k + 1)))
    chance = np.mean(
        [volume_under_surface(y, np.random.default_rng(seed).normal(size=4 * k)) for seed in range(800)]
    )
    assert chance == pytest.approx(constant, abs=0.03)


def test_volume_of_one_class_is_refused():
    with pytest.raises(ValueError, match="two classes or more: every y is 3"):
        volume_under_surface([3, 3], [0, 1])


# Thresholds ---------------------------------------------------------------------------------------------------------


@given(scored_classes(max_rows=12), st.sampled_from(COSTS))
@examples(150)
def test_thresholds_have_the_least_cost(rows, cost):
    codes, scores, _ = rows
    k = int(codes.max()) + 1
    thresholds, found = least_cost_thresholds(scores, codes, k, cost)
    assert thresholds.shape == (k - 1,)
    assert (thresholds[1:] >= thresholds[:-1]).all()
    assert oracles.ordinal_cost(np.searchsorted(thresholds, scores), codes, cost) == found
    assert found == oracles.least_ordinal_cost(scores, codes, k, cost)


def test_a_threshold_between_neighbouring_numbers_separates_them():
    scores = np.array([1.0, np.nextafter(1.0, 2.0)])
    thresholds, cost = least_cost_thresholds(scores, np.array([0, 1]), 2, "zero-one")
    assert cost == 0.0
    assert np.searchsorted(thresholds, scores).tolist() == [0, 1]


# The learner --------------------------------------------------------------------------------------------------------


def graded(m=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    utility = X @ [1.0, -1.0, 0.5] + 0.4 * rng.normal(size=m)
    return X, np.digitize(utility, [-1.0, 0.0, 1.5]) * 2 + 1, np.repeat(np.arange(m // 10), 10)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("cv", [4, "leave-one-out", StratifiedKFold(3)], ids=str)
@pytest.mark.parametrize("estimator", [RankRLS(), RankRLS(kernel="rbf"), RLS(), RankSVM()], ids=str)
def test_thresholds_come_from_scores_that_have_not_seen_the_row(estimator, cv, cost):
    X, y, _ = graded(60)
    model = OrdinalRanker(estimator, cost=cost, cv=cv).fit(X, y)
    codes = (y - 1) // 2
    scores = np.empty(60)
    folds = cv
    if cv == 4:
        order = np.argsort(codes, kind="stable")
        folds = [order[k::4] for k in range(4)]
    elif cv == "leave-one-out":
        folds = np.arange(60)[:, None]
    else:
        folds = [test for _, test in cv.split(X, codes)]
    for test in folds:
        rest = np.setdiff1d(np.arange(60), test)
        scores[test] = clone(estimator).fit(X[rest], codes[rest]).predict(X[test])
    expected, total = least_cost_thresholds(scores, codes, 4, cost)
    np.testing.assert_allclose(model.thresholds_, expected, atol=1e-5)
    assert model.cost_ == pytest.approx(total / 60)
    whole = clone(estimator).fit(X, codes).predict(X)
    np.testing.assert_allclose(model.decision_function(X), whole, atol=1e-6)
    np.testing.assert_array_equal(
        model.predict(X), [1, 3, 5, 7] @ (np.searchsorted(model.thresholds_, whole) == np.arange(4)[:, None])
    )
    assert model.classes_.tolist() == [1, 3, 5, 7] and model.predict(X).dtype == y.dtype


def test_queries_leave_whole():
    X, y, qid = graded()
    X = X + 0.1 * qid[:, None]
    model = OrdinalRanker(RankRLS(), cv=3).fit(X, y, qid=qid)
    codes = (y - 1) // 2
    scores = HeldOut(RankRLS(), X, codes.astype(float), qid=qid).predict(QueryKFold(3))[0]
    np.testing.assert_allclose(
        model.thresholds_, least_cost_thresholds(scores, codes, 4, "absolute")[0], atol=1e-9
    )
    assert model.score(X, y, qid=qid) == concordance(y, model.decision_function(X), qid)
    assert model.rank(X, qid=qid).max() == 10
    pairs = np.array([[0, 1], [5, 7]])
    f = model.decision_function(X)
    assert model.score_pairs(X, pairs) == np.mean(f[pairs[:, 0]] > f[pairs[:, 1]])


def test_a_search_chooses_its_alpha_once():
    X, y, _ = graded()
    model = OrdinalRanker(RankRLSCV([0.1, 1.0, 10.0])).fit(X, y)
    assert model.estimator_.alpha_ in (0.1, 1.0, 10.0)
    plain = OrdinalRanker(RankRLS(model.estimator_.alpha_)).fit(X, y)
    np.testing.assert_allclose(model.thresholds_, plain.thresholds_, atol=1e-8)


def test_classes_that_cannot_be_told_apart_are_never_predicted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = np.where(X[:, 0] > 0, 2, rng.integers(0, 10, 300) > 8)
    model = OrdinalRanker(RankRLS(), cost="zero-one").fit(X, y)
    assert 1 not in model.predict(X)
    assert model.thresholds_.shape == (2,)


def test_order_of_the_wines():
    """The classes of a data set with features on very different scales, unseen rows."""
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), OrdinalRanker(RankRLSCV(kernel="rbf")))
    cv = StratifiedKFold(5, shuffle=True, random_state=0)
    assert cross_val_score(model, X, y, cv=cv, scoring="accuracy").mean() > 0.93
    assert cross_val_score(model, X, y, cv=cv, scoring=get_scorer("vus")).mean() > 0.9


def test_in_a_search_of_scikit_learn():
    X, y, _ = graded()
    search = GridSearchCV(
        OrdinalRanker(RankRLS(kernel="rbf")), {"estimator__alpha": [1e-3, 1.0], "cost": COSTS},
        scoring="neg_mean_absolute_error", cv=3,
    ).fit(X, y)  # fmt: skip
    assert set(search.best_params_) == {"estimator__alpha", "cost"}
    sparse = OrdinalRanker(RankRLS()).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(
        sparse.decision_function(X), OrdinalRanker(RankRLS()).fit(X, y).decision_function(X)
    )


@pytest.mark.parametrize(
    "model",
    [OrdinalRanker(), OrdinalRanker(RLS(kernel="rbf"), cost="zero-one"), OrdinalRanker(RankSVM())],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:The best alpha", "ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_checks(model):
    check_estimator(model)


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"cost": "squared"}, None, "cost must be one of 'absolute', 'zero-one': found 'squared'"),
        ({"cv": 1}, None, "n_splits=2 or more"),
        ({"cv": "leave-query-out"}, None, r"leave-query-out.*qid="),
        ({}, ["good", "bad"] * 60, "write 0, 1, 2, ... for grades in words"),
        ({}, np.ones((120, 2)), "expected one class per row"),
        ({}, np.ones(120), "two classes or more: found 1 class"),
        ({"estimator": 3}, None, "int has no predict: expected a ranker"),
    ],
)
def test_refusals(options, y, message):
    X, grades, _ = graded()
    with pytest.raises(ValueError, match=message):
        OrdinalRanker(**options).fit(X, grades if y is None else y)
