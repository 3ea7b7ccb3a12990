"""Features relative to their query: against the obvious loop, and through scikit-learn's pipelines and searches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.oracles import relative_to_query
from tests.strategies import ranking_problems

from preflearn import RankRLS
from preflearn.io import load_model, save_model
from preflearn.metrics import concordance
from preflearn.model_selection import QueryKFold
from preflearn.preprocessing import QueryRelative

METHODS = pytest.mark.parametrize("method", ["standardise", "rank"])
RNG = np.random.default_rng(0)
QID = np.repeat(np.arange(12), 5)
X = RNG.normal(size=(60, 3)) + 10 * RNG.normal(size=12)[QID][:, None]
Y = relative_to_query(X, QID, "rank") @ [1.0, -1.0, 0.0] + 0.1 * RNG.normal(size=60)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# Without qid all rows are one query, and a row alone has nothing to be compared with.
NOT_ROW_BY_ROW = {"check_methods_subset_invariance": "a row is relative to the others by design"}


@parametrize_with_checks(
    [QueryRelative(), QueryRelative("rank", keep=False)], expected_failed_checks=lambda _: NOT_ROW_BY_ROW
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@METHODS
@given(
    ranking_problems(),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from([1.0, 1e150, 1e-150]),
    st.booleans(),
)
def test_equals_the_loop_over_queries(method, problem, dtype, scale, ties):
    features = np.round(problem.X) if ties else problem.X
    features = (features * (scale if dtype == np.float64 else 1.0)).astype(dtype)
    before = features.copy()
    found = QueryRelative(method).fit_transform(features, qid=problem.qid)
    width = features.shape[1]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found[:, :width], before)
    np.testing.assert_array_equal(features, before)
    expected = relative_to_query(
        features / features.dtype.type(scale if dtype == np.float64 else 1), problem.qid, method
    )
    np.testing.assert_allclose(found[:, width:], expected, atol=1e-9 if dtype == np.float64 else 2e-3)


@METHODS
def test_one_row_and_constant_features_are_zero(method):
    features = np.array([[5.0, 1.0], [0.1 + 0.2, 2.0], [0.3, 4.0]])
    found = QueryRelative(method, keep=False).fit_transform(features, qid=["alone", "two", "two"])
    np.testing.assert_array_equal(found[0], [0.0, 0.0])
    np.testing.assert_allclose(found[1:, 1], [-1.0, 1.0])
    if method == "standardise":  # a difference of rounding is none
        np.testing.assert_array_equal(found[:, 0], [0.0, 0.0, 0.0])


def test_without_qid_all_rows_are_one_query():
    np.testing.assert_allclose(
        QueryRelative(keep=False).fit_transform(X), StandardScaler().fit_transform(X), atol=1e-12
    )


def test_names_and_frames():
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(60) + 100)
    model = QueryRelative().set_output(transform="pandas")
    found = model.fit_transform(frame, qid=pd.Series(QID))
    assert list(found) == ["a", "b", "c", "a_in_query", "b_in_query", "c_in_query"]
    assert (found.index == frame.index).all()
    ranks = QueryRelative("rank", keep=False).fit(pl.DataFrame(frame), qid=QID)
    assert ranks.get_feature_names_out().tolist() == [f"{name}_rank_in_query" for name in "abc"]
    assert clone(model).get_params() == {"method": "standardise", "keep": True}


def test_refusals():
    fitted = QueryRelative().fit(X, qid=QID)
    with pytest.raises(ValueError, match=r"needs qid here too.*enable_metadata_routing"):
        fitted.transform(X)
    with pytest.raises(ValueError, match="fitted without qid"):
        QueryRelative().fit(X).transform(X, qid=QID)
    with pytest.raises(TypeError, match="sparse"):
        fitted.transform(sp.csr_array(X), qid=QID)
    with pytest.raises(ValueError, match="one query label per row"):
        fitted.transform(X, qid=QID[:-1])
    with pytest.raises(ValueError, match="'standardise' or 'rank'"):
        QueryRelative("ranks").fit(X, qid=QID)


@METHODS
def test_qid_reaches_predict_through_a_pipeline(routing, method, tmp_path):
    pipeline = make_pipeline(QueryRelative(method), StandardScaler(), RankRLS()).fit(X, Y, qid=QID)
    by_hand = np.hstack([X, relative_to_query(X, QID, method)])
    model = make_pipeline(StandardScaler(), RankRLS()).fit(by_hand, Y, qid=QID)
    np.testing.assert_allclose(pipeline.predict(X, qid=QID), model.predict(by_hand), atol=1e-8)
    assert pipeline.score(X, Y, qid=QID) == concordance(Y, model.predict(by_hand), QID)
    with pytest.raises(ValueError, match="needs qid here too"):
        pipeline.predict(X)
    save_model(pipeline, tmp_path / "model.preflearn")
    loaded = load_model(tmp_path / "model.preflearn")
    np.testing.assert_array_equal(loaded.predict(X, qid=QID), pipeline.predict(X, qid=QID))


def test_qid_reaches_every_fold_of_a_search(routing):
    pipeline = make_pipeline(QueryRelative(keep=False), RankRLS())
    grid = {"queryrelative__method": ["standardise", "rank"], "rankrls__alpha": [1.0]}
    search = GridSearchCV(pipeline, grid, cv=QueryKFold(3)).fit(X, Y, qid=QID)
    for k, method in enumerate(["standardise", "rank"]):
        features, scores = relative_to_query(X, QID, method), []
        for train, test in QueryKFold(3).split(X, qid=QID):
            model = RankRLS().fit(features[train], Y[train], qid=QID[train])
            scores.append(concordance(Y[test], model.predict(features[test]), QID[test]))
        np.testing.assert_allclose(search.cv_results_["mean_test_score"][k], np.mean(scores))
    # The predict of a search takes X alone, that of the pipeline it has chosen takes qid.
    assert search.best_estimator_.predict(X, qid=QID).shape == (60,)


def test_union_of_both(routing):
    union = make_union(QueryRelative(keep=False), QueryRelative("rank"))
    pipeline = make_pipeline(union, StandardScaler(), RankRLS())
    values = cross_val_score(pipeline, X, Y, cv=QueryKFold(3), params={"qid": QID})
    assert (values > 0.9).all()
