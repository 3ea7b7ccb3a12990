"""The learners and splitters among scikit-learn's tools: checks, pipelines, searches, routing of qid, frames."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from preflearn import RLS, RankRLS
from preflearn.metrics import concordance, concordance_scorer, ndcg_scorer
from preflearn.model_selection import LeavePairOut, LeaveQueryOut, QueryKFold

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
QID = np.repeat(np.arange(10), 6)
Y = np.round(X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * RNG.normal(size=60), 1) + QID
BOTH = pytest.mark.parametrize("learner", [RLS, RankRLS])


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# scikit-learn's own checks ------------------------------------------------------------------------------------------


def not_for_a_reduced_set(estimator) -> dict[str, str]:
    """Copies of rows are a weight, but a basis drawn from more rows is another one."""
    if estimator.n_basis is None:
        return {}
    reason = "the basis vectors are drawn from the rows, copies among them"
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [
        RLS(),
        RLS(fit_intercept=False, solver="dual"),
        RLS(kernel="rbf"),
        RLS(kernel="poly", degree=2, n_basis=0.5, random_state=0),
        RLS(solver="cg"),
        RankRLS(),
        RankRLS(ties="exclude"),
        RankRLS(kernel="rbf", ties="exclude"),
        RankRLS(kernel="rbf", n_basis=0.5, random_state=0, weighting="query"),
        RankRLS(solver="cg", weighting="item"),
        RankRLS(cost="relative", kernel="laplacian"),
        RankRLS(cost="unit", solver="primal"),
    ],
    expected_failed_checks=not_for_a_reduced_set,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@BOTH
def test_parameters_survive_get_set_and_clone(learner):
    model = learner(2.0, kernel="rbf", gamma=0.3, n_basis=7, random_state=1, tol=None, verbose=0)
    assert learner(**model.get_params()).get_params() == model.get_params()
    copy = clone(model.fit(X, Y)).set_params(alpha=3.0)
    assert not hasattr(copy, "dual_coef_")
    assert (copy.alpha, copy.gamma, copy.n_basis, model.alpha) == (3.0, 0.3, 7, 2.0)


@BOTH
def test_fit_leaves_parameters_alone_and_forgets_the_last_fit(learner):
    model = learner(kernel="rbf")
    before = model.get_params()
    model.fit(X, Y)
    assert model.get_params() == before
    model.set_params(kernel="linear").fit(X[:, :2], Y)
    assert not hasattr(model, "dual_coef_")
    np.testing.assert_allclose(model.coef_, learner().fit(X[:, :2], Y).coef_)


# qid by metadata routing --------------------------------------------------------------------------------------------


def test_qid_reaches_fit_score_and_splitter_through_a_search(routing):
    pipeline = make_pipeline(StandardScaler(), RankRLS(kernel="rbf"))
    search = GridSearchCV(pipeline, {"rankrls__alpha": [0.1, 10.0]}, cv=QueryKFold(3)).fit(X, Y, qid=QID)
    for k, alpha in enumerate([0.1, 10.0]):
        by_hand = []
        for train, test in QueryKFold(3).split(X, qid=QID):
            scaler = StandardScaler().fit(X[train])
            model = RankRLS(alpha, kernel="rbf").fit(scaler.transform(X[train]), Y[train], qid=QID[train])
            by_hand.append(concordance(Y[test], model.predict(scaler.transform(X[test])), QID[test]))
        np.testing.assert_allclose(search.cv_results_["mean_test_score"][k], np.mean(by_hand))
    assert search.best_estimator_[-1].n_queries_ == 10


@pytest.mark.parametrize("scoring", [concordance_scorer, ndcg_scorer(k=3, gain="linear")])
def test_scorers_of_preflearn_receive_qid(routing, scoring):
    scores = cross_val_score(
        RankRLS(), X, np.maximum(Y, 0), scoring=scoring, cv=LeaveQueryOut(), params={"qid": QID}
    )
    assert scores.shape == (10,)
    model = RankRLS().fit(X[6:], np.maximum(Y, 0)[6:], qid=QID[6:])
    np.testing.assert_allclose(scores[0], scoring(model, X[:6], np.maximum(Y, 0)[:6], qid=QID[:6]))


def test_a_regressor_takes_part_without_being_asked_for_qid(routing):
    scores = cross_validate(
        RLS(),
        X,
        Y,
        cv=QueryKFold(3),
        params={"qid": QID},
        scoring={"order": concordance_scorer, "fit": "r2"},
    )
    assert (scores["test_order"] > 0.5).all()
    plain = cross_val_score(RLS(), X, Y, cv=QueryKFold(3), params={"qid": QID})  # its own R²
    np.testing.assert_allclose(plain, scores["test_fit"])


def test_qid_reaches_a_splitter_as_groups_without_routing():
    scores = cross_val_score(RLS(), X, Y, cv=QueryKFold(3), groups=QID)
    assert scores.shape == (3,)


def test_a_precomputed_kernel_is_split_on_both_sides(routing):
    by_matrix = cross_val_score(
        RankRLS(kernel="precomputed"), rbf_kernel(X), Y, cv=QueryKFold(3), params={"qid": QID}
    )
    by_rows = cross_val_score(RankRLS(kernel="rbf"), X, Y, cv=QueryKFold(3), params={"qid": QID})
    np.testing.assert_allclose(by_matrix, by_rows)


def test_pairs_held_out_through_cross_validation(routing):
    few, y = X[:6], np.array([0.0, 1.0, 1.0, 0.0, 2.0, 0.5])
    scores = cross_val_score(RankRLS(), few, y, cv=LeavePairOut())
    assert scores.shape == (LeavePairOut().get_n_splits(few, y),)
    assert set(scores) <= {0.0, 0.5, 1.0}


def test_scoring_without_qid_warns_where_the_model_had_several_queries():
    model = RankRLS().fit(X, Y, qid=QID)
    with pytest.warns(UserWarning, match="fitted with 10 queries and is scored without qid"):
        model.score(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.score(X, Y, qid=QID) > 0.8
        assert model.score(X, Y, qid=np.zeros(60)) < 1.0
        assert RankRLS().fit(X, Y).score(X, Y) > 0.5


def test_score_takes_weights_and_many_outputs():
    model = RankRLS().fit(X, np.stack([Y, -Y], axis=1), qid=QID)
    one = RankRLS().fit(X, Y, qid=QID)
    both = model.score(X, np.stack([Y, -Y], axis=1), qid=QID)
    np.testing.assert_allclose(both, one.score(X, Y, qid=QID))
    weight = np.ones(60)
    weight[:6] = 0.0  # the first query is gone
    weighted = one.score(X, Y, qid=QID, sample_weight=weight)
    np.testing.assert_allclose(weighted, one.score(X[6:], Y[6:], qid=QID[6:]))


# Frames -------------------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d"]


@BOTH
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_in_names_kept_and_checked(learner, frame):
    data = frame(dict(zip(NAMES, X.T, strict=True)))
    model = learner().fit(data, Y)
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_allclose(model.predict(data), learner().fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame(dict(zip(NAMES[::-1], X.T, strict=True))))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(QID),
        pd.Series(QID, index=np.arange(60)[::-1]),
        pd.Series(QID, dtype="Int64"),
        pd.Series([f"query {q}" for q in QID]),
        pd.Series([f"query {q}" for q in QID], dtype="category"),
        pl.Series(QID.tolist()),
        pl.Series([f"query {q}" for q in QID]),
        pd.DataFrame({"qid": QID}),
    ],
    ids=["int", "int with an index", "Int64", "text", "category", "polars int", "polars text", "column"],
)
def test_qid_of_any_frame_library(labels):
    expected = RankRLS().fit(X, Y, qid=QID)
    model = RankRLS().fit(X, Y, qid=labels)
    np.testing.assert_allclose(model.coef_, expected.coef_)
    assert model.n_queries_ == 10
    np.testing.assert_array_equal(model.rank(X, qid=labels), expected.rank(X, qid=QID))
    assert model.score(X, Y, qid=labels) == expected.score(X, Y, qid=QID)


@BOTH
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_scores_of_several_outputs_as_a_frame(learner, frame):
    scores = np.stack([Y, -(Y**2)], axis=1)
    model = learner().fit(X, frame({"first": scores[:, 0], "second": scores[:, 1]}))
    np.testing.assert_allclose(model.predict(X), learner().fit(X, scores).predict(X))


@BOTH
def test_scores_as_a_series(learner):
    for series in (pd.Series(Y, index=np.arange(60)[::-1]), pl.Series(Y)):
        np.testing.assert_allclose(learner().fit(X, series).predict(X), learner().fit(X, Y).predict(X))


def test_sparse_formats_give_the_same_model():
    expected = RankRLS().fit(X, Y, qid=QID).coef_
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    without_ties = RankRLS(solver="dual", ties="exclude").fit(X, Y, qid=QID).coef_
    for data in (wide, sp.csr_matrix(X), sp.csc_array(X), sp.coo_array(X), sp.lil_array(X)):
        for solver in ("primal", "dual", "cg"):
            model = RankRLS(solver=solver, ties="exclude").fit(data, Y, qid=QID)
            np.testing.assert_allclose(model.coef_, without_ties, rtol=1e-6)
        np.testing.assert_allclose(RankRLS().fit(data, Y, qid=QID).coef_, expected, atol=1e-8)
        assert RankRLS().fit(data, Y, qid=QID).predict(data).shape == (60,)


# Splitters ----------------------------------------------------------------------------------------------------------

LABELS = st.lists(st.sampled_from("abcdefghij"), min_size=2, max_size=60)


def folds_of(splitter, qid):
    folds = list(splitter.split(np.zeros((len(qid), 1)), qid=qid))
    for train, test in folds:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(qid)))
        assert not {qid[i] for i in train} & {qid[i] for i in test}  # queries stay whole
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(len(qid)))
    return folds


@given(LABELS, st.integers(2, 5), st.booleans())
def test_query_folds_are_a_balanced_partition_into_whole_queries(qid, n_splits, shuffle):
    splitter = QueryKFold(n_splits, shuffle=shuffle, random_state=0 if shuffle else None)
    if len(set(qid)) < n_splits:
        with pytest.raises(ValueError, match=f"{n_splits} folds of whole queries need at least {n_splits}"):
            folds_of(splitter, qid)
        return
    folds = folds_of(splitter, qid)
    assert len(folds) == n_splits == splitter.get_n_splits()
    sizes = [len(test) for _, test in folds]
    assert min(sizes) > 0
    # A fold only receives a query while it is the lightest, so no two differ by more than one query.
    assert max(sizes) - min(sizes) <= max(qid.count(label) for label in qid)


def test_shuffled_folds_differ_and_repeat():
    def tests(seed):
        splitter = QueryKFold(3, shuffle=True, random_state=seed)
        return [test.tolist() for _, test in splitter.split(X, qid=QID)]

    assert tests(0) == tests(0)
    assert any(tests(0) != tests(seed) for seed in range(1, 5))


@given(LABELS)
def test_each_query_is_left_out_once(qid):
    if len(set(qid)) == 1:
        with pytest.raises(ValueError, match="at least two queries"):
            folds_of(LeaveQueryOut(), qid)
        return
    folds = folds_of(LeaveQueryOut(), qid)
    assert len(folds) == len(set(qid)) == LeaveQueryOut().get_n_splits(qid=qid)
    assert all(len({qid[i] for i in test}) == 1 for _, test in folds)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=2, max_size=12), st.booleans())
def test_each_pair_with_different_scores_is_left_out_once(rows, with_qid):
    y, labels = [score for score, _ in rows], [label for _, label in rows]
    qid = labels if with_qid else None
    expected = [
        (i, j)
        for i in range(len(y))
        for j in range(i + 1, len(y))
        if y[i] != y[j] and (not with_qid or labels[i] == labels[j])
    ]
    splitter = LeavePairOut()
    if not expected:
        with pytest.raises(ValueError, match="No pair can be compared"):
            list(splitter.split(np.zeros((len(y), 1)), y, qid=qid))
        return
    folds = list(splitter.split(np.zeros((len(y), 1)), y, qid=qid))
    assert [tuple(test.tolist()) for _, test in folds] == expected
    assert all(len(train) == len(y) - 2 and not set(train) & set(test) for train, test in folds)
    assert splitter.get_n_splits(None, y, qid=qid) == len(expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: QueryKFold(1), "n_splits must be an int of at least 2: found 1"),
        (lambda: QueryKFold(2.0), "n_splits must be an int"),
        (lambda: QueryKFold(3, random_state=0), "random_state would be ignored without shuffle=True"),
        (lambda: next(QueryKFold(3).split(X)), "needs their labels: pass qid"),
        (lambda: next(LeaveQueryOut().split(X)), "needs their labels: pass qid"),
        (lambda: LeaveQueryOut().get_n_splits(X), "needs their labels: pass qid"),
        (lambda: next(QueryKFold(3).split(X, groups=QID, qid=QID)), "both qid and groups"),
        (lambda: next(QueryKFold(3).split(X, qid=QID[:5])), "found 5 labels for 60 rows"),
        (lambda: next(LeavePairOut().split(X)), "needs y"),
        (lambda: next(LeavePairOut().split(X, Y[:5])), "X has 60 rows, y has 5"),
        (lambda: next(LeavePairOut().split(X, X)), "1d"),
        (lambda: next(LeavePairOut().split(X[:2], [0.0, np.nan])), "contains NaN"),
    ],
)
def test_splits_that_cannot_be_made_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_splitters_print_as_they_are_made():
    assert repr(QueryKFold(3)) == "QueryKFold(n_splits=3, random_state=None, shuffle=False)"
    assert repr(LeaveQueryOut()) == "LeaveQueryOut()"
    assert repr(LeavePairOut()) == "LeavePairOut()"


@settings(max_examples=10)
@given(st.integers(0, 100))
def test_folds_of_whole_queries_are_folds_of_rows_when_each_row_is_a_query(seed):
    m = 10 + seed % 7
    folds = folds_of(QueryKFold(5), list(range(m)))
    rows = KFold(5).split(np.zeros((m, 1)))
    assert sorted(len(test) for _, test in folds) == sorted(len(test) for _, test in rows)
