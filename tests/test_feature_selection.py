"""Greedy selection: every round against refitting with each candidate."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import oracles
from preflearn import RLS, RankRLS
from preflearn.feature_selection import GreedySelector
from preflearn.io import load_model, save_model
from preflearn.metrics import concordance
from preflearn.model_selection import cross_val_predict
from strategies import examples


@st.composite
def tables(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(2, 5), min_size=3, max_size=5))
    qid = np.repeat(np.arange(len(sizes)), sizes)
    m, n = qid.shape[0], draw(st.integers(3, 6))
    X = rng.normal(size=(m, n)) * draw(st.sampled_from([1.0, 100.0]))
    y = np.round(X[:, 0] + rng.normal(size=m), draw(st.integers(0, 3)))
    order = rng.permutation(m)
    return X[order], y[order], qid[order]


@given(
    tables(),
    st.sampled_from([RLS(0.5), RLS(3.0, fit_intercept=False)]),
    st.sampled_from(["leave-one-out", "leave-query-out", 3]),
)
def test_rounds_of_a_regression_are_those_of_refitting(data, model, cv) -> None:
    X, y, qid = data
    selector = GreedySelector(model, 3, cv=cv).fit(X, y, qid=qid)
    features, scores = oracles.greedy_selection(
        lambda Z: -np.mean((y - cross_val_predict(model, Z, y, qid=qid, cv=cv)) ** 2),
        X,
        3,
        selector.selected_,
    )
    np.testing.assert_allclose(selector.cv_scores_, scores, rtol=1e-6)
    np.testing.assert_allclose(features, scores, rtol=1e-6)


@given(tables(), st.sampled_from(["pair", "item", "query"]), st.sampled_from(["include", "exclude"]))
def test_rounds_of_a_ranking_are_those_of_refitting(data, weighting, ties) -> None:
    X, y, qid = data
    model = RankRLS(2.0, weighting=weighting, ties=ties)

    def score(Z):
        f = cross_val_predict(model, Z, y, qid=qid)
        L, _ = oracles.dense_comparisons(y, qid, ties=ties, weighting=weighting)
        return -(y - f) @ L @ (y - f) / y.shape[0]

    selector = GreedySelector(model, 3).fit(X, y, qid=qid)
    best, scores = oracles.greedy_selection(score, X, 3, selector.selected_)
    np.testing.assert_allclose(selector.cv_scores_, scores, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(best, scores, rtol=1e-6, atol=1e-12)


@given(tables())
@examples(20)
def test_a_measure_of_the_ranking_decides(data) -> None:
    X, y, qid = data
    y = y + 1e-3 * np.arange(y.shape[0])
    model = RankRLS(2.0)
    selector = GreedySelector(model, 2, scoring="concordance").fit(X, y, qid=qid)
    best, scores = oracles.greedy_selection(
        lambda Z: concordance(y, cross_val_predict(model, Z, y, qid=qid), qid), X, 2, selector.selected_
    )
    np.testing.assert_allclose(selector.cv_scores_, scores, atol=1e-9)
    np.testing.assert_allclose(best, scores, atol=1e-9)


def some_table():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 8)), np.repeat(np.arange(6), 10)
    return X, 3 * X[:, 5] - X[:, 2] + 0.1 * rng.normal(size=60), qid


def test_scikit_learn_selector_interface(tmp_path) -> None:
    X, y, qid = some_table()
    before = X.copy()
    selector = GreedySelector(RankRLS(), 2).fit(X, y, qid=qid)
    assert selector.selected_.tolist() == [5, 2]
    assert selector.get_support(indices=True).tolist() == [2, 5]
    np.testing.assert_array_equal(selector.transform(X), X[:, [2, 5]])
    np.testing.assert_array_equal(X, before)
    expected = RankRLS().fit(X[:, [2, 5]], y, qid=qid).predict(X[:, [2, 5]])
    np.testing.assert_allclose(selector.predict(X), expected)
    assert clone(selector).get_params()["n_features_to_select"] == 2
    pipeline = make_pipeline(GreedySelector(RLS(), 3, cv="leave-one-out"), RLS()).fit(X, y)
    assert pipeline.predict(X).shape == (60,)
    save_model(selector, tmp_path / "model")
    np.testing.assert_allclose(load_model(tmp_path / "model").predict(X), expected)
    assert selector.plot_scores().get_xlabel() == "features selected"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_features_to_select": 9}, "a number from 1 to 8"),
        ({"n_features_to_select": 0}, "a number from 1 to 8"),
        ({"estimator": RankRLS(kernel="rbf")}, "linear kernel"),
        ({"estimator": RankRLS(cost="relative")}, "no closed form for cost='relative'"),
        ({"cv": "leave-one-out"}, "part of a query"),
        ({"cv": [np.arange(10)]}, "cover all rows"),
        ({"scoring": "accuracy"}, "scoring must be one of"),
        ({"qid": None}, "needs their labels"),
    ],
)
def test_bad_input(change, message) -> None:
    X, y, qid = some_table()
    qid = change.pop("qid", qid)
    options = {"estimator": RankRLS(), "n_features_to_select": 2} | change
    with pytest.raises(ValueError, match=message):
        GreedySelector(**options).fit(X, y, qid=qid)


def test_wrong_types() -> None:
    X, y, qid = some_table()
    with pytest.raises(TypeError, match="dense columns"):
        GreedySelector(RankRLS(), 2).fit(sp.csr_array(X), y, qid=qid)
    with pytest.raises(TypeError, match="for RLS or RankRLS: found str"):
        GreedySelector("RankRLS", 2).fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="one output"):
        GreedySelector(RankRLS(), 2).fit(X, np.c_[y, y], qid=qid)
